//! A bad day: death without warning, no room, no permission, damaged files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "of the suite only its tools are used here")]
mod suite;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sqlx::{ConnectOptions as _, Row as _};
use suite::{completed, frame, new_run, new_runner, run_claim, version};
use trestle_contract::ids::RunId;
use trestle_store::{
    AssignmentClaim, DataDir, Fence, RunFilter, SqliteStore, Store, StoreError, StoreOptions, TelemetryBatch,
};

const CHILD: &str = "TRESTLE_STORE_CHILD";

async fn open(path: &Path) -> (SqliteStore, DataDir) {
    let data = DataDir::open(path).unwrap();
    (SqliteStore::open(&data, StoreOptions::default()).await.unwrap(), data)
}

/// This test again, in a process of its own, as `mode` says.
fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, directory).stdout(Stdio::piped());
    command
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ACK {line}").unwrap();
    out.flush().unwrap();
}

/// Writes for ever and tells each write only after its answer.
async fn write_for_ever(directory: &Path) {
    let (store, _data) = open(directory).await;
    let store: Arc<dyn Store> = Arc::new(store);
    let workflow = store.deploy(version("flow", "content")).await.unwrap().workflow;
    let runner =
        store.create_runner("default", new_runner(&format!("{}", std::process::id()), &[])).await.unwrap();
    let creator = {
        let (store, workflow) = (store.clone(), workflow.clone());
        tokio::spawn(async move {
            loop {
                let run = store.create_run(new_run(&workflow, &["nobody"])).await.unwrap().run;
                tell(&format!("created {}", run.id));
            }
        })
    };
    loop {
        let run = store.create_run(new_run(&workflow, &[])).await.unwrap().run;
        tell(&format!("created {}", run.id));
        let Some(offer) = store.make_offers(std::slice::from_ref(&runner.id)).await.unwrap().pop() else {
            break;
        };
        let claim = AssignmentClaim { runner: offer.runner, assignment: offer.assignment, lease_ms: 90_000 };
        let claimed = store.claim_assignment(claim).await.unwrap();
        let fence = Fence { run: claimed.run.id, epoch: claimed.run.epoch };
        let base = store.claim_run(run_claim(&fence, Some("p"), true)).await.unwrap().last_event_cursor;
        tell(&format!("claimed {} {}", fence.run, fence.epoch));
        let first = (base / 1_000_000 + 1) * 1_000_000 + 1;
        let frames = vec![frame(first, "a"), frame(first + 1, "b")];
        store.append_telemetry(TelemetryBatch { fence: fence.clone(), frames }).await.unwrap();
        tell(&format!("sent {} {}", fence.run, first + 1));
        store.finalize(completed(&fence, "42")).await.unwrap();
        tell(&format!("ended {}", fence.run));
    }
    creator.await.unwrap();
}

async fn verify(store: &SqliteStore, acknowledged: &str) {
    let words: Vec<&str> = acknowledged.split(' ').collect();
    let id = RunId::new(words[1]).unwrap();
    let run = store.run(&id).await.unwrap_or_else(|error| panic!("{acknowledged}: {error}"));
    match words[0] {
        "created" => {}
        "claimed" => assert!(run.epoch >= words[2].parse().unwrap(), "{acknowledged}"),
        "sent" => {
            let cursor: u64 = words[2].parse().unwrap();
            let page = store.read_events(&id, cursor - 1, 1).await.unwrap();
            assert_eq!(page.frames[0].cursor.get(), cursor, "{acknowledged}");
        }
        "ended" => assert_eq!(run.output.unwrap().get(), "42", "{acknowledged}"),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the process under test is this test itself")]
async fn a_killed_process_loses_no_acknowledged_write() {
    const NAME: &str = "a_killed_process_loses_no_acknowledged_write";
    if let Some(directory) = std::env::var_os(CHILD) {
        write_for_ever(Path::new(&directory)).await;
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut kinds = BTreeSet::new();
    for round in 0..200 {
        let mut process = child(NAME, directory.path()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut acknowledged = Vec::new();
        let enough = 1 + round % 11;
        for line in lines.by_ref() {
            if let Some((_, line)) = line.split_once("ACK ") {
                acknowledged.push(line.to_owned());
            }
            if acknowledged.len() >= enough {
                break;
            }
        }
        process.kill().unwrap();
        process.wait().unwrap();
        // What it had told before it died.
        acknowledged.extend(lines.filter_map(|line| Some(line.split_once("ACK ")?.1.to_owned())));
        assert!(acknowledged.len() >= enough, "it died by itself in round {round}");
        let (store, _data) = open(directory.path()).await;
        for line in &acknowledged {
            verify(&store, line).await;
            kinds.insert(line.split(' ').next().unwrap().to_owned());
        }
        store.close().await;
    }
    assert_eq!(kinds.len(), 4, "every kind of write was acknowledged: {kinds:?}");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_keeps_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let small = StoreOptions { max_pages: Some(400), ..StoreOptions::default() };
    let store = Arc::new(SqliteStore::open(&data, small).await.unwrap());
    let workflow = store.deploy(version("flow", "content")).await.unwrap().workflow;
    let large = || {
        let mut new = new_run(&workflow, &[]);
        new.input = Some(suite::json(&format!("\"{}\"", "x".repeat(100_000))));
        new
    };
    let mut made = Vec::new();
    let refusal = loop {
        match store.create_run(large()).await {
            Ok(created) => made.push(created.run.id),
            Err(error) => break error,
        }
        assert!(made.len() < 100, "the limit holds");
    };
    assert!(matches!(refusal, StoreError::Full(_)), "{refusal:?}");
    // Several at once, in one transaction: each is told, none is half there.
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (store, new) = (store.clone(), large());
            tokio::spawn(async move { store.create_run(new).await })
        })
        .collect();
    for task in tasks {
        match task.await.unwrap() {
            Ok(created) => made.push(created.run.id),
            Err(error) => assert!(matches!(error, StoreError::Full(_)), "{error:?}"),
        }
    }
    let listed = |store: Arc<SqliteStore>| async move {
        let page = store.list_runs(RunFilter { limit: 1_000, ..RunFilter::default() }).await.unwrap();
        page.runs.into_iter().map(|run| run.id).collect::<BTreeSet<_>>()
    };
    assert_eq!(listed(store.clone()).await, made.iter().cloned().collect());
    store.close().await;
    drop(store);
    let store = Arc::new(SqliteStore::open(&data, StoreOptions::default()).await.unwrap());
    made.push(store.create_run(large()).await.unwrap().run.id);
    assert_eq!(listed(store.clone()).await, made.into_iter().collect());
    assert_eq!(integrity(directory.path()).await, "ok");
}

async fn raw(directory: &Path) -> sqlx::SqliteConnection {
    sqlx::sqlite::SqliteConnectOptions::new().filename(directory.join("store.db")).connect().await.unwrap()
}

async fn integrity(directory: &Path) -> String {
    sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut raw(directory).await).await.unwrap()
}

/// A held snapshot slowed a queue to a crawl (B4-26).
#[tokio::test]
async fn a_reader_with_an_old_view_stops_no_writer() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _data) = open(directory.path()).await;
    let workflow = store.deploy(version("flow", "content")).await.unwrap().workflow;
    let mut reader = raw(directory.path()).await;
    sqlx::query("BEGIN").execute(&mut reader).await.unwrap();
    let count = |row: sqlx::sqlite::SqliteRow| row.get::<i64, _>(0);
    let before = count(sqlx::query("SELECT count(*) FROM runs").fetch_one(&mut reader).await.unwrap());
    let writes = async {
        for _ in 0..100 {
            store.create_run(new_run(&workflow, &[])).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), writes).await.expect("the writes go on");
    let after = count(sqlx::query("SELECT count(*) FROM runs").fetch_one(&mut reader).await.unwrap());
    assert_eq!((before, after), (0, 0), "it still reads its old view");
    let page = store.list_runs(RunFilter { limit: 1_000, ..RunFilter::default() }).await.unwrap();
    assert_eq!(page.runs.len(), 100);
}

