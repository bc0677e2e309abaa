//! Workflows and lists of runs.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn workflows_are_listed_shown_switched_and_removed() {
    let world = World::start().await;
    let nightly = world.deploy("nightly", json!({ "title": "Nightly Report" })).await;
    let other = world.deploy("other", json!({})).await;
    let run = world.trigger(&nightly, json!(1)).await;
    let list = |query: &str| {
        let path = format!("/v1/orgs/local/workflows{query}");
        let world = &world;
        async move { world.api(Method::GET, &path, None).await.body["workflows"].clone() }
    };
    let all = list("").await;
    let row = &all[0];
    assert_eq!(row["slug"], "nightly");
    for key in
        ["id", "slug", "title", "currentVersionId", "triggerKinds", "updatedAt", "lastRun", "disabledAt"]
    {
        assert!(row.as_object().unwrap().contains_key(key), "{key}");
    }
    assert_eq!(row["lastRun"]["status"], "pending");
    assert_eq!(all[1]["lastRun"], Value::Null);
    assert_eq!(list("?q=REPORT").await.as_array().unwrap().len(), 1);
    assert_eq!(list("?q=t").await.as_array().unwrap().len(), 2);
    assert_eq!(list("?q=zzz").await, json!([]));

    // By id and by slug.
    for reference in [nightly.as_str(), "nightly"] {
        let detail = world.api(Method::GET, &format!("/v1/workflows/{reference}"), None).await;
        assert_eq!(detail.status, 200);
        assert_eq!(detail.body["workflow"]["id"], nightly.as_str());
        assert_eq!(detail.body["workflow"]["currentVersionId"], detail.body["versions"][0]["id"]);
    }
    let path = format!("/v1/workflows/{nightly}");
    for _ in 0..2 {
        let disabled = world.api(Method::POST, &format!("{path}/disable"), None).await;
        assert_eq!(disabled.status, 200);
        assert!(disabled.body["workflow"]["disabledAt"].is_i64());
    }
    let refused = world.api(Method::POST, "/v1/orgs/local/workflows/nightly/runs", Some(json!({}))).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (409, "WORKFLOW_DISABLED"));
    assert!(refused.hint().contains("enable"));
    assert_eq!(world.run(&run).await["status"], "pending");
    let enabled = world.api(Method::POST, &format!("{path}/enable"), None).await;
    assert_eq!(enabled.body["workflow"]["disabledAt"], Value::Null);
    world.trigger("nightly", json!(1)).await;

    for _ in 0..2 {
        let deleted = world.api(Method::DELETE, &path, None).await;
        assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
    }
    let gone = world.api(Method::GET, &path, None).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (404, "NOT_FOUND"));
    assert_eq!(list("").await.as_array().unwrap().len(), 1);
    // Its runs are still there, and run.
    assert_eq!(world.run(&run).await["status"], "pending");
    assert_ne!(world.deploy("nightly", json!({ "title": "new" })).await, nightly);
    assert_ne!(other, nightly);
}

#[tokio::test]
async fn runs_are_listed_newest_first_page_by_page() {
    let world = World::start().await;
    let (one, two) = (world.deploy("one", json!({})).await, world.deploy("two", json!({})).await);
    let mut runs = Vec::new();
    for index in 0..7 {
        let workflow = if index % 2 == 0 { &one } else { &two };
        runs.push(world.trigger(workflow, json!(index)).await);
    }
    world.api(Method::POST, &format!("/v1/runs/{}/cancel", runs[3]), None).await;
    runs.reverse();
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/orgs/local/runs?limit=3{cursor}");
        let page = world.api(Method::GET, &path, None).await;
        assert_eq!(page.status, 200, "{page:?}");
        let rows = page.body["runs"].as_array().unwrap();
        assert!(rows.len() <= 3);
        found.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        match page.body["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, runs);
    let ids = |path: String| {
        let world = &world;
        async move {
            let page = world.api(Method::GET, &path, None).await;
            page.body["runs"].as_array().unwrap().len()
        }
    };
    assert_eq!(ids("/v1/orgs/local/runs?status=cancelled".to_owned()).await, 1);
    assert_eq!(ids(format!("/v1/orgs/local/workflows/{two}/runs")).await, 3);
    assert_eq!(ids("/v1/orgs/local/workflows/two/runs?status=pending".to_owned()).await, 2);
    for wrong in ["status=paused", "limit=many", "cursor=x"] {
        let answer = world.api(Method::GET, &format!("/v1/orgs/local/runs?{wrong}"), None).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"), "{wrong}");
    }
    let answer = world.api(Method::GET, "/v1/orgs/local/runs?limit=0", None).await;
    assert_eq!(answer.body["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn unknown_slugs_runs_and_environments_are_named_with_a_hint() {
    let world = World::start().await;
    world.deploy("w", json!({})).await;
    let environment = json!({ "environment": "prod" });
    for (method, path, body) in [
        (Method::POST, "/v1/orgs/local/workflows/nobody/runs", Some(json!({}))),
        (Method::POST, "/v1/orgs/local/workflows/w/runs", Some(environment)),
        (Method::GET, "/v1/runs/nobody", None),
        (Method::GET, "/v1/runs/nobody/events", None),
        (Method::GET, "/v1/runs/nobody/stream", None),
        (Method::POST, "/v1/runs/nobody/cancel", None),
        (Method::GET, "/v1/workflows/nobody", None),
    ] {
        let answer = world.api(method, path, body).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"), "{path}");
        assert!(!answer.hint().is_empty(), "{path}");
    }
    for path in ["/v1/secrets/nobody", "/v1/runners/nobody"] {
        let answer = world.api(Method::DELETE, path, None).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"), "{path}");
    }
}
