use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trestle_contract::pool::{
    ClaimResponse, Declaration, HeartbeatRequest, HeartbeatResponse, LeaseReleaseRequest, PollResponse,
    RegisterRequest, RegisterResponse,
};
use url::Url;

use crate::RunnerError;

/// What `encodeURIComponent` leaves alone.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Says that this runner is ours: it beats often enough for a short lease.
const RUNNER_HEADER: &str = "x-trestle-runner";
/// Full length of a lease granted by an answer, in milliseconds.
const LEASE_HEADER: &str = "x-trestle-lease-ms";

/// Longest pool answer that is read, in bytes.
const MAX_ANSWER: usize = 5 * 1024 * 1024;

/// The pool calls of one machine (`docs/protocol/pool.md`).
#[derive(Debug, Clone)]
pub struct PoolClient {
    http: reqwest::Client,
    base: String,
    declaration: Declaration,
    poll_deadline: Duration,
    call_deadline: Duration,
}

/// A claim that was won.
#[derive(Debug)]
pub struct Claimed {
    /// What the control plane handed over.
    pub claim: ClaimResponse,
    /// Length of the assignment lease as the server's own clock measures it.
    pub lease: Duration,
}

impl PoolClient {
    /// A client for the control plane at `url`.
    ///
    /// # Errors
    /// When `url` is no absolute http(s) address or no TLS set-up is possible.
    pub fn new(
        url: &str,
        declaration: Declaration,
        poll_deadline: Duration,
        call_deadline: Duration,
    ) -> Result<Self, RunnerError> {
        let parsed = Url::parse(url.trim())
            .ok()
            .filter(|parsed| matches!(parsed.scheme(), "http" | "https") && parsed.has_host());
        if parsed.is_none() {
            return Err(RunnerError::Address { url: url.to_owned() });
        }
        // A second call is refused and harmless: the first provider stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|source| RunnerError::Unreachable { operation: "connect", source })?;
        let base = url.trim().strip_suffix('/').unwrap_or(url.trim()).to_owned();
        Ok(Self { http, base, declaration, poll_deadline, call_deadline })
    }

    /// Redeems a registration token.
    ///
    /// # Errors
    /// Any answer but 201.
    pub async fn register(&self, request: &RegisterRequest) -> Result<RegisterResponse, RunnerError> {
        let answer = self.post("register", "/runner/v1/register", None, request, self.call_deadline).await?;
        read(answer, "register", StatusCode::CREATED, "registration response").await
    }

    /// Asks for work; the server holds the call while there is none.
    ///
    /// # Errors
    /// Any answer but 200.
    pub async fn poll(&self, token: &SecretString) -> Result<PollResponse, RunnerError> {
        let answer = self
            .post("poll", "/runner/v1/pool/poll", Some(token), &self.declaration, self.poll_deadline)
            .await?;
        read(answer, "poll", StatusCode::OK, "poll response").await
    }

    /// Claims an offer; `None` when another runner won.
    ///
    /// # Errors
    /// Any answer but 200 and 409.
    pub async fn claim(
        &self,
        token: &SecretString,
        assignment: &str,
    ) -> Result<Option<Claimed>, RunnerError> {
        let path = format!("/runner/v1/pool/assignments/{}/claim", utf8_percent_encode(assignment, SEGMENT));
        let answer = self.post("claim", &path, Some(token), &self.declaration, self.call_deadline).await?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(None);
        }
        let granted =
            header(&answer, LEASE_HEADER).and_then(|length| length.parse().ok()).map(Duration::from_millis);
        let server_time = header(&answer, "date").and_then(http_date_ms);
        let claim: ClaimResponse = read(answer, "claim", StatusCode::OK, "claim response").await?;
        let lease = granted.unwrap_or_else(|| lease_length(claim.lease_expires_at.get(), server_time));
        Ok(Some(Claimed { lease, claim }))
    }

    /// Beats for a lease; `None` when the lease is lost.
    ///
    /// # Errors
    /// Any answer but 200 and 409.
    pub async fn heartbeat(
        &self,
        token: &SecretString,
        beat: &HeartbeatRequest,
    ) -> Result<Option<HeartbeatResponse>, RunnerError> {
        let answer = self
            .post("heartbeat", "/runner/v1/pool/heartbeat", Some(token), beat, self.call_deadline)
            .await?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(None);
        }
        read(answer, "heartbeat", StatusCode::OK, "heartbeat response").await.map(Some)
    }

    /// Removes this runner for good.
    ///
    /// # Errors
    /// Any answer but 200 and 204.
    pub async fn deregister(&self, token: &SecretString) -> Result<(), RunnerError> {
        let answer = self
            .post(
                "deregister",
                "/runner/v1/pool/deregister",
                Some(token),
                &serde_json::json!({}),
                self.call_deadline,
            )
            .await?;
        expect(answer, "deregister", &[StatusCode::NO_CONTENT, StatusCode::OK]).await.map(drop)
    }

    /// Gives a leased run back, so that it need not wait for the lease to run out.
    ///
    /// # Errors
    /// Any answer but a success, and 404 or 409: somebody else has the run by now, or the control plane does
    /// not know the call and takes the run back when the lease ends.
    pub async fn release(
        &self,
        token: &SecretString,
        request: &LeaseReleaseRequest,
    ) -> Result<(), RunnerError> {
        let answer =
            self.post("release", "/runner/v1/pool/release", Some(token), request, self.call_deadline).await?;
        let good = [StatusCode::NO_CONTENT, StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::CONFLICT];
        expect(answer, "release", &good).await.map(drop)
    }

    async fn post(
        &self,
        operation: &'static str,
        path: &str,
        token: Option<&SecretString>,
        body: &(impl Serialize + Sync),
        deadline: Duration,
    ) -> Result<Response, RunnerError> {
        let mut request = self
            .http
            .post(format!("{}{path}", self.base))
            .header(RUNNER_HEADER, self.declaration.runner_version.as_str())
            .json(body)
            .timeout(deadline);
        if let Some(token) = token {
            request = request.bearer_auth(token.expose_secret());
        }
        request
            .send()
            .await
            .map_err(|source| RunnerError::Unreachable { operation, source: source.without_url() })
    }
}

