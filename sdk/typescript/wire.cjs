// The host protocol as schemas: every frame, every method's parameters and result. All objects are closed.
"use strict";
const {
  anyObject, bool, filled, integer, json, list, literal, nullable, number, object, oneOf, optional,
  record, schema, text, union, variants,
} = require("./schema.cjs");

const jsonValueSchema = json();

const texts = () => record(text());
const empty = () => object({});

// -- frames

const rpcId = union(integer(), filled());

const protocolErrorSchema = object({ code: filled(), message: text(), data: optional(json()) });

const rpcRequestFrameSchema = object({
  jsonrpc: literal("2.0"),
  id: rpcId,
  method: filled(),
  params: optional(json()),
});

const rpcNotificationFrameSchema = object({
  jsonrpc: literal("2.0"),
  method: filled(),
  params: optional(json()),
});

const rpcSuccessFrameSchema = object({ jsonrpc: literal("2.0"), id: rpcId, result: json() });

const rpcErrorFrameSchema = object({
  jsonrpc: literal("2.0"),
  id: nullable(rpcId),
  error: protocolErrorSchema,
});

const rpcFrameSchema = union(
  rpcRequestFrameSchema,
  rpcNotificationFrameSchema,
  rpcSuccessFrameSchema,
  rpcErrorFrameSchema,
);

// -- context

const actorSchema = variants("type", {
  user: object({ type: literal("user"), user_id: filled() }),
  workflow: object({
    type: literal("workflow"),
    parent_run_id: filled(),
    parent_workflow_id: filled(),
    user_id: filled(),
  }),
  webhook: object({ type: literal("webhook"), source: filled() }),
  cron: object({ type: literal("cron"), rule: filled() }),
  event: object({
    type: literal("event"),
    subscription_id: filled(),
    source_run_id: filled(),
    source_workflow_id: filled(),
    event_type: filled(),
    event_chain_depth: integer(0),
  }),
});

const triggerInfoSchema = object({
  kind: oneOf("cron", "webhook", "manual"),
  firedAt: integer(0),
  source: optional(filled()),
  request: optional(
    object({ method: text({ min: 1, max: 16 }), path: text({ max: 2048 }), query: texts(), headers: texts() }),
  ),
});

const contextDataSchema = object({
  runId: filled(),
  workflowId: filled(),
  workflowVersion: integer(1),
  orgId: filled(),
  environment: nullable(object({ id: filled(), name: filled() })),
  actor: actorSchema,
  attempt: integer(1),
  trigger: triggerInfoSchema,
  workspaceDir: filled(),
});

// -- agent

const toolDeclarationSchema = object({ name: filled(), description: text(), input_schema: anyObject() });

const effort = oneOf("none", "minimal", "low", "medium", "high", "xhigh");

const mcpServer = variants("transport", {
  stdio: object({
    name: filled(),
    transport: literal("stdio"),
    command: filled(),
    args: optional(list(text())),
    env: optional(texts()),
    excludeTools: optional(list(text())),
  }),
  http: object({
    name: filled(),
    transport: literal("http"),
    url: filled(),
    headers: optional(texts()),
    excludeTools: optional(list(text())),
  }),
});

const agentWireOptionsSchema = object({
  name: optional(text()),
  model: optional(text()),
  provider: optional(text()),
  reasoning: optional(
    union(
      effort,
      object({
        effort: optional(effort),
        maxTokens: optional(integer(1)),
        exclude: optional(bool()),
      }),
    ),
  ),
  schema: optional(anyObject()),
  tools: optional(list(toolDeclarationSchema)),
  builtins: optional(union(oneOf("all", "read-only", "none"), list(text()))),
  cwd: optional(text()),
  mcp: optional(list(mcpServer)),
  skills: optional(list(text())),
  memory: optional(text()),
  humanInput: optional(bool()),
  maxIterations: optional(number()),
  sessionId: optional(text()),
  attachments: optional(
    list(object({ mimeType: filled(), data: optional(text()), url: optional(text()), filename: optional(text()) })),
  ),
});

// -- the other capabilities

const zeroOrMore = () => number({ min: 0 });

const sleepWireArgSchema = union(
  zeroOrMore(),
  object({ durationMs: zeroOrMore() }),
  object({ until: filled() }),
);

const options = { options: list(text(), { min: 1 }), allowOther: optional(bool()), otherLabel: optional(text()) };

const humanInputSpec = variants("kind", {
  text: object({
    kind: literal("text"),
    multiline: optional(bool()),
    placeholder: optional(text()),
    required: optional(bool()),
  }),
  choice: object({ kind: literal("choice"), ...options }),
  multiselect: object({ kind: literal("multiselect"), ...options, min: optional(number()), max: optional(number()) }),
});

const humanInputResultSchema = union(
  object({ values: list(text()), other: optional(text()) }),
  object({ value: text(), isOther: bool() }),
  object({ value: text() }),
);

const humanInputWireOptionsSchema = object({
  key: optional(text()),
  prompt: text(),
  input: humanInputSpec,
  assignees: optional(list(text())),
  timeout: optional(text()),
  onTimeout: optional(union(literal("fail"), object({ value: humanInputResultSchema }))),
});

const artifactWireBodySchema = variants("encoding", {
  utf8: object({ encoding: literal("utf8"), data: text() }),
  base64: object({ encoding: literal("base64"), data: text() }),
});

const artifactRefSchema = object({ id: filled(), name: filled(), url: filled() });

const shellResultSchema = object({ exitCode: integer(), stdout: text(), stderr: text() });

