//! Model providers that programs name: stored, listed to runs, called by the relay, metered.

use reqwest::Method;
use serde_json::{Value, json};
use trestle_store::Store as _;
use trestle_testkit::model_server::{ModelServer, Script, ScriptTurn, ScriptUsage};

use crate::secrets::assert_nowhere_in;
use crate::world::{Answer, Session, World};

const CANARY: &str = "sk-canary-7d1f20c6e9b84a35";
const PATH: &str = "/v1/orgs/local/inference-providers";

impl World {
    async fn add_provider(&self, body: Value) -> Answer {
        self.api(Method::POST, PATH, Some(body)).await
    }

    async fn resolve(&self, session: &Session, name: &str) -> Answer {
        self.control(session, Method::POST, "secrets/resolve", Some(json!({ "name": name }))).await
    }

    async fn providers_of(&self, session: &Session) -> Value {
        let answer = self.control(session, Method::GET, "inference/providers", None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["providers"].clone()
    }
}

#[tokio::test]
async fn providers_are_added_listed_and_deleted_and_their_keys_never_come_out() {
    let world = World::start().await;
    let body = json!({ "name": "mine", "source": "openai_compatible", "baseUrl": "http://127.0.0.1:1/v1", "apiKey": CANARY, "zzz": 1 });
    let added = world.add_provider(body.clone()).await;
    assert_eq!(added.status, 201, "{added:?}");
    let row = &added.body["provider"];
    assert_eq!(
        (&row["name"], &row["source"], &row["hasApiKey"]),
        (&json!("mine"), &json!("openai_compatible"), &json!(true))
    );
    assert_eq!((&row["region"], &row["billedByBoardwalk"]), (&Value::Null, &json!(false)));
    assert!(row["createdAt"].as_i64() > Some(0));
    let taken = world.add_provider(body).await;
    assert_eq!((taken.status.as_u16(), taken.code()), (409, "CONFLICT"));
    assert!(taken.hint().contains("inference delete"));
    assert_eq!(
        world.add_provider(json!({ "name": "keyed", "source": "anthropic", "apiKey": "k" })).await.status,
        201
    );
    let listed = world.api(Method::GET, PATH, None).await;
    let names: Vec<&str> = listed.body["providers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["keyed", "mine"]);
    for answer in [&added, &taken, &listed] {
        assert!(!answer.text.contains("canary"), "{answer:?}");
    }
    assert_eq!(world.api(Method::DELETE, &format!("{PATH}/mine"), None).await.status, 204);
    let gone = world.api(Method::DELETE, &format!("{PATH}/mine"), None).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (404, "NOT_FOUND"));
    assert!(gone.hint().contains("inference list"));
}

#[tokio::test]
async fn a_provider_that_could_not_work_is_refused_with_a_hint() {
    let world = World::start().await;
    let openai = json!({ "name": "n", "source": "openai", "apiKey": "k" });
    let with = |changes: Value| {
        let mut body = openai.clone();
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    let refused = [
        (with(json!({ "name": "boardwalk" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "name": " n" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "name": "n\u{1}" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "name": "" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "name": "n".repeat(121) })), 400, "VALIDATION_FAILED"),
        (with(json!({ "source": "vertex" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "source": "bedrock", "region": "eu-west-1" })), 422, "UNSUPPORTED"),
        (with(json!({ "region": "eu-west-1" })), 422, "UNSUPPORTED"),
        (with(json!({ "apiVersion": "2024-06-01" })), 422, "UNSUPPORTED"),
        (with(json!({ "extraHeaders": { "x": "y" } })), 422, "UNSUPPORTED"),
        (with(json!({ "source": "openai_compatible" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "source": "azure_openai" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "baseUrl": "localhost:8000" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "baseUrl": "http://u:p@localhost" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "apiKey": "two words" })), 400, "VALIDATION_FAILED"),
        (with(json!({ "apiKey": "k".repeat(20_000) })), 413, "PAYLOAD_TOO_LARGE"),
        (json!({ "name": "n", "source": "openai" }), 400, "VALIDATION_FAILED"),
        (json!({ "name": "n" }), 400, "VALIDATION_FAILED"),
        (json!([]), 400, "VALIDATION_FAILED"),
    ];
    for (body, status, code) in refused {
        let answer = world.add_provider(body.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code), "{body} {answer:?}");
    }
    assert_eq!(world.api(Method::GET, PATH, None).await.body, json!({ "providers": [] }));
    let reserved = json!({ "name": "inference-key/x", "value": "v" });
    let answer = world.api(Method::POST, "/v1/orgs/local/secrets", Some(reserved)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"));
}

#[tokio::test]
async fn a_run_process_is_told_of_providers_and_gets_their_keys_by_names_that_only_it_knows() {
    let world = World::start().await;
    world.add_provider(json!({ "name": "mine", "source": "anthropic", "baseUrl": "http://127.0.0.1:1", "apiKey": CANARY })).await;
    world
        .add_provider(
            json!({ "name": "open", "source": "openai_compatible", "baseUrl": "http://127.0.0.1:2/v1" }),
        )
        .await;
    let workflow = world.deploy("w", json!({})).await;
    let runner = world.runner().await;
    world.trigger(&workflow, Value::Null).await;
    let assignment = world.offer(&runner).await;
    let claim = world.claim(&runner, &assignment).await;
    let repeated = world.claim(&runner, &assignment).await;
    assert_eq!(claim.body["byo_providers"], repeated.body["byo_providers"]);
    let listed = &claim.body["byo_providers"];
    let mine = &listed[0];
    assert_eq!(mine.as_object().unwrap().len(), 4, "{mine}");
    assert_eq!(
        (&mine["name"], &mine["source"], &mine["base_url"]),
        (&json!("mine"), &json!("anthropic"), &json!("http://127.0.0.1:1"))
    );
    assert_eq!((&listed[1]["name"], &listed[1]["auth_secret_name"]), (&json!("open"), &Value::Null));
    let session = Session {
        runner: runner.clone(),
        run: claim.body["run_id"].as_str().unwrap().to_owned(),
        lease: String::new(),
        token: claim.body["control_plane"]["run_token"].as_str().unwrap().to_owned(),
        api_token: String::new(),
    };
    assert_eq!(world.claim_run(&session, None).await.status, 201);
    assert_eq!(&world.providers_of(&session).await, listed);
    let name = mine["auth_secret_name"].as_str().unwrap();
    assert_eq!(world.resolve(&session, name).await.body, json!({ "value": CANARY }));
    // What a program can guess opens nothing, and neither does the name of another run.
    for guess in ["mine", "inference-key/mine", "inference-key/mine/", &name[..name.len() - 1]] {
        let answer = world.resolve(&session, guess).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (403, "FORBIDDEN"), "{guess}");
    }
    let other = world.session(&workflow, Value::Null).await;
    assert_eq!(world.resolve(&other, name).await.status, 403);
    let others = world.providers_of(&other).await;
    assert_ne!(others[0]["auth_secret_name"], name);

    // A provider that is added while the run goes on is there at the next look; one that is deleted has no key.
    world.add_provider(json!({ "name": "late", "source": "openai", "apiKey": "k" })).await;
    assert_eq!(world.providers_of(&session).await.as_array().unwrap().len(), 3);
    world.api(Method::DELETE, &format!("{PATH}/mine"), None).await;
    let gone = world.resolve(&session, name).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (404, "NOT_FOUND"));
    assert!(gone.hint().contains("inference list"));
    world.finalize(&session, Value::Null).await;
    assert_eq!(world.resolve(&session, name).await.status, 409);
}

