//! A run's event stream.

use trestle_contract::event::EventFrame;

use super::lease::Fence;

/// A batch of frames of a run process.
#[derive(Debug, Clone)]
pub struct TelemetryBatch {
    /// From the run token.
    pub fence: Fence,
    /// Valid frames of this run, in any order.
    pub frames: Vec<EventFrame>,
}

/// One page of a run's events, in cursor order.
#[derive(Debug, Clone, Default)]
pub struct EventPage {
    /// The frames after the asked cursor.
    pub frames: Vec<EventFrame>,
    /// The cursor to go on from: that of the last frame, or the asked one.
    pub resume_after: u64,
    /// True when the run has ended and everything was read.
    pub done: bool,
    /// True when the page was cut by its limit: read again at once.
    pub more: bool,
    /// When a frame is held back because an earlier one may still be on its way: the time (ms) at
    /// which it is shown in any case. Read again then, or at the next change.
    pub held_until: Option<i64>,
}
