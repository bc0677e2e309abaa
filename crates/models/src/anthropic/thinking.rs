//! How much a Claude model shall think, in the form that its generation takes.
//!
//! Up to Claude 4.5 thinking is a budget of tokens. Claude 4.6 brought adaptive thinking, steered by an effort, and later models refuse the
//! budget.

use serde::Serialize;
use trestle_contract::inference::{ChatMessage, Effort, Reasoning};

use crate::request::{DEFAULT_MAX_OUTPUT_TOKENS, ModelRequest};

/// The members of a request that say how much to think.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ThinkingSettings {
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Thinking {
    Enabled {
        budget_tokens: u64,
    },
    Adaptive {
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct OutputConfig {
    effort: &'static str,
}

const SMALLEST_BUDGET: u64 = 1024;

/// The room for thinking and answer of a model that decides itself how much it thinks.
const ADAPTIVE_MAX_TOKENS: u64 = 32_000;

/// The first generation with adaptive thinking, and the first that hides it unless asked.
const FIRST_ADAPTIVE: (u32, u32) = (4, 6);
const FIRST_HIDING: (u32, u32) = (4, 7);

impl ThinkingSettings {
    /// The settings of this request.
    pub(super) fn of(request: &ModelRequest) -> Self {
        let longest = request.max_output_tokens;
        let plain = Self { max_tokens: longest.unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS), ..Self::default() };
        let Some(reasoning) = request.reasoning.as_ref().filter(|reasoning| wants_thinking(reasoning)) else {
            return plain;
        };
        match generation(&request.model) {
            Some(version) if version >= FIRST_ADAPTIVE => Self::adaptive(reasoning, version, longest),
            _ => Self::budget(reasoning, request, plain),
        }
    }

    fn adaptive(reasoning: &Reasoning, version: (u32, u32), longest: Option<u64>) -> Self {
        let effort = reasoning.effort.and_then(|effort| match effort {
            Effort::None => None,
            Effort::Minimal | Effort::Low => Some("low"),
            Effort::Medium => Some("medium"),
            Effort::High => Some("high"),
            Effort::Xhigh => Some(if version >= FIRST_HIDING { "xhigh" } else { "max" }),
        });
        let display = if reasoning.exclude == Some(true) { "omitted" } else { "summarized" };
        Self {
            max_tokens: longest.unwrap_or(ADAPTIVE_MAX_TOKENS),
            thinking: Some(Thinking::Adaptive { display: (version >= FIRST_HIDING).then_some(display) }),
            output_config: effort.map(|effort| OutputConfig { effort }),
        }
    }

    fn budget(reasoning: &Reasoning, request: &ModelRequest, plain: Self) -> Self {
        // In the middle of a tool loop the provider wants its own signed thinking back, which the neutral conversation does not carry.
        if matches!(request.messages.last(), Some(ChatMessage::ToolResults { .. })) {
            return plain;
        }
        let budget_tokens = thinking_budget(reasoning).max(SMALLEST_BUDGET);
        Self {
            max_tokens: plain.max_tokens.max(budget_tokens + SMALLEST_BUDGET),
            thinking: Some(Thinking::Enabled { budget_tokens }),
            output_config: None,
        }
    }
}

fn wants_thinking(reasoning: &Reasoning) -> bool {
    thinking_budget(reasoning) > 0
}

/// Effort wins over a budget of its own.
fn thinking_budget(reasoning: &Reasoning) -> u64 {
    let percent = match reasoning.effort {
        None => return reasoning.max_tokens.unwrap_or(0),
        Some(Effort::None) => 0,
        Some(Effort::Minimal) => 10,
        Some(Effort::Low) => 20,
        Some(Effort::Medium) => 50,
        Some(Effort::High) => 80,
        Some(Effort::Xhigh) => 95,
    };
    (DEFAULT_MAX_OUTPUT_TOKENS * percent + 50) / 100
}

/// Major and minor number in a name such as `claude-opus-4-6`, `anthropic/claude-sonnet-5` or `claude-opus-4-20250514`.
fn generation(model: &str) -> Option<(u32, u32)> {
    let model = model.to_ascii_lowercase();
    let (_, name) = model.split_once("claude-")?;
    let (family, version) = name.split_once('-')?;
    if matches!(family, "mythos" | "fable") {
        // These families began after the budget was gone, and have names without a number.
        return Some(FIRST_HIDING.max(numbers(version).unwrap_or(FIRST_HIDING)));
    }
    // The first models had the number before the family.
    if !family.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    numbers(version)
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    // A longer number is a date.
    let mut parts = version
        .split(['-', '.', '@', ':'])
        .map(|part| part.parse::<u32>().ok().filter(|number| *number < 100));
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(model: &str, effort: Option<Effort>, max_tokens: Option<u64>) -> Value {
        let request = ModelRequest {
            model: model.to_owned(),
            reasoning: Some(Reasoning { effort, max_tokens, exclude: None }),
            ..ModelRequest::default()
        };
        json!(ThinkingSettings::of(&request))
    }

    #[test]
    fn the_generation_is_read_from_every_usual_form_of_a_name() {
        let table = [
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-opus-4.6", Some((4, 6))),
            ("anthropic/claude-sonnet-5", Some((5, 0))),
            ("anthropic.claude-opus-4-6-v1", Some((4, 6))),
            ("us.anthropic.claude-haiku-4-5-20251001-v1:0", Some((4, 5))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("claude-opus-4@20250514", Some((4, 0))),
            ("claude-sonnet-5-5", Some((5, 5))),
            ("claude-mythos-preview", Some((4, 7))),
            ("claude-fable-5-1", Some((5, 1))),
            ("claude-3-5-sonnet-20241022", None),
            ("claude-2.1", None),
            ("my-model", None),
        ];
        for (model, want) in table {
            assert_eq!(generation(model), want, "{model}");
        }
    }

    #[test]
    fn newer_models_get_an_effort_and_older_ones_a_budget() {
        assert_eq!(
            settings("claude-sonnet-5", Some(Effort::High), None),
            json!({"max_tokens": 32000, "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}})
        );
        assert_eq!(
            settings("claude-opus-4-6", Some(Effort::Xhigh), None),
            json!({"max_tokens": 32000, "thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}})
        );
        assert_eq!(settings("claude-opus-5", Some(Effort::Minimal), None)["output_config"]["effort"], "low");
        assert_eq!(settings("claude-opus-5", Some(Effort::Xhigh), None)["output_config"]["effort"], "xhigh");
        assert_eq!(settings("claude-opus-5", None, Some(5000)).get("output_config"), None);
        assert_eq!(settings("claude-opus-5", Some(Effort::None), None), json!({"max_tokens": 8192}));
        assert_eq!(
            settings("claude-sonnet-4-5", Some(Effort::High), None),
            json!({"max_tokens": 8192, "thinking": {"type": "enabled", "budget_tokens": 6554}})
        );
    }

    #[test]
    fn budgets_follow_effort_and_the_answer_has_room_beside_them() {
        let table = [
            (Some(Effort::None), None, None, 8192),
            (Some(Effort::Minimal), None, Some(1024), 8192),
            (Some(Effort::Low), None, Some(1638), 8192),
            (Some(Effort::Medium), None, Some(4096), 8192),
            (Some(Effort::High), None, Some(6554), 8192),
            (Some(Effort::Xhigh), None, Some(7782), 8806),
            (None, Some(20_000), Some(20_000), 21_024),
            (None, Some(10), Some(1024), 8192),
            (Some(Effort::Low), Some(20_000), Some(1638), 8192),
            (None, None, None, 8192),
        ];
        for (effort, max_tokens, budget, longest) in table {
            let mut want = json!({"max_tokens": longest});
            if let Some(budget) = budget {
                want["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
            }
            assert_eq!(settings("m", effort, max_tokens), want, "{effort:?} {max_tokens:?}");
        }
    }

    #[test]
    fn a_budget_is_left_out_in_the_middle_of_a_tool_loop_and_an_effort_is_not() {
        let messages: Vec<ChatMessage> = serde_json::from_value(json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "text": "", "toolCalls": [{"id": "a", "name": "f", "input": {}}]},
            {"role": "tool_results", "results": [{"id": "a", "content": "1", "isError": false}]}
        ]))
        .unwrap();
        for (model, thinks) in [("claude-sonnet-4-5", false), ("claude-opus-5", true)] {
            let request = ModelRequest {
                model: model.to_owned(),
                messages: messages.clone(),
                reasoning: Some(Reasoning { effort: Some(Effort::High), ..Reasoning::default() }),
                ..ModelRequest::default()
            };
            assert_eq!(ThinkingSettings::of(&request).thinking.is_some(), thinks, "{model}");
        }
    }
}
