//! Why the server could not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use trestle_contract::error::ErrorCode;

/// Why the server could not start. Each has a code and, where something can be
/// done about it, a hint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process listens on the address.
    #[error("the address {address} is taken")]
    AddressInUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The system does not let this user listen on the address.
    #[error("this user may not listen on {address}")]
    AddressDenied {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Listening failed for another reason.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the data directory could not be read or written.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key file holds something else.
    #[error("{path} is damaged: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The public address is not an absolute http or https address.
    #[error("the public address `{0}` is not an absolute http(s) address")]
    PublicUrl(String),
    /// The store refused an operation of the start.
    #[error("the store failed at the start: {0}")]
    Store(#[from] trestle_store::StoreError),
    /// The settings of the model cannot work.
    #[error("{0}")]
    Model(#[from] trestle_models::ModelError),
}

impl Error {
    /// The code that the command line and `docs/errors` know the failure by.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::AddressInUse { .. } | Self::AddressDenied { .. } | Self::Listen { .. } => {
                ErrorCode::ListenFailed
            }
            Self::File { .. } | Self::Damaged { .. } => ErrorCode::DataDirectory,
            Self::PublicUrl(_) | Self::Model(_) => ErrorCode::ValidationFailed,
            Self::Store(_) => ErrorCode::InternalError,
        }
    }

    /// What can be done about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::AddressInUse { .. } => {
                Some("stop the other process, or choose another address with --listen".to_owned())
            }
            Self::AddressDenied { .. } => Some("choose a port above 1023 with --listen".to_owned()),
            Self::Listen { .. } => Some("choose another address with --listen".to_owned()),
            Self::File { .. } => Some("the data directory must be writable by this user".to_owned()),
            Self::Damaged { .. } => Some("restore the file from a backup".to_owned()),
            Self::PublicUrl(_) => Some("for example --public-url https://trestle.example".to_owned()),
            Self::Model(error) => error.hint().map(str::to_owned),
            Self::Store(_) => None,
        }
    }
}
