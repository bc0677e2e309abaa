// Run events: their schema, channels and cursors.
"use strict";
const { anyObject, filled, integer, json, literal, object, oneOf, optional, text, variants } = require("./schema.cjs");

const int0 = () => integer(0);

const RUN_STATUS = [
  "queued", "pending", "running", "sleeping", "awaiting_input", "waiting_for_child",
  "completed", "failed", "cancelled", "cancelling",
];

const eventError = object({ code: text(), message: text(), hint: optional(text()) });

const tokenUsage = object({
  inputTokens: optional(int0()),
  outputTokens: optional(int0()),
  cacheCreationTokens: optional(int0()),
  cacheReadTokens: optional(int0()),
  totalTokens: optional(int0()),
});

const toolReturn = object({
  kind: optional(text()),
  humanSummary: optional(text()),
  data: optional(anyObject()),
});

const agentIdentity = { agentId: filled(), agentName: optional(filled()) };
const toolCall = { toolCallId: text() };
const output = { stream: oneOf("stdout", "stderr"), text: text() };

const KINDS = {
  lifecycle: {
    run_status: { status: oneOf(...RUN_STATUS), error: optional(eventError) },
    suspended: { reason: oneOf("sleep", "human_input", "child"), wakeAt: optional(int0()) },
    resumed: {},
    human_input_requested: { requestId: filled(), key: filled(), prompt: text() },
    human_input_resolved: { requestId: filled(), key: filled() },
  },
  phase: {
    phase: { name: filled(), id: filled() },
  },
  output: {
    output: { value: json() },
  },
  log: {
    program_output: output,
    egress_denied: { host: filled(), method: optional(text()), reason: filled() },
    workspace_persist_skipped: {
      reason: oneOf("too_large", "storage_limit", "error"),
      bytes: optional(int0()),
      maxBytes: optional(integer(1)),
      detail: optional(text()),
    },
  },
  agent: {
    turn_started: agentIdentity,
    turn_ended: {
      ...agentIdentity,
      reason: oneOf("complete", "cancelled", "error"),
      usage: optional(tokenUsage),
      error: optional(eventError),
    },
    text_start: { blockId: text() },
    text_delta: { blockId: text(), text: text() },
    text_end: { blockId: text() },
    reasoning_delta: { text: text() },
    turn_reset: {},
    tool_call_start: { ...toolCall, toolName: text() },
    tool_call_input_delta: { ...toolCall, partialJson: text() },
    tool_call_input_complete: { ...toolCall, input: anyObject() },
    tool_call_executing: toolCall,
    tool_output_delta: { ...toolCall, ...output },
    tool_call_result: { ...toolCall, result: toolReturn },
    tool_call_error: { ...toolCall, error: eventError },
    compaction_started: {
      ...agentIdentity,
      tokens: int0(),
      budget: int0(),
      contextTokens: optional(integer(1)),
    },
    compaction_ended: {
      ...agentIdentity,
      tokens: int0(),
      reclaimed: int0(),
      method: oneOf("deduped", "summarized", "none"),
    },
  },
};

const channelByKind = new Map();
const byKind = {};
for (const [channel, kinds] of Object.entries(KINDS)) {
  for (const [kind, fields] of Object.entries(kinds)) {
    channelByKind.set(kind, channel);
    byKind[kind] = object({
      runId: filled(),
      turnId: filled(),
      seq: integer(1),
      t: int0(),
      kind: literal(kind),
      ...fields,
    });
  }
}

/** One event of a run, closed: an added key, a missing one or an unknown kind is refused. */
const runEventSchema = variants("kind", byKind);

function clone(value) {
  try {
    return JSON.parse(JSON.stringify(value));
  } catch {
    return undefined; // cycles and big integers are not JSON
  }
}

function dropKeys(root, issues) {
  for (const { path, keys } of issues) {
    const holder = path.reduce((node, part) => node[part], root);
    for (const key of keys) delete holder[key];
  }
}

/** The event as far as this version knows it: unknown keys are dropped; anything else unknown gives null. */
function parseRunEventLenient(value) {
  const strict = runEventSchema.safeParse(value);
  if (strict.success) return clone(strict.data) ?? null;
  if (!strict.error.issues.every((problem) => problem.code === "unrecognized_keys")) return null;
  const copy = clone(value);
  if (copy === undefined) return null;
  dropKeys(copy, strict.error.issues);
  const lenient = runEventSchema.safeParse(copy);
  return lenient.success ? lenient.data : null;
}

/** The channel of an event; undefined for a kind that this version does not know. */
const channelOf = (event) => channelByKind.get(event.kind);

const matchesChannels = (event, channels) => channels.includes(channelOf(event));

module.exports = { channelOf, matchesChannels, parseRunEventLenient, runEventSchema };
