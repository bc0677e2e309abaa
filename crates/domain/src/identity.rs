use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, canonical_json};

/// What tells equal calls of one parent apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKey<'a> {
    /// How many calls with the same target and input came before.
    Ordinal(u64),
    /// The author's idempotency key.
    Author(&'a str),
}

/// The identity of a child run as lower-case hex SHA-256: a parent that calls again with the
/// same identity gets the same child, also after a restart. An absent input equals `null`.
///
/// With an author's key the identity is the parent, the target and the key, so that the same
/// key with another input can be seen as a conflict; compare [`input_digest`] for that.
pub fn child_identity(
    parent: &str,
    slug: &str,
    input: Option<&str>,
    key: ChildKey<'_>,
) -> Result<String, CanonicalError> {
    let ordinal;
    let input = canonical_json(input.unwrap_or("null"))?;
    let fields: [&str; 5] = match key {
        ChildKey::Ordinal(value) => {
            ordinal = value.to_string();
            ["ordinal", parent, slug, &input, &ordinal]
        }
        ChildKey::Author(key) => ["key", parent, slug, key, ""],
    };
    Ok(digest(&fields))
}

/// The lower-case hex SHA-256 of an input's canonical form.
pub fn input_digest(input: Option<&str>) -> Result<String, CanonicalError> {
    Ok(digest(&[&canonical_json(input.unwrap_or("null"))?]))
}

/// Hashes fields with their lengths, so that no two lists of fields give the same bytes.
fn digest(fields: &[&str]) -> String {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(field.as_bytes());
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(parent: &str, slug: &str, input: &str, ordinal: u64) -> String {
        child_identity(parent, slug, Some(input), ChildKey::Ordinal(ordinal)).unwrap()
    }

    #[test]
    fn equal_inputs_in_other_words_are_the_same_child() {
        assert_eq!(id("p", "s", r#"{"a":1,"b":[2]}"#, 0), id("p", "s", r#"{ "b" : [2.0], "a" : 1e0 }"#, 0));
        assert_ne!(id("p", "s", "[1,2]", 0), id("p", "s", "[2,1]", 0));
        assert_eq!(child_identity("p", "s", None, ChildKey::Ordinal(0)).unwrap(), id("p", "s", "null", 0));
        assert_eq!(id("p", "s", "1", 0).len(), 64);
        assert!(child_identity("p", "s", Some("{"), ChildKey::Ordinal(0)).is_err());
    }

    #[test]
    fn an_authors_key_replaces_input_and_ordinal() {
        let by_key =
            |slug, input, key| child_identity("p", slug, Some(input), ChildKey::Author(key)).unwrap();
        assert_eq!(by_key("s", "1", "k"), by_key("s", "2", "k"));
        assert_ne!(by_key("s", "1", "k"), by_key("t", "1", "k"));
        assert_ne!(by_key("s", "1", "k"), by_key("s", "1", "l"));
        assert_ne!(by_key("s", "1", "0"), id("p", "s", "1", 0));
        assert_eq!(input_digest(Some("{\"a\": 1}")), input_digest(Some("{\"a\":1.0}")));
        assert_ne!(input_digest(Some("1")), input_digest(Some("2")));
    }

    proptest! {
        #[test]
        fn fields_do_not_run_into_each_other(a in "[ab ]{0,6}", b in "[ab ]{0,6}", c in "[ab ]{0,6}", d in "[ab ]{0,6}") {
            prop_assume!((&a, &b) != (&c, &d));
            prop_assert_ne!(id(&a, &b, "1", 0), id(&c, &d, "1", 0));
        }
    }
}
