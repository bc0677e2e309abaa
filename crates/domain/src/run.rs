use thiserror::Error;
use trestle_contract::event::RunStatus;

/// What can happen to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// It may be offered to runners now.
    Admit,
    /// A run process made the run claim.
    Claim,
    /// It waits for a deadline.
    Sleep,
    /// It waits for a person.
    AwaitInput,
    /// It waits for a called run.
    AwaitChild,
    /// What it waited for is there.
    Resume,
    /// The holder ended it with a result.
    Complete,
    /// The holder ended it with an error.
    Fail,
    /// Its holder is gone without finalize and attempts are left.
    Requeue,
    /// The server ends it with an error: attempts used up, deadline, administrator.
    Abandon,
    /// Someone asked to cancel it.
    Cancel {
        /// Whether a run process holds it, that is made the run claim and has live leases.
        held: bool,
    },
}

/// Why an event does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RunRefusal {
    /// The run has ended; nothing changes it any more.
    #[error("the run has already ended as {0:?}")]
    Ended(RunStatus),
    /// The event makes no sense in this status.
    #[error("{1:?} does not apply to a run that is {0:?}")]
    OutOfPlace(RunStatus, RunEvent),
}

/// The status after an event. The same status back means that nothing changes.
///
/// A run that is being cancelled ends as `cancelled`, whatever its holder reports, and at
/// once when nobody holds it.
pub fn transition(from: RunStatus, event: RunEvent) -> Result<RunStatus, RunRefusal> {
    use RunStatus as S;
    if from.is_terminal() {
        return Err(RunRefusal::Ended(from));
    }
    let out_of_place = Err(RunRefusal::OutOfPlace(from, event));
    match event {
        RunEvent::Admit => match from {
            S::Queued | S::Pending => Ok(S::Pending),
            _ => out_of_place,
        },
        RunEvent::Claim => match from {
            S::Pending => Ok(S::Running),
            _ => out_of_place,
        },
        RunEvent::Sleep => hold(from, S::Sleeping).ok_or(RunRefusal::OutOfPlace(from, event)),
        RunEvent::AwaitInput => hold(from, S::AwaitingInput).ok_or(RunRefusal::OutOfPlace(from, event)),
        RunEvent::AwaitChild => hold(from, S::WaitingForChild).ok_or(RunRefusal::OutOfPlace(from, event)),
        RunEvent::Resume => match from {
            S::Running | S::Sleeping | S::AwaitingInput | S::WaitingForChild => Ok(S::Running),
            // A wait may end while the cancel is under way; the cancel goes on.
            S::Cancelling => Ok(S::Cancelling),
            _ => out_of_place,
        },
        RunEvent::Complete => finish(from, S::Completed).ok_or(RunRefusal::OutOfPlace(from, event)),
        RunEvent::Fail => finish(from, S::Failed).ok_or(RunRefusal::OutOfPlace(from, event)),
        RunEvent::Requeue => match from {
            S::Cancelling => Ok(S::Cancelled),
            S::Queued => out_of_place,
            _ => Ok(S::Pending),
        },
        RunEvent::Abandon => Ok(if from == S::Cancelling { S::Cancelled } else { S::Failed }),
        // Between the two claims a runner has the run, but no run process does.
        RunEvent::Cancel { held } => {
            Ok(if held && !matches!(from, S::Queued | S::Pending) { S::Cancelling } else { S::Cancelled })
        }
    }
}

fn hold(from: RunStatus, to: RunStatus) -> Option<RunStatus> {
    use RunStatus as S;
    match from {
        S::Running | S::Sleeping | S::AwaitingInput | S::WaitingForChild => Some(to),
        _ => None,
    }
}

fn finish(from: RunStatus, to: RunStatus) -> Option<RunStatus> {
    use RunStatus as S;
    match from {
        S::Running | S::Sleeping | S::AwaitingInput | S::WaitingForChild => Some(to),
        S::Cancelling => Some(S::Cancelled),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
