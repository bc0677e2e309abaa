use super::Facts;

/// How tools are to be used. A rule about a tool appears only with that tool.
pub(super) fn block(facts: &Facts) -> Option<String> {
    // Skills are no tools to work with.
    if !facts.tool_names.iter().any(|name| name != crate::skill::SKILL_TOOL) {
        return None;
    }
    let has = |names: &[&str]| facts.has_any(names);
    let mut rules = vec![
        "Make all independent tool calls of a step in one response; make calls one after another only when a later \
         one needs an earlier one's result."
            .to_owned(),
    ];
    let confirming =
        if has(&["edit", "apply_patch"]) { " Do not read a file again to confirm an edit." } else { "" };
    rules
        .push(format!("Use what is already in the conversation instead of asking for it again.{confirming}"));
    if has(&["read", "grep"]) {
        let shell =
            if has(&["bash"]) { " Prefer read, grep and glob over their shell equivalents." } else { "" };
        rules.push(format!(
            "Fetch only what you need: read with offset and limit, search first, and name path and line of what you \
             cite.{shell}"
        ));
    }
    if has(&["edit", "apply_patch", "write"]) {
        let patch = if has(&["apply_patch"]) { " Use apply_patch for several edits at once." } else { "" };
        let edit = if has(&["edit"]) { " The text that edit replaces must occur exactly once." } else { "" };
        rules
            .push(format!("Change only what the task needs.{patch}{edit} Never leave placeholder comments."));
    }
    if has(&["bash"]) {
        rules.push(
            "Run the tests or the build, and show their output, before you say that something works."
                .to_owned(),
        );
    }
    if has(&["todo"]) {
        rules.push(
            "Keep a todo list for work of three steps or more, with one item in progress at a time."
                .to_owned(),
        );
    }
    rules.push("Stop when the task is done. Be concise: every turn and every word costs.".to_owned());
    Some(format!("# Working with tools\n- {}", rules.join("\n- ")))
}
