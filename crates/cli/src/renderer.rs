use std::fmt::Write;

use trestle_contract::event::{
    Channel, CompactionMethod, DEFAULT_CHANNELS, Event, EventBody, EventError, SkipReason,
};
use trestle_contract::json::RawJson;

use crate::pretty_json;

/// Which events a person sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    channels: Vec<Channel>,
    output: bool,
}

impl Selection {
    /// These channels.
    #[must_use]
    pub fn of(channels: impl IntoIterator<Item = Channel>) -> Self {
        Self { channels: channels.into_iter().collect(), output: true }
    }

    /// Lifecycle, phases and the output.
    #[must_use]
    pub fn standard() -> Self {
        Self::of(DEFAULT_CHANNELS)
    }

    /// Every channel.
    #[must_use]
    pub fn verbose() -> Self {
        Self::of(Channel::ALL)
    }

    /// Leaves the output to somebody else, who prints it as data.
    #[must_use]
    pub fn without_output(self) -> Self {
        Self { output: false, ..self }
    }

    fn sees(&self, channel: Channel) -> bool {
        self.channels.contains(&channel) && (self.output || channel != Channel::Output)
    }
}

/// Turns events into the text of a log (`docs/protocol/events.md` §9.5).
///
/// What a model says is shown when its block is whole: until then a restart may void it, and text that was
/// printed cannot be taken back. So turns of agents that speak at once do not mix either.
#[derive(Debug)]
pub struct Renderer {
    selection: Selection,
    /// Text of the open block of each turn.
    blocks: Vec<(String, String)>,
    in_line: bool,
    hidden: Vec<(Channel, usize)>,
}

