//! Programs that print, return and keep more than is good.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use support::fake::{Fake, RUN, completes};
use support::process::Options;
use trestle_contract::event::EventBody;
use trestle_testkit::control_plane::{Fault, Hold};

const LEASE: Duration = Duration::from_secs(120);

async fn run_of(program: &str) -> Fake {
    Fake::start(program, LEASE, |_| {}).await
}

#[tokio::test]
async fn a_full_disk_in_the_spool_loses_no_event() {
    const LINES: usize = 3_000;
    let program = format!(
        "export default () => {{ for (let i = 0; i < {LINES}; i++) console.log(`${{i}} `.padEnd(8_000, 'x')); return 'done'; }}"
    );
    let fake = run_of(&program).await;
    let away = Hold::new();
    fake.plane.fault("telemetry", Fault::Hold(away.clone()), 10_000);
    // 24 MB of events for 4 MiB of disk.
    let mut process = fake.begin(Options { small_disk: Some(4), ..fake.options() }).await;
    process.until(&trestle_sandbox::slot::SlotReport::Started).await;
    // The program is through with printing when its process is gone; what it printed is held by ours.
    let (outcome, ()) = tokio::join!(process.outcome(), async {
        let pause = tokio::time::timeout(Duration::from_secs(4), std::future::pending::<()>()).await;
        pause.unwrap_err();
        away.let_go();
    });
    assert_eq!(outcome, trestle_sandbox::slot::SlotOutcome::Completed);
    assert_eq!(fake.output(), "done");
    let numbers: Vec<String> =
        fake.console().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(numbers, (0..LINES).map(|number| number.to_string()).collect::<Vec<_>>());
    fake.assert_faultless();
}

#[tokio::test]
async fn a_hundred_mebibytes_are_one_artifact() {
    let program = "import { artifacts } from '@trestle/workflow'; \
        export default async () => { const bytes = new Uint8Array(100 * 1024 * 1024).fill(9); bytes[0] = 1; \
        return (await artifacts.write('huge.bin', 'application/octet-stream', bytes)).name; }";
    let fake = run_of(program).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.output(), "huge.bin");
    let artifact = &fake.plane.artifacts(RUN)[0];
    assert_eq!((artifact.bytes.len(), artifact.bytes[0], artifact.bytes[104_857_599]), (104_857_600, 1, 9));
}

#[tokio::test]
async fn an_output_of_five_megabytes_is_returned_whole() {
    let program = "export default () => ({ text: 'é'.repeat(2_500_000), last: true })";
    let fake = run_of(program).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    let output = fake.output();
    assert_eq!(output["text"].as_str().unwrap().len(), 5_000_000);
    assert_eq!(output["last"], true);
    let shown = fake.events().into_iter().find_map(|event| match event.body {
        EventBody::Output { value } => Some(value.get().len()),
        _ => None,
    });
    assert!(shown.unwrap() >= 5_000_000);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_marked_and_nothing_after_them_is_lost() {
    let program = "export default async () => { \
        const bytes = Buffer.alloc(70_000); for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 7) % 256; \
        await new Promise((done) => process.stdout.write(bytes, done)); console.log('\\nthe end'); return 1; }";
    let fake = run_of(program).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    let lines = fake.console();
    assert_eq!(lines.last().unwrap(), "the end");
    assert!(lines.iter().any(|line| line.contains('\u{fffd}')));
    assert!(lines.iter().all(|line| line.encode_utf16().count() <= 8_192));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_open_does_not_hold_the_run() {
    let program = "import { spawn } from 'node:child_process'; \
        export default () => { \
          const child = spawn('setsid', ['sh', '-c', 'trap \"\" TERM HUP; echo from below; exec sleep 600'], { stdio: ['ignore', 'inherit', 'inherit'], detached: true }); \
          child.unref(); console.log('from above'); return 'over'; }";
    let fake = run_of(program).await;
    let mut process = fake.begin(fake.options()).await;
    completes(&mut process).await;
    assert_eq!(fake.output(), "over");
    assert!(fake.console().contains(&"from above".to_owned()));
}

#[tokio::test]
async fn a_program_that_prints_faster_than_the_server_takes_is_slowed_down_and_loses_nothing() {
    const LINES: usize = 11_000;
    let program = format!(
        "export default () => {{ for (let i = 0; i < {LINES}; i++) console.log(`${{i}} `.padEnd(8_000, 'y')); return 'done'; }}"
    );
    let fake = run_of(&program).await;
    let away = Hold::new();
    fake.plane.fault("telemetry", Fault::Hold(away.clone()), 10_000);
    let mut process = fake.begin(fake.options()).await;
    process.until(&trestle_sandbox::slot::SlotReport::Started).await;
    // 88 MB are more than may wait: before the server takes any, the program cannot have ended.
    let early = tokio::time::timeout(Duration::from_secs(5), process.outcome()).await;
    assert!(early.is_err(), "more waits than is allowed, or something was dropped");
    away.let_go();
    assert_eq!(process.outcome().await, trestle_sandbox::slot::SlotOutcome::Completed);
    let console = fake.console();
    let notice = console.iter().filter(|line| line.contains("console output ends here")).count();
    assert_eq!(notice, 1, "64 MiB of console output are one attempt's share");
    let numbers: HashSet<usize> =
        console.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert_eq!(numbers.len() + notice, console.len(), "a line came twice");
    assert_eq!(numbers, (0..numbers.len()).collect::<HashSet<_>>(), "a line in between is missing");
    assert!(numbers.len() * 8_000 > 60 * 1024 * 1024, "{}", numbers.len());
    assert_eq!(fake.output(), json!("done"));
}
