//! The wall clock of the server's machine, and that of a runner's, jump by five minutes, forth and back, while a program
//! runs: nobody loses a lease by it, and nothing is done twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::calls::Calls;
use support::{Machine, PATIENCE, Running};

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
        clock.jump_to(0);
        clock
    }

    fn jump_to(&self, seconds: i64) {
        let fresh = self.file.with_extension("fresh");
        std::fs::write(&fresh, format!("{seconds:+}\n")).unwrap();
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

/// Length of a lease, in seconds: what renewing it needs is a small part of that also on a busy machine.
const LEASE: u64 = 20;

struct Plane<'m> {
    machine: &'m Machine,
    running: Running,
    data: PathBuf,
    calls: Calls,
    admin: String,
}

impl<'m> Plane<'m> {
    fn start(machine: &'m Machine, clock: &WallClock, listen: &str) -> Self {
        let data = machine.home.path().join("data");
        let mut command = machine.trestle(["up", "--data", data.to_str().unwrap(), "--listen", listen]);
        command.args(["--no-runner", "--lease", &LEASE.to_string()]);
        clock.rule(&mut command);
        let running = Running::start(command);
        running.wait_for("admin token:");
        let file: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).unwrap()).unwrap();
        let admin = std::fs::read_to_string(data.join("admin-token")).unwrap().trim().to_owned();
        Self { machine, running, data, calls: Calls::new(file["url"].as_str().unwrap()), admin }
    }

    fn run(&self, args: &[&str]) -> support::Finished {
        let mut command = self.machine.trestle(args);
        support::finish(command.env("TRESTLE_DATA", &self.data))
    }

    async fn detail(&self, run: &str) -> Value {
        self.calls.get(&format!("/v1/runs/{run}"), &self.admin).await["run"].clone()
    }

    /// When the server last heard of its runner, by its own clock.
    async fn last_heard(&self) -> i64 {
        let list = self.calls.get("/v1/orgs/local/runners", &self.admin).await;
        list["runners"][0]["lastSeenAt"].as_i64().unwrap_or(0)
    }

    /// The events of a run from its `after` on, as they come.
    async fn stream(&self, run: &str, after: u64) -> reqwest::Response {
        let url = format!("{}/v1/runs/{run}/stream?since={after}", self.calls.url);
        self.calls.http.get(url).bearer_auth(&self.admin).send().await.unwrap()
    }

    /// How far the server's wall clock is from this one's, in seconds.
    async fn offset(&self) -> i64 {
        let answer = self.calls.http.get(format!("{}/healthz", self.calls.url)).send().await.unwrap();
        let date = answer.headers()["date"].to_str().unwrap().to_owned();
        let clock = date.split(' ').find(|word| word.contains(':')).unwrap();
        let seconds = clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().unwrap());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let day = 24 * 60 * 60;
        let difference = (seconds - i64::try_from(now).unwrap() % day).rem_euclid(day);
        if difference > day / 2 { difference - day } else { difference }
    }

    /// Waits until longer than a lease has gone by, in which the runner went on to be heard. The comments of an idle
    /// stream come every twelve seconds, by a clock that does not jump.
    async fn outlast_a_lease(&self, run: &str) {
        let heard = self.last_heard().await;
        let mut stream = self.stream(run, 9_000_000_000).await;
        let mut text = Vec::new();
        while text.windows(10).filter(|window| *window == b"keep-alive").count() < 2 {
            text.extend_from_slice(&stream.chunk().await.unwrap().expect("the stream goes on"));
        }
        assert!(self.last_heard().await > heard + 1_000);
    }
}

#[test]
fn b17_84_wall_clocks_that_jump_by_five_minutes_cost_nobody_a_lease() {
    let machine = Machine::new();
    let (servers, runners) = (WallClock::new(&machine, "servers"), WallClock::new(&machine, "runners"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let plane = Plane::start(&machine, &servers, "127.0.0.1:0");
    let address = plane.calls.url.strip_prefix("http://").unwrap().to_owned();
    let go = machine.home.path().join("go");
    let source = format!(
        "import fs from 'node:fs';
         export default async () => {{
           console.log('started');
           while (!fs.existsSync({go:?})) await new Promise((done) => setTimeout(done, 100));
           return 'ended';
         }};\n"
    );
    let directory = machine.workflow("waits", &source);
    plane.run(&["deploy", directory.to_str().unwrap()]).ok();
    let registration = plane.run(&["runner", "token"]).ok().out.trim().to_owned();
    let runner_command = |action: &str| {
        let mut command = machine.trestle(["runner", action, "--url", &plane.calls.url, "--identity-dir"]);
        command.arg(machine.home.path().join("identity"));
        command
    };
    support::finish(runner_command("register").args(["--token", &registration, "--name", "box"])).ok();
    let mut start = runner_command("start");
    start.args(["--host", "--prestart", "0"]);
    runners.rule(&mut start);
    let runner = Running::start(start);
    let run = plane.run(&["run", "waits", "--no-wait"]).ok().out.trim().to_owned();
    let before = runtime.block_on(async {
        let mut started = plane.stream(&run, 0).await;
        let mut text = String::new();
        while !text.contains("\"text\":\"started") {
            text.push_str(std::str::from_utf8(&started.chunk().await.unwrap().unwrap()).unwrap());
        }
        assert!(plane.offset().await.abs() < 60);
        for (server, runner) in [(300, -300), (-300, 300)] {
            servers.jump_to(server);
            runners.jump_to(runner);
            // The clock does lie. (The date that an answer tells is kept for a second, and until it is older than the
            // clock, so it shows jumps ahead only, and not at once.)
            let told = async { while server > 0 && (plane.offset().await - server).abs() > 60 {} };
            tokio::time::timeout(PATIENCE, told).await.expect("the server's clock does not jump");
            plane.outlast_a_lease(&run).await;
            let detail = plane.detail(&run).await;
            assert_eq!((&detail["status"], &detail["attempt"]), (&"running".into(), &1.into()), "{detail}");
        }
        plane.last_heard().await
    });
    // A server that starts with its clock set back goes on where its store's time was.
    plane.running.signal(nix::sys::signal::Signal::SIGINT);
    plane.running.end().ok();
    let plane = Plane::start(&machine, &servers, &address);
    std::fs::write(&go, "").unwrap();
    runtime.block_on(async {
        let mut stream = plane.stream(&run, 0).await;
        // It ends with the run.
        while stream.chunk().await.unwrap().is_some() {}
        let detail = plane.detail(&run).await;
        assert_eq!((&detail["output"], &detail["attempt"]), (&"ended".into(), &1.into()), "{detail}");
        assert!(detail["completedAt"].as_i64() >= Some(before), "{before} {detail}");
    });
    let log = plane.run(&["runs", &run, "--logs", "--verbose"]).ok().out;
    assert_eq!(log.matches("started").count(), 1, "{log}");
    runner.signal(nix::sys::signal::Signal::SIGTERM);
    runner.end();
}
