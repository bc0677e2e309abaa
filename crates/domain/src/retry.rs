/// The waits between the attempts of one control call, in milliseconds: five attempts at
/// most. See `docs/protocol/control.md §1.6`.
pub const CONTROL_DELAYS_MS: [u64; 4] = [500, 2_000, 5_000, 10_000];

/// Which retry rules a request follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Every control endpoint but inference, and signed uploads and downloads.
    Control,
    /// `POST inference` before the first frame that carries content.
    Inference,
    /// `POST inference` after a frame other than a ping was delivered.
    InferenceWithContent,
}

/// How one attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer: connection refused or reset, name not found, time ran out.
    Transport,
    /// An answer with this status, which is not the expected one.
    Status(u16),
    /// The connection broke, or a line could not be read, while the body of a good answer
    /// was read.
    Body,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Send the identical request again after the next wait of the schedule.
    Retry,
    /// Hand the failure to the caller.
    Surface,
}

/// Whether a failed attempt is tried again.
pub const fn disposition(lane: Lane, failure: Failure) -> Disposition {
    match (lane, failure) {
        (Lane::InferenceWithContent, _) => Disposition::Surface,
        (Lane::Control | Lane::Inference, Failure::Transport | Failure::Status(503 | 504)) => {
            Disposition::Retry
        }
        // On the inference lane 502 is the word of the model provider, not of a proxy.
        (Lane::Control, Failure::Status(502)) | (Lane::Inference, Failure::Body) => Disposition::Retry,
        (Lane::Control | Lane::Inference, Failure::Status(_)) | (Lane::Control, Failure::Body) => {
            Disposition::Surface
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_matrix_holds_for_every_status() {
        for status in 100..600 {
            let failure = Failure::Status(status);
            let control = disposition(Lane::Control, failure) == Disposition::Retry;
            let inference = disposition(Lane::Inference, failure) == Disposition::Retry;
            assert_eq!(control, matches!(status, 502..=504), "{status}");
            assert_eq!(inference, matches!(status, 503 | 504), "{status}");
            assert_eq!(disposition(Lane::InferenceWithContent, failure), Disposition::Surface);
        }
        assert_eq!(disposition(Lane::Control, Failure::Transport), Disposition::Retry);
        assert_eq!(disposition(Lane::Inference, Failure::Transport), Disposition::Retry);
        assert_eq!(disposition(Lane::Control, Failure::Body), Disposition::Surface);
        assert_eq!(disposition(Lane::Inference, Failure::Body), Disposition::Retry);
        assert_eq!(disposition(Lane::InferenceWithContent, Failure::Transport), Disposition::Surface);
        assert_eq!(disposition(Lane::InferenceWithContent, Failure::Body), Disposition::Surface);
        assert_eq!(CONTROL_DELAYS_MS.iter().sum::<u64>(), 17_500);
    }
}
