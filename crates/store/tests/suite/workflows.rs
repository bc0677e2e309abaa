use std::sync::Arc;

use super::{Bench, Factory, json, new_run, version};
use trestle_store::{DeployTarget, Entity, StoreError};

pub(crate) async fn the_organisation_is_made_once_and_kept(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let first = bench.store.organisation().await.unwrap();
    assert_eq!(first.slug, "local");
    assert_eq!(first.id.len(), 26);
    bench.reopen().await;
    assert_eq!(bench.store.organisation().await.unwrap(), first);
    bench.store.check().await.unwrap();
}

pub(crate) async fn the_same_content_makes_no_new_version(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let first = bench.store.deploy(version("flow", "a")).await.unwrap();
    assert!(first.workflow_created && first.version_created);
    assert_eq!((first.version.number, first.workflow.slug.as_str()), (1, "flow"));
    let again = bench.store.deploy(version("flow", "a")).await.unwrap();
    assert!(!again.workflow_created && !again.version_created);
    assert_eq!(again.version.id, first.version.id);
    assert_eq!(bench.store.list_versions(&first.workflow.id).await.unwrap().len(), 1);
    let other = bench.store.deploy(version("flow", "b")).await.unwrap();
    assert_eq!((other.version.number, other.workflow.current_version), (2, Some(other.version.id.clone())));
    assert_eq!(other.version.manifest.get(), version("flow", "b").manifest.get());
}

pub(crate) async fn a_former_content_becomes_current_again(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let mut first = version("flow", "a");
    first.title = Some("First".to_owned());
    let one = bench.store.deploy(first.clone()).await.unwrap();
    bench.store.deploy(version("flow", "b")).await.unwrap();
    let back = bench.store.deploy(first).await.unwrap();
    assert_eq!(back.workflow.current_version, Some(one.version.id));
    assert_eq!(back.workflow.title.as_deref(), Some("First"), "the title is that of the current version");
    let numbers: Vec<i64> =
        bench.store.list_versions(&one.workflow.id).await.unwrap().iter().map(|row| row.number).collect();
    assert_eq!(numbers, [2, 1]);
}

pub(crate) async fn deploy_options_make_another_version(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let plain = bench.store.deploy(version("flow", "a")).await.unwrap();
    let mut strict = version("flow", "a");
    strict.deploy_options = Some(json("{\"replay\":\"strict\"}"));
    strict.warnings = vec!["careful".to_owned()];
    let other = bench.store.deploy(strict).await.unwrap();
    assert_ne!(plain.version.id, other.version.id);
    let stored = bench.store.version(&other.version.id).await.unwrap();
    assert_eq!(stored.deploy_options.unwrap().get(), "{\"replay\":\"strict\"}");
    assert_eq!(stored.warnings, ["careful"]);
    assert!(plain.version.deploy_options.is_none());
}

pub(crate) async fn a_deploy_by_id_keeps_the_slug(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let mut renamed = version("other", "b");
    renamed.target = DeployTarget::Workflow(workflow.id.clone());
    let deployed = bench.store.deploy(renamed.clone()).await.unwrap();
    assert_eq!((deployed.workflow.id, deployed.workflow.slug.as_str()), (workflow.id.clone(), "flow"));
    bench.store.delete_workflow(&workflow.id).await.unwrap();
    let refusal = bench.store.deploy(renamed).await.unwrap_err();
    assert!(matches!(refusal, StoreError::NotFound(Entity::Workflow)));
}

pub(crate) async fn the_list_shows_each_workflow_with_its_newest_run(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let beta = bench.workflow("beta").await;
    bench.workflow("alpha").await;
    bench.store.create_run(new_run(&beta, &[])).await.unwrap();
    bench.advance(5);
    let newest = bench.store.create_run(new_run(&beta, &[])).await.unwrap().run;
    bench.store.request_cancel(&newest.id).await.unwrap();
    let list = bench.store.list_workflows(None).await.unwrap();
    let slugs: Vec<&str> = list.iter().map(|row| row.workflow.slug.as_str()).collect();
    assert_eq!(slugs, ["alpha", "beta"]);
    assert_eq!(list[0].last_run, None);
    assert_eq!(list[1].last_run, Some((trestle_contract::event::RunStatus::Cancelled, newest.created_at)));
    assert_eq!(list[1].workflow.trigger_kinds, ["manual"]);
    let found = bench.store.list_workflows(Some("title OF BET")).await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(bench.store.list_workflows(Some("gamma")).await.unwrap().is_empty());
}

pub(crate) async fn a_deleted_workflow_frees_its_slug_and_its_runs_go_on(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let runner = bench.runner("one", &[]).await;
    let held = bench.running(&runner).await;
    let old = bench.store.workflow_by_slug("flow").await.unwrap();
    bench.store.delete_workflow(&old.id).await.unwrap();
    bench.store.delete_workflow(&old.id).await.unwrap();
    assert!(matches!(bench.store.workflow(&old.id).await, Err(StoreError::NotFound(Entity::Workflow))));
    assert!(bench.store.list_workflows(None).await.unwrap().is_empty());
    bench.complete(&held).await.unwrap();
    let run = bench.store.run(&held.run).await.unwrap();
    assert_eq!(run.workflow_slug, "flow");
    bench.store.version(&run.version).await.unwrap();
    assert_ne!(bench.workflow("flow").await.id, old.id);
}

pub(crate) async fn disabling_twice_changes_nothing(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let workflow = bench.workflow("flow").await;
    let off = bench.store.set_workflow_disabled(&workflow.id, true).await.unwrap();
    bench.advance(10);
    assert_eq!(bench.store.set_workflow_disabled(&workflow.id, true).await.unwrap(), off);
    assert!(off.disabled_at.is_some());
    let on = bench.store.set_workflow_disabled(&workflow.id, false).await.unwrap();
    assert_eq!(on.disabled_at, None);
}
