//! The operations of the store, each handed to the writer or to a reader.

use async_trait::async_trait;
use tokio::sync::broadcast;
use trestle_contract::ids::{ArtifactId, LeaseId, RunId, RunnerId, VersionId, WorkflowId};
use trestle_contract::json::RawJson;
use trestle_domain::{Clock as _, RunAccess};

use super::writer::Durability;
use super::{SqliteStore, ops};
use crate::error::StoreResult;
use crate::model::*;
use crate::store::{Change, Store};

fn weight(json: Option<&RawJson>) -> usize {
    json.map_or(0, |json| json.get().len())
}

fn outcome_weight(finalize: &Finalize) -> usize {
    match &finalize.outcome {
        Outcome::Completed { output } | Outcome::Failed { output, .. } => output.get().len(),
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    async fn close(&self) {
        self.shut_down().await;
    }

    async fn check(&self) -> StoreResult<()> {
        self.write(Durability::Normal, 0, move |tx| Box::pin(ops::settings::check(tx))).await?;
        self.organisation().await.map(|_| ())
    }

    async fn organisation(&self) -> StoreResult<Organisation> {
        let mut conn = self.reader().await?;
        ops::settings::organisation(&mut conn).await
    }

    async fn deploy(&self, version: NewVersion) -> StoreResult<Deployed> {
        self.write(
            Durability::Full,
            weight(version.source_files.as_ref()) + weight(Some(&version.manifest)),
            move |tx| Box::pin(ops::workflows::deploy(tx, version)),
        )
        .await
    }

    async fn list_workflows(&self, term: Option<&str>) -> StoreResult<Vec<WorkflowListRow>> {
        let mut conn = self.reader().await?;
        ops::workflows::list_workflows(&mut conn, term).await
    }

    async fn workflow(&self, id: &WorkflowId) -> StoreResult<WorkflowRow> {
        let mut conn = self.reader().await?;
        ops::workflows::workflow(&mut conn, id).await
    }

    async fn workflow_by_slug(&self, slug: &str) -> StoreResult<WorkflowRow> {
        let mut conn = self.reader().await?;
        ops::workflows::workflow_by_slug(&mut conn, slug).await
    }

    async fn list_versions(&self, workflow: &WorkflowId) -> StoreResult<Vec<VersionListRow>> {
        let mut conn = self.reader().await?;
        ops::workflows::list_versions(&mut conn, workflow).await
    }

    async fn version(&self, id: &VersionId) -> StoreResult<VersionRow> {
        let mut conn = self.reader().await?;
        ops::workflows::version(&mut conn, id).await
    }

    async fn delete_workflow(&self, id: &WorkflowId) -> StoreResult<()> {
        let id = id.clone();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::workflows::delete_workflow(tx, &id).await })
        })
        .await
    }

    async fn set_workflow_disabled(&self, id: &WorkflowId, disabled: bool) -> StoreResult<WorkflowRow> {
        let id = id.clone();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::workflows::set_disabled(tx, &id, disabled).await })
        })
        .await
    }

    async fn create_run(&self, run: NewRun) -> StoreResult<CreatedRun> {
        self.write(
            Durability::Full,
            weight(run.input.as_ref()) + weight(run.trigger.payload.as_ref()),
            move |tx| Box::pin(ops::runs::create(tx, run)),
        )
        .await
    }

    async fn run(&self, id: &RunId) -> StoreResult<RunRow> {
        let mut conn = self.reader().await?;
        ops::runs::run(&mut conn, id).await
    }

    async fn list_runs(&self, filter: RunFilter) -> StoreResult<RunPage> {
        let mut conn = self.reader().await?;
        ops::runs::list(&mut conn, filter).await
    }

    async fn children(&self, parent: &RunId) -> StoreResult<Vec<RunListRow>> {
        let mut conn = self.reader().await?;
        ops::runs::children(&mut conn, parent).await
    }

    async fn request_cancel(&self, id: &RunId) -> StoreResult<CancelOutcome> {
        let id = id.clone();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::ends::request_cancel(tx, &id).await })
        })
        .await
    }

    async fn make_offers(&self, runners: &[RunnerId]) -> StoreResult<Vec<Offer>> {
        let anything = {
            let mut conn = self.reader().await?;
            ops::queue::anything_for(&mut conn, runners, self.clock.now_ms()).await?
        };
        if !anything {
            return Ok(Vec::new());
        }
        let runners = runners.to_vec();
        self.write(Durability::Normal, 0, move |tx| {
            Box::pin(async move { ops::queue::make_offers(tx, &runners).await })
        })
        .await
    }

    async fn next_offer_at(&self, pool: &str) -> StoreResult<Option<i64>> {
        let mut conn = self.reader().await?;
        ops::queue::next_offer_at(&mut conn, pool).await
    }

    async fn claim_assignment(&self, claim: AssignmentClaim) -> StoreResult<ClaimedAssignment> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::claims::claim_assignment(tx, claim))).await
    }

    async fn claim_run(&self, claim: RunClaim) -> StoreResult<ClaimedRun> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::claims::claim_run(tx, claim))).await
    }

    async fn renew(&self, fence: &Fence, lease_ms: i64) -> StoreResult<i64> {
        let fence = fence.clone();
        self.write(Durability::Normal, 0, move |tx| {
            Box::pin(async move { ops::leases::renew(tx, &fence, lease_ms).await })
        })
        .await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> StoreResult<HeartbeatAnswer> {
        self.write(Durability::Normal, 0, move |tx| Box::pin(ops::leases::heartbeat(tx, beat))).await
    }

    async fn set_lease_mode(&self, runner: &RunnerId, lease: &LeaseId, mode: LeaseMode) -> StoreResult<()> {
        let (runner, lease) = (runner.clone(), lease.clone());
        self.write(Durability::Normal, 0, move |tx| {
            Box::pin(async move { ops::leases::set_mode(tx, &runner, &lease, mode).await })
        })
        .await
    }

    async fn release(&self, by: Releaser, reason: ReleaseReason) -> StoreResult<TakenBack> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::leases::release(tx, by, reason))).await
    }

    async fn finalize(&self, finalize: Finalize) -> StoreResult<Finalized> {
        self.write(Durability::Full, outcome_weight(&finalize), move |tx| {
            Box::pin(ops::ends::finalize(tx, finalize))
        })
        .await
    }

    async fn cancel_state(&self, fence: &Fence) -> StoreResult<CancelState> {
        let now = self.clock.now_ms();
        let mut conn = self.reader().await?;
        ops::leases::cancel_state(&mut conn, fence, now).await
    }

    async fn access(&self, fence: &Fence) -> StoreResult<RunAccess> {
        let mut conn = self.reader().await?;
        Ok(ops::run_state::RunState::by_id(&mut conn, &fence.run).await?.access(fence.epoch))
    }

    async fn sweep_leases(&self, limit: u32) -> StoreResult<SweepReport> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::leases::sweep(tx, limit))).await
    }

    async fn extend_leases(&self) -> StoreResult<u64> {
        let known_until = self.known_until;
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::leases::extend(tx, known_until))).await
    }

    async fn end_runner_leases(
        &self,
        runner: &RunnerId,
        reason: ReleaseReason,
    ) -> StoreResult<Vec<(RunId, TakenBack)>> {
        let runner = runner.clone();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::leases::end_of_runner(tx, &runner, reason).await })
        })
        .await
    }

    async fn append_telemetry(&self, batch: TelemetryBatch) -> StoreResult<u64> {
        let size = batch.frames.iter().map(|frame| frame.json.len()).sum();
        self.write(Durability::Normal, size, move |tx| Box::pin(ops::events::append(tx, batch))).await
    }

    async fn read_events(&self, run: &RunId, after: u64, limit: u32) -> StoreResult<EventPage> {
        // Before the snapshot: a frame that is committed later is then never taken for an old one.
        let now = self.clock.now_ms();
        let mut conn = self.reader().await?;
        ops::events::read(&mut conn, run, after, limit, now).await
    }

    async fn last_cursor(&self, run: &RunId) -> StoreResult<u64> {
        let mut conn = self.reader().await?;
        ops::events::last_cursor_of(&mut conn, run).await
    }

    async fn record_compute(&self, usage: ComputeUsage) -> StoreResult<()> {
        self.write(Durability::Normal, 0, move |tx| Box::pin(ops::usage::record_compute(tx, usage))).await
    }

    async fn record_tokens(&self, report: TokenReport) -> StoreResult<()> {
        self.write(Durability::Normal, 0, move |tx| Box::pin(ops::usage::record_tokens(tx, report))).await
    }

    async fn meter_turn(&self, turn: TurnMeter) -> StoreResult<Metered> {
        let size = turn.result.as_ref().map_or(0, Vec::len);
        self.write(Durability::Full, size, move |tx| Box::pin(ops::usage::meter_turn(tx, turn))).await
    }

    async fn relay_turn(&self, run: &RunId, turn_key: &str) -> StoreResult<Option<RelayTurn>> {
        let mut conn = self.reader().await?;
        ops::usage::relay_turn(&mut conn, run, turn_key).await
    }

    async fn list_turns(&self, run: &RunId) -> StoreResult<Vec<TurnRow>> {
        let mut conn = self.reader().await?;
        ops::usage::list_turns(&mut conn, run).await
    }

    async fn write_artifact(&self, artifact: NewArtifact) -> StoreResult<WrittenArtifact> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::artifacts::write(tx, artifact))).await
    }

    async fn list_artifacts(&self, run: &RunId) -> StoreResult<Vec<ArtifactRow>> {
        let mut conn = self.reader().await?;
        ops::artifacts::list(&mut conn, run).await
    }

    async fn artifact(&self, id: &ArtifactId) -> StoreResult<ArtifactRow> {
        let mut conn = self.reader().await?;
        ops::artifacts::artifact(&mut conn, id).await
    }

    async fn create_upload(&self, upload: NewUpload) -> StoreResult<UploadRow> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::artifacts::create_upload(tx, upload))).await
    }

    async fn upload(&self, key: &str) -> StoreResult<UploadRow> {
        let now = self.clock.now_ms();
        let mut conn = self.reader().await?;
        ops::artifacts::upload(&mut conn, key, now).await
    }

    async fn receive_upload(&self, key: &str, size: u64, sha256: &str) -> StoreResult<UploadRow> {
        let (key, sha256) = (key.to_owned(), sha256.to_owned());
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::artifacts::receive_upload(tx, &key, size, &sha256).await })
        })
        .await
    }

    async fn sweep_uploads(&self) -> StoreResult<Vec<String>> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::artifacts::sweep_uploads(tx))).await
    }

    async fn put_secret(&self, secret: NewSecret) -> StoreResult<(SecretRow, bool)> {
        let size = secret.sealed.len();
        self.write(Durability::Full, size, move |tx| Box::pin(ops::secrets::put(tx, secret))).await
    }

    async fn rotate_secret(
        &self,
        id: &str,
        sealed: Vec<u8>,
        last4: Option<String>,
    ) -> StoreResult<SecretRow> {
        let id = id.to_owned();
        self.write(Durability::Full, sealed.len(), move |tx| {
            Box::pin(async move { ops::secrets::rotate(tx, &id, sealed, last4).await })
        })
        .await
    }

    async fn list_secrets(&self) -> StoreResult<Vec<SecretRow>> {
        let mut conn = self.reader().await?;
        ops::secrets::list(&mut conn).await
    }

    async fn delete_secret(&self, id: &str) -> StoreResult<()> {
        let id = id.to_owned();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::secrets::delete(tx, &id).await })
        })
        .await
    }

    async fn sealed_secret(
        &self,
        name: &str,
        environment: Option<&str>,
    ) -> StoreResult<(SecretRow, Vec<u8>)> {
        let mut conn = self.reader().await?;
        ops::secrets::sealed(&mut conn, name, environment).await
    }

    async fn create_provider(&self, provider: NewProvider) -> StoreResult<ProviderRow> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::providers::create(tx, provider))).await
    }

    async fn list_providers(&self) -> StoreResult<Vec<ProviderRow>> {
        let mut conn = self.reader().await?;
        ops::providers::list(&mut conn).await
    }

    async fn provider(&self, name: &str) -> StoreResult<(ProviderRow, Option<Vec<u8>>)> {
        let mut conn = self.reader().await?;
        ops::providers::find(&mut conn, name).await
    }

    async fn delete_provider(&self, name: &str) -> StoreResult<()> {
        let name = name.to_owned();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::providers::delete(tx, &name).await })
        })
        .await
    }

    async fn create_registration_token(
        &self,
        pool: &str,
        token: TokenHash,
        lifetime_ms: i64,
    ) -> StoreResult<RegistrationTokenRow> {
        let pool = pool.to_owned();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(
                async move { ops::runners::create_registration_token(tx, &pool, token, lifetime_ms).await },
            )
        })
        .await
    }

    async fn redeem_registration_token(&self, token: TokenHash, runner: NewRunner) -> StoreResult<RunnerRow> {
        self.write(Durability::Full, 0, move |tx| Box::pin(ops::runners::redeem(tx, token, runner))).await
    }

    async fn create_runner(&self, pool: &str, runner: NewRunner) -> StoreResult<RunnerRow> {
        let pool = pool.to_owned();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::runners::create(tx, &pool, runner).await })
        })
        .await
    }

    async fn runner_by_token(&self, token: TokenHash) -> StoreResult<RunnerRow> {
        let mut conn = self.reader().await?;
        ops::runners::by_token(&mut conn, token).await
    }

    async fn runner(&self, id: &RunnerId) -> StoreResult<RunnerRow> {
        let mut conn = self.reader().await?;
        ops::runners::runner(&mut conn, id).await
    }

    async fn touch_runner(&self, id: &RunnerId, version: Option<&str>) -> StoreResult<()> {
        let (id, version) = (id.clone(), version.map(str::to_owned));
        self.write(Durability::Normal, 0, move |tx| {
            Box::pin(async move { ops::runners::touch(tx, &id, version.as_deref()).await })
        })
        .await
    }

    async fn list_runners(&self) -> StoreResult<Vec<RunnerRow>> {
        let mut conn = self.reader().await?;
        ops::runners::list(&mut conn).await
    }

    async fn list_pools(&self) -> StoreResult<Vec<PoolRow>> {
        let mut conn = self.reader().await?;
        ops::runners::list_pools(&mut conn).await
    }

    async fn drain_runner(&self, id: &RunnerId, reason: &str) -> StoreResult<()> {
        let (id, reason) = (id.clone(), reason.to_owned());
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::runners::drain(tx, &id, &reason).await })
        })
        .await
    }

    async fn resume_runner(&self, id: &RunnerId) -> StoreResult<()> {
        let id = id.clone();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::runners::resume(tx, &id).await })
        })
        .await
    }

    async fn remove_runner(&self, id: &RunnerId) -> StoreResult<Vec<(RunId, TakenBack)>> {
        let id = id.clone();
        self.write(Durability::Full, 0, move |tx| {
            Box::pin(async move { ops::runners::remove(tx, &id).await })
        })
        .await
    }

    async fn begin_idempotent(&self, key: &IdempotencyKey) -> StoreResult<IdempotencyStart> {
        let key = key.clone();
        self.write(Durability::Normal, 0, move |tx| {
            Box::pin(async move { ops::idempotency::begin(tx, &key).await })
        })
        .await
    }

    async fn finish_idempotent(&self, key: &IdempotencyKey, answer: StoredAnswer) -> StoreResult<()> {
        let key = key.clone();
        self.write(Durability::Full, answer.body.len(), move |tx| {
            Box::pin(async move { ops::idempotency::finish(tx, &key, answer).await })
        })
        .await
    }

    async fn abandon_idempotent(&self, key: &IdempotencyKey) -> StoreResult<()> {
        let key = key.clone();
        self.write(Durability::Normal, 0, move |tx| {
            Box::pin(async move { ops::idempotency::abandon(tx, &key).await })
        })
        .await
    }

    async fn sweep_expired_rows(&self) -> StoreResult<u64> {
        self.write(Durability::Normal, 0, move |tx| Box::pin(ops::idempotency::sweep(tx))).await
    }
}
