//! The recorded traffic of the original run process: ours asks for the same things in the same order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::plane::{ModelAnswer, Plane, delta, suffix_of};
use support::process::{Options, RunProcess};
use trestle_sandbox::slot::LeaseTerms;

/// One exchange of the run process, in the recording or of ours.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    call: String,
    body: Value,
}

struct Recording {
    exchanges: Vec<Value>,
    name: String,
}

impl Recording {
    fn read(name: &str) -> Self {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../contract/tests/fixtures/runner-0.3.40-{name}.jsonl"));
        let text = std::fs::read_to_string(file).unwrap();
        let exchanges = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { exchanges, name: name.to_owned() }
    }

    fn path(&self, exchange: &Value) -> String {
        let path = exchange["path"].as_str().unwrap();
        path.replace(&format!("/runner/v1/runs/run_{}-0/", self.name), "/runner/v1/runs/01RUN/")
    }

    /// What is asked for in the run's own order; what is asked at intervals is left out.
    fn steps(&self) -> Vec<Step> {
        let of_run = |exchange: &&Value| !matches!(exchange["path"].as_str().unwrap(), path if path.starts_with("/runner/v1/register") || path.contains("/pool/"));
        let step = |exchange: &Value| {
            step(exchange["method"].as_str().unwrap(), &self.path(exchange), &exchange["request_body"])
        };
        self.exchanges.iter().filter(of_run).filter_map(step).collect()
    }

    /// Events that were not cut off, without places and times, deltas of a block as one.
    fn events(&self) -> Vec<Value> {
        let telemetry = self
            .exchanges
            .iter()
            .filter(|exchange| exchange["path"].as_str().unwrap().ends_with("telemetry"));
        let frames = telemetry.flat_map(|exchange| exchange["request_body"]["frames"].as_array().unwrap());
        let mut frames: Vec<Value> =
            frames.map(|frame| serde_json::from_str(frame.as_str().unwrap()).unwrap()).collect();
        frames.sort_by_key(|frame| frame["cursor"].as_u64());
        merged(frames.into_iter().map(|frame| frame["event"].clone()).collect())
    }

    /// The answers that were given, in their order, for a plane that gives them again.
    fn answers(&self, url: &str) -> Vec<(String, String, u16, Value)> {
        let mut answers = Vec::new();
        for exchange in &self.exchanges {
            let path = self.path(exchange);
            let suffix = suffix_of(&path).to_owned();
            let is_service =
                ["secrets/", "artifacts", "children", "/put/"].iter().any(|kind| suffix.starts_with(kind));
            if is_service {
                let body = exchange["response_body"].to_string().replace("http://control.test", url);
                let status = u16::try_from(exchange["status"].as_u64().unwrap()).unwrap();
                let method = exchange["method"].as_str().unwrap().to_owned();
                answers.push((method, suffix, status, serde_json::from_str(&body).unwrap()));
            }
        }
        answers
    }
}

/// Adjacent deltas of one block as one, everything without its place and time.
fn merged(events: Vec<Value>) -> Vec<Value> {
    let mut result: Vec<Value> = Vec::new();
    for mut event in events {
        let object = event.as_object_mut().unwrap();
        for name in ["runId", "turnId", "seq", "t"] {
            object.remove(name);
        }
        if event["kind"] == "text_delta"
            && let Some(last) = result.last_mut().filter(|last| last["kind"] == "text_delta")
        {
            let text = format!("{}{}", last["text"].as_str().unwrap(), event["text"].as_str().unwrap());
            last["text"] = json!(text);
            continue;
        }
        result.push(event);
    }
    result
}

fn step(method: &str, path: &str, body: &Value) -> Option<Step> {
    let suffix = suffix_of(path);
    let call = match suffix {
        "telemetry" | "cancel" | "credit" | "renew" => return None,
        suffix if suffix.starts_with("/dl/") || suffix.starts_with("/blob/") => "GET program".to_owned(),
        suffix if suffix.starts_with("/put/") => "PUT upload".to_owned(),
        suffix => format!("{method} {suffix}"),
    };
    let body = if call == "PUT upload" { Value::Null } else { comparable(&call, body) };
    Some(Step { call, body })
}

