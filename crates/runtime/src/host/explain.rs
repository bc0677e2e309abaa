//! Parameters that do not fit, told to an author: where, what, and what to write instead.

use serde::de::DeserializeOwned;
use trestle_contract::host::Method;
use trestle_contract::{ErrorCode, RawJson};

use super::HostFailure;

/// Reads the parameters of a method.
pub(super) fn read<P: DeserializeOwned>(method: Method, params: Option<&RawJson>) -> Result<P, HostFailure> {
    let name = method.as_str();
    let Some(params) = params else {
        return Err(HostFailure::new(ErrorCode::InvalidParams, format!("{name}: params are missing"))
            .with_hint("send {} when a method takes no parameters"));
    };
    params.decode().map_err(|error| explain::<P>(method, params, &error))
}

fn explain<P: DeserializeOwned>(method: Method, params: &RawJson, error: &serde_json::Error) -> HostFailure {
    let path = path_of::<P>(params);
    let text = error.to_string();
    // The place inside the text is of no use to an author; the reason is.
    let reason = plain(text.split(" at line ").next().unwrap_or(&text));
    let mut message = method.as_str().to_owned();
    if !path.is_empty() {
        message.push_str(": ");
        message.push_str(&path);
    }
    message.push_str(": ");
    message.push_str(&reason);
    let failure = HostFailure::new(ErrorCode::InvalidParams, message);
    let failure = match hint(method, &path, &text) {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    };
    if path.is_empty() { failure } else { failure.with_detail(&serde_json::json!({ "path": path })) }
}

/// Where in the parameters reading stopped, as far as that is known.
fn path_of<P: DeserializeOwned>(params: &RawJson) -> String {
    let mut reader = serde_json::Deserializer::from_str(params.get());
    match serde_path_to_error::deserialize::<_, P>(&mut reader) {
        Ok(_) => String::new(),
        Err(error) => {
            let path = error.path().to_string();
            if path == "." { String::new() } else { path.trim_end_matches(".?").to_owned() }
        }
    }
}

