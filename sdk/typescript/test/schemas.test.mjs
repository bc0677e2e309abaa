import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CHANNELS, DEFAULT_CHANNELS, TURN_CURSOR_STRIDE, channelOf, makeCursor, matchesChannels, parseRunEventLenient,
  runEventSchema,
} from "../index.mjs";
import {
  actorSchema, agentWireOptionsSchema, artifactWireBodySchema, clientToHostRequests, contextDataSchema,
  hostToClientNotifications, hostToClientRequests, humanInputResultSchema, humanInputWireOptionsSchema, jsonValueSchema,
  rpcErrorFrameSchema, rpcFrameSchema, rpcRequestFrameSchema, rpcSuccessFrameSchema, sleepWireArgSchema,
  triggerInfoSchema, usageSnapshotSchema,
} from "../runtime.mjs";
import { CONTEXT } from "./support.mjs";

const accepts = (schema, value) => assert.deepEqual(schema.parse(value), value);
const refuses = (schema, value) => assert.equal(schema.safeParse(value).success, false, JSON.stringify(value));

// -- frames

test("takes the four frames and nothing near them", () => {
  const frames = [
    { jsonrpc: "2.0", id: 1, method: "m", params: {} },
    { jsonrpc: "2.0", id: "a", method: "m" },
    { jsonrpc: "2.0", method: "m", params: [1] },
    { jsonrpc: "2.0", id: 1, result: null },
    { jsonrpc: "2.0", id: null, error: { code: "X", message: "" } },
    { jsonrpc: "2.0", id: 1, error: { code: "X", message: "m", data: [1] } },
  ];
  for (const frame of frames) accepts(rpcFrameSchema, frame);
  const wrong = [
    [],
    { jsonrpc: "2.0", id: 1 },
    { jsonrpc: "2.0", id: 1, result: {}, error: { code: "X", message: "" } },
    { jsonrpc: "2.0", id: 1, result: {}, extra: 1 },
    { jsonrpc: "2.0", id: 1.5, method: "m" },
    { jsonrpc: "2.0", id: "", method: "m" },
    { jsonrpc: "2.0", id: null, method: "m" },
    { jsonrpc: "2.0", id: null, result: {} },
    { jsonrpc: "2.0", id: 1, method: "" },
    { jsonrpc: "1.0", id: 1, method: "m" },
    { id: 1, result: {} },
    { jsonrpc: "2.0", id: 1, error: { code: -32600, message: "m" } },
    { jsonrpc: "2.0", id: 1, error: { code: "X" } },
  ];
  for (const frame of wrong) refuses(rpcFrameSchema, frame);
  refuses(rpcRequestFrameSchema, frames[2]);
  refuses(rpcSuccessFrameSchema, frames[4]);
  refuses(rpcErrorFrameSchema, frames[3]);
});

test("closes every params and result object of every method", () => {
  const methods = Object.entries({ ...clientToHostRequests, ...hostToClientRequests });
  assert.equal(methods.length, 27);
  for (const [method, { params, result }] of methods) {
    for (const schema of [params, result]) {
      const { issues } = schema.safeParse({ "no such key": 1 }).error;
      assert.ok(issues.some((issue) => issue.code === "unrecognized_keys"), method);
      refuses(schema, null);
    }
  }
});

test("requires the keys that may be null but not absent", () => {
  refuses(clientToHostRequests["workflows.call"].params, { slug: "s" });
  accepts(clientToHostRequests["workflows.call"].params, { slug: "s", input: null });
  refuses(clientToHostRequests.report_return.params, {});
  accepts(clientToHostRequests.report_return.params, { value: null });
  refuses(clientToHostRequests.bootstrap.result, { input: null, context: CONTEXT });
  accepts(clientToHostRequests.bootstrap.result, { input: null, input_schema: null, context: CONTEXT });
  refuses(hostToClientRequests.tool_invoke.result, {});
  accepts(hostToClientNotifications.cancel.params, {});
  refuses(hostToClientNotifications.cancel.params, { reason: "" });
});

