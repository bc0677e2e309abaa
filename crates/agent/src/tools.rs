use trestle_contract::host::InlineTool;
use trestle_contract::inference::ToolSpec;
use trestle_domain::Redactor;

use crate::AgentError;
use crate::skill::{SKILL_TOOL, SkillSet};

/// The tools of one agent, in the order they are offered.
pub(crate) struct ToolSet {
    tools: Vec<Tool>,
}

/// One tool.
pub(crate) struct Tool {
    pub(crate) spec: ToolSpec,
    pub(crate) runs: Runs,
}

/// Where a tool runs.
pub(crate) enum Runs {
    /// In the program.
    Inline,
    /// Here: it reads pinned skills.
    Skill(SkillSet),
}

impl ToolSet {
    pub(crate) fn new(inline: &[InlineTool], skills: SkillSet) -> Result<Self, AgentError> {
        let mut tools: Vec<Tool> = inline
            .iter()
            .map(|tool| Tool {
                spec: ToolSpec {
                    name: tool.name.as_str().to_owned(),
                    description: tool.description.clone(),
                    input_schema: tool.input_schema.clone(),
                },
                runs: Runs::Inline,
            })
            .collect();
        if let Some(spec) = skills.tool_spec() {
            if tools.iter().any(|tool| tool.spec.name == SKILL_TOOL) {
                return Err(AgentError::invalid(
                    format!("the inline tool \"{SKILL_TOOL}\" has the name of the tool that loads skills"),
                    "rename the inline tool, or leave skills out",
                ));
            }
            tools.push(Tool { spec, runs: Runs::Skill(skills) });
        }
        Ok(Self { tools })
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }

    /// What the model is told about the tools, without secrets: their texts are the author's.
    pub(crate) fn specs(&self, redactor: &Redactor) -> Vec<ToolSpec> {
        let clean = |tool: &Tool| {
            let ToolSpec { name, description, input_schema } = tool.spec.clone();
            let schema = redactor.redact_value(&serde_json::Value::Object(input_schema));
            let input_schema = schema.as_object().cloned().unwrap_or_default();
            ToolSpec { name, description: redactor.redact_str(&description), input_schema }
        };
        self.tools.iter().map(clean).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.spec.name.clone()).collect()
    }

    /// The skills with their descriptions.
    pub(crate) fn catalog(&self) -> Vec<(String, String)> {
        self.tools
            .iter()
            .find_map(|tool| match &tool.runs {
                Runs::Skill(skills) => Some(skills.catalog()),
                Runs::Inline => None,
            })
            .unwrap_or_default()
    }
}
