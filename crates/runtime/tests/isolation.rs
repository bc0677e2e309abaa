//! What a program can find out about the process that runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::plane::Plane;
use support::process::{Options, RunProcess, run_with};
use trestle_sandbox::slot::{SlotOutcome, SlotReport};

async fn plane(program: &str) -> Plane {
    Plane::start(&[("index.mjs", &support::program(program))]).await
}

#[tokio::test]
async fn a_program_finds_no_token_and_no_variable_of_the_host() {
    for prestart in [false, true] {
        let plane = plane("dump.mjs").await;
        let mut options = Options { prestart, ..Options::default() };
        options.env.insert("FROM_CLAIM".into(), "yes".into());
        let mut process = RunProcess::start(options).await;
        if prestart {
            process.until(&SlotReport::Ready).await;
        }
        process.assign(&plane).await;
        assert_eq!(process.outcome().await, SlotOutcome::Completed);
        let output = plane.finalized()["output"].clone();
        let mut names: Vec<&str> = output["env"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["BOARDWALK_HOST_SOCK", "FROM_CLAIM", "HOME", "LANG", "PATH", "TMPDIR"]);
        let workspace = process.workspace().canonicalize().unwrap();
        assert_eq!(output["cwd"], json!(workspace));
        assert_eq!(output["env"]["HOME"], json!(process.workspace()));
        assert_eq!(output["env"]["TMPDIR"], json!(process.directory.path().join("tmp")));
        let text = output.to_string();
        assert!(!text.contains("canary"), "{text}");
        assert!(text.contains("trestle-run-process"), "the dump looked at its parents: {text}");
    }
}

#[tokio::test]
async fn a_user_without_privileges_cannot_look_into_its_run_process() {
    // Root may look at everything, so the whole run happens as somebody else.
    let plane = plane("dump.mjs").await;
    let outcome = support::process::run_as_nobody(&plane).await;
    assert_eq!(outcome, SlotOutcome::Completed);
    let output = plane.finalized()["output"].clone();
    let parent = &output["parents"][0];
    for what in ["environ", "maps", "mem", "fd"] {
        let answer = parent[what].as_str().unwrap();
        assert!(answer.starts_with("refused"), "{what}: {answer}");
    }
    assert!(!output.to_string().contains("canary"));
}

#[tokio::test]
async fn secrets_of_the_environment_are_resolved_before_the_start_and_appear_nowhere() {
    let plane = plane("prints_secret.mjs").await;
    plane.edit_manifest(|manifest| {
        manifest["env"] = json!({ "TOKEN": "${{ secrets.deploy-key }}", "PLAIN": "literal" });
        manifest["permissions"] = json!({ "secrets": [{ "name": "deploy-key" }, { "name": "other" }] });
    });
    plane.set_secret("deploy-key", "env-canary\nsecond line");
    plane.set_secret("other", "get-canary/+value");
    assert_eq!(run_with(&plane, Options::default()).await, SlotOutcome::Failed { code: "MY_CODE".into() });
    let everything = plane.everything();
    assert!(!everything.contains("canary"), "{everything}");
    let lines = plane.console("stdout");
    assert_eq!(lines[0], "literal [REDACTED] [REDACTED]");
    assert_eq!(lines[1], "slowly [REDACTED] done");
    assert_eq!(plane.error()["message"], "it was [REDACTED]");
    assert_eq!(plane.events_of("phase")[0]["name"], "with [REDACTED]");
    let artifact = &plane.calls("artifacts")[0].body;
    assert_eq!(artifact["name"], "[REDACTED].txt");
    assert_eq!(artifact["metadata"], json!({ "note": "[REDACTED]" }));
}

#[tokio::test]
async fn a_secret_of_the_environment_that_is_missing_or_not_granted_fails_the_run_with_its_name() {
    for (status, code) in [(404, "NOT_FOUND"), (403, "FORBIDDEN")] {
        let plane = plane("dump.mjs").await;
        plane.edit_manifest(|manifest| {
            manifest["env"] = json!({ "TOKEN": "${{ secrets.deploy-key }}" });
            manifest["permissions"] = json!({ "secrets": [{ "name": "deploy-key" }] });
        });
        plane.state.secrets.lock().unwrap().insert("deploy-key".into(), Err(status));
        assert_eq!(run_with(&plane, Options::default()).await, SlotOutcome::Failed { code: code.into() });
        let error = plane.error();
        assert!(error["message"].as_str().unwrap().contains("deploy-key"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("deploy-key"), "{error}");
    }
}

#[tokio::test]
async fn only_the_programs_own_process_asks_for_its_input_and_reports_its_result() {
    let plane = plane("impostor.mjs").await;
    plane.set_secret("open", "for everybody");
    assert_eq!(run_with(&plane, Options::default()).await, SlotOutcome::Completed);
    let output: Value = plane.finalized()["output"].clone();
    assert_eq!(output["bootstrap"]["error"]["code"], "FORBIDDEN");
    assert_eq!(output["report_return"]["error"]["code"], "FORBIDDEN");
    assert_eq!(output["secrets.get"]["result"]["value"], "for everybody");
    assert_eq!(output["mine"], "kept");
}

#[tokio::test]
async fn a_program_that_rewrites_its_own_files_changes_no_other_run() {
    let plane = plane("rewrites.mjs").await;
    for _ in 0..2 {
        assert_eq!(run_with(&plane, Options::default()).await, SlotOutcome::Completed);
        assert_eq!(plane.finalized()["output"], "first");
    }
}
