//! One model call through the control plane, re-sent only where that cannot bill twice
//! (`docs/protocol/control.md` §7).

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use reqwest::header::RETRY_AFTER;
use tokio::time::{Instant, sleep, timeout_at};
use trestle_contract::inference::{InferenceFrame, InferenceResult};
use trestle_domain::{Disposition, Failure, Lane, disposition};

use super::client::failed;
use super::http::{Attempt, HttpAnswer, describe};
use super::{Attempts, ControlClient};

/// Longest line of an answer stream, in bytes.
const LONGEST_LINE: usize = 64 * 1024 * 1024;

/// What a model call yields, in order; the last item is the only one that ends it.
#[derive(Debug)]
pub(crate) enum StreamItem {
    Text(String),
    Reasoning(String),
    /// Everything so far is void; the restarted turn follows.
    Reset,
    Finished(Box<InferenceResult>),
    /// The model or its provider failed, in the control plane's words.
    Failed {
        code: String,
        message: String,
        hint: Option<String>,
    },
}

/// One model call. Dropping it closes the stream, which tells the control plane to stop.
pub(crate) struct ModelCall {
    client: ControlClient,
    body: Bytes,
    /// The server answers a repeat of this request with the same turn and bills it once.
    has_turn_key: bool,
    stream: Option<Lines>,
    attempts: Attempts,
    /// Content of this call was handed out.
    has_content: bool,
    /// Content of an earlier attempt was handed out and is void once the repeat yields anything.
    needs_reset: bool,
    finished: bool,
}

struct Lines {
    answer: Response,
    buffer: BytesMut,
    searched: usize,
    ended: bool,
}

enum Broken {
    /// The stream broke or a line made no sense.
    Drop(String),
    /// It ended without a terminal frame.
    CleanEnd,
}

impl ModelCall {
    /// A call with an encoded request. `has_turn_key` tells whether it carries a key that the server is
    /// known to honour.
    pub(crate) fn new(client: ControlClient, body: Bytes, has_turn_key: bool) -> Self {
        let attempts = client.policy().begin();
        Self {
            client,
            body,
            has_turn_key,
            stream: None,
            attempts,
            has_content: false,
            needs_reset: false,
            finished: false,
        }
    }

    /// The next item; nothing follows `Finished` and `Failed`.
    pub(crate) async fn next(&mut self) -> StreamItem {
        loop {
            let Some(stream) = &mut self.stream else {
                if let Some(failure) = self.open().await {
                    self.finished = true;
                    return failure;
                }
                continue;
            };
            let idle = self.client.timing().inference_idle;
            match stream.frame(idle).await {
                Ok(frame) => {
                    if let Some(item) = self.item(frame) {
                        return item;
                    }
                }
                Err(broken) => {
                    self.stream = None;
                    if let Some(failure) = self.broken(broken).await {
                        self.finished = true;
                        return failure;
                    }
                }
            }
        }
    }

    fn item(&mut self, frame: InferenceFrame) -> Option<StreamItem> {
        if self.needs_reset && !matches!(frame, InferenceFrame::Ping | InferenceFrame::Reset) {
            // The void content is announced before the first new one; the frame is looked at again.
            self.needs_reset = false;
            if let Some(stream) = &mut self.stream {
                stream.put_back(&frame);
            }
            return Some(StreamItem::Reset);
        }
        match frame {
            InferenceFrame::Ping => None,
            InferenceFrame::Delta { text } => {
                self.has_content = true;
                Some(StreamItem::Text(text))
            }
            InferenceFrame::Reasoning { text } => {
                self.has_content = true;
                Some(StreamItem::Reasoning(text))
            }
            InferenceFrame::Reset => {
                self.has_content = true;
                self.needs_reset = false;
                Some(StreamItem::Reset)
            }
            InferenceFrame::Result(result) => {
                self.finished = true;
                Some(StreamItem::Finished(result))
            }
            InferenceFrame::Error { error } => {
                self.finished = true;
                Some(StreamItem::Failed { code: error.code, message: error.message, hint: None })
            }
        }
    }

