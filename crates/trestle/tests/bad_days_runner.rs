//! Runners on a bad day, with the real binary and real processes: killed, stopped, removed, cut off.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Finished, Machine, Running, Up, eventually, finish, processes_with};
use trestle_testkit::fault_proxy::{Direction, FaultProxy, Weather};

/// Long enough for a slow machine to keep it, short enough to wait for its end.
const LEASE: &str = "12";

/// A workflow whose program leaves a trace of each attempt and waits for a word.
struct Patient {
    trace: PathBuf,
    done: PathBuf,
    flag: PathBuf,
}

impl Patient {
    fn deploy(up: &Up<'_>) -> Self {
        let home = up.machine.home.path();
        let this = Self { trace: home.join("trace"), done: home.join("done"), flag: home.join("flag") };
        let source = format!(
            "import {{ appendFileSync, existsSync }} from 'node:fs';\n\
             export default async (_, context) => {{\n\
               appendFileSync({:?}, `${{context.attempt}} ${{process.pid}}\\n`);\n\
               while (!existsSync({:?})) await new Promise((next) => setTimeout(next, 50));\n\
               appendFileSync({:?}, `${{context.attempt}}\\n`);\n\
               return context.attempt;\n\
             }};\n",
            this.trace, this.flag, this.done
        );
        up.deploy("patient", &source);
        this
    }

    /// Attempts and process numbers of the programs that were started.
    fn started(&self) -> Vec<(u32, i32)> {
        let text = fs::read_to_string(&self.trace).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(attempt, pid)| (attempt.parse().unwrap(), pid.parse().unwrap()))
            .collect()
    }

    fn until_started(&self, attempts: usize) -> i32 {
        eventually("the program starts", || self.started().len() >= attempts);
        self.started()[attempts - 1].1
    }

    /// Lets the program go and checks that the run was brought to its end by one attempt, the last one.
    fn finish(&self, up: &Up<'_>, run: &str) -> u64 {
        fs::write(&self.flag, "").unwrap();
        up.run(&["runs", run, "--follow"]).ok();
        let detail = up.run(&["runs", run, "--json"]).ok().json();
        let attempt = detail["run"]["attempt"].as_u64().unwrap();
        assert_eq!(detail["run"]["status"], "completed", "{detail}");
        assert_eq!(detail["run"]["output"], attempt, "{detail}");
        let attempts: Vec<u64> = self.started().iter().map(|(attempt, _)| u64::from(*attempt)).collect();
        assert_eq!(attempts, (1..=attempt).collect::<Vec<u64>>(), "each attempt once, in its order");
        assert_eq!(
            fs::read_to_string(&self.done).unwrap(),
            format!("{attempt}\n"),
            "one attempt came to its end"
        );
        let events = up.run(&["runs", run, "--logs", "--json"]).ok().out;
        let terminal = ["completed", "failed", "cancelled"]
            .map(|status| events.matches(&format!("\"status\":\"{status}\"")).count())
            .iter()
            .sum::<usize>();
        assert_eq!(terminal, 1, "{events}");
        attempt
    }
}

fn start(up: &Up<'_>) -> String {
    up.run(&["run", "patient", "--no-wait"]).ok().out.trim().to_owned()
}

fn gone(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_or(true, |stat| stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Registers a machine and gives its runner's id.
fn join(up: &Up<'_>, machine: &Machine, pool: &str) -> String {
    join_at(up, &up.url, machine, pool)
}

fn join_at(up: &Up<'_>, url: &str, machine: &Machine, pool: &str) -> String {
    let token = up.run(&["runner", "token", "--pool", pool]).ok().out.trim().to_owned();
    let registered = machine.run(&["runner", "register", "--url", url, "--token", &token, "--name", pool]);
    registered.ok().out.trim().to_owned()
}

/// Starts a runner of one slot and waits until it asks for work. (It is online when its first poll was answered,
/// which the server holds while there is no work.)
fn work(machine: &Machine, url: &str, more: &[&str]) -> Running {
    let mut command =
        machine.trestle(["runner", "start", "--url", url, "--host", "--slots", "1", "--prestart", "0"]);
    if !more.contains(&"--lease") {
        command.args(["--lease", LEASE]);
    }
    command.args(more);
    let running = Running::start(command);
    running.wait_for("connecting");
    running
}

fn runner_start(machine: &Machine, url: &str, more: &[&str]) -> Finished {
    let mut command = machine.trestle(["runner", "start", "--url", url, "--host", "--prestart", "0"]);
    finish(command.args(more))
}

/// The run processes of a machine.
fn run_processes(machine: &Machine) -> Vec<i32> {
    let home = machine.home.path().to_str().unwrap();
    processes_with(home)
        .into_iter()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).any(|argument| argument == b"__run"))
        })
        .collect()
}

