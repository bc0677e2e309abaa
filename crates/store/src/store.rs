//! The store's operations. Each one is a single transaction: it happens wholly or not at all, and its
//! answer is given only after the commit.

use async_trait::async_trait;
use tokio::sync::broadcast;
use trestle_contract::ids::{ArtifactId, RunId, RunnerId, VersionId, WorkflowId};
use trestle_domain::RunAccess;

use crate::error::StoreResult;
use crate::model::{
    ArtifactRow, AssignmentClaim, CancelOutcome, CancelState, ClaimedAssignment, ClaimedRun, ComputeUsage,
    CreatedRun, Deployed, EventPage, Fence, Finalize, Finalized, Heartbeat, HeartbeatAnswer, IdempotencyKey,
    IdempotencyStart, LeaseMode, Metered, NewArtifact, NewProvider, NewRun, NewRunner, NewSecret, NewUpload,
    NewVersion, Offer, Organisation, PoolRow, ProviderRow, RegistrationTokenRow, RelayTurn, ReleaseReason,
    Releaser, RunClaim, RunFilter, RunListRow, RunPage, RunRow, RunnerRow, SecretRow, StoredAnswer,
    SweepReport, TakenBack, TelemetryBatch, TokenHash, TokenReport, TurnMeter, TurnRow, UploadRow,
    VersionListRow, VersionRow, WorkflowListRow, WorkflowRow, WrittenArtifact,
};

/// Something that was committed. A hint to look again, never the data itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// The run's status, events, totals or cancel flag changed (also: a child of it ended).
    Run(RunId),
    /// Runs of this pool became claimable.
    Queue {
        /// Name of the pool.
        pool: String,
    },
    /// A runner was told to drain, or was removed.
    Runner(RunnerId),
}

