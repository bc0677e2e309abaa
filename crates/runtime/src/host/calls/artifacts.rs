use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use serde::Deserialize;
use serde_json::value::RawValue;
use tempfile::TempPath;
use trestle_contract::bounds::BoundedString;
use trestle_contract::control::{
    ArtifactCommitRequest, ArtifactEncoding, ArtifactPresignRequest, ArtifactWriteRequest,
    ArtifactWriteResponse,
};
use trestle_contract::host::{
    ArtifactBody, ArtifactRef, ArtifactWriteParams, ArtifactWriteResult, RequestId,
};
use trestle_contract::{ErrorCode, NonEmptyString, RawObject};

use super::super::framing::LineBytes;
use super::{Capabilities, HostFailure};

/// Largest request body that carries an artifact inline; other control planes accept 5 MiB on the wire.
const INLINE_BYTES: usize = 4 * 1024 * 1024;
/// Largest artifact.
const LARGEST: u64 = 100 * 1024 * 1024;

/// Where the bytes of an artifact come from.
pub(crate) enum ArtifactSource {
    Params(ArtifactWriteParams),
    /// A request line that is kept on disk.
    Line(LineBytes),
}

/// The facts of an artifact without its bytes.
struct Facts {
    name: BoundedString<1, 255>,
    content_type: BoundedString<1, 200>,
    metadata: Option<RawObject>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRequest<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(borrow)]
    params: WireParams<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireParams<'a> {
    name: NonEmptyString,
    content_type: NonEmptyString,
    #[serde(borrow)]
    body: WireBody<'a>,
    #[serde(default)]
    metadata: Option<RawObject>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBody<'a> {
    encoding: ArtifactEncoding,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

fn wire(line: &[u8]) -> Option<WireRequest<'_>> {
    let request: WireRequest<'_> = serde_json::from_slice(line).ok()?;
    (request.jsonrpc == "2.0" && request.method == "artifacts.write").then_some(request)
}

/// The id of a line that asks to write an artifact, read without copying its bytes.
pub(crate) fn large_artifact(line: &[u8]) -> Option<(RequestId,)> {
    let request = wire(line)?;
    serde_json::from_str(request.id.get()).ok().map(|id| (id,))
}

impl Capabilities {
    pub(super) async fn write_artifact(
        &self,
        source: ArtifactSource,
    ) -> Result<ArtifactWriteResult, HostFailure> {
        let written = match source {
            ArtifactSource::Params(params) => {
                let facts = self.facts_of(&params.name, &params.content_type, params.metadata)?;
                let (encoding, data) = match params.body {
                    ArtifactBody::Utf8 { data } => (ArtifactEncoding::Utf8, data),
                    ArtifactBody::Base64 { data } => (ArtifactEncoding::Base64, data),
                };
                if encoded_size(encoding, &data) <= INLINE_BYTES {
                    self.write_inline(facts, encoding, data).await?
                } else {
                    let directory = self.facts.temporary.clone();
                    let decoded = on_disk(move || decode(&directory, encoding, &data)).await?;
                    self.upload(facts, decoded).await?
                }
            }
            ArtifactSource::Line(line) => {
                let request =
                    wire(&line).ok_or_else(|| HostFailure::internal("the artifact request is unreadable"))?;
                let facts = self.facts_of(
                    &request.params.name,
                    &request.params.content_type,
                    request.params.metadata.clone(),
                )?;
                drop(request);
                let directory = self.facts.temporary.clone();
                let decoded = on_disk(move || {
                    let body =
                        wire(&line).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?.params.body;
                    decode(&directory, body.encoding, &body.data)
                })
                .await?;
                self.upload(facts, decoded).await?
            }
        };
        Ok(ArtifactWriteResult {
            reference: ArtifactRef {
                id: NonEmptyString::saturating(written.id.as_str()),
                name: NonEmptyString::saturating(written.name),
                url: NonEmptyString::saturating(written.signed_url),
            },
        })
    }

    /// Name and metadata are shown to people: no secret stays in them. The bytes are the author's own.
    fn facts_of(
        &self,
        name: &NonEmptyString,
        content_type: &NonEmptyString,
        metadata: Option<RawObject>,
    ) -> Result<Facts, HostFailure> {
        let redactor = self.emitter.redactor();
        let name = BoundedString::new(redactor.redact_str(name.as_str())).map_err(|error| {
            HostFailure::invalid(format!("the artifact's name: {error}")).with_hint("give a shorter name")
        })?;
        let content_type = BoundedString::new(content_type.as_str())
            .map_err(|error| HostFailure::invalid(format!("the artifact's content type: {error}")))?;
        let metadata = metadata.map(|metadata| {
            RawObject::try_from(redactor.redact_json(metadata.as_json()))
                .unwrap_or_else(|_| RawObject::empty())
        });
        Ok(Facts { name, content_type, metadata })
    }