/// The reason in the author's words: no names of our types.
fn plain(reason: &str) -> String {
    if reason.starts_with("data did not match any variant") {
        return "has none of its forms".to_owned();
    }
    let missing = reason.strip_prefix("missing field ").map(|field| format!("{field} is missing"));
    if let Some(missing) = missing {
        return missing;
    }
    if let Some(rest) = reason.strip_prefix("unknown variant ") {
        return format!("has the unknown value {rest}");
    }
    let unknown = |prefix: &str| reason.strip_prefix(prefix).and_then(|rest| rest.split(',').next());
    if let Some(field) = unknown("unknown field ") {
        return format!("{field} is not known");
    }
    let reason = reason
        .strip_prefix("invalid type: ")
        .map(|rest| format!("is {rest}"))
        .unwrap_or_else(|| reason.into());
    let Some((found, expected)) = reason.rsplit_once(", expected ") else { return reason };
    let expected = match expected {
        "f64" => "a number",
        "i64" | "u64" | "u32" => "a whole number",
        "struct" | "a map" => "an object",
        "a sequence" => "a list",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other if other.starts_with("variant of enum ") => "one of its values",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// What to write instead, for the mistakes that authors make.
fn hint(method: Method, path: &str, reason: &str) -> Option<String> {
    if let Some(unknown) = reason.strip_prefix("unknown field `") {
        return Some(known_names(unknown));
    }
    let hint = match (method, path) {
        (Method::Agent, path) if path.starts_with("opts.tools") => {
            "a tool is { name, description, inputSchema, execute }; built-in tools are chosen with builtins: [\"read\", …]"
        }
        (Method::Agent, path) if path.starts_with("opts.builtins") => {
            "builtins is \"all\", \"read-only\", \"none\" or a list of names"
        }
        (Method::Agent, path) if path.starts_with("opts.reasoning") => {
            "reasoning is none, minimal, low, medium, high or xhigh, or { effort, maxTokens, exclude }"
        }
        (Method::Agent, path) if path.starts_with("opts.schema") => "schema is a JSON Schema object",
        (Method::Agent, path) if path.starts_with("opts.mcp") => {
            "a server is { name, transport: \"stdio\", command } or { name, transport: \"http\", url }"
        }
        (Method::Agent, path) if path.starts_with("opts.attachments") => {
            "an attachment is { mimeType, data } with base64 data, or { mimeType, url }"
        }
        (Method::Agent, "prompt" | "") => "agent(prompt, options): the prompt is text",
        (Method::Sleep, _) => {
            "sleep takes milliseconds, { durationMs } or { until: ISO time }; none of them negative"
        }
        (Method::HumanInput, path) if path.starts_with("opts.input") || path == "opts" => {
            "input is { kind: \"text\" }, { kind: \"choice\", options } or { kind: \"multiselect\", options }"
        }
        (Method::ArtifactsWrite, _) => {
            "artifacts.write(name, contentType, body, metadata): the body is text or bytes"
        }
        (Method::SecretsGet, _) => "secrets.get(name): the name of a secret in permissions.secrets",
        (Method::Shell, _) => {
            "shell(command, { cwd, env, timeoutMs, maxBuffer }): the command is text and not empty"
        }
        (Method::WorkflowsCall | Method::WorkflowsRun, _) => {
            "workflows.call(slug, input, { idempotencyKey }): input is required, null when there is none"
        }
        (Method::WorkflowsSchedule, _) => {
            "workflows.schedule(slug, input, { cron | rate | at, timezone, idempotencyKey })"
        }
        (Method::AuthIdToken, _) => "auth.idToken(audience): the audience is text and not empty",
        (Method::ReportReturn, _) => "report_return needs a value; null when the program returns nothing",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The known names, and the one that was probably meant.
fn known_names(text: &str) -> String {
    let mut names = text.split('`').step_by(2);
    let written = names.next().unwrap_or_default();
    let known: Vec<&str> = names.filter(|name| !name.is_empty() && !name.contains(' ')).collect();
    if known.is_empty() {
        return "it takes no options; check the version of the SDK".to_owned();
    }
    let close = known.iter().map(|name| (distance(written, name), *name)).min();
    match close {
        Some((distance, name)) if distance <= 2 => {
            format!("did you mean {name}? Known are: {}", known.join(", "))
        }
        _ => format!("known are: {}; check the spelling and the version of the SDK", known.join(", ")),
    }
}

/// Letters to change, add or take away, upper and lower case being one.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.to_lowercase().chars().take(64).enumerate() {
        let mut diagonal = index;
        let mut previous = index + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&right) {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            previous = changed.min(previous + 1).min(diagonal + 1);
            *cell = previous;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trestle_contract::host::{
        AgentParams, ArtifactWriteParams, CallParams, Empty, HumanInputParams, SecretGetParams, ShellParams,
        SleepParams,
    };

    fn refused<P: DeserializeOwned + std::fmt::Debug>(
        method: Method,
        params: &str,
    ) -> (String, String, String) {
        let failure = read::<P>(method, Some(&RawJson::parse(params).unwrap())).unwrap_err();
        assert_eq!(failure.code(), "INVALID_PARAMS", "{params}");
        let path = failure.0.detail().map(|detail| detail.get().to_owned()).unwrap_or_default();
        (failure.0.message.clone(), failure.0.hint().unwrap_or_default(), path)
    }

    #[test]
    fn the_mistakes_of_authors_are_told_with_place_and_remedy() {
        let agent =
            |opts: &str| refused::<AgentParams>(Method::Agent, &format!(r#"{{"prompt":"x","opts":{opts}}}"#));
        for (found, message, hint, path) in [
            // What `tools: ["bash"]` becomes on the way: an object without fields.
            (
                agent(r#"{"tools":[{}]}"#),
                "agent: opts.tools[0]: `name` is missing",
                "builtins",
                "opts.tools[0]",
            ),
            (
                agent(r#"{"tools":["bash"]}"#),
                "agent: opts.tools[0]: is string \"bash\"",
                "builtins",
                "opts.tools[0]",
            ),
            (
                agent(r#"{"tools":"bash"}"#),
                "agent: opts.tools: is string \"bash\", expected a list",
                "{ name, description",
                "opts.tools",
            ),
            (
                agent(r#"{"temperature":1}"#),
                "agent: opts.temperature: `temperature` is not known",
                "known are: name, model",
                "opts.temperature",
            ),
            (
                agent(r#"{"modell":"x"}"#),
                "agent: opts.modell: `modell` is not known",
                "did you mean model?",
                "opts.modell",
            ),
            (
                agent(r#"{"maxiterations":1}"#),
                "`maxiterations` is not known",
                "did you mean maxIterations?",
                "opts.maxiterations",
            ),
            (
                agent(r#"{"builtins":"some"}"#),
                "agent: opts.builtins: has none of its forms",
                "read-only",
                "opts.builtins",
            ),
            (agent(r#"{"model":null}"#), "agent: opts.model: is null", "", "opts.model"),
            (
                agent(r#"{"maxIterations":"3"}"#),
                "agent: opts.maxIterations: is string \"3\", expected a number",
                "",
                "opts.maxIterations",
            ),
            (
                refused::<SleepParams>(Method::Sleep, r#"{"arg":-1}"#),
                "sleep: arg: has none of its forms",
                "milliseconds",
                "arg",
            ),
            (
                refused::<SleepParams>(Method::Sleep, r#"{"arg":{"hours":1}}"#),
                "sleep: arg",
                "durationMs",
                "arg",
            ),
            (
                refused::<CallParams>(Method::WorkflowsCall, r#"{"slug":"a"}"#),
                "workflows.call: `input` is missing",
                "null when there is none",
                "",
            ),
            (
                refused::<SecretGetParams>(Method::SecretsGet, r#"{"name":""}"#),
                "secrets.get: name",
                "permissions.secrets",
                "name",
            ),
            (refused::<ShellParams>(Method::Shell, r#"{"cmd":""}"#), "shell: cmd", "not empty", "cmd"),
            (
                refused::<ShellParams>(Method::Shell, r#"{"cmd":"a","opts":{"timeout":1}}"#),
                "`timeout` is not known",
                "timeoutMs",
                "opts.timeout",
            ),
            (
                refused::<ArtifactWriteParams>(
                    Method::ArtifactsWrite,
                    r#"{"name":"a","contentType":"b","body":"c"}"#,
                ),
                "artifacts.write: body",
                "text or bytes",
                "body",
            ),
            (
                refused::<HumanInputParams>(
                    Method::HumanInput,
                    r#"{"opts":{"prompt":"a","input":{"kind":"yesno"}}}"#,
                ),
                "humanInput: opts.input",
                "multiselect",
                "opts.input",
            ),
            (
                refused::<Empty>(Method::UsageGet, r#"{"x":1}"#),
                "usage.get: x: `x` is not known",
                "no options",
                "x",
            ),
        ] {
            assert!(found.0.contains(message), "{found:?}: {message}");
            assert!(found.1.contains(hint), "{found:?}: {hint}");
            assert!(found.2.contains(path), "{found:?}: {path}");
            for name in ["Params", "Opts", "enum", "struct", "variant"] {
                assert!(!found.0.contains(name), "{found:?} names a type of ours");
            }
        }
        let failure = read::<Empty>(Method::UsageGet, None).unwrap_err();
        assert!(failure.0.message.contains("params are missing") && failure.0.hint().is_some());
    }

    #[test]
    fn names_are_compared_by_the_letters_that_differ() {
        assert_eq!(distance("model", "modell"), 1);
        assert_eq!(distance("Timeout", "timeout"), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
