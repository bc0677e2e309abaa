//! What programs and servers do on a bad day, through the real binary, real sockets and real interpreters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{Finished, Machine, Running, Up, eventually, finish, processes_with};

/// Whoever asks the API of a server.
struct Reader {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Reader {
    fn new(url: &str, token: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, http: reqwest::Client::new(), url: url.to_owned(), token: token.to_owned() }
    }

    fn of(up: &Up<'_>) -> Self {
        Self::new(&up.url, &up.token)
    }

    fn get(&self, path: &str) -> Value {
        self.runtime.block_on(async {
            let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
        })
    }

    /// The bytes behind an address that is complete by itself.
    fn bytes(&self, url: &str) -> Vec<u8> {
        self.runtime.block_on(async {
            let answer = self.http.get(url).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{url}");
            answer.bytes().await.unwrap().to_vec()
        })
    }

    /// The stored events of a run; their cursors only grow.
    fn events(&self, run: &str) -> Vec<Value> {
        let list = self.get(&format!("/v1/runs/{run}/events"));
        assert_eq!(list["done"], true);
        let events = list["events"].as_array().unwrap().clone();
        let cursors: Vec<u64> = events.iter().map(|event| event["cursor"].as_u64().unwrap()).collect();
        assert!(cursors.windows(2).all(|pair| pair[0] < pair[1]), "cursors of {run}");
        events.into_iter().map(|event| event["event"].clone()).collect()
    }

