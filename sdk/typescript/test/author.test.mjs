import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import * as sdk from "../index.mjs";
import * as runtime from "../runtime.mjs";
import { program, startHost } from "./support.mjs";

const { HostError, installTestHost, parallel } = sdk;

const ROOT_NAMES = `
  agent workflows sleep humanInput secrets artifacts computer shell parallel phase auth usage installTestHost
  HostError isRunFatal RUN_FATAL_CODES normalizeReasoning parseJsonc parseWorkflowDescriptor
  validateConcurrencyKeyTemplate splitFallback DescriptorValidationError DEFAULT_ENTRY_SOURCES
  PYTHON_DEFAULT_ENTRY workflowManifestSchema GITHUB_TRIGGER_EVENTS LINEAR_TRIGGER_EVENTS
  JIRA_TRIGGER_EVENTS NOTION_TRIGGER_EVENTS runEventSchema parseRunEventLenient CHANNELS DEFAULT_CHANNELS
  channelOf matchesChannels makeCursor TURN_CURSOR_STRIDE`.trim().split(/\s+/);

const RUNTIME_NAMES = `
  HOST_SOCK_ENV HostClient connectHost getHost peekHost resetHost installTestHost reviveBySchema HostError
  isRunFatal RUN_FATAL_CODES protocolErrorSchema rpcFrameSchema rpcRequestFrameSchema
  rpcNotificationFrameSchema rpcSuccessFrameSchema rpcErrorFrameSchema clientToHostRequests
  clientToHostNotifications hostToClientRequests hostToClientNotifications jsonValueSchema
  agentWireOptionsSchema toolDeclarationSchema sleepWireArgSchema humanInputResultSchema
  humanInputWireOptionsSchema artifactWireBodySchema artifactRefSchema shellResultSchema
  usageSnapshotSchema actorSchema triggerInfoSchema contextDataSchema`.trim().split(/\s+/);

test("exports every name of the author surface and no other", () => {
  assert.deepEqual(Object.keys(sdk).sort(), [...ROOT_NAMES].sort());
  assert.deepEqual(Object.keys(runtime).sort(), [...RUNTIME_NAMES].sort());
});

test("gives schemas that parse, parse safely and follow the standard", () => {
  const schemas = Object.entries({ ...sdk, ...runtime }).filter(([name]) => name.endsWith("Schema") && name !== "reviveBySchema");
  assert.equal(schemas.length, 21);
  for (const [name, schema] of schemas) {
    const bad = schema.safeParse(Symbol("never valid"));
    assert.equal(bad.success, false, name);
    assert.ok(bad.error.issues.length > 0, name);
    assert.throws(() => schema.parse(Symbol("never valid")), { name: "SchemaError" });
    const standard = schema["~standard"];
    assert.deepEqual([standard.version, typeof standard.vendor], [1, "string"]);
    assert.ok(standard.validate(Symbol("never valid")).issues.length > 0);
  }
  assert.deepEqual(runtime.jsonValueSchema["~standard"].validate([1]), { value: [1] });
});

test("is one instance under both of its names", async (t) => {
  const root = program(t, "export default 1");
  const at = (name) => import(pathToFileURL(realpathSync(join(root, "node_modules", name))).href);
  const [first, second] = await Promise.all([at("@boardwalk-labs/workflow/index.mjs"), at("@trestle/workflow/index.mjs")]);
  assert.equal(first, second);
  assert.equal(first, sdk);
});

test("has no dependency and needs no build", () => {
  const manifest = createRequire(import.meta.url)("../package.json");
  for (const key of ["dependencies", "peerDependencies", "optionalDependencies"]) assert.equal(manifest[key], undefined);
  assert.deepEqual(Object.keys(manifest.exports), [".", "./runtime"]);
});

// -- parallel

function warnings(t) {
  const lines = [];
  t.mock.method(console, "warn", (...args) => lines.push(args.map(String).join(" ")));
  return lines;
}

test("runs all tasks at once and keeps their order", async () => {
  const log = [];
  const gate = Promise.withResolvers?.() ?? (() => { let resolve; const promise = new Promise((r) => (resolve = r)); return { promise, resolve }; })();
  const work = parallel([
    async () => { log.push("a"); await gate.promise; return 1; },
    () => { log.push("b"); gate.resolve(); return 2; },
  ]);
  assert.deepEqual(log, ["a", "b"], "started before anything was awaited");
  assert.deepEqual(await work, [1, 2]);
  assert.deepEqual(await parallel([]), []);
});

test("gives null and one warning for a task that fails", async (t) => {
  const lines = warnings(t);
  assert.deepEqual(await parallel([async () => 1, async () => { throw new Error("two"); }]), [1, null]);
  assert.equal(lines.length, 1);
  assert.match(lines[0], /task 1 .*two/);
});

