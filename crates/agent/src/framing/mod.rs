//! The first message: there is no system prompt, the whole framing is one user message.

mod conventions;
mod environment;
mod guides;

use crate::FileTree;

/// What the first message is made of, beside files.
pub(crate) struct Facts {
    pub(crate) now_ms: i64,
    pub(crate) tool_names: Vec<String>,
    pub(crate) skills: Vec<(String, String)>,
    pub(crate) schema: Option<String>,
    pub(crate) prompt: String,
}

impl Facts {
    fn has_any(&self, names: &[&str]) -> bool {
        self.tool_names.iter().any(|tool| names.contains(&tool.as_str()))
    }
}

/// The text of the first message: conventions, `AGENTS.md` files, skills, environment, the
/// author's prompt, and what the answer has to look like. Empty blocks leave no trace. Blocks.
pub(crate) fn first_message(
    facts: &Facts,
    package: Option<&FileTree>,
    directory: Option<&FileTree>,
) -> String {
    let blocks = [
        conventions::block(facts),
        guides::block(package, directory),
        skills_block(&facts.skills),
        Some(environment::block(facts, directory)),
        Some(facts.prompt.clone()),
        facts.schema.clone(),
    ];
    blocks.into_iter().flatten().filter(|block| !block.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn skills_block(skills: &[(String, String)]) -> Option<String> {
    if skills.is_empty() {
        return None;
    }
    let rows: String = skills
        .iter()
        .map(|(name, description)| {
            let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("- {name}: {line}\n")
        })
        .collect();
    Some(format!(
        "<skills>\nBefore a task that one of these skills covers, load it with the `skill` tool.\n{rows}</skills>"
    ))
}

#[cfg(test)]
mod tests;
