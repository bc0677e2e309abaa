-- Times are milliseconds since the epoch by the store's clock. Runs have a number beside their id:
-- what hangs on a run refers to the number, which is small and grows with creation.

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The highest time that any row was written at. The clock never opens below it.
CREATE TABLE store_clock (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    high_ms INTEGER NOT NULL
) STRICT;
INSERT INTO store_clock (one, high_ms) VALUES (1, 0);

CREATE TABLE workflows (
    id              TEXT PRIMARY KEY,
    slug            TEXT NOT NULL,
    title           TEXT,
    current_version TEXT,
    trigger_kinds   TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    disabled_at     INTEGER,
    deleted_at      INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX workflows_slug ON workflows (slug) WHERE deleted_at IS NULL;

CREATE TABLE versions (
    id              TEXT PRIMARY KEY,
    workflow        TEXT NOT NULL REFERENCES workflows (id),
    number          INTEGER NOT NULL,
    identity        TEXT NOT NULL,
    deploy_options  TEXT NOT NULL,
    digest          TEXT NOT NULL,
    size            INTEGER NOT NULL,
    entry           TEXT NOT NULL,
    sdk_version     TEXT NOT NULL,
    lockfile_digest TEXT,
    blob_key        TEXT NOT NULL,
    warnings        TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    title           TEXT,
    trigger_kinds   TEXT NOT NULL,
    manifest        TEXT NOT NULL,
    source_files    TEXT
) STRICT;
CREATE UNIQUE INDEX versions_number ON versions (workflow, number);
CREATE UNIQUE INDEX versions_content ON versions (workflow, identity, deploy_options);
CREATE INDEX versions_blob ON versions (blob_key);

CREATE TABLE runs (
    number              INTEGER PRIMARY KEY AUTOINCREMENT,
    id                  TEXT NOT NULL UNIQUE,
    workflow            TEXT NOT NULL REFERENCES workflows (id),
    version             TEXT NOT NULL REFERENCES versions (id),
    status              TEXT NOT NULL,
    attempt             INTEGER NOT NULL,
    lost_attempts       INTEGER NOT NULL DEFAULT 0,
    -- Fencing token: grows at each pool claim and whenever the server takes the run away.
    epoch               INTEGER NOT NULL DEFAULT 0,
    -- Epoch, owner and nonce of the last run claim.
    claimed_epoch       INTEGER,
    worker              TEXT,
    session             TEXT,
    ordered_telemetry   INTEGER NOT NULL DEFAULT 0,
    -- Highest cursor at the run claim: the session's first frame follows it.
    session_base        INTEGER NOT NULL DEFAULT 0,
    -- Epoch of the session that finalized; NULL when the server ended the run.
    finalized_epoch     INTEGER,
    terminal_cursor     INTEGER,
    dispatch_attempts   INTEGER NOT NULL DEFAULT 0,
    trigger_kind        TEXT NOT NULL,
    environment         TEXT,
    concurrency_key     TEXT,
    workspace_key       TEXT,
    parent              INTEGER,
    retried_from        TEXT,
    pool                TEXT NOT NULL,
    labels              TEXT NOT NULL,
    runs_on             TEXT NOT NULL,
    created_at          INTEGER NOT NULL,
    pending_since       INTEGER,
    started_at          INTEGER,
    completed_at        INTEGER,
    cancel_requested_at INTEGER,
    tokens_in           INTEGER NOT NULL DEFAULT 0,
    tokens_out          INTEGER NOT NULL DEFAULT 0,
    cached_tokens_in    INTEGER NOT NULL DEFAULT 0,
    cached_write_tokens INTEGER NOT NULL DEFAULT 0,
    cost_micros         INTEGER NOT NULL DEFAULT 0,
    runtime_seconds     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX runs_workflow ON runs (workflow, number);
CREATE INDEX runs_workflow_status ON runs (workflow, status, number);
CREATE INDEX runs_status ON runs (status, number);
CREATE INDEX runs_parent ON runs (parent, number) WHERE parent IS NOT NULL;

-- Apart from `runs`, so that the rows that change stay small.
CREATE TABLE run_inputs (
    run             INTEGER PRIMARY KEY REFERENCES runs (number),
    actor           TEXT NOT NULL,
    trigger_request TEXT,
    input           TEXT,
    trigger_payload TEXT
) STRICT;
CREATE TABLE run_results (
    run    INTEGER PRIMARY KEY REFERENCES runs (number),
    error  TEXT,
    output TEXT
) STRICT;

CREATE TABLE run_children (
    parent   INTEGER NOT NULL,
    identity TEXT NOT NULL,
    child    INTEGER NOT NULL,
    called   INTEGER NOT NULL,
    PRIMARY KEY (parent, identity)
) STRICT, WITHOUT ROWID;

-- Runs that wait for a runner, and nothing else. Ids grow, a requeued run gets a fresh one, so
-- what is behind a reader stays behind it.
CREATE TABLE queue (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    run           INTEGER NOT NULL UNIQUE,
    assignment    TEXT NOT NULL UNIQUE,
    pool          TEXT NOT NULL,
    labels        TEXT NOT NULL,
    offered_until INTEGER NOT NULL DEFAULT 0,
    offered_to    TEXT
) STRICT;
CREATE INDEX queue_order ON queue (pool, labels, offered_until, id);
CREATE INDEX queue_offered ON queue (pool, offered_until) WHERE offered_until > 0;

CREATE TABLE assignments (
    id         TEXT PRIMARY KEY,
    run        INTEGER NOT NULL,
    runner     TEXT NOT NULL,
    lease      TEXT NOT NULL UNIQUE,
    epoch      INTEGER NOT NULL,
    mode       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    closed_at  INTEGER,
    outcome    TEXT
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX assignments_open_run ON assignments (run) WHERE closed_at IS NULL;
CREATE INDEX assignments_open_runner ON assignments (runner) WHERE closed_at IS NULL;

-- Ends of live leases, apart from everything else because heartbeats write here.
-- kind 0: the runner's assignment lease, 1: the run process's run lease.
CREATE TABLE leases (
    run        INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    length_ms  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (run, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_expiry ON leases (expires_at);

CREATE TABLE lost_attempts (
    run    INTEGER NOT NULL,
    runner TEXT NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (run, runner)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    run         INTEGER NOT NULL,
    cursor      INTEGER NOT NULL,
    -- 1: nothing that precedes it in its session can still arrive. 0: it can.
    in_order    INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    json        TEXT NOT NULL,
    PRIMARY KEY (run, cursor)
) STRICT, WITHOUT ROWID;

CREATE TABLE compute_usage (
    run        INTEGER NOT NULL,
    identifier TEXT NOT NULL,
    seconds    INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (run, identifier)
) STRICT, WITHOUT ROWID;

-- source 0: metered by the relay, 1: reported by the run process.
CREATE TABLE turns (
    run            INTEGER NOT NULL,
    source         INTEGER NOT NULL,
    key            TEXT NOT NULL,
    model          TEXT,
    input          INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cached_read    INTEGER NOT NULL,
    cached_write   INTEGER NOT NULL,
    cost_micros    INTEGER NOT NULL,
    estimated      INTEGER NOT NULL,
    counted        INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    request_digest BLOB,
    PRIMARY KEY (run, source, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE turn_results (
    run    INTEGER NOT NULL,
    key    TEXT NOT NULL,
    sealed BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX turn_results_key ON turn_results (run, key);

CREATE TABLE artifacts (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    run          INTEGER NOT NULL,
    name         TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size         INTEGER NOT NULL,
    sha256       TEXT NOT NULL,
    blob_key     TEXT NOT NULL,
    upload_key   TEXT UNIQUE,
    created_at   INTEGER NOT NULL,
    metadata     TEXT
) STRICT;
CREATE INDEX artifacts_run ON artifacts (run, number);
CREATE INDEX artifacts_content ON artifacts (run, name, sha256, number);
CREATE INDEX artifacts_blob ON artifacts (blob_key);

CREATE TABLE uploads (
    key             TEXT PRIMARY KEY,
    run             TEXT,
    blob_key        TEXT NOT NULL,
    size            INTEGER NOT NULL,
    sha256          TEXT,
    content_type    TEXT NOT NULL,
    lifetime_ms     INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    received_size   INTEGER,
    received_sha256 TEXT,
    claimed         INTEGER NOT NULL DEFAULT 0,
    metadata        TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE claimed = 0;
CREATE INDEX uploads_blob ON uploads (blob_key);

CREATE TABLE secrets (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    environment TEXT NOT NULL,
    scope       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    description TEXT,
    last4       TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    sealed      BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX secrets_name ON secrets (name, environment);

CREATE TABLE pools (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE runners (
    id             TEXT PRIMARY KEY,
    pool           TEXT NOT NULL REFERENCES pools (id),
    name           TEXT NOT NULL,
    labels         TEXT NOT NULL,
    os             TEXT,
    arch           TEXT,
    token_hash     BLOB NOT NULL,
    created_at     INTEGER NOT NULL,
    removed_at     INTEGER,
    drain_reason   TEXT,
    -- Leases lost in a row; several lost in one outage count once.
    lost_in_row    INTEGER NOT NULL DEFAULT 0,
    last_loss_at   INTEGER NOT NULL DEFAULT 0,
    active_leases  INTEGER NOT NULL DEFAULT 0,
    waiting_leases INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX runners_token ON runners (token_hash);
CREATE INDEX runners_pool ON runners (pool) WHERE removed_at IS NULL;

-- Apart from `runners`, because every poll writes here.
CREATE TABLE runner_seen (
    runner  TEXT PRIMARY KEY,
    at      INTEGER NOT NULL,
    version TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE registration_tokens (
    token_hash BLOB PRIMARY KEY,
    pool       TEXT NOT NULL REFERENCES pools (id),
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX registration_tokens_expiry ON registration_tokens (expires_at);

CREATE TABLE idempotency (
    principal    TEXT NOT NULL,
    key          TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    -- The opening of the store that started the request; an unfinished one of another is dead.
    opening      TEXT NOT NULL,
    started_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    run          INTEGER,
    status       INTEGER,
    content_type TEXT,
    body         BLOB,
    PRIMARY KEY (principal, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_expiry ON idempotency (expires_at);
