//! A model endpoint that says what a script tells it, on the OpenAI and the Anthropic wire.
//!
//! It refuses what the vendors refuse, and can do to a client whatever a bad network or a careless vendor does. The script's format is
//! described in `MODEL_SCRIPT.md`.

mod answer;
mod anthropic_wire;
mod check;
mod conversation;
mod openai_wire;
mod record;
mod script;
mod speech;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use serde_json::{Value, json};

use answer::{Answer, Stage};
use conversation::Conversation;
use record::{Entry, Record};
use speech::Speech;
use wire::WireWriter;

pub use record::{Outcome, RecordedRequest};
pub use script::{
    BodyFault, ErrorFault, Fault, FaultPlace, HttpFault, Match, Newline, Protocol, Repeat, Script,
    ScriptCall, ScriptTurn, ScriptUsage, Speaker, Stop, ToolId, ToolIndex, UsageOn, Wire, Words,
};

/// How long a test waits for the model to be asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// A scripted model that listens. It stops when this is dropped.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    record: Arc<Record>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ModelServer {
    /// Serves the script on a free port of the loopback interface.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(script: Script) -> std::io::Result<Self> {
        Self::listen(script, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Serves the script on this address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn listen(script: Script, address: SocketAddr) -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let record = Arc::new(Record::default());
        let used = Mutex::new(vec![0; script.turns.len()]);
        let state = Arc::new(Served { script, used, record: Arc::clone(&record) });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat_completions))
            .route("/chat/completions", post(chat_completions))
            .route("/v1/messages", post(messages))
            .route("/v1/models", get(models))
            .route("/_requests", get(requests))
            .fallback(not_found)
            .layer(DefaultBodyLimit::max(128 * 1024 * 1024))
            .with_state(state);
        let listener = listener.tap_io(|stream| {
            // A stream of small events must not wait for acknowledgements.
            let _ = stream.set_nodelay(true);
        });
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, record, serving })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for Anthropic clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base URL for OpenAI clients.
    #[must_use]
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What was asked so far.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.record.all()
    }

    /// Waits until the requests fit.
    ///
    /// # Errors
    /// The requests as they are when they do not fit in time.
    pub async fn wait_for(
        &self,
        fit: impl Fn(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, Vec<RecordedRequest>> {
        self.record.wait(PATIENCE, fit).await
    }
}

struct Served {
    script: Script,
    used: Mutex<Vec<u64>>,
    record: Arc<Record>,
}

async fn models(State(served): State<Arc<Served>>) -> Response {
    json_response(
        StatusCode::OK,
        &json!({"object": "list", "data": [{"id": served.script.model, "object": "model", "owned_by": "script"}]}),
    )
}

async fn requests(State(served): State<Arc<Served>>) -> Response {
    json_response(StatusCode::OK, &json!(served.record.all()))
}

async fn not_found(uri: Uri) -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        &json!({"error": {"message": format!("Invalid URL (POST {})", uri.path()), "type": "invalid_request_error", "param": null, "code": null}}),
    )
}

async fn chat_completions(
    State(served): State<Arc<Served>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    served.answer(Protocol::OpenAi, &uri, &headers, &body).await
}

async fn messages(State(served): State<Arc<Served>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    served.answer(Protocol::Anthropic, &uri, &headers, &body).await
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn failure(protocol: Protocol, status: u16, kind: &str, message: &str) -> Response {
    let body = match protocol {
        Protocol::OpenAi => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": if kind == "invalid_request_error" { Value::Null } else { json!(kind) }}})
        }
        Protocol::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
        }
    };
    json_response(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body)
}

