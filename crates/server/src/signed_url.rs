//! Addresses that carry their own proof: a keyed hash over what they allow.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use trestle_domain::ServerKey;

use crate::keys::Keys;

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const UNRESERVED_PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// What a signed address may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Read the object.
    Get,
    /// Write the object.
    Put,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
        }
    }
}

/// Everything that a signed address fixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// What may be done.
    pub(crate) operation: Operation,
    /// Key of the object.
    pub(crate) key: String,
    /// Store time, in milliseconds, after which the address is dead.
    pub(crate) expires: i64,
    /// Exact length of the bytes that may be put.
    pub(crate) length: Option<u64>,
    /// SHA-256 of the bytes that may be put, lower-case hexadecimal.
    pub(crate) digest: Option<String>,
    /// Content type that must be sent with a put, or is served with a get.
    pub(crate) content_type: Option<String>,
    /// File name that is served with a get.
    pub(crate) name: Option<String>,
}

/// The query of a signed address. Unknown members change nothing, because the
/// signature covers the known ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Proof {
    expires: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    signature: String,
}

/// Signs addresses and judges them.
pub(crate) struct Signer {
    key: ServerKey,
}

impl Signer {
    pub(crate) fn new(keys: &Keys) -> Self {
        Self { key: keys.derive("trestle signed addresses 1") }
    }

    /// The absolute address under `base` that carries `grant`.
    pub(crate) fn address(&self, base: &str, grant: &Grant) -> String {
        let mut address = format!(
            "{base}/blobs/{}?expires={}",
            utf8_percent_encode(&grant.key, UNRESERVED_PATH),
            grant.expires
        );
        let mut add = |name: &str, value: &str| {
            address.push('&');
            address.push_str(name);
            address.push('=');
            address.extend(utf8_percent_encode(value, UNRESERVED));
        };
        if let Some(length) = grant.length {
            add("length", &length.to_string());
        }
        for (name, value) in [("digest", &grant.digest), ("type", &grant.content_type), ("name", &grant.name)]
        {
            if let Some(value) = value {
                add(name, value);
            }
        }
        add("signature", &hex::encode(self.sign(grant)));
        address
    }

    /// The grant of a request, if its proof holds at store time `now`.
    pub(crate) fn verify(&self, operation: Operation, key: &str, proof: Proof, now: i64) -> Option<Grant> {
        let signature = hex::decode(&proof.signature).ok()?;
        let grant = Grant {
            operation,
            key: key.to_owned(),
            expires: proof.expires,
            length: proof.length,
            digest: proof.digest,
            content_type: proof.content_type,
            name: proof.name,
        };
        let genuine = bool::from(self.sign(&grant).as_slice().ct_eq(&signature));
        (genuine && now < grant.expires).then_some(grant)
    }

    fn sign(&self, grant: &Grant) -> [u8; 32] {
        let expires = grant.expires.to_string();
        let length = grant.length.map(|length| length.to_string());
        let optional = [
            length.as_deref(),
            grant.digest.as_deref(),
            grant.content_type.as_deref(),
            grant.name.as_deref(),
        ];
        let mut fields = vec![grant.operation.word().as_bytes(), grant.key.as_bytes(), expires.as_bytes()];
        for part in optional {
            // An absent part is no empty part.
            fields.push(if part.is_some() { b"1" } else { b"0" });
            fields.push(part.unwrap_or("").as_bytes());
        }
        self.key.authenticate(&fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signer() -> Signer {
        let data = tempfile::tempdir().unwrap();
        Signer::new(&Keys::open(data.path()).unwrap())
    }

    fn proof_of(address: &str) -> (String, Proof) {
        let url = url::Url::parse(address).unwrap();
        let key = percent_encoding::percent_decode_str(url.path().strip_prefix("/blobs/").unwrap())
            .decode_utf8()
            .unwrap()
            .into_owned();
        let mut proof = Proof {
            expires: 0,
            length: None,
            digest: None,
            content_type: None,
            name: None,
            signature: String::new(),
        };
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            match name.as_ref() {
                "expires" => proof.expires = value.parse().unwrap(),
                "length" => proof.length = Some(value.parse().unwrap()),
                "digest" => proof.digest = Some(value),
                "type" => proof.content_type = Some(value),
                "name" => proof.name = Some(value),
                _ => proof.signature = value,
            }
        }
        (key, proof)
    }

    proptest! {
        #[test]
        fn a_signed_address_carries_exactly_its_grant(
            key in "[a-z/ äö%+&]{1,20}",
            name in proptest::option::of(".{0,20}"),
            content_type in proptest::option::of("[a-z/; =]{0,20}"),
            length in proptest::option::of(any::<u64>()),
        ) {
            let key = format!("k{}", key.trim_end_matches('/').replace("//", "/"));
            let signer = signer();
            let grant = Grant {
                operation: Operation::Put,
                key,
                expires: 10,
                length,
                digest: None,
                content_type,
                name,
            };
            let (key, proof) = proof_of(&signer.address("http://h", &grant));
            prop_assert_eq!(&key, &grant.key);
            prop_assert_eq!(signer.verify(Operation::Put, &key, proof.clone(), 9), Some(grant));
            prop_assert_eq!(signer.verify(Operation::Put, &key, proof.clone(), 10), None);
            prop_assert_eq!(signer.verify(Operation::Get, &key, proof.clone(), 9), None);
            let mut longer = proof.clone();
            longer.length = Some(length.unwrap_or(0).wrapping_add(1));
            prop_assert_eq!(signer.verify(Operation::Put, &key, longer, 9), None);
            let mut later = proof;
            later.expires = 11;
            prop_assert_eq!(signer.verify(Operation::Put, &key, later, 9), None);
        }
    }

    #[test]
    fn an_absent_part_differs_from_an_empty_one() {
        let signer = signer();
        let grant = Grant {
            operation: Operation::Get,
            key: "k".to_owned(),
            expires: 1,
            length: None,
            digest: None,
            content_type: None,
            name: None,
        };
        let empty = Grant { name: Some(String::new()), ..grant.clone() };
        assert_ne!(signer.sign(&grant), signer.sign(&empty));
    }
}
