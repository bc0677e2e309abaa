//! Pure rules of Trestle: run states, leases, cursors, budgets, redaction.
//!
//! Nothing here does I/O or knows HTTP or SQL. Whatever depends on time takes a
//! [`Clock`] or a time in milliseconds, so that each rule can be tested at any instant.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod backoff;
mod brackets;
mod budget;
mod canonical;
mod clock;
mod cursor;
mod duration;
mod identity;
mod ids;
mod js_number;
mod json_text;
mod lease;
mod redact;
mod retry;
mod run;
mod timeline;
mod token;

pub use backoff::Backoff;
pub use brackets::{BracketEnd, OpenBrackets};
pub use budget::{Breach, BudgetCaps, BudgetDimension, BudgetMeter, MeteredTurn, estimate_cost_micros};
pub use canonical::{CanonicalError, canonical_json, canonical_value};
pub use clock::{BootClock, Clock, ManualClock, StoreClock, WallClock};
pub use cursor::{
    CURSOR_GAP_MS, CURSOR_STRIDE, CursorAllocator, Delivery, Stamp, Visibility, Watermark, terminal_cursor,
};
pub use duration::{DurationError, MAX_SLEEP_MS, format_duration, parse_duration_ms};
pub use identity::{ChildKey, child_identity, input_digest};
pub use ids::new_ulid;
pub use js_number::js_number_text;
pub use lease::{
    Admission, CLAIM_LEASE_MS, Call, ClaimDecision, LossOutcome, MAX_ATTEMPTS, MAX_LOSSES_IN_A_ROW,
    ORIGINAL_LEASE_MS, PoolClaimFacts, RunAccess, RunClaimFacts, TELEMETRY_GRACE_MS, WORKER_MARGIN_FLOOR_MS,
    admit, after_loss, boot_extension, expired, may_offer, must_drain, pool_claim, renewed_until, run_claim,
    worker_deadline,
};
pub use redact::{
    MIN_DERIVED_BYTES, MIN_RAW_BYTES, PROGRAM_PLACEHOLDER, Placeholder, Redactor, StreamRedactor,
    TextRedactor,
};
pub use retry::{CONTROL_DELAYS_MS, Disposition, Failure, Lane, disposition};
pub use run::{RunEvent, RunRefusal, transition};
pub use timeline::{CancelStage, CancelTimeline};
pub use token::{
    DerivedToken, RandomToken, RunTokenKind, ServerKey, TokenKind, derive_token, hash_token,
    new_random_token, verify_token,
};