#[tokio::test]
async fn no_providers_key_is_ever_written_in_the_clear() {
    let world = World::start().await;
    let body = json!({ "name": "mine", "source": "openai_compatible", "baseUrl": "http://127.0.0.1:1/v1", "apiKey": CANARY });
    let request =
        world.request(Method::POST, PATH, &world.admin).header("idempotency-key", "once").json(&body);
    assert_eq!(request.send().await.unwrap().status(), 201);
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let listed = world.providers_of(&session).await;
    let name = listed[0]["auth_secret_name"].as_str().unwrap();
    assert_eq!(world.resolve(&session, name).await.body["value"], CANARY);
    // A turn that fails at the provider's closed port is written down too.
    let body = json!({ "provider": "mine", "model": "m", "messages": [{ "role": "user", "content": "q" }], "tools": [] });
    let answer = world.control(&session, Method::POST, "inference", Some(body)).await;
    assert!(answer.status.is_server_error() || answer.text.contains("\"t\":\"error\""), "{answer:?}");
    assert!(!answer.text.contains("canary"));
    world.finalize(&session, json!(1)).await;
    world.handle.stop();
    world.handle.stopped().await;
    world.store.close().await;
    assert_nowhere_in(world.path(), CANARY);
}

fn report(identifier: &str, model: &str, brokered: Option<bool>) -> Value {
    let mut body =
        json!({ "inputTokens": 1_000_000, "outputTokens": 10, "model": model, "identifier": identifier });
    if let Some(brokered) = brokered {
        body["brokered"] = json!(brokered);
    }
    body
}

