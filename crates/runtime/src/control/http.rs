use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};
use trestle_domain::Failure;
use url::Url;

use super::retry::{RetryPolicy, is_worth_another};

/// Largest answer of a control call that is read.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// How one attempt failed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) failure: Failure,
    pub(crate) message: String,
    pub(crate) answer: Option<HttpAnswer>,
}

/// The HTTP clients of a run process. One without certificates for plain addresses, because loading
/// the system's certificates takes longer than a whole short run; loopback never goes through a proxy.
#[derive(Debug, Default)]
pub(crate) struct Http {
    connect: Duration,
    local: OnceLock<Client>,
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

impl Http {
    pub(crate) fn new(connect: Duration) -> Self {
        // Installed once a process; a second call is refused and harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { connect, ..Self::default() }
    }

    /// Prepares what the first request needs, ahead of the first request.
    pub(crate) fn warm(&self) {
        let _ = self.client(&Url::parse("http://127.0.0.1/").ok());
    }

    fn client(&self, url: &Option<Url>) -> Result<Client, String> {
        let base = || {
            Client::builder()
                .connect_timeout(self.connect)
                .redirect(reqwest::redirect::Policy::limited(3))
                .tcp_nodelay(true)
                .pool_idle_timeout(Duration::from_secs(30))
        };
        let (slot, builder): (_, fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder) = match url {
            Some(url) if url.scheme() == "https" => (&self.secure, |builder| builder),
            Some(url) if is_loopback(url) => (&self.local, |builder| builder.no_proxy().tls_certs_only([])),
            _ => (&self.plain, |builder| builder.tls_certs_only([])),
        };
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let client = builder(base()).build().map_err(|error| describe(&error))?;
        Ok(slot.get_or_init(|| client).clone())
    }

    /// A request to be completed by the caller.
    pub(crate) fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, String> {
        let parsed = Url::parse(url).map_err(|error| format!("{error}: not a valid address"))?;
        Ok(self.client(&Some(parsed.clone()))?.request(method, parsed))
    }

    /// Sends until an accepted answer arrives that can be read, or no further attempt is due. `build`
    /// makes the same request each time.
    pub(crate) async fn send<T>(
        &self,
        build: impl Fn() -> Result<RequestBuilder, String>,
        accepted: &[u16],
        read: impl Fn(&HttpAnswer) -> Result<T, String>,
        deadline: Duration,
        policy: &RetryPolicy,
    ) -> Result<T, Attempt> {
        let mut attempts = policy.begin();
        loop {
            let failed = match attempt_once(&build, deadline).await {
                Ok(answer) if accepted.contains(&answer.status) => match read(&answer) {
                    Ok(value) => return Ok(value),
                    Err(message) => Attempt { failure: Failure::Body, message, answer: Some(answer) },
                },
                Ok(answer) => Attempt {
                    failure: Failure::Status(answer.status),
                    message: format!("status {}", answer.status),
                    answer: Some(answer),
                },
                Err(attempt) => attempt,
            };
            if !is_worth_another(failed.failure) {
                return Err(failed);
            }
            let asked_for = failed.answer.as_ref().and_then(|answer| retry_after(&answer.headers));
            let Some(wait) = attempts.pause(failed.failure, asked_for) else { return Err(failed) };
            tracing::debug!(reason = %failed.message, ?wait, "a control call is tried again");
            tokio::time::sleep(wait).await;
        }
    }
}

async fn attempt_once(
    build: &impl Fn() -> Result<RequestBuilder, String>,
    deadline: Duration,
) -> Result<HttpAnswer, Attempt> {
    let until = Instant::now() + deadline;
    let transport = |message: String| Attempt { failure: Failure::Transport, message, answer: None };
    let request = build().map_err(transport)?;
    let response = match timeout_at(until, request.send()).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(transport(describe(&error))),
        Err(_) => return Err(transport(format!("no answer within {deadline:?}"))),
    };
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    match timeout_at(until, read_body(response)).await {
        Ok(Ok(body)) => Ok(HttpAnswer { status, headers, body }),
        Ok(Err(message)) => Err(Attempt { failure: Failure::Body, message, answer: None }),
        Err(_) => Err(transport(format!("the answer did not end within {deadline:?}"))),
    }
}

async fn read_body(mut response: Response) -> Result<Bytes, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| describe(&error))? {
        if body.len() + chunk.len() > LARGEST_ANSWER {
            return Err("the answer is larger than 64 MiB".into());
        }
        if body.is_empty() && response.content_length() == Some(chunk.len() as u64) {
            return Ok(chunk);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Bytes::from(body))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(url::Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

/// The whole chain of causes; `reqwest` names the reason last, and the address (which may hold a
/// signature) is left out.
pub(crate) fn describe(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = source {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if text.is_empty() {
        text = if error.is_timeout() { "timed out".into() } else { "the request failed".into() };
    }
    text
}

/// The header of all control calls but inference.
pub(crate) fn accept_json(builder: RequestBuilder) -> RequestBuilder {
    builder.header(ACCEPT, HeaderValue::from_static("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_bypass_a_proxy() {
        for (url, expected) in [
            ("http://127.0.0.1:7070/x", true),
            ("http://localhost/", true),
            ("http://[::1]:1/", true),
            ("http://10.0.0.1/", false),
            ("http://localhost.example.org/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn preparing_the_clients_needs_no_network_and_no_certificates() {
        let http = Http::new(Duration::from_secs(1));
        http.warm();
        assert!(http.local.get().is_some());
        assert!(http.secure.get().is_none());
    }
}
