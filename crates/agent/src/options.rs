//! Checks of `agent()` options that need nothing but the options.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use trestle_contract::host::{AgentOpts, Attachment, Builtins};
use trestle_contract::inference::FileSource;

use crate::AgentError;

/// Every name that `builtins` can list.
const BUILTIN_NAMES: [&str; 24] = [
    "read",
    "write",
    "edit",
    "ls",
    "grep",
    "glob",
    "bash",
    "apply_patch",
    "diagnostics",
    "navigate",
    "clock",
    "todo",
    "webfetch",
    "http",
    "web_search",
    "artifacts",
    "screenshot",
    "click",
    "type",
    "key",
    "scroll",
    "drag",
    "subagent",
    "run_code",
];

/// The most bytes of files that can go with one prompt, as base64; a model request may be
/// 64 MiB in all.
const MAX_ATTACHMENT_BYTES: usize = 48 * 1024 * 1024;

/// Refuses what cannot be done, before anything is spent.
pub(crate) fn check(options: &AgentOpts) -> Result<(), AgentError> {
    if let Some(servers) = options.mcp.as_deref().filter(|servers| !servers.is_empty()) {
        return Err(AgentError::unsupported(
            format!("agent() cannot connect MCP servers yet ({} named)", servers.len()),
            "leave mcp out, or wrap what the agent needs as inline tools",
        ));
    }
    if let Some(Builtins::Names(names)) = &options.builtins {
        check_builtins(names)?;
    }
    check_inline_tools(options)?;
    if let Some(memory) = &options.memory {
        check_memory(memory)?;
    }
    if options.human_input == Some(true) {
        return Err(AgentError::unsupported(
            "agent() cannot offer human_input to the model yet",
            "ask with humanInput() in the program, and pass the answer in the prompt",
        ));
    }
    if options.session_id.is_some() {
        return Err(AgentError::unsupported(
            "agent() cannot use a browser or desktop session yet",
            "leave session out",
        ));
    }
    Ok(())
}

fn check_builtins(names: &[String]) -> Result<(), AgentError> {
    let Some(name) = names.first() else { return Ok(()) };
    if names.iter().any(String::is_empty) {
        return Err(AgentError::invalid("builtins holds an empty name", known_names()));
    }
    // An unknown name is the more useful thing to hear about.
    if let Some(unknown) = names.iter().find(|name| !BUILTIN_NAMES.contains(&name.as_str())) {
        return Err(AgentError::unsupported(
            format!("there is no built-in tool {}", quoted(unknown)),
            known_names(),
        ));
    }
    Err(AgentError::unsupported(
        format!("the built-in tool {} is not available here yet", quoted(name)),
        "leave builtins out to get whatever is available, or declare a tool of your own in tools",
    ))
}

fn known_names() -> String {
    format!("the built-in tools are {}", BUILTIN_NAMES.join(", "))
}

fn check_inline_tools(options: &AgentOpts) -> Result<(), AgentError> {
    let tools = options.tools.as_deref().unwrap_or_default();
    for (index, tool) in tools.iter().enumerate() {
        if tools[..index].iter().any(|earlier| earlier.name == tool.name) {
            return Err(AgentError::invalid(
                format!("two tools are named {}", quoted(&tool.name)),
                "give each inline tool its own name",
            ));
        }
    }
    Ok(())
}

fn check_memory(memory: &str) -> Result<(), AgentError> {
    let starts_well = !memory.is_empty() && !memory.starts_with(['/', '\\']);
    let dotted = memory.split('/').any(|part| matches!(part, "." | ".."));
    if !starts_well || dotted || memory.contains('\\') {
        return Err(AgentError::invalid(
            format!("memory {} is not a directory relative to the workspace", quoted(memory)),
            "name it like \"memory\" or \"notes/agent\", without . or ..",
        ));
    }
    Err(AgentError::unsupported(
        "agent() has no memory tools yet",
        "leave memory out, and keep notes in files of the workspace",
    ))
}

/// Whether a relative path, read as text, never climbs above where it starts.
pub(crate) fn stays_inside(path: &str) -> bool {
    if path.starts_with('/') || path.contains('\\') {
        return false;
    }
    let mut depth = 0_i64;
    path.split('/').all(|part| {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        depth >= 0
    })
}

/// The attachments as parts of a message.
pub(crate) fn attachments(options: &AgentOpts) -> Result<Vec<FileSource>, AgentError> {
    let attachments = options.attachments.as_deref().unwrap_or_default();
    let total: usize = attachments.iter().filter_map(|file| file.data.as_ref()).map(String::len).sum();
    if total > MAX_ATTACHMENT_BYTES {
        return Err(AgentError::invalid(
            format!(
                "the attachments are {total} bytes in base64, more than the {MAX_ATTACHMENT_BYTES} allowed"
            ),
            "attach smaller files, or pass them by url",
        ));
    }
    attachments.iter().enumerate().map(|(index, file)| attachment(index, file)).collect()
}

