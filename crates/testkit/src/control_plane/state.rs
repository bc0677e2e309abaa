//! What the plane knows.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::Value;
use trestle_contract::control::{
    FinalizeRequest, ReleaseRequest, RunActor, RunError, RunUsage, TokenUsageRequest,
};
use trestle_contract::event::Event;
use trestle_contract::pool::{ByoProvider, Phase, RunsOn};
use trestle_contract::{Digest, RawJson};

use super::faults::Rule;
use super::model::ModelReply;

/// A run that a test wants to be executed.
#[derive(Debug, Clone)]
pub struct FakeRun {
    /// Its id.
    pub run_id: String,
    /// Its workflow.
    pub workflow_id: String,
    /// Where it wants to run.
    pub runs_on: RunsOn,
    /// Its input.
    pub input: RawJson,
    /// Who started it.
    pub actor: RunActor,
    /// How it arrived.
    pub trigger_kind: String,
    /// Environment in the claim.
    pub env: BTreeMap<String, String>,
    /// Resolved workspace key.
    pub workspace_key: Option<String>,
    /// Providers in the claim.
    pub byo_providers: Vec<ByoProvider>,
    /// Manifest in the version.
    pub manifest: RawJson,
    /// Module to run.
    pub entry: String,
    /// Version of the SDK that the program was built against.
    pub sdk_version: String,
    /// The program's tarball.
    pub program: Bytes,
    /// The digest told for it; that of its bytes unless a test lies.
    pub program_digest: Option<Digest>,
    /// Values of the secrets that it may resolve.
    pub secrets: BTreeMap<String, String>,
    /// What earlier attempts have used, as the claim tells it.
    pub usage: Option<RunUsage>,
}

impl FakeRun {
    /// A run without input in the pool `default`, whose program is this tarball.
    ///
    /// # Errors
    /// Never in practice: the parts made here are valid.
    pub fn new(run_id: &str, program: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        Ok(Self {
            run_id: run_id.to_owned(),
            workflow_id: "01HWORKFLOW".to_owned(),
            runs_on: serde_json::from_str(r#"{"kind":"self-hosted","pool":"default"}"#)?,
            input: RawJson::null(),
            actor: RunActor::User { user_id: "01HUSER".to_owned() },
            trigger_kind: "manual".to_owned(),
            env: BTreeMap::new(),
            workspace_key: None,
            byo_providers: Vec::new(),
            manifest: serde_json::from_str(r#"{"slug":"test","triggers":[{"kind":"manual"}]}"#)?,
            entry: "index.mjs".to_owned(),
            sdk_version: "0.3.12".to_owned(),
            program: program.into(),
            program_digest: None,
            secrets: BTreeMap::new(),
            usage: None,
        })
    }
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// Offered to runners.
    Queued,
    /// A runner holds it, its process has not claimed it.
    Leased,
    /// Its process has claimed it.
    Running,
    /// It ended.
    Finalized,
}

/// What a called workflow does.
#[derive(Debug, Clone)]
pub enum ChildOutcome {
    /// It returns this.
    Completes(RawJson),
    /// It fails with this.
    Fails(RunError),
    /// It is cancelled.
    Cancelled,
    /// It goes on until the outcome is changed.
    Runs,
    /// There is no such workflow.
    Unknown,
}

/// An artifact that a run has written.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredArtifact {
    /// Its id.
    pub id: String,
    /// File name.
    pub name: String,
    /// MIME type.
    pub content_type: String,
    /// Its bytes.
    pub bytes: Bytes,
    /// The author's own facts.
    pub metadata: Option<Value>,
}

/// One call, as the plane saw it.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Method.
    pub method: String,
    /// Path, decoded, with its query.
    pub path: String,
    /// Credential.
    pub bearer: Option<String>,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: Bytes,
    /// Status of the answer; `None` when the connection was cut instead.
    pub status: Option<u16>,
}

impl Exchange {
    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The last segments of the path, as in `finalize` or `usage/tokens`, for paths below a run.
    pub fn operation(&self) -> &str {
        let rest = self.path.strip_prefix("/runner/v1/runs/").and_then(|rest| rest.split_once('/'));
        rest.map_or(self.path.as_str(), |(_, operation)| operation)
    }
}

