import assert from "node:assert/strict";
import { test } from "node:test";
import { HostClient, HostError, connectHost, getHost, peekHost, resetHost } from "../runtime.mjs";
import { agent, artifacts, auth, computer, humanInput, phase, secrets, shell, sleep, usage, workflows } from "../index.mjs";
import { clientToHostNotifications, clientToHostRequests, rpcFrameSchema } from "../runtime.mjs";
import { CONTEXT, failed, folder, ok, startHost } from "./support.mjs";

const REF = { id: "a1", name: "n", url: "https://example.com/n" };
const SPEND = { spent: 0, cap: null, remaining: null };
const USAGE = { usd: { spent: 0.5, cap: 2, remaining: 1.5 }, tokens: SPEND, compute_seconds: SPEND };

async function client(t, answers) {
  const host = await startHost(t, answers);
  const connection = await connectHost({ sockPath: host.path });
  t.after(() => {
    connection.close();
    resetHost();
  });
  return { host, client: connection };
}

test("writes the session of the reference byte for byte", async (t) => {
  const answers = {
    bootstrap: { input: { x: 1 }, input_schema: null, context: CONTEXT },
    "secrets.get": { value: "S" },
    agent: (params, frame, connection) => {
      connection.send('{"jsonrpc":"2.0","id":"inv-1","method":"tool_invoke","params":{"call_id":"3","tool":"t","input":{"q":1}}}');
    },
  };
  const { host, client: sdk } = await client(t, answers);
  const bootstrap = await sdk.bootstrap();
  assert.deepEqual(bootstrap.input, { x: 1 });
  phase("p1");
  assert.equal(await secrets.get("A"), "S");
  const tools = [{ name: "t", description: "d", inputSchema: {}, execute: (input) => ({ got: input }) }];
  const answer = agent("hi", { tools });
  await host.frame((frame) => frame.id === "inv-1");
  host.connections[0].send(ok(3, { output: "done" }));
  assert.equal(await answer, "done");
  await sdk.reportReturn({ big: 10n });
  assert.deepEqual(host.frames, [
    { jsonrpc: "2.0", id: 1, method: "bootstrap", params: {} },
    { jsonrpc: "2.0", method: "phase", params: { name: "p1" } },
    { jsonrpc: "2.0", id: 2, method: "secrets.get", params: { name: "A" } },
    {
      jsonrpc: "2.0",
      id: 3,
      method: "agent",
      params: { prompt: "hi", opts: { tools: [{ name: "t", description: "d", input_schema: {} }] } },
    },
    { jsonrpc: "2.0", id: "inv-1", result: { output: { got: { q: 1 } } } },
    { jsonrpc: "2.0", id: 4, method: "report_return", params: { value: { big: "10" } } },
  ]);
});