impl Renderer {
    /// A renderer of the selected events.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self { selection, blocks: Vec::new(), in_line: false, hidden: Vec::new() }
    }

    /// The text to write for an event; empty for one that shows nothing.
    pub fn render(&mut self, event: &Event) -> String {
        let channel = event.body.channel();
        if !self.selection.sees(channel) {
            if self.selection.output || channel != Channel::Output {
                match self.hidden.iter_mut().find(|(hidden, _)| *hidden == channel) {
                    Some((_, count)) => *count += 1,
                    None => self.hidden.push((channel, 1)),
                }
            }
            return String::new();
        }
        let turn = event.envelope.turn_id.as_str();
        match &event.body {
            EventBody::TextDelta { text, .. } | EventBody::ReasoningDelta { text } => {
                match self.blocks.iter_mut().find(|(open, _)| open == turn) {
                    Some((_, block)) => block.push_str(text),
                    None => self.blocks.push((turn.to_owned(), text.clone())),
                }
                String::new()
            }
            EventBody::TextStart { .. } => String::new(),
            EventBody::TurnReset {} => {
                self.close(turn);
                self.whole_line(agent_line(&event.body))
            }
            EventBody::ToolOutputDelta { text, .. } => {
                let mut piece = self.spoken(turn);
                piece.push_str(text);
                self.in_line = if piece.is_empty() { self.in_line } else { !piece.ends_with('\n') };
                piece
            }
            body => {
                let is_end = matches!(body, EventBody::RunStatus { status, .. } if status.is_terminal());
                let spoken = if is_end { self.finish() } else { self.spoken(turn) };
                let line = self.line(body);
                spoken + &self.whole_line(line)
            }
        }
    }

    /// What is left when there are no more events: the blocks that were not ended.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let turns: Vec<String> = self.blocks.iter().map(|(turn, _)| turn.clone()).collect();
        turns.iter().map(|turn| self.spoken(turn)).collect()
    }

    fn close(&mut self, turn: &str) -> Option<String> {
        let at = self.blocks.iter().position(|(open, _)| open == turn)?;
        Some(self.blocks.remove(at).1)
    }

    /// The text of a turn's block, which is whole now, as lines of their own.
    fn spoken(&mut self, turn: &str) -> String {
        let mut text = self.close(turn).unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        self.whole_line(text)
    }

    /// Text that does not start in the middle of another line.
    fn whole_line(&mut self, line: String) -> String {
        if line.is_empty() {
            return line;
        }
        let text = if std::mem::take(&mut self.in_line) { format!("\n{line}") } else { line };
        self.in_line = !text.ends_with('\n');
        text
    }

    /// How many events were not shown, as a closing note; `None` when all were.
    #[must_use]
    pub fn hidden_note(&self) -> Option<String> {
        if self.hidden.is_empty() {
            return None;
        }
        let counts: Vec<String> =
            self.hidden.iter().map(|(channel, count)| format!("{count} {channel}")).collect();
        let names: Vec<&str> = self.hidden.iter().map(|(channel, _)| channel.as_str()).collect();
        Some(format!(
            "· {} events not shown — add --verbose (or --stream {})",
            counts.join(" + "),
            names.join(",")
        ))
    }

    fn line(&self, body: &EventBody) -> String {
        match body {
            EventBody::RunStatus { status, error } => match error {
                Some(error) => format!("● workflow {status}\n{}", error_lines(error)),
                None => format!("● workflow {status}\n"),
            },
            EventBody::Phase { name, .. } => format!("▸ {}\n", name.as_str()),
            EventBody::Output { value } => {
                let value = output_text(value);
                if self.selection.channels == [Channel::Output] {
                    format!("{value}\n")
                } else {
                    format!("── output ──\n{value}\n")
                }
            }
            EventBody::ProgramOutput { text, .. } => {
                if text.ends_with('\n') {
                    text.clone()
                } else {
                    format!("{text}\n")
                }
            }
            EventBody::EgressDenied { host, method, reason } => {
                let method = method.as_ref().map(|method| format!("{method} ")).unwrap_or_default();
                format!("⊘ egress denied: {method}{} — {}\n", host.as_str(), reason.as_str())
            }
            EventBody::WorkspacePersistSkipped { reason, bytes, max_bytes, detail } => {
                let size = bytes.map(|bytes| format!(" ({})", mebibytes(bytes.get()))).unwrap_or_default();
                let why = match reason {
                    SkipReason::TooLarge => {
                        let limit = max_bytes.map_or_else(|| "size".to_owned(), |max| mebibytes(max.get()));
                        format!("over the {limit} limit — narrow workspace.persist")
                    }
                    SkipReason::StorageLimit => "org storage limit reached".to_owned(),
                    SkipReason::Error => detail.clone().unwrap_or_else(|| "error".to_owned()),
                };
                format!("⊘ workspace not saved{size}: {why}\n")
            }
            EventBody::Suspended { reason, wake_at } => {
                let until = match (wake_at, reason) {
                    (Some(at), _) => format!(" until {}", instant(at.get_signed())),
                    (None, trestle_contract::event::SuspendReason::HumanInput) => {
                        " awaiting human input".to_owned()
                    }
                    (None, _) => String::new(),
                };
                let reason = serde_json::to_value(reason).ok();
                format!(
                    "⏸ suspended ({}){until}\n",
                    reason.as_ref().and_then(|reason| reason.as_str()).unwrap_or_default()
                )
            }
            EventBody::Resumed {} => "▶ resumed\n".to_owned(),
            EventBody::HumanInputRequested { key, prompt, .. } => {
                format!("⏸ input needed [{}]: {prompt}\n", key.as_str())
            }
            EventBody::HumanInputResolved { key, .. } => format!("▶ input received [{}]\n", key.as_str()),
            other => agent_line(other),
        }
    }
}

