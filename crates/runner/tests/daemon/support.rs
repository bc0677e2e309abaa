//! A machine, its control plane, and scripts that stand in for run processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use trestle_runner::{
    Config, Ended, Enrolment, Handle, Identity, IdentityDirectory, Runner, RunnerError, Timing,
};
use trestle_sandbox::HostIsolation;
use trestle_testkit::clock::{until, within};
use trestle_testkit::control_plane::{FakeControlPlane, FakeRun, Options};

/// Longest that anything may take; a test that runs into it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Says that it has the run, as every run process does.
const BEGIN: &str = r#"#!/bin/sh
out='@OUT@'
echo $$ > "$out/started.$$"
IFS= read -r line <&3 || exit 0
printf '%s\n' "$line" > "$out/assigning.$$"
mv "$out/assigning.$$" "$out/assigned.$$"
printf '{"type":"accepted"}\n{"type":"started"}\n' >&3
"#;
const END: &str = r#"printf '{"type":"exited","outcome":{"kind":"completed"}}\n' >&3
"#;

/// Waits for a word from the test.
const WAIT: &str = "mkfifo \"$out/go.$$\"\nread -r go < \"$out/go.$$\"\n";

/// What a script does between its run's start and end.
#[derive(Clone, Copy)]
pub(crate) enum Script {
    /// Nothing.
    Ends,
    /// Waits until the test lets it go.
    Waits,
    /// Waits, and does not heed a request to end.
    Stubborn,
    /// Dies without a word about its run.
    Dies,
    /// These lines.
    Does(&'static str),
}

pub(crate) struct Machine {
    pub(crate) plane: FakeControlPlane,
    pub(crate) home: tempfile::TempDir,
    pub(crate) identities: IdentityDirectory,
    pub(crate) identity: Identity,
}

/// A runner at work.
pub(crate) struct Working {
    pub(crate) handle: Handle,
    online: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Result<Ended, RunnerError>>,
}

impl Machine {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(mut options: Options) -> Self {
        options.registration_tokens.push(("bwkreg_second".to_owned(), "default".to_owned()));
        let plane = FakeControlPlane::start(options).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("out")).unwrap();
        let identities = IdentityDirectory::new(home.path().join("identities"));
        let identity = register(&plane, "bwkreg_test", &identities).await;
        Self { plane, home, identities, identity }
    }

    /// Where scripts leave their traces.
    pub(crate) fn out(&self) -> PathBuf {
        self.home.path().join("out")
    }

    pub(crate) fn queue(&self, run_id: &str) {
        self.plane.queue(FakeRun::new(run_id, "program").unwrap());
    }

