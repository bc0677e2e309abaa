//! Artifacts and signed addresses.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, Session, World};

async fn session(world: &World) -> Session {
    let workflow = world.deploy("w", json!({})).await;
    world.session(&workflow, Value::Null).await
}

async fn put(world: &World, presigned: &Value, bytes: Vec<u8>) -> Answer {
    let mut request = world.client.put(presigned["uploadUrl"].as_str().unwrap()).body(bytes);
    for (name, value) in presigned["uploadHeaders"].as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn an_inline_artifact_is_written_once_and_read_under_its_address() {
    let world = World::start().await;
    let session = session(&world).await;
    let body = json!({
        "name": "r\u{e9}sum\u{e9}.html", "contentType": "text/html", "body": "PGI+aGk8L2I+",
        "encoding": "base64", "metadata": { "z": 1, "a": 2 },
    });
    let first = world.control(&session, Method::POST, "artifacts", Some(body.clone())).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!((&first.body["sizeBytes"], &first.body["name"]), (&json!(9), &json!("r\u{e9}sum\u{e9}.html")));
    let repeated = world.control(&session, Method::POST, "artifacts", Some(body)).await;
    assert_eq!(repeated.body["id"], first.body["id"]);

    let served = world.client.get(first.body["signedUrl"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(served.status(), 200);
    let header = |name: &str| served.headers()[name].to_str().unwrap().to_owned();
    // Nothing that a run writes runs in a browser.
    assert_eq!(header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert!(header("content-security-policy").contains("sandbox"));
    assert_eq!(header("content-length"), "9");
    assert!(header("content-disposition").contains("r%C3%A9sum%C3%A9"), "{:?}", served.headers());
    assert_eq!(served.text().await.unwrap(), "<b>hi</b>");

    let listed = world.control(&session, Method::GET, "artifacts", None).await;
    assert_eq!(listed.status, 200);
    let rows = listed.body["artifacts"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["contentType"], "text/html");
    let people = world.api(Method::GET, &format!("/v1/runs/{}/artifacts", session.run), None).await;
    assert_eq!(people.body["artifacts"][0]["metadata"], json!({ "z": 1, "a": 2 }));
    let id = first.body["id"].as_str().unwrap();
    let path = format!("/v1/runs/{}/artifacts/{id}/url", session.run);
    let address = world.api(Method::GET, &path, None).await;
    let again = world.client.get(address.body["signedUrl"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(again.text().await.unwrap(), "<b>hi</b>");
    // One set of bytes is kept, under a key of the run.
    let prefix = format!("orgs/{}/runs/{}", organisation(&world).await, session.run);
    let blobs = trestle_store::Blobs::local(&world.path().join("blobs")).unwrap();
    let kept = blobs.list(&prefix).await.unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].key.ends_with(".html"));
}

async fn organisation(world: &World) -> String {
    let me = world.api(Method::GET, "/v1/me", None).await;
    me.body["memberships"][0]["orgId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_large_artifact_is_announced_put_and_committed() {
    let world = World::start().await;
    let session = session(&world).await;
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let announced = json!({ "name": "big.svg", "contentType": "image/svg+xml", "sizeBytes": bytes.len() });
    let presigned = world.control(&session, Method::POST, "artifacts/presign", Some(announced.clone())).await;
    assert_eq!(presigned.status, 201, "{presigned:?}");
    assert_eq!(presigned.body["uploadHeaders"], json!({ "content-type": "text/plain; charset=utf-8" }));
    let mut commit = announced;
    commit["s3Key"] = presigned.body["s3Key"].clone();
    let early = world.control(&session, Method::POST, "artifacts/commit", Some(commit.clone())).await;
    assert_eq!((early.status.as_u16(), early.code()), (409, "CONFLICT"));
    for _ in 0..2 {
        assert_eq!(put(&world, &presigned.body, bytes.clone()).await.status, 200);
    }
    let first = world.control(&session, Method::POST, "artifacts/commit", Some(commit.clone())).await;
    assert_eq!(first.status, 201, "{first:?}");
    let repeated = world.control(&session, Method::POST, "artifacts/commit", Some(commit)).await;
    assert_eq!((repeated.status.as_u16(), &repeated.body["id"]), (201, &first.body["id"]));
    let served = world.client.get(first.body["signedUrl"].as_str().unwrap()).send().await.unwrap();
    assert!(served.bytes().await.unwrap() == bytes);
    // Committed bytes are final, although the address still has time.
    let late = put(&world, &presigned.body, vec![0; bytes.len()]).await;
    assert_eq!((late.status.as_u16(), late.code()), (409, "CONFLICT"));
    let listed = world.control(&session, Method::GET, "artifacts", None).await;
    assert_eq!(listed.body["artifacts"].as_array().unwrap().len(), 1);

    let id = first.body["id"].as_str().unwrap();
    let sign = |body: Value| {
        let suffix = format!("artifacts/{id}/signed-url");
        let (world, session) = (&world, &session);
        async move { world.control(session, Method::POST, &suffix, Some(body)).await }
    };
    let signed = sign(json!({ "ttlSeconds": 60 })).await;
    assert_eq!(signed.status, 200, "{signed:?}");
    let served = world.client.get(signed.body["signedUrl"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(served.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(sign(json!({ "ttlSeconds": 0 })).await.status, 400);
    assert_eq!(sign(json!({ "ttlSeconds": 604_801 })).await.status, 400);
    assert_eq!(sign(json!({})).await.status, 200);
    let unknown = world.control(&session, Method::POST, "artifacts/x/signed-url", Some(json!({}))).await;
    assert_eq!((unknown.status.as_u16(), unknown.code()), (404, "NOT_FOUND"));
}

#[tokio::test]
async fn an_upload_that_is_not_what_was_announced_is_refused() {
    let world = World::start().await;
    let session = session(&world).await;
    let announced = json!({ "name": "a.bin", "contentType": "application/octet-stream", "sizeBytes": 4 });
    let presigned =
        world.control(&session, Method::POST, "artifacts/presign", Some(announced.clone())).await.body;
    for bytes in [vec![1; 3], vec![1; 5]] {
        let answer = put(&world, &presigned, bytes).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"));
    }
    let url = presigned["uploadUrl"].as_str().unwrap().to_owned();
    let other_type = world.client.put(&url).header("content-type", "text/html").body("abcd");
    assert_eq!(other_type.send().await.unwrap().status(), 403);
    for changed in [
        url.replace("length=4", "length=5"),
        url.replace(".bin", ".txt"),
        url.replace("expires=", "expires=9"),
        url[..url.len() - 1].to_owned(),
        url.split("&signature").next().unwrap().to_owned(),
        url.split('?').next().unwrap().to_owned(),
    ] {
        let request = world.client.put(&changed).header("content-type", "application/octet-stream");
        let answer = Answer::of(request.body("abcde").send().await.unwrap()).await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{changed} {answer:?}");
        answer.code();
    }
    // A right to write is no right to read.
    assert_eq!(world.client.get(&url).send().await.unwrap().status(), 403);
    world.boot.advance(std::time::Duration::from_secs(16 * 60));
    let late = put(&world, &presigned, vec![1; 4]).await;
    assert_eq!((late.status.as_u16(), late.code()), (403, "FORBIDDEN"));
}

#[tokio::test]
async fn artifacts_of_another_run_are_out_of_reach() {
    let world = World::start().await;
    let first = session(&world).await;
    let runner = world.runner().await;
    let workflow = world.deploy("v", json!({})).await;
    world.trigger(&workflow, Value::Null).await;
    let second = world.session_of(&runner).await;
    let written = world
        .control(
            &first,
            Method::POST,
            "artifacts",
            Some(json!({ "name": "a", "contentType": "text/plain", "body": "x" })),
        )
        .await;
    let id = written.body["id"].as_str().unwrap();
    let suffix = format!("artifacts/{id}/signed-url");
    let answer = world.control(&second, Method::POST, &suffix, Some(json!({}))).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "NOT_FOUND"));
    let announced = json!({ "name": "a", "contentType": "text/plain", "sizeBytes": 1 });
    let presigned = world.control(&first, Method::POST, "artifacts/presign", Some(announced)).await.body;
    put(&world, &presigned, vec![1]).await;
    let commit = json!({
        "s3Key": presigned["s3Key"], "name": "a", "contentType": "text/plain", "sizeBytes": 1,
    });
    let answer = world.control(&second, Method::POST, "artifacts/commit", Some(commit)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (403, "FORBIDDEN"));
    let listed = world.control(&second, Method::GET, "artifacts", None).await;
    assert_eq!(listed.body, json!({ "artifacts": [] }));
}

#[tokio::test]
async fn an_artifact_beyond_its_size_is_refused_before_its_bytes() {
    let world = World::start_with(|config| config.limits.artifact = 100).await;
    let session = session(&world).await;
    let announced = json!({ "name": "a", "contentType": "text/plain", "sizeBytes": 101 });
    let answer = world.control(&session, Method::POST, "artifacts/presign", Some(announced)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (413, "PAYLOAD_TOO_LARGE"));
    let body = json!({ "name": "a", "contentType": "text/plain", "body": "x".repeat(101) });
    let answer = world.control(&session, Method::POST, "artifacts", Some(body)).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (413, "PAYLOAD_TOO_LARGE"));
    for wrong in [
        json!({ "name": "", "contentType": "text/plain", "body": "x" }),
        json!({ "name": "x".repeat(256), "contentType": "text/plain", "body": "x" }),
        json!({ "name": "a", "contentType": "a\r\nb: c", "body": "x" }),
        json!({ "name": "a\u{7}", "contentType": "text/plain", "body": "x" }),
        json!({ "name": "a", "contentType": "text/plain", "body": "*", "encoding": "base64" }),
    ] {
        let answer = world.control(&session, Method::POST, "artifacts", Some(wrong.clone())).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "VALIDATION_FAILED"), "{wrong}");
    }
}