fn header<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

async fn expect(
    answer: Response,
    operation: &'static str,
    good: &[StatusCode],
) -> Result<Response, RunnerError> {
    if good.contains(&answer.status()) {
        return Ok(answer);
    }
    let status = answer.status().as_u16();
    let body = bounded(answer, operation).await.unwrap_or_default();
    let text = str::from_utf8(&body)
        .unwrap_or_else(|error| str::from_utf8(&body[..error.valid_up_to()]).unwrap_or_default());
    Err(RunnerError::Refused { operation, status, text: text.chars().take(500).collect() })
}

async fn read<T: DeserializeOwned>(
    answer: Response,
    operation: &'static str,
    good: StatusCode,
    what: &'static str,
) -> Result<T, RunnerError> {
    let answer = expect(answer, operation, &[good]).await?;
    let body = bounded(answer, operation).await?;
    serde_json::from_slice(&body)
        .map_err(|error| RunnerError::InvalidAnswer { what, problem: error.to_string() })
}

async fn bounded(mut answer: Response, operation: &'static str) -> Result<Vec<u8>, RunnerError> {
    let mut body = Vec::new();
    loop {
        let chunk = answer
            .chunk()
            .await
            .map_err(|source| RunnerError::Unreachable { operation, source: source.without_url() })?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(RunnerError::InvalidAnswer {
                what: operation,
                problem: "(root): the answer is larger than 5 MiB".to_owned(),
            });
        }
        body.extend_from_slice(&chunk);
    }
}

/// The lease's length by the clock that granted it. Without that clock's reading the shortest length of the
/// known control planes is assumed: ending a run too early costs an attempt, too late costs its fence.
fn lease_length(expires_at: u64, server_time: Option<u64>) -> Duration {
    const SHORTEST: u64 = 90_000;
    let length = server_time.map_or(SHORTEST, |now| expires_at.saturating_sub(now));
    Duration::from_millis(length.clamp(1, 24 * 3_600_000))
}

/// Milliseconds since the epoch of an HTTP date (`Tue, 01 Dec 2026 02:46:08 GMT`).
fn http_date_ms(text: &str) -> Option<u64> {
    let mut parts = text.split_once(", ")?.1.split(' ');
    let day: i64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = i64::try_from(months.iter().position(|month| *month == name)?).ok()? + 1;
    let year: i64 = parts.next()?.parse().ok()?;
    let mut clock = parts.next()?.split(':').map(str::parse::<i64>);
    let (hour, minute, second) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
    if parts.next()? != "GMT" {
        return None;
    }
    // Days since the epoch in the proleptic Gregorian calendar, with years that begin in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_are_read_across_leap_years() {
        for (text, ms) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199_000),
            ("Tue, 01 Dec 2026 02:46:08 GMT", 1_796_093_168_000),
            ("Fri, 01 Mar 2400 00:00:00 GMT", 13_574_649_600_000),
        ] {
            assert_eq!(http_date_ms(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "now",
            "Thu, 01 Foo 1970 00:00:00 GMT",
            "Thu, 01 Jan 1970 00:00 GMT",
            "Thu, 01 Jan 1970 00:00:00 CET",
        ] {
            assert_eq!(http_date_ms(text), None, "{text}");
        }
    }

    #[test]
    fn lease_length_does_not_depend_on_this_machines_clock() {
        assert_eq!(lease_length(300_000, Some(210_000)), Duration::from_secs(90));
        assert_eq!(lease_length(300_000, None), Duration::from_secs(90));
        assert_eq!(lease_length(0, Some(210_000)), Duration::from_millis(1));
    }

    #[test]
    fn segments_are_encoded_like_the_original() {
        assert_eq!(utf8_percent_encode("a/b c(é)*", SEGMENT).to_string(), "a%2Fb%20c(%C3%A9)*");
    }

    #[test]
    fn an_address_without_scheme_is_refused() {
        let declaration = crate::runner::declaration;
        for url in ["127.0.0.1:7070", "ftp://x", "http://", ""] {
            let client = PoolClient::new(url, declaration(), Duration::from_secs(1), Duration::from_secs(1));
            assert!(matches!(client, Err(RunnerError::Address { .. })), "{url}");
        }
    }
}