    /// What the program of a run has printed.
    fn console(&self, run: &str, stream: &str) -> Vec<String> {
        self.events(run)
            .iter()
            .filter(|event| event["kind"] == "program_output" && event["stream"] == stream)
            .map(|event| event["text"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Runs a workflow to its end, which is a good one; the run's id.
fn completed(up: &Up<'_>, workflow: &str) -> String {
    let run = up.run(&["run", workflow, "--json"]).ok().json();
    assert_eq!(run["status"], "completed");
    run["runId"].as_str().unwrap().to_owned()
}

#[test]
fn ten_thousand_lines_and_one_of_two_hundred_thousand_emoji_are_stored_whole_and_in_order() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let reader = Reader::of(&up);
    up.deploy(
        "lines",
        "export default () => { for (let i = 0; i < 10_000; i += 1) console.log(`line ${i}`); };\n",
    );
    let id = completed(&up, "lines");
    let expected: Vec<String> = (0..10_000).map(|number| format!("line {number}")).collect();
    assert!(reader.console(&id, "stdout") == expected, "a line is missing, doubled or out of place");
    assert!(reader.console(&id, "stderr").is_empty());

    up.deploy(
        "emoji",
        "export default () => { console.log('😀'.repeat(200_000)); console.log('after'); };\n",
    );
    let id = completed(&up, "emoji");
    let mut frames = reader.console(&id, "stdout");
    assert_eq!(frames.pop().as_deref(), Some("after"));
    assert!(frames.iter().all(|frame| frame.encode_utf16().count() <= 8_192));
    assert!(frames.concat() == "😀".repeat(200_000), "a character is missing or cut");
    up.stop().ok();
}

#[test]
fn binary_output_is_shown_with_marks_in_place_of_what_is_no_text() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let reader = Reader::of(&up);
    // Every byte, sequences cut off in the middle, surrogates, a NUL, carriage returns; written in pieces of one byte
    // to one stream and as a whole to the other.
    let mut bytes: Vec<u8> = (0..=255_u8).flat_map(|byte| [byte, b'-']).collect();
    bytes.extend_from_slice(
        b"\na\xf0\x9f\x98\nb\xf0\x9f\x98\x80c\xe2\x82\n\xed\xa0\x80\xff\xfe\x00end\r\n\r\nlast \xc3",
    );
    let list = format!("{bytes:?}");
    up.deploy(
        "binary",
        &format!(
            "import {{ writeSync }} from 'node:fs';\nconst bytes = Buffer.from({list});\nexport default () => {{\n  for (const byte of bytes) writeSync(1, Buffer.from([byte]));\n  writeSync(2, bytes);\n}};\n"
        ),
    );
    let id = completed(&up, "binary");
    let expected: Vec<String> = bytes
        .split(|byte| *byte == b'\n')
        .map(|line| String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
        .collect();
    assert_eq!(reader.console(&id, "stdout"), expected);
    assert_eq!(reader.console(&id, "stderr"), expected);
    up.stop().ok();
}

#[test]
fn an_output_of_five_megabytes_is_stored_and_shown_whole() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let reader = Reader::of(&up);
    let source = "export default () => ({ text: 'é'.repeat(1_000_000) + 'x'.repeat(3_000_000), n: 7 });\n";
    up.deploy("large", source);
    let id = completed(&up, "large");
    let run = reader.get(&format!("/v1/runs/{id}"))["run"].clone();
    let text = run["output"]["text"].as_str().unwrap();
    assert!(text.len() == 5_000_000 && text == format!("{}{}", "é".repeat(1_000_000), "x".repeat(3_000_000)));
    assert_eq!(run["output"]["n"], 7);
    let output = reader.events(&id).into_iter().find(|event| event["kind"] == "output").unwrap();
    assert!(output["value"] == run["output"]);
    up.stop().ok();
}

#[test]
fn an_artifact_of_a_hundred_mebibytes_arrives_byte_for_byte() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let reader = Reader::of(&up);
    let source = "
import { artifacts } from '@trestle/workflow';
export default async () => {
  // Every byte value, and the number of its piece in each piece: nothing can be missing, doubled or out of place.
  const piece = 65_536;
  const bytes = new Uint8Array(100 * 1024 * 1024);
  for (let i = 0; i < piece; i += 1) bytes[i] = (i * 31 + (i >>> 8)) & 255;
  for (let n = 1; n < bytes.length / piece; n += 1) bytes.copyWithin(n * piece, 0, piece);
  const view = new DataView(bytes.buffer);
  for (let n = 0; n < bytes.length / piece; n += 1) view.setUint32(n * piece, n);
  await artifacts.write('large.bin', 'application/octet-stream', bytes);
};
";
    up.deploy("artifact", source);
    let id = completed(&up, "artifact");
    let artifacts = reader.get(&format!("/v1/runs/{id}/artifacts"))["artifacts"].clone();
    let artifact = artifacts[0]["id"].as_str().unwrap();
    let address = reader.get(&format!("/v1/runs/{id}/artifacts/{artifact}/url"));
    let bytes = reader.bytes(address["signedUrl"].as_str().unwrap());
    assert_eq!(bytes.len(), 100 * 1024 * 1024);
    let piece: Vec<u8> = (0..65_536_u32).map(|i| ((i * 31 + (i >> 8)) & 255) as u8).collect();
    for (number, found) in bytes.chunks(piece.len()).enumerate() {
        let head = u32::try_from(number).unwrap().to_be_bytes();
        assert!(found[..4] == head && found[4..] == piece[4..], "piece {number} is not what was written");
    }
    up.stop().ok();
}

#[test]
fn a_grandchild_that_leaves_the_session_and_holds_the_pipes_keeps_nobody_waiting() {
    let machine = Machine::new();
    let up = machine.up(&["--prestart", "0"]);
    let reader = Reader::of(&up);
    let source = "
import { spawn } from 'node:child_process';
export default async () => {
  // A child in a session of its own, whose child holds both pipes and ignores every polite request.
  const child = spawn('setsid', ['sh', '-c', \"trap '' TERM HUP INT; echo from below; sleep 4242 & wait\"], { stdio: 'inherit' });
  await new Promise((begun) => child.on('spawn', begun));
  console.log('returning');
  return child.pid;
};
";
    up.deploy("holds", source);
    let id = completed(&up, "holds");
    assert!(reader.console(&id, "stdout").contains(&"returning".to_owned()));
    let marker = machine.home.path().to_str().unwrap().to_owned();
    let sleeper = || {
        processes_with(&marker)
            .into_iter()
            .filter(|pid| {
                fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep\x004242"))
            })
            .count()
    };
    eventually("everything that the run started is gone", || sleeper() == 0);
    up.stop().ok();
    assert!(processes_with(&marker).is_empty());
}

/// A server without a runner, at the same address and over the same data each time.
fn server(machine: &Machine, data: &Path, listen: &str) -> Running {
    let running = Running::start(machine.trestle([
        "up",
        "--data",
        data.to_str().unwrap(),
        "--listen",
        listen,
        "--no-runner",
    ]));
    running.wait_for("admin token:");
    running
}

fn client(machine: &Machine, data: &Path, args: &[&str]) -> Finished {
    finish(machine.trestle(args).env("TRESTLE_DATA", data))
}

/// Steps that programs have taken, in the order of the ledger's lines `RUN STEP`.
fn steps(ledger: &Path) -> BTreeMap<String, Vec<u32>> {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in fs::read_to_string(ledger).unwrap_or_default().lines() {
        let (run, step) = line.split_once(' ').unwrap();
        found.entry(run.to_owned()).or_default().push(step.parse().unwrap());
    }
    found
}

#[test]
fn a_server_that_is_killed_under_twenty_programs_comes_back_to_find_all_of_them_finish_once() {
    const PROGRAMS: usize = 20;
    let machine = Machine::new();
    let data = machine.home.path().join("data");
    let first = server(&machine, &data, "127.0.0.1:0");
    let known: Value = serde_json::from_slice(&fs::read(data.join("server.json")).unwrap()).unwrap();
    let url = known["url"].as_str().unwrap().to_owned();
    let listen = url.trim_start_matches("http://").to_owned();
    let token = fs::read_to_string(data.join("admin-token")).unwrap().trim().to_owned();
    let minted = client(&machine, &data, &["runner", "token"]).ok().out;
    machine
        .run(&[
            "runner",
            "register",
            "--url",
            &url,
            "--token",
            minted.lines().next().unwrap().trim(),
            "--name",
            "box",
        ])
        .ok();
    let slots = PROGRAMS.to_string();
    let runner = Running::start(machine.trestle([
        "runner",
        "start",
        "--url",
        &url,
        "--host",
        "--slots",
        &slots,
        "--prestart",
        "0",
    ]));

    let ledger = machine.cwd().join("ledger");
    let gate = |name: &str| -> PathBuf { machine.cwd().join(name) };
    let source = format!(
        "
import {{ appendFileSync, existsSync }} from 'node:fs';
import {{ artifacts, phase, sleep, usage }} from '@trestle/workflow';
export default async (input, context) => {{
  const step = (n) => {{ appendFileSync({ledger:?}, `${{context.runId}} ${{n}}\\n`); console.log(`step ${{n}}`); phase(`step ${{n}}`); }};
  const opened = async (path) => {{ while (!existsSync(path)) await sleep(20); }};
  step(1);
  await opened({down:?});
  step(2);
  await opened({back:?});
  await usage.get();
  await artifacts.write('note.txt', 'text/plain', context.runId);
  step(3);
  return {{ run: context.runId, attempt: context.attempt }};
}};
",
        down = gate("down"),
        back = gate("back"),
    );
    let directory = machine.workflow("steps", &source);
    client(&machine, &data, &["deploy", directory.to_str().unwrap()]).ok();
    let runs: BTreeSet<String> = (0..PROGRAMS)
        .map(|_| client(&machine, &data, &["run", "steps", "--no-wait"]).ok().out.trim().to_owned())
        .collect();
    assert_eq!(runs.len(), PROGRAMS);
    eventually("every program has taken its first step", || steps(&ledger).len() == PROGRAMS);

    first.signal(Signal::SIGKILL);
    assert_ne!(first.end().code, 0);
    // The programs go on while there is no server.
    fs::write(gate("down"), "").unwrap();
    eventually("every program has gone on alone", || steps(&ledger).values().all(|steps| steps.contains(&2)));
    let second = server(&machine, &data, &listen);
    fs::write(gate("back"), "").unwrap();

    let reader = Reader::new(&url, &token);
    let status =
        |id: &String| reader.get(&format!("/v1/runs/{id}"))["run"]["status"].as_str().unwrap().to_owned();
    eventually("every run has ended", || {
        runs.iter().all(|id| ["completed", "failed", "cancelled"].contains(&status(id).as_str()))
    });
    let ledger = steps(&ledger);
    assert_eq!(ledger.keys().cloned().collect::<BTreeSet<_>>(), runs);
    for (id, taken) in &ledger {
        let run = reader.get(&format!("/v1/runs/{id}"))["run"].clone();
        assert_eq!(run["status"], "completed", "{run}");
        assert_eq!(run["output"], serde_json::json!({ "run": id, "attempt": 1 }));
        assert_eq!(taken, &[1, 2, 3], "{id} repeated a step, or left one out");
        assert_eq!(reader.console(id, "stdout"), ["step 1", "step 2", "step 3"], "{id}");
        let events = reader.events(id);
        let phases: Vec<&str> = events
            .iter()
            .filter(|event| event["kind"] == "phase")
            .map(|event| event["name"].as_str().unwrap())
            .collect();
        assert_eq!(phases, ["step 1", "step 2", "step 3"]);
        assert_eq!(events.last().unwrap()["status"], "completed");
        let ends = events.iter().filter(|event| {
            event["kind"] == "run_status"
                && ["completed", "failed", "cancelled"].contains(&event["status"].as_str().unwrap())
        });
        let ends = ends.count();
        assert_eq!(ends, 1, "{id} ended more than once");
        let artifacts = reader.get(&format!("/v1/runs/{id}/artifacts"))["artifacts"].clone();
        assert_eq!(artifacts.as_array().unwrap().len(), 1, "{id}: {artifacts}");
    }
    runner.signal(Signal::SIGINT);
    runner.end().ok();
    second.signal(Signal::SIGINT);
    second.end().ok();
}
