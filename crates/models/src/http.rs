//! The HTTP client that reaches model endpoints.

use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};

use crate::error::{ErrorClass, ModelError};

/// How the client reaches endpoints.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The longest time to open a connection, TLS included.
    pub connect_timeout: Duration,
    /// Whether the proxies of the environment are used.
    pub proxies: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(10), proxies: true }
    }
}

/// A client with our TLS provider, no total timeout, and redirects only within one origin, so that no key reaches another host.
///
/// A machine without root certificates gets a client that can speak plain HTTP; HTTPS then fails with a message that says so.
///
/// # Errors
/// [`ErrorClass::Configuration`] when no client can be built at all.
pub fn http_client(options: &HttpOptions) -> Result<reqwest::Client, ModelError> {
    // A second installation finds the first one, which is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let builder = reqwest::Client::builder()
            .connect_timeout(options.connect_timeout)
            .redirect(Policy::custom(within_origin))
            .referer(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .pool_idle_timeout(Duration::from_secs(60))
            .user_agent(concat!("trestle/", env!("CARGO_PKG_VERSION")));
        if options.proxies { builder } else { builder.no_proxy() }
    };
    builder().build().or_else(|error| {
        tracing::warn!(%error, "no root certificates: HTTPS model endpoints cannot be verified");
        builder()
            .tls_certs_only([])
            .build()
            .map_err(|error| ModelError::new(ErrorClass::Configuration, format!("no HTTP client: {error}")))
    })
}

/// How many redirects of one origin are followed.
const MOST_REDIRECTS: usize = 3;

fn within_origin(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if same && attempt.previous().len() <= MOST_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

/// What went wrong with a connection, in few words and without the address's path or query.
pub(crate) fn connection_error(error: reqwest::Error, address: &str) -> ModelError {
    let timed_out = error.is_timeout();
    let connecting = error.is_connect() || error.is_builder();
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let words = if timed_out && connecting { "no connection in time".to_owned() } else { cause.to_string() };
    if connecting {
        ModelError::new(
            ErrorClass::Unreachable,
            format!("cannot reach the model endpoint {address}: {words}"),
        )
    } else {
        ModelError::new(
            ErrorClass::Interrupted,
            format!("the connection to the model endpoint {address} broke: {words}"),
        )
    }
}