    /// Opens the stream, or tells why not.
    async fn open(&mut self) -> Option<StreamItem> {
        match self.client.inference(self.body.clone()).await {
            Ok(answer) => {
                self.stream = Some(Lines { answer, buffer: BytesMut::new(), searched: 0, ended: false });
                None
            }
            Err(attempt) => {
                let retry = disposition(Lane::Inference, attempt.failure) == Disposition::Retry
                    // A repeat with a key is free, so overload may pass too.
                    || (self.has_turn_key && attempt.failure == Failure::Status(429));
                let asked_for = attempt.answer.as_ref().and_then(asked_wait);
                if retry && self.pause(attempt.failure, asked_for).await {
                    None
                } else {
                    Some(refusal(attempt))
                }
            }
        }
    }

    /// Decides after a broken stream: true to try again.
    async fn broken(&mut self, broken: Broken) -> Option<StreamItem> {
        let lane = if self.has_content { Lane::InferenceWithContent } else { Lane::Inference };
        let (by_rule, message) = match &broken {
            Broken::Drop(message) => {
                (disposition(lane, Failure::Body) == Disposition::Retry, message.clone())
            }
            Broken::CleanEnd => (false, "the model's answer ended without a result".to_owned()),
        };
        if (by_rule || self.has_turn_key) && self.pause(Failure::Body, None).await {
            self.needs_reset = self.has_content;
            return None;
        }
        Some(StreamItem::Failed { code: "PROVIDER_ERROR".into(), message, hint: None })
    }

    async fn pause(&mut self, failure: Failure, asked_for: Option<std::time::Duration>) -> bool {
        match self.attempts.pause(failure, asked_for) {
            Some(wait) => {
                sleep(wait).await;
                true
            }
            None => false,
        }
    }
}

fn asked_wait(answer: &HttpAnswer) -> Option<std::time::Duration> {
    let text = answer.headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(std::time::Duration::from_secs)
}

/// The control plane's own words for a refused call; codes of its envelope reach the program.
fn refusal(attempt: Attempt) -> StreamItem {
    let error = failed("inference", attempt);
    match error.body() {
        Some(body) => StreamItem::Failed {
            code: body.code.clone(),
            message: body.message.clone(),
            hint: body.hint.clone(),
        },
        None => StreamItem::Failed { code: "PROVIDER_ERROR".into(), message: error.to_string(), hint: None },
    }
}

impl Lines {
    /// The next frame. Lines are cut from bytes and decoded whole, so no character is ever split.
    async fn frame(&mut self, idle: std::time::Duration) -> Result<InferenceFrame, Broken> {
        loop {
            if let Some(line) = self.line() {
                let text = std::str::from_utf8(&line).map_err(|error| Broken::Drop(error.to_string()))?;
                match InferenceFrame::parse_line(text) {
                    Ok(Some(frame)) => return Ok(frame),
                    Ok(None) => continue,
                    Err(error) => return Err(Broken::Drop(error.to_string())),
                }
            }
            if self.ended {
                return Err(Broken::CleanEnd);
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(Broken::Drop("a line of the model's answer is longer than 64 MiB".into()));
            }
            match timeout_at(Instant::now() + idle, self.answer.chunk()).await {
                Ok(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Ok(None)) => self.ended = true,
                Ok(Err(error)) => return Err(Broken::Drop(describe(&error))),
                Err(_) => return Err(Broken::Drop(format!("the model's answer was silent for {idle:?}"))),
            }
        }
    }

    fn line(&mut self) -> Option<BytesMut> {
        let unseen = self.buffer.get(self.searched..)?;
        match memchr::memchr(b'\n', unseen) {
            Some(found) => {
                let line = self.buffer.split_to(self.searched + found + 1);
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = self.buffer.len();
                // The last line needs no end.
                (self.ended && !self.buffer.is_empty()).then(|| {
                    self.searched = 0;
                    self.buffer.split()
                })
            }
        }
    }

    fn put_back(&mut self, frame: &InferenceFrame) {
        let mut buffer = BytesMut::from(frame.to_line().as_bytes());
        buffer.extend_from_slice(&self.buffer);
        self.buffer = buffer;
        self.searched = 0;
    }
}
