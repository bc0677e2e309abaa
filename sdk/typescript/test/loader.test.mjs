import assert from "node:assert/strict";
import { existsSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CONTEXT, folder, ok, program, runProgram, startHost, startLoader } from "./support.mjs";

const DATE = { type: "object", properties: { at: { type: "string", format: "date-time" } } };

test("runs a program to its return and exits", async (t) => {
  const { host, outcome, exit, stdout, stderr, cwd, loader } = await runProgram(
    t,
    `import { phase, secrets } from "@boardwalk-labs/workflow";
     import { HostError } from "@trestle/workflow";
     import { writeFileSync } from "node:fs";
     export default async function run(input, context) {
       phase("work");
       console.log("at", input.at instanceof Date, input.at.getTime());
       writeFileSync("made.txt", await secrets.get("A"));
       return { next: new Date(input.at.getTime() + 1), big: 10n, cwd: process.cwd(), frozen: Object.isFrozen(context),
         keys: Object.keys(context), one: HostError.name };
     }`,
    { answers: { bootstrap: { input: { at: "2024-01-01T00:00:00Z" }, input_schema: DATE, context: CONTEXT }, "secrets.get": { value: "S" } } },
  );
  assert.deepEqual(outcome, { type: "returned" });
  assert.deepEqual(exit, { code: 0, signal: null });
  assert.deepEqual(loader.messages, [{ type: "ready" }, { type: "returned" }]);
  assert.equal(stdout, "at true 1704067200000\n");
  assert.equal(stderr, "");
  assert.equal(readFileSync(join(cwd, "made.txt"), "utf8"), "S");
  assert.deepEqual(host.calls("report_return"), [
    {
      value: {
        next: "2024-01-01T00:00:00.001Z",
        big: "10",
        cwd: realpathSync(cwd),
        frozen: true,
        keys: [...Object.keys(CONTEXT), "signal"],
        one: "HostError",
      },
    },
  ]);
  assert.equal(host.connections.length, 1, "loader and program share one connection under both names of the SDK");
});

for (const [name, text, value] of [
  ["nothing", "export default function run() {}", null],
  ["a value without a promise", "export default () => 5", 5],
  ["its input", "export default (input) => input", { n: 7 }],
]) {
  test(`returns what a program gives: ${name}`, async (t) => {
    const { host, outcome } = await runProgram(t, text, { answers: { bootstrap: { input: { n: 7 }, input_schema: null, context: CONTEXT } } });
    assert.equal(outcome.type, "returned");
    assert.deepEqual(host.calls("report_return"), [{ value }]);
  });
}

