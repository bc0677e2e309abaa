//! The wall clock of the server's machine, and that of a runner's, jump by five minutes, forth and back, while a program
//! runs: nobody loses a lease by it, and nothing is done twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::{Machine, Running, eventually};

/// The library that lies about the wall clock (Debian's `faketime`).
fn liar() -> PathBuf {
    std::fs::read_dir("/usr/lib")
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists())
        .expect("the package faketime is installed")
}

/// What a process believes about the time; the file can be changed while it runs.
struct WallClock {
    file: PathBuf,
}

impl WallClock {
    fn new(machine: &Machine, name: &str) -> Self {
        let clock = Self { file: machine.home.path().join(name) };
        clock.jump_to("+0");
        clock
    }

    fn jump_to(&self, offset: &str) {
        let fresh = self.file.with_extension("fresh");
        std::fs::write(&fresh, format!("{offset}\n")).unwrap();
        std::fs::rename(&fresh, &self.file).unwrap();
    }

    /// Makes a process live by it. Clocks that count from the start of the machine stay true, as they do when somebody
    /// sets the date.
    fn rule(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", liar())
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
    }
}

struct Plane<'m> {
    machine: &'m Machine,
    running: Running,
    data: PathBuf,
    url: String,
}

impl<'m> Plane<'m> {
    fn start(machine: &'m Machine, clock: &WallClock, listen: &str) -> Self {
        let data = machine.home.path().join("data");
        let mut command = machine.trestle([
            "up",
            "--data",
            data.to_str().unwrap(),
            "--listen",
            listen,
            "--no-runner",
            "--lease",
            "5",
        ]);
        clock.rule(&mut command);
        let running = Running::start(command);
        running.wait_for("admin token:");
        let file: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).unwrap()).unwrap();
        Self { machine, running, data, url: file["url"].as_str().unwrap().to_owned() }
    }

    fn run(&self, args: &[&str]) -> support::Finished {
        let mut command = self.machine.trestle(args);
        support::finish(command.env("TRESTLE_DATA", &self.data))
    }

    fn detail(&self, run: &str) -> Value {
        self.run(&["runs", run, "--json"]).ok().json()
    }

    /// When the server last heard of its runner, by its own clock.
    fn last_heard(&self) -> i64 {
        let list = self.run(&["runners", "--json"]).ok().json();
        list["runners"][0]["lastSeenAt"].as_i64().unwrap_or(0)
    }

    /// Waits until longer than a lease has gone by since now, in which the runner went on to be heard.
    fn outlast_a_lease(&self) {
        let now = self.last_heard();
        eventually("the lease was kept for longer than it lasts", || self.last_heard() > now + 7_000);
    }
}

#[test]
fn b17_84_wall_clocks_that_jump_by_five_minutes_cost_nobody_a_lease() {
    let machine = Machine::new();
    let (servers, runners) = (WallClock::new(&machine, "servers"), WallClock::new(&machine, "runners"));
    let plane = Plane::start(&machine, &servers, "127.0.0.1:0");
    let address = plane.url.strip_prefix("http://").unwrap().to_owned();
    let go = machine.home.path().join("go");
    let source = format!(
        "import fs from 'node:fs';
         export default async () => {{
           console.log('started');
           while (!fs.existsSync({go:?})) await new Promise((done) => setTimeout(done, 20));
           return 'ended';
         }};\n"
    );
    let directory = machine.workflow("waits", &source);
    plane.run(&["deploy", directory.to_str().unwrap()]).ok();
    let registration = plane.run(&["runner", "token"]).ok().out.trim().to_owned();
    let runner_command = |action: &str| {
        let mut command = machine.trestle(["runner", action, "--url", &plane.url, "--identity-dir"]);
        command.arg(machine.home.path().join("identity"));
        command
    };
    support::finish(runner_command("register").args(["--token", &registration, "--name", "box"])).ok();
    let mut start = runner_command("start");
    start.args(["--host", "--prestart", "0"]);
    runners.rule(&mut start);
    let runner = Running::start(start);
    let run = plane.run(&["run", "waits", "--no-wait"]).ok().out.trim().to_owned();
    eventually("the program runs", || plane.detail(&run)["run"]["status"] == "running");

    for (server, runner) in [("+300", "+0"), ("-300", "+0"), ("+0", "+300"), ("+0", "-300"), ("-300", "+300")]
    {
        servers.jump_to(server);
        runners.jump_to(runner);
        plane.outlast_a_lease();
        let detail = plane.detail(&run);
        assert_eq!(
            (&detail["run"]["status"], &detail["run"]["attempt"]),
            (&"running".into(), &1.into()),
            "{detail}"
        );
    }
    // A server that starts with its clock set back goes on where its store's time was.
    let before = plane.last_heard();
    plane.running.signal(nix::sys::signal::Signal::SIGINT);
    plane.running.end().ok();
    let plane = Plane::start(&machine, &servers, &address);
    eventually("the runner came back", || plane.last_heard() > before);
    std::fs::write(&go, "").unwrap();
    eventually("the run has ended", || plane.detail(&run)["run"]["status"] == "completed");
    let detail = plane.detail(&run);
    assert_eq!(
        (&detail["run"]["output"], &detail["run"]["attempt"]),
        (&"ended".into(), &1.into()),
        "{detail}"
    );
    assert!(detail["run"]["completedAt"].as_i64() >= detail["run"]["startedAt"].as_i64());
    let log = plane.run(&["runs", &run, "--logs", "--verbose"]).ok().out;
    assert_eq!(log.matches("started").count(), 1, "{log}");
    runner.signal(nix::sys::signal::Signal::SIGTERM);
    runner.end();
}