test("sends and reads every capability exactly as the schemas say", async (t) => {
  const answers = {
    agent: { output: { score: 3 } },
    "workflows.call": { output: "2024-01-01T00:00:00Z", output_schema: { type: "string", format: "date-time" } },
    "workflows.run": { runId: "r1" },
    "workflows.schedule": { scheduleId: "s1" },
    sleep: {},
    humanInput: { result: { value: "yes", isOther: false } },
    "secrets.get": { value: "S" },
    "artifacts.write": { ref: REF },
    "computer.openBrowser": { sessionId: "b1" },
    "computer.browser.navigate": {},
    "computer.browser.url": { url: "u" },
    "computer.browser.title": { title: "t" },
    "computer.browser.screenshot": { ref: REF },
    "computer.browser.console": { entries: [{ level: "log", text: "x", timestamp: 5 }] },
    "computer.browser.network": { entries: [{ method: "GET", url: "u", timestamp: 5 }] },
    "computer.browser.eval": { value: null },
    "computer.browser.close": {},
    "computer.openDesktop": { sessionId: "d1" },
    "computer.desktop.screenshot": { ref: REF },
    "computer.desktop.close": {},
    shell: { exitCode: 1, stdout: "o", stderr: "e" },
    "auth.idToken": { token: "id" },
    "auth.apiToken": { token: "api" },
    "usage.get": USAGE,
  };
  const { host, client: sdk } = await client(t, answers);
  await sdk.bootstrap();
  const schema = { type: "object" };
  assert.deepEqual(
    await agent("rate", {
      schema,
      name: "rater",
      model: undefined,
      reasoning: { effort: "low" },
      builtins: null,
      maxIterations: Number.NaN,
      session: { id: "b1" },
      attachments: [{ mimeType: "text/plain", data: new Uint8Array([104, 105]) }],
    }),
    { score: 3 },
  );
  assert.deepEqual(await workflows.call("child", { at: new Date(0) }, { idempotencyKey: "k" }), new Date("2024-01-01T00:00:00Z"));
  assert.equal(await workflows.run("child"), "r1");
  assert.equal(await workflows.schedule("child", 1n, { at: new Date(0), timezone: undefined }), "s1");
  assert.equal(await sleep("2s"), undefined);
  assert.deepEqual(await humanInput({ prompt: "ok?", input: { kind: "choice", options: ["yes"] }, timeout: "5m" }), { value: "yes", isOther: false });
  assert.equal(await secrets.get("A"), "S");
  assert.deepEqual(await artifacts.write("n", "text/plain", "hi", { a: 1 }), REF);
  assert.deepEqual(await artifacts.write("n", "application/octet-stream", new Uint8Array([0, 255])), REF);
  const browser = await computer.openBrowser({ startUrl: "u" });
  assert.equal(await browser.navigate("u"), undefined);
  assert.equal(await browser.url(), "u");
  assert.equal(await browser.title(), "t");
  assert.deepEqual(await browser.screenshot({ fullPage: true }), REF);
  assert.equal((await browser.console({ since: 5 })).length, 1);
  assert.equal((await browser.network()).length, 1);
  assert.equal(await browser.eval("1"), null);
  assert.equal(await browser.close(), undefined);
  const desktop = await computer.openDesktop();
  assert.deepEqual([browser.id, desktop.id], ["b1", "d1"]);
  assert.deepEqual(await desktop.screenshot(), REF);
  assert.equal(await desktop.close(), undefined);
  assert.deepEqual(await shell("ls", { cwd: "x" }), { exitCode: 1, stdout: "o", stderr: "e" });
  assert.equal(await auth.idToken("aud"), "id");
  assert.equal(await auth.apiToken(), "api");
  assert.deepEqual(await usage.get(), USAGE);
  phase("p", { id: "one" });
  await sdk.reportReturn(undefined);

  for (const frame of host.frames) {
    rpcFrameSchema.parse(frame);
    const method = frame.id === undefined ? clientToHostNotifications[frame.method] : clientToHostRequests[frame.method];
    method.params.parse(frame.params);
    if (answers[frame.method] !== undefined) method.result.parse(answers[frame.method]);
  }
  assert.deepEqual(Object.keys(clientToHostRequests).sort(), [...new Set(host.frames.filter((frame) => frame.id).map((frame) => frame.method))].sort());
  assert.deepEqual(host.calls("agent")[0].opts, {
    schema,
    name: "rater",
    reasoning: { effort: "low" },
    sessionId: "b1",
    attachments: [{ mimeType: "text/plain", data: "aGk=" }],
  });
  assert.deepEqual(host.calls("workflows.call")[0], { slug: "child", input: { at: "1970-01-01T00:00:00.000Z" }, opts: { idempotencyKey: "k" } });
  assert.deepEqual(host.calls("workflows.run")[0], { slug: "child", input: null });
  assert.deepEqual(host.calls("workflows.schedule")[0], { slug: "child", input: "1", opts: { at: "1970-01-01T00:00:00.000Z" } });
  assert.deepEqual(host.calls("sleep")[0], { arg: { durationMs: 2000 } });
  assert.deepEqual(host.calls("artifacts.write"), [
    { name: "n", contentType: "text/plain", body: { encoding: "utf8", data: "hi" }, metadata: { a: 1 } },
    { name: "n", contentType: "application/octet-stream", body: { encoding: "base64", data: "AP8=" } },
  ]);
  assert.deepEqual(host.calls("report_return")[0], { value: null });
});