/** phase, reason, code and message of every way to fail; also what the hint says. */
const FAILURES = [
  ["a throw", `export default async function run() {\n  throw new TypeError("boom");\n}`, "run", "throw", "PROGRAM_ERROR", /^boom$/, undefined],
  ["a throw with a code", `export default () => { throw Object.assign(new Error("no"), { code: "NOT_TODAY", hint: "try tomorrow" }) }`, "run", "throw", "NOT_TODAY", /^no$/, /^try tomorrow$/],
  ["a throw with a class as its code", `export default () => { throw Object.assign(new Error("no"), { code: "MyError" }) }`, "run", "throw", "PROGRAM_ERROR", /^no$/, undefined],
  ["a throw with data", `export default () => { throw Object.assign(new Error("no"), { data: { hint: "from data" } }) }`, "run", "throw", "PROGRAM_ERROR", /^no$/, /^from data$/],
  ["a throw with a cause", `export default () => { throw new TypeError("fetch failed", { cause: new Error("connect ECONNREFUSED") }) }`, "run", "throw", "PROGRAM_ERROR", /^fetch failed: connect ECONNREFUSED$/, undefined],
  ["thrown text", `export default () => { throw "just text" }`, "run", "throw", "PROGRAM_ERROR", /^the program threw just text$/, undefined],
  ["thrown undefined", `export default () => { throw undefined }`, "run", "throw", "PROGRAM_ERROR", /^the program threw undefined$/, undefined],
  ["a thrown object", `export default () => { throw { code: "ODD", message: "plain" } }`, "run", "throw", "ODD", /^plain$/, undefined],
  ["a thrown trap", `export default () => { throw new Proxy({}, { get() { throw 1 }, has() { throw 1 } }) }`, "run", "throw", "PROGRAM_ERROR", /cannot be shown/, undefined],
  ["a syntax error", `export default function run() {\n  const x = ;\n}`, "import", "syntax", "PROGRAM_ERROR", /^index\.mjs:2: Unexpected token ';'$/, undefined],
  ["a missing export", `import { nothing } from "@trestle/workflow";\nexport default () => nothing`, "import", "syntax", "PROGRAM_ERROR", /^index\.mjs:1: .*does not provide an export named 'nothing'$/, undefined],
  ["a missing package", `import "left-pad";\nexport default () => 1`, "import", "import", "ERR_MODULE_NOT_FOUND", /^Cannot find package 'left-pad' imported from index\.mjs$/, /package\.json/],
  ["a missing file", `import "./other.mjs";\nexport default () => 1`, "import", "import", "ERR_MODULE_NOT_FOUND", /^Cannot find module other\.mjs imported from index\.mjs$/, /package/],
  ["a throw at import", `throw new Error("too early");\nexport default () => 1`, "import", "import", "PROGRAM_ERROR", /^too early$/, /imported, before run\(\)/],
  ["a syntax error thrown at import", `JSON.parse("{");\nexport default () => 1`, "import", "import", "PROGRAM_ERROR", /JSON/, /imported, before run\(\)/],
  ["an import that never ends", `await new Promise(() => {});\nexport default () => 1`, "import", "stuck", "PROGRAM_ERROR", /import never finished/, /resolve/],
  ["no default export", `export const run = () => 1, other = 2`, "import", "export", "VALIDATION_FAILED", /has no default export \(it exports other, run\)/, /export default async function run\(input, context\)/],
  ["a default export that is no function", `export default { run() {} }`, "import", "export", "VALIDATION_FAILED", /of type object/, /export default async function/],
  ["an unhandled rejection", `export default async () => { Promise.reject(new Error("lost")); await new Promise((done) => setTimeout(done, 60_000)); }`, "run", "unhandled", "PROGRAM_ERROR", /^lost$/, /await it, or add \.catch/],
  ["an uncaught error", `export default () => new Promise(() => setTimeout(() => { throw new Error("later") }, 1))`, "run", "unhandled", "PROGRAM_ERROR", /^later$/, /outside of run/],
  ["an exit with a code", `export default () => { process.exit(3) }`, "run", "exit", "PROGRAM_ERROR", /exited without returning: it called process\.exit\(3\)/, /return a value/],
  ["an exit without a code", `export default () => { process.exit() }`, "run", "exit", "PROGRAM_ERROR", /process\.exit\(0\)/, /return a value/],
  ["an exit at import", `process.exit(0); export default () => 1`, "import", "exit", "PROGRAM_ERROR", /process\.exit\(0\)/, /return a value/],
  ["a promise that never settles", `export default () => new Promise(() => {})`, "run", "stuck", "PROGRAM_ERROR", /run\(\) never settled/, /resolve/],
  ["a cycle", `export default () => { const a = {}; a.b = { a }; return a }`, "run", "return", "VALIDATION_FAILED", /\$\.b\.a refers back to \$/, /back reference/],
];

for (const [name, text, phase, reason, code, message, hint] of FAILURES) {
  test(`reports ${name} as its own failure`, async (t) => {
    const { outcome, exit, host } = await runProgram(t, text);
    assert.equal(outcome.type, "failed");
    assert.deepEqual([outcome.phase, outcome.reason, outcome.error.code], [phase, reason, code], JSON.stringify(outcome));
    assert.match(outcome.error.message, message);
    if (hint === undefined) assert.equal("hint" in outcome.error, false, outcome.error.hint);
    else assert.match(outcome.error.hint, hint);
    assert.equal(exit.signal, null);
    assert.equal(host.calls("report_return").length, 0);
  });
}

test("names a missing default export behind a re-export", async (t) => {
  const { outcome } = await runProgram(t, { "index.mjs": 'export { default } from "./.trestle/app/src/index.mjs";', ".trestle/app/src/index.mjs": "export const run = 1;" });
  assert.deepEqual([outcome.reason, outcome.error.code], ["export", "VALIDATION_FAILED"]);
  assert.match(outcome.error.hint, /export default async function run/);
});