#[tokio::test]
async fn files_that_are_none_of_ours_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    std::fs::write(data.database(), "this is no database, but a text of some length".repeat(100)).unwrap();
    let refusal = SqliteStore::open(&data, StoreOptions::default()).await.unwrap_err();
    assert!(matches!(&refusal, StoreError::Corrupt(text) if text.contains("store.db")), "{refusal:?}");
    std::fs::remove_file(data.database()).unwrap();
    std::fs::create_dir(data.database()).unwrap();
    let refusal = SqliteStore::open(&data, StoreOptions::default()).await.unwrap_err();
    assert!(matches!(&refusal, StoreError::Denied { path, .. } if *path == data.database()), "{refusal:?}");
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, data) = open(directory.path()).await;
    store.close().await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (999, 'from the future', 1, x'00', 0)",
    )
    .execute(&mut raw(directory.path()).await)
    .await
    .unwrap();
    let refusal = SqliteStore::open(&data, StoreOptions::default()).await.unwrap_err();
    assert!(matches!(&refusal, StoreError::Invalid(text) if text.contains("newer version")), "{refusal:?}");
}

#[tokio::test]
async fn the_files_of_the_store_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _data) = open(directory.path()).await;
    store.check().await.unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    assert!(names.iter().any(|name| name == "store.db-wal"), "{names:?}");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the process under test is this test itself, as another user")]
async fn a_directory_without_permission_is_denied() {
    const NAME: &str = "a_directory_without_permission_is_denied";
    if let Some(directory) = std::env::var_os(CHILD) {
        tell(&DataDir::open(Path::new(&directory)).unwrap_err().to_string());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    // The super-user passes every check: then somebody else has to try.
    let mut command = if std::fs::write(directory.path().join("probe"), b"").is_ok() {
        let exe = directory.path().join("subject");
        std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(exe);
        command.args(["--exact", NAME, "--nocapture"]).env(CHILD, directory.path()).stdout(Stdio::piped());
        command
    } else {
        child(NAME, directory.path())
    };
    let output = command.current_dir("/").spawn().unwrap().wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let refusal = text.lines().find_map(|line| line.split_once("ACK ")).expect("it is refused").1;
    assert!(refusal.contains("lock") && refusal.contains("ermission denied"), "{refusal}");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_each_get_their_own_answer() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _data) = open(directory.path()).await;
    let store = Arc::new(store);
    let good = store.deploy(version("good", "content")).await.unwrap().workflow;
    let off = store.deploy(version("off", "content")).await.unwrap().workflow;
    store.set_workflow_disabled(&off.id, true).await.unwrap();
    let tasks: Vec<_> = (0..300)
        .map(|index| {
            let new = new_run(if index % 3 == 0 { &off } else { &good }, &[]);
            let store = store.clone();
            tokio::spawn(async move { (index, store.create_run(new).await) })
        })
        .collect();
    let mut made = BTreeSet::new();
    for task in tasks {
        let (index, result) = task.await.unwrap();
        assert_eq!(result.is_err(), index % 3 == 0, "{index}");
        made.extend(result.ok().map(|created| created.run.id));
    }
    let page = store.list_runs(RunFilter { limit: 1_000, ..RunFilter::default() }).await.unwrap();
    assert_eq!(page.runs.into_iter().map(|run| run.id).collect::<BTreeSet<_>>(), made);
    assert_eq!(made.len(), 200);
}
