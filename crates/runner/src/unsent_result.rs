//! The end of a run that its process could not have stored: sent by the runner in its place, because a
//! program that has ended is not run again.

use std::path::Path;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use trestle_contract::RunId;
use trestle_domain::{Backoff, BootClock, Clock};
use trestle_sandbox::slot::UNSENT_RESULT;

/// Largest result that is read: a run process stores no larger one.
const LARGEST: u64 = 65 * 1024 * 1024;
/// Deadline of one attempt.
const ATTEMPT: Duration = Duration::from_secs(30);

/// A result that was not stored, as the run process left it.
#[derive(Debug, Deserialize)]
pub(crate) struct UnsentResult {
    url: String,
    body: Box<RawValue>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is stored.
    Stored,
    /// The control plane has another answer: the run is not ours any more, or the result is none.
    Refused,
    /// There was no answer before the lease was over.
    Unanswered,
}

impl UnsentResult {
    /// The result in the directory of a run process that is gone, if there is one. Only one for this run at
    /// this control plane is taken: the file lies where programs of the same user could have written it.
    pub(crate) fn find(directory: &Path, control_plane: &str, run: &RunId) -> Option<Self> {
        let path = directory.join(UNSENT_RESULT);
        let size = std::fs::metadata(&path).ok()?.len();
        if size > LARGEST {
            tracing::warn!(%run, size, "unsent_result_too_large");
            return None;
        }
        let result: Self = serde_json::from_slice(&std::fs::read(&path).ok()?)
            .inspect_err(|error| tracing::warn!(%run, %error, "unsent_result_unreadable"))
            .ok()?;
        let begins = format!("{}/runner/v1/runs/", control_plane.trim_end_matches('/'));
        let is_ours = result.url.strip_prefix(&begins).is_some_and(|rest| {
            let name: String = percent_encoding::percent_decode_str(rest).decode_utf8_lossy().into_owned();
            name == format!("{run}/finalize")
        });
        is_ours.then_some(result)
    }

    /// Sends it until there is an answer that a repeat would not change, or `deadline_ms` on the boot clock.
    pub(crate) async fn send(&self, http: &reqwest::Client, token: &SecretString, deadline_ms: i64) -> Sent {
        let mut backoff = Backoff::new(200, 5_000);
        loop {
            let left = deadline_ms.saturating_sub(BootClock.now_ms());
            let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else {
                return Sent::Unanswered;
            };
            let answer = http
                .post(&self.url)
                .bearer_auth(token.expose_secret())
                .header(reqwest::header::ACCEPT, "application/json")
                .header(reqwest::header::CONTENT_TYPE, "application/json")
                .body(self.body.get().to_owned())
                .timeout(ATTEMPT.min(Duration::from_millis(left)))
                .send()
                .await;
            match answer.map(|answer| answer.status().as_u16()) {
                Ok(204) => return Sent::Stored,
                Ok(408 | 425 | 429 | 500..) => {}
                Ok(status) => {
                    tracing::warn!(status, "unsent_result_refused");
                    return Sent::Refused;
                }
                Err(error) => tracing::debug!(error = %error.without_url(), "unsent_result_not_sent"),
            }
            tokio::time::sleep(Duration::from_millis(backoff.next_ms().min(left))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_result_of_this_run_at_this_control_plane_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunId::new("01RUN").unwrap();
        let find = |text: &str| {
            std::fs::write(directory.path().join(UNSENT_RESULT), text).unwrap();
            UnsentResult::find(directory.path(), "http://plane/", &run)
        };
        let body = r#"{"status":"completed","output":12345678901234567890,"workerId":"w"}"#;
        let result = |url: &str| format!(r#"{{"url":"{url}","body":{body}}}"#);
        let found = find(&result("http://plane/runner/v1/runs/01RUN/finalize")).unwrap();
        assert_eq!(found.body.get(), body, "byte for byte");
        for url in [
            "http://plane/runner/v1/runs/01OTHER/finalize",
            "http://plane/runner/v1/runs/01RUN/release",
            "http://elsewhere/runner/v1/runs/01RUN/finalize",
            "http://plane/runner/v1/runs/01RUN/../01OTHER/finalize",
        ] {
            assert!(find(&result(url)).is_none(), "{url}");
        }
        assert!(find("{\"url\":").is_none());
        std::fs::remove_file(directory.path().join(UNSENT_RESULT)).unwrap();
        assert!(UnsentResult::find(directory.path(), "http://plane", &run).is_none());
    }

    /// A run that its process has finished and could not tell, at a control plane that checks what it gets.
    async fn unsent() -> (trestle_testkit::control_plane::FakeControlPlane, UnsentResult, SecretString) {
        use trestle_testkit::control_plane::{FakeControlPlane, FakeRun, Options};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plane = FakeControlPlane::start(Options::default()).await.unwrap();
        let token = plane.lease(FakeRun::new("01RUN", Vec::new()).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            r#"{{"url":"{}/runner/v1/runs/01RUN/finalize","body":{{"status":"completed","output":[1],"workerId":"w"}}}}"#,
            plane.url()
        );
        std::fs::write(directory.path().join(UNSENT_RESULT), text).unwrap();
        let run = RunId::new("01RUN").unwrap();
        let found = UnsentResult::find(directory.path(), &plane.url(), &run).unwrap();
        (plane, found, SecretString::from(token))
    }

    fn in_ms(ms: i64) -> i64 {
        BootClock.now_ms() + ms
    }

    #[tokio::test]
    async fn a_result_is_sent_through_refusals_and_lost_answers_and_is_stored_once() {
        use trestle_testkit::control_plane::Fault;
        let (plane, result, token) = unsent().await;
        for fault in [Fault::Refuse(503), Fault::CutBefore, Fault::LoseAnswer, Fault::Refuse(500)] {
            plane.fault("finalize", fault, 1);
        }
        let http = reqwest::Client::new();
        assert_eq!(result.send(&http, &token, in_ms(60_000)).await, Sent::Stored);
        assert_eq!(plane.finalized("01RUN").unwrap().output.get(), "[1]");
        assert_eq!(plane.violations(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_result_of_a_run_that_somebody_else_has_is_refused_and_one_without_an_answer_is_given_up() {
        use trestle_testkit::control_plane::Fault;
        let (plane, result, token) = unsent().await;
        let http = reqwest::Client::new();
        plane.fault("finalize", Fault::Refuse(503), 1_000);
        assert_eq!(result.send(&http, &token, in_ms(300)).await, Sent::Unanswered);
        assert!(plane.finalized("01RUN").is_none());
        let (plane, result, token) = unsent().await;
        plane.displace("01RUN");
        assert_eq!(result.send(&http, &token, in_ms(60_000)).await, Sent::Refused);
        assert!(plane.finalized("01RUN").is_none());
    }
}
