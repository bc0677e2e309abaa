//! Model calls of agents: through the control plane, or straight to a provider whose key is the
//! organisation's own (`docs/protocol/control.md` §7.7).

mod direct;
mod providers;

pub(crate) use direct::DirectCall;
pub(crate) use providers::{Direct, Providers, is_provider_key};
