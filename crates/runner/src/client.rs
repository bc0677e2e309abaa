use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trestle_contract::pool::{
    ClaimResponse, Declaration, GrantedClaim, HeartbeatAction, HeartbeatRequest, HeartbeatResponse,
    LeaseReleaseRequest, PollResponse, RegisterRequest, RegisterResponse,
};
use trestle_contract::{LeaseId, RunId};
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

/// Longest `Retry-After` that is followed: a runner that sleeps longer misses its work.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A claim that was won.
#[derive(Debug)]
pub struct Claimed {
    /// What the control plane handed over.
    pub claim: GrantedClaim,
    /// Length of the assignment lease as the server's own clock measures it.
    pub lease: Duration,
}

/// What became of a claim.
#[derive(Debug)]
pub enum ClaimAnswer {
    /// The run is this runner's.
    Won(Box<Claimed>),
    /// Another runner was first.
    Lost,
    /// The run is this runner's, and the answer cannot be used. Where its lease could be read all the same, it
    /// has to be given back: nobody else gets the run before the lease ends.
    Unusable {
        /// The lease and its run.
        lease: Option<(LeaseId, RunId)>,
        /// What is wrong with the answer.
        error: RunnerError,
    },
}

/// A beat that was heard.
#[derive(Debug)]
pub struct Beaten {
    /// What the control plane wants.
    pub action: HeartbeatAction,
    /// Length of the lease from before the beat was sent.
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

    /// The connections of this client, for what is no pool call.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
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

    /// Claims an offer.
    ///
    /// # Errors
    /// Any answer but 200 and 409, and none.
    pub async fn claim(&self, token: &SecretString, assignment: &str) -> Result<ClaimAnswer, RunnerError> {
        let path = format!("/runner/v1/pool/assignments/{}/claim", utf8_percent_encode(assignment, SEGMENT));
        let answer = self.post("claim", &path, Some(token), &self.declaration, self.call_deadline).await?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(ClaimAnswer::Lost);
        }
        let terms = Terms::of(&answer);
        let answer = expect(answer, "claim", &[StatusCode::OK]).await?;
        let body = bounded(answer, "claim").await?;
        let claim = match parse::<ClaimResponse>(&body, "claim response") {
            Ok(claim) => claim.into(),
            Err(error) => match GrantedClaim::from_older_body(&body) {
                Some(claim) => claim,
                None => return Ok(ClaimAnswer::Unusable { lease: salvaged(&body), error }),
            },
        };
        let lease = terms.length(claim.lease_expires_at.get());
        Ok(ClaimAnswer::Won(Box::new(Claimed { claim, lease })))
    }

    /// Beats for a lease; `None` when the lease is lost.
    ///
    /// # Errors
    /// Any answer but 200 and 409.
    pub async fn heartbeat(
        &self,
        token: &SecretString,
        beat: &HeartbeatRequest,
    ) -> Result<Option<Beaten>, RunnerError> {
        let answer = self
            .post("heartbeat", "/runner/v1/pool/heartbeat", Some(token), beat, self.call_deadline)
            .await?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(None);
        }
        let terms = Terms::of(&answer);
        let heard: HeartbeatResponse =
            read(answer, "heartbeat", StatusCode::OK, "heartbeat response").await?;
        let lease = terms.length(heard.lease_expires_at.get());
        Ok(Some(Beaten { action: heard.action, lease }))
    }

    /// Removes this runner for good. A token that is dead already is as good as removed.
    ///
    /// # Errors
    /// Any answer but 200, 204 and 401.
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
        let good = [StatusCode::NO_CONTENT, StatusCode::OK, StatusCode::UNAUTHORIZED];
        expect(answer, "deregister", &good).await.map(drop)
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
    let retry_after = header(&answer, "retry-after").and_then(retry_after);
    let body = bounded(answer, operation).await.unwrap_or_default();
    let text = str::from_utf8(&body)
        .unwrap_or_else(|error| str::from_utf8(&body[..error.valid_up_to()]).unwrap_or_default());
    Err(RunnerError::Refused { operation, status, text: text.chars().take(500).collect(), retry_after })
}

async fn read<T: DeserializeOwned>(
    answer: Response,
    operation: &'static str,
    good: StatusCode,
    what: &'static str,
) -> Result<T, RunnerError> {
    let answer = expect(answer, operation, &[good]).await?;
    parse(&bounded(answer, operation).await?, what)
}

/// Reads a body; a failure names the place as `member.inner`, or `(root)`.
fn parse<T: DeserializeOwned>(body: &[u8], what: &'static str) -> Result<T, RunnerError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let invalid = |place: &str, error: &dyn std::fmt::Display| RunnerError::InvalidAnswer {
        what,
        problem: format!("{}: {error}", if place == "." { "(root)" } else { place }),
    };
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| invalid(&error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| invalid(".", &error))?;
    Ok(value)
}

/// The lease that an answer grants although it cannot be used as a whole.
fn salvaged(body: &[u8]) -> Option<(LeaseId, RunId)> {
    #[derive(serde::Deserialize)]
    struct Lease {
        lease_id: LeaseId,
        run_id: RunId,
    }
    serde_json::from_slice::<Lease>(body).ok().map(|lease| (lease.lease_id, lease.run_id))
}

/// What the headers of an answer say about the lease that it grants.
struct Terms {
    granted: Option<Duration>,
    server_time: Option<u64>,
}

impl Terms {
    fn of(answer: &Response) -> Self {
        Self {
            granted: header(answer, LEASE_HEADER)
                .and_then(|length| length.parse().ok())
                .map(Duration::from_millis),
            server_time: header(answer, "date").and_then(http_date_ms),
        }
    }

    fn length(&self, expires_at: u64) -> Duration {
        self.granted.unwrap_or_else(|| lease_length(expires_at, self.server_time))
    }
}

/// The wait that a refusal asks for, in seconds; dates are rare enough to be left to the own schedule.
fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
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
    fn an_answer_that_does_not_fit_names_the_place() {
        let parsed =
            |text: &str| parse::<PollResponse>(text.as_bytes(), "poll response").unwrap_err().to_string();
        let offer =
            r#"{"assignment":{"assignment_id":"a","run_id":"r","org_id":"o","runs_on":"x","queued_at":-1}}"#;
        let text = parsed(offer);
        assert!(text.starts_with("Invalid poll response:\n  assignment.queued_at: "), "{text}");
        let text = parsed("{}");
        assert!(text.starts_with("Invalid poll response:\n  (root): missing field"), "{text}");
        assert!(parsed(r#"{"assignment":null} x"#).contains("(root): trailing"));
        assert!(parsed(r#"{"assignment":null,"action":"continue"}"#).contains("  action: "));
    }

    #[test]
    fn the_lease_of_an_unusable_claim_is_still_found() {
        let lease = salvaged(br#"{"lease_id":"l","run_id":"r","surprise":1}"#).unwrap();
        assert_eq!((lease.0.as_str(), lease.1.as_str()), ("l", "r"));
        assert!(salvaged(br#"{"lease_id":"l"}"#).is_none());
        assert!(salvaged(b"<html>").is_none());
    }

    #[test]
    fn a_wait_that_is_asked_for_is_followed_up_to_five_minutes() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("86400"), Some(Duration::from_secs(300)));
        assert_eq!(retry_after("-1"), None);
        assert_eq!(retry_after("Tue, 01 Dec 2026 02:46:08 GMT"), None);
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
