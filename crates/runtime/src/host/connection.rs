//! One connection: frames in, frames out, each request on its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use trestle_contract::host::{
    CANCEL, CancelParams, FrameError, HostErrorBody, HostFrame, Method, PHASE, RequestId, TOOL_CANCEL,
    TOOL_INVOKE, ToolCancelParams, ToolInvokeParams, ToolInvokeResult,
};
use trestle_contract::{ErrorCode, NonEmptyString, RawJson};

use super::calls::{self, Request};
use super::framing::{Line, LineBytes, LineReader, integer_id_in, is_too_deep};
use super::{Capabilities, HostFailure};

/// Frames that may wait for a program that does not read.
const WAITING_FRAMES: usize = 64;
/// Calls of one connection that may be in flight.
const MOST_CALLS: usize = 10_000;
/// Time for the answers that are queued when a client has stopped sending.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The way back to the program of one connection.
pub(crate) struct Peer {
    pub(crate) pid: i32,
    frames: mpsc::Sender<String>,
    next_id: AtomicI64,
    waiting: Mutex<HashMap<i64, oneshot::Sender<Result<RawJson, HostErrorBody>>>>,
}

impl Peer {
    async fn send(&self, frame: &HostFrame) {
        // A failed send means that the connection is gone, and with it whoever waits.
        let _ = self.frames.send(frame.to_line()).await;
    }

    /// Asks the program to answer a tool call. Ends with a failure when the connection does, or when the program
    /// takes longer than `ceiling`; it then hears that nobody waits any more.
    pub(crate) async fn invoke_tool(
        &self,
        params: &ToolInvokeParams,
        ceiling: Duration,
    ) -> Result<RawJson, HostFailure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let forget = Forget { peer: self, id };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let params = RawJson::encode(params).map_err(|error| HostFailure::internal(error.to_string()))?;
        let frame = HostFrame::Request {
            id: RequestId::Number(id),
            method: TOOL_INVOKE.into(),
            params: Some(params),
        };
        self.send(&frame).await;
        let reply = tokio::time::timeout(ceiling, receiver).await;
        drop(forget);
        let Ok(reply) = reply else {
            return Err(HostFailure::new(
                ErrorCode::ToolError,
                format!("the tool did not answer within {} s", ceiling.as_secs_f64()),
            ));
        };
        let result = match reply {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => return Err(HostFailure(error)),
            Err(_) => {
                return Err(HostFailure::new(ErrorCode::ToolError, "the program's connection was closed"));
            }
        };
        result.decode::<ToolInvokeResult>().map(|result| result.output).map_err(|error| {
            HostFailure::new(
                ErrorCode::ToolError,
                format!("the program's answer to a tool call cannot be read: {error}"),
            )
        })
    }

    fn settle(&self, id: Option<RequestId>, reply: Result<RawJson, HostErrorBody>) {
        // Replies to unknown or abandoned requests are dropped.
        let Some(RequestId::Number(id)) = id else { return };
        if let Some(waiting) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            let _ = waiting.send(reply);
        }
    }
}

/// Removes an abandoned request, also when its caller is dropped, and lets the program stop working on it.
struct Forget<'a> {
    peer: &'a Peer,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let was_waiting = self.peer.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        if was_waiting.is_some() {
            let params = RawJson::encode(&ToolCancelParams { id: self.id }).ok();
            let frame = HostFrame::Notification { method: TOOL_CANCEL.into(), params };
            // A queue that is full belongs to a program that does not read: it would not hear this either.
            let _ = self.peer.frames.try_send(frame.to_line());
        }
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: UnixStream, pid: i32, capabilities: Arc<Capabilities>) {
    let (read, write) = stream.into_split();
    let (frames, queue) = mpsc::channel(WAITING_FRAMES);
    let peer = Arc::new(Peer { pid, frames, next_id: AtomicI64::new(1), waiting: Mutex::default() });
    let lines =
        LineReader::new(BufReader::with_capacity(16 * 1024, read), capabilities.facts.temporary.clone());
    let mut calls = JoinSet::new();
    let writing = write_frames(write, queue);
    tokio::pin!(writing);
    let can_write = tokio::select! {
        () = &mut writing => false,
        () = tell_cancel(&capabilities, &peer) => true,
        () = read_frames(lines, &peer, &capabilities, &mut calls) => true,
    };
    // The program is gone or does not listen any more: nobody waits for what is left.
    calls.shutdown().await;
    drop(peer);
    // Answers that are queued still go out.
    if can_write {
        let _ = tokio::time::timeout(LAST_ANSWERS, writing).await;
    }
}

