//! Scripted answers to model calls.

use trestle_contract::inference::InferenceFrame;

/// What the next model call gets.
#[derive(Debug, Clone)]
pub enum ModelReply {
    /// These frames, then the end.
    Frames(Vec<InferenceFrame>),
    /// These frames, then nothing until the caller leaves.
    Stall(Vec<InferenceFrame>),
    /// These frames, then a cut connection.
    CutAfter(Vec<InferenceFrame>),
    /// No stream, this status.
    Refuse(u16),
}
