use trestle_contract::host::AgentOpts;
use trestle_contract::inference::{FileSource, Reasoning};
use trestle_domain::Redactor;

use crate::answer::AnswerForm;
use crate::skill::SkillSet;
use crate::tools::ToolSet;
use crate::{AgentError, FileTree, Host, LeafRequest, framing, options};

/// Everything about a call that is settled before its first event.
pub(crate) struct Plan {
    pub(crate) redactor: Redactor,
    pub(crate) tools: ToolSet,
    pub(crate) form: AnswerForm,
    pub(crate) attachments: Vec<FileSource>,
    pub(crate) reasoning: Option<Reasoning>,
    /// The text of the first message, not redacted.
    pub(crate) framing: String,
}

impl Plan {
    /// Checks the options and reads what the first message needs.
    pub(crate) async fn prepare(
        host: &dyn Host,
        request: &LeafRequest,
        redactor: Redactor,
    ) -> Result<Self, AgentError> {
        let AgentOpts { schema, tools, skills, cwd, .. } = &request.options;
        options::check(&request.options)?;
        let attachments = options::attachments(&request.options)?;
        let form = AnswerForm::of(schema.as_ref())?;
        let package = host.package().cloned();
        let workspace = host.workspace().cloned();
        let cwd = cwd.clone().filter(|cwd| !cwd.is_empty());
        let names = skills.clone().unwrap_or_default();
        let directory = blocking(move || working_directory(workspace, cwd)).await??;
        let root = package.clone();
        let skills = blocking(move || SkillSet::resolve(root.as_ref(), &names)).await??;
        let tools = ToolSet::new(tools.as_deref().unwrap_or_default(), skills)?;
        let facts = framing::Facts {
            now_ms: host.now_ms(),
            tool_names: tools.names(),
            skills: tools.catalog(),
            schema: form.instruction(),
            prompt: request.prompt.clone(),
        };
        let framing =
            blocking(move || framing::first_message(&facts, package.as_ref(), directory.as_ref())).await?;
        let reasoning =
            request.options.reasoning.as_ref().map(Reasoning::from).filter(|r| *r != Reasoning::default());
        Ok(Self { redactor, tools, form, attachments, reasoning, framing })
    }
}

/// The directory an agent works from. It is never another one than was asked for.
fn working_directory(
    workspace: Option<FileTree>,
    cwd: Option<String>,
) -> Result<Option<FileTree>, AgentError> {
    let Some(cwd) = cwd else { return Ok(workspace) };
    let refused = |what: &str| {
        let shown: String = cwd.chars().take(200).collect();
        AgentError::invalid(
            format!("cwd \"{shown}\" {what}"),
            "name an existing directory relative to the workspace, such as \"packages/api\"",
        )
    };
    if cwd.contains('\0') || !options::stays_inside(&cwd) {
        return Err(refused("leads out of the workspace"));
    }
    workspace
        .filter(|tree| tree.is_directory(&cwd))
        .and_then(|tree| tree.subtree(&cwd).ok())
        .map(Some)
        .ok_or_else(|| refused("is not an existing directory of the workspace"))
}

/// Runs file work where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AgentError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        AgentError::new(trestle_contract::ErrorCode::InternalError, format!("reading files failed: {error}"))
    })
}