async fn write_frames(mut write: OwnedWriteHalf, mut queue: mpsc::Receiver<String>) {
    while let Some(frame) = queue.recv().await {
        if write.write_all(frame.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Tells the program that the run is being ended: also one that connects only then.
async fn tell_cancel(capabilities: &Capabilities, peer: &Peer) {
    let reason = capabilities.abort.wait().await;
    let params = CancelParams { reason: Some(NonEmptyString::saturating(reason.word())) };
    let frame = HostFrame::Notification { method: CANCEL.into(), params: RawJson::encode(&params).ok() };
    peer.send(&frame).await;
    std::future::pending::<()>().await;
}

async fn read_frames(
    mut lines: LineReader<BufReader<tokio::net::unix::OwnedReadHalf>>,
    peer: &Arc<Peer>,
    capabilities: &Arc<Capabilities>,
    calls: &mut JoinSet<()>,
) {
    loop {
        while calls.try_join_next().is_some() {}
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(%error, "a connection to the host socket broke");
                break;
            }
        };
        handle(line, peer, capabilities, calls).await;
    }
    // A client that only stops sending still waits for its answers; one that is gone does not.
    let answered = async { while calls.join_next().await.is_some() {} };
    tokio::select! {
        () = answered => {}
        () = gone(lines.stream().get_ref()) => {}
    }
}

/// Waits until the other side has closed the connection in both directions.
async fn gone(half: &tokio::net::unix::OwnedReadHalf) {
    let stream: &UnixStream = half.as_ref();
    while stream.ready(Interest::WRITABLE).await.is_ok_and(|ready| !ready.is_write_closed()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn handle(line: Line, peer: &Arc<Peer>, capabilities: &Arc<Capabilities>, calls: &mut JoinSet<()>) {
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::TooLong(head) => {
            let error = HostErrorBody::new(ErrorCode::InvalidParams, "the message is larger than 192 MiB")
                .with_hint("write large data to a file or an artifact and pass its name");
            let id = integer_id_in(&head).map(RequestId::Number);
            return peer.send(&HostFrame::Failure { id, error }).await;
        }
    };
    if is_too_deep(&bytes) {
        let error =
            HostErrorBody::new(ErrorCode::InvalidParams, "the message is nested deeper than 512 levels")
                .with_hint("flatten the value, or pass the deep part as a JSON text in a string");
        let head = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
        let id = integer_id_in(head).map(RequestId::Number);
        return peer.send(&HostFrame::Failure { id, error }).await;
    }
    if let LineBytes::Disk(_) = &bytes
        && let Some(request) = calls::large_artifact(&bytes)
    {
        return start(request.0, Method::ArtifactsWrite, Request::Large(bytes), peer, capabilities, calls)
            .await;
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            tracing::debug!(%error, "a line on the host socket is no text");
            return;
        }
    };
    match HostFrame::parse_line(text) {
        Ok(Some(frame)) => {
            drop(bytes);
            handle_frame(frame, peer, capabilities, calls).await;
        }
        Ok(None) => {}
        Err(FrameError::NotJson(error)) => tracing::debug!(%error, "a line on the host socket is no JSON"),
        Err(FrameError::NotAFrame(reason)) => {
            let error = HostErrorBody::new(ErrorCode::ProtocolError, reason);
            peer.send(&HostFrame::Failure { id: None, error }).await;
        }
    }
}

async fn handle_frame(
    frame: HostFrame,
    peer: &Arc<Peer>,
    capabilities: &Arc<Capabilities>,
    calls: &mut JoinSet<()>,
) {
    match frame {
        HostFrame::Request { id, method, params } => match Method::from_name(&method) {
            Some(method) => start(id, method, Request::Params(params), peer, capabilities, calls).await,
            None => {
                let error =
                    HostErrorBody::new(ErrorCode::MethodNotFound, format!("there is no method {method}"));
                peer.send(&HostFrame::failure(id, error)).await;
            }
        },
        HostFrame::Notification { method, params } if method == PHASE => {
            capabilities.mark_phase(params.as_ref())
        }
        HostFrame::Notification { .. } => {}
        HostFrame::Success { id, result } => peer.settle(Some(id), Ok(result)),
        HostFrame::Failure { id, error } => peer.settle(id, Err(error)),
    }
}

/// Starts a call beside all others. What depends on the order of calls is fixed here, before anything
/// waits.
async fn start(
    id: RequestId,
    method: Method,
    request: Request,
    peer: &Arc<Peer>,
    capabilities: &Arc<Capabilities>,
    calls: &mut JoinSet<()>,
) {
    if calls.len() >= MOST_CALLS {
        let error = HostErrorBody::new(ErrorCode::RateLimit, "more than 10,000 calls are in flight")
            .with_hint("await some of the calls before starting more");
        return peer.send(&HostFrame::failure(id, error)).await;
    }
    let call = capabilities.prepare(method, &id, request);
    let (peer, capabilities) = (Arc::clone(peer), Arc::clone(capabilities));
    calls.spawn(async move {
        let result = match call {
            Ok(call) => capabilities.execute(call, &peer).await,
            Err(failure) => Err(failure),
        };
        let frame = match result {
            Ok(result) => HostFrame::Success { id, result },
            Err(failure) => HostFrame::failure(id, failure.0),
        };
        peer.send(&frame).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> (Arc<Peer>, mpsc::Receiver<String>) {
        let (frames, queue) = mpsc::channel(WAITING_FRAMES);
        (Arc::new(Peer { pid: 1, frames, next_id: AtomicI64::new(1), waiting: Mutex::default() }), queue)
    }

    fn params() -> ToolInvokeParams {
        let text = |text: &str| NonEmptyString::saturating(text);
        ToolInvokeParams { call_id: text("3"), tool: text("t"), input: RawJson::null() }
    }

    async fn said(queue: &mut mpsc::Receiver<String>) -> serde_json::Value {
        let frame = tokio::time::timeout(Duration::from_secs(20), queue.recv()).await;
        serde_json::from_str(&frame.expect("nothing was said").unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_that_does_not_answer_is_given_up_and_told_so() {
        let (peer, mut queue) = peer();
        let failure = peer.invoke_tool(&params(), Duration::from_secs(3600)).await.unwrap_err();
        assert_eq!(failure.code(), "TOOL_ERROR");
        assert!(failure.0.message.contains("within 3600 s"), "{failure}");
        assert_eq!(said(&mut queue).await["method"], "tool_invoke");
        let cancel = said(&mut queue).await;
        assert_eq!((&cancel["method"], &cancel["params"]["id"]), (&"tool_cancel".into(), &1.into()));
        // The answer that comes after all is nobody's.
        peer.settle(Some(RequestId::Number(1)), Ok(RawJson::null()));
        assert!(queue.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_tells_the_program_and_one_that_was_answered_does_not() {
        let (peer, mut queue) = peer();
        let asking = {
            let peer = Arc::clone(&peer);
            tokio::spawn(async move { peer.invoke_tool(&params(), Duration::from_secs(60)).await })
        };
        assert_eq!(said(&mut queue).await["id"], 1);
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        assert_eq!(said(&mut queue).await["method"], "tool_cancel");
        let asking = {
            let peer = Arc::clone(&peer);
            tokio::spawn(async move { peer.invoke_tool(&params(), Duration::from_secs(60)).await })
        };
        assert_eq!(said(&mut queue).await["id"], 2);
        peer.settle(Some(RequestId::Number(2)), Ok(RawJson::parse(r#"{"output":[1]}"#).unwrap()));
        assert_eq!(asking.await.unwrap().unwrap().get(), "[1]");
        assert!(queue.try_recv().is_err());
    }
}
