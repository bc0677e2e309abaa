import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { CONTEXT, SDK, runProgram } from "./support.mjs";

const EXAMPLES = join(SDK, "../../examples");
const ts = createRequire(import.meta.url)("./tools/node_modules/typescript");
const NONE = { spent: 0, cap: null, remaining: null };

const read = (path) => readFileSync(join(EXAMPLES, path), "utf8");

/** The program of an example as plain JavaScript, with the files that ship beside it. */
function built(name, shipped = []) {
  const options = { compilerOptions: { target: "es2022", module: "esnext" } };
  const files = { "index.mjs": ts.transpileModule(read(`${name}/src/index.ts`), options).outputText };
  for (const path of shipped) files[path] = read(`${name}/${path}`);
  return files;
}

/** What the scripted model answers to a conversation that holds this text. */
function scripted(name, text, last) {
  const { turns } = JSON.parse(read(`${name}/model.script.json`));
  const fits = ({ match }) => text.includes(match.contains) && (match.last === undefined || match.last === last);
  const turn = turns.find(fits);
  assert.ok(turn, `no turn of ${name} answers: ${text}`);
  return turn;
}

const started = (input) => ({ input, input_schema: null, context: CONTEXT });
const output = (host) => host.calls("report_return")[0].value;

test("the hello example greets by name and hour", async (t) => {
  const { host, stdout } = await runProgram(t, built("hello"), { answers: { bootstrap: started({ name: " Ada " }) } });
  assert.deepEqual(output(host), { greeting: "Good evening, Ada!", attempt: 1 });
  assert.equal(stdout, "greeting Ada in the evening (UTC)\n");
  assert.deepEqual(host.calls("phase"), [{ name: "Greet" }]);
  const without = await runProgram(t, built("hello"));
  assert.match(output(without.host).greeting, /, world!$/);
});

test("the digest example reads its notes and makes one agent call", async (t) => {
  const notes = ["2025-03-03-platform.md", "2025-03-04-support.md", "2025-03-05-product.md"];
  const { host } = await runProgram(t, built("digest", notes.map((name) => `notes/${name}`)), {
    answers: {
      agent: ({ prompt }) => ({ output: scripted("digest", prompt).json }),
      "usage.get": { usd: NONE, tokens: { ...NONE, spent: 1234 }, compute_seconds: NONE },
    },
  });
  assert.equal(host.calls("agent").length, 1);
  const [{ prompt, opts }] = host.calls("agent");
  for (const name of notes) assert.ok(prompt.includes(`<note name="${name}">\n${read(`digest/notes/${name}`).trim()}`));
  assert.deepEqual(opts.schema.properties.items.items.properties.source.enum, notes);
  const digest = output(host);
  assert.deepEqual([digest.notes, digest.tokens, digest.items.length], [3, 1234, 4]);
  assert.ok(digest.items.every(({ source }) => notes.includes(source)));
});

test("the pipeline example sums up its children and names the one that failed", async (t) => {
  const children = [];
  const child = async ({ slug, input, opts }) => {
    assert.equal(slug, "rate-review");
    children.push(opts.idempotencyKey);
    const run = await runProgram(t, built("pipeline/child"), {
      answers: {
        bootstrap: started(input),
        agent: ({ prompt }) => ({ output: scripted("pipeline/child", prompt).json }),
      },
    });
    if (run.outcome.type === "returned") return { output: output(run.host), output_schema: null };
    assert.equal(run.outcome.error.code, "EMPTY_REVIEW");
    throw Object.assign(new Error(run.outcome.error.message), { code: "CHILD_FAILED" });
  };
  const { host, stderr } = await runProgram(t, built("pipeline/parent", ["reviews.json"]), { answers: { "workflows.call": child } });
  assert.deepEqual(output(host), {
    rated: 3,
    failed: ["r4"],
    moods: { good: 1, mixed: 1, bad: 1 },
    lines: ["r3: bad, broke twice", "r2: mixed, works, but signs out every day", "r1: good, quick set-up and friendly support"],
  });
  assert.deepEqual(children.sort(), ["rate-r1", "rate-r2", "rate-r3", "rate-r4"]);
  assert.match(stderr, /parallel: task 3 failed/);
  assert.equal(read("pipeline/parent/model.script.json"), read("pipeline/child/model.script.json"));
});

test("the triage example looks up, decides, signs and stores", async (t) => {
  const answers = {
    agent: async ({ prompt }, frame, connection) => {
      const [call] = scripted("triage", prompt, "user").toolCalls;
      connection.send(JSON.stringify({ jsonrpc: "2.0", id: "t1", method: "tool_invoke", params: { call_id: String(frame.id), tool: call.name, input: call.input } }));
      const { result } = await connection.host.frame((answer) => answer.id === "t1");
      return { output: scripted("triage", JSON.stringify(result.output), "tool").json };
    },
    "secrets.get": ({ name }) => ({ value: `value of ${name}` }),
    "artifacts.write": ({ name }) => ({ ref: { id: "a1", name, url: "https://example.com/a1" } }),
  };
  const { host, stdout, stderr } = await runProgram(t, built("triage", ["customers.json"]), { answers });
  const [{ body, contentType, metadata, name }] = host.calls("artifacts.write");
  const signature = createHmac("sha256", "value of TRIAGE_KEY").update(body.data).digest("hex");
  assert.deepEqual([name, contentType, metadata], ["triage-T-1042.json", "application/json", { signature }]);
  assert.deepEqual(output(host), {
    ticket: "T-1042",
    ...scripted("triage", "Lighthouse Clinic", "tool").json,
    signature,
    artifact: { id: "a1", name },
  });
  assert.doesNotMatch(stdout + stderr + JSON.stringify(host.calls("report_return")), /value of TRIAGE_KEY/);
});
