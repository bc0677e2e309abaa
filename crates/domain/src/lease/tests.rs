use super::*;
use proptest::prelude::*;

const NOW: i64 = 1_000_000;

fn access(token_epoch: u64, epoch: u64) -> RunAccess {
    RunAccess {
        status: RunStatus::Running,
        token_epoch,
        epoch,
        finalized: None,
        pool_lease_until: Some(NOW + CLAIM_LEASE_MS),
        run_lease_until: Some(NOW + CLAIM_LEASE_MS),
    }
}

fn pool_facts(held_by: Option<&str>, tokens_used: bool) -> PoolClaimFacts<'_> {
    PoolClaimFacts { status: RunStatus::Pending, runner: "r1", offered_to: Some("r1"), held_by, tokens_used }
}

#[test]
fn an_offered_assignment_is_granted_once_and_repeated_to_its_holder() {
    assert_eq!(pool_claim(pool_facts(None, false)), ClaimDecision::Grant);
    assert_eq!(pool_claim(pool_facts(Some("r1"), false)), ClaimDecision::Repeat);
    assert_eq!(pool_claim(pool_facts(Some("r1"), true)), ClaimDecision::Conflict, "its tokens are in use");
    assert_eq!(pool_claim(pool_facts(Some("r2"), false)), ClaimDecision::Conflict);
    assert_eq!(
        pool_claim(PoolClaimFacts { offered_to: Some("r2"), ..pool_facts(None, false) }),
        ClaimDecision::Conflict
    );
    assert_eq!(
        pool_claim(PoolClaimFacts { offered_to: None, ..pool_facts(None, false) }),
        ClaimDecision::Conflict
    );
}

#[test]
fn only_a_pending_run_is_granted() {
    for status in RunStatus::ALL {
        let granted =
            pool_claim(PoolClaimFacts { status, ..pool_facts(None, false) }) == ClaimDecision::Grant;
        assert_eq!(granted, status == RunStatus::Pending, "{status:?}");
        let facts =
            RunClaimFacts { access: RunAccess { status, ..access(1, 1) }, worker: "w", claimed_by: None };
        assert_eq!(run_claim(facts, NOW) == ClaimDecision::Grant, status == RunStatus::Pending, "{status:?}");
    }
}

#[test]
fn a_run_claim_is_repeated_to_the_same_worker_of_the_same_epoch() {
    let facts =
        |token_epoch, claimed_by| RunClaimFacts { access: access(token_epoch, 2), worker: "w1", claimed_by };
    assert_eq!(run_claim(facts(2, Some("w1")), NOW), ClaimDecision::Repeat);
    assert_eq!(run_claim(facts(2, Some("w2")), NOW), ClaimDecision::Conflict);
    assert_eq!(
        run_claim(facts(1, Some("w1")), NOW),
        ClaimDecision::Conflict,
        "the original's attempts share one worker id"
    );
    assert_eq!(run_claim(facts(2, Some("w1")), NOW + CLAIM_LEASE_MS), ClaimDecision::Conflict);
}

#[test]
fn a_displaced_epoch_gets_conflicts_and_is_told_to_stop() {
    let access = access(1, 2);
    for call in [Call::Ordinary, Call::Telemetry, Call::Finalize] {
        assert_eq!(admit(&access, call, NOW), Admission::Conflict, "{call:?}");
    }
    assert_eq!(admit(&access, Call::Cancel, NOW), Admission::Cancel(true));
}

#[test]
fn an_epoch_that_was_never_minted_is_unknown() {
    assert_eq!(admit(&access(3, 2), Call::Cancel, NOW), Admission::Unknown);
}

#[test]
fn the_live_epoch_may_do_everything_until_either_lease_lapses() {
    let live = access(2, 2);
    for call in [Call::Ordinary, Call::Telemetry, Call::Finalize] {
        assert_eq!(admit(&live, call, NOW + CLAIM_LEASE_MS - 1), Admission::Allow);
        assert_eq!(admit(&live, call, NOW + CLAIM_LEASE_MS), Admission::Conflict);
        let pool_lapsed = RunAccess { pool_lease_until: Some(NOW), ..live };
        assert_eq!(admit(&pool_lapsed, call, NOW), Admission::Conflict);
        let run_lapsed = RunAccess { run_lease_until: Some(NOW), ..live };
        assert_eq!(admit(&run_lapsed, call, NOW), Admission::Conflict);
        let before_run_claim = RunAccess { run_lease_until: None, ..live };
        assert_eq!(admit(&before_run_claim, call, NOW), Admission::Allow);
        let closed = RunAccess { pool_lease_until: None, ..live };
        assert_eq!(admit(&closed, call, NOW), Admission::Conflict);
    }
    assert_eq!(admit(&live, Call::Cancel, NOW), Admission::Cancel(false));
    assert_eq!(
        admit(&RunAccess { status: RunStatus::Cancelling, ..live }, Call::Cancel, NOW),
        Admission::Cancel(true)
    );
    assert_eq!(
        admit(&RunAccess { status: RunStatus::Cancelling, ..live }, Call::Finalize, NOW),
        Admission::Allow
    );
}

#[test]
fn the_epoch_that_finalized_may_repeat_and_trail_for_a_minute() {
    let done = RunAccess {
        status: RunStatus::Completed,
        finalized: Some((2, NOW)),
        pool_lease_until: None,
        run_lease_until: None,
        ..access(2, 2)
    };
    assert_eq!(admit(&done, Call::Finalize, NOW + 3_600_000), Admission::Repeat);
    assert_eq!(admit(&done, Call::Telemetry, NOW + TELEMETRY_GRACE_MS - 1), Admission::Allow);
    assert_eq!(admit(&done, Call::Telemetry, NOW + TELEMETRY_GRACE_MS), Admission::Conflict);
    assert_eq!(admit(&done, Call::Ordinary, NOW), Admission::Conflict);
    assert_eq!(admit(&done, Call::Cancel, NOW), Admission::Cancel(false));
    let earlier = RunAccess { token_epoch: 1, ..done };
    assert_eq!(admit(&earlier, Call::Finalize, NOW), Admission::Conflict, "another epoch finalized");
    assert_eq!(admit(&earlier, Call::Telemetry, NOW), Admission::Conflict);
}

