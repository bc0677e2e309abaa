//! Every sample of `docs/protocol/descriptor.md` §12, with what it reads as or where it is refused.

use serde_json::{Value, json};

use super::*;
use crate::error::ErrorCode;

fn accepted(text: &str) -> ParsedDescriptor {
    parse_descriptor("workflow.jsonc", text.as_bytes()).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn stored(text: &str) -> Value {
    serde_json::to_value(Manifest::new(accepted(text).descriptor)).unwrap()
}

fn refused(text: &str) -> DescriptorErrors {
    let errors = parse_descriptor("workflow.jsonc", text.as_bytes())
        .err()
        .unwrap_or_else(|| panic!("accepted: {text}"));
    assert_eq!(errors.code(), ErrorCode::ValidationFailed);
    assert!(!errors.problems.is_empty());
    errors
}

/// A descriptor with further root keys.
fn with(more: &str) -> String {
    format!(r#"{{"slug":"x","triggers":[{{"kind":"manual"}}],{more}}}"#)
}

fn with_trigger(trigger: &str) -> String {
    format!(r#"{{"slug":"x","triggers":[{trigger}]}}"#)
}

/// The valid sample, and its stored form without the defaults that every descriptor has.
fn valid_samples() -> Vec<(&'static str, Value)> {
    vec![
        (
            r#"{ "slug": "ping", "triggers": [{ "kind": "manual" }] }"#,
            json!({"slug": "ping", "triggers": [{"kind": "manual"}]}),
        ),
        (
            "{ \"$schema\": \"https://boardwalk.sh/schemas/workflow.json\", \"slug\": \"Nightly-Sweep\", /* ok */\r\n\
             \"title\": \"Nightly sweep — staging\",\r\n\
             \"triggers\": [ { \"kind\": \"cron\", \"expr\": \"30 2 * * *\", \"timezone\": \"Europe/Lisbon\",\r\n\
             \"input\": { \"depth\": 3, }, }, // twice\r\n { \"kind\": \"manual\", }, ], }",
            json!({"slug": "Nightly-Sweep", "title": "Nightly sweep — staging", "triggers": [
                {"kind": "cron", "expr": "30 2 * * *", "timezone": "Europe/Lisbon", "input": {"depth": 3}},
                {"kind": "manual"}]}),
        ),
        (
            r#"{ "slug": "heartbeat", "entry": "lib/beat.mts", "triggers": [{ "kind": "cron", "expr": "*/15 * * * * *" }] }"#,
            json!({"slug": "heartbeat", "entry": "lib/beat.mts",
                "triggers": [{"kind": "cron", "expr": "*/15 * * * * *"}]}),
        ),
        (
            r#"{ "slug": "repo-indexer", "triggers": [{ "kind": "webhook", "name": "gh-org" }],
                "concurrency": { "mode": "latest_wins", "key": "idx:${input.repository.full_name ?? 'unknown'}" },
                "workspace": { "persist": ["index", "cache/blobs"], "key": "${input.repository.full_name ?? 'unknown'}" } }"#,
            json!({"slug": "repo-indexer", "triggers": [{"kind": "webhook", "name": "gh-org"}],
                "concurrency": {"mode": "latest_wins", "key": "idx:${input.repository.full_name ?? 'unknown'}"},
                "workspace": {"persist": ["index", "cache/blobs"],
                    "key": "${input.repository.full_name ?? 'unknown'}"}}),
        ),
        (
            r#"{ "slug": "ledger-sync", "triggers": [{ "kind": "manual" }],
                "permissions": { "id_token": "write", "artifacts": "write", "contents": "none",
                    "secrets": [{ "name": "LEDGER_KEY" }, { "name": "slack-hook" }] },
                "env": { "LEDGER_API_KEY": "${{ secrets.LEDGER_KEY }}", "SLACK": "${{secrets.slack-hook}}",
                    "PRICE": "$5 {flat}" } }"#,
            json!({"slug": "ledger-sync", "triggers": [{"kind": "manual"}],
                "permissions": {"id_token": "write", "artifacts": "write", "contents": "none",
                    "secrets": [{"name": "LEDGER_KEY"}, {"name": "slack-hook"}]},
                "env": {"LEDGER_API_KEY": "${{ secrets.LEDGER_KEY }}", "SLACK": "${{secrets.slack-hook}}",
                    "PRICE": "$5 {flat}"}}),
        ),
        (
            r#"{ "slug": "research", "description": "", "triggers": [{ "kind": "manual" }],
                "budget": { "max_usd": 0.75, "max_tokens": 400000, "max_compute_seconds": 5400 },
                "notifications": [
                    { "on": "failure", "channel": "webhook", "target": "https://ops.example/hook", "template": "run {id} failed" },
                    { "on": "budget_exceeded", "channel": "email", "target": "finance@example.com" } ] }"#,
            json!({"slug": "research", "description": "", "triggers": [{"kind": "manual"}],
                "budget": {"max_usd": 0.75, "max_tokens": 400_000, "max_compute_seconds": 5400},
                "notifications": [
                    {"on": "failure", "channel": "webhook", "target": "https://ops.example/hook",
                        "template": "run {id} failed"},
                    {"on": "budget_exceeded", "channel": "email", "target": "finance@example.com"}]}),
        ),
        (
            r#"{ "slug": "gpu-eval", "triggers": [{ "kind": "manual" }], "recording": false,
                "runs_on": { "kind": "self-hosted", "labels": ["gpu", "a100"] },
                "container": { "image": "registry.example/eval:7" } }"#,
            json!({"slug": "gpu-eval", "triggers": [{"kind": "manual"}], "recording": false,
                "runs_on": {"kind": "self-hosted", "pool": "default", "labels": ["gpu", "a100"]},
                "container": {"image": "registry.example/eval:7"}}),
        ),
        (
            r#"{ "slug": "scraper", "triggers": [{ "kind": "manual" }],
                "runs_on": { "label": "boardwalk/linux-node", "size": "large" },
                "egress": { "level": "custom", "allow": ["api.example.com", "*.cdn.example.com"] },
                "callable_by": { "workflows": ["orchestrator", "nightly"] } }"#,
            json!({"slug": "scraper", "triggers": [{"kind": "manual"}],
                "runs_on": {"label": "boardwalk/linux-node", "size": "large"},
                "egress": {"level": "custom", "allow": ["api.example.com", "*.cdn.example.com"]},
                "callable_by": {"workflows": ["orchestrator", "nightly"]}}),
        ),
        (
            r#"{ "slug": "fan-in", "triggers": [
                { "kind": "github", "event": "ci.completed", "repos": ["acme/web", "acme/api.v2"] },
                { "kind": "linear", "event": "issue.status_changed" }, { "kind": "jira", "event": "issue.commented" },
                { "kind": "notion", "event": "page.updated" },
                { "kind": "workflow_run", "workflows": ["build", "lint"], "conclusions": ["failure", "cancelled"] } ] }"#,
            json!({"slug": "fan-in", "triggers": [
                {"kind": "github", "event": "ci.completed", "repos": ["acme/web", "acme/api.v2"]},
                {"kind": "linear", "event": "issue.status_changed"}, {"kind": "jira", "event": "issue.commented"},
                {"kind": "notion", "event": "page.updated"},
                {"kind": "workflow_run", "workflows": ["build", "lint"], "conclusions": ["failure", "cancelled"]}]}),
        ),
        (
            r#"{ "slug": "lead-score", "entry": "app/main.py", "triggers": [{ "kind": "manual" }],
                "files": ["prompts/**", "data/weights.json", "*.csv"],
                "concurrency": { "mode": "serial", "key": "${input.tenant}/${ input.rows[0].id ?? \"none\" }" } }"#,
            json!({"slug": "lead-score", "entry": "app/main.py", "triggers": [{"kind": "manual"}],
                "files": ["prompts/**", "data/weights.json", "*.csv"],
                "concurrency": {"mode": "serial", "key": "${input.tenant}/${ input.rows[0].id ?? \"none\" }"}}),
        ),
    ]
}