    async fn write_inline(
        &self,
        facts: Facts,
        encoding: ArtifactEncoding,
        data: String,
    ) -> Result<ArtifactWriteResponse, HostFailure> {
        if encoding == ArtifactEncoding::Base64 {
            // Checked here, so that the author sees what is wrong with it.
            let mut count = io::sink();
            io::copy(&mut DecoderReader::new(data.as_bytes(), &STANDARD), &mut count).map_err(no_base64)?;
        }
        let request = ArtifactWriteRequest {
            name: facts.name,
            content_type: facts.content_type,
            body: data,
            encoding: Some(encoding),
            metadata: facts.metadata,
        };
        Ok(self.control.write_artifact(&request).await?)
    }

    async fn upload(&self, facts: Facts, decoded: Decoded) -> Result<ArtifactWriteResponse, HostFailure> {
        if decoded.size > LARGEST {
            return Err(HostFailure::invalid(format!(
                "the artifact has {} bytes; 100 MiB are allowed",
                decoded.size
            ))
            .with_hint("compress it, or split it into several artifacts"));
        }
        let presign = ArtifactPresignRequest {
            name: facts.name.clone(),
            content_type: facts.content_type.clone(),
            size_bytes: decoded.size,
            metadata: facts.metadata.clone(),
        };
        let target = self.control.presign_artifact(&presign).await?;
        self.control.upload(&target, &decoded.path, decoded.size).await?;
        let commit = ArtifactCommitRequest {
            s3_key: target.s3_key,
            name: facts.name,
            content_type: facts.content_type,
            size_bytes: decoded.size,
            metadata: facts.metadata,
        };
        Ok(self.control.commit_artifact(&commit).await?)
    }
}

/// An artifact's bytes in a file that goes away with this value.
struct Decoded {
    path: TempPath,
    size: u64,
}

async fn on_disk(
    work: impl FnOnce() -> io::Result<Decoded> + Send + 'static,
) -> Result<Decoded, HostFailure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(decoded)) => Ok(decoded),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(no_base64(error)),
        Ok(Err(error)) => Err(HostFailure::internal(format!("the artifact cannot be kept on disk: {error}"))),
        Err(error) => Err(HostFailure::internal(error.to_string())),
    }
}

fn no_base64(error: io::Error) -> HostFailure {
    HostFailure::new(ErrorCode::ValidationFailed, format!("the artifact's body is not base64: {error}"))
}

fn decode(directory: &Path, encoding: ArtifactEncoding, data: &str) -> io::Result<Decoded> {
    let (mut file, path) = tempfile::NamedTempFile::new_in(directory)?.into_parts();
    let size = match encoding {
        ArtifactEncoding::Utf8 => {
            file.write_all(data.as_bytes())?;
            data.len() as u64
        }
        ArtifactEncoding::Base64 => {
            io::copy(&mut DecoderReader::new(data.as_bytes(), &STANDARD), &mut file as &mut File)?
        }
    };
    file.flush()?;
    Ok(Decoded { path, size })
}

/// Bytes of the text once it stands in a JSON string.
fn encoded_size(encoding: ArtifactEncoding, data: &str) -> usize {
    match encoding {
        ArtifactEncoding::Base64 => data.len(),
        ArtifactEncoding::Utf8 => data
            .bytes()
            .map(|byte| match byte {
                b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
                0..=0x1f => 6,
                _ => 1,
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_on_the_wire_decides_not_the_size_in_memory() {
        let text = "a\"\\\n\u{1}é";
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(encoded_size(ArtifactEncoding::Utf8, text), json.len() - 2);
        assert_eq!(encoded_size(ArtifactEncoding::Base64, "AAAA"), 4);
    }

    #[test]
    fn a_large_request_is_read_in_place() {
        let line = br#"{"jsonrpc":"2.0","id":7,"method":"artifacts.write","params":{"name":"a","contentType":"b","body":{"encoding":"base64","data":"AAAA"}}}"#;
        assert_eq!(large_artifact(line), Some((RequestId::Number(7),)));
        assert!(matches!(wire(line).unwrap().params.body.data, Cow::Borrowed("AAAA")));
        assert_eq!(large_artifact(&line.replacen(b"artifacts.write", b"shell")), None);
    }

    trait Replace {
        fn replacen(&self, from: &[u8], to: &[u8]) -> Vec<u8>;
    }

    impl Replace for [u8] {
        fn replacen(&self, from: &[u8], to: &[u8]) -> Vec<u8> {
            let text = std::str::from_utf8(self).unwrap();
            text.replacen(std::str::from_utf8(from).unwrap(), std::str::from_utf8(to).unwrap(), 1)
                .into_bytes()
        }
    }

    #[test]
    fn bytes_are_decoded_to_a_file_that_goes_away() {
        let directory = tempfile::tempdir().unwrap();
        let decoded = decode(directory.path(), ArtifactEncoding::Base64, "aGVsbG8=").unwrap();
        assert_eq!((std::fs::read(&decoded.path).unwrap().as_slice(), decoded.size), (&b"hello"[..], 5));
        drop(decoded);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(decode(directory.path(), ArtifactEncoding::Base64, "aGVs*G8=").is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
