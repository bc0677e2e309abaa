//! npm packages that the program needs: which of their files, and where they go.

mod layout;
mod manifest;
mod scan;
mod walk;

pub(crate) use layout::{Layout, Want};
pub(crate) use manifest::{declared_range, installed_version};
pub(crate) use walk::{InstanceId, Npm, is_below_node_modules};