#[test]
fn valid_samples_read_as_their_defaulted_form() {
    for (text, mut expected) in valid_samples() {
        let object = expected.as_object_mut().unwrap();
        object.entry("concurrency").or_insert(json!({"mode": "unlimited"}));
        object.entry("runs_on").or_insert(json!("boardwalk/linux"));
        object.entry("callable_by").or_insert(json!("anyone_in_org"));
        assert_eq!(stored(text), expected, "{text}");
        assert_eq!(accepted(text).warnings, [], "{text}");
    }
}

#[test]
fn a_stored_manifest_reads_back_to_the_same_text() {
    for (text, _) in valid_samples() {
        let mut manifest = Manifest::new(accepted(text).descriptor);
        manifest.input_schema =
            Some(crate::RawJson::parse(r#"{"type":"integer","maximum":9007199254740993}"#).unwrap());
        let first = serde_json::to_string(&manifest).unwrap();
        let again = Manifest::from_json(&first).unwrap();
        assert_eq!(again, manifest);
        assert_eq!(serde_json::to_string(&again).unwrap(), first);
        assert_eq!(serde_json::from_str::<Manifest>(&first).unwrap(), manifest);
    }
}

#[test]
fn stored_keys_come_in_the_order_of_the_reference() {
    let text = with(r#""files":["a"],"title":"T","budget":{"max_usd":5.0,"max_tokens":1.0}"#);
    let stored = serde_json::to_string(&accepted(&text).descriptor).unwrap();
    assert_eq!(
        stored,
        r#"{"slug":"x","title":"T","triggers":[{"kind":"manual"}],"budget":{"max_tokens":1,"max_usd":5},"concurrency":{"mode":"unlimited"},"runs_on":"boardwalk/linux","callable_by":"anyone_in_org","files":["a"]}"#
    );
}

/// Text, the path of each problem, a part of the first message, a part of the hint ("" for none).
fn invalid_samples() -> Vec<(String, &'static [&'static str], &'static str, &'static str)> {
    vec![
        (r#"{"slug":"x"}"#.into(), &["triggers"], "required", ""),
        (r#"{"slug":"x","triggers":[]}"#.into(), &["triggers"], "at least 1", ""),
        (
            r#"{"slug":"nightly_sweep","triggers":[{"kind":"manual"}]}"#.into(),
            &["slug"],
            "letters, digits and hyphens",
            "nightly-sweep",
        ),
        (with(r#""name":"X""#), &["(root)"], r#"Unrecognized key: "name""#, "slug"),
        (with(r#""input_schema":{"type":"object"}"#), &["input_schema"], "derived", "remove"),
        (with_trigger(r#"{"kind":"cron","expr":"@hourly"}"#), &["triggers.0.expr"], "5 fields", "0 * * * *"),
        (
            with_trigger(r#"{"kind":"cron","expr":"* * * * *","input":["a"]}"#),
            &["triggers.0.input"],
            "expected an object, found an array",
            "",
        ),
        (
            with_trigger(r#"{"kind":"webhook","name":"n","auth":"token"}"#),
            &["triggers.0"],
            r#"Unrecognized key: "auth""#,
            "known keys",
        ),
        (
            with_trigger(r#"{"kind":"event","event_name":"deploy"}"#),
            &["triggers.0.kind"],
            "\"manual\", \"cron\", \"webhook\", \"workflow_run\", \"github\", \"linear\", \"jira\", \"notion\"",
            "webhook",
        ),
        (
            with_trigger(r#"{"kind":"github","event":"pr.opened","repos":["api"]}"#),
            &["triggers.0.repos.0"],
            "owner/name",
            "acme/web",
        ),
        (
            with_trigger(r#"{"kind":"github","event":"pull_request.closed"}"#),
            &["triggers.0.event"],
            "pr.merged",
            "",
        ),
        (
            with(r#""env":{"DSN":"postgres://u:${{ secrets.PW }}@db"}"#),
            &["env.DSN"],
            "whole value",
            "join texts",
        ),
        (with(r#""env":{"K":"${{ secrets.K }} "}"#), &["env.K"], "whole value", "join texts"),
        (
            with(r#""permissions":{"secrets":["GH"]}"#),
            &["permissions.secrets.0"],
            "expected an object",
            r#"{ "name": "GH" }"#,
        ),
        (
            with(r#""workspace":{"persist":["../shared"]}"#),
            &["workspace.persist.0"],
            "`..`",
            "inside their root",
        ),
        (
            with(r#""budget":{"deadline_seconds":60}"#),
            &["budget"],
            r#"Unrecognized key: "deadline_seconds""#,
            "max_compute_seconds",
        ),
        (
            with(r#""concurrency":{"mode":"unlimited","key":"${input.a}"}"#),
            &["concurrency"],
            r#"Unrecognized key: "key""#,
            "",
        ),
        (
            with(r#""concurrency":{"mode":"serial","key":"${repo}-${input.a+1}"}"#),
            &["concurrency.key", "concurrency.key"],
            "at index 0",
            "input.tenant",
        ),
        (
            with(r#""workspace":{"key":"${input.a ?? input.b}"}"#),
            &["workspace.key"],
            "at index 0: the fallback must be one quoted text",
            "input.tenant",
        ),
        (
            with(r#""egress":{"level":"full","allow":["a.example"]}"#),
            &["egress"],
            r#"Unrecognized key: "allow""#,
            "",
        ),
        (
            with(r#""notifications":[{"on":"budget_exceeded","channel":"webhook","target":"https://a"}]"#),
            &["notifications.0"],
            "email only",
            "email",
        ),
        (with(r#""files":["/etc/hosts"]"#), &["files.0", "files.0"], "relative", "without the `/`"),
        ("# note\n{}".into(), &["(root)"], "comments start with `//`", ""),
        (
            r#"[{"slug":"x","triggers":[{"kind":"manual"}]}]"#.into(),
            &["(root)"],
            "single JSON object",
            "smallest",
        ),
        (with(r#""entry":"./src/index.ts""#), &["entry"], "`.`", "write `src/index.ts`"),
        (with(r#""title":null"#), &["title"], "found null", "leave the key out"),
    ]
}

#[test]
fn invalid_samples_are_refused_at_their_path_with_code_and_hint() {
    for (text, paths, message, hint) in invalid_samples() {
        let errors = refused(&text);
        let found: Vec<&str> = errors.problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(found, paths, "{text}\n{errors}");
        assert!(errors.problems[0].message.contains(message), "{text}\n{errors}");
        match (errors.hint(), hint) {
            (_, "") => {}
            (Some(found), part) => assert!(found.contains(part), "{text}: {found}"),
            (None, part) => panic!("{text}: no hint with {part}"),
        }
        assert!(errors.problems.iter().all(|problem| problem.position.is_some()), "{text}");
    }
}

#[test]
fn the_second_bad_interpolation_is_reported_at_its_own_index() {
    let errors = refused(&with(r#""concurrency":{"mode":"serial","key":"${repo}-${input.a+1}"}"#));
    assert!(errors.problems[1].message.contains("at index 8: a key template cannot compute"), "{errors}");
}

#[test]
fn all_problems_are_reported_together_with_lines() {
    let errors = refused(
        "{\n  \"slug\": \"a b\",\n  \"triggers\": [{ \"kind\": \"cron\", \"expr\": \"@daily\" }, 7],\n  \"budget\": { \"max_tokens\": 0 },\n  \"concurency\": {},\n  \"runs_on\": { \"kind\": \"self-hosted\", \"label\": \"boardwalk/linux\" }\n}",
    );
    let found: Vec<(String, u32)> = errors
        .problems
        .iter()
        .map(|problem| (problem.path.clone(), problem.position.unwrap().line))
        .collect();
    let expected =
        [("slug", 2), ("triggers.0.expr", 3), ("triggers.1", 3), ("budget.max_tokens", 4), ("runs_on", 6)];
    let mut expected: Vec<(String, u32)> =
        expected.iter().map(|(path, line)| ((*path).to_owned(), *line)).collect();
    expected.push(("(root)".into(), 5));
    assert_eq!(found, expected, "{errors}");
    assert_eq!(errors.problems[5].hint.as_deref(), Some("did you mean \"concurrency\"?"));
    assert!(errors.to_string().starts_with("workflow.jsonc failed descriptor validation:\n  slug: "));
}

#[test]
fn lengths_count_utf16_units() {
    let title = |text: &str| with(&format!(r#""title":"{text}""#));
    accepted(&title(&"😀".repeat(100)));
    assert_eq!(refused(&title(&("😀".repeat(100) + "a"))).problems[0].path, "title");
}

#[test]
fn bounds_are_exact() {
    for (text, valid) in [
        (with(r#""budget":{"max_tokens":1.0}"#), true),
        (with(r#""budget":{"max_tokens":9007199254740991}"#), true),
        (with(r#""budget":{"max_tokens":9007199254740992}"#), false),
        (with(r#""budget":{"max_tokens":1e17}"#), false),
        (with(r#""budget":{"max_tokens":1.5}"#), false),
        (with(r#""budget":{"max_usd":1e400}"#), false),
        (with(r#""budget":{"max_usd":0}"#), false),
        (with(r#""budget":{}"#), true),
        (with(r#""notifications":[]"#), true),
        (with(r#""files":[]"#), false),
        (with(r#""env":{"A":""}"#), true),
        (with(r#""env":{"A=B":"x"}"#), false),
        (with(r#""env":{"":"x"}"#), false),
        (with(r#""env":{"__proto__":"x"}"#), true),
        (with(r#""__proto__":{}"#), false),
        (with(r#""env":{"A":7}"#), false),
        (with(r#""env":{"A":"${x} $$ {"}"#), true),
        (with(r#""runs_on":{"kind":"self-hosted","labels":[]}"#), true),
        (with(r#""runs_on":{"label":"boardwalk/linux","pool":"p"}"#), false),
        (with(r#""runs_on":"linux""#), false),
        (with(r#""callable_by":{"roles":[]}"#), false),
        (with(r#""callable_by":{"roles":["owner"],"workflows":["a"]}"#), false),
        (with(r#""egress":{"level":"custom"}"#), false),
        (with(r#""egress":{"level":"custom","allow":[]}"#), false),
        (with(r#""workspace":{}"#), true),
        (with(r#""workspace":{"persist":[]}"#), false),
        (with(r#""workspace":{"persist":false}"#), true),
        (with(r#""permissions":{"secrets":[]}"#), true),
        (with(r#""entry":"C:/x"#).replace("C:/x", "C:/x\""), true),
        (with(r#""entry":"dir/""#), false),
        (with(r#""entry":"a\\b""#), false),
        (with(r#""container":{"image":""}"#), false),
        (with(r#""title":"a\nb""#), false),
        (with(r#""description":"""#), true),
        (with_trigger(r#"{"kind":"workflow_run","workflows":[]}"#), false),
        (with_trigger(r#"{"kind":"github","event":"pr.opened","repos":["-a/b"]}"#), false),
        (with_trigger(r#"{"kind":"cron","expr":"a b c d e"}"#), false),
        (r#"{"slug":"-","triggers":[{"kind":"manual"},{"kind":"manual"}]}"#.into(), true),
    ] {
        let read = parse_descriptor("workflow.json", text.as_bytes());
        assert_eq!(read.is_ok(), valid, "{text}: {:?}", read.err().map(|errors| errors.to_string()));
    }
}

#[test]
fn what_is_accepted_and_not_meant_is_warned_about() {
    let text = r#"{"slug":"-","triggers":[{"kind":"manual"},{"kind":"manual"},
        {"kind":"workflow_run","workflows":["-"]},{"kind":"cron","expr":"0 0 * * *","timezone":"Mars Base"}],
        "env":{"A":"${{ secrets.K }}"},"permissions":{"secrets":[{"name":"B"},{"name":"B"}]},}"#;
    let warnings = accepted(text).warnings;
    let paths: Vec<&str> = warnings.iter().map(|warning| warning.path.as_str()).collect();
    let expected =
        ["triggers.3.timezone", "permissions.secrets.1", "env.A", "triggers.1", "triggers.2", "slug"];
    assert_eq!(paths, expected);
    assert!(warnings.iter().all(|warning| warning.position.is_some()));
}

#[test]
fn cron_input_travels_byte_for_byte() {
    let text = with_trigger(
        r#"{"kind":"cron","expr":"0 0 * * *","input":{"b": 9007199254740993, /* c */ "a": 1.50}}"#,
    );
    let stored = serde_json::to_string(&accepted(&text).descriptor).unwrap();
    assert!(stored.contains(r#""input":{"b":9007199254740993,"a":1.50}"#), "{stored}");
}

#[test]
fn the_file_is_named_as_it_is_called() {
    let errors = parse_descriptor("workflow.json", b"{").unwrap_err();
    assert_eq!(
        errors.to_string(),
        "workflow.json is not valid JSONC: this object is never closed with `}` (line 1, column 1)"
    );
    let large = vec![b' '; MAX_DESCRIPTOR_BYTES + 1];
    assert!(parse_descriptor("workflow.json", &large).unwrap_err().to_string().contains("more than"));
}

#[test]
fn a_manifest_is_as_strict_as_a_descriptor() {
    let stored =
        r#"{"slug":"x","triggers":[{"kind":"manual"}],"input_schema":{},"output_schema":{"type":"string"}}"#;
    let manifest = Manifest::from_json(stored).unwrap();
    assert_eq!(manifest.output_schema.unwrap().get(), r#"{"type":"string"}"#);
    for text in [
        r#"{"slug":"x","triggers":[{"kind":"manual"}],"input_schema":true}"#,
        r#"{"slug":"x","triggers":[{"kind":"manual"}],"schema":{}}"#,
        r#"{"slug":"x","triggers":[]}"#,
    ] {
        assert!(Manifest::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn the_json_schema_accepts_nothing_but_the_known_keys() {
    let schema = serde_json::to_value(schemars::schema_for!(Descriptor)).unwrap();
    assert_eq!(schema["additionalProperties"], json!(false));
    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties.len(), 17);
    assert!(
        properties
            .values()
            .all(|property| property.get("description").is_some() || property.get("$ref").is_some())
    );
    assert_eq!(schema["required"], json!(["slug", "triggers"]));
    let manifest = serde_json::to_value(schemars::schema_for!(Manifest)).unwrap();
    assert_eq!(manifest["properties"].as_object().unwrap().len(), 19);
}

/// The document that editors read: the type's schema, without the `null`s that an absent key never is.
fn editor_schema() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07();
    let mut schema = settings.into_generator().into_root_schema_for::<Descriptor>().to_value();
    drop_nulls(&mut schema);
    schema["title"] = json!("Trestle workflow descriptor");
    schema["properties"]["$schema"] =
        json!({"type": "string", "description": "For editors; dropped when read."});
    schema
}

fn drop_nulls(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Array(kinds)) = members.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    members.insert("type".into(), kind);
                }
            }
            if let Some(Value::Array(forms)) = members.get_mut("anyOf") {
                forms.retain(|form| form["type"] != "null");
                if let [Value::Object(form)] = forms.as_slice() {
                    // Draft 7 ignores what stands beside `$ref`, hence the wrapper for the description.
                    let form = form.clone();
                    members.remove("anyOf");
                    members.insert("allOf".into(), json!([form]));
                }
            }
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[test]
fn the_committed_editor_schema_is_what_the_types_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas/workflow.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&editor_schema()).unwrap());
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        text,
        "stale, write it again with UPDATE_SCHEMAS=1"
    );
}

#[test]
fn editors_accept_the_valid_samples_and_refuse_wrong_shapes() {
    let schema = jsonschema::validator_for(&editor_schema()).unwrap();
    for (text, _) in valid_samples() {
        let (value, _) = parse_jsonc(text.as_bytes()).unwrap();
        if let Err(error) = schema.validate(&value) {
            panic!("{text}: {error} at {}", error.instance_path());
        }
    }
    let beyond_a_schema = [
        "@hourly",
        "${{ secrets",
        "../shared",
        "${repo}",
        "input.b}",
        "/etc/hosts",
        "./src",
        "\"api\"",
        "input_schema",
    ];
    let mut judged = 0;
    for (text, ..) in invalid_samples() {
        let Ok((value, _)) = parse_jsonc(text.as_bytes()) else { continue };
        if beyond_a_schema.iter().any(|part| text.contains(part)) {
            continue;
        }
        // Two forms of one object type cannot be told apart by this generator.
        if text.contains("budget_exceeded") {
            continue;
        }
        assert!(!schema.is_valid(&value), "{text}");
        judged += 1;
    }
    assert!(judged >= 14, "{judged}");
}
