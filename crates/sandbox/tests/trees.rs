//! Real processes: what is started is ended, whatever it does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use trestle_sandbox::{
    Exit, HostIsolation, Isolation, Process, ProcessIdentity, ProcessSpec, SandboxError, Stdio,
    become_subreaper, end_adopted, end_all_descendants, end_tree, unix_pair,
};

fn shell(script: &str) -> ProcessSpec {
    ProcessSpec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        stdin: Stdio::Null,
        stdout: Stdio::Pipe,
        stderr: Stdio::Inherit,
        extra_fds: vec![],
    }
}

/// Starts a script and waits for as many printed process numbers as asked for.
async fn started(script: &str, numbers: usize) -> (Process, Vec<ProcessIdentity>) {
    let process = HostIsolation.spawn(shell(script)).await.unwrap();
    let mut lines = BufReader::new(process.take_pipes().stdout.unwrap()).lines();
    let mut found = Vec::new();
    for _ in 0..numbers {
        let line = lines.next_line().await.unwrap().expect("the script printed too few numbers");
        found.push(ProcessIdentity::of(line.trim().parse().unwrap()).unwrap());
    }
    (process, found)
}

async fn text_of(spec: ProcessSpec) -> (String, Exit) {
    let process = HostIsolation.spawn(spec).await.unwrap();
    let mut text = String::new();
    process.take_pipes().stdout.unwrap().read_to_string(&mut text).await.unwrap();
    (text, process.wait().await.unwrap())
}

#[tokio::test]
async fn a_grandchild_in_its_own_session_that_ignores_term_is_gone_after_terminate() {
    become_subreaper().unwrap();
    let stubborn = r#"
        trap '' TERM
        setsid sh -c 'trap "" TERM HUP; echo $$; setsid sh -c "trap \"\" TERM; echo \$\$; while :; do sleep 1; done" & while :; do sleep 1; done' &
        while :; do sleep 1; done
    "#;
    let (process, grandchildren) = started(stubborn, 2).await;
    assert!(grandchildren.iter().all(|process| process.is_alive()));
    let ended = process.terminate(Duration::from_millis(50)).await.unwrap();
    assert_eq!(ended.exit, Some(Exit::Signal(9)));
    assert!(ended.clean);
    assert!(grandchildren.iter().all(|process| !process.is_alive()));
    assert!(!process.identity().is_alive());
}

#[tokio::test]
async fn an_orphan_that_left_its_tree_is_found_as_adopted() {
    become_subreaper().unwrap();
    // The middle process is gone before anybody looks, so only adoption tells of the orphan.
    let (process, orphans) =
        started("(setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' &) ; exit 7", 1).await;
    assert_eq!(process.wait().await.unwrap(), Exit::Code(7));
    assert!(orphans[0].is_alive());
    assert!(end_adopted().await);
    assert!(!orphans[0].is_alive());
    assert!(!Path::new(&format!("/proc/{}", orphans[0].pid)).exists(), "the orphan was not reaped");
}

#[tokio::test]
async fn sweeping_orphans_spares_what_was_started_here() {
    become_subreaper().unwrap();
    let (kept, _) = started("echo $$; exec sleep 1000", 1).await;
    assert!(end_adopted().await);
    assert!(kept.identity().is_alive());
    assert!(end_all_descendants(Duration::from_secs(5)).await);
    assert_eq!(kept.wait().await.unwrap(), Exit::Signal(9));
}

#[tokio::test]
async fn a_polite_process_ends_by_term_within_its_grace() {
    let (process, _) = started("trap 'exit 3' TERM; echo $$; while :; do sleep 0.01; done", 1).await;
    let ended = process.terminate(Duration::from_secs(30)).await.unwrap();
    assert_eq!(ended.exit, Some(Exit::Code(3)));
    assert!(ended.clean);
}