fn agent_line(body: &EventBody) -> String {
    match body {
        EventBody::TurnStarted { agent_name, .. } => match agent_name {
            Some(name) => format!("· agent {} turn started\n", name.as_str()),
            None => "· agent turn started\n".to_owned(),
        },
        EventBody::TurnEnded { reason, usage, error, .. } => {
            let reason = match reason {
                trestle_contract::event::TurnEndReason::Complete => "complete",
                trestle_contract::event::TurnEndReason::Cancelled => "cancelled",
                trestle_contract::event::TurnEndReason::Error => "error",
            };
            let total = usage.and_then(|usage| {
                let parts = [usage.input_tokens, usage.output_tokens];
                usage.total_tokens.map(|total| total.get()).or_else(|| {
                    parts
                        .iter()
                        .any(Option::is_some)
                        .then(|| parts.iter().flatten().map(|count| count.get()).sum())
                })
            });
            let tokens = total.map(|total| format!(" ({total} tokens)")).unwrap_or_default();
            let error = error.as_ref().map(|error| format!(" — {}", error.message)).unwrap_or_default();
            format!("· agent turn {reason}{tokens}{error}\n")
        }
        EventBody::TurnReset {} => "↻ stream dropped — regenerating this turn\n".to_owned(),
        EventBody::ToolCallStart { tool_name, .. } => format!("· tool {tool_name} …\n"),
        EventBody::ToolCallResult { result, .. } => {
            let summary = result.human_summary.as_deref().or(result.kind.as_deref()).unwrap_or("done");
            format!("· tool result: {summary}\n")
        }
        EventBody::ToolCallError { error, .. } => format!("· tool error: {}\n", error.message),
        EventBody::CompactionStarted { tokens, budget, context_tokens, .. } => {
            let window = context_tokens
                .map(|window| format!(" for a {}-token window", grouped(window.get())))
                .unwrap_or_default();
            format!(
                "⊟ compacting context: {} tokens, past the {} budget{window}\n",
                grouped(tokens.get()),
                grouped(budget.get())
            )
        }
        EventBody::CompactionEnded { tokens, reclaimed, method, .. } => {
            let what = match method {
                CompactionMethod::Summarized => {
                    format!("summarized the oldest turns, freed {} tokens", grouped(reclaimed.get()))
                }
                CompactionMethod::Deduped => {
                    format!("dropped stale repeated reads, freed {} tokens", grouped(reclaimed.get()))
                }
                CompactionMethod::None => "nothing left to reclaim".to_owned(),
            };
            format!("▣ compaction done: {what} — now {} tokens\n", grouped(tokens.get()))
        }
        _ => String::new(),
    }
}

/// Two-space indented `CODE: message`, and the hint below it.
pub(crate) fn error_lines(error: &EventError) -> String {
    let mut text = format!("  {}: {}\n", error.code, error.message);
    if let Some(hint) = &error.hint {
        let _ = writeln!(text, "  {hint}");
    }
    text
}

/// A string as it is, everything else as indented JSON.
#[must_use]
pub fn output_text(value: &RawJson) -> String {
    if value.get().starts_with('"')
        && let Ok(text) = value.decode::<String>()
    {
        return text;
    }
    pretty_json(value.get())
}

