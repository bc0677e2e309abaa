//! Concurrency, placement, permissions and notifications (`docs/protocol/descriptor.md` §5.5–§5.10).
//!
//! Union fields pick their form by the key that tells forms apart, so that a problem is reported inside the form.

use super::jsonc::{Node, NodeKind};
use super::model::{
    CallableBy, CallerRole, Channel, Concurrency, Container, Egress, EgressLevel, Grant, HostedLabel,
    HostedRunner, HostedSize, IdTokenGrant, Lane, Notification, NotifyOn, Permissions, RunsOn, SecretGrant,
    SelfHosted, default_pool,
};
use super::read::{Reader, length};

const UNBOUNDED: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Serial,
    LatestWins,
    Unlimited,
}

pub(super) fn concurrency(reader: &mut Reader, path: &str, node: &Node) -> Option<Concurrency> {
    let mut fields = reader.fields(path, node)?;
    let words = [("serial", Mode::Serial), ("latest_wins", Mode::LatestWins), ("unlimited", Mode::Unlimited)];
    let mode = fields.required(reader, "mode", |reader, path, node| reader.word(path, node, &words))?;
    let value = match mode {
        Mode::Unlimited => Concurrency::Unlimited,
        Mode::Serial => Concurrency::Serial(Lane { key: fields.optional(reader, "key", Reader::template) }),
        Mode::LatestWins => {
            Concurrency::LatestWins(Lane { key: fields.optional(reader, "key", Reader::template) })
        }
    };
    fields.finish(reader);
    Some(value)
}

pub(super) fn runs_on(reader: &mut Reader, path: &str, node: &Node) -> Option<RunsOn> {
    if matches!(node.kind, NodeKind::String(_)) {
        return reader.word(path, node, HostedLabel::WORDS).map(RunsOn::Hosted);
    }
    let NodeKind::Object(members) = &node.kind else {
        reader.mismatch(path, node, "a label or an object");
        return None;
    };
    let mut fields = reader.fields(path, node)?;
    let value = if members.iter().any(|member| member.key == "kind") {
        let kinds = [("self-hosted", ())];
        let kind = fields.required(reader, "kind", |reader, path, node| reader.word(path, node, &kinds));
        let pool = fields
            .optional(reader, "pool", |r, path, node| r.text(path, node, length(1, 120)).map(str::to_owned));
        let labels = fields.optional(reader, "labels", |reader, path, node| {
            reader.list(path, node, length(0, UNBOUNDED), |r, path, node| {
                r.text(path, node, length(1, 120)).map(str::to_owned)
            })
        });
        kind.map(|()| RunsOn::SelfHosted(SelfHosted { pool: pool.unwrap_or_else(default_pool), labels }))
    } else {
        let label = fields
            .required(reader, "label", |reader, path, node| reader.word(path, node, HostedLabel::WORDS));
        let size =
            fields.optional(reader, "size", |reader, path, node| reader.word(path, node, HostedSize::WORDS));
        label.map(|label| RunsOn::HostedSized(HostedRunner { label, size }))
    };
    fields.finish(reader);
    value
}

pub(super) fn container(reader: &mut Reader, path: &str, node: &Node) -> Option<Container> {
    let mut fields = reader.fields(path, node)?;
    let image = fields
        .required(reader, "image", |r, path, node| r.text(path, node, length(1, 512)).map(str::to_owned));
    fields.finish(reader);
    Some(Container { image: image? })
}

pub(super) fn permissions(reader: &mut Reader, path: &str, node: &Node) -> Option<Permissions> {
    let mut fields = reader.fields(path, node)?;
    let id_token = fields
        .optional(reader, "id_token", |reader, path, node| reader.word(path, node, IdTokenGrant::WORDS));
    let artifacts =
        fields.optional(reader, "artifacts", |reader, path, node| reader.word(path, node, Grant::WORDS));
    let contents =
        fields.optional(reader, "contents", |reader, path, node| reader.word(path, node, Grant::WORDS));
    let secrets = fields.optional(reader, "secrets", |reader, path, node| {
        reader.list(path, node, length(0, UNBOUNDED), secret_grant)
    });
    fields.finish(reader);
    Some(Permissions { id_token, artifacts, contents, secrets })
}