test("places a syntax error in an imported file", async (t) => {
  const { outcome } = await runProgram(t, { "index.mjs": 'import "./lib/a.mjs"; export default 1', "lib/a.mjs": "let fine = 1;\n\nlet x = ;\n", "lib/b.mjs": "export {}" });
  assert.match(outcome.error.message, /^lib\/a\.mjs:3: /);
});

test("ends a run once although it fails twice", async (t) => {
  const { loader } = await runProgram(t, 'export default () => { Promise.reject(new Error("one")); throw new Error("two") }');
  assert.equal(loader.messages.filter((message) => message.type === "failed").length, 1);
});

test("shows the author's lines through source maps", async (t) => {
  const files = {
    "index.mjs": 'export { default } from "./.trestle/app/src/index.mjs";',
    // Generated line 2 is line 11 of the source, column 3.
    ".trestle/app/src/index.mjs": 'export default async function run() {\nthrow new Error("mapped");\n}\n//# sourceMappingURL=index.mjs.map\n',
    ".trestle/app/src/index.mjs.map": JSON.stringify({ version: 3, sourceRoot: "../../../.bw-src/", sources: ["src/index.ts"], names: [], mappings: "AAAA;AAUE" }),
  };
  const { outcome, stderr } = await runProgram(t, files);
  assert.match(outcome.error.stack, /^Error: mapped\n {4}at (async )?run \(src\/index\.ts:11:3\)$/m);
  assert.match(stderr, /src\/index\.ts:11:3/);
  assert.doesNotMatch(stderr, /loader\.mjs|node:internal/);
});

test("maps the stacks that a program itself looks at", async (t) => {
  const map = Buffer.from(JSON.stringify({ version: 3, sources: ["../../../.bw-src/src/index.ts"], names: [], mappings: ";AAUE" })).toString("base64");
  const files = {
    "index.mjs": 'export { default } from "./.trestle/app/src/index.mjs";',
    ".trestle/app/src/index.mjs": `export default function run() {\nreturn new Error("x").stack;\n}\n//# sourceMappingURL=data:application/json;base64,${map}\n`,
  };
  const { host } = await runProgram(t, files);
  assert.match(host.calls("report_return")[0].value, /run \(src\/index\.ts:11:3\)/);
});

test("leaves stacks alone when a map is broken", async (t) => {
  const { outcome } = await runProgram(t, {
    "index.mjs": 'export default () => { throw new Error("x") }\n//# sourceMappingURL=gone.map\n',
  });
  assert.match(outcome.error.stack, /index\.mjs:1:30/);
});

test("prints causes and the errors of an aggregate", async (t) => {
  const { stderr } = await runProgram(
    t,
    `export default () => { throw new AggregateError([new Error("one"), new Error("two")], "all", { cause: new Error("root") }) }`,
  );
  assert.match(stderr, /AggregateError: all[^]*caused by: Error: root[^]*one of them: Error: one[^]*one of them: Error: two/);
});

test("cuts an error of many megabytes in its report only", async (t) => {
  const { outcome, stderr } = await runProgram(t, 'export default () => { throw new Error("x".repeat(5_000_000)) }');
  assert.match(outcome.error.message, /^x{32768}… \(cut\)$/);
  assert.ok(JSON.stringify(outcome).length < 100_000);
  assert.ok(stderr.length > 5_000_000);
});

test("writes out everything that was printed before it exits", async (t) => {
  const big = 3 * 1024 * 1024;
  const returned = await runProgram(t, `export default () => { process.stdout.write("x".repeat(${big})); console.error("y".repeat(${big})) }`);
  assert.equal(returned.stdout.length, big);
  assert.equal(returned.stderr.length, big + 1);
  const thrown = await runProgram(t, `export default () => { console.log("x".repeat(${big})); throw new Error("after") }`);
  assert.equal(thrown.stdout.length, big + 1);
  assert.match(thrown.stderr, /after/);
});

test("reports the host's refusal of a return value with a hint", async (t) => {
  const refuse = () => {
    throw Object.assign(new Error("(root) is not of type string"), { code: "VALIDATION_FAILED", data: { detail: { errors: [] } } });
  };
  const { outcome, exit } = await runProgram(t, "export default () => 5", { answers: { report_return: refuse } });
  assert.deepEqual([outcome.phase, outcome.reason, outcome.error.code], ["run", "return", "VALIDATION_FAILED"]);
  assert.match(outcome.error.hint, /declared type/);
  assert.equal(exit.code, 1);
});

