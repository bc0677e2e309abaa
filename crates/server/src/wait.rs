//! `x-trestle-wait`: a read that may be held until there is something to tell.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use crate::failure::{Answer, Failure};
use crate::state::State;

static WAIT: HeaderName = HeaderName::from_static("x-trestle-wait");

/// Until when a call may be held. Without the header it is not held at all.
pub(crate) fn deadline(state: &State, headers: &HeaderMap) -> Answer<Instant> {
    let now = Instant::now();
    let Some(value) = headers.get(&WAIT) else {
        return Ok(now);
    };
    let seconds: u64 = value
        .to_str()
        .ok()
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| Failure::invalid("x-trestle-wait must be a whole number of seconds"))?;
    let longest = Duration::from_millis(state.config().intervals.wait_max_ms);
    Ok(now + Duration::from_secs(seconds).min(longest))
}
