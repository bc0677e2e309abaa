//! Writing the end of a run, whatever it takes while the lease lasts.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use trestle_contract::control::{FinalizeRequest, RunError};
use trestle_contract::{ErrorCode, RawJson};
use trestle_domain::Backoff;

use trestle_sandbox::slot::UNSENT_RESULT;

use crate::control::{ControlClient, ControlError};
use crate::lease::Lease;

/// How a run ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunEnd {
    Completed(RawJson),
    Failed(RunError),
}

/// What became of an end.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is stored. The end may differ from the one asked for, when that one was refused.
    Stored(RunEnd),
    /// The run is not ours any more.
    Displaced,
    /// It cannot be stored.
    Refused(ControlError),
}

/// Stores the end of the run: tried again through outages and overload for as long as the lease lasts,
/// because a run whose end is lost starts from the top.
pub(crate) async fn finalize(
    client: &ControlClient,
    lease: &Lease,
    directory: &Path,
    end: RunEnd,
) -> Written {
    let result = ResultFile::new(directory);
    let written = store(client, lease, &result, end).await;
    result.remove();
    written
}

async fn store(client: &ControlClient, lease: &Lease, result: &ResultFile, end: RunEnd) -> Written {
    let mut end = end;
    loop {
        let body = match encode(client, &end) {
            Ok(body) => body,
            Err(error) => return Written::Refused(error),
        };
        result.write(&client.finalize_url(), &body);
        match attempt(client, lease, &body).await {
            Ok(()) => return Written::Stored(end),
            Err(Some(error)) if error.is_displaced() => return Written::Displaced,
            Err(Some(error)) => match refused_value(&error, &end) {
                Some(failed) => end = failed,
                None => return Written::Refused(error),
            },
            Err(None) => return Written::Displaced,
        }
    }
}

fn encode(client: &ControlClient, end: &RunEnd) -> Result<Bytes, ControlError> {
    let worker = client.worker().clone();
    let request = match end {
        RunEnd::Completed(output) => FinalizeRequest::completed(worker, output.clone()),
        RunEnd::Failed(error) => FinalizeRequest::failed(worker, error)
            .map_err(|error| ControlError::Shape { operation: "finalize", message: error.to_string() })?,
    };
    ControlClient::encode_finalize(&request)
}

/// Sends until there is an answer that a repeat would not change. `None`: the lease is over.
async fn attempt(client: &ControlClient, lease: &Lease, body: &Bytes) -> Result<(), Option<ControlError>> {
    let timing = client.timing();
    let first = timing.retry_waits.first().copied().unwrap_or(Duration::from_millis(500));
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut backoff = Backoff::new(millis(first), millis(timing.finalize_backoff));
    loop {
        // Only the answer to this call tells whether the run is still ours: once the end is stored and that
        // answer is lost, renewals are refused too.
        if lease.is_over() {
            return Err(None);
        }
        let error = match client.finalize(body.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.status() {
            Some(408 | 425 | 429 | 500..) | None => {}
            Some(_) => return Err(Some(error)),
        }
        tracing::warn!(%error, "the end of the run was not stored; it is tried again");
        sleep(Duration::from_millis(backoff.next_ms())).await;
    }
}

/// What to store instead when the return value itself was refused.
fn refused_value(error: &ControlError, end: &RunEnd) -> Option<RunEnd> {
    if !matches!(end, RunEnd::Completed(_)) || !matches!(error.status(), Some(400 | 413 | 422)) {
        return None;
    }
    let message = match error.status() {
        Some(413) => "the return value is too large to be stored".to_owned(),
        _ => format!("the return value was not accepted: {error}"),
    };
    Some(RunEnd::Failed(RunError {
        code: ErrorCode::ValidationFailed.as_str().into(),
        message,
        hint: Some("write large results as artifacts and return their names".into()),
        reason: None,
    }))
}

/// The result on disk until it is settled, readable by this user alone. A process that is killed in between
/// leaves it to its runner, which sends it: a program that has ended is not run again for that.
struct ResultFile(PathBuf);

impl ResultFile {
    fn new(directory: &Path) -> Self {
        Self(directory.join(UNSENT_RESULT))
    }

    fn write(&self, url: &str, body: &[u8]) {
        let write = || {
            // Whole or not at all: the runner must not send half of it.
            let unfinished = self.0.with_extension("part");
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            let url = serde_json::to_string(url)?;
            file.write_all(format!("{{\"url\":{url},\"body\":").as_bytes())?;
            file.write_all(body)?;
            file.write_all(b"}")?;
            fs::rename(&unfinished, &self.0)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "the result of the run cannot be kept on disk");
            let _ = fs::remove_file(self.0.with_extension("part"));
        }
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.0);
    }
}
