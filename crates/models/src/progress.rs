//! What a turn has cost so far, for whoever must account for one that was broken off.

use std::sync::{Mutex, MutexGuard, PoisonError};

use trestle_contract::inference::TokenCounts;

use crate::request::estimate_text_tokens;

/// How far a turn is. Kept beside the stream, so that it can be asked after the stream is gone.
#[derive(Debug)]
pub struct TurnProgress {
    prompt_tokens: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The attempt under way, from its sending on.
    attempt: Option<Attempt>,
    abandoned: Vec<TokenCounts>,
    completed: Option<TokenCounts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Attempt {
    answered: bool,
    answer_bytes: u64,
    counts: TokenCounts,
}

impl TurnProgress {
    pub(crate) fn new(prompt_tokens: u64) -> Self {
        Self { prompt_tokens, state: Mutex::new(State::default()) }
    }

    /// What the provider may have charged for this turn, attempt by attempt: reported where it reported, else estimated.
    /// Empty when no request was sent or every one was refused.
    #[must_use]
    pub fn charged(&self) -> Vec<TokenCounts> {
        let state = self.state();
        let mut charged = state.abandoned.clone();
        match (state.completed, state.attempt) {
            (Some(completed), attempt) => {
                let estimate =
                    self.estimate(Attempt { counts: TokenCounts::default(), ..attempt.unwrap_or_default() });
                charged.push(TokenCounts {
                    input_tokens: completed.input_tokens.or(estimate.input_tokens),
                    output_tokens: completed.output_tokens.or(estimate.output_tokens),
                    ..completed
                });
            }
            (None, Some(attempt)) => charged.push(self.estimate(attempt)),
            (None, None) => {}
        }
        charged
    }

    /// Whether the turn reached its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state().completed.is_some()
    }

    fn estimate(&self, attempt: Attempt) -> TokenCounts {
        let streamed = estimate_text_tokens(attempt.answer_bytes);
        TokenCounts {
            input_tokens: attempt.counts.input_tokens.or(Some(self.prompt_tokens)),
            // A count reported at the start of a stream is behind what has been streamed since.
            output_tokens: Some(attempt.counts.output_tokens.unwrap_or(0).max(streamed)),
            ..attempt.counts
        }
    }

    pub(crate) fn request_sent(&self) {
        let mut state = self.state();
        let earlier = state.attempt.replace(Attempt::default());
        if let Some(earlier) = earlier.filter(|attempt| attempt.answered) {
            let estimate = self.estimate(earlier);
            state.abandoned.push(estimate);
        }
    }

    pub(crate) fn request_refused(&self) {
        self.state().attempt = None;
    }

    pub(crate) fn answer_began(&self) {
        if let Some(attempt) = &mut self.state().attempt {
            attempt.answered = true;
        }
    }

    pub(crate) fn answered(&self, bytes: usize, counts: TokenCounts) {
        if let Some(attempt) = &mut self.state().attempt {
            attempt.answer_bytes = bytes as u64;
            attempt.counts = counts;
        }
    }

    pub(crate) fn abandoned(&self) -> Vec<TokenCounts> {
        self.state().abandoned.clone()
    }

    pub(crate) fn completed(&self, counts: TokenCounts) {
        self.state().completed = Some(counts);
    }

    /// Nothing panics while the lock is held, so a poisoned one is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(input: Option<u64>, output: Option<u64>) -> TokenCounts {
        TokenCounts { input_tokens: input, output_tokens: output, ..TokenCounts::default() }
    }

    #[test]
    fn nothing_is_charged_before_a_request_and_after_a_refusal() {
        let progress = TurnProgress::new(50);
        assert!(progress.charged().is_empty());
        progress.request_sent();
        progress.request_refused();
        assert!(progress.charged().is_empty());
    }

    #[test]
    fn a_turn_broken_off_is_estimated_from_prompt_and_text() {
        let progress = TurnProgress::new(50);
        progress.request_sent();
        assert_eq!(progress.charged(), [counts(Some(50), Some(0))]);
        progress.answer_began();
        progress.answered(41, TokenCounts::default());
        assert_eq!(progress.charged(), [counts(Some(50), Some(11))]);
        progress.answered(41, counts(Some(60), Some(1)));
        assert_eq!(progress.charged(), [counts(Some(60), Some(11))]);
    }

    #[test]
    fn each_attempt_that_was_answered_is_charged() {
        let progress = TurnProgress::new(50);
        progress.request_sent();
        progress.request_refused();
        progress.request_sent();
        progress.answer_began();
        progress.answered(8, TokenCounts::default());
        progress.request_sent();
        progress.answer_began();
        progress.answered(40, TokenCounts::default());
        progress.completed(TokenCounts::default());
        assert_eq!(progress.charged(), [counts(Some(50), Some(2)), counts(Some(50), Some(10))]);
        progress.completed(counts(Some(7), Some(0)));
        assert_eq!(progress.charged(), [counts(Some(50), Some(2)), counts(Some(7), Some(0))]);
        assert!(progress.is_complete());
    }
}