test("reports a bootstrap that the host refuses", async (t) => {
  const refuse = () => {
    throw Object.assign(new Error("not yours"), { code: "FORBIDDEN" });
  };
  const { outcome } = await runProgram(t, "export default () => 5", { answers: { bootstrap: refuse } });
  assert.deepEqual([outcome.reason, outcome.error.code], ["host", "FORBIDDEN"]);
});

test("returns although timers and handles are left behind", async (t) => {
  const { outcome, exit } = await runProgram(
    t,
    `import { createServer } from "node:net";
     export default () => { setInterval(() => {}, 1000); createServer().listen(0); return 1 }`,
  );
  assert.equal(outcome.type, "returned");
  assert.equal(exit.code, 0);
});

test("keeps a return value although the program exits right after it", async (t) => {
  // The large one fills the socket, so that it is still on its way out when the program exits.
  for (const size of [4, 16 * 1024 * 1024]) {
    const { host, exit } = await runProgram(
      t,
      `export default () => {
         process.nextTick(() => process.exit(9));
         setImmediate(() => process.exit(9));
         return "x".repeat(${size});
       }`,
    );
    await host.frame((frame) => frame.method === "report_return");
    assert.equal(host.calls("report_return")[0].value.length, size);
    assert.equal(exit.signal, null);
  }
});

test("ignores errors that come after the return", async (t) => {
  const held = [];
  const host = await startHost(t, { report_return: (params, frame) => void held.push(frame.id) });
  const root = program(t, `export default () => { setImmediate(() => { throw new Error("late") }); return "kept" }`);
  const loader = startLoader(t);
  loader.assign({ sock: host.path, entry: join(root, "index.mjs"), cwd: root, env: {} });
  await host.frame((frame) => frame.method === "report_return");
  await loader.until(() => loader.stderr.includes("after run() returned: Error: late"));
  host.connections[0].send(ok(held[0], {}));
  assert.deepEqual(await loader.message("returned"), { type: "returned" });
  assert.equal((await loader.end()).code, 0);
});

test("leaves uncaught errors to a program that handles them", async (t) => {
  const { host } = await runProgram(
    t,
    `export default () => new Promise((resolve) => {
       process.on("uncaughtException", (error) => resolve("handled " + error.message));
       setTimeout(() => { throw new Error("mine") }, 1);
     })`,
  );
  assert.deepEqual(host.calls("report_return"), [{ value: "handled mine" }]);
});

test("runs the exit handlers of a program", async (t) => {
  const { stdout, outcome } = await runProgram(t, `export default () => { process.on("exit", () => console.log("bye")); return 1 }`);
  assert.equal(outcome.type, "returned");
  assert.equal(stdout, "bye\n");
});

test("holds against a program that patches what the loader uses", async (t) => {
  const { outcome, host, stdout } = await runProgram(
    t,
    `import { sleep } from "@trestle/workflow";
     JSON.parse = JSON.stringify = () => { throw new Error("patched") };
     globalThis.setTimeout = globalThis.Promise.resolve = () => { throw new Error("patched") };
     console.log = console.error = console.warn = () => {};
     process.exit = () => {};
     process.removeAllListeners("exit");
     process.removeAllListeners("uncaughtException");
     process.stdout.write = () => true;
     export default async () => { await sleep(1); return { fine: [1] } }`,
    { answers: { sleep: {} } },
  );
  assert.deepEqual(outcome, { type: "returned" });
  assert.deepEqual(host.calls("report_return"), [{ value: { fine: [1] } }]);
  assert.equal(stdout, "");
});

test("reports an exit of a program that removed the handlers", async (t) => {
  const { outcome } = await runProgram(t, `export default () => { process.removeAllListeners("exit"); process.exit(4) }`);
  assert.deepEqual([outcome.reason, outcome.error.code], ["exit", "PROGRAM_ERROR"]);
});