test("treats a synchronous throw like a rejection", async (t) => {
  const lines = warnings(t);
  let finished = false;
  const result = await parallel([
    () => { throw new Error("at once"); },
    async () => { await new Promise(setImmediate); finished = true; return "done"; },
  ]);
  assert.deepEqual(result, [null, "done"]);
  assert.equal(finished, true);
  assert.match(lines[0], /at once/);
});

test("throws the first run fatal failure after all have settled", async (t) => {
  warnings(t);
  const order = [];
  const first = new HostError("CANCELLED", "first by index");
  const second = new HostError("BUDGET_EXCEEDED", "first in time");
  await assert.rejects(
    parallel([
      async () => { throw new Error("isolated"); },
      async () => { await new Promise(setImmediate); order.push(0); throw first; },
      async () => { order.push(1); throw second; },
      async () => { await new Promise(setImmediate); await new Promise(setImmediate); order.push(2); },
      async () => { throw new Error("isolated"); },
    ]),
    (thrown) => thrown === first,
  );
  assert.deepEqual(order, [1, 0, 2]);
});

test("bounds how many tasks run and starts none after a fatal one", async (t) => {
  warnings(t);
  let running = 0;
  let most = 0;
  const task = (value) => async () => {
    running += 1;
    most = Math.max(most, running);
    await new Promise(setImmediate);
    running -= 1;
    return value;
  };
  assert.deepEqual(await parallel([1, 2, 3, 4, 5].map(task), { concurrency: 2 }), [1, 2, 3, 4, 5]);
  assert.equal(most, 2);
  const started = [];
  const fatal = new HostError("CANCELLED", "stop");
  await assert.rejects(
    parallel([0, 1, 2].map((n) => async () => { started.push(n); if (n === 0) throw fatal; }), { concurrency: 1 }),
    (thrown) => thrown === fatal,
  );
  assert.deepEqual(started, [0]);
});

test("refuses what are no tasks before it starts any", async () => {
  let started = false;
  const task = () => { started = true; };
  await assert.rejects(parallel([task, Promise.resolve(1)]), /entry 1 is a promise; pass a function/);
  await assert.rejects(parallel([task, "x"]), /entry 1 is of type string/);
  await assert.rejects(parallel({}), /array of functions/);
  await assert.rejects(parallel([task], { concurrency: 0 }), /at least 1/);
  await assert.rejects(parallel([task], { concurrency: Number.NaN }), /at least 1/);
  assert.equal(started, false);
});

// -- installTestHost

function testHost(t, overrides) {
  const handle = installTestHost(overrides);
  t.after(() => handle.uninstall());
  return handle;
}

test("fails every capability without a stub and says which", async (t) => {
  testHost(t);
  const calls = {
    agent: () => sdk.agent("x"),
    "workflows.call": () => sdk.workflows.call("s"),
    "workflows.run": () => sdk.workflows.run("s"),
    "workflows.schedule": () => sdk.workflows.schedule("s", null, { rate: "5 minutes" }),
    humanInput: () => sdk.humanInput({ prompt: "?", input: { kind: "text" } }),
    "secrets.get": () => sdk.secrets.get("A"),
    "artifacts.write": () => sdk.artifacts.write("n", "x/y", ""),
    "computer.openBrowser": () => sdk.computer.openBrowser(),
    "computer.openDesktop": () => sdk.computer.openDesktop(),
    shell: () => sdk.shell("ls"),
    "auth.idToken": () => sdk.auth.idToken("aud"),
    "auth.apiToken": () => sdk.auth.apiToken(),
  };
  for (const [name, call] of Object.entries(calls)) {
    await assert.rejects(call(), (error) => {
      assert.equal(error.constructor, Error);
      assert.ok(error.message.startsWith(`${name} is not stubbed — pass an implementation`), error.message);
      return true;
    });
  }
});

test("has defaults for sleep, phase and usage", async (t) => {
  testHost(t);
  assert.equal(await sdk.sleep("7d"), undefined);
  assert.equal(sdk.phase("x"), undefined);
  const dimension = { spent: 0, cap: null, remaining: null };
  assert.deepEqual(await sdk.usage.get(), { usd: dimension, tokens: dimension, compute_seconds: dimension });
});