#[test]
fn a_worker_stops_a_tenth_and_at_least_five_seconds_early() {
    assert_eq!(worker_deadline(0, 90_000, WORKER_MARGIN_FLOOR_MS), 81_000);
    assert_eq!(worker_deadline(0, 300_000, WORKER_MARGIN_FLOOR_MS), 270_000);
    assert_eq!(worker_deadline(1_000, 20_000, WORKER_MARGIN_FLOOR_MS), 16_000);
    assert_eq!(
        worker_deadline(0, 6_000, WORKER_MARGIN_FLOOR_MS),
        3_000,
        "half of a very short lease stays usable"
    );
    assert_eq!(worker_deadline(0, 1_800, 100), 1_620);
}

#[test]
fn the_third_lost_attempt_is_the_last() {
    assert_eq!(after_loss(1), LossOutcome::Requeue { attempt: 2 });
    assert_eq!(after_loss(2), LossOutcome::Requeue { attempt: 3 });
    assert_eq!(after_loss(3), LossOutcome::Crash);
}

#[test]
fn a_run_leaves_a_runner_it_died_on_twice_if_another_lives() {
    assert!(may_offer(1, true));
    assert!(!may_offer(2, true));
    assert!(may_offer(2, false), "better there than nowhere");
    assert!(!must_drain(4));
    assert!(must_drain(5));
}

#[derive(Clone, Debug)]
enum Step {
    PoolClaim,
    RunClaim(usize),
    Finalize(usize),
    Lapse,
}

proptest! {
    #[test]
    fn a_worker_always_stops_before_its_lease_ends(sent in 0_i64..1 << 40, latency in 0_i64..100_000, length in 2_i64..1_000_000, floor in 0_i64..20_000) {
        // The server starts the lease when it handles the request, not before it was sent.
        let lease_end = renewed_until(0, length, sent + latency);
        let deadline = worker_deadline(sent, length, floor);
        prop_assert!(deadline >= sent);
        prop_assert!(deadline < lease_end);
        // Also when the request took no time at all, and by the floor where the lease is long enough for it.
        prop_assert!(deadline < sent + length);
        prop_assert!(length < 2 * floor || deadline <= sent + length - floor);
    }

    #[test]
    fn no_renewal_and_no_boot_shortens_a_lease(until in 0_i64..1 << 40, length in 1_i64..1_000_000, now in 0_i64..1 << 40) {
        let renewed = renewed_until(until, length, now);
        prop_assert!(renewed >= until && renewed >= now + length);
        prop_assert!(!expired(boot_extension(until, length, now), now));
    }

    /// Whatever claims, finalizes and lapses come in whatever order from whatever epochs, one
    /// run is finalized at most once.
    #[test]
    fn a_run_is_finalized_at_most_once(steps in prop::collection::vec(prop_oneof![
        Just(Step::PoolClaim), (0_usize..6).prop_map(Step::RunClaim), (0_usize..6).prop_map(Step::Finalize), Just(Step::Lapse),
    ], 1..60)) {
        let mut run = RunAccess { status: RunStatus::Pending, token_epoch: 0, epoch: 0, finalized: None, pool_lease_until: None, run_lease_until: None };
        let mut claimed_by: Option<String> = None;
        let mut finalizes = 0;
        let mut now = NOW;
        for step in steps {
            now += 1;
            match step {
                Step::PoolClaim => {
                    let facts = PoolClaimFacts {
                        status: run.status, runner: "r", offered_to: Some("r"),
                        held_by: run.pool_lease_until.map(|_| "r"), tokens_used: claimed_by.is_some(),
                    };
                    if pool_claim(facts) == ClaimDecision::Grant {
                        run.epoch += 1;
                        run.pool_lease_until = Some(now + CLAIM_LEASE_MS);
                        claimed_by = None;
                    }
                }
                Step::RunClaim(epoch) => {
                    let access = RunAccess { token_epoch: epoch as u64, ..run };
                    let facts = RunClaimFacts { access, worker: "w", claimed_by: claimed_by.as_deref() };
                    if run_claim(facts, now) == ClaimDecision::Grant {
                        prop_assert_eq!(epoch as u64, run.epoch);
                        run.status = RunStatus::Running;
                        run.run_lease_until = Some(now + CLAIM_LEASE_MS);
                        claimed_by = Some("w".to_owned());
                    }
                }
                Step::Finalize(epoch) => {
                    let access = RunAccess { token_epoch: epoch as u64, ..run };
                    if admit(&access, Call::Finalize, now) == Admission::Allow
                        && let Ok(status) = crate::transition(run.status, crate::RunEvent::Complete)
                    {
                        prop_assert_eq!(epoch as u64, run.epoch);
                        run = RunAccess { status, finalized: Some((run.epoch, now)), pool_lease_until: None, run_lease_until: None, ..run };
                        finalizes += 1;
                    }
                }
                Step::Lapse => {
                    if let Ok(status) = crate::transition(run.status, crate::RunEvent::Requeue) {
                        run = RunAccess { status, pool_lease_until: None, run_lease_until: None, ..run };
                    }
                }
            }
        }
        prop_assert!(finalizes <= 1);
        prop_assert_eq!(finalizes == 1, run.status.is_terminal());
    }
}
