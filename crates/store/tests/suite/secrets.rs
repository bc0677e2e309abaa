use std::sync::Arc;

use super::{Bench, Factory};
use trestle_store::{Conflict, Entity, IfExists, NewSecret, StoreError};

fn secret(name: &str, environment: Option<&str>, sealed: &[u8]) -> NewSecret {
    NewSecret {
        name: name.to_owned(),
        environment: environment.map(str::to_owned),
        scope: "org".to_owned(),
        kind: "api_key".to_owned(),
        description: Some("for tests".to_owned()),
        last4: Some("1234".to_owned()),
        sealed: sealed.to_vec(),
        if_exists: IfExists::Replace,
    }
}

pub(crate) async fn a_secret_is_made_replaced_and_rotated(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let (first, made) = bench.store.put_secret(secret("KEY", None, b"one")).await.unwrap();
    assert!(made);
    assert_eq!((first.last4.as_deref(), first.environment.as_deref()), (Some("1234"), None));
    bench.advance(5);
    let mut replacement = secret("KEY", None, b"two");
    replacement.description = None;
    let (second, made) = bench.store.put_secret(replacement).await.unwrap();
    assert!(!made);
    assert_eq!((second.id.clone(), second.description.as_deref()), (first.id.clone(), Some("for tests")));
    assert_eq!((second.created_at, second.updated_at), (first.created_at, first.created_at + 5));
    assert_eq!(bench.store.sealed_secret("KEY", None).await.unwrap().1, b"two");
    let rotated = bench.store.rotate_secret(&first.id, b"three".to_vec(), None).await.unwrap();
    assert_eq!(rotated.last4, None);
    assert_eq!(bench.store.sealed_secret("KEY", None).await.unwrap().1, b"three");
}

pub(crate) async fn a_taken_name_is_refused(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.put_secret(secret("KEY", None, b"one")).await.unwrap();
    let mut again = secret("KEY", None, b"two");
    again.if_exists = IfExists::Refuse;
    assert!(matches!(
        bench.store.put_secret(again.clone()).await,
        Err(StoreError::Conflict(Conflict::NameTaken))
    ));
    assert_eq!(bench.store.sealed_secret("KEY", None).await.unwrap().1, b"one");
    again.environment = Some("prod".to_owned());
    assert!(bench.store.put_secret(again).await.unwrap().1, "another environment is another secret");
}

pub(crate) async fn the_environment_comes_before_the_organisation(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.put_secret(secret("KEY", None, b"org")).await.unwrap();
    bench.store.put_secret(secret("KEY", Some("prod"), b"prod")).await.unwrap();
    bench.store.put_secret(secret("ONLY", Some("prod"), b"only")).await.unwrap();
    let value = |name: &'static str, environment: Option<&'static str>| {
        let store = bench.store.clone();
        async move { store.sealed_secret(name, environment).await.map(|found| found.1) }
    };
    assert_eq!(value("KEY", Some("prod")).await.unwrap(), b"prod");
    assert_eq!(value("KEY", Some("test")).await.unwrap(), b"org");
    assert_eq!(value("KEY", None).await.unwrap(), b"org");
    assert!(matches!(value("ONLY", None).await, Err(StoreError::NotFound(Entity::Secret))));
    let names: Vec<_> = bench
        .store
        .list_secrets()
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.name, row.environment))
        .collect();
    let prod = Some("prod".to_owned());
    assert_eq!(
        names,
        [("KEY".to_owned(), None), ("KEY".to_owned(), prod.clone()), ("ONLY".to_owned(), prod)]
    );
}

pub(crate) async fn a_deleted_secret_is_gone(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    let (row, _) = bench.store.put_secret(secret("KEY", None, b"one")).await.unwrap();
    bench.store.delete_secret(&row.id).await.unwrap();
    for gone in [
        bench.store.delete_secret(&row.id).await,
        bench.store.sealed_secret("KEY", None).await.map(|_| ()),
        bench.store.rotate_secret(&row.id, Vec::new(), None).await.map(|_| ()),
    ] {
        assert!(matches!(gone, Err(StoreError::NotFound(Entity::Secret))));
    }
    assert!(bench.store.list_secrets().await.unwrap().is_empty());
}
