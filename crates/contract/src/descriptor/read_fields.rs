//! Root, triggers, environment, workspace and budget (`docs/protocol/descriptor.md` §4, §5.1–§5.4).

use std::collections::BTreeMap;

use super::cron::check_cron;
use super::jsonc::{Node, NodeKind};
use super::model::{
    Budget, Conclusion, CronTrigger, Descriptor, GithubEvent, GithubTrigger, IssueEvent, IssueTrigger,
    NotionEvent, NotionTrigger, Persist, Trigger, WebhookTrigger, WorkflowRunTrigger, Workspace,
};
use super::read::{Fields, Reader, length, listed};
use crate::bounds::utf16_len;
use crate::json::RawJson;

const UNBOUNDED: usize = usize::MAX;
const TRIGGER_KINDS: [&str; 8] =
    ["manual", "cron", "webhook", "workflow_run", "github", "linear", "jira", "notion"];

/// All fields of the root object. `None` when anything is wrong; the reader then holds the problems.
pub(super) fn descriptor(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<Descriptor> {
    let slug = fields.required(reader, "slug", Reader::slug);
    let title = fields.optional(reader, "title", title);
    let description = fields.optional(reader, "description", |r, path, node| {
        r.text(path, node, length(0, 1000)).map(str::to_owned)
    });
    let entry = fields.optional(reader, "entry", Reader::relative_path);
    let triggers = fields.required(reader, "triggers", |reader, path, node| {
        reader.list(path, node, length(1, UNBOUNDED), trigger)
    });
    let env = fields.optional(reader, "env", env);
    let workspace = fields.optional(reader, "workspace", workspace);
    let recording = fields.optional(reader, "recording", Reader::boolean);
    let budget = fields.optional(reader, "budget", budget);
    let concurrency = fields.optional(reader, "concurrency", super::read_policy::concurrency);
    let runs_on = fields.optional(reader, "runs_on", super::read_policy::runs_on);
    let container = fields.optional(reader, "container", super::read_policy::container);
    let permissions = fields.optional(reader, "permissions", super::read_policy::permissions);
    let callable_by = fields.optional(reader, "callable_by", super::read_policy::callable_by);
    let egress = fields.optional(reader, "egress", super::read_policy::egress);
    let notifications = fields.optional(reader, "notifications", |reader, path, node| {
        reader.list(path, node, length(0, UNBOUNDED), super::read_policy::notification)
    });
    let files = fields
        .optional(reader, "files", |r, path, node| r.list(path, node, length(1, 100), Reader::relative_path));
    Some(Descriptor {
        slug: slug?,
        title,
        description,
        entry,
        triggers: triggers?,
        env,
        workspace,
        recording,
        budget,
        concurrency: concurrency.unwrap_or_default(),
        runs_on: runs_on.unwrap_or_default(),
        container,
        permissions,
        callable_by: callable_by.unwrap_or_default(),
        egress,
        notifications,
        files,
    })
}

fn title(reader: &mut Reader, path: &str, node: &Node) -> Option<String> {
    let text = reader.text(path, node, length(1, 200))?;
    if text.contains('\n') {
        reader.problem(path, node.offset, "must be one line", Some("longer text goes into \"description\""));
        return None;
    }
    Some(text.to_owned())
}

fn trigger(reader: &mut Reader, path: &str, node: &Node) -> Option<Trigger> {
    let mut fields = reader.fields(path, node)?;
    let kind_path = fields.path("kind");
    let kind = match fields.get("kind").map(|node| (&node.kind, node.offset)) {
        Some((NodeKind::String(kind), offset)) if !TRIGGER_KINDS.contains(&kind.as_str()) => {
            unknown_kind(reader, &kind_path, offset, kind);
            return None;
        }
        Some((NodeKind::String(kind), _)) => kind.as_str(),
        Some((_, offset)) => {
            let message = format!("must be one of {}", listed(TRIGGER_KINDS.into_iter()));
            reader.problem(&kind_path, offset, message, None);
            return None;
        }
        None => {
            let message = format!("is required, one of {}", listed(TRIGGER_KINDS.into_iter()));
            reader.problem(&kind_path, fields.offset, message, None);
            return None;
        }
    };
    let before = reader.problems.len();
    let trigger = match kind {
        "manual" => Some(Trigger::Manual),
        "cron" => cron(reader, &mut fields).map(Trigger::Cron),
        "webhook" => fields
            .required(reader, "name", Reader::slug)
            .map(|name| Trigger::Webhook(WebhookTrigger { name })),
        "workflow_run" => workflow_run(reader, &mut fields).map(Trigger::WorkflowRun),
        "github" => github(reader, &mut fields).map(Trigger::Github),
        "linear" => issue(reader, &mut fields).map(Trigger::Linear),
        "jira" => issue(reader, &mut fields).map(Trigger::Jira),
        _ => fields
            .required(reader, "event", |reader, path, node| reader.word(path, node, NotionEvent::WORDS))
            .map(|event| Trigger::Notion(NotionTrigger { event })),
    };
    fields.finish(reader);
    trigger.filter(|_| reader.problems.len() == before)
}

fn unknown_kind(reader: &mut Reader, path: &str, offset: usize, kind: &str) {
    let message = format!("\"{kind}\" is not one of {}", listed(TRIGGER_KINDS.into_iter()));
    let hint = match super::read::closest(kind, TRIGGER_KINDS.into_iter()) {
        Some(word) => Some(format!("did you mean \"{word}\"?")),
        None if matches!(kind, "event" | "http") => {
            Some("events come in through a \"webhook\" trigger".into())
        }
        None if kind == "schedule" => Some("schedules are \"cron\" triggers".into()),
        None => None,
    };
    reader.problem(path, offset, message, hint.as_deref());
}

fn cron(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<CronTrigger> {
    let expr = fields.required(reader, "expr", |reader, path, node| {
        let text = reader.text(path, node, length(1, 120))?;
        if let Err(error) = check_cron(text) {
            let hint = match text.trim() {
                "@hourly" => "write `0 * * * *`",
                "@daily" | "@midnight" => "write `0 0 * * *`",
                "@weekly" => "write `0 0 * * 0`",
                "@monthly" => "write `0 0 1 * *`",
                "@yearly" | "@annually" => "write `0 0 1 1 *`",
                _ => "fields are minute, hour, day, month, weekday; `30 2 * * *` is 02:30 every day",
            };
            reader.problem(path, node.offset, error.to_string(), Some(hint));
            return None;
        }
        Some(text.to_owned())
    });
    let timezone = fields.optional(reader, "timezone", |reader, path, node| {
        let text = reader.text(path, node, length(1, 80))?;
        let plausible = |character: char| character.is_ascii_alphanumeric() || "/_+-".contains(character);
        if !text.chars().all(plausible) {
            reader.warn(
                path,
                node.offset,
                format!("\"{text}\" does not look like a time zone such as Europe/Lisbon"),
            );
        }
        Some(text.to_owned())
    });
    let input = fields.optional(reader, "input", |reader, path, node| {
        if !matches!(node.kind, NodeKind::Object(_)) {
            reader.mismatch(path, node, "an object");
            return None;
        }
        let mut text = String::new();
        node.write_json(&mut text);
        match RawJson::parse(&text) {
            Ok(input) => Some(input),
            Err(error) => {
                reader.problem(path, node.offset, error.to_string(), Some(error.hint()));
                None
            }
        }
    });
    Some(CronTrigger { expr: expr?, timezone, input })
}

fn workflow_run(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<WorkflowRunTrigger> {
    let workflows =
        fields.required(reader, "workflows", |r, path, node| r.list(path, node, length(1, 20), Reader::slug));
    let conclusions = fields.optional(reader, "conclusions", |reader, path, node| {
        reader.list(path, node, length(1, UNBOUNDED), |r, path, node| r.word(path, node, Conclusion::WORDS))
    });
    Some(WorkflowRunTrigger { workflows: workflows?, conclusions })
}

fn github(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<GithubTrigger> {
    let event =
        fields.required(reader, "event", |reader, path, node| reader.word(path, node, GithubEvent::WORDS));
    let repos =
        fields.optional(reader, "repos", |r, path, node| r.list(path, node, length(1, 50), repository));
    Some(GithubTrigger { event: event?, repos })
}

fn repository(reader: &mut Reader, path: &str, node: &Node) -> Option<String> {
    let text = reader.text(path, node, length(0, 140))?;
    if text.split_once('/').is_some_and(|(owner, name)| is_owner(owner) && is_repository_name(name)) {
        return Some(text.to_owned());
    }
    reader.problem(
        path,
        node.offset,
        format!("\"{text}\" is not `owner/name`"),
        Some("for example \"acme/web\""),
    );
    None
}

fn is_owner(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    (1..=39).contains(&text.len())
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
}

fn is_repository_name(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn issue(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<IssueTrigger> {
    fields
        .required(reader, "event", |reader, path, node| reader.word(path, node, IssueEvent::WORDS))
        .map(|event| IssueTrigger { event })
}

fn env(reader: &mut Reader, path: &str, node: &Node) -> Option<BTreeMap<String, String>> {
    let NodeKind::Object(members) = &node.kind else {
        reader.mismatch(path, node, "an object");
        return None;
    };
    let before = reader.problems.len();
    if members.len() > 100 {
        let message = format!("must have at most 100 names, has {}", members.len());
        reader.problem(path, node.offset, message, None);
    }
    let mut env = BTreeMap::new();
    for member in members {
        let path = super::read::join(path, &member.key);
        if !(1..=120).contains(&utf16_len(&member.key)) {
            reader.problem(&path, member.key_offset, "a name must have 1 to 120 characters", None);
        }
        if member.key.contains(['=', '\0']) {
            let message = "a name with `=` or NUL cannot be set in an environment";
            reader.problem(&path, member.key_offset, message, Some("names are usually written like API_URL"));
        } else if member.key.contains(char::is_whitespace) {
            reader.warn(&path, member.key_offset, "the name holds white space; shells cannot read it");
        }
        if let Some(value) = env_value(reader, &path, &member.value) {
            env.insert(member.key.clone(), value);
        }
    }
    (reader.problems.len() == before).then_some(env)
}

fn env_value(reader: &mut Reader, path: &str, node: &Node) -> Option<String> {
    let text = reader.text(path, node, length(0, 32_768))?;
    if text.contains('\0') {
        reader.problem(path, node.offset, "a value with NUL cannot be set in an environment", None);
        return None;
    }
    if text.contains("${{") && secret_reference(text).is_none() {
        let hint = "make the whole value `${{ secrets.NAME }}` and join texts in the program";
        reader.problem(path, node.offset, "a secret reference must be the whole value", Some(hint));
        return None;
    }
    Some(text.to_owned())
}

/// The secret's name when the text is exactly `${{ secrets.NAME }}`.
#[must_use]
pub fn secret_reference(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("${{")?.strip_suffix("}}")?.trim().strip_prefix("secrets.")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (!inner.is_empty() && inner.bytes().all(plain)).then_some(inner)
}

fn workspace(reader: &mut Reader, path: &str, node: &Node) -> Option<Workspace> {
    let mut fields = reader.fields(path, node)?;
    let persist = fields.optional(reader, "persist", |reader, path, node| match &node.kind {
        NodeKind::Bool(all) => Some(Persist::All(*all)),
        NodeKind::Array(_) => {
            reader.list(path, node, length(1, 50), Reader::relative_path).map(Persist::Paths)
        }
        _ => {
            reader.mismatch(path, node, "true, false, or an array of paths");
            None
        }
    });
    let key = fields.optional(reader, "key", Reader::template);
    fields.finish(reader);
    Some(Workspace { persist, key })
}

fn budget(reader: &mut Reader, path: &str, node: &Node) -> Option<Budget> {
    let mut fields = reader.fields(path, node)?;
    let max_tokens = fields.optional(reader, "max_tokens", Reader::positive_whole);
    let max_usd = fields.optional(reader, "max_usd", Reader::positive);
    let max_compute_seconds = fields.optional(reader, "max_compute_seconds", Reader::positive_whole);
    fields.finish(reader);
    Some(Budget { max_tokens, max_usd, max_compute_seconds })
}
