//! Secrets: they come in, reach the runs that may read them, and nothing else.

use reqwest::Method;
use serde_json::{Value, json};
use trestle_store::Store as _;

use crate::world::World;

const CANARY: &str = "canary-4f1c9a7be2d05386-value";

#[tokio::test]
async fn a_secret_reaches_the_runs_that_list_it_and_no_answer_else() {
    let world = World::start().await;
    let create = |name: &str, value: &str| {
        let body = json!({ "name": name, "value": value, "scope": "org", "kind": "api_key" });
        let world = &world;
        async move { world.api(Method::POST, "/v1/orgs/local/secrets", Some(body)).await }
    };
    let created = create("KEY", CANARY).await;
    assert_eq!(created.status, 201, "{created:?}");
    let secret = &created.body["secret"];
    assert_eq!((&secret["name"], &secret["last4"]), (&json!("KEY"), &json!("alue")));
    for key in ["id", "scope", "environmentId", "kind", "description", "createdAt"] {
        assert!(secret.as_object().unwrap().contains_key(key), "{key}");
    }
    let taken = create("KEY", "another").await;
    assert_eq!((taken.status.as_u16(), taken.code()), (409, "CONFLICT"));
    assert!(taken.hint().contains("rotate"));
    let short = create("SHORT", "1234567").await;
    assert_eq!(short.body["secret"]["last4"], Value::Null);
    assert_eq!(create("EMPTY", "").await.status, 400);
    assert_eq!(create("LARGE", &"x".repeat(70_000)).await.status, 413);
    assert_eq!(create(" KEY", "x").await.status, 400);

    let listed = world.api(Method::GET, "/v1/orgs/local/secrets", None).await;
    assert_eq!(listed.body["secrets"].as_array().unwrap().len(), 2);
    assert!(!listed.text.contains("canary"));

    let workflow = world
        .deploy("w", json!({ "permissions": { "secrets": [{ "name": "KEY" }, { "name": "MISSING" }] } }))
        .await;
    let session = world.session(&workflow, Value::Null).await;
    let resolve = |name: &str| {
        let body = json!({ "name": name });
        let (world, session) = (&world, &session);
        async move { world.control(session, Method::POST, "secrets/resolve", Some(body)).await }
    };
    let answer = resolve("KEY").await;
    assert_eq!((answer.status.as_u16(), &answer.body), (200, &json!({ "value": CANARY })));
    let unlisted = resolve("SHORT").await;
    assert_eq!((unlisted.status.as_u16(), unlisted.code()), (403, "FORBIDDEN"));
    assert!(unlisted.hint().contains("permissions.secrets"), "{unlisted:?}");
    let missing = resolve("MISSING").await;
    assert_eq!((missing.status.as_u16(), missing.code()), (404, "NOT_FOUND"));
    assert!(missing.hint().contains("trestle secrets set MISSING"), "{missing:?}");

    let id = secret["id"].as_str().unwrap();
    let rotated = world
        .api(Method::POST, &format!("/v1/secrets/{id}/rotate"), Some(json!({ "value": "rotated value 16" })))
        .await;
    assert_eq!((rotated.status.as_u16(), &rotated.body["secret"]["id"]), (200, &json!(id)));
    assert_eq!(resolve("KEY").await.body, json!({ "value": "rotated value 16" }));
    let gone = world.api(Method::DELETE, &format!("/v1/secrets/{id}"), None).await;
    assert_eq!(gone.status, 204);
    assert_eq!(resolve("KEY").await.status, 404);
}

#[tokio::test]
async fn no_secret_value_is_ever_written_to_the_data_directory() {
    let world = World::start().await;
    let body = json!({ "name": "KEY", "value": CANARY });
    let path = "/v1/orgs/local/secrets";
    let created = Answered::of(&world, path, &body, "key-1").await;
    let again = Answered::of(&world, path, &body, "key-1").await;
    assert_eq!(created, again);
    let workflow = world.deploy("w", json!({ "permissions": { "secrets": [{ "name": "KEY" }] } })).await;
    let session = world.session(&workflow, Value::Null).await;
    let answer =
        world.control(&session, Method::POST, "secrets/resolve", Some(json!({ "name": "KEY" }))).await;
    assert_eq!(answer.body["value"], CANARY);
    world.finalize(&session, json!(1)).await;
    world.handle.stop();
    world.handle.stopped().await;
    world.store.close().await;
    assert_nowhere_in(world.path(), CANARY);
}

/// That no file of a data directory holds a text.
pub(crate) fn assert_nowhere_in(directory: &std::path::Path, text: &str) {
    let mut files = 0;
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{}", path.display());
        }
    }
    assert!(files >= 4, "{files}");
}

#[derive(Debug, PartialEq)]
struct Answered(u16, String);

impl Answered {
    async fn of(world: &World, path: &str, body: &Value, key: &str) -> Self {
        let request =
            world.request(Method::POST, path, &world.admin).header("idempotency-key", key).json(body);
        let response = request.send().await.unwrap();
        Self(response.status().as_u16(), response.text().await.unwrap())
    }
}