/// The body without what differs from run to run: identities, times, texts that the recording cut.
fn comparable(call: &str, body: &Value) -> Value {
    let mut body = body.clone();
    match call {
        "POST finalize" => {
            body["workerId"] = json!("worker");
            scrub_numbers(&mut body["output"]);
        }
        "POST claim" => body["workerId"] = json!("worker"),
        "POST usage" | "POST usage/tokens" => {
            let identifier = body["identifier"].as_str().unwrap();
            // run:session:rest
            body["identifier"] = json!(identifier.splitn(3, ':').last().unwrap());
            if call == "POST usage" {
                body["runtimeSeconds"] = json!(0);
            }
        }
        "POST inference" => {
            // The framing is our own, and so are the built-in tools.
            let roles: Vec<Value> = body["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|message| {
                    json!([
                        message["role"],
                        message["toolCalls"],
                        message["text"],
                        message["results"][0]["id"]
                    ])
                })
                .collect();
            body["messages"] = json!(roles);
            body["tools"] = json!([]);
        }
        "POST artifacts/commit" => body["s3Key"] = json!(body["s3Key"].as_str().unwrap().rsplit('/').next()),
        _ => {}
    }
    body
}

fn scrub_numbers(value: &mut Value) {
    match value {
        Value::Number(_) => *value = json!(0),
        Value::Array(items) => items.iter_mut().for_each(scrub_numbers),
        Value::Object(members) => members.values_mut().for_each(scrub_numbers),
        _ => {}
    }
}

/// Runs a program that does what the recorded one did, against the recorded answers.
async fn ours(recording: &Recording, program: &str, scale: u32, prepare: impl FnOnce(&Plane)) -> Plane {
    let plane = Plane::start(&[("index.mjs", program)]).await;
    // As the original: nothing beyond its protocol is known.
    *plane.state.claim.lock().unwrap() = json!({ "workflowVersion": 1, "environment": null });
    plane.set_input(json!({ "hello": "world" }));
    *plane.state.recorded.lock().unwrap() = recording.answers(&plane.url);
    prepare(&plane);
    let lease = LeaseTerms { seconds: 300, renew_every_ms: 50_000 };
    let mut process = RunProcess::start(Options { time_scale: scale, lease, ..Options::default() }).await;
    process.assign(&plane).await;
    process.outcome().await;
    process.assert_tidy();
    plane
}

fn steps_of(plane: &Plane) -> Vec<Step> {
    let exchanges = plane.state.exchanges.lock().unwrap();
    let address = |text: &str| text.replace(&plane.url, "http://control.test");
    exchanges
        .iter()
        .filter_map(|exchange| {
            let body = serde_json::from_str(&address(&exchange.body.to_string())).unwrap();
            step(exchange.method.as_str(), &exchange.path, &body)
        })
        .collect()
}

fn events_of(plane: &Plane) -> Vec<Value> {
    let text = json!(plane.events()).to_string().replace(&plane.url, "http://control.test");
    merged(serde_json::from_str(&text).unwrap())
}

/// Reports of tokens go beside everything else: their order among themselves counts.
fn split(steps: Vec<Step>) -> (Vec<Step>, Vec<Step>) {
    steps.into_iter().partition(|step| step.call != "POST usage/tokens")
}

