//! The wire, as types, samples, recorded traffic and schemas agree on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
mod closed;
mod event_reader;
mod host_frames;
mod inference_stream;
mod lenient;
mod program_json;
mod recorded;
mod registry;
mod samples;
mod schemas;
mod sdk_versions;