/// Runs, leases, events and all that belongs to them.
///
/// Times are milliseconds since the epoch by the store's own clock, which judges every lease.
/// "Fenced" operations take a [`Fence`] and answer [`crate::Conflict::Displaced`] unless it is the
/// current one and both leases of the run are live.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The store's time, ms since the epoch. Never runs backwards, also not over a restart.
    fn now_ms(&self) -> i64;

    /// What is committed from now on. A receiver that lags has to look at everything again.
    fn changes(&self) -> broadcast::Receiver<Change>;

    /// Refuses new writes, finishes those that were accepted, and closes the files.
    async fn close(&self);

    /// Reads one row and writes one: fails when the store cannot serve.
    async fn check(&self) -> StoreResult<()>;

    /// The organisation; made at the first start.
    async fn organisation(&self) -> StoreResult<Organisation>;

    // ---- workflows -------------------------------------------------------------------------

    /// Deploys a version. The same content under the same options makes no new version: that
    /// version becomes the current one (again).
    async fn deploy(&self, version: NewVersion) -> StoreResult<Deployed>;

    /// All workflows that are not deleted, by slug, each with its newest run. `term` filters by
    /// case-insensitive substring of title or slug.
    async fn list_workflows(&self, term: Option<&str>) -> StoreResult<Vec<WorkflowListRow>>;

    /// A workflow by id. Deleted ones are not found.
    async fn workflow(&self, id: &WorkflowId) -> StoreResult<WorkflowRow>;

    /// A workflow by slug.
    async fn workflow_by_slug(&self, slug: &str) -> StoreResult<WorkflowRow>;

    /// The versions of a workflow, newest first.
    async fn list_versions(&self, workflow: &WorkflowId) -> StoreResult<Vec<VersionListRow>>;

    /// A version, also of a deleted workflow (its runs still need it).
    async fn version(&self, id: &VersionId) -> StoreResult<VersionRow>;

    /// Removes a workflow from sight and frees its slug. Runs that exist go on. Idempotent.
    async fn delete_workflow(&self, id: &WorkflowId) -> StoreResult<()>;

    /// Switches a workflow off (`true`) or on. Queued and running runs are left alone. Idempotent.
    async fn set_workflow_disabled(&self, id: &WorkflowId, disabled: bool) -> StoreResult<WorkflowRow>;

    // ---- runs ------------------------------------------------------------------------------

    /// Creates a run together with its queue entry and its `queued` and `pending` frames, or
    /// returns the run that the idempotency key or the child identity already names.
    async fn create_run(&self, run: NewRun) -> StoreResult<CreatedRun>;

    /// A run.
    async fn run(&self, id: &RunId) -> StoreResult<RunRow>;

    /// Runs, newest first.
    async fn list_runs(&self, filter: RunFilter) -> StoreResult<RunPage>;

    /// The children of a run, oldest first.
    async fn children(&self, parent: &RunId) -> StoreResult<Vec<RunListRow>>;

    /// Asks for the end of a run. Without a process that holds it, it is `cancelled` at once;
    /// children started by `call` go with it. Idempotent.
    async fn request_cancel(&self, id: &RunId) -> StoreResult<CancelOutcome>;

    // ---- queue and leases --------------------------------------------------------------------

    /// Makes at most one offer to each of these runners (which are waiting in a poll), in their
    /// order. An offer that is not claimed within the offer time is made again. A runner that lost
    /// two attempts of a run is not offered it while another one of its pool could take it.
    /// Draining and removed runners get none.
    async fn make_offers(&self, runners: &[RunnerId]) -> StoreResult<Vec<Offer>>;

    /// When the oldest unclaimed offer of a pool can be made again, ms.
    async fn next_offer_at(&self, pool: &str) -> StoreResult<Option<i64>>;

    /// offered → leased: takes the next epoch and a slot. Exactly one of several claimers wins; the
    /// winner's repeat gets the same lease until its run process has made the run claim.
    async fn claim_assignment(&self, claim: AssignmentClaim) -> StoreResult<ClaimedAssignment>;

    /// pending → running. Sets `started_at` once. Idempotent per epoch and session.
    async fn claim_run(&self, claim: RunClaim) -> StoreResult<ClaimedRun>;

    /// Prolongs the run lease to now + `lease_ms` (never shortens it); answers its new end. Fenced;
    /// allowed in every status that is not terminal.
    async fn renew(&self, fence: &Fence, lease_ms: i64) -> StoreResult<i64>;

    /// Prolongs the assignment lease. [`crate::Conflict::LeaseLost`] when it is gone or has lapsed.
    async fn heartbeat(&self, beat: Heartbeat) -> StoreResult<HeartbeatAnswer>;

    /// Says whether a lease counts as a used slot. Fenced by the lease.
    async fn set_lease_mode(
        &self,
        runner: &RunnerId,
        lease: &trestle_contract::ids::LeaseId,
        mode: LeaseMode,
    ) -> StoreResult<()>;

    /// Gives a run back without a result: both leases are closed, the run is requeued (or ends).
    /// Idempotent: a second release answers [`TakenBack::AlreadyEnded`] or a conflict.
    async fn release(&self, by: Releaser, reason: ReleaseReason) -> StoreResult<TakenBack>;

    /// Ends a run: status, output, terminal frame, both leases, the parent's wake. A repeat by the
    /// epoch that finalized gets the first answer, whatever its body.
    async fn finalize(&self, finalize: Finalize) -> StoreResult<Finalized>;

    /// Whether the session shall stop.
    async fn cancel_state(&self, fence: &Fence) -> StoreResult<CancelState>;

    /// Who may speak for the run of this token now, for calls that change nothing here; judge it
    /// with [`trestle_domain::admit`].
    async fn access(&self, fence: &Fence) -> StoreResult<RunAccess>;

    /// Takes back every run of which a lease has lapsed, at most `limit` of them.
    async fn sweep_leases(&self, limit: u32) -> StoreResult<SweepReport>;

    /// After a restart: gives every live lease its full length from now on. To be called before
    /// the first sweep. Leases count as live when they were so at the last moment that the store
    /// knows of. Answers how many were prolonged.
    async fn extend_leases(&self) -> StoreResult<u64>;

    /// Takes back at once whatever this runner holds (it is known to be dead).
    async fn end_runner_leases(
        &self,
        runner: &RunnerId,
        reason: ReleaseReason,
    ) -> StoreResult<Vec<(RunId, TakenBack)>>;

    // ---- events ------------------------------------------------------------------------------

    /// Stores frames; those whose cursor is taken are ignored. Answers how many were new. Never
    /// changes a run's status. Also accepted for the grace time after the own finalize.
    async fn append_telemetry(&self, batch: TelemetryBatch) -> StoreResult<u64>;

    /// The frames after a cursor, in order, up to the watermark: a frame is not shown while one
    /// before it may still arrive.
    async fn read_events(&self, run: &RunId, after: u64, limit: u32) -> StoreResult<EventPage>;

    /// The highest stored cursor, 0 when there is none.
    async fn last_cursor(&self, run: &RunId) -> StoreResult<u64>;

    // ---- usage -------------------------------------------------------------------------------

    /// Books compute time. Fenced.
    async fn record_compute(&self, usage: ComputeUsage) -> StoreResult<()>;

    /// Stores a token report of a run process. Fenced.
    async fn record_tokens(&self, report: TokenReport) -> StoreResult<()>;

    /// Meters a brokered turn, once: a second call with its key changes nothing. Not fenced, and
    /// also accepted for a run that has ended: the provider charged.
    async fn meter_turn(&self, turn: TurnMeter) -> StoreResult<Metered>;

    /// A metered turn of a run, by its key.
    async fn relay_turn(&self, run: &RunId, turn_key: &str) -> StoreResult<Option<RelayTurn>>;

    /// The meter rows of a run, oldest first.
    async fn list_turns(&self, run: &RunId) -> StoreResult<Vec<TurnRow>>;

    // ---- artifacts and uploads ---------------------------------------------------------------

    /// Writes an artifact row. Fenced.
    async fn write_artifact(&self, artifact: NewArtifact) -> StoreResult<WrittenArtifact>;

    /// The artifacts of a run, oldest first.
    async fn list_artifacts(&self, run: &RunId) -> StoreResult<Vec<ArtifactRow>>;

    /// An artifact.
    async fn artifact(&self, id: &ArtifactId) -> StoreResult<ArtifactRow>;

    /// Announces an upload.
    async fn create_upload(&self, upload: NewUpload) -> StoreResult<UploadRow>;

    /// An announced upload that has not expired.
    async fn upload(&self, key: &str) -> StoreResult<UploadRow>;

    /// Notes that the bytes of an upload are in the blob store.
    async fn receive_upload(&self, key: &str, size: u64, sha256: &str) -> StoreResult<UploadRow>;

    /// Removes expired, unclaimed uploads and answers the blob keys that nothing else refers to.
    async fn sweep_uploads(&self) -> StoreResult<Vec<String>>;

    // ---- secrets -----------------------------------------------------------------------------

    /// Stores a secret; says whether it was made (false: its value was replaced).
    async fn put_secret(&self, secret: NewSecret) -> StoreResult<(SecretRow, bool)>;

    /// Replaces the value of a secret.
    async fn rotate_secret(&self, id: &str, sealed: Vec<u8>, last4: Option<String>)
    -> StoreResult<SecretRow>;

    /// All secrets, by name, without values.
    async fn list_secrets(&self) -> StoreResult<Vec<SecretRow>>;

    /// Deletes a secret.
    async fn delete_secret(&self, id: &str) -> StoreResult<()>;

    /// The sealed value of a name: that of the environment, else the organisation's.
    async fn sealed_secret(&self, name: &str, environment: Option<&str>)
    -> StoreResult<(SecretRow, Vec<u8>)>;

    // ---- model providers -----------------------------------------------------------------------

    /// Stores a model provider. [`crate::Conflict::NameTaken`] when there is one of that name.
    async fn create_provider(&self, provider: NewProvider) -> StoreResult<ProviderRow>;

    /// All model providers, by name, without keys.
    async fn list_providers(&self) -> StoreResult<Vec<ProviderRow>>;

    /// A model provider and its sealed key, if it has one.
    async fn provider(&self, name: &str) -> StoreResult<(ProviderRow, Option<Vec<u8>>)>;

    /// Removes a model provider.
    async fn delete_provider(&self, name: &str) -> StoreResult<()>;

    // ---- runners -----------------------------------------------------------------------------

    /// Stores a registration token for a pool (made if it does not exist).
    async fn create_registration_token(
        &self,
        pool: &str,
        token: TokenHash,
        lifetime_ms: i64,
    ) -> StoreResult<RegistrationTokenRow>;

    /// Uses a registration token up and registers the runner. Of several callers one wins; the
    /// others get [`crate::Entity::RegistrationToken`] not found.
    async fn redeem_registration_token(&self, token: TokenHash, runner: NewRunner) -> StoreResult<RunnerRow>;

    /// Registers a runner in a pool (made if it does not exist) without a token.
    async fn create_runner(&self, pool: &str, runner: NewRunner) -> StoreResult<RunnerRow>;

    /// The runner of a token. Removed ones are not found.
    async fn runner_by_token(&self, token: TokenHash) -> StoreResult<RunnerRow>;

    /// A runner by id. Removed ones are not found.
    async fn runner(&self, id: &RunnerId) -> StoreResult<RunnerRow>;

    /// Notes that a runner was heard of, and the version it told.
    async fn touch_runner(&self, id: &RunnerId, version: Option<&str>) -> StoreResult<()>;

    /// All runners that are not removed, by name.
    async fn list_runners(&self) -> StoreResult<Vec<RunnerRow>>;

    /// All pools, by name.
    async fn list_pools(&self) -> StoreResult<Vec<PoolRow>>;

    /// Tells a runner to claim nothing more.
    async fn drain_runner(&self, id: &RunnerId, reason: &str) -> StoreResult<()>;

    /// Lets a drained runner claim again, and forgets the leases that it lost in a row.
    async fn resume_runner(&self, id: &RunnerId) -> StoreResult<()>;

    /// Removes a runner; its token is dead at once. What it holds is taken back in the same transaction, without
    /// counting as lost.
    async fn remove_runner(&self, id: &RunnerId) -> StoreResult<Vec<(RunId, TakenBack)>>;

    // ---- idempotency -------------------------------------------------------------------------

    /// Starts a request with a key. An unfinished request of this process is a conflict for the
    /// hold time; one of a former process is forgotten.
    async fn begin_idempotent(&self, key: &IdempotencyKey) -> StoreResult<IdempotencyStart>;

    /// Stores the answer for the keep time.
    async fn finish_idempotent(&self, key: &IdempotencyKey, answer: StoredAnswer) -> StoreResult<()>;

    /// Forgets a request that was started.
    async fn abandon_idempotent(&self, key: &IdempotencyKey) -> StoreResult<()>;

    /// Removes what has outlived its keep time (idempotency answers, registration tokens).
    async fn sweep_expired_rows(&self) -> StoreResult<u64>;
}