const malformed = [
  ["an error with an integer code", (id) => `{"jsonrpc":"2.0","id":${id},"error":{"code":-32600,"message":"old style"}}`, /code is not text/],
  ["an error without a message", (id) => `{"jsonrpc":"2.0","id":${id},"error":{"code":"X"}}`, /has no message/],
  ["an error that is text", (id) => `{"jsonrpc":"2.0","id":${id},"error":"no"}`, /not an object/],
  ["a frame without jsonrpc", (id) => `{"id":${id},"result":{"value":"S"}}`, /JSON-RPC 2\.0/],
  ["both a result and an error", (id) => `{"jsonrpc":"2.0","id":${id},"result":{"value":"S"},"error":{"code":"X","message":"y"}}`, /both/],
  ["neither a result nor an error", (id) => `{"jsonrpc":"2.0","id":${id}}`, /neither/],
  ["a null result", (id) => `{"jsonrpc":"2.0","id":${id},"result":null}`, /not an object/],
  ["a result without its key", (id) => `{"jsonrpc":"2.0","id":${id},"result":{}}`, /"value" is missing/],
  ["a result of the wrong type", (id) => `{"jsonrpc":"2.0","id":${id},"result":{"value":5}}`, /wrong shape/],
  ["a failure without an id", () => '{"jsonrpc":"2.0","id":null,"error":{"code":"PROTOCOL_ERROR","message":"unreadable"}}', /unreadable/],
];

for (const [name, line, message] of malformed) {
  test(`rejects instead of hanging on ${name}`, async (t) => {
    const { client: sdk } = await client(t, { "secrets.get": (params, frame) => line(frame.id) });
    await assert.rejects(sdk.getSecret("A"), { name: "HostError", code: "PROTOCOL_ERROR", message });
  });
}

test("accepts an id that comes back as text and keys that are new", async (t) => {
  const { client: sdk } = await client(t, {
    "secrets.get": (params, frame) => `{"jsonrpc":"2.0","id":"${frame.id}","result":{"value":"S","version":2},"trace":"x"}`,
    bootstrap: { input: null, input_schema: null, context: { ...CONTEXT, region: "x" }, features: ["a"] },
  });
  assert.equal(await sdk.getSecret("A"), "S");
  assert.equal((await sdk.bootstrap()).context.runId, CONTEXT.runId);
});

test("ignores garbage, unknown ids and unknown notifications", async (t) => {
  const { client: sdk, host } = await client(t, {
    "secrets.get": (params, frame, connection) => {
      for (const line of ["", "not json", "[1,2]", "5", "null", ok(999, { value: "wrong" }), '{"jsonrpc":"2.0","method":"news","params":{}}']) {
        connection.send(line);
      }
      connection.socket.write(`  ${ok(frame.id, { value: "S" })}\r\n`);
    },
  });
  assert.equal(await sdk.getSecret("A"), "S");
  assert.equal(host.frames.length, 1, "nothing is said about any of it");
});

test("reads frames in whatever pieces they arrive", async (t) => {
  const text = "é€𝄞".repeat(50);
  const { client: sdk } = await client(t, {
    "secrets.get": async (params, frame, { socket }) => {
      const bytes = Buffer.from(`\n\n${ok(frame.id, { value: text })}\n`);
      for (const byte of bytes) await new Promise((sent) => socket.write(Buffer.from([byte]), sent));
    },
  });
  assert.equal(await sdk.getSecret("A"), text);
});

test("reads answers of many megabytes and sends some", async (t) => {
  const big = "x".repeat(24 * 1024 * 1024);
  const { client: sdk, host } = await client(t, { shell: { exitCode: 0, stdout: big, stderr: "" }, "artifacts.write": { ref: REF } });
  assert.equal((await sdk.shell("yes")).stdout.length, big.length);
  const bytes = new Uint8Array(8 * 1024 * 1024).fill(7);
  await sdk.writeArtifact("n", "x/y", bytes);
  assert.deepEqual(Buffer.from(host.calls("artifacts.write")[0].body.data, "base64").equals(Buffer.from(bytes)), true);
});