test("hands stubs what the author wrote", async (t) => {
  const seen = [];
  const keep = (name, answer) => (...args) => { seen.push([name, ...args]); return answer; };
  testHost(t, {
    agent: keep("agent", "text"),
    workflows: { call: keep("call", "2024-01-01"), run: keep("run", "r"), schedule: async (...args) => { seen.push(["schedule", ...args]); return "s"; } },
    sleep: keep("sleep"),
    humanInput: keep("humanInput", { value: "x" }),
    secrets: { A: "one" },
    artifacts: { write: keep("write", { id: "1", name: "n", url: "u" }) },
    computer: { openBrowser: keep("browser", { id: "b" }), openDesktop: keep("desktop", { id: "d" }) },
    shell: keep("shell", { exitCode: 0, stdout: "", stderr: "" }),
    phase: keep("phase"),
    auth: { idToken: keep("idToken", "id"), apiToken: keep("apiToken", "api") },
    usage: keep("usage", "snapshot"),
  });
  const options = { tools: [{ name: "t", description: "", inputSchema: {}, execute: () => 1 }], anything: 1 };
  assert.equal(await sdk.agent("hi", options), "text");
  assert.equal(seen[0][2], options, "agent options arrive untouched");
  const at = new Date(0);
  assert.equal(await sdk.workflows.call("c", { at }), "2024-01-01", "nothing is revived without a schema");
  assert.equal(seen[1][2].at, at);
  assert.equal(await sdk.workflows.run("c"), "r");
  assert.equal(await sdk.workflows.schedule("c", null, { cron: "0 * * * *" }), "s");
  await sdk.sleep("2s");
  assert.deepEqual(seen.at(-1), ["sleep", { durationMs: 2000 }]);
  await assert.rejects(sdk.sleep("soon"), TypeError);
  assert.deepEqual(await sdk.humanInput({ prompt: "?", input: { kind: "text" } }), { value: "x" });
  assert.equal(await sdk.secrets.get("A"), "one");
  await assert.rejects(sdk.secrets.get("B"), /the secret "B" is not stubbed/);
  await assert.rejects(sdk.secrets.get("constructor"), /"constructor" is not stubbed/);
  assert.equal((await sdk.artifacts.write("n", "x/y", "body", { a: 1 })).id, "1");
  assert.deepEqual(seen.at(-1), ["write", "n", "x/y", "body", { a: 1 }]);
  assert.deepEqual([await sdk.computer.openBrowser(), await sdk.computer.openDesktop()], [{ id: "b" }, { id: "d" }]);
  assert.equal((await sdk.shell("ls")).exitCode, 0);
  sdk.phase("p", { id: "one" });
  assert.deepEqual(seen.at(-1), ["phase", "p", { id: "one" }]);
  assert.deepEqual([await sdk.auth.idToken("aud"), await sdk.auth.apiToken()], ["id", "api"]);
  assert.equal(await sdk.usage.get(), "snapshot");
});

test("reads secrets from a function or a map", async (t) => {
  testHost(t, { secrets: async (name) => `${name}!` });
  assert.equal(await sdk.secrets.get("A"), "A!");
  testHost(t, { secrets: new Map([["A", "one"]]) });
  assert.equal(await sdk.secrets.get("A"), "one");
});

test("makes a frozen context with the defaults of the table", (t) => {
  const handle = testHost(t);
  const context = handle.context({ attempt: 2 });
  const { trigger, ...rest } = context;
  assert.deepEqual(rest, {
    runId: "01TESTRUN00000000000000000",
    workflowId: "01TESTWORKFLOW000000000000",
    workflowVersion: 1,
    orgId: "01TESTORG00000000000000000",
    environment: null,
    actor: { type: "user", user_id: "01TESTUSER0000000000000000" },
    attempt: 2,
    workspaceDir: process.cwd(),
    signal: handle.signal,
  });
  assert.equal(trigger.kind, "manual");
  assert.ok(Math.abs(trigger.firedAt - Date.now()) < 60_000);
  assert.ok([context, context.actor, context.trigger].every(Object.isFrozen));
  assert.throws(() => { context.runId = "x"; }, TypeError);
  const { signal, ...data } = context;
  assert.ok(signal instanceof AbortSignal);
  runtime.contextDataSchema.parse(data);
});

test("cancels the run of a test", (t) => {
  const first = testHost(t);
  first.cancel();
  assert.equal(first.signal.aborted, true);
  assert.deepEqual([first.signal.reason.name, first.signal.reason.code], ["HostError", "CANCELLED"]);
  const second = testHost(t);
  assert.equal(second.signal.aborted, false);
  const reason = new Error("mine");
  second.cancel(reason);
  assert.equal(second.context().signal.reason, reason);
});

test("uninstalls only while it is the active host", () => {
  const first = installTestHost({ agent: () => "first" });
  const second = installTestHost({ agent: () => "second" });
  first.uninstall();
  assert.notEqual(runtime.peekHost(), undefined);
  second.uninstall();
  assert.equal(runtime.peekHost(), undefined);
});

test("takes the place of a connected host", async (t) => {
  const host = await startHost(t);
  const connected = await runtime.connectHost({ sockPath: host.path });
  t.after(() => connected.close());
  testHost(t, { agent: () => "stub" });
  assert.equal(await sdk.agent("x"), "stub");
  assert.equal(host.frames.length, 0);
});
