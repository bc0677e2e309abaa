//! Who reaches what: every token on every route.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, Session, World};

/// A route of the document, with its parameters filled in.
struct Cell {
    method: Method,
    path: String,
    template: String,
    surface: Surface,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surface {
    Open,
    Pool,
    Control,
    Api,
}

/// What is expected of a token on a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passes,
    Unauthorized,
    Forbidden,
}

fn surface(path: &str) -> Surface {
    match path {
        "/healthz" | "/readyz" | "/runner/v1/register" | "/blobs/{key}" => Surface::Open,
        _ if path.starts_with("/runner/v1/pool/") => Surface::Pool,
        _ if path.starts_with("/runner/v1/runs/{run}/") => Surface::Control,
        _ if path.starts_with("/v1/") => Surface::Api,
        _ => panic!("{path} belongs to no surface"),
    }
}

/// All routes. Identifiers are unknown ones, except the run of the Runner
/// Control API, so that no call changes anything that a later one needs.
fn cells(session: &Session) -> Vec<Cell> {
    let document = trestle_server::openapi();
    let mut cells = Vec::new();
    for (template, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let surface = surface(template);
            let mut path = template.clone();
            if surface == Surface::Control {
                path = path.replace("{run}", &session.run);
            }
            path = path.replace("{org}", "local");
            while let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
                path.replace_range(from..=to, "unknown");
            }
            cells.push(Cell {
                method: method.to_uppercase().parse().unwrap(),
                path,
                template: template.clone(),
                surface,
            });
        }
    }
    assert!(cells.len() > 60, "only {} routes", cells.len());
    cells
}

async fn ask(world: &World, cell: &Cell, token: Option<&str>) -> Answer {
    let mut request = world.client.request(cell.method.clone(), world.url(&cell.path));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if cell.method != Method::GET && cell.method != Method::DELETE {
        // Refused by every handler that reads a body, after the guard.
        request = request.header("content-type", "application/json").body("[");
    }
    Answer::of(request.send().await.unwrap()).await
}

fn verdict(answer: &Answer) -> Verdict {
    match answer.status.as_u16() {
        401 => {
            assert_eq!(answer.code(), "UNAUTHORIZED");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            Verdict::Unauthorized
        }
        403 if answer.message().contains("another run") || answer.message().contains("does not reach") => {
            assert_eq!(answer.code(), "FORBIDDEN");
            Verdict::Forbidden
        }
        _ => Verdict::Passes,
    }
}

/// How far a run's API token with `contents: read` reaches.
fn readable(cell: &Cell) -> bool {
    cell.method == Method::GET
        && !matches!(
            cell.template.as_str(),
            "/v1/orgs/{org}/secrets"
                | "/v1/orgs/{org}/runners"
                | "/v1/orgs/{org}/runner-pools"
                | "/v1/orgs/{org}/inference-providers"
        )
}

fn startable(cell: &Cell) -> bool {
    readable(cell)
        || matches!(
            (cell.method.as_str(), cell.template.as_str()),
            ("POST", "/v1/orgs/{org}/workflows/{workflow}/runs" | "/v1/runs/{run}/cancel")
        )
}

#[tokio::test]
async fn every_token_on_every_route_reaches_exactly_its_own() {
    let world = World::start_with(|config| {
        config.intervals.poll_hold_min_ms = 1;
        config.intervals.poll_hold_max_ms = 1;
    })
    .await;
    let reading = world.deploy("reading", json!({})).await;
    let writing = world.deploy("writing", json!({ "permissions": { "contents": "write" } })).await;
    let nothing = world.deploy("nothing", json!({ "permissions": { "contents": "none" } })).await;
    let session = world.session(&reading, Value::Null).await;
    let other = world.session(&writing, Value::Null).await;
    let third = world.session(&nothing, Value::Null).await;
    let registration = world
        .api(Method::POST, "/v1/orgs/local/runner-pools/default/registration-tokens", None)
        .await
        .body["registrationToken"]
        .as_str()
        .unwrap()
        .to_owned();
    let cut = &session.token[..session.token.len() - 1];

    for cell in cells(&session) {
        let expected = |token: &str| match (cell.surface, token) {
            (Surface::Open, _) => Verdict::Passes,
            (Surface::Pool, "runner") => Verdict::Passes,
            (Surface::Control, "run") => Verdict::Passes,
            (Surface::Control, "other run") => Verdict::Forbidden,
            (Surface::Api, "admin") => Verdict::Passes,
            (Surface::Api, "api, reading") if readable(&cell) => Verdict::Passes,
            (Surface::Api, "api, writing") if startable(&cell) => Verdict::Passes,
            (Surface::Api, "api, nothing") if cell.template == "/v1/me" => Verdict::Passes,
            (Surface::Api, "api, reading" | "api, writing" | "api, nothing") => Verdict::Forbidden,
            _ => Verdict::Unauthorized,
        };
        for (name, token) in [
            ("none", None),
            ("garbage", Some("bwk_garbage")),
            ("cut run", Some(cut)),
            ("registration", Some(registration.as_str())),
            ("runner", Some(session.runner.token.as_str())),
            ("run", Some(session.token.as_str())),
            ("other run", Some(other.token.as_str())),
            ("api, reading", Some(session.api_token.as_str())),
            ("api, writing", Some(other.api_token.as_str())),
            ("api, nothing", Some(third.api_token.as_str())),
            ("admin", Some(world.admin.as_str())),
        ] {
            let answer = ask(&world, &cell, token).await;
            let found = verdict(&answer);
            assert_eq!(found, expected(name), "{} {} with {name}: {answer:?}", cell.method, cell.template);
        }
    }
}

