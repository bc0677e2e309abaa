use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use trestle_sandbox::slot::{
    self, Assignment, LeaseTerms, NodeRuntime, SlotCommand, SlotOutcome, SlotReader, SlotReport, SlotWriter,
};
use trestle_sandbox::{HostIsolation, Isolation, Process, ProcessSpec, Stdio, unix_pair};

use super::plane::{API_TOKEN, Plane, RUN_TOKEN};

/// How a run process is started and what it is assigned.
pub(crate) struct Options {
    pub(crate) node: NodeRuntime,
    pub(crate) prestart: bool,
    pub(crate) time_scale: u32,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) lease: LeaseTerms,
    /// Shows the run in this file.
    pub(crate) run_log: Option<PathBuf>,
    /// Puts this process's own directory on a file system of so many MiB.
    pub(crate) small_disk: Option<u32>,
    /// Set before the process starts, as `faketime` needs it.
    pub(crate) process_env: Vec<(String, String)>,
    /// Start under `setpriv` as a user that owns nothing but its directory.
    pub(crate) as_nobody: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: super::node(24),
            prestart: false,
            time_scale: super::time_scale(),
            env: BTreeMap::new(),
            lease: LeaseTerms { seconds: 60, renew_every_ms: 20_000 },
            run_log: None,
            small_disk: None,
            process_env: Vec::new(),
            as_nobody: false,
        }
    }
}

/// A real run process with this test as its runner.
pub(crate) struct RunProcess {
    pub(crate) process: Process,
    pub(crate) directory: TempDir,
    reader: SlotReader,
    writer: Option<SlotWriter>,
    options: Options,
    pub(crate) reports: Vec<SlotReport>,
}

