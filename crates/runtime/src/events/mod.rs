//! Run events: stamped, redacted, merged, kept until they are delivered
//! (`docs/protocol/control.md` §6, `docs/protocol/events.md`).

mod console;
mod deltas;
mod emitter;
mod redaction;
mod sender;
mod spool;

pub(crate) use console::{ConsoleLimits, copy_console};
pub(crate) use emitter::Emitter;
pub(crate) use sender::TelemetrySender;