fn secret_grant(reader: &mut Reader, path: &str, node: &Node) -> Option<SecretGrant> {
    if let NodeKind::String(name) = &node.kind {
        let hint = format!("write {{ \"name\": \"{name}\" }}");
        reader.problem(path, node.offset, "expected an object, found a string", Some(&hint));
        return None;
    }
    let mut fields = reader.fields(path, node)?;
    let name = fields
        .required(reader, "name", |r, path, node| r.text(path, node, length(1, 120)).map(str::to_owned));
    fields.finish(reader);
    Some(SecretGrant { name: name? })
}

pub(super) fn callable_by(reader: &mut Reader, path: &str, node: &Node) -> Option<CallableBy> {
    if matches!(node.kind, NodeKind::String(_)) {
        let words = [("anyone_in_org", 0), ("users_only", 1), ("workflows_only", 2)];
        return reader.word(path, node, &words).map(|index| match index {
            0 => CallableBy::AnyoneInOrg,
            1 => CallableBy::UsersOnly,
            _ => CallableBy::WorkflowsOnly,
        });
    }
    let NodeKind::Object(members) = &node.kind else {
        reader.mismatch(path, node, "\"anyone_in_org\", \"users_only\", \"workflows_only\" or an object");
        return None;
    };
    let mut fields = reader.fields(path, node)?;
    let value = if members.iter().any(|member| member.key == "workflows") {
        fields
            .required(reader, "workflows", |r, path, node| {
                r.list(path, node, length(1, UNBOUNDED), Reader::slug)
            })
            .map(CallableBy::Workflows)
    } else {
        fields
            .required(reader, "roles", |reader, path, node| {
                reader.list(path, node, length(1, UNBOUNDED), |r, path, node| {
                    r.word(path, node, CallerRole::WORDS)
                })
            })
            .map(CallableBy::Roles)
    };
    fields.finish(reader);
    value
}

pub(super) fn egress(reader: &mut Reader, path: &str, node: &Node) -> Option<Egress> {
    let mut fields = reader.fields(path, node)?;
    let words = [("custom", EgressLevel::Custom), ("none", EgressLevel::None), ("full", EgressLevel::Full)];
    let level = fields.required(reader, "level", |reader, path, node| reader.word(path, node, &words))?;
    let value = match level {
        EgressLevel::None => Some(Egress::None),
        EgressLevel::Full => Some(Egress::Full),
        EgressLevel::Custom => fields
            .required(reader, "allow", |reader, path, node| {
                reader.list(path, node, length(1, UNBOUNDED), |r, path, node| {
                    r.text(path, node, length(1, 256)).map(str::to_owned)
                })
            })
            .map(|allow| Egress::Custom { allow }),
    };
    fields.finish(reader);
    value
}

pub(super) fn notification(reader: &mut Reader, path: &str, node: &Node) -> Option<Notification> {
    let mut fields = reader.fields(path, node)?;
    let on = fields.required(reader, "on", |reader, path, node| reader.word(path, node, NotifyOn::WORDS));
    let channel =
        fields.required(reader, "channel", |reader, path, node| reader.word(path, node, Channel::WORDS));
    let target = fields
        .required(reader, "target", |r, path, node| r.text(path, node, length(1, 2048)).map(str::to_owned));
    let template = match on {
        Some(NotifyOn::BudgetExceeded) => None,
        _ => fields.optional(reader, "template", |r, path, node| {
            r.text(path, node, length(0, 10_000)).map(str::to_owned)
        }),
    };
    if on == Some(NotifyOn::BudgetExceeded) && channel == Some(Channel::Webhook) {
        let message = "\"budget_exceeded\" is told by email only";
        reader.problem(
            path,
            node.offset,
            message,
            Some("write \"channel\": \"email\" and an address as \"target\""),
        );
    }
    fields.finish(reader);
    Some(Notification { on: on?, channel: channel?, target: target?, template })
}