async fn same_as_recorded(
    name: &str,
    program: &str,
    scale: u32,
    prepare: impl FnOnce(&Plane),
) -> (Recording, Plane) {
    let recording = Recording::read(name);
    let plane = ours(&recording, program, scale, prepare).await;
    let (theirs, their_tokens) = split(recording.steps());
    let (ours, our_tokens) = split(steps_of(&plane));
    // Compute time is told from half a second on; a slow machine tells it where the recorded one had none.
    let is_charged = theirs.iter().any(|step| step.call == "POST usage");
    let ours = ours.into_iter().filter(|step| is_charged || step.call != "POST usage");
    let ours: Vec<Step> = ours.map(original_code).collect();
    let theirs: Vec<Step> = theirs.into_iter().map(original_code).collect();
    assert_eq!(ours, theirs, "{name}");
    assert_eq!(our_tokens, their_tokens, "{name}");
    (recording, plane)
}

/// A plain throw has no code; the original writes the name of its class.
fn original_code(mut step: Step) -> Step {
    if step.body["output"]["error"]["code"] == "Error" {
        step.body["output"]["error"]["code"] = json!("PROGRAM_ERROR");
    }
    step
}

const SDK: &str =
    r#"import { agent, artifacts, phase, secrets, sleep, workflows } from "@boardwalk-labs/workflow";"#;

async fn same_with_events(name: &str, body: &str, scale: u32, prepare: impl FnOnce(&Plane)) {
    let program = format!("{SDK}\nexport default async function run(input) {{ {body} }}");
    let (recording, plane) = same_as_recorded(name, &program, scale, prepare).await;
    let scrub = |mut events: Vec<Value>| {
        for event in &mut events {
            scrub_numbers(&mut event["value"]);
        }
        events
    };
    assert_eq!(scrub(events_of(&plane)), scrub(recording.events()), "{name}");
}

#[tokio::test]
async fn a_run_that_does_nothing_asks_as_the_original_does() {
    same_with_events("noop", "return { got: input, tModule: Date.now(), tRun: Date.now() };", 50, |_| {})
        .await;
}

#[tokio::test]
async fn a_run_that_throws_asks_as_the_original_does() {
    let program =
        "export default async function run() { console.log('about to fail'); throw new Error('boom'); }";
    let (recording, plane) = same_as_recorded("fail", program, 50, |_| {}).await;
    // Where it was thrown is printed too, on the other stream.
    let told = events_of(&plane).into_iter().filter(|event| event["stream"] != "stderr");
    assert_eq!(told.collect::<Vec<_>>(), recording.events());
}

#[tokio::test]
async fn phases_and_both_consoles_are_told_as_the_original_does() {
    let program = format!(
        "{SDK}\nexport default async function run() {{ console.log('line a'); await sleep(20); console.error('line b'); await sleep(20); phase('one'); phase('two'); return 'done'; }}"
    );
    let (recording, plane) = same_as_recorded("phases", &program, 50, |_| {}).await;
    assert_eq!(events_of(&plane), recording.events());
}

#[tokio::test]
async fn a_secret_is_resolved_and_hidden_as_the_original_does() {
    let body = "const value = await secrets.get('MY_SECRET'); console.log(`the secret is ${value}`); await sleep(20); return { len: value.length };";
    same_with_events("secret", body, 50, |_| {}).await;
}

#[tokio::test]
async fn artifacts_are_written_as_the_original_does() {
    let body = "const a = await artifacts.write('hello.txt', 'text/plain', 'hello artifact', { k: 'v' }); \
                const b = await artifacts.write('bin.dat', 'application/octet-stream', new Uint8Array([0, 1, 2, 255])); return { a, b };";
    same_with_events("artifact", body, 50, |_| {}).await;
}

#[tokio::test]
async fn large_artifacts_are_uploaded_as_the_original_does() {
    let body = "const a = await artifacts.write('big.bin', 'application/octet-stream', new Uint8Array(5_242_880).fill(7)); return { a };";
    same_with_events("bigartifact", body, 50, |_| {}).await;
}

#[tokio::test]
async fn a_called_workflow_is_waited_for_as_the_original_does() {
    // At the original's pace: its compute time is told after a second.
    same_with_events("call", "return { o: await workflows.call('child', { x: 1 }) };", 1, |_| {}).await;
}

