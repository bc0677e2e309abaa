//! Run events: stamped, redacted, merged, kept until they are delivered
//! (`docs/protocol/control.md` §6, `docs/protocol/events.md`).

mod console;
mod deltas;
mod emitter;
mod mirror;
mod redaction;
mod sender;
mod spool;

pub(crate) use console::{Closing, ConsoleLimits, Flow, copy_console};
pub(crate) use emitter::Emitter;
pub(crate) use mirror::Mirror;
pub(crate) use sender::TelemetrySender;