test("answers out of order reach their own callers", async (t) => {
  const held = [];
  const { client: sdk, host } = await client(t, {
    sleep: (params, frame) => void held.push(frame.id),
    "secrets.get": (params) => ({ value: params.name }),
  });
  const slept = sdk.sleep(60_000).then(() => "slept");
  assert.equal(await sdk.getSecret("A"), "A");
  assert.equal(await Promise.race([slept, sdk.getSecret("B")]), "B");
  host.connections[0].send(ok(held[0], {}));
  assert.equal(await slept, "slept");
});

test("gives the code, message, data and hint of a failure", async (t) => {
  const { client: sdk } = await client(t, {
    "secrets.get": (params, frame) => failed(frame.id, "FORBIDDEN", "not yours", { hint: "declare it", detail: { name: "A" } }),
  });
  await assert.rejects(sdk.getSecret("A"), (error) => {
    assert.ok(error instanceof HostError);
    assert.deepEqual([error.code, error.message, error.hint, error.data.detail], ["FORBIDDEN", "not yours", "declare it", { name: "A" }]);
    return true;
  });
});

test("rejects pending and later calls when the host goes", async (t) => {
  const { client: sdk, host } = await client(t, { sleep: () => undefined });
  const pending = sdk.sleep(1);
  await host.frame((frame) => frame.method === "sleep");
  host.connections[0].socket.destroy();
  await assert.rejects(pending, { code: "CONNECTION_CLOSED" });
  await assert.rejects(sdk.getSecret("A"), { code: "CONNECTION_CLOSED" });
  assert.doesNotThrow(() => sdk.phase("late"));
});

test("rejects everything after it was closed", async (t) => {
  const { client: sdk } = await client(t, { sleep: () => undefined });
  const pending = sdk.sleep(1);
  sdk.close();
  await assert.rejects(pending, { code: "CONNECTION_CLOSED" });
  await assert.rejects(sdk.usage(), { code: "CONNECTION_CLOSED" });
});

test("routes tools of concurrent agents to their own handlers", async (t) => {
  const ids = [];
  const { client: sdk, host } = await client(t, { agent: (params, frame) => void ids.push(frame.id) });
  const tool = (answer) => ({ name: "same", description: "", inputSchema: {}, execute: () => answer });
  const calls = [sdk.agent("a", { tools: [tool("first")] }), sdk.agent("b", { tools: [tool("second")] })];
  await host.frame((frame) => frame.method === "agent" && frame.id === 2);
  const [{ send }] = host.connections;
  const invoke = (id, call) => send(JSON.stringify({ jsonrpc: "2.0", id, method: "tool_invoke", params: { call_id: String(call), tool: "same", input: {} } }));
  invoke(71, ids[1]);
  invoke("72", ids[0]);
  assert.deepEqual((await host.frame((frame) => frame.id === 71)).result, { output: "second" });
  assert.deepEqual((await host.frame((frame) => frame.id === "72")).result, { output: "first" });
  send(ok(ids[0], { output: 1 }));
  await calls[0];
  invoke(73, ids[0]);
  assert.equal((await host.frame((frame) => frame.id === 73)).error.code, "UNKNOWN_TOOL", "handlers end with their agent");
  send(ok(ids[1], { output: 2 }));
  await calls[1];
});

test("lets overlapping calls of one tool finish in any order", async (t) => {
  const release = {};
  const { client: sdk, host } = await client(t, { agent: () => undefined });
  const execute = ({ name }) => new Promise((resolve) => (release[name] = resolve));
  const answer = sdk.agent("a", { tools: [{ name: "wait", description: "", inputSchema: {}, execute }] });
  await host.frame((frame) => frame.method === "agent");
  const [{ send }] = host.connections;
  for (const name of ["one", "two"]) {
    send(JSON.stringify({ jsonrpc: "2.0", id: name, method: "tool_invoke", params: { call_id: "1", tool: "wait", input: { name } } }));
  }
  while (release.two === undefined) await new Promise(setImmediate);
  release.two("second");
  assert.deepEqual((await host.frame((frame) => frame.id === "two")).result, { output: "second" });
  assert.equal(host.frames.some((frame) => frame.id === "one"), false);
  release.one(new Date(0));
  assert.deepEqual((await host.frame((frame) => frame.id === "one")).result, { output: "1970-01-01T00:00:00.000Z" });
  send(ok(1, { output: "" }));
  await answer;
});