fn mebibytes(bytes: u64) -> String {
    let tenths = (bytes.saturating_mul(10) + (1 << 19)) >> 20;
    if tenths < 100 {
        format!("{}.{} MiB", tenths / 10, tenths % 10)
    } else {
        format!("{} MiB", (bytes + (1 << 19)) >> 20)
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A point in time as ISO text with milliseconds.
pub(crate) fn instant(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(selection: Selection, events: &[&str]) -> (String, Option<String>) {
        let mut renderer = Renderer::new(selection);
        let mut text = String::new();
        for (at, body) in events.iter().enumerate() {
            let json = format!(r#"{{"runId":"r","turnId":"r","seq":{},"t":0,{body}}}"#, at + 1);
            text.push_str(&renderer.render(&Event::parse(&json).unwrap()));
        }
        text.push_str(&renderer.finish());
        (text, renderer.hidden_note())
    }

    #[test]
    fn text_that_a_restart_made_void_is_not_shown() {
        let turn = |turn: &str, body: &str| {
            Event::parse(&format!(r#"{{"runId":"r","turnId":"{turn}","seq":1,"t":0,{body}}}"#)).unwrap()
        };
        let mut renderer = Renderer::new(Selection::verbose());
        let mut text = String::new();
        for (of, body) in [
            ("a", r#""kind":"text_start","blockId":"text-1""#),
            ("a", r#""kind":"reasoning_delta","text":"void thought""#),
            ("a", r#""kind":"text_delta","blockId":"text-1","text":"void""#),
            ("b", r#""kind":"text_delta","blockId":"text-1","text":"other ""#),
            ("a", r#""kind":"turn_reset""#),
            ("a", r#""kind":"text_delta","blockId":"text-1","text":"whole""#),
            ("b", r#""kind":"text_delta","blockId":"text-1","text":"agent""#),
            ("a", r#""kind":"text_end","blockId":"text-1""#),
            ("b", r#""kind":"text_end","blockId":"text-1""#),
            ("a", r#""kind":"text_delta","blockId":"text-2","text":"cut off""#),
        ] {
            text.push_str(&renderer.render(&turn(of, body)));
        }
        text.push_str(&renderer.finish());
        assert_eq!(text, "↻ stream dropped — regenerating this turn\nwhole\nother agent\ncut off\n");
    }

    const RUN: &[&str] = &[
        r#""kind":"run_status","status":"running""#,
        r#""kind":"phase","name":"Collect","id":"phase-1""#,
        r#""kind":"program_output","stream":"stdout","text":"line""#,
        r#""kind":"program_output","stream":"stderr","text":"with end\n""#,
        r#""kind":"turn_started","agentId":"agent-1","agentName":"critic""#,
        r#""kind":"reasoning_delta","text":"hm""#,
        r#""kind":"text_start","blockId":"text-1""#,
        r#""kind":"text_delta","blockId":"text-1","text":"Hel""#,
        r#""kind":"turn_reset""#,
        r#""kind":"text_delta","blockId":"text-1","text":"Hello""#,
        r#""kind":"text_end","blockId":"text-1""#,
        r#""kind":"tool_call_start","toolCallId":"c","toolName":"lookup""#,
        r#""kind":"tool_call_input_complete","toolCallId":"c","input":{}"#,
        r#""kind":"tool_call_executing","toolCallId":"c""#,
        r#""kind":"tool_output_delta","toolCallId":"c","stream":"stdout","text":"out""#,
        r#""kind":"tool_call_result","toolCallId":"c","result":{"humanSummary":"found 2"}"#,
        r#""kind":"tool_call_error","toolCallId":"d","error":{"code":"X","message":"broke"}"#,
        r#""kind":"compaction_started","agentId":"agent-1","tokens":123456,"budget":100000,"contextTokens":200000"#,
        r#""kind":"compaction_ended","agentId":"agent-1","tokens":9000,"reclaimed":114456,"method":"summarized""#,
        r#""kind":"turn_ended","agentId":"agent-1","reason":"complete","usage":{"inputTokens":900,"outputTokens":40}"#,
        r#""kind":"egress_denied","host":"example.com","method":"GET","reason":"not allowed""#,
        r#""kind":"workspace_persist_skipped","reason":"too_large","bytes":5767168,"maxBytes":4194304"#,
        r#""kind":"suspended","reason":"sleep","wakeAt":1700000000000"#,
        r#""kind":"suspended","reason":"human_input""#,
        r#""kind":"resumed""#,
        r#""kind":"human_input_requested","requestId":"1","key":"approve","prompt":"Ship it?""#,
        r#""kind":"human_input_resolved","requestId":"1","key":"approve""#,
        r#""kind":"output","value":{"ok":true,"n":12345678901234567890}"#,
        r#""kind":"run_status","status":"failed","error":{"code":"NOPE","message":"it broke","hint":"mend it"}"#,
    ];

    #[test]
    fn every_kind_has_its_text() {
        insta::assert_snapshot!(log(Selection::verbose(), RUN).0);
    }

    #[test]
    fn hidden_channels_are_counted_and_named() {
        let (text, note) = log(Selection::standard(), RUN);
        insta::assert_snapshot!(text);
        assert_eq!(
            note.unwrap(),
            "· 4 log + 16 agent events not shown — add --verbose (or --stream log,agent)"
        );
        assert_eq!(log(Selection::verbose(), RUN).1, None);
    }

    #[test]
    fn the_output_alone_is_bare() {
        assert_eq!(
            log(Selection::of([Channel::Output]), RUN).0,
            "{\n  \"ok\": true,\n  \"n\": 12345678901234567890\n}\n"
        );
        assert_eq!(
            log(Selection::of([Channel::Output]), &[r#""kind":"output","value":"plain text""#]).0,
            "plain text\n"
        );
        let (text, _) = log(Selection::standard().without_output(), RUN);
        assert!(!text.contains("output"));
    }

    #[test]
    fn sizes_and_numbers_read_well() {
        assert_eq!(
            [mebibytes(0), mebibytes(5_767_168), mebibytes(10_485_760), mebibytes(4 << 30)],
            ["0.0 MiB", "5.5 MiB", "10 MiB", "4096 MiB"]
        );
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
