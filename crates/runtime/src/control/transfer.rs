//! Bytes that go to and come from signed addresses, without credentials.

use std::path::Path;

use reqwest::{Method, Response};
use tokio_util::io::ReaderStream;
use trestle_contract::control::ArtifactPresignResponse;
use trestle_domain::Failure;

use super::http::describe;
use super::{ControlClient, ControlError, is_worth_another};

impl ControlClient {
    /// Puts a file to a signed address, with exactly the headers that were signed.
    pub(crate) async fn upload(
        &self,
        target: &ArtifactPresignResponse,
        file: &Path,
        size: u64,
    ) -> Result<(), ControlError> {
        const OPERATION: &str = "artifacts-upload";
        let unreachable = |message: String| ControlError::Unreachable { operation: OPERATION, message };
        let mut attempts = self.policy().begin();
        loop {
            let failure = match self.upload_once(target, file, size).await {
                Ok(status) if (200..300).contains(&status) => return Ok(()),
                Ok(status) => (Failure::Status(status), ControlError::from_answer(OPERATION, status, &[])),
                Err(message) => (Failure::Transport, unreachable(message)),
            };
            if !is_worth_another(failure.0) {
                return Err(failure.1);
            }
            let Some(wait) = attempts.pause(failure.0, None) else { return Err(failure.1) };
            tokio::time::sleep(wait).await;
        }
    }

    async fn upload_once(
        &self,
        target: &ArtifactPresignResponse,
        file: &Path,
        size: u64,
    ) -> Result<u16, String> {
        let opened = tokio::fs::File::open(file).await.map_err(|error| error.to_string())?;
        let body = reqwest::Body::wrap_stream(ReaderStream::with_capacity(opened, 64 * 1024));
        let mut request = self
            .http()
            .request(Method::PUT, &target.upload_url)?
            .header(reqwest::header::CONTENT_LENGTH, size)
            .timeout(self.timing().bulk)
            .body(body);
        for (name, value) in &target.upload_headers {
            if !name.eq_ignore_ascii_case("content-length") {
                request = request.header(name, value);
            }
        }
        let answer = request.send().await.map_err(|error| describe(&error))?;
        Ok(answer.status().as_u16())
    }

    /// Begins to fetch from a signed address, without credentials.
    pub(crate) async fn download(&self, url: &str) -> Result<Response, ControlError> {
        const OPERATION: &str = "program-download";
        let unreachable = |message: String| ControlError::Unreachable { operation: OPERATION, message };
        let request = self.http().request(Method::GET, url).map_err(unreachable)?;
        let answer = request.timeout(self.timing().bulk).send().await;
        let answer = answer.map_err(|error| unreachable(describe(&error)))?;
        let status = answer.status().as_u16();
        if !(200..300).contains(&status) {
            return Err(ControlError::Status { operation: OPERATION, status, body: None });
        }
        Ok(answer)
    }
}