test("tells the host how a tool call failed", async (t) => {
  const { client: sdk, host } = await client(t, { agent: () => undefined });
  const cyclic = {};
  cyclic.self = cyclic;
  const tool = (name, execute, more) => ({ name, description: "", inputSchema: {}, execute, ...more });
  const answer = sdk.agent("a", {
    tools: [
      tool("throws", () => { throw new Error("sync"); }),
      tool("rejects", async () => { throw new HostError("CANCELLED", "not fatal here"); }),
      tool("text", () => { throw "just text"; }),
      tool("cyclic", () => cyclic),
      tool("nothing", () => undefined),
      tool("slow", (input, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))), { timeoutMs: 5 }),
    ],
  });
  await host.frame((frame) => frame.method === "agent");
  const [{ send }] = host.connections;
  const ask = async (id, params, method = "tool_invoke") => {
    send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    const { result, error } = await host.frame((frame) => frame.id === id);
    return error ?? result;
  };
  const call = (tool) => ask(tool, { call_id: "1", tool, input: null });
  assert.deepEqual(await call("throws"), { code: "TOOL_ERROR", message: "sync" });
  assert.deepEqual(await call("rejects"), { code: "TOOL_ERROR", message: "not fatal here" });
  assert.deepEqual(await call("text"), { code: "TOOL_ERROR", message: "just text" });
  assert.match((await call("cyclic")).message, /cycle/);
  assert.deepEqual(await call("nothing"), { output: null });
  assert.deepEqual(await call("slow"), { code: "TOOL_ERROR", message: "the tool slow did not answer within 5 ms" });
  assert.equal((await call("missing")).code, "UNKNOWN_TOOL");
  assert.equal((await ask("p1", { call_id: "1", tool: "throws" })).code, "INVALID_PARAMS");
  assert.equal((await ask("p2", undefined)).code, "INVALID_PARAMS");
  assert.equal((await ask("p3", {}, "program.stop")).code, "METHOD_NOT_FOUND");
  send(ok(1, { output: "" }));
  await answer;
});

test("aborts a tool that the host no longer waits for and no other", async (t) => {
  const { client: sdk, host } = await client(t, { agent: () => undefined });
  const waits = (name) => ({
    name,
    description: "",
    inputSchema: {},
    execute: (input, { signal }) =>
      new Promise((resolve, reject) => {
        if (input === "finish") resolve("done");
        signal.addEventListener("abort", () => reject(signal.reason));
      }),
  });
  const answer = sdk.agent("a", { tools: [waits("one")] });
  await host.frame((frame) => frame.method === "agent");
  const [{ send }] = host.connections;
  const invoke = (id, input) =>
    send(JSON.stringify({ jsonrpc: "2.0", id, method: "tool_invoke", params: { call_id: "1", tool: "one", input } }));
  invoke(7, "wait");
  invoke(8, "wait");
  send(JSON.stringify({ jsonrpc: "2.0", method: "tool_cancel", params: { id: 7 } }));
  for (const params of [{ id: 99 }, {}, null, undefined]) {
    send(JSON.stringify({ jsonrpc: "2.0", method: "tool_cancel", params }));
  }
  const { error } = await host.frame((frame) => frame.id === 7);
  assert.equal(error.code, "TOOL_ERROR");
  assert.match(error.message, /no longer waits/);
  invoke(9, "finish");
  assert.deepEqual((await host.frame((frame) => frame.id === 9)).result, { output: "done" });
  assert.equal(host.frames.some((frame) => frame.id === 8), false, "the other one still runs");
  send(ok(1, { output: "" }));
  await answer;
});