const spend = object({
  spent: zeroOrMore(),
  cap: nullable(number({ above: 0 })),
  remaining: nullable(number()),
});

/** `cap` and `remaining` are null together. */
const dimension = schema((value, path, issues) => {
  const data = spend.check(value, path, issues);
  if (issues.length === 0 && (data.cap === null) !== (data.remaining === null)) {
    issues.push({ code: "invalid", path: [...path], message: "cap and remaining must be null together" });
  }
  return data;
});

const usageSnapshotSchema = object({ usd: dimension, tokens: dimension, compute_seconds: dimension });

const callParams = object({
  slug: filled(),
  input: json(),
  opts: optional(object({ idempotencyKey: optional(text()) })),
});

const scheduleOptions = object({
  cron: optional(text()),
  rate: optional(text()),
  at: optional(text()),
  timezone: optional(text()),
  idempotencyKey: optional(text()),
});

const browserOptions = object({
  startUrl: optional(text()),
  viewport: optional(object({ width: integer(1), height: integer(1) })),
  grounding: optional(oneOf("auto", "a11y", "vision", "none")),
});

const session = { sessionId: filled() };
const consoleEntry = object({
  level: oneOf("log", "info", "warn", "error", "debug"),
  text: text(),
  timestamp: number(),
});
const networkEntry = object({ method: text(), url: text(), status: optional(number()), timestamp: number() });
const since = { since: optional(number()) };

/** What a program may ask its host. */
const clientToHostRequests = {
  bootstrap: {
    params: empty(),
    result: object({ input: json(), input_schema: nullable(anyObject()), context: contextDataSchema }),
  },
  report_return: { params: object({ value: json() }), result: empty() },
  agent: {
    params: object({ prompt: text(), opts: optional(agentWireOptionsSchema) }),
    result: object({ output: json() }),
  },
  "workflows.call": {
    params: callParams,
    result: object({ output: json(), output_schema: nullable(anyObject()) }),
  },
  "workflows.run": { params: callParams, result: object({ runId: filled() }) },
  "workflows.schedule": {
    params: object({ slug: filled(), input: json(), opts: scheduleOptions }),
    result: object({ scheduleId: filled() }),
  },
  sleep: { params: object({ arg: sleepWireArgSchema }), result: empty() },
  humanInput: {
    params: object({ opts: humanInputWireOptionsSchema }),
    result: object({ result: humanInputResultSchema }),
  },
  "secrets.get": { params: object({ name: filled() }), result: object({ value: text() }) },
  "artifacts.write": {
    params: object({ name: filled(), contentType: filled(), body: artifactWireBodySchema, metadata: optional(anyObject()) }),
    result: object({ ref: artifactRefSchema }),
  },
  "computer.openBrowser": { params: object({ opts: optional(browserOptions) }), result: object(session) },
  "computer.browser.navigate": { params: object({ ...session, url: filled() }), result: empty() },
  "computer.browser.url": { params: object(session), result: object({ url: text() }) },
  "computer.browser.title": { params: object(session), result: object({ title: text() }) },
  "computer.browser.screenshot": {
    params: object({ ...session, fullPage: optional(bool()) }),
    result: object({ ref: artifactRefSchema }),
  },
  "computer.browser.console": {
    params: object({ ...session, ...since }),
    result: object({ entries: list(consoleEntry) }),
  },
  "computer.browser.network": {
    params: object({ ...session, ...since }),
    result: object({ entries: list(networkEntry) }),
  },
  "computer.browser.eval": { params: object({ ...session, expression: text() }), result: object({ value: json() }) },
  "computer.browser.close": { params: object(session), result: empty() },
  "computer.openDesktop": {
    params: object({ opts: optional(object({ grounding: optional(oneOf("auto", "none")) })) }),
    result: object(session),
  },
  "computer.desktop.screenshot": { params: object(session), result: object({ ref: artifactRefSchema }) },
  "computer.desktop.close": { params: object(session), result: empty() },
  shell: {
    params: object({
      cmd: filled(),
      opts: optional(
        object({
          cwd: optional(text()),
          env: optional(texts()),
          timeoutMs: optional(number()),
          maxBuffer: optional(number()),
        }),
      ),
    }),
    result: shellResultSchema,
  },
  "auth.idToken": { params: object({ audience: filled() }), result: object({ token: filled() }) },
  "auth.apiToken": { params: empty(), result: object({ token: filled() }) },
  "usage.get": { params: empty(), result: usageSnapshotSchema },
};

const clientToHostNotifications = {
  phase: { params: object({ name: filled(), opts: optional(object({ id: optional(filled()) })) }) },
};

/** What a host may ask its program. */
const hostToClientRequests = {
  tool_invoke: {
    params: object({ call_id: filled(), tool: filled(), input: json() }),
    result: object({ output: json() }),
  },
};

const hostToClientNotifications = {
  cancel: { params: optional(object({ reason: optional(filled()) })) },
};

module.exports = {
  actorSchema,
  agentWireOptionsSchema,
  artifactRefSchema,
  artifactWireBodySchema,
  clientToHostNotifications,
  clientToHostRequests,
  contextDataSchema,
  hostToClientNotifications,
  hostToClientRequests,
  humanInputResultSchema,
  humanInputWireOptionsSchema,
  jsonValueSchema,
  protocolErrorSchema,
  rpcErrorFrameSchema,
  rpcFrameSchema,
  rpcNotificationFrameSchema,
  rpcRequestFrameSchema,
  rpcSuccessFrameSchema,
  shellResultSchema,
  sleepWireArgSchema,
  toolDeclarationSchema,
  triggerInfoSchema,
  usageSnapshotSchema,
};