test("waits for the cancellation that a program listens for", async (t) => {
  const host = await startHost(t);
  const root = program(
    t,
    `import { phase } from "@trestle/workflow";
     export default (input, { signal }) => new Promise((resolve) => {
       signal.addEventListener("abort", () => resolve(signal.reason.code));
       process.on("beforeExit", () => phase("idle"));
     })`,
  );
  const loader = startLoader(t);
  loader.assign({ sock: host.path, entry: join(root, "index.mjs"), cwd: root, env: {} });
  await host.frame((frame) => frame.method === "phase");
  assert.equal(loader.exit, undefined);
  host.connections[0].send('{"jsonrpc":"2.0","method":"cancel"}');
  await loader.end();
  assert.deepEqual(host.calls("report_return"), [{ value: "CANCELLED" }]);
});

test("does not wait for a cancellation that has been", async (t) => {
  const { outcome } = await runProgram(
    t,
    `import { sleep } from "@trestle/workflow";
     export default async (input, context) => {
       await sleep(1);
       await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
     }`,
    {
      answers: {
        sleep: (params, frame, { send }) => {
          send('{"jsonrpc":"2.0","method":"cancel"}');
          return {};
        },
      },
    },
  );
  assert.deepEqual([outcome.reason, outcome.error.code], ["stuck", "PROGRAM_ERROR"]);
});

test("ends soon when the host is gone", async (t) => {
  const host = await startHost(t, { sleep: () => undefined });
  const root = program(t, `import { sleep } from "@trestle/workflow";\nexport default async () => { setInterval(() => {}, 1000); await sleep(1e6).catch(() => {}); await new Promise(() => {}) }`);
  const loader = startLoader(t);
  loader.assign({ sock: host.path, entry: join(root, "index.mjs"), cwd: root, env: {} });
  await host.frame((frame) => frame.method === "sleep");
  host.connections[0].socket.destroy();
  assert.equal((await loader.end()).code, 1);
});

test("reports a socket that nobody listens on", async (t) => {
  const root = program(t, "export default () => 1");
  const loader = startLoader(t);
  loader.assign({ sock: join(root, "none.sock"), entry: join(root, "index.mjs"), cwd: root, env: {} });
  const { error, reason } = await loader.message("failed");
  assert.deepEqual([reason, error.code], ["host", "CONNECTION_CLOSED"]);
  assert.equal((await loader.end()).code, 1);
});

test("exits at once at the end of its channel", async (t) => {
  for (const args of [[], ["--warm"]]) {
    const loader = startLoader(t, { args });
    await loader.message("ready");
    loader.channel.end();
    assert.deepEqual(await loader.end(), { code: 0, signal: null });
    assert.deepEqual(loader.messages, [{ type: "ready" }]);
    assert.equal(loader.stdout + loader.stderr, "");
  }
});

test("gives the program its own environment, directory and arguments", async (t) => {
  const { host, root, cwd } = await runProgram(
    t,
    "export default () => ({ env: process.env, argv: process.argv.slice(1), execArgv: process.execArgv })",
    { assignment: { env: { HOME: "/home/x", ANSWER: "42", PATH: "/bin" } }, args: ["/nowhere.sock", "--warm"] },
  );
  const [{ value }] = host.calls("report_return");
  assert.deepEqual(value.env, { HOME: "/home/x", ANSWER: "42", PATH: "/bin", BOARDWALK_HOST_SOCK: host.path });
  assert.deepEqual(value.argv, [join(root, "index.mjs")]);
  assert.deepEqual(value.execArgv, []);
  assert.notEqual(cwd, root);
});

test("takes the socket from its arguments when the assignment has none", async (t) => {
  const host = await startHost(t);
  const root = program(t, "export default () => process.env.BOARDWALK_HOST_SOCK");
  const loader = startLoader(t, { args: [host.path, "--warm"] });
  loader.assign({ entry: join(root, "index.mjs"), cwd: root, env: {} });
  await loader.message("returned");
  assert.deepEqual(host.calls("report_return"), [{ value: host.path }]);
});