test("aborts a running tool when its agent has ended", async (t) => {
  const { client: sdk, host } = await client(t, { agent: () => undefined });
  let given;
  const started = new Promise((resolve) => {
    given = (input, { signal }) => {
      resolve(signal);
      return new Promise(() => {});
    };
  });
  const answer = sdk.agent("a", { tools: [{ name: "hang", description: "", inputSchema: {}, execute: given }] });
  await host.frame((frame) => frame.method === "agent");
  const [{ send }] = host.connections;
  send(JSON.stringify({ jsonrpc: "2.0", id: 9, method: "tool_invoke", params: { call_id: "1", tool: "hang", input: null } }));
  const signal = await started;
  assert.equal(signal.aborted, false);
  send(failed(1, "PROVIDER_ERROR", "gone"));
  await assert.rejects(answer, { code: "PROVIDER_ERROR" });
  assert.equal(signal.aborted, true);
});

test("keeps the receiver of a tool that is a method", async (t) => {
  const { client: sdk, host } = await client(t, { agent: () => undefined });
  const tool = { name: "count", description: "", inputSchema: {}, total: 0, execute({ by }) { return (this.total += by); } };
  const answer = sdk.agent("a", { tools: [tool] });
  await host.frame((frame) => frame.method === "agent");
  const [{ send }] = host.connections;
  send(JSON.stringify({ jsonrpc: "2.0", id: 9, method: "tool_invoke", params: { call_id: "1", tool: "count", input: { by: 2 } } }));
  assert.deepEqual((await host.frame((frame) => frame.id === 9)).result, { output: 2 });
  send(ok(1, { output: "" }));
  await answer;
});

test("aborts the signal on cancel with and without a reason", async (t) => {
  for (const [params, message] of [['"params":{"reason":"enough"}', "enough"], ['"params":{}', "the run was cancelled"], ["", "the run was cancelled"]]) {
    const { client: sdk, host } = await client(t, { sleep: () => undefined });
    const { signal } = sdk;
    const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
    const pending = sdk.sleep(1);
    await host.frame((frame) => frame.method === "sleep");
    host.connections[0].send(`{"jsonrpc":"2.0","method":"cancel"${params && ","}${params}}`);
    await aborted;
    host.connections[0].send('{"jsonrpc":"2.0","method":"cancel","params":{"reason":"again"}}');
    assert.deepEqual([signal.reason.name, signal.reason.code, signal.reason.message], ["HostError", "CANCELLED", message]);
    host.connections[0].send(failed(1, "CANCELLED", "the run was cancelled"));
    await assert.rejects(pending, { code: "CANCELLED" }, "the call itself is ended by the host");
  }
});

test("has an aborted signal when the cancel came before anyone looked", async (t) => {
  const { client: sdk, host } = await client(t, { "secrets.get": { value: "S" } });
  host.connections[0].send('{"jsonrpc":"2.0","method":"cancel"}');
  await sdk.getSecret("A");
  assert.equal(sdk.signal.aborted, true);
  assert.equal(sdk.signal.reason.code, "CANCELLED");
});

const options = [
  ["a built-in's name", { tools: ["bash"] }, /tools\[0\] is the name "bash"/, /builtins: \["bash"\]/],
  ["an unknown name", { tools: ["frobnicate"] }, /tools\[0\]/, /execute: async/],
  ["a tool without a handler", { tools: [{ name: "t", description: "d", inputSchema: {} }] }, /execute: must be a function/, /execute: async/],
  ["a tool without anything", { tools: [{}] }, /name: .*description: .*inputSchema: .*execute: /, /a tool is/],
  ["tools that are no list", { tools: {} }, /must be an array/, /a tool is/],
  ["two tools of one name", { tools: [1, 2].map(() => ({ name: "t", description: "", inputSchema: {}, execute: () => 1 })) }, /same name/, undefined],
  ["an unknown option", { temperature: 1 }, /unknown option "temperature"/, /known options: name, model/],
  ["options that are text", "fast", /not an object/, /model/],
  ["a session that is none", { session: {} }, /not an open session/, /openBrowser/],
];