#[tokio::test]
async fn a_tree_that_keeps_starting_processes_is_ended() {
    become_subreaper().unwrap();
    let (process, _) = started("echo $$; while :; do (setsid sleep 1000 &) ; done", 1).await;
    let ended = process.terminate(Duration::ZERO).await.unwrap();
    assert!(ended.exit.is_some());
    assert!(end_adopted().await);
    assert!(end_all_descendants(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_process_that_lives_on_is_ended_by_its_recorded_identity() {
    become_subreaper().unwrap();
    let (process, members) = started("setsid sleep 1000 & echo $!; echo $$; wait", 2).await;
    let recorded: ProcessIdentity =
        serde_json::from_str(&serde_json::to_string(&process.identity()).unwrap()).unwrap();
    assert!(end_tree(recorded).await);
    assert!(members.iter().all(|process| !process.is_alive()));
    assert!(end_tree(recorded).await, "a second time is no error");
}

#[tokio::test]
async fn dropping_the_last_handle_kills_the_process() {
    let (process, members) = started("echo $$; exec sleep 1000", 1).await;
    drop(process);
    while members[0].is_alive() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_inherited_beyond_the_specification() {
    let (kept, _other) = unix_pair().unwrap();
    let leak: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let mut spec = shell(
        "env | grep -v '^PWD=\\|^_=\\|^SHLVL=\\|^OLDPWD='; for d in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do [ -e /proc/$$/fd/$d ] && echo $d; done; ps -o pid=,sid=,pgid= -p $$ 2>/dev/null | tr -s ' '; true",
    );
    spec.extra_fds = vec![(kept, 3)];
    spec.env.push(("EMPTY".into(), "".into()));
    let (text, exit) = text_of(spec).await;
    assert_eq!(exit, Exit::Code(0));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(&lines[..6], ["PATH=/usr/bin:/bin", "EMPTY=", "0", "1", "2", "3"], "{text}");
    if let Some(ids) = lines.get(6) {
        let ids: Vec<&str> = ids.split_whitespace().collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "not the leader of its own session: {text}");
    }
    drop(leak);
}

#[tokio::test]
async fn passed_descriptors_arrive_at_their_numbers_in_any_order() {
    let (left, left_end) = unix_pair().unwrap();
    let (right, right_end) = unix_pair().unwrap();
    // Numbers that swap the positions of the sources would overwrite one of them when done naively.
    let mut spec = shell("read a <&4; read b <&3; echo \"$a-$b\"");
    spec.extra_fds = vec![(right, 3), (left, 4)];
    let process = HostIsolation.spawn(spec).await.unwrap();
    for (end, text) in [(left_end, "left\n"), (right_end, "right\n")] {
        let socket = std::os::unix::net::UnixStream::from(end);
        socket.set_nonblocking(true).unwrap();
        tokio::net::UnixStream::from_std(socket).unwrap().write_all(text.as_bytes()).await.unwrap();
    }
    let mut text = String::new();
    process.take_pipes().stdout.unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "left-right\n");
}

#[tokio::test]
async fn a_missing_directory_and_a_missing_program_are_told_apart() {
    let mut spec = shell("true");
    spec.cwd = "/no/such/directory".into();
    assert!(matches!(HostIsolation.spawn(spec).await, Err(SandboxError::WorkingDirectory { .. })));
    let mut spec = shell("true");
    spec.program = "/no/such/program".into();
    let error = HostIsolation.spawn(spec).await.unwrap_err();
    assert!(matches!(error, SandboxError::Spawn { .. }));
    assert_eq!(error.os_code().as_deref(), Some("ENOENT"));
}

#[tokio::test]
async fn a_nul_byte_is_refused_and_starts_nothing() {
    let mut spec = shell("true");
    spec.env.push(("NAME".into(), "a\0b".into()));
    assert!(matches!(HostIsolation.spawn(spec).await, Err(SandboxError::Unpassable { .. })));
    let mut spec = shell("true");
    spec.env.push(("A=B".into(), "c".into()));
    assert!(matches!(HostIsolation.spawn(spec).await, Err(SandboxError::Unpassable { .. })));
}

#[tokio::test]
async fn several_waiters_see_the_same_exit() {
    let process = HostIsolation.spawn(shell("exit 42")).await.unwrap();
    let other = process.clone();
    let (first, second) = tokio::join!(process.wait(), other.wait());
    assert_eq!(first.unwrap(), Exit::Code(42));
    assert_eq!(second.unwrap(), Exit::Code(42));
    assert_eq!(process.wait().await.unwrap(), Exit::Code(42));
}