#[tokio::test]
async fn only_health_registration_and_signed_addresses_need_no_token() {
    let document = trestle_server::openapi();
    let mut open = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation.get("security").is_none() {
                open.insert(format!("{method} {path}"));
            }
        }
    }
    let expected =
        ["get /healthz", "get /readyz", "post /runner/v1/register", "get /blobs/{key}", "put /blobs/{key}"];
    assert_eq!(open, expected.into_iter().map(str::to_owned).collect());
}

#[tokio::test]
async fn a_token_of_another_kind_is_named_with_a_hint() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    for (path, method, token, named) in [
        ("/v1/me", Method::GET, session.token.as_str(), "a run token"),
        ("/v1/me", Method::GET, session.runner.token.as_str(), "a runner token"),
        ("/runner/v1/pool/poll", Method::POST, world.admin.as_str(), "the administrator's token"),
        (&session.path("cancel"), Method::GET, session.api_token.as_str(), "an API token"),
        (&session.path("cancel"), Method::GET, "nonsense", "another kind of token"),
    ] {
        let answer = world.call(method, path, token, None).await;
        assert_eq!(answer.status, 401);
        assert!(answer.message().ends_with(named), "{answer:?}");
        assert!(!answer.hint().is_empty(), "{answer:?}");
        assert!(!answer.text.contains(token));
    }
    let answer = Answer::of(world.client.get(world.url("/v1/me")).send().await.unwrap()).await;
    assert!(answer.hint().contains("Bearer"), "{answer:?}");
}

#[tokio::test]
async fn an_api_token_is_dead_with_the_lease_of_its_run() {
    let world = World::start().await;
    let workflow = world.deploy("w", json!({})).await;
    let session = world.session(&workflow, Value::Null).await;
    let me = world.call(Method::GET, "/v1/me", &session.api_token, None).await;
    assert_eq!(me.status, 200);
    assert_eq!(me.body["memberships"][0]["role"], "viewer");
    assert_eq!(world.finalize(&session, json!(1)).await.status, 204);
    let me = world.call(Method::GET, "/v1/me", &session.api_token, None).await;
    assert_eq!(me.status, 401, "{me:?}");
}

#[tokio::test]
async fn unknown_paths_and_methods_answer_with_an_envelope() {
    let world = World::start().await;
    let answer = world.api(Method::GET, "/v1/nothing/here", None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"));
    let answer = world.api(Method::PUT, "/v1/me", None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (405, "METHOD_NOT_ALLOWED"));
    assert!(answer.headers.contains_key("allow"));
    let answer = world.api(Method::GET, "/v1/orgs/other/workflows", None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"));
    assert!(answer.hint().contains("local"));
}

#[tokio::test]
async fn the_caller_is_told_who_it_is() {
    let world = World::start().await;
    let me = world.api(Method::GET, "/v1/me", None).await;
    assert_eq!(me.status, 200);
    let membership = &me.body["memberships"][0];
    assert_eq!((&membership["slug"], &membership["role"]), (&json!("local"), &json!("owner")));
    assert_eq!(membership["orgId"].as_str().unwrap().len(), 26);
    assert!(me.body["user"]["email"].as_str().unwrap().contains('@'));
}
