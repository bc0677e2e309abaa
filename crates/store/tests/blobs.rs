//! Blobs on the local file system.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use trestle_store::{BlobExpectation, Blobs, Entity, StoreError};

const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn blobs() -> (Blobs, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    (Blobs::local(&directory.path().join("blobs")).unwrap(), directory)
}

fn files(directory: &tempfile::TempDir) -> Vec<String> {
    fn walk(path: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path.display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    walk(directory.path(), &mut found);
    found
}

fn chunks(sizes: &[usize]) -> Vec<Result<Bytes, std::io::Error>> {
    sizes
        .iter()
        .enumerate()
        .map(|(index, size)| Ok(Bytes::from(vec![u8::try_from(index % 251).unwrap(); *size])))
        .collect()
}

#[tokio::test]
async fn a_blob_comes_back_as_it_was_put() {
    let (blobs, _directory) = blobs();
    let expected = BlobExpectation { size: Some(5), sha256: Some(HELLO), max_size: Some(5) };
    let stored = blobs.put("programs/one.tgz", Bytes::from_static(b"hello"), expected).await.unwrap();
    assert_eq!((stored.size, stored.sha256.as_str()), (5, HELLO));
    assert_eq!(blobs.read("programs/one.tgz", 5).await.unwrap(), "hello");
    assert_eq!(blobs.size("programs/one.tgz").await.unwrap(), Some(5));
    let part = blobs.get_range("programs/one.tgz", 1..3).await.unwrap();
    assert_eq!(part.size, 5);
    assert_eq!(part.bytes.try_collect::<Vec<_>>().await.unwrap().concat(), b"el");
    let cut = blobs.get_range("programs/one.tgz", 3..99).await.unwrap();
    assert_eq!(cut.bytes.try_collect::<Vec<_>>().await.unwrap().concat(), b"lo");
    assert!(matches!(blobs.read("programs/one.tgz", 4).await, Err(StoreError::Invalid(_))));
}

#[tokio::test]
async fn a_stream_of_any_chunks_is_one_blob() {
    let (blobs, _directory) = blobs();
    for sizes in [&[][..], &[0, 0], &[1, 0, 7], &[3 * 1024 * 1024 + 1, 5], &[1024 * 1024], &[999; 3000]] {
        let whole: Vec<u8> = chunks(sizes).into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
        let stored =
            blobs.put_stream("a/b", stream::iter(chunks(sizes)), BlobExpectation::default()).await.unwrap();
        assert_eq!(stored.size, whole.len() as u64);
        let back = blobs.get("a/b").await.unwrap();
        assert_eq!(back.size, whole.len() as u64);
        assert!(back.bytes.try_collect::<Vec<_>>().await.unwrap().concat() == whole);
    }
}

#[tokio::test]
async fn wrong_bytes_leave_nothing_behind() {
    let (blobs, directory) = blobs();
    let wrong = [
        BlobExpectation { size: Some(4), ..BlobExpectation::default() },
        BlobExpectation { size: Some(6), ..BlobExpectation::default() },
        BlobExpectation { max_size: Some(4), ..BlobExpectation::default() },
        BlobExpectation { sha256: Some("00"), ..BlobExpectation::default() },
    ];
    for expected in wrong {
        let refusal = blobs.put("x", Bytes::from_static(b"hello"), expected).await.unwrap_err();
        assert!(matches!(refusal, StoreError::Mismatch(_)), "{expected:?}: {refusal}");
    }
    let mut broken = chunks(&[2 * 1024 * 1024, 10]);
    broken.push(Err(std::io::Error::other("the line is dead")));
    let refusal = blobs.put_stream("x", stream::iter(broken), BlobExpectation::default()).await.unwrap_err();
    assert!(refusal.to_string().contains("the line is dead"), "{refusal}");
    assert!(matches!(blobs.get("x").await, Err(StoreError::NotFound(Entity::Blob))));
    assert!(files(&directory).is_empty(), "{:?}", files(&directory));
}

#[tokio::test]
async fn a_refused_replacement_keeps_the_old_blob() {
    let (blobs, directory) = blobs();
    blobs.put("x", Bytes::from_static(b"old"), BlobExpectation::default()).await.unwrap();
    let expected = BlobExpectation { size: Some(1), ..BlobExpectation::default() };
    blobs.put("x", Bytes::from_static(b"new"), expected).await.unwrap_err();
    assert_eq!(blobs.read("x", 10).await.unwrap(), "old");
    blobs.put("x", Bytes::from_static(b"new"), BlobExpectation::default()).await.unwrap();
    assert_eq!(blobs.read("x", 10).await.unwrap(), "new");
    assert_eq!(files(&directory).len(), 1);
}

#[tokio::test]
async fn keys_cannot_leave_their_directory() {
    let (blobs, directory) = blobs();
    std::fs::write(directory.path().join("outside"), b"secret").unwrap();
    for key in [
        "../outside",
        "a/../../outside",
        "/etc/passwd",
        "",
        "a//b",
        "a/",
        ".",
        "a\\b",
        "a%2e%2e",
        "a\0b",
        "ä",
    ] {
        let refusal = blobs.get(key).await.unwrap_err();
        assert!(matches!(refusal, StoreError::Invalid(_)), "{key:?}: {refusal}");
        blobs.put(key, Bytes::new(), BlobExpectation::default()).await.unwrap_err();
        blobs.delete(key).await.unwrap_err();
    }
}

#[tokio::test]
async fn deleting_and_listing() {
    let (blobs, _directory) = blobs();
    for key in ["b/2", "a/1", "a/x/3", "ab"] {
        blobs.put(key, Bytes::from_static(b"hello"), BlobExpectation::default()).await.unwrap();
    }
    let keys =
        |list: Vec<trestle_store::ListedBlob>| list.into_iter().map(|blob| blob.key).collect::<Vec<_>>();
    assert_eq!(keys(blobs.list("").await.unwrap()), ["a/1", "a/x/3", "ab", "b/2"]);
    assert_eq!(keys(blobs.list("a").await.unwrap()), ["a/1", "a/x/3"]);
    blobs.delete("a/1").await.unwrap();
    blobs.delete("a/1").await.unwrap();
    assert_eq!(blobs.size("a/1").await.unwrap(), None);
    assert_eq!(keys(blobs.list("a").await.unwrap()), ["a/x/3"]);
}

#[tokio::test]
async fn two_writers_of_one_key_leave_one_whole_blob() {
    let (blobs, directory) = blobs();
    let put = |byte: u8| {
        let blobs = blobs.clone();
        tokio::spawn(async move {
            let body = Bytes::from(vec![byte; 3 * 1024 * 1024]);
            blobs.put("x", body, BlobExpectation::default()).await
        })
    };
    let (one, two) = (put(1), put(2));
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    let body = blobs.read("x", u64::MAX).await.unwrap();
    assert_eq!(body.len(), 3 * 1024 * 1024);
    assert!(body.iter().all(|byte| *byte == body[0]));
    assert_eq!(files(&directory).len(), 1);
}
