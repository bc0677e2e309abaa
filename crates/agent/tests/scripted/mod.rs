//! A host whose model, tools and budget follow a script, and which remembers everything.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};
use trestle_agent::{
    AgentError, FileTree, FrameStream, Host, LeafRequest, ModelCall, ModelUsage, ToolInvocation,
};
use trestle_contract::ErrorCode;
use trestle_contract::event::{Envelope, Event, EventBody};
use trestle_contract::inference::{
    ChatTurn, InferenceFrame, InferenceRequest, InferenceResult, TokenCounts, ToolCallRequest,
};
use trestle_contract::json::RawJson;
use trestle_domain::Redactor;

type ToolFuture = Pin<Box<dyn Future<Output = Result<RawJson, AgentError>> + Send>>;
type Tool = Box<dyn Fn(Arc<Semaphore>) -> ToolFuture + Send + Sync>;
/// Model, input tokens, output tokens, estimated.
pub(crate) type Usage = (Option<String>, u64, u64, bool);

/// How the model answers one call.
#[derive(Default)]
pub(crate) struct Reply {
    frames: Vec<InferenceFrame>,
    failure: Option<AgentError>,
    connects: bool,
    ends: bool,
    after: Option<u32>,
    releases: u32,
}

impl Reply {
    pub(crate) fn frames(frames: Vec<InferenceFrame>) -> Self {
        Self { frames, connects: true, ends: true, ..Self::default() }
    }

    pub(crate) fn fails(error: AgentError) -> Self {
        Self { failure: Some(error), connects: true, ends: true, ..Self::default() }
    }

    pub(crate) fn never() -> Self {
        Self::default()
    }

    /// Delivers its frames and then stays silent.
    pub(crate) fn then_never(mut self) -> Self {
        self.ends = false;
        self
    }

    /// Answers only after another reply has released so many permits.
    pub(crate) fn after(mut self, permits: u32) -> Self {
        self.after = Some(permits);
        self
    }

    pub(crate) fn releases(mut self, permits: u32) -> Self {
        self.releases = permits;
        self
    }
}

pub(crate) struct ScriptedHost {
    workspace: (tempfile::TempDir, FileTree),
    package: (tempfile::TempDir, FileTree),
    redactor: Redactor,
    replies: Mutex<VecDeque<Reply>>,
    tools: Mutex<HashMap<String, Tool>>,
    gate: Arc<Semaphore>,
    aborted: watch::Sender<Option<String>>,
    waiting: Notify,
    budget: Mutex<Option<u64>>,
    budget_held: Mutex<bool>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    events: Vec<(String, EventBody)>,
    requests: Vec<InferenceRequest>,
    calls: Vec<ModelCall>,
    invocations: Vec<ToolInvocation>,
    usages: Vec<Usage>,
    begun: usize,
}

impl ScriptedHost {
    pub(crate) fn new() -> Self {
        let directory = || {
            let dir = tempfile::tempdir().unwrap();
            let tree = FileTree::open(dir.path()).unwrap();
            (dir, tree)
        };
        Self {
            workspace: directory(),
            package: directory(),
            redactor: Redactor::default(),
            replies: Mutex::default(),
            tools: Mutex::default(),
            gate: Arc::new(Semaphore::new(0)),
            aborted: watch::Sender::new(None),
            waiting: Notify::new(),
            budget: Mutex::default(),
            budget_held: Mutex::default(),
            log: Mutex::default(),
        }
    }

    pub(crate) fn model(&self, replies: Vec<Reply>) {
        *self.replies.lock().unwrap() = replies.into();
    }

    pub(crate) fn tool(
        &self,
        name: &str,
        run: impl Fn(Arc<Semaphore>) -> ToolFuture + Send + Sync + 'static,
    ) {
        self.tools.lock().unwrap().insert(name.to_owned(), Box::new(run));
    }

    pub(crate) fn secret(&self, name: &str, value: &str) {
        self.redactor.add(name, value);
    }

    /// Caps input plus output tokens.
    pub(crate) fn budget(&self, tokens: u64) {
        *self.budget.lock().unwrap() = Some(tokens);
    }

    pub(crate) fn hold_budget(&self) {
        *self.budget_held.lock().unwrap() = true;
    }

    pub(crate) fn cancel(&self, reason: &str) {
        self.aborted.send_replace(Some(reason.to_owned()));
    }

    /// Returns once the leaf waits for something that the script never delivers.
    pub(crate) async fn until_waiting(&self) {
        self.waiting.notified().await;
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        write(self.workspace.0.path(), path, text);
    }

    pub(crate) fn write_package(&self, path: &str, text: &str) {
        write(self.package.0.path(), path, text);
    }

