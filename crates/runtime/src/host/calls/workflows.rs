use std::sync::PoisonError;

use tokio::time::{Instant, sleep};
use trestle_contract::control::{ChildMode, ChildRequest, ChildResponse, ChildStatus};
use trestle_contract::event::RunStatus;
use trestle_contract::host::{CallParams, CallResult, WorkflowRunResult};
use trestle_contract::{ErrorCode, NonEmptyString, RawJson, RawObject, RunId, Slug};
use trestle_domain::input_digest;

use super::{Capabilities, HostFailure};

impl Capabilities {
    /// How many calls with the same target and the same input were made before. Counted as the request
    /// arrives, so that calls made at once are numbered in the order in which they were made.
    pub(super) fn next_ordinal(&self, params: &CallParams) -> Result<u64, HostFailure> {
        let input = input_digest(Some(params.input.get())).map_err(|error| {
            HostFailure::invalid(format!("the input cannot be compared with others: {error}"))
        })?;
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let next = children.entry((params.slug.to_string(), input)).or_insert(0);
        let ordinal = *next;
        *next += 1;
        Ok(ordinal)
    }

    async fn start_child(
        &self,
        params: CallParams,
        ordinal: u64,
        mode: ChildMode,
    ) -> Result<ChildResponse, HostFailure> {
        let slug = Slug::new(params.slug.as_str()).map_err(|error| {
            HostFailure::invalid(format!("{:?} is no workflow: {error}", params.slug.as_str()))
        })?;
        let request = ChildRequest {
            slug,
            input: params.input,
            ordinal,
            idempotency_key: params.opts.and_then(|opts| opts.idempotency_key),
            mode: self.facts.is_extended.then_some(mode),
        };
        Ok(self.control.start_child(&request).await?)
    }

    pub(super) async fn run_workflow(
        &self,
        params: CallParams,
        ordinal: u64,
    ) -> Result<WorkflowRunResult, HostFailure> {
        let child = self.start_child(params, ordinal, ChildMode::Run).await?;
        Ok(WorkflowRunResult { run_id: NonEmptyString::saturating(child.child_run_id.as_str()) })
    }

    pub(super) async fn call_workflow(
        &self,
        params: CallParams,
        ordinal: u64,
    ) -> Result<CallResult, HostFailure> {
        self.budget.park()?;
        let slug = params.slug.to_string();
        let started = self.start_child(params, ordinal, ChildMode::Call).await?;
        let ended = if started.status.is_terminal() {
            ChildStatus {
                id: started.child_run_id.clone(),
                status: started.status,
                output: started.output,
                output_schema: started.output_schema.clone(),
            }
        } else {
            self.wait_for_child(&started.child_run_id).await?
        };
        // The schema of the answer that has one; the start names it, a poll of an old server may not.
        let schema = ended.output_schema.clone().flatten().or(started.output_schema.flatten());
        child_result(&slug, ended, schema)
    }

    /// Asks until the child has ended. A question that is not answered is asked again for as long as the
    /// run itself is held: a wait of hours does not end with one lost packet.
    async fn wait_for_child(&self, id: &RunId) -> Result<ChildStatus, HostFailure> {
        let poll = self.control.timing().child_poll;
        loop {
            let asked = Instant::now();
            match self.control.child(id).await {
                Ok(child) if child.status.is_terminal() => return Ok(child),
                Ok(_) => {}
                Err(error) if error.status() == Some(404) => {
                    return Err(HostFailure::new(
                        ErrorCode::NotFound,
                        format!("the called run {id} is gone"),
                    ));
                }
                Err(error) => tracing::debug!(%error, "the question for a child was not answered"),
            }
            sleep(poll.saturating_sub(asked.elapsed())).await;
        }
    }
}

fn child_result(slug: &str, child: ChildStatus, schema: Option<RawJson>) -> Result<CallResult, HostFailure> {
    let (code, what) = match child.status {
        RunStatus::Completed => {
            let output_schema = schema.and_then(|schema| RawObject::try_from(schema).ok());
            return Ok(CallResult { output: child.output, output_schema });
        }
        RunStatus::Cancelled => (ErrorCode::ChildCancelled, "was cancelled"),
        _ => (ErrorCode::ChildFailed, "failed"),
    };
    let reason = child_error(&child.output).map(|error| format!(": {error}")).unwrap_or_default();
    Err(HostFailure::new(code, format!("the called workflow {slug} {what}{reason}")).with_detail(
        &serde_json::json!({ "childRunId": child.id.as_str(), "status": child.status.as_str() }),
    ))
}

/// The child's own words.
fn child_error(output: &RawJson) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Output {
        error: Error,
    }
    #[derive(serde::Deserialize)]
    struct Error {
        code: Option<String>,
        message: Option<String>,
    }
    let Output { error } = output.decode().ok()?;
    match (error.code, error.message) {
        (Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (None, Some(text)) | (Some(text), None) => Some(text),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(status: RunStatus, output: &str) -> ChildStatus {
        ChildStatus {
            id: RunId::new("01CHILD").unwrap(),
            status,
            output: RawJson::parse(output).unwrap(),
            output_schema: None,
        }
    }

    #[test]
    fn a_failed_child_is_quoted_and_named() {
        let failed = child(RunStatus::Failed, r#"{"error":{"code":"X","message":"no luck"}}"#);
        let failure = child_result("other", failed, None).unwrap_err();
        assert_eq!(failure.code(), "CHILD_FAILED");
        assert!(failure.0.message.contains("X: no luck"));
        assert_eq!(failure.0.detail().unwrap().get(), r#"{"childRunId":"01CHILD","status":"failed"}"#);
        assert_eq!(
            child_result("other", child(RunStatus::Cancelled, "null"), None).unwrap_err().code(),
            "CHILD_CANCELLED"
        );
    }

    #[test]
    fn a_completed_child_gives_its_bytes_and_its_schema() {
        let schema = RawJson::parse(r#"{"type":"object"}"#).unwrap();
        let done =
            child_result("other", child(RunStatus::Completed, "9007199254740993"), Some(schema)).unwrap();
        assert_eq!(done.output.get(), "9007199254740993");
        assert_eq!(done.output_schema.unwrap().get(), r#"{"type":"object"}"#);
    }
}
