//! What the scripted model was asked, and how it went.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;

use super::script::ScriptUsage;

/// One request, as a test sees it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// Counted from 1 in the order of arrival.
    pub number: u64,
    /// The path with its query.
    pub path: String,
    /// Headers; names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body; a string when it was not JSON.
    pub body: Value,
    /// The name, or else the position, of the turn that answered.
    pub turn: Option<String>,
    /// The status that was answered; 0 before the answer.
    pub status: u16,
    /// How the answer went.
    pub outcome: Outcome,
    /// Deltas sent so far.
    pub deltas: u64,
    /// Tokens that a vendor would charge: the prompt with the first byte, output with each delta.
    pub billed_input: u64,
    /// See `billed_input`.
    pub billed_output: u64,
}

/// How an answer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Not over yet.
    Answering,
    /// Sent to its end.
    Complete,
    /// Ended as its fault says.
    Fault,
    /// The client went before the end.
    ClientGone,
}

/// All requests of a server.
#[derive(Debug, Default)]
pub(super) struct Record {
    requests: Mutex<Vec<Arc<Mutex<RecordedRequest>>>>,
    changed: Notify,
}

impl Record {
    pub(super) fn add(
        self: &Arc<Self>,
        path: String,
        headers: BTreeMap<String, String>,
        body: Value,
    ) -> Entry {
        let mut requests = lock(&self.requests);
        let request = Arc::new(Mutex::new(RecordedRequest {
            number: requests.len() as u64 + 1,
            path,
            headers,
            body,
            turn: None,
            status: 0,
            outcome: Outcome::Answering,
            deltas: 0,
            billed_input: 0,
            billed_output: 0,
        }));
        requests.push(Arc::clone(&request));
        drop(requests);
        self.changed.notify_waiters();
        Entry { record: Arc::clone(self), request, per_delta: Arc::new(AtomicU64::new(0)) }
    }

    pub(super) fn all(&self) -> Vec<RecordedRequest> {
        lock(&self.requests).iter().map(|request| lock(request).clone()).collect()
    }

    /// Waits until the requests fit; the last ones seen when they do not in time.
    pub(super) async fn wait(
        &self,
        patience: Duration,
        fit: impl Fn(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, Vec<RecordedRequest>> {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let requests = self.all();
                if fit(&requests) {
                    return requests;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.map_err(|_| self.all())
    }
}

/// One request in the record.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    record: Arc<Record>,
    request: Arc<Mutex<RecordedRequest>>,
    per_delta: Arc<AtomicU64>,
}

impl Entry {
    pub(super) fn number(&self) -> u64 {
        lock(&self.request).number
    }

    pub(super) fn answered(&self, status: u16, turn: Option<String>) {
        let mut request = lock(&self.request);
        request.status = status;
        request.turn = turn;
        drop(request);
        self.record.changed.notify_waiters();
    }

    pub(super) fn first_byte(&self, usage: ScriptUsage) {
        lock(&self.request).billed_input = usage.input;
        self.per_delta.store(usage.output, Ordering::Relaxed);
    }

    pub(super) fn delta(&self) {
        let mut request = lock(&self.request);
        request.deltas += 1;
        request.billed_output = (request.billed_output + 1).min(self.per_delta.load(Ordering::Relaxed));
        drop(request);
        self.record.changed.notify_waiters();
    }

    pub(super) fn over(&self, outcome: Outcome) {
        let mut request = lock(&self.request);
        if request.outcome == Outcome::Answering {
            request.outcome = outcome;
            if outcome == Outcome::Complete {
                request.billed_output = self.per_delta.load(Ordering::Relaxed);
            }
        }
        drop(request);
        self.record.changed.notify_waiters();
    }
}

/// Nothing panics while a lock is held, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