    /// A configuration in which nothing takes long.
    pub(crate) fn config(&self, script: Script) -> Config {
        let ms = Duration::from_millis;
        let out = self.out();
        let body = match script {
            Script::Ends => END.to_owned(),
            Script::Waits => format!("{WAIT}{END}"),
            Script::Stubborn => "trap '' TERM\ntouch \"$out/trapped.$$\"\ncat <&3 >/dev/null\n".to_owned(),
            Script::Dies => "exit 1\n".to_owned(),
            Script::Does(lines) => format!("{lines}\n{END}"),
        };
        let text = format!("{BEGIN}{body}").replace("@OUT@", out.to_str().unwrap());
        Config {
            url: self.plane.url(),
            work_dir: self.home.path().join("work"),
            slots: 1,
            prestart: 0,
            node: Some(executable(&out.join("node"), "#!/bin/sh\necho v24.0.0\n")),
            executable: executable(&out.join("run-process"), &text),
            forwarded_env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap())],
            timing: Timing {
                poll_deadline: Duration::from_secs(20),
                call_deadline: Duration::from_secs(20),
                retry_base: ms(4),
                retry_ceiling: ms(40),
                poll_gap_first: ms(1),
                poll_gap: ms(20),
                cancel_grace: ms(50),
                heartbeat: ms(20),
                deadline_check: ms(5),
                grace: ms(200),
                refill_after: ms(1),
                drain: LIMIT,
            },
            ..Config::default()
        }
    }

    pub(crate) async fn start(&self, config: Config) -> Working {
        self.start_as(config, &self.identity).await
    }

    pub(crate) async fn start_as(&self, config: Config, identity: &Identity) -> Working {
        let runner = Runner::start(config, identity, Arc::new(HostIsolation)).await.unwrap();
        let (handle, online) = (runner.handle(), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&online);
        let task = tokio::spawn(runner.run(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        Working { handle, online, task }
    }

    /// Lets one waiting script go.
    pub(crate) async fn let_go(&self) {
        let waiting = || self.traces("go.").into_iter().find(|file| is_there(number_of(file)));
        until(LIMIT, "a script that waits", || waiting().is_some()).await.unwrap();
        let fifo = waiting().unwrap();
        let written = tokio::task::spawn_blocking(move || {
            fs::write(&fifo, "go\n")?;
            fs::remove_file(fifo)
        });
        within(LIMIT, "a script that waits", written).await.unwrap().unwrap().unwrap();
    }

    /// What run processes were told, in no order.
    pub(crate) fn assignments(&self) -> Vec<Value> {
        self.traces("assigned.")
            .into_iter()
            .map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap())
            .collect()
    }

    /// Process numbers of the scripts that were started.
    pub(crate) fn processes(&self) -> Vec<i32> {
        self.traces("started.").iter().map(|file| number_of(file)).collect()
    }

    /// How many of them are there.
    pub(crate) fn alive(&self) -> usize {
        self.processes().iter().filter(|pid| is_there(**pid)).count()
    }

    pub(crate) fn traces(&self, prefix: &str) -> Vec<PathBuf> {
        fs::read_dir(self.out())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
            .collect()
    }

    pub(crate) async fn until_assigned(&self, count: usize) {
        until(LIMIT, "assigned runs", || self.assignments().len() >= count).await.unwrap();
    }

    pub(crate) async fn until_calls(&self, path: &str, count: usize) {
        let what = format!("{count} calls of {path}");
        self.plane.until(LIMIT, &what, |plane| plane.calls(path).len() >= count).await.unwrap();
    }

    pub(crate) fn polls(&self) -> usize {
        self.plane.calls(POLL).len()
    }

    /// Claims of assignments, answered or not.
    pub(crate) fn claims(&self) -> usize {
        self.plane.exchanges().iter().filter(|exchange| exchange.path.contains("/assignments/")).count()
    }

    /// Reasons of the releases.
    pub(crate) fn releases(&self) -> Vec<String> {
        let calls = self.plane.calls("/runner/v1/pool/release");
        calls.iter().map(|call| call.json()["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Everything below the work directory that belongs to a run.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let own = self.home.path().join("work").join(&self.identity.runner_id);
        ["slots", "leases"]
            .iter()
            .flat_map(|part| fs::read_dir(own.join(part)).into_iter().flatten())
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

fn number_of(trace: &Path) -> i32 {
    trace.extension().unwrap().to_str().unwrap().parse().unwrap()
}

fn is_there(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

pub(crate) const POLL: &str = "/runner/v1/pool/poll";
pub(crate) const BEAT: &str = "/runner/v1/pool/heartbeat";

impl Working {
    pub(crate) async fn end(self) -> Result<Ended, RunnerError> {
        within(LIMIT, "the end of the runner", self.task).await.unwrap().unwrap()
    }

    pub(crate) fn ended(&self) -> bool {
        self.task.is_finished()
    }

    /// How often it said that it is online.
    pub(crate) fn online(&self) -> usize {
        self.online.load(Ordering::SeqCst)
    }
}

pub(crate) async fn register(
    plane: &FakeControlPlane,
    token: &str,
    identities: &IdentityDirectory,
) -> Identity {
    let enrolment = Enrolment { name: Some("box".to_owned()), labels: vec!["gpu".to_owned()] };
    trestle_runner::register(&plane.url(), token, &enrolment, identities).await.unwrap().0
}

pub(crate) fn executable(path: &Path, text: &str) -> PathBuf {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}
