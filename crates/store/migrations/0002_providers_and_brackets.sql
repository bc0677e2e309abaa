-- Model providers that programs may name. Without a key, `sealed` is NULL.
CREATE TABLE inference_providers (
    name       TEXT PRIMARY KEY,
    source     TEXT NOT NULL,
    base_url   TEXT,
    created_at INTEGER NOT NULL,
    sealed     BLOB
) STRICT, WITHOUT ROWID;

-- Events that open or close something, so that what a lost process left open is found without reading its deltas.
CREATE INDEX events_brackets ON events (run, cursor) WHERE kind IN
    ('turn_started', 'turn_ended', 'text_start', 'text_end', 'tool_call_start', 'tool_call_result', 'tool_call_error',
     'compaction_started', 'compaction_ended');
