//! The real binary, started as a person starts it, with everything it touches below one temporary directory.
#![allow(dead_code, unreachable_pub, clippy::disallowed_methods)]

pub mod calls;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest that any condition of a test may take. A test that runs into it has failed, not slowed down.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A machine of its own: home, temporary files, working directory.
pub struct Machine {
    pub home: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for name in ["home", "tmp", "cwd"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        Self { home }
    }

    pub fn cwd(&self) -> PathBuf {
        self.home.path().join("cwd")
    }

    /// A command of the binary, with a clean environment.
    pub fn trestle(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        self.program(Path::new(env!("CARGO_BIN_EXE_trestle")), args)
    }

    pub fn program(&self, program: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home.path().join("home"))
            .env("TMPDIR", self.home.path().join("tmp"))
            .current_dir(self.cwd())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Finished {
        finish(&mut self.trestle(args))
    }

    /// Writes a workflow of one plain module below the working directory.
    pub fn workflow(&self, name: &str, source: &str) -> PathBuf {
        self.workflow_with(name, &format!(r#"{{"slug":"{name}","triggers":[{{"kind":"manual"}}]}}"#), source)
    }

    pub fn workflow_with(&self, name: &str, descriptor: &str, source: &str) -> PathBuf {
        let directory = self.cwd().join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("workflow.jsonc"), descriptor).unwrap();
        fs::write(directory.join("index.mjs"), source).unwrap();
        directory
    }

    /// Starts `trestle up` and waits until it listens.
    pub fn up(&self, flags: &[&str]) -> Up<'_> {
        self.up_with(flags, &[])
    }

    pub fn up_with(&self, flags: &[&str], environment: &[(&str, &str)]) -> Up<'_> {
        let data = self.home.path().join("data");
        let mut command = self.trestle(["up", "--data", data.to_str().unwrap()]);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(flags).envs(environment.iter().copied());
        let running = Running::start(command);
        running.wait_for("admin token:");
        let server: serde_json::Value =
            serde_json::from_slice(&fs::read(data.join("server.json")).unwrap()).unwrap();
        let url = server["url"].as_str().unwrap().to_owned();
        let token = fs::read_to_string(data.join("admin-token")).unwrap().trim().to_owned();
        Up { machine: self, running, data, url, token }
    }
}

/// What a command left when it ended.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn finish(command: &mut Command) -> Finished {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Finished {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

impl Finished {
    #[track_caller]
    pub fn ok(self) -> Self {
        self.with_code(0)
    }

    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn says(self, what: &str) -> Self {
        assert!(self.err.contains(what), "no {what:?} in stderr:\n{}\nstdout:\n{}", self.err, self.out);
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error} in {:?}\nstderr:\n{}", self.out, self.err))
    }
}

/// A process that runs beside the test; killed with the test.
pub struct Running {
    pub child: Child,
    lines: mpsc::Receiver<String>,
    seen: std::cell::RefCell<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if sender.send(String::from_utf8(std::mem::take(&mut line)).unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, seen: Default::default() }
    }

    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Reads its messages until one holds `what`.
    #[track_caller]
    pub fn wait_for(&self, what: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.borrow_mut().push_str(&line);
                    if line.contains(what) {
                        return line;
                    }
                }
                Err(_) => panic!("no {what:?} in:\n{}", self.seen.borrow()),
            }
        }
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Finished {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let status = self.child.wait().unwrap();
        let mut err = self.seen.take();
        err.extend(self.lines.iter());
        Finished { code: status.code().unwrap_or(-1), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `trestle up`.
pub struct Up<'a> {
    pub machine: &'a Machine,
    pub running: Running,
    pub data: PathBuf,
    pub url: String,
    pub token: String,
}

impl Up<'_> {
    /// A client command against this server.
    pub fn run(&self, args: &[&str]) -> Finished {
        finish(self.client(args))
    }

    pub fn run_with_input(&self, args: &[&str], input: &str) -> Finished {
        let file = self.machine.home.path().join("stdin");
        fs::write(&file, input).unwrap();
        finish(self.client(args).stdin(fs::File::open(file).unwrap()))
    }

    fn client(&self, args: &[&str]) -> &'static mut Command {
        let mut command = self.machine.trestle(args);
        command.env("TRESTLE_DATA", &self.data);
        Box::leak(Box::new(command))
    }

    /// Deploys a workflow of one module and returns its id.
    pub fn deploy(&self, name: &str, source: &str) -> String {
        let directory = self.machine.workflow(name, source);
        self.run(&["deploy", directory.to_str().unwrap(), "--json"]).ok().json()["workflowId"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Stops it as Ctrl-C does.
    pub fn stop(self) -> Finished {
        self.running.signal(nix::sys::signal::Signal::SIGINT);
        self.running.end()
    }
}

/// Waits until `condition` holds, which nothing announces. It looks now and then: a core that spins here is
/// missing where the condition comes about.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
}

/// All processes whose command line or environment mentions `needle`.
pub fn processes_with(needle: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid == i32::try_from(std::process::id()).unwrap() {
            continue;
        }
        let mentions = ["cmdline", "environ"].iter().any(|file| {
            fs::read(entry.path().join(file))
                .is_ok_and(|bytes| bytes.windows(needle.len()).any(|window| window == needle.as_bytes()))
        });
        // A process that has ended and was not waited for is not running.
        let alive = fs::read_to_string(entry.path().join("stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"));
        if mentions && alive {
            found.push(pid);
        }
    }
    found
}