for (const [name, bad, message, hint] of options) {
  test(`explains agent options before they are sent: ${name}`, async (t) => {
    const { host } = await client(t);
    await assert.rejects(agent("x", bad), (error) => {
      assert.equal(error.code, "INVALID_PARAMS");
      assert.match(error.message, message);
      if (hint !== undefined) assert.match(error.hint, hint);
      return true;
    });
    assert.equal(host.frames.length, 0);
  });
}

test("refuses bad arguments before the wire", async (t) => {
  const { host } = await client(t);
  await assert.rejects(agent(5), TypeError);
  await assert.rejects(auth.idToken(" "), TypeError);
  await assert.rejects(artifacts.write("n", "x/y", { a: 1 }), /JSON\.stringify/);
  await assert.rejects(workflows.schedule("s", null, {}), /exactly one of cron, rate and at; none/);
  await assert.rejects(workflows.schedule("s", null, { cron: "x", rate: "y" }), /cron and rate were given/);
  await assert.rejects(humanInput({ prompt: "?", input: { kind: "text" }, timeout: "5 minutes" }), { code: "INVALID_PARAMS" });
  await assert.rejects(sleep("soon"), TypeError);
  const cyclic = {};
  cyclic.self = cyclic;
  await assert.rejects(workflows.call("s", cyclic), { code: "VALIDATION_FAILED" });
  assert.equal(host.frames.length, 0);
});

test("connects once for callers that come together", async (t) => {
  const host = await startHost(t, { "secrets.get": (params) => ({ value: params.name }) });
  process.env.BOARDWALK_HOST_SOCK = host.path;
  t.after(() => {
    peekHost()?.close();
    resetHost();
    delete process.env.BOARDWALK_HOST_SOCK;
  });
  resetHost();
  assert.equal(peekHost(), undefined);
  phase("early");
  assert.deepEqual(await Promise.all([secrets.get("A"), secrets.get("B")]), ["A", "B"]);
  assert.equal(host.connections.length, 1);
  assert.deepEqual(host.frames.map((frame) => frame.method), ["phase", "secrets.get", "secrets.get"]);
  assert.equal(await getHost(), peekHost());
});

test("says what is missing when there is no host, and forgets the attempt", async (t) => {
  resetHost();
  delete process.env.BOARDWALK_HOST_SOCK;
  await assert.rejects(secrets.get("A"), /BOARDWALK_HOST_SOCK is not set.*installTestHost/s);
  process.env.BOARDWALK_HOST_SOCK = "";
  await assert.rejects(connectHost(), /BOARDWALK_HOST_SOCK is not set/);
  const host = await startHost(t, { "secrets.get": { value: "S" } });
  process.env.BOARDWALK_HOST_SOCK = host.path;
  t.after(() => {
    peekHost()?.close();
    resetHost();
    delete process.env.BOARDWALK_HOST_SOCK;
  });
  assert.equal(await secrets.get("A"), "S");
});

test("rejects a connection to nobody", async (t) => {
  await assert.rejects(HostClient.connect(`${folder(t)}/none.sock`), { code: "CONNECTION_CLOSED", message: /ENOENT/ });
});

test("never throws from a phase", async (t) => {
  resetHost();
  delete process.env.BOARDWALK_HOST_SOCK;
  const warned = [];
  t.mock.method(console, "warn", (text) => warned.push(text));
  phase("lost");
  phase("");
  phase(undefined);
  while (warned.length < 3) await new Promise(setImmediate);
  assert.match(warned.join("\n"), /"lost" is left out/);
});

test("refuses a frame that no host would read", async (t) => {
  const { client: sdk, host } = await client(t, { "secrets.get": { value: "S" } });
  const parts = Array.from({ length: 13 }, () => "x".repeat(16 * 1024 * 1024));
  await assert.rejects(sdk.runWorkflow("s", parts), { code: "INVALID_PARAMS", message: /209 MiB/ });
  assert.equal(await sdk.getSecret("A"), "S", "the connection goes on");
  assert.equal(host.frames.length, 1);
});
