//! The host protocol: what a program may ask of this process (`docs/protocol/host.md`).

mod activity;
mod calls;
mod capabilities;
mod connection;
mod explain;
mod failure;
mod framing;
mod mapped;
mod schema;
mod server;
mod socket;

pub(crate) use activity::Activity;
pub(crate) use calls::resolve_secret;
pub(crate) use capabilities::{Capabilities, RunFacts, Services};
pub(crate) use failure::HostFailure;
pub(crate) use schema::{OutputSchema, accepts_empty_object_only};
pub(crate) use server::HostServer;
pub(crate) use socket::HostSocket;
