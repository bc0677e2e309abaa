//! The behaviour that every store shows, whatever it is built on. A backend gives a [`Factory`] and
//! gets one test per behaviour from `behaviour_suite!`.

pub(crate) mod artifacts;
pub(crate) mod brackets;
pub(crate) mod cancel;
pub(crate) mod children;
pub(crate) mod claims;
pub(crate) mod events;
pub(crate) mod finalize;
pub(crate) mod idempotency;
pub(crate) mod leases;
pub(crate) mod properties;
pub(crate) mod providers;
pub(crate) mod queue;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod secrets;
pub(crate) mod usage;
pub(crate) mod workflows;

use std::sync::Arc;

use async_trait::async_trait;
use trestle_contract::event::{Cursor, EventFrame, RunStatus};
use trestle_contract::ids::{AssignmentId, LeaseId, RunId, RunnerId};
use trestle_contract::json::RawJson;
use trestle_domain::ManualClock;
use trestle_store::{
    AssignmentClaim, ClaimedAssignment, ClaimedRun, DeployTarget, Fence, Finalize, Finalized, Heartbeat,
    HeartbeatAnswer, NewRun, NewRunner, NewVersion, Offer, Outcome, Placement, ProgramRow, RunClaim,
    RunFailure, RunRow, RunnerRow, Store, StoreOptions, StoreResult, TelemetryBatch, TokenHash, Trigger,
    WorkflowRow,
};

/// Length of the leases in these tests, ms.
pub(crate) const LEASE: i64 = 90_000;
/// Where the clocks start, ms.
pub(crate) const START: i64 = 1_750_000_000_000;
pub(crate) const POOL: &str = "default";

/// Opens stores on one place; opening again after a close finds what was stored.
#[async_trait]
pub(crate) trait Factory: Send + Sync {
    async fn open(&self, options: StoreOptions) -> Arc<dyn Store>;

    /// A factory on another, empty place.
    fn fresh(&self) -> Arc<dyn Factory>;
}

/// A store and the clocks it lives by.
pub(crate) struct Bench {
    factory: Arc<dyn Factory>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) boot: Arc<ManualClock>,
    pub(crate) wall: Arc<ManualClock>,
}

/// What a runner holds.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) runner: RunnerId,
    pub(crate) assignment: AssignmentId,
    pub(crate) lease: LeaseId,
    pub(crate) run: RunId,
    pub(crate) fence: Fence,
}

impl Bench {
    pub(crate) async fn new(factory: Arc<dyn Factory>) -> Self {
        let boot = Arc::new(ManualClock::new(1_000));
        let wall = Arc::new(ManualClock::new(START));
        let store = factory.open(options(&wall, &boot)).await;
        Self { factory, store, boot, wall }
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.store.close().await;
        self.store = self.factory.open(options(&self.wall, &self.boot)).await;
    }

    pub(crate) fn advance(&self, ms: i64) {
        self.boot.advance(ms);
    }

    pub(crate) async fn workflow(&self, slug: &str) -> WorkflowRow {
        self.store.deploy(version(slug, "content-1")).await.unwrap().workflow
    }

    pub(crate) async fn runner(&self, name: &str, labels: &[&str]) -> RunnerRow {
        self.store.create_runner(POOL, new_runner(name, labels)).await.unwrap()
    }

    /// A new run of a workflow for the default pool.
    pub(crate) async fn run(&self) -> RunRow {
        self.run_with(&[]).await
    }

    pub(crate) async fn run_with(&self, labels: &[&str]) -> RunRow {
        let workflow = self.workflow("flow").await;
        self.store.create_run(new_run(&workflow, labels)).await.unwrap().run
    }

    pub(crate) async fn offers(&self, runners: &[&RunnerRow]) -> Vec<Offer> {
        let ids: Vec<RunnerId> = runners.iter().map(|runner| runner.id.clone()).collect();
        self.store.make_offers(&ids).await.unwrap()
    }

    pub(crate) async fn offer(&self, runner: &RunnerRow) -> Offer {
        let offers = self.offers(&[runner]).await;
        assert_eq!(offers.len(), 1, "there is one offer");
        offers.into_iter().next().unwrap()
    }

    pub(crate) async fn take(&self, offer: &Offer) -> StoreResult<ClaimedAssignment> {
        self.store
            .claim_assignment(AssignmentClaim {
                runner: offer.runner.clone(),
                assignment: offer.assignment.clone(),
                lease_ms: LEASE,
            })
            .await
    }