test("holds the context to its rules", () => {
  accepts(contextDataSchema, CONTEXT);
  accepts(contextDataSchema, { ...CONTEXT, environment: { id: "e", name: "n" } });
  for (const change of [{ environment: undefined }, { workflowVersion: 0 }, { attempt: 0 }, { runId: "" }, { signal: {} }, { budget: 1 }]) {
    refuses(contextDataSchema, { ...CONTEXT, ...change });
  }
  const actors = [
    { type: "user", user_id: "u" },
    { type: "workflow", parent_run_id: "r", parent_workflow_id: "w", user_id: "workflow:w" },
    { type: "webhook", source: "s" },
    { type: "cron", rule: "* * * * *" },
    { type: "event", subscription_id: "s", source_run_id: "r", source_workflow_id: "w", event_type: "e", event_chain_depth: 0 },
  ];
  for (const actor of actors) {
    accepts(actorSchema, actor);
    refuses(actorSchema, { ...actor, more: 1 });
    for (const key of Object.keys(actor)) refuses(actorSchema, { ...actor, [key]: undefined });
  }
  const request = { method: "POST", path: "/", query: {}, headers: { a: "b" } };
  accepts(triggerInfoSchema, { kind: "webhook", firedAt: 0, source: "s", request });
  for (const key of Object.keys(request)) refuses(triggerInfoSchema, { kind: "webhook", firedAt: 0, request: { ...request, [key]: undefined } });
  refuses(triggerInfoSchema, { kind: "webhook", firedAt: 0, request: { ...request, method: "M".repeat(17) } });
  refuses(triggerInfoSchema, { kind: "event", firedAt: 0 });
  refuses(triggerInfoSchema, { kind: "manual", firedAt: 0, source: null });
});

test("holds agent options to their rules", () => {
  const good = [
    {},
    { reasoning: "xhigh" },
    { reasoning: { effort: "none", maxTokens: 1, exclude: true } },
    { builtins: "read-only" },
    { builtins: ["bash", "anything"] },
    { maxIterations: -1.5 },
    { tools: [{ name: "t", description: "", input_schema: {} }] },
    { mcp: [{ name: "m", transport: "http", url: "u" }, { name: "n", transport: "stdio", command: "c", args: [], env: {} }] },
    { attachments: [{ mimeType: "a/b", url: "u" }] },
  ];
  for (const options of good) accepts(agentWireOptionsSchema, options);
  const bad = [
    { temperature: 1 },
    { reasoning: "huge" },
    { reasoning: { maxTokens: 0 } },
    { builtins: "some" },
    { model: null },
    { tools: [{ name: "t", description: "" }] },
    { tools: ["bash"] },
    { mcp: [{ name: "m", transport: "tcp" }] },
    { mcp: [{ name: "m", transport: "http", url: "u", command: "c" }] },
    { memory: 5 },
  ];
  for (const options of bad) refuses(agentWireOptionsSchema, options);
});

