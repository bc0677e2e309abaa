use std::sync::Arc;

use super::{Bench, Factory, Held, json, version};
use trestle_store::{Conflict, Entity, NewArtifact, NewUpload, StoreError, UploadPurpose};

fn artifact(held: &Held, name: &str, sha: &str) -> NewArtifact {
    NewArtifact {
        fence: held.fence.clone(),
        name: name.to_owned(),
        content_type: "text/html".to_owned(),
        size: 12,
        sha256: sha.repeat(64),
        blob_key: format!("artifacts/{name}-{sha}"),
        metadata: Some(json("{\"kind\":\"screenshot\"}")),
        upload_key: None,
    }
}

fn upload(purpose: UploadPurpose, key: &str) -> NewUpload {
    NewUpload {
        key: key.to_owned(),
        purpose,
        blob_key: format!("programs/{key}"),
        size: 12,
        sha256: Some("a".repeat(64)),
        content_type: "application/gzip".to_owned(),
        metadata: None,
        lifetime_ms: 3_600_000,
    }
}

pub(crate) async fn a_retried_write_is_the_same_artifact(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let first = bench.store.write_artifact(artifact(&held, "report", "a")).await.unwrap();
    assert!(first.created);
    assert_eq!(first.artifact.metadata.as_ref().unwrap().get(), "{\"kind\":\"screenshot\"}");
    let mut again = artifact(&held, "report", "a");
    again.blob_key = "artifacts/another-place".to_owned();
    let again = bench.store.write_artifact(again).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.artifact, first.artifact);
    assert!(bench.store.write_artifact(artifact(&held, "report", "b")).await.unwrap().created);
    assert!(bench.store.write_artifact(artifact(&held, "other", "a")).await.unwrap().created);
    assert_eq!(bench.store.artifact(&first.artifact.id).await.unwrap(), first.artifact);
    bench.lose().await;
    let refusal = bench.store.write_artifact(artifact(&held, "report", "c")).await.unwrap_err();
    assert!(matches!(refusal, StoreError::Conflict(Conflict::Displaced)));
}

pub(crate) async fn the_same_content_later_is_another_artifact(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let first = bench.store.write_artifact(artifact(&held, "report", "a")).await.unwrap();
    for _ in 0..6 {
        bench.advance(50_000);
        bench.beat(&held).await.unwrap();
        bench.store.renew(&held.fence, super::LEASE).await.unwrap();
    }
    let later = bench.store.write_artifact(artifact(&held, "report", "a")).await.unwrap();
    assert!(later.created);
    assert_ne!(later.artifact.id, first.artifact.id);
}

pub(crate) async fn a_commit_happens_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let purpose = UploadPurpose::Artifact { run: held.run.clone() };
    bench.store.create_upload(upload(purpose, "u1")).await.unwrap();
    bench.store.receive_upload("u1", 12, &"a".repeat(64)).await.unwrap();
    let mut commit = artifact(&held, "big", "a");
    commit.upload_key = Some("u1".to_owned());
    let first = bench.store.write_artifact(commit.clone()).await.unwrap();
    assert!(first.created);
    bench.advance(60_000);
    bench.beat(&held).await.unwrap();
    let again = bench.store.write_artifact(commit).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.artifact, first.artifact);
    assert!(bench.store.upload("u1").await.unwrap().claimed);
    bench.advance(3_600_000);
    assert!(bench.store.sweep_uploads().await.unwrap().is_empty(), "what was committed stays");
}

pub(crate) async fn an_upload_of_another_run_cannot_be_committed(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let owner = bench.running(&runner).await;
    let thief = bench.running(&runner).await;
    let purpose = UploadPurpose::Artifact { run: owner.run.clone() };
    bench.store.create_upload(upload(purpose, "u1")).await.unwrap();
    let mut commit = artifact(&thief, "big", "a");
    commit.upload_key = Some("u1".to_owned());
    assert!(matches!(
        bench.store.write_artifact(commit.clone()).await,
        Err(StoreError::NotFound(Entity::Upload))
    ));
    commit.fence = owner.fence.clone();
    bench.store.write_artifact(commit).await.unwrap();
}

pub(crate) async fn an_upload_is_checked_against_its_announcement(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.create_upload(upload(UploadPurpose::Program, "u1")).await.unwrap();
    let short = bench.store.receive_upload("u1", 11, &"a".repeat(64)).await;
    assert!(matches!(short, Err(StoreError::Mismatch(_))));
    let other = bench.store.receive_upload("u1", 12, &"b".repeat(64)).await;
    assert!(matches!(other, Err(StoreError::Mismatch(_))));
    let row = bench.store.receive_upload("u1", 12, &"a".repeat(64)).await.unwrap();
    assert_eq!((row.received_size, row.claimed), (Some(12), false));
    let mut other = upload(UploadPurpose::Program, "u1");
    other.size = 13;
    assert!(matches!(bench.store.create_upload(other).await, Err(StoreError::Invalid(_))));
}

pub(crate) async fn unclaimed_uploads_go_after_their_time(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.create_upload(upload(UploadPurpose::Program, "old")).await.unwrap();
    bench.advance(1_800_000);
    bench.store.create_upload(upload(UploadPurpose::Program, "young")).await.unwrap();
    bench.advance(1_800_000);
    assert!(matches!(bench.store.upload("old").await, Err(StoreError::NotFound(Entity::Upload))));
    assert_eq!(bench.store.sweep_uploads().await.unwrap(), ["programs/old"]);
    bench.store.upload("young").await.unwrap();
    // Announced again, it lives as long as a new one.
    bench.store.create_upload(upload(UploadPurpose::Program, "young")).await.unwrap();
    bench.advance(3_599_999);
    assert!(bench.store.sweep_uploads().await.unwrap().is_empty());
}

pub(crate) async fn a_deploy_claims_its_upload(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.create_upload(upload(UploadPurpose::Program, "content-1")).await.unwrap();
    bench.store.deploy(version("flow", "content-1")).await.unwrap();
    bench.advance(3_600_000);
    assert!(bench.store.sweep_uploads().await.unwrap().is_empty());
    assert!(bench.store.upload("content-1").await.unwrap().claimed);
    // Another upload to the same place goes, the deployed bytes stay.
    let mut twin = upload(UploadPurpose::Program, "twin");
    twin.blob_key = "programs/content-1".to_owned();
    bench.store.create_upload(twin).await.unwrap();
    bench.advance(3_600_000);
    assert!(bench.store.sweep_uploads().await.unwrap().is_empty());
}

pub(crate) async fn artifacts_are_listed_oldest_first(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let other = bench.running(&runner).await;
    for name in ["z", "a", "m"] {
        bench.store.write_artifact(artifact(&held, name, "a")).await.unwrap();
    }
    bench.store.write_artifact(artifact(&other, "x", "a")).await.unwrap();
    let names: Vec<String> =
        bench.store.list_artifacts(&held.run).await.unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["z", "a", "m"]);
}