    /// Offer and pool claim.
    pub(crate) async fn claim(&self, runner: &RunnerRow) -> Held {
        let offer = self.offer(runner).await;
        let claimed = self.take(&offer).await.unwrap();
        Held {
            runner: runner.id.clone(),
            assignment: offer.assignment,
            lease: claimed.lease,
            run: claimed.run.id.clone(),
            fence: Fence { run: claimed.run.id, epoch: claimed.run.epoch },
        }
    }

    /// Offer, pool claim and run claim.
    pub(crate) async fn start(&self, runner: &RunnerRow) -> Held {
        let held = self.claim(runner).await;
        self.claim_run(&held.fence, "process-1").await.unwrap();
        held
    }

    /// Creates a run and starts it.
    pub(crate) async fn running(&self, runner: &RunnerRow) -> Held {
        let run = self.run().await;
        let held = self.start(runner).await;
        assert_eq!(held.run, run.id);
        held
    }

    pub(crate) async fn claim_run(&self, fence: &Fence, session: &str) -> StoreResult<ClaimedRun> {
        self.store.claim_run(run_claim(fence, Some(session), true)).await
    }

    pub(crate) async fn beat(&self, held: &Held) -> StoreResult<HeartbeatAnswer> {
        self.store
            .heartbeat(Heartbeat {
                runner: held.runner.clone(),
                lease: held.lease.clone(),
                run: held.run.clone(),
                lease_ms: LEASE,
            })
            .await
    }

    pub(crate) async fn complete(&self, held: &Held) -> StoreResult<Finalized> {
        self.store.finalize(completed(&held.fence, "{\"ok\":true}")).await
    }

    pub(crate) async fn fail(&self, held: &Held) -> StoreResult<Finalized> {
        self.store.finalize(failed(&held.fence)).await
    }

    pub(crate) async fn status(&self, run: &RunId) -> RunStatus {
        self.store.run(run).await.unwrap().status
    }

    pub(crate) async fn send(&self, fence: &Fence, cursors: &[u64]) -> StoreResult<u64> {
        let frames = cursors.iter().map(|cursor| frame(*cursor, "a")).collect();
        self.store.append_telemetry(TelemetryBatch { fence: fence.clone(), frames }).await
    }

