use std::sync::Arc;

use super::{Bench, Factory};
use trestle_store::{Conflict, Entity, NewProvider, StoreError};

fn provider(name: &str, base_url: Option<&str>, sealed: Option<&[u8]>) -> NewProvider {
    NewProvider {
        name: name.to_owned(),
        source: "openai_compatible".to_owned(),
        base_url: base_url.map(str::to_owned),
        sealed: sealed.map(<[u8]>::to_vec),
    }
}

pub(crate) async fn a_provider_is_stored_listed_and_removed(factory: Arc<dyn Factory>) {
    let mut bench = Bench::new(factory).await;
    let stored = bench.store.create_provider(provider("b", Some("http://b/v1"), Some(b"key"))).await.unwrap();
    assert!(stored.has_key);
    bench.store.create_provider(provider("a", None, None)).await.unwrap();
    bench.reopen().await;
    let listed = bench.store.list_providers().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|row| (row.name.as_str(), row.has_key)).collect();
    assert_eq!(shown, [("a", false), ("b", true)]);
    let (row, sealed) = bench.store.provider("b").await.unwrap();
    assert_eq!((row, sealed.as_deref()), (stored, Some(b"key".as_slice())));
    bench.store.delete_provider("b").await.unwrap();
    for refused in [bench.store.delete_provider("b").await, bench.store.provider("b").await.map(|_| ())] {
        assert!(matches!(refused, Err(StoreError::NotFound(Entity::Provider))));
    }
}

pub(crate) async fn a_providers_name_is_taken_once(factory: Arc<dyn Factory>) {
    let bench = Bench::new(factory).await;
    bench.store.create_provider(provider("a", None, Some(b"one"))).await.unwrap();
    let again = bench.store.create_provider(provider("a", Some("http://x"), Some(b"two"))).await;
    assert!(matches!(again, Err(StoreError::Conflict(Conflict::NameTaken))));
    assert_eq!(bench.store.provider("a").await.unwrap().1.as_deref(), Some(b"one".as_slice()));
}
