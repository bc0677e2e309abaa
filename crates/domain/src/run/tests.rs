use super::*;
use RunEvent as E;
use RunStatus as S;
use proptest::prelude::*;

const EVENTS: [RunEvent; 12] = [
    E::Admit,
    E::Claim,
    E::Sleep,
    E::AwaitInput,
    E::AwaitChild,
    E::Resume,
    E::Complete,
    E::Fail,
    E::Requeue,
    E::Abandon,
    E::Cancel { held: true },
    E::Cancel { held: false },
];

/// The whole machine: one row a status, one column an event of [`EVENTS`]; `None` refuses.
fn table(from: RunStatus) -> [Option<RunStatus>; 12] {
    let held = |resumed| {
        [
            None,
            None,
            Some(S::Sleeping),
            Some(S::AwaitingInput),
            Some(S::WaitingForChild),
            Some(resumed),
            Some(S::Completed),
            Some(S::Failed),
            Some(S::Pending),
            Some(S::Failed),
            Some(S::Cancelling),
            Some(S::Cancelled),
        ]
    };
    match from {
        S::Queued => {
            let mut row = [None; 12];
            row[0] = Some(S::Pending);
            row[9] = Some(S::Failed);
            row[10] = Some(S::Cancelled);
            row[11] = Some(S::Cancelled);
            row
        }
        S::Pending => {
            let mut row = [None; 12];
            row[0] = Some(S::Pending);
            row[1] = Some(S::Running);
            row[8] = Some(S::Pending);
            row[9] = Some(S::Failed);
            row[10] = Some(S::Cancelled);
            row[11] = Some(S::Cancelled);
            row
        }
        S::Running | S::Sleeping | S::AwaitingInput | S::WaitingForChild => held(S::Running),
        S::Cancelling => {
            let mut row = [None; 12];
            row[5] = Some(S::Cancelling);
            for cell in &mut row[6..10] {
                *cell = Some(S::Cancelled);
            }
            row[10] = Some(S::Cancelling);
            row[11] = Some(S::Cancelled);
            row
        }
        S::Completed | S::Failed | S::Cancelled => [None; 12],
    }
}

#[test]
fn every_status_and_event_pair_is_decided() {
    for from in RunStatus::ALL {
        for (event, expected) in EVENTS.into_iter().zip(table(from)) {
            assert_eq!(transition(from, event).ok(), expected, "{from:?} {event:?}");
        }
    }
}

#[test]
fn a_refusal_tells_an_ended_run_from_a_wrong_moment() {
    assert_eq!(transition(S::Completed, E::Fail), Err(RunRefusal::Ended(S::Completed)));
    assert_eq!(transition(S::Queued, E::Claim), Err(RunRefusal::OutOfPlace(S::Queued, E::Claim)));
}

proptest! {
    #[test]
    fn a_run_reaches_at_most_one_terminal_status(events in prop::collection::vec(prop::sample::select(EVENTS.to_vec()), 0..40)) {
        let mut status = S::Queued;
        let mut ends = Vec::new();
        let mut cancelling = false;
        for event in events {
            if let Ok(next) = transition(status, event) {
                if next.is_terminal() {
                    ends.push(next);
                    prop_assert!(!cancelling || next == S::Cancelled, "a cancelling run ends cancelled");
                }
                cancelling |= next == S::Cancelling;
                status = next;
            }
        }
        prop_assert!(ends.len() <= 1);
        prop_assert_eq!(ends.last().copied(), status.is_terminal().then_some(status));
    }

    #[test]
    fn from_every_status_an_end_can_be_reached(from in prop::sample::select(RunStatus::ALL.to_vec())) {
        let ended = from.is_terminal() || transition(from, E::Abandon).is_ok_and(RunStatus::is_terminal);
        prop_assert!(ended);
    }
}