test("holds the small shapes to their rules", () => {
  for (const arg of [0, 1.5, { durationMs: 0 }, { until: "x" }]) accepts(sleepWireArgSchema, arg);
  for (const arg of [-1, { durationMs: -1 }, { until: "" }, { durationMs: 1, until: "x" }, "5m", null]) refuses(sleepWireArgSchema, arg);
  for (const result of [{ value: "a" }, { value: "a", isOther: true }, { values: [] }, { values: ["a"], other: "b" }]) accepts(humanInputResultSchema, result);
  for (const result of [{}, { value: "a", other: "b" }, { values: ["a"], isOther: true }, { value: 5 }]) refuses(humanInputResultSchema, result);
  accepts(humanInputWireOptionsSchema, { prompt: "", input: { kind: "choice", options: ["a"] }, onTimeout: { value: { value: "a" } } });
  refuses(humanInputWireOptionsSchema, { prompt: "", input: { kind: "choice", options: [] } });
  refuses(humanInputWireOptionsSchema, { prompt: "", input: { kind: "text", options: ["a"] } });
  accepts(artifactWireBodySchema, { encoding: "base64", data: "" });
  refuses(artifactWireBodySchema, { encoding: "hex", data: "" });
  const none = { spent: 1.5, cap: null, remaining: null };
  const capped = { spent: 3, cap: 2, remaining: 0 };
  accepts(usageSnapshotSchema, { usd: none, tokens: capped, compute_seconds: none });
  refuses(usageSnapshotSchema, { usd: none, tokens: { spent: 3, cap: 2, remaining: null }, compute_seconds: none });
  for (const value of [null, 0, "", [], { a: [{}] }]) accepts(jsonValueSchema, value);
  const cyclic = [];
  cyclic.push(cyclic, cyclic);
  for (const value of [undefined, Number.NaN, 1n, () => 1, { a: undefined }, cyclic]) assert.equal(jsonValueSchema.safeParse(value).success, false);
});

// -- events

const envelope = { runId: "r", turnId: "r", seq: 1, t: 0 };
const identity = { agentId: "agent-1", agentName: "critic" };
const EVENTS = {
  run_status: { status: "failed", error: { code: "X", message: "m", hint: "h" } },
  suspended: { reason: "sleep", wakeAt: 5 },
  resumed: {},
  human_input_requested: { requestId: "q", key: "k", prompt: "" },
  human_input_resolved: { requestId: "q", key: "k" },
  phase: { name: "n", id: "phase-1" },
  output: { value: null },
  program_output: { stream: "stdout", text: "" },
  egress_denied: { host: "h", method: "GET", reason: "r" },
  workspace_persist_skipped: { reason: "too_large", bytes: 0, maxBytes: 1, detail: "d" },
  turn_started: identity,
  turn_ended: { ...identity, reason: "complete", usage: { inputTokens: 1, totalTokens: 2 }, error: { code: "X", message: "m" } },
  text_start: { blockId: "" },
  text_delta: { blockId: "", text: "" },
  text_end: { blockId: "" },
  reasoning_delta: { text: "" },
  turn_reset: {},
  tool_call_start: { toolCallId: "", toolName: "" },
  tool_call_input_delta: { toolCallId: "", partialJson: "" },
  tool_call_input_complete: { toolCallId: "", input: { any: [1] } },
  tool_call_executing: { toolCallId: "" },
  tool_output_delta: { toolCallId: "", stream: "stderr", text: "" },
  tool_call_result: { toolCallId: "", result: { kind: "k", humanSummary: "s", data: { any: { thing: 1 } } } },
  tool_call_error: { toolCallId: "", error: { code: "X", message: "m" } },
  compaction_started: { ...identity, tokens: 0, budget: 0, contextTokens: 1 },
  compaction_ended: { ...identity, tokens: 0, reclaimed: 0, method: "none" },
};
const OPTIONAL = ["error", "wakeAt", "method", "bytes", "maxBytes", "detail", "agentName", "usage", "contextTokens"];
const event = (kind, more) => ({ ...envelope, kind, ...EVENTS[kind], ...more });

test("knows all twenty six kinds and the channel of each", () => {
  assert.equal(Object.keys(EVENTS).length, 26);
  const channels = { lifecycle: 5, phase: 1, output: 1, log: 3, agent: 16 };
  assert.deepEqual(CHANNELS, Object.keys(channels));
  assert.deepEqual(DEFAULT_CHANNELS, ["lifecycle", "phase", "output"]);
  const counted = {};
  for (const kind of Object.keys(EVENTS)) counted[channelOf({ kind })] = (counted[channelOf({ kind })] ?? 0) + 1;
  assert.deepEqual(counted, channels);
  assert.equal(channelOf({ kind: "new_kind" }), undefined);
  assert.equal(channelOf({ kind: "constructor" }), undefined);
  assert.equal(matchesChannels({ kind: "new_kind" }, CHANNELS), false);
  assert.equal(matchesChannels(event("phase"), DEFAULT_CHANNELS), true);
  assert.equal(matchesChannels(event("text_delta"), DEFAULT_CHANNELS), false);
});

