//! Run processes: starts that fail, slots, what they print, what stays.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trestle_runner::{Ended, RunnerError};
use trestle_testkit::clock::until;
use trestle_testkit::control_plane::Stage;

use crate::support::{LIMIT, Machine, Script};

#[tokio::test]
async fn a_run_that_cannot_be_started_is_given_back_and_five_of_them_end_the_runner() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let config = trestle_runner::Config {
        executable: machine.home.path().join("missing"),
        ..machine.config(Script::Ends)
    };
    let working = machine.start(config).await;
    let error = working.end().await.unwrap_err();
    assert!(matches!(error, RunnerError::CannotStart { count: 5, .. }), "{error}");
    assert!(error.hint().unwrap().contains("gave the runs back"));
    assert_eq!(machine.releases(), ["died"; 5]);
    assert_eq!(machine.plane.stage("run-1"), Some(Stage::Queued));
    assert!(machine.leftovers().is_empty());
}

#[tokio::test]
async fn a_machine_that_recovers_goes_on() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let config = machine.config(Script::Ends);
    let (executable, hidden) = (config.executable.clone(), machine.home.path().join("hidden"));
    std::fs::rename(&executable, &hidden).unwrap();
    let mut config = config;
    config.timing.retry_base = Duration::from_secs(1);
    config.timing.retry_ceiling = Duration::from_secs(4);
    let working = machine.start(config).await;
    until(LIMIT, "the first release", || !machine.releases().is_empty()).await.unwrap();
    std::fs::rename(&hidden, &executable).unwrap();
    machine.until_assigned(1).await;
    working.handle.drain();
    assert_eq!(working.end().await.unwrap(), Ended::Drained);
}

#[tokio::test]
async fn as_many_runs_work_as_there_are_slots_and_no_poll_is_sent_without_one() {
    let machine = Machine::new().await;
    for run in ["run-1", "run-2", "run-3"] {
        machine.queue(run);
    }
    let config = trestle_runner::Config { slots: 2, ..machine.config(Script::Waits) };
    let working = machine.start(config).await;
    machine.until_assigned(2).await;
    let polls = machine.polls();
    let beats = machine.plane.calls(crate::support::BEAT).len();
    machine.until_calls(crate::support::BEAT, beats + 10).await;
    assert_eq!((machine.polls(), machine.claims(), machine.alive()), (polls, 2, 2));
    assert_eq!(polls, 2);
    machine.let_go().await;
    machine.until_assigned(3).await;
    machine.let_go().await;
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_waiting_run_lends_its_slot() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    machine.queue("run-2");
    let script = concat!(
        "printf '{\"type\":\"waiting\",\"waiting\":true}\\n' >&3\n",
        "mkfifo \"$out/go.$$\"\nread -r go < \"$out/go.$$\""
    );
    let working = machine.start(machine.config(Script::Does(script))).await;
    machine.until_assigned(2).await;
    assert_eq!(machine.alive(), 2);
    machine.let_go().await;
    machine.let_go().await;
    working.handle.drain();
    working.end().await.unwrap();
}

/// B2-14, B2-15: a grandchild that ignores the request to end, and holds the inherited socket open.
#[tokio::test]
async fn b2_14_what_a_run_process_started_ends_with_it_and_holds_nothing_up() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let script = "sh -c 'trap \"\" TERM; echo $$ > \"$0/started.$$\"; exec tail -f /dev/null' \"$out\" &\n\
                  until [ -s \"$out/started.$!\" ]; do :; done";
    let working = machine.start(machine.config(Script::Does(script))).await;
    machine.until_assigned(1).await;
    working.handle.drain();
    working.end().await.unwrap();
    assert_eq!(machine.processes().len(), 2);
    assert_eq!(machine.alive(), 0);
}

#[tokio::test]
async fn directories_of_a_run_are_private_and_gone_afterwards() {
    let machine = Machine::new().await;
    machine.queue("run-1");
    let script = "ls -ld . workspace tmp program > \"$out/listed\"; touch workspace/left tmp/left";
    let working = machine.start(machine.config(Script::Does(script))).await;
    machine.until_assigned(1).await;
    working.handle.drain();
    working.end().await.unwrap();
    let listed = std::fs::read_to_string(machine.out().join("listed")).unwrap();
    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert!(listed.lines().all(|line| line.starts_with("drwx------")), "{listed}");
    assert!(machine.leftovers().is_empty());
}

/// Log lines, as a terminal would get them.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_run_process_prints_is_quoted_and_marked_as_its_own() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
    let machine = Machine::new().await;
    machine.queue("run-1");
    let script = "printf '{\"level\":\"INFO\",\"message\":\"daemon_stopped\"}\\n'\n\
                  printf 'an escape \\033[31mred\\n' >&2\nprintf 'no end' >&2";
    let working = machine.start(machine.config(Script::Does(script))).await;
    machine.until_assigned(1).await;
    working.handle.drain();
    working.end().await.unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let of_the_run: Vec<&str> = text.lines().filter(|line| line.contains("run_process_output")).collect();
    assert_eq!(of_the_run.len(), 3, "{text}");
    assert!(of_the_run.iter().all(|line| line.contains("pid=") && line.contains("stream=")), "{text}");
    let forged = of_the_run.iter().find(|line| line.contains("stdout")).unwrap();
    assert!(forged.contains(r#"line="{\"level\":\"INFO\""#), "{forged}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(of_the_run.iter().any(|line| line.contains("no end")));
}