    /// The statuses that the run's event stream has shown.
    pub(crate) async fn shown_statuses(&self, run: &RunId) -> Vec<String> {
        let page = self.store.read_events(run, 0, 10_000).await.unwrap();
        page.frames
            .iter()
            .filter(|frame| &*frame.kind == "run_status")
            .map(|frame| {
                let event: serde_json::Value = serde_json::from_str(&frame.json).unwrap();
                event["status"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    /// Loses the attempt by letting its leases lapse.
    pub(crate) async fn lose(&self) -> Vec<(RunId, trestle_store::TakenBack)> {
        self.advance(LEASE);
        self.store.sweep_leases(100).await.unwrap().taken_back
    }
}

fn options(wall: &Arc<ManualClock>, boot: &Arc<ManualClock>) -> StoreOptions {
    StoreOptions { wall: wall.clone(), boot: boot.clone(), ..StoreOptions::default() }
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

pub(crate) fn version(slug: &str, identity: &str) -> NewVersion {
    NewVersion {
        target: DeployTarget::Slug(slug.to_owned()),
        identity: identity.to_owned(),
        manifest: json(&format!("{{\"slug\":\"{slug}\",\"big\":12345678901234567890}}")),
        title: Some(format!("Title of {slug}")),
        trigger_kinds: vec!["manual".to_owned()],
        program: ProgramRow {
            digest: "d".repeat(64),
            size: 1_600,
            entry: "index.mjs".to_owned(),
            sdk_version: "*".to_owned(),
            lockfile_digest: None,
            blob_key: format!("programs/{identity}"),
        },
        source_files: None,
        deploy_options: None,
        warnings: Vec::new(),
    }
}

pub(crate) fn new_runner(name: &str, labels: &[&str]) -> NewRunner {
    NewRunner {
        name: name.to_owned(),
        labels: labels.iter().map(ToString::to_string).collect(),
        os: Some("linux".to_owned()),
        arch: Some("x64".to_owned()),
        version: Some("0.1.0".to_owned()),
        token: TokenHash::of(&format!("token of {name}")),
    }
}

pub(crate) fn new_run(workflow: &WorkflowRow, labels: &[&str]) -> NewRun {
    NewRun {
        workflow: workflow.id.clone(),
        version: None,
        input: Some(json("{\"n\": 1e400, \"deep\": {\"z\":1,\"a\":2}}")),
        trigger: Trigger { kind: "manual".to_owned(), payload: None, request: None },
        actor: json("{\"type\":\"user\",\"user_id\":\"u1\"}"),
        environment: None,
        concurrency_key: None,
        workspace_key: None,
        retried_from: None,
        placement: Placement {
            runs_on: json("{\"kind\":\"self-hosted\",\"pool\":\"default\"}"),
            pool: POOL.to_owned(),
            labels: labels.iter().map(ToString::to_string).collect(),
        },
        parent: None,
        idempotency: None,
    }
}

pub(crate) fn run_claim(fence: &Fence, session: Option<&str>, ordered: bool) -> RunClaim {
    RunClaim {
        fence: fence.clone(),
        worker: "worker".to_owned(),
        session: session.map(str::to_owned),
        lease_ms: LEASE,
        ordered_telemetry: ordered,
    }
}

pub(crate) fn completed(fence: &Fence, output: &str) -> Finalize {
    Finalize { fence: fence.clone(), outcome: Outcome::Completed { output: json(output) } }
}

pub(crate) fn failed(fence: &Fence) -> Finalize {
    let error = RunFailure {
        code: "PROGRAM_ERROR".to_owned(),
        message: "it broke".to_owned(),
        hint: Some("mend it".to_owned()),
        reason: None,
    };
    let output =
        json("{\"error\":{\"code\":\"PROGRAM_ERROR\",\"message\":\"it broke\",\"hint\":\"mend it\"}}");
    Finalize { fence: fence.clone(), outcome: Outcome::Failed { output, error } }
}

pub(crate) fn frame(cursor: u64, text: &str) -> EventFrame {
    EventFrame {
        cursor: Cursor::new(cursor).unwrap(),
        kind: "phase".into(),
        json: format!("{{\"kind\":\"phase\",\"name\":\"{text}\",\"id\":\"{cursor}\"}}").into(),
    }
}

/// One test per behaviour, on the stores of a factory.
#[macro_export]
macro_rules! behaviour_suite {
    ($factory:expr) => {
        $crate::behaviours! { $factory =>
            workflows: the_organisation_is_made_once_and_kept, the_same_content_makes_no_new_version,
                a_former_content_becomes_current_again, deploy_options_make_another_version,
                a_deploy_by_id_keeps_the_slug, the_list_shows_each_workflow_with_its_newest_run,
                a_deleted_workflow_frees_its_slug_and_its_runs_go_on, disabling_twice_changes_nothing;
            runs: a_new_run_is_pending_queued_and_announced, program_json_survives_byte_for_byte,
                the_current_version_is_pinned, a_disabled_workflow_takes_no_run,
                a_workflow_without_version_or_a_foreign_version_is_refused,
                lists_page_from_the_newest_without_gaps, lists_filter_by_workflow_and_status,
                an_idempotency_key_makes_one_run, deploy_warnings_are_repeated_in_each_run, unknown_runs_are_not_found;
            children: the_same_identity_is_the_same_child, the_same_child_over_restarts_of_the_parent,
                a_displaced_parent_makes_no_child, children_are_listed_oldest_first,
                called_children_are_cancelled_with_the_parent, called_children_end_when_the_parent_fails,
                started_children_live_on, a_completed_parent_leaves_its_children,
                cancel_reaches_grandchildren, the_end_of_a_child_wakes_the_parent,
                a_workflow_that_calls_itself_is_stopped_at_a_depth;
            queue: an_offer_needs_every_label, offers_go_out_in_order_of_creation, an_idle_queue_offers_nothing,
                an_unclaimed_offer_is_made_again_after_five_seconds, one_batch_serves_many_runners,
                a_run_in_another_pool_is_not_offered, a_draining_or_removed_runner_gets_no_offer,
                a_drained_runners_offer_is_free_at_once, a_runner_that_lost_a_run_twice_leaves_it_to_others,
                a_lone_runner_gets_its_lost_run_again, entries_nobody_can_take_do_not_block_the_others,
                a_new_run_announces_its_pool;
            claims: the_pool_claim_takes_epoch_and_slot, a_repeated_pool_claim_is_the_same_lease,
                after_the_run_claim_the_pool_claim_conflicts, another_runner_cannot_claim,
                an_unknown_assignment_is_not_found, one_of_two_claimers_wins,
                the_run_claim_starts_the_run_once, a_repeated_run_claim_needs_the_same_session,
                an_old_client_repeats_by_its_worker_name, a_stale_epoch_cannot_claim_the_run,
                the_run_claim_tells_the_last_cursor, started_at_is_set_once_over_attempts;
            leases: renewing_moves_the_end_and_never_back, a_heartbeat_moves_the_assignment_lease,
                a_heartbeat_reports_cancel_and_drain, either_lapsed_lease_refuses_both,
                a_lapsed_run_is_requeued_as_the_next_attempt, three_lost_attempts_crash_the_run,
                a_displaced_process_reaches_nothing, a_release_requeues_at_once,
                a_handback_is_not_a_lost_attempt, a_runner_releases_its_own_lease_only,
                five_lost_leases_in_a_row_drain_the_runner, one_outage_is_one_loss_in_the_row,
                a_finalize_breaks_the_row, live_leases_get_their_length_back_after_a_restart,
                leases_that_lapsed_before_a_restart_stay_lapsed, the_leases_of_a_dead_runner_end_at_once,
                lent_leases_free_the_slot, the_sweep_tells_the_next_expiry, time_never_runs_backwards;
            cancel: a_queued_run_is_cancelled_at_once, between_the_claims_cancel_is_immediate,
                a_held_run_is_cancelling_until_its_process_ends_it, cancel_after_the_end_changes_nothing,
                a_cancelling_run_that_is_lost_is_cancelled, a_displaced_process_is_told_to_stop,
                cancel_or_claim_but_not_both, cancel_or_finalize_but_one_end;
            finalize: a_result_ends_the_run_in_one_step, a_failure_keeps_error_and_output,
                a_repeated_finalize_gets_the_first_answer, the_terminal_frame_opens_a_new_block,
                a_displaced_finalize_is_refused, finalize_without_run_claim_is_refused,
                finalize_or_sweep_but_one_end, a_long_run_leaves_no_leases_behind;
            events: a_resent_batch_changes_nothing, a_batch_of_many_frames_is_stored_whole_and_once,
                reading_resumes_where_it_stopped,
                a_gap_is_held_for_three_seconds, ordered_telemetry_is_never_held_at_a_block,
                a_late_block_of_an_unordered_sender_is_not_missed, a_batch_that_spans_blocks_is_shown_at_once,
                done_comes_at_once_for_ordered_and_later_for_others, late_frames_are_taken_for_a_minute,
                a_status_frame_of_a_process_changes_no_status, a_page_is_cut_by_its_limit,
                frames_are_kept_byte_for_byte, a_commit_announces_the_run;
            brackets: a_lost_process_leaves_no_bracket_open,
                a_process_that_gives_back_or_is_cancelled_leaves_no_bracket_open,
                a_process_that_reports_its_end_closes_its_own_brackets, times_of_a_run_never_go_back;
            usage: compute_time_counts_the_largest_of_repeats, brokered_reports_are_stored_and_not_summed,
                of_repeated_token_reports_the_largest_numbers_hold,
                a_turn_is_metered_once, a_turn_is_metered_after_the_end_too,
                a_kept_result_goes_with_the_run, a_displaced_process_books_nothing;
            artifacts: a_retried_write_is_the_same_artifact, the_same_content_later_is_another_artifact,
                a_commit_happens_once, an_upload_of_another_run_cannot_be_committed,
                an_upload_is_checked_against_its_announcement, unclaimed_uploads_go_after_their_time,
                a_deploy_claims_its_upload, artifacts_are_listed_oldest_first;
            secrets: a_secret_is_made_replaced_and_rotated, a_taken_name_is_refused,
                the_environment_comes_before_the_organisation, a_deleted_secret_is_gone;
            providers: a_provider_is_stored_listed_and_removed, a_providers_name_is_taken_once;
            runners: a_registration_token_works_once, one_of_two_redeemers_wins,
                an_expired_registration_token_is_unknown, a_removed_runner_has_no_token_any_more,
                labels_are_a_set, a_poll_refreshes_last_seen_and_version, runners_and_pools_are_listed,
                a_removed_runners_cancelled_run_is_cancelled, a_resumed_runner_is_offered_runs_again;
            idempotency: an_answer_is_repeated_for_a_day, another_body_is_a_conflict,
                an_unfinished_request_blocks_its_key_for_a_while, a_restart_forgets_unfinished_requests,
                principals_do_not_meet, an_abandoned_request_starts_fresh;
            properties: slots_used_equal_active_leases, cursors_increase_over_attempts,
                readers_miss_nothing_and_see_nothing_twice, a_run_has_one_end;
        }
    };
}

/// Writes the tests that `behaviour_suite!` lists.
#[macro_export]
macro_rules! behaviours {
    ($factory:expr => $( $module:ident: $( $name:ident ),+ $(,)? ; )+) => { $(
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    $crate::suite::$module::$name($factory).await;
                }
            )+
        }
    )+ };
}
