//! `Idempotency-Key` on the public API.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

async fn keyed(world: &World, method: Method, path: &str, key: &str, body: Option<Value>) -> Answer {
    let mut request = world.request(method, path, &world.admin).header("idempotency-key", key);
    if let Some(body) = body {
        request = request.json(&body);
    }
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_repeat_with_the_same_key_gets_the_first_answer() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let path = format!("/v1/orgs/local/workflows/{workflow}/runs");
    let body = || Some(json!({ "input": 1 }));
    let first = keyed(&world, Method::POST, &path, "k1", body()).await;
    assert_eq!(first.status, 201);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let again = keyed(&world, Method::POST, &path, "k1", body()).await;
    assert_eq!((again.status.as_u16(), &again.text), (201, &first.text));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.headers["content-type"], "application/json");
    let other = keyed(&world, Method::POST, &path, "k1", Some(json!({ "input": 2 }))).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "IDEMPOTENCY_KEY_REUSED"));
    let next = keyed(&world, Method::POST, &path, "k2", body()).await;
    assert_ne!(next.text, first.text);

    // Refusals repeat too, and so do answers without a body.
    let wrong = keyed(&world, Method::POST, &path, "k3", Some(json!([]))).await;
    let again = keyed(&world, Method::POST, &path, "k3", Some(json!([]))).await;
    assert_eq!((wrong.status.as_u16(), &wrong.text), (again.status.as_u16(), &again.text));
    let run = first.body["run"]["id"].as_str().unwrap();
    for _ in 0..2 {
        let path = format!("/v1/runs/{run}/cancel");
        let answer = keyed(&world, Method::POST, &path, "k4", None).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    }
    for bad in ["", &"x".repeat(256)] {
        let answer = keyed(&world, Method::POST, &path, bad, body()).await;
        assert_eq!(answer.status, 400);
    }
    world.boot.advance(Duration::from_secs(25 * 3600));
    let later = keyed(&world, Method::POST, &path, "k1", body()).await;
    assert_ne!(later.text, first.text);
}

#[tokio::test]
async fn of_many_requests_with_one_key_one_does_the_work() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let path = format!("/v1/orgs/local/workflows/{workflow}/runs");
    let requests = (0..8).map(|_| keyed(&world, Method::POST, &path, "same", Some(json!({}))));
    for answer in futures_util::future::join_all(requests).await {
        assert!(matches!(answer.status.as_u16(), 201 | 409), "{answer:?}");
    }
    let listed = world.api(Method::GET, "/v1/orgs/local/runs", None).await;
    assert_eq!(listed.body["runs"].as_array().unwrap().len(), 1);
    let again = keyed(&world, Method::POST, &path, "same", Some(json!({}))).await;
    assert_eq!(again.body["run"]["id"], listed.body["runs"][0]["id"]);
}

#[tokio::test]
async fn a_caller_that_hangs_up_finds_its_answer_later() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let path = format!("/v1/orgs/local/workflows/{workflow}/runs");
    let mut changes = trestle_store::Store::changes(&*world.store);
    {
        let mut request = std::pin::pin!(keyed(&world, Method::POST, &path, "lost", Some(json!({}))));
        let hung_up = tokio::select! {
            biased;
            _ = changes.recv() => true,
            _ = &mut request => false,
        };
        let _ = hung_up;
    }
    let found = async {
        loop {
            let answer = keyed(&world, Method::POST, &path, "lost", Some(json!({}))).await;
            if answer.status == 201 {
                return answer;
            }
        }
    };
    tokio::time::timeout(crate::world::PATIENCE, found).await.unwrap();
    let listed = world.api(Method::GET, "/v1/orgs/local/runs", None).await;
    assert_eq!(listed.body["runs"].as_array().unwrap().len(), 1);
}