/// B9-51, B9-53: no reporter survives, and the run is somebody else's.
#[test]
fn b9_53_a_runner_killed_at_work_loses_its_run_to_another_machine() {
    let server = Machine::new();
    let up = server.up(&["--no-runner", "--lease", LEASE]);
    let patient = Patient::deploy(&up);
    let (first, second) = (Machine::new(), Machine::new());
    join(&up, &first, "default");
    join(&up, &second, "default");
    let killed = work(&first, &up.url, &[]);
    let run = start(&up);
    let program = patient.until_started(1);
    let processes = run_processes(&first);
    assert_eq!(processes.len(), 1);
    let begin = Instant::now();
    killed.signal(Signal::SIGKILL);
    eventually("nothing of the dead runner is left", || {
        gone(program) && processes.iter().all(|pid| gone(*pid))
    });
    let _second = work(&second, &up.url, &[]);
    patient.until_started(2);
    // Its process said that it dies with its runner: nobody had to wait for the end of a lease.
    assert!(begin.elapsed() < support::PATIENCE);
    assert!(patient.finish(&up, &run) >= 2);
    // The machine comes back and is as good as new.
    let _first = work(&first, &up.url, &[]);
    assert_eq!(up.run(&["runners"]).ok().out.lines().count(), 2);
    up.stop().ok();
}

/// What is stopped for longer than the lease, and by whom its late attempt is ended.
enum Stopped {
    Runner,
    RunProcess,
    Both,
}

fn stopped_for_longer_than_the_lease(what: &Stopped) {
    let server = Machine::new();
    let up = server.up(&["--no-runner", "--lease", LEASE]);
    let patient = Patient::deploy(&up);
    let (first, second) = (Machine::new(), Machine::new());
    let runner = join(&up, &first, "default");
    join(&up, &second, "default");
    let stopped = work(&first, &up.url, &[]);
    let run = start(&up);
    let program = patient.until_started(1);
    let process = run_processes(&first)[0];
    let _second = work(&second, &up.url, &[]);
    let mut pids = Vec::new();
    if !matches!(what, Stopped::RunProcess) {
        pids.push(stopped.pid());
    }
    if !matches!(what, Stopped::Runner) {
        pids.push(process);
    }
    for pid in &pids {
        signal(*pid, Signal::SIGSTOP);
    }
    patient.until_started(2);
    // The program of the first attempt may still be there when both its keepers stand still: it can reach nobody.
    if !matches!(what, Stopped::Both) {
        eventually("the late attempt is ended while its keeper stands still", || gone(program));
    }
    for pid in pids.iter().rev().filter(|pid| !gone(**pid)) {
        signal(*pid, Signal::SIGCONT);
    }
    eventually("the late attempt is ended", || gone(program) && gone(process));
    assert!(patient.finish(&up, &run) >= 2);
    // The runner itself goes on, and works.
    fs::remove_file(&patient.flag).unwrap();
    fs::remove_file(&patient.trace).unwrap();
    fs::remove_file(&patient.done).unwrap();
    drop(_second);
    let listed = up.run(&["runners"]).ok().out;
    assert!(listed.contains(&runner) && !listed.contains("draining"), "{listed}");
    let next = start(&up);
    patient.until_started(1);
    patient.finish(&up, &next);
    stopped.signal(Signal::SIGTERM);
    stopped.end().ok();
    up.stop().ok();
}

#[test]
fn a_runner_stopped_for_longer_than_its_lease_is_refused_and_goes_on() {
    stopped_for_longer_than_the_lease(&Stopped::Runner);
}

#[test]
fn a_run_process_stopped_for_longer_than_its_lease_is_ended_by_its_runner() {
    stopped_for_longer_than_the_lease(&Stopped::RunProcess);
}

#[test]
fn a_whole_machine_stopped_for_longer_than_its_lease_fences_itself() {
    stopped_for_longer_than_the_lease(&Stopped::Both);
}

#[test]
fn a_runner_removed_in_the_middle_of_a_run_ends_it_and_itself() {
    let server = Machine::new();
    let up = server.up(&["--no-runner"]);
    let patient = Patient::deploy(&up);
    let (first, second) = (Machine::new(), Machine::new());
    let removed = join(&up, &first, "default");
    join(&up, &second, "default");
    let working = work(&first, &up.url, &[]);
    let run = start(&up);
    let program = patient.until_started(1);
    up.run(&["runner", "remove", &removed]).with_code(1).says("--yes");
    assert!(!gone(program));
    up.run(&["runner", "remove", &removed, "--yes"]).ok();
    eventually("the run is ended", || gone(program));
    working.end().with_code(1).says("removed");
    // One that is gone already counts as removed.
    up.run(&["runner", "remove", &removed, "--yes"]).ok();
    let _second = work(&second, &up.url, &[]);
    patient.until_started(2);
    assert_eq!(patient.finish(&up, &run), 2);
    up.stop().ok();
}