fn attachment(index: usize, file: &Attachment) -> Result<FileSource, AgentError> {
    let malformed = |problem: &str| {
        AgentError::invalid(
            format!("malformed attachment {index}: {problem}"),
            "an attachment is {mimeType, data or url, filename?}: data is base64, url starts with https: or data:",
        )
    };
    let mime_type = file.mime_type.as_str();
    if !mime_type.split_once('/').is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty()) {
        return Err(malformed("mimeType is not of the form type/subtype"));
    }
    match (&file.data, &file.url) {
        (Some(data), None) if BASE64_STANDARD.decode(data).is_err() => Err(malformed("data is not base64")),
        (Some(data), None) if data.is_empty() => Err(malformed("data is empty")),
        (None, Some(url)) if !has_usable_scheme(url) => {
            Err(malformed("url is neither https:, http: nor data:"))
        }
        (Some(_), None) | (None, Some(_)) => Ok(FileSource {
            mime_type: mime_type.to_owned(),
            data: file.data.clone(),
            url: file.url.clone(),
            filename: file.filename.clone(),
        }),
        (Some(_), Some(_)) | (None, None) => Err(malformed("exactly one of data and url must be given")),
    }
}

fn has_usable_scheme(url: &str) -> bool {
    let scheme_and_rest = url.split_once(':');
    let starts_with_host = |rest: &str| rest.strip_prefix("//").is_some_and(|host| !host.is_empty());
    scheme_and_rest.is_some_and(|(scheme, rest)| match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => starts_with_host(rest),
        "data" => rest.contains(','),
        _ => false,
    })
}

/// A name as a message shows it, whatever its length.
fn quoted(name: &str) -> String {
    if name.chars().count() > 40 {
        format!("\"{}…\"", name.chars().take(39).collect::<String>())
    } else {
        format!("\"{name}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trestle_contract::ErrorCode;

    fn options(text: &str) -> AgentOpts {
        serde_json::from_str(text).unwrap()
    }

    fn code_of(text: &str) -> Option<ErrorCode> {
        let options = options(text);
        check(&options).and_then(|()| attachments(&options).map(drop)).err().map(|error| error.code)
    }

    #[test]
    fn options_without_an_engine_are_unsupported() {
        for text in [
            r#"{"mcp":[{"name":"a","transport":"http","url":"https://x"}]}"#,
            r#"{"builtins":["read"]}"#,
            r#"{"builtins":["subagent"]}"#,
            r#"{"builtins":["run_code","bash"]}"#,
            r#"{"builtins":["reed"]}"#,
            r#"{"memory":"notes"}"#,
            r#"{"humanInput":true}"#,
            r#"{"sessionId":"s"}"#,
        ] {
            assert_eq!(code_of(text), Some(ErrorCode::Unsupported), "{text}");
        }
        let error = check(&options(r#"{"builtins":["read","reed"]}"#)).unwrap_err();
        assert!(error.message.contains("\"reed\"") && error.hint.unwrap().contains("apply_patch"));
    }

    #[test]
    fn options_that_ask_for_nothing_special_pass() {
        for text in [
            "{}",
            r#"{"mcp":[],"builtins":[],"skills":[],"humanInput":false,"attachments":[],"tools":[]}"#,
            r#"{"builtins":"all"}"#,
            r#"{"builtins":"read-only"}"#,
            r#"{"builtins":"none","maxIterations":0.5}"#,
            r#"{"attachments":[{"mimeType":"image/png","data":"aGk="},{"mimeType":"a/b","url":"HTTPS://x/y"},{"mimeType":"a/b","url":"data:a/b,hi"}]}"#,
        ] {
            assert_eq!(code_of(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_options_are_invalid() {
        for text in [
            r#"{"memory":""}"#,
            r#"{"memory":"/abs"}"#,
            r#"{"memory":"a/../b"}"#,
            r#"{"memory":"./a"}"#,
            r#"{"memory":"a\\b"}"#,
            r#"{"builtins":["read",""]}"#,
            r#"{"tools":[{"name":"a","description":"","input_schema":{}},{"name":"a","description":"","input_schema":{}}]}"#,
            r#"{"attachments":[{"mimeType":"image/png"}]}"#,
            r#"{"attachments":[{"mimeType":"image/png","data":"aGk=","url":"https://x"}]}"#,
            r#"{"attachments":[{"mimeType":"image/png","data":"%%%"}]}"#,
            r#"{"attachments":[{"mimeType":"image/png","data":""}]}"#,
            r#"{"attachments":[{"mimeType":"png","data":"aGk="}]}"#,
            r#"{"attachments":[{"mimeType":"image/","data":"aGk="}]}"#,
            r#"{"attachments":[{"mimeType":"a/b","url":"file:///etc/passwd"}]}"#,
            r#"{"attachments":[{"mimeType":"a/b","url":"https:"}]}"#,
            r#"{"attachments":[{"mimeType":"a/b","url":"data:nothing"}]}"#,
        ] {
            assert_eq!(code_of(text), Some(ErrorCode::ValidationFailed), "{text}");
        }
        let error = check(&options(&format!(r#"{{"builtins":["{}"]}}"#, "x".repeat(10_000)))).unwrap_err();
        assert!(error.message.len() < 120, "the echo is bounded");
    }

    #[test]
    fn paths_are_followed_lexically() {
        for inside in ["a", "a/b", "a/../b", "./a", "a//b", ""] {
            assert!(stays_inside(inside), "{inside}");
        }
        for outside in ["..", "a/../../b", "/a", "a\\b", "a/../.."] {
            assert!(!stays_inside(outside), "{outside}");
        }
    }
}