test("lets no child of the program inherit the channel or the connection", async (t) => {
  const { host } = await runProgram(
    t,
    `import { execFileSync, spawnSync } from "node:child_process";
     import { readdirSync, readlinkSync } from "node:fs";
     const link = (fd) => { try { return readlinkSync("/proc/self/fd/" + fd) } catch { return "" } };
     const own = readdirSync("/proc/self/fd").filter((fd) => fd > 2).map(link).filter((to) => to.startsWith("socket:"));
     const list = "ls -l /proc/self/fd";
     export default () => ({
       own,
       children: [
         execFileSync("/bin/sh", ["-c", list], { encoding: "utf8" }),
         spawnSync("/bin/ls", ["-l", "/proc/self/fd"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).stdout,
       ],
     })`,
    { args: ["--warm"] },
  );
  const [{ value }] = host.calls("report_return");
  assert.ok(value.own.length >= 2, "the channel and the connection");
  for (const shown of value.children) {
    for (const socket of value.own) assert.equal(shown.includes(socket), false, `${socket} in\n${shown}`);
  }
});

test("leaves nothing of the rehearsal in a waiting process", async (t) => {
  const loader = startLoader(t, { args: ["--warm"] });
  await loader.message("ready");
  const { pid } = loader.child;
  const sockets = readFileSync("/proc/net/unix", "utf8").split("\n").filter((line) => / @[0-9a-f]{8}-/.test(line));
  assert.deepEqual(sockets, []);
  const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").filter(Boolean).map((line) => line.split("=")[0]);
  assert.deepEqual(environment.sort(), ["LANG", "PATH"]);
  loader.channel.end();
  await loader.end();
});

test("runs the same after a rehearsal as without one", async (t) => {
  const text = `import { agent } from "@trestle/workflow";
    export default async (input) => { console.log("hello"); return [await agent("x", { tools: [{ name: "t", description: "", inputSchema: {}, execute: () => 1 }] }), input] }`;
  for (const args of [[], ["--warm"]]) {
    const { host, stdout, outcome } = await runProgram(t, text, { args, answers: { agent: { output: "a" }, bootstrap: { input: "in", input_schema: null, context: CONTEXT } } });
    assert.equal(outcome.type, "returned");
    assert.equal(stdout, "hello\n");
    assert.deepEqual(host.frames.map((frame) => frame.id), [1, 2, 3]);
    assert.deepEqual(host.calls("report_return"), [{ value: ["a", "in"] }]);
  }
});

test("reads an assignment of several megabytes in pieces", async (t) => {
  const host = await startHost(t);
  const root = program(t, "export default () => [process.env.BIG.length, process.env.TEXT]");
  const loader = startLoader(t);
  const line = Buffer.from(`${JSON.stringify({ sock: host.path, entry: join(root, "index.mjs"), cwd: root, env: { BIG: "x".repeat(3_000_000), TEXT: "é€𝄞" } })}\n`);
  for (let at = 0; at < line.length; at += 99_991) loader.channel.write(line.subarray(at, at + 99_991));
  await loader.message("returned");
  assert.deepEqual(host.calls("report_return"), [{ value: [3_000_000, "é€𝄞"] }]);
});

test("resolves lookups relative to the entry", async (t) => {
  const { host } = await runProgram(t, {
    "index.mjs": 'import { readFileSync } from "node:fs"; export default () => readFileSync(new URL("./notes/a.txt", import.meta.url), "utf8")',
    "notes/a.txt": "note",
  });
  assert.deepEqual(host.calls("report_return"), [{ value: "note" }]);
});

test("loads nothing of the SDK that a run does not use", async (t) => {
  const { host } = await runProgram(
    t,
    `import { phase } from "@trestle/workflow";
     import { createRequire } from "node:module";
     export default () => { phase("x"); return Object.keys(createRequire(import.meta.url).cache).map((path) => path.split("/").at(-1)).sort() }`,
    { args: ["--warm"] },
  );
  assert.deepEqual(host.calls("report_return"), [{ value: ["vocabulary.cjs"] }]);
});

test("reports a working directory that is not there", async (t) => {
  const host = await startHost(t);
  const root = program(t, "export default () => 1");
  const loader = startLoader(t);
  loader.assign({ sock: host.path, entry: join(root, "index.mjs"), cwd: join(folder(t), "gone"), env: {} });
  const { error } = await loader.message("failed");
  assert.equal(error.code, "ENOENT");
  assert.equal(existsSync(join(root, "gone")), false);
  await loader.end();
  writeFileSync(join(root, "kept"), "");
});