#[test]
fn two_runners_of_one_machine_work_side_by_side() {
    let server = Machine::new();
    let up = server.up(&["--no-runner"]);
    let machine = Machine::new();
    let flag = server.home.path().join("flag");
    let source = format!(
        "import {{ existsSync }} from 'node:fs';\nexport default async () => {{ console.log('at work'); while (!existsSync({flag:?})) await new Promise((next) => setTimeout(next, 50)); return process.cwd(); }};\n"
    );
    let mut runs = Vec::new();
    let mut workers = Vec::new();
    for pool in ["blue", "green"] {
        join(&up, &machine, pool);
        workers.push(work(&machine, &up.url, &["--pool", pool]));
        let descriptor = format!(
            r#"{{"slug":"{pool}","triggers":[{{"kind":"manual"}}],"runs_on":{{"kind":"self-hosted","pool":"{pool}"}}}}"#
        );
        let directory = server.workflow_with(pool, &descriptor, &source);
        up.run(&["deploy", directory.to_str().unwrap()]).ok();
        runs.push(up.run(&["run", pool, "--no-wait"]).ok().out.trim().to_owned());
        let id = runs.last().unwrap();
        eventually("the program is at work", || {
            up.run(&["runs", id, "--logs", "--stream", "log"]).out.contains("at work")
        });
    }
    // A second process of one identity is refused, and touches nothing of the first.
    runner_start(&machine, &up.url, &["--pool", "blue"]).with_code(1).says("another runner works");
    fs::write(&flag, "").unwrap();
    let mut places = Vec::new();
    for run in &runs {
        up.run(&["runs", run, "--follow"]).ok();
        let detail = up.run(&["runs", run, "--json"]).ok().json();
        assert_eq!((&detail["run"]["status"], &detail["run"]["attempt"]), (&"completed".into(), &1.into()));
        places.push(detail["run"]["output"].as_str().unwrap().to_owned());
    }
    assert_ne!(places[0], places[1]);
    for worker in workers {
        worker.signal(Signal::SIGTERM);
        worker.end().ok();
    }
    up.stop().ok();
}

#[test]
fn an_interrupt_of_the_whole_process_group_drains_and_a_second_one_ends_at_once() {
    let server = Machine::new();
    let up = server.up(&["--no-runner"]);
    let patient = Patient::deploy(&up);
    let machine = Machine::new();
    join(&up, &machine, "default");
    let grouped = || {
        let mut command = machine.trestle([
            "runner",
            "start",
            "--url",
            &up.url,
            "--host",
            "--slots",
            "1",
            "--prestart",
            "1",
        ]);
        command.process_group(0);
        let running = Running::start(command);
        running.wait_for("connecting");
        running
    };
    let interrupt = |running: &Running| kill(Pid::from_raw(-running.pid()), Signal::SIGINT).unwrap();
    let working = grouped();
    let run = start(&up);
    let program = patient.until_started(1);
    interrupt(&working);
    working.wait_for("draining");
    assert!(!gone(program), "the run is no part of the terminal's process group");
    assert_eq!(patient.finish(&up, &run), 1);
    working.end().ok();

    fs::remove_file(&patient.flag).unwrap();
    fs::remove_file(&patient.trace).unwrap();
    fs::remove_file(&patient.done).unwrap();
    let working = grouped();
    let run = start(&up);
    let program = patient.until_started(1);
    interrupt(&working);
    working.wait_for("draining");
    interrupt(&working);
    working.end().with_code(130);
    assert!(gone(program));
    let _next = grouped();
    patient.until_started(2);
    assert_eq!(patient.finish(&up, &run), 2);
    up.stop().ok();
}

#[test]
fn the_exit_code_says_why_a_runner_ended() {
    let server = Machine::new();
    let up = server.up(&["--no-runner"]);
    let machine = Machine::new();
    let id = join(&up, &machine, "default");
    runner_start(&machine, &up.url, &["--idle", "1"]).with_code(4).says("idle");
    let working = work(&machine, &up.url, &[]);
    up.run(&["runner", "drain", &id]).ok();
    working.end().with_code(3).says("resume");
    assert!(up.run(&["runners"]).ok().out.contains("an administrator asked for it"));
    runner_start(&machine, &up.url, &[]).with_code(3);
    // Under the reference's name every drain is an orderly end.
    let link = machine.home.path().join("boardwalk-runner");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_trestle"), &link).unwrap();
    finish(&mut machine.program(&link, ["start", "--url", &up.url, "--host"])).ok();
    up.run(&["runner", "resume", &id]).ok();
    let working = work(&machine, &up.url, &[]);
    working.signal(Signal::SIGTERM);
    working.end().ok();
    up.run(&["runner", "drain", "01UNKNOWN"]).with_code(1).says("TR0004");
    up.stop().ok();
}