impl Served {
    async fn answer(&self, protocol: Protocol, uri: &Uri, headers: &HeaderMap, bytes: &Bytes) -> Response {
        let parsed: Result<Value, _> = serde_json::from_slice(bytes);
        let text = |value: &header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let recorded = headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect::<BTreeMap<_, _>>();
        let body = parsed.unwrap_or(Value::Null);
        let entry = self.record.add(uri.to_string(), recorded, body.clone());
        let refuse = |status: u16, kind: &str, message: &str| {
            entry.answered(status, None);
            entry.over(Outcome::Complete);
            failure(protocol, status, kind, message)
        };
        if let Some(wrong) = self.check_key(protocol, headers) {
            return refuse(401, wrong.0, wrong.1);
        }
        if protocol == Protocol::Anthropic && !known_version(headers) {
            return refuse(400, "invalid_request_error", "anthropic-version: header is required");
        }
        if headers
            .get(header::CONTENT_TYPE)
            .is_none_or(|kind| !kind.as_bytes().starts_with(b"application/json"))
        {
            return refuse(400, "invalid_request_error", "content-type must be application/json");
        }
        let checked = match protocol {
            Protocol::OpenAi => check::check_openai(&body),
            Protocol::Anthropic => check::check_anthropic(&body),
        };
        if let Err(why) = checked {
            return refuse(400, "invalid_request_error", &why);
        }
        let conversation = Conversation::of(protocol, &body);
        let chosen = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            conversation::choose(&self.script.turns, &mut used, self.script.repeat_turns, &conversation)
        };
        let Some(position) = chosen else {
            let end: String = conversation
                .last_text
                .chars()
                .rev()
                .take(200)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            return refuse(
                400,
                "invalid_request_error",
                &format!("the script has no turn for this request; its last message ends: {end}"),
            );
        };
        self.say(position, protocol, &body, &conversation, entry).await
    }

    fn check_key(&self, protocol: Protocol, headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
        let key = self.script.api_key.as_deref()?;
        let sent = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        match protocol {
            Protocol::OpenAi
                if sent("authorization").and_then(|value| value.strip_prefix("Bearer ")) != Some(key) =>
            {
                Some((
                    "invalid_api_key",
                    "Incorrect API key provided. You can find your API key in the script.",
                ))
            }
            Protocol::Anthropic
                if sent("x-api-key")
                    .or(sent("authorization").and_then(|value| value.strip_prefix("Bearer ")))
                    != Some(key) =>
            {
                Some(("authentication_error", "invalid x-api-key"))
            }
            Protocol::OpenAi | Protocol::Anthropic => None,
        }
    }

    async fn say(
        &self,
        position: usize,
        protocol: Protocol,
        body: &Value,
        conversation: &Conversation,
        entry: Entry,
    ) -> Response {
        let turn = &self.script.turns[position];
        let name = turn.name.clone().unwrap_or_else(|| position.to_string());
        if turn.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
        }
        match &turn.fault {
            Some(Fault::Http(fault)) => {
                entry.answered(fault.status, Some(name));
                entry.over(Outcome::Fault);
                let kind = fault.code.as_deref().unwrap_or_else(|| kind_of(protocol, fault.status));
                let mut response = failure(
                    protocol,
                    fault.status,
                    kind,
                    fault.message.as_deref().unwrap_or("scripted failure"),
                );
                if let Some(value) = fault.retry_after.as_deref().and_then(|text| text.parse().ok()) {
                    response.headers_mut().insert(header::RETRY_AFTER, value);
                }
                return response;
            }
            Some(Fault::Body(fault)) => {
                entry.answered(200, Some(name));
                entry.over(Outcome::Fault);
                let kind = fault.content_type.clone().unwrap_or_else(|| "text/event-stream".to_owned());
                return ([(header::CONTENT_TYPE, kind)], fault.text.clone()).into_response();
            }
            Some(Fault::Cut(_) | Fault::End(_) | Fault::Error(_) | Fault::Silence(_)) | None => {}
        }
        entry.answered(200, Some(name));
        let wire = turn.wire.clone().unwrap_or_else(|| self.script.wire.clone());
        let mut speech = Speech::of(turn, &wire, conversation, entry.number());
        let mut writer = writer(protocol, conversation, turn, &wire, body, entry.number());
        if body["stream"] != true {
            entry.first_byte(speech.usage);
            let document = writer.whole(&mut speech);
            entry.over(Outcome::Complete);
            return json_response(StatusCode::OK, &document);
        }
        let answer = Answer {
            writer,
            speech,
            wire,
            fault: turn.fault.clone(),
            delta_delay: Duration::from_millis(turn.delta_delay_ms),
            entry,
            deltas: 0,
            stage: Stage::Opening,
            waiting: VecDeque::new(),
        };
        let headers =
            [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(answer.into_stream())).into_response()
    }
}

fn writer(
    protocol: Protocol,
    conversation: &Conversation,
    turn: &ScriptTurn,
    wire: &Wire,
    body: &Value,
    number: u64,
) -> Box<dyn WireWriter> {
    match protocol {
        Protocol::OpenAi => Box::new(openai_wire::OpenAiWriter {
            id: format!("chatcmpl-{number}"),
            model: conversation.model.clone(),
            wire: wire.clone(),
            include_usage: body["stream_options"]["include_usage"] == true,
            stop: turn.stop,
        }),
        Protocol::Anthropic => Box::new(anthropic_wire::AnthropicWriter {
            id: format!("msg_{number}"),
            model: conversation.model.clone(),
            wire: wire.clone(),
            stop: turn.stop,
            block: None,
            blocks: 0,
            call_blocks: Vec::new(),
        }),
    }
}

/// The versions that the vendor serves; both have the events written here.
fn known_version(headers: &HeaderMap) -> bool {
    headers.get("anthropic-version").is_some_and(|version| version == "2023-06-01" || version == "2026-10-21")
}

fn kind_of(protocol: Protocol, status: u16) -> &'static str {
    match (protocol, status) {
        (Protocol::OpenAi, 401) => "invalid_api_key",
        (Protocol::OpenAi, 429) => "rate_limit_exceeded",
        (Protocol::OpenAi, 500..) => "server_error",
        (Protocol::Anthropic, 401) => "authentication_error",
        (Protocol::Anthropic, 403) => "permission_error",
        (Protocol::Anthropic, 404) => "not_found_error",
        (Protocol::Anthropic, 429) => "rate_limit_error",
        (Protocol::Anthropic, 529) => "overloaded_error",
        (Protocol::Anthropic, 500..) => "api_error",
        (Protocol::OpenAi | Protocol::Anthropic, _) => "invalid_request_error",
    }
}