#[tokio::test]
async fn relayed_turns_are_metered_by_the_relay_alone_and_direct_ones_by_their_reports() {
    let usage = ScriptUsage { input: 100, output: 20, ..Default::default() };
    let turn = ScriptTurn { usage: Some(usage), ..ScriptTurn::text("hello") };
    let model = ModelServer::start(Script::of(vec![turn.clone(), turn])).await.unwrap();
    let url = model.openai_url();
    let world = World::start_with(|config| {
        config.model.model = Some("scripted".to_owned());
        config.model.url = Some(url.clone());
    })
    .await;
    world
        .add_provider(json!({ "name": "mine", "source": "openai_compatible", "baseUrl": url, "apiKey": "k" }))
        .await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let totals = || async {
        let run = world.run(&session.run).await;
        (
            run["tokensIn"].as_u64().unwrap(),
            run["tokensOut"].as_u64().unwrap(),
            run["costUsd"].as_f64().unwrap(),
        )
    };
    let mut relayed = Vec::new();
    for provider in [json!({}), json!({ "provider": "mine", "model": "x" })] {
        let mut body = json!({ "messages": [{ "role": "user", "content": "q" }], "tools": [] });
        body.as_object_mut().unwrap().extend(provider.as_object().unwrap().clone());
        let answer = world.control(&session, Method::POST, "inference", Some(body)).await;
        let last: Value = serde_json::from_str(answer.text.lines().last().unwrap()).unwrap();
        relayed.push(last["modelRef"].as_str().unwrap().to_owned());
    }
    assert_eq!(relayed, ["openai_compatible/scripted", "boardwalk/mine/x"]);
    let after_relay = totals().await;
    assert_eq!((after_relay.0, after_relay.1), (200, 40));
    // The process reports each turn too, as the original's does, and as ours does.
    for (at, model) in relayed.iter().enumerate() {
        for brokered in [None, Some(true)] {
            let identifier = format!("relayed:{at}:{brokered:?}");
            let answer = world
                .control(&session, Method::POST, "usage/tokens", Some(report(&identifier, model, brokered)))
                .await;
            assert_eq!(answer.status, 204, "{answer:?}");
        }
    }
    assert_eq!(totals().await, after_relay);
    // A turn that it made itself counts once, at the price of its model.
    for _ in 0..2 {
        world
            .control(&session, Method::POST, "usage/tokens", Some(report("direct", "mine/gpt-4o", None)))
            .await;
    }
    let priced = totals().await;
    assert_eq!((priced.0, priced.1), (1_000_200, 50));
    assert!(priced.2 > after_relay.2, "{priced:?}");
    world
        .control(&session, Method::POST, "usage/tokens", Some(report("gone", "deleted/x", Some(false))))
        .await;
    assert_eq!(totals().await.0, 2_000_200);
    // The next attempt begins where this one was.
    world
        .control(&session, Method::POST, "usage", Some(json!({ "runtimeSeconds": 7, "identifier": "u" })))
        .await;
    world
        .control(&session, Method::POST, "release", Some(json!({ "workerId": "w1", "reason": "crashed" })))
        .await;
    let next = world.leased(&world.runner().await).await;
    let claimed = world.claim_run(&next, None).await;
    let used = &claimed.body["usage"];
    assert_eq!((&used["tokens"], &used["computeMs"]), (&json!(2_000_260), &json!(7_000)));
    let micros = used["usdMicros"].as_u64().unwrap() as f64;
    assert!((micros / 1e6 - totals().await.2).abs() < 1e-6, "{used}");
    assert_eq!(claimed.body["run"]["tokensIn"], 2_000_200);
}

#[tokio::test]
async fn a_run_past_its_budget_begins_no_turn_and_still_gets_the_one_that_crossed_it() {
    let usage = ScriptUsage { input: 100, output: 20, ..Default::default() };
    let turn = ScriptTurn { usage: Some(usage), ..ScriptTurn::text("the crossing one") };
    let model = ModelServer::start(Script::of(vec![turn])).await.unwrap();
    let url = model.openai_url();
    let world = World::start_with(|config| {
        config.model.model = Some("scripted".to_owned());
        config.model.url = Some(url);
    })
    .await;
    let workflow = world.deploy("w", json!({ "budget": { "max_tokens": 119 } })).await;
    let session = world.session(&workflow, Value::Null).await;
    let ask = |key: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": "q" }], "tools": [], "turnKey": key });
        let (world, session) = (&world, &session);
        async move { world.control(session, Method::POST, "inference", Some(body)).await }
    };
    for _ in 0..2 {
        let crossing = ask("one").await;
        assert_eq!(crossing.status, 200, "{crossing:?}");
        assert!(crossing.text.contains("the crossing one"));
        let next = ask("two").await;
        assert_eq!((next.status.as_u16(), next.code()), (402, "BUDGET_EXCEEDED"));
        assert!(next.message().contains("120 tokens") && next.hint().contains("budget"), "{next:?}");
    }
    assert_eq!(model.requests().len(), 1);
    // Used up exactly is not exceeded: the next turn is asked of the model, whose script is at its end.
    let workflow = world.deploy("exact", json!({ "budget": { "max_tokens": 120 } })).await;
    let exact = world.session(&workflow, Value::Null).await;
    let report = json!({ "inputTokens": 100, "outputTokens": 20, "identifier": "i", "brokered": false });
    assert_eq!(world.control(&exact, Method::POST, "usage/tokens", Some(report)).await.status, 204);
    let body = json!({ "messages": [{ "role": "user", "content": "q" }], "tools": [] });
    assert_ne!(world.control(&exact, Method::POST, "inference", Some(body)).await.status, 402);
    assert!(model.requests().len() > 1);
}