impl RunProcess {
    pub(crate) async fn start(options: Options) -> Self {
        trestle_sandbox::become_subreaper().unwrap();
        let directory = tempfile::tempdir().unwrap();
        for name in ["workspace", "tmp", "program", "slot"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let (own, theirs) = unix_pair().unwrap();
        let mut args = vec![
            "--slot-fd".into(),
            "3".into(),
            "--slot-dir".into(),
            directory.path().join("slot").into_os_string(),
            "--time-scale".into(),
            options.time_scale.to_string().into(),
        ];
        if options.prestart {
            args.extend([
                "--prestart".into(),
                options.node.path.clone().into(),
                options.node.version.clone().into(),
            ]);
        }
        if let Some(log) = &options.run_log {
            args.extend(["--run-log".into(), log.clone().into_os_string()]);
        }
        let mut program = PathBuf::from(env!("CARGO_BIN_EXE_trestle-run-process"));
        if let Some(size) = options.small_disk {
            let mount = format!("mount -t tmpfs -o size={size}m tmpfs \"$1\" && shift && exec \"$@\"");
            let slot = directory.path().join("slot").into_os_string();
            let words = ["-Urm", "--", "sh", "-c", &mount, "sh"].map(std::ffi::OsString::from);
            args.splice(0..0, words.into_iter().chain([slot, program.into_os_string()]));
            program = "/usr/bin/unshare".into();
        }
        let mut options = options;
        if options.as_nobody && nix::unistd::getuid().is_root() {
            // The user cannot enter the directories that the tests were built in.
            let (copy, node) = (directory.path().join("trestle-run-process"), directory.path().join("node"));
            std::fs::copy(&program, &copy).unwrap();
            std::fs::copy(&options.node.path, &node).unwrap();
            options.node.path = node;
            for place in ["", "workspace", "tmp", "program", "slot", "trestle-run-process", "node"] {
                std::os::unix::fs::chown(directory.path().join(place), Some(65_534), Some(65_534)).unwrap();
            }
            let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
            args.splice(0..0, words.map(Into::into).into_iter().chain([copy.into_os_string()]));
            program = "/usr/bin/setpriv".into();
        }
        let process = HostIsolation
            .spawn(ProcessSpec {
                program,
                args,
                env: [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into_iter()
                    .chain(options.process_env.clone())
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
                cwd: directory.path().to_owned(),
                stdin: Stdio::Null,
                stdout: Stdio::Inherit,
                stderr: Stdio::Inherit,
                extra_fds: vec![(theirs, 3)],
            })
            .await
            .unwrap();
        let (reader, writer) = slot::open(own).unwrap();
        Self { process, directory, reader, writer: Some(writer), options, reports: Vec::new() }
    }

    pub(crate) fn slot(&self) -> PathBuf {
        self.directory.path().join("slot")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(crate) fn assignment(&self, target: &Target) -> Assignment {
        let directory = self.directory.path();
        Assignment {
            run_id: target.run_id.clone(),
            control_plane_url: format!("{}/", target.url),
            run_token: target.run_token.clone(),
            api_token: Some(API_TOKEN.into()),
            worker_id: "worker".into(),
            env: self.options.env.clone(),
            byo_providers: target.byo_providers.clone(),
            workspace_dir: directory.join("workspace"),
            tmp_dir: directory.join("tmp"),
            program_root: directory.join("program"),
            node: self.options.node.clone(),
            lease: self.options.lease,
        }
    }

    pub(crate) async fn assign(&mut self, target: impl Into<Target>) {
        let command = SlotCommand::Assign(Box::new(self.assignment(&target.into())));
        self.writer.as_mut().unwrap().send(&command).await.unwrap();
    }

    /// The next report, in time.
    pub(crate) async fn report(&mut self) -> Option<SlotReport> {
        let report = tokio::time::timeout(super::fake::long(), self.reader.next()).await;
        let report = report.expect("the run process said nothing").unwrap();
        self.reports.extend(report.clone());
        report
    }

    /// Waits for this report.
    pub(crate) async fn until(&mut self, wanted: &SlotReport) {
        while let Some(report) = self.report().await {
            if report == *wanted {
                return;
            }
        }
        panic!("{wanted:?} was not reported: {:?}", self.reports);
    }

    /// Waits for the end of the process, and for what it said last.
    pub(crate) async fn outcome(&mut self) -> SlotOutcome {
        let outcome = loop {
            match self.report().await {
                Some(SlotReport::Exited { outcome }) => break outcome,
                Some(_) => {}
                None => panic!("the run process ended without a word: {:?}", self.reports),
            }
        };
        self.ended().await;
        outcome
    }

    /// Waits until the process itself is gone.
    pub(crate) async fn ended(&mut self) -> trestle_sandbox::Exit {
        tokio::time::timeout(Duration::from_secs(20), self.process.wait())
            .await
            .expect("it does not end")
            .unwrap()
    }

    /// As when the runner is gone.
    pub(crate) fn hang_up(&mut self) {
        self.writer = None;
        // Both halves hold the socket open.
        let (own, _theirs) = unix_pair().unwrap();
        self.reader = slot::open(own).unwrap().0;
    }

    /// Nothing of the run is left on disk but the author's own files.
    pub(crate) fn assert_tidy(&self) {
        for name in ["program", "tmp"] {
            let left: Vec<_> = std::fs::read_dir(self.directory.path().join(name)).unwrap().collect();
            assert!(left.is_empty(), "{name}: {left:?}");
        }
        assert!(!self.slot().join("result.json").exists());
    }
}

/// Which run is assigned, and who knows about it.
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) run_id: String,
    pub(crate) run_token: String,
    pub(crate) byo_providers: Vec<serde_json::Value>,
}

impl From<&Plane> for Target {
    fn from(plane: &Plane) -> Self {
        Self {
            url: plane.url.clone(),
            run_id: "01RUN".into(),
            run_token: RUN_TOKEN.into(),
            byo_providers: Vec::new(),
        }
    }
}

/// Runs the plane's program to its end.
pub(crate) async fn run(plane: &Plane) -> SlotOutcome {
    run_with(plane, Options::default()).await
}

pub(crate) async fn run_with(plane: &Plane, options: Options) -> SlotOutcome {
    let mut process = RunProcess::start(options).await;
    process.assign(plane).await;
    let outcome = process.outcome().await;
    process.assert_tidy();
    outcome
}

/// Runs the plane's program with everything as a user without privileges.
pub(crate) async fn run_as_nobody(plane: &Plane) -> SlotOutcome {
    let mut process = RunProcess::start(Options { as_nobody: true, ..Options::default() }).await;
    process.assign(plane).await;
    process.outcome().await
}