    /// Every event as JSON without its envelope, each checked against the closed shapes.
    pub(crate) fn events(&self) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        log.events.iter().map(|(turn, body)| body_json(turn, body)).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
        self.log.lock().unwrap().events.iter().map(|(_, body)| body.kind().to_owned()).collect()
    }

    pub(crate) fn kinds_of(&self, turn: &str) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.events.iter().filter(|(of, _)| of == turn).map(|(_, body)| body.kind().to_owned()).collect()
    }

    pub(crate) fn turn_ids(&self) -> Vec<String> {
        self.log.lock().unwrap().events.iter().map(|(turn, _)| turn.clone()).collect()
    }

    /// The texts of all `text_delta` events.
    pub(crate) fn texts(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let texts = log.events.iter().filter_map(|(_, body)| match body {
            EventBody::TextDelta { text, .. } => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn requests(&self) -> Vec<InferenceRequest> {
        self.log.lock().unwrap().requests.clone()
    }

    pub(crate) fn calls(&self) -> Vec<ModelCall> {
        self.log.lock().unwrap().calls.clone()
    }

    pub(crate) fn invocations(&self) -> Vec<ToolInvocation> {
        self.log.lock().unwrap().invocations.clone()
    }

    pub(crate) fn usages(&self) -> Vec<Usage> {
        self.log.lock().unwrap().usages.clone()
    }

    pub(crate) fn begun(&self) -> usize {
        self.log.lock().unwrap().begun
    }

    async fn never<T>(&self) -> T {
        self.waiting.notify_one();
        std::future::pending().await
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn body_json(turn: &str, body: &EventBody) -> Value {
    let envelope = Envelope {
        run_id: "run".try_into().unwrap(),
        turn_id: turn.try_into().unwrap(),
        seq: 1.try_into().unwrap(),
        t: 1.try_into().unwrap(),
    };
    let text = Event { envelope, body: body.clone() }.to_json();
    Event::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let Value::Object(mut event) = serde_json::from_str(&text).unwrap() else { panic!("an object") };
    event.retain(|key, _| !["runId", "turnId", "seq", "t"].contains(&key.as_str()));
    Value::Object(event)
}

#[async_trait]
impl Host for ScriptedHost {
    fn now_ms(&self) -> i64 {
        1_764_547_200_000
    }

    fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }

    fn workspace(&self) -> Option<&FileTree> {
        Some(&self.workspace.1)
    }

    fn package(&self) -> Option<&FileTree> {
        Some(&self.package.1)
    }

    async fn cancelled(&self) -> AgentError {
        let mut aborted = self.aborted.subscribe();
        let reason = aborted.wait_for(Option::is_some).await.unwrap().clone();
        AgentError::cancelled(&reason.unwrap())
    }

    async fn clear_budget(&self) -> Result<(), AgentError> {
        if *self.budget_held.lock().unwrap() {
            return self.never().await;
        }
        let spent: u64 =
            self.log.lock().unwrap().usages.iter().map(|(_, input, output, _)| input + output).sum();
        match *self.budget.lock().unwrap() {
            Some(cap) if spent > cap => Err(AgentError::new(ErrorCode::BudgetExceeded, "max_tokens")),
            _ => Ok(()),
        }
    }

    async fn infer(&self, call: &ModelCall, request: InferenceRequest) -> Result<FrameStream, AgentError> {
        {
            let mut log = self.log.lock().unwrap();
            log.requests.push(request);
            log.calls.push(call.clone());
        }
        let reply = self.replies.lock().unwrap().pop_front().expect("the script has no more replies");
        if !reply.connects {
            return self.never().await;
        }
        if let Some(permits) = reply.after {
            self.gate.acquire_many(permits).await.unwrap().forget();
        }
        self.gate.add_permits(reply.releases as usize);
        if let Some(error) = reply.failure {
            return Err(error);
        }
        let frames = futures_util::stream::iter(reply.frames.into_iter().map(Ok));
        if reply.ends {
            return Ok(frames.boxed());
        }
        self.waiting.notify_one();
        Ok(frames.chain(futures_util::stream::pending()).boxed())
    }

    async fn invoke_tool(&self, invocation: ToolInvocation) -> Result<RawJson, AgentError> {
        let name = invocation.tool.clone();
        self.log.lock().unwrap().invocations.push(invocation);
        let running = {
            let tools = self.tools.lock().unwrap();
            tools.get(&name).expect("a scripted tool")(Arc::clone(&self.gate))
        };
        self.waiting.notify_one();
        running.await
    }

    async fn record_usage(&self, _: &ModelCall, usage: ModelUsage) {
        let counts = (usage.counts.input_tokens.unwrap_or(0), usage.counts.output_tokens.unwrap_or(0));
        self.log.lock().unwrap().usages.push((usage.model_ref, counts.0, counts.1, usage.estimated));
    }

    fn begin_turn(&self, turn_id: &str, body: EventBody) {
        let mut log = self.log.lock().unwrap();
        log.begun += 1;
        log.events.push((turn_id.to_owned(), body));
    }

    fn emit(&self, turn_id: &str, body: EventBody) {
        self.log.lock().unwrap().events.push((turn_id.to_owned(), body));
    }
}

pub(crate) fn request(prompt: &str, options: Value) -> LeafRequest {
    LeafRequest {
        agent_id: "agent-1".try_into().unwrap(),
        call_id: "17".to_owned(),
        prompt: prompt.to_owned(),
        options: serde_json::from_value(options).unwrap(),
    }
}

pub(crate) fn delta(text: &str) -> InferenceFrame {
    InferenceFrame::Delta { text: text.to_owned() }
}

pub(crate) fn call(id: &str, name: &str, input: Value) -> ToolCallRequest {
    let input = input.as_object().unwrap().clone();
    ToolCallRequest { id: id.to_owned(), name: name.to_owned(), input, invalid_input: None }
}

pub(crate) fn text_turn(text: &str, input: u64, output: u64) -> InferenceFrame {
    turn(text, Vec::new(), input, output)
}

pub(crate) fn tool_turn(text: &str, calls: Vec<ToolCallRequest>, input: u64, output: u64) -> InferenceFrame {
    turn(text, calls, input, output)
}

fn turn(text: &str, tool_calls: Vec<ToolCallRequest>, input: u64, output: u64) -> InferenceFrame {
    let wants_tools = !tool_calls.is_empty();
    let usage =
        TokenCounts { input_tokens: Some(input), output_tokens: Some(output), ..TokenCounts::default() };
    InferenceFrame::Result(Box::new(InferenceResult {
        turn: ChatTurn { text: text.to_owned(), tool_calls, usage, wants_tools },
        model_ref: "test/model".to_owned(),
        cost_micros: None,
        context_tokens: None,
    }))
}