for (const kind of Object.keys(EVENTS)) {
  test(`holds the event kind to its shape: ${kind}`, () => {
    accepts(runEventSchema, event(kind));
    refuses(runEventSchema, event(kind, { added: 1 }));
    for (const key of ["runId", "turnId", "seq", "t", ...Object.keys(EVENTS[kind])]) {
      const without = event(kind);
      delete without[key];
      const optional = OPTIONAL.includes(key) && !(kind === "compaction_ended" && key === "method") && !(kind === "tool_call_error" && key === "error");
      assert.equal(runEventSchema.safeParse(without).success, optional, `without ${key}`);
      if (!(kind === "output" && key === "value")) refuses(runEventSchema, event(kind, { [key]: null }));
      refuses(runEventSchema, event(kind, { [key]: Symbol("wrong") }));
    }
  });
}

const lenient = [
  [event("run_status", { error: { code: "X", message: "m", zzz: 1 } }), event("run_status", { error: { code: "X", message: "m" } })],
  [event("tool_call_result", { result: { extra: 1, data: { any: { kept: 1 } } } }), event("tool_call_result", { result: { data: { any: { kept: 1 } } } })],
  [event("turn_ended", { usage: { inputTokens: 1, dreams: 2 } }), event("turn_ended", { usage: { inputTokens: 1 } })],
  [event("phase", { one: 1, two: 2 }), event("phase")],
  [event("phase"), event("phase")],
  [event("output", { value: null }), event("output", { value: null })],
  [event("phase", { extra: 1, id: undefined }), null],
  [event("new_kind"), null],
  [event("run_status", { status: "paused" }), null],
  [event("workspace_persist_skipped", { reason: "overwritten" }), null],
  [event("run_status", { error: null }), null],
  [event("run_status", { error: { code: "X", message: "m", hint: null } }), null],
  [event("output", { value: undefined }), null],
  [event("phase", { seq: 0 }), null],
  [event("phase", { seq: 2 ** 53 }), null],
  [event("phase", { t: 1.5 }), null],
  [event("suspended", { wakeAt: -1 }), null],
  [event("compaction_started", { contextTokens: 0 }), null],
  [event("turn_started", { agentName: "" }), null],
  [event("tool_call_input_complete", { input: [1] }), null],
  [event("output", { value: 5n }), null],
  ["text", null],
  [null, null],
  [undefined, null],
];

test("reads events leniently as the table says", () => {
  for (const [value, expected] of lenient) {
    const before = typeof value === "object" && value !== null ? { ...value } : value;
    assert.deepEqual(parseRunEventLenient(value), expected);
    assert.deepEqual(value, before, "the argument is not changed");
  }
  const cyclic = event("output");
  cyclic.value = cyclic;
  assert.equal(parseRunEventLenient(cyclic), null);
  const nested = event("run_status", { error: { code: "X", message: "m", zzz: 1 } });
  parseRunEventLenient(nested);
  assert.equal(nested.error.zzz, 1);
});

test("makes cursors inside their range only", () => {
  assert.equal(TURN_CURSOR_STRIDE, 1_000_000);
  assert.equal(makeCursor(0, 1), 1);
  assert.equal(makeCursor(0, 999_999), 999_999);
  assert.equal(makeCursor(3, 1), 3_000_001);
  for (const [block, seq] of [[0, 0], [0, 1_000_000], [-1, 1], [0.5, 1], [0, 1.5], [2 ** 52, 1], ["1", 1]]) {
    assert.throws(() => makeCursor(block, seq), RangeError);
  }
});