#[tokio::test]
async fn a_sleep_is_held_and_charged_as_the_original_does() {
    // At the original's pace, so that compute time is told once, at the end.
    let body = "const since = Date.now(); await sleep(1000); return { slept: Date.now() - since };";
    same_with_events("sleep", body, 1, |_| {}).await;
}

#[tokio::test]
async fn ten_thousand_lines_begin_as_those_of_the_original_and_all_arrive() {
    let body = "for (let i = 0; i < 10_000; i++) console.log(`log line number ${i} lorem ipsum dolor sit amet`); return { ms: 1 };";
    let program = format!("export default async function run() {{ {body} }}");
    let (recording, plane) = same_as_recorded("logs", &program, 50, |_| {}).await;
    let (theirs, ours) = (recording.events(), events_of(&plane));
    // The original lost the rest.
    assert_eq!(ours[..theirs.len()], theirs[..]);
    let lines: Vec<String> =
        (0..10_000).map(|number| format!("log line number {number} lorem ipsum dolor sit amet")).collect();
    assert_eq!(plane.console("stdout"), lines);
}

#[tokio::test]
async fn an_agent_asks_its_model_as_the_original_does() {
    let body = "return { r: await agent('say', { model: 'deltas-20', builtins: 'none' }) };";
    same_with_events("agent", body, 50, |plane| {
        plane.set_model(|_, _| {
            let words: Vec<String> = (0..20).map(|number| format!(" tok{number}")).collect();
            let mut lines: Vec<Value> = words.iter().map(|word| delta(word)).collect();
            lines.push(json!({ "t": "result", "modelRef": "fake/model", "turn": { "text": words.concat(), "toolCalls": [],
                "usage": { "inputTokens": 100, "outputTokens": 20 }, "wantsTools": false } }));
            ModelAnswer::Lines(lines)
        });
    })
    .await;
}

#[tokio::test]
async fn an_agent_uses_its_tool_as_the_original_does() {
    let command = json!({ "command": "echo hi; pwd; env | sort | cut -d= -f1 | tr '\n' ' '" });
    let program = format!(
        "{SDK}\nexport default async function run() {{ const bash = {{ name: 'bash', description: 'runs a command', \
         inputSchema: {{ type: 'object' }}, handler: async () => 'hi' }}; \
         return {{ r: await agent('use it', {{ model: 'tool-test', builtins: 'none', tools: [bash] }}) }}; }}"
    );
    let input = json!({ "command": command["command"].as_str().unwrap().replace('\n', "\\n") });
    let (recording, plane) = same_as_recorded("agenttool", &program, 50, move |plane| {
        plane.set_model(move |number, _| {
            let turn = |text: &str, calls: Value, input: u64, output: u64| {
                let wants = calls != json!([]);
                json!({ "t": "result", "modelRef": "fake/model", "costMicros": 10, "turn": { "text": text, "toolCalls": calls,
                    "usage": { "inputTokens": input, "outputTokens": output }, "wantsTools": wants } })
            };
            ModelAnswer::Lines(match number {
                1 => vec![
                    json!({ "t": "ping" }),
                    json!({ "t": "reasoning", "text": "thinking" }),
                    delta("running "),
                    turn("running ", json!([{ "id": "c1", "name": "bash", "input": input }]), 10, 5),
                ],
                _ => vec![delta("done"), turn("done", json!([]), 20, 2)],
            })
        });
    })
    .await;
    // What the tool printed and returned is its own; the order of everything else is the original's.
    let kinds = |events: Vec<Value>| -> Vec<Value> {
        events
            .into_iter()
            .filter(|event| event["kind"] != "tool_output_delta")
            .map(|mut event| {
                event.as_object_mut().unwrap().remove("result");
                event
            })
            .collect()
    };
    assert_eq!(kinds(events_of(&plane)), kinds(recording.events()));
}