#[test]
fn a_removed_runner_joins_again_once_with_what_it_joined_with() {
    let server = Machine::new();
    let up = server.up(&["--no-runner"]);
    let machine = Machine::new();
    let only = || -> serde_json::Value {
        let listed = up.run(&["runners", "--json"]).ok().json();
        assert_eq!(listed["pools"].as_array().unwrap().len(), 1);
        let rows = listed["runners"].as_array().unwrap().clone();
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].clone()
    };
    // Joins by itself: no registration token.
    let joins = ["--token", &up.token, "--name", "box", "--labels", "gpu, eu"];
    let working = work(&machine, &up.url, &joins);
    let first = only();
    assert_eq!((&first["name"], &first["labels"]), (&"box".into(), &serde_json::json!(["eu", "gpu"])));
    working.signal(Signal::SIGTERM);
    working.end().ok();
    // A saved identity needs nobody's leave, and other flags do not change it.
    let working = work(&machine, &up.url, &["--token", &up.token, "--name", "other", "--labels", "none"]);
    assert_eq!(only()["id"], first["id"]);
    up.run(&["runner", "remove", first["id"].as_str().unwrap(), "--yes"]).ok();
    working.wait_for("joins its pool again");
    working.wait_for("connecting");
    let second = only();
    assert_ne!(second["id"], first["id"]);
    assert_eq!((&second["name"], &second["labels"]), (&first["name"], &first["labels"]));
    up.run(&["runner", "remove", second["id"].as_str().unwrap(), "--yes"]).ok();
    working.end().with_code(1).says("removed");
    assert!(up.run(&["runners"]).ok().says("no runners").out.is_empty());
    up.stop().ok();
}

/// A server behind a proxy that can spoil the network between it and its runners.
struct Spoiled {
    runtime: tokio::runtime::Runtime,
    proxy: FaultProxy,
    listen: String,
}

impl Spoiled {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // The proxy has to know the server's address before there is a server.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = runtime.block_on(FaultProxy::start(address)).unwrap();
        Self { runtime, proxy, listen: address.to_string() }
    }

    fn flags<'a>(&'a self, url: &'a str, lease: &'a str) -> [&'a str; 7] {
        ["--no-runner", "--lease", lease, "--listen", &self.listen, "--public-url", url]
    }

    /// Spoils the network for a time.
    fn spoil(&self, weather: Weather, length: Duration) {
        self.runtime.block_on(self.proxy.spoil(weather, length));
    }
}

#[test]
fn a_network_cut_for_two_thirds_of_a_lease_repeats_nothing() {
    let spoiled = Spoiled::new();
    let url = spoiled.proxy.url();
    let server = Machine::new();
    let up = server.up(&spoiled.flags(&url, "60"));
    let patient = Patient::deploy(&up);
    let machine = Machine::new();
    join_at(&up, &url, &machine, "default");
    let working = work(&machine, &url, &["--lease", "60"]);
    let run = start(&up);
    let program = patient.until_started(1);
    spoiled.spoil(Weather::Cut, Duration::from_secs(40));
    assert!(spoiled.proxy.traffic().resets > 0, "nobody noticed");
    assert!(!gone(program));
    assert_eq!(patient.finish(&up, &run), 1);
    working.signal(Signal::SIGTERM);
    working.end().ok();
    up.stop().ok();
}

#[test]
fn one_way_cuts_and_three_seconds_of_delay_repeat_nothing() {
    let spoiled = Spoiled::new();
    let url = spoiled.proxy.url();
    let server = Machine::new();
    let up = server.up(&spoiled.flags(&url, "60"));
    let patient = Patient::deploy(&up);
    let machine = Machine::new();
    join_at(&up, &url, &machine, "default");
    let working = work(&machine, &url, &["--lease", "60"]);
    let run = start(&up);
    patient.until_started(1);
    // Longer than the time between two beats, and between two renewals.
    spoiled.spoil(Weather::Deaf(Direction::ToServer), Duration::from_secs(12));
    let one_way = spoiled.proxy.traffic().dropped;
    assert!(one_way > 0, "nobody noticed");
    spoiled.spoil(Weather::Deaf(Direction::ToClient), Duration::from_secs(12));
    assert!(spoiled.proxy.traffic().dropped > one_way, "nobody noticed");
    spoiled.proxy.set_weather(Weather::Slow(Duration::from_secs(3)));
    assert_eq!(patient.finish(&up, &run), 1);
    working.signal(Signal::SIGTERM);
    working.end().ok();
    up.stop().ok();
}