pub(super) struct Runner {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) name: String,
    pub(super) pool: String,
    pub(super) labels: Vec<String>,
    pub(super) drained: bool,
    pub(super) dead: bool,
}

pub(super) struct RunState {
    pub(super) plan: FakeRun,
    pub(super) stage: Stage,
    /// Raised by every pool claim; a token of an earlier one is displaced.
    pub(super) epoch: u64,
    pub(super) runner: Option<String>,
    pub(super) session: Option<(String, Option<String>)>,
    pub(super) cancel: bool,
    pub(super) funded: bool,
    pub(super) lease_lost: bool,
    pub(super) attempt: u64,
    pub(super) phases: Vec<Phase>,
    pub(super) heartbeats: u64,
    pub(super) renewals: u64,
    pub(super) resume_after: u64,
    pub(super) events: BTreeMap<u64, Event>,
    pub(super) finalized: Option<(u64, FinalizeRequest)>,
    pub(super) releases: Vec<ReleaseRequest>,
    pub(super) usage: BTreeMap<String, u64>,
    pub(super) token_reports: Vec<TokenUsageRequest>,
    /// A token that replaces the first one, and whether it was used.
    pub(super) fresh_token: Option<(String, bool)>,
    pub(super) artifacts: Vec<StoredArtifact>,
    pub(super) uploads: BTreeMap<String, Option<Bytes>>,
    pub(super) children: Vec<Child>,
    pub(super) answered_turns: BTreeMap<String, ModelReply>,
}

/// One child, found again by its identity.
pub(super) struct Child {
    pub(super) id: String,
    pub(super) slug: String,
    pub(super) identity: Value,
}

impl RunState {
    pub(super) fn new(plan: FakeRun) -> Self {
        Self {
            plan,
            stage: Stage::Queued,
            epoch: 0,
            runner: None,
            session: None,
            cancel: false,
            funded: true,
            lease_lost: false,
            attempt: 1,
            phases: Vec::new(),
            heartbeats: 0,
            renewals: 0,
            resume_after: 0,
            events: BTreeMap::new(),
            finalized: None,
            releases: Vec::new(),
            usage: BTreeMap::new(),
            token_reports: Vec::new(),
            fresh_token: None,
            artifacts: Vec::new(),
            uploads: BTreeMap::new(),
            children: Vec::new(),
            answered_turns: BTreeMap::new(),
        }
    }

    pub(super) fn token(&self) -> String {
        token_of(&self.plan.run_id, self.epoch)
    }

    pub(super) fn lease(&self) -> String {
        format!("lease-{}-{}", self.plan.run_id, self.epoch)
    }

    /// Back to the queue: the next pool claim takes the next epoch.
    pub(super) fn requeue(&mut self) {
        if self.stage != Stage::Finalized {
            self.stage = Stage::Queued;
            self.runner = None;
            self.session = None;
            self.lease_lost = false;
        }
    }
}

pub(super) fn token_of(run_id: &str, epoch: u64) -> String {
    format!("bwrt_{run_id}_{epoch}")
}

#[derive(Default)]
pub(super) struct State {
    pub(super) registration_tokens: BTreeMap<String, String>,
    pub(super) runners: Vec<Runner>,
    /// In the order of the queue.
    pub(super) runs: Vec<RunState>,
    pub(super) child_outcomes: BTreeMap<String, ChildOutcome>,
    pub(super) model_replies: VecDeque<ModelReply>,
    pub(super) rules: Vec<Rule>,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) violations: Vec<String>,
    pub(super) minted: u64,
}

impl State {
    pub(super) fn mint(&mut self, kind: &str) -> String {
        self.minted += 1;
        format!("{kind}-{}", self.minted)
    }

    pub(super) fn run(&mut self, run_id: &str) -> Option<&mut RunState> {
        self.runs.iter_mut().find(|run| run.plan.run_id == run_id)
    }

    pub(super) fn runner(&mut self, token: &str) -> Option<&mut Runner> {
        self.runners.iter_mut().find(|runner| runner.token == token && !runner.dead)
    }
}
