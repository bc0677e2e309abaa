// Starts one program in this process and reports how it ended.
//
//   node loader.mjs [SOCKET] [--warm]
//
// --warm prepares everything that a run will need before the assignment comes. SOCKET is where the
// host listens; the assignment's `sock` holds over it.
//
// Descriptor 3 is a duplex stream to the process that supervises the run, one JSON object a line:
//
//   out  {"type":"ready"}
//   in   {"entry","cwd","env":{…},"sock"?,"root"?}     exactly one line; end of file before it: exit 0
//   out  {"type":"returned"}                           the host has accepted the return value
//   out  {"type":"failed","phase","reason","error"}    see `fail` below
//
// Nothing else is given to the program: no token, and no descriptor that its children inherit.
import { HOST_SOCK_ENV, HostClient, freezeContext, installHost, load } from "./core.mjs";
import { HostError, reviveBySchema } from "./values.mjs";

// Required and not imported: an import takes every export of such a module, and with it parts of Node that a start
// does not need. That is a quarter of the time of a cold start.
const { closeSync, readSync, readdirSync, writeSync } = load("node:fs");
const { dirname, join } = load("node:path");
const { inspect } = load("node:util");
const { fileURLToPath, pathToFileURL } = load("node:url");
const { getEventListeners } = load("node:events");

// The program may replace any of these; what the loader does with them must not change.
const parseJson = JSON.parse;
const stringifyJson = JSON.stringify;
const exit = process.exit.bind(process);
const reallyExit = process.reallyExit.bind(process);
const startTimer = globalThis.setTimeout;

const CHANNEL = 3;
const SIGNATURE = "export default async function run(input, context) { … }";
const CODE = /^[A-Z][A-Z0-9_]{0,63}$/;

/** How long a program may go on when its host is gone. */
const ORPHAN_MS = 500;

/** waiting → import → run → return → done, or failed from any of the middle ones. */
let stage = "waiting";
let client;
let exitCall;
let programRoot;
const streams = new Set();

/** The part that reads source maps; first loaded when there is a stack to show. */
function stacks() {
  const part = load("./stack.cjs");
  part.setRoot(programRoot);
  return part;
}

// ---------------------------------------------------------------------------------------------
// The channel

function report(message) {
  const bytes = Buffer.from(`${stringifyJson(message)}\n`);
  try {
    for (let sent = 0; sent < bytes.length; ) sent += writeSync(CHANNEL, bytes, sent);
  } catch {
    // The supervisor is gone, and nobody is left to tell.
  }
}

/** The assignment, or undefined at end of file. Blocks: a prestarted process uses no time while it waits. */
function readAssignment() {
  const chunks = [];
  const chunk = Buffer.allocUnsafe(64 * 1024);
  for (;;) {
    const size = readSync(CHANNEL, chunk, 0, chunk.length, null);
    if (size === 0) return undefined;
    const end = chunk.subarray(0, size).indexOf(10);
    chunks.push(Buffer.from(chunk.subarray(0, end < 0 ? size : end)));
    if (end >= 0) return parseJson(Buffer.concat(chunks).toString("utf8"));
  }
}

// ---------------------------------------------------------------------------------------------
// The ends

/** Remembers which of stdout and stderr came into use: opening one only to flush it costs a millisecond. */
function watchStream(name) {
  const { get, ...rest } = Object.getOwnPropertyDescriptor(process, name);
  const watched = () => {
    const stream = get.call(process);
    streams.add(stream);
    return stream;
  };
  Object.defineProperty(process, name, { ...rest, get: watched });
}

function flushed(stream) {
  if (stream.writableLength === 0 || stream.destroyed) return undefined;
  return new Promise((resolve) => {
    stream.once("error", resolve);
    stream.once("close", resolve);
    stream.write("", resolve);
  });
}

async function leave(code) {
  for (const stream of streams) await flushed(stream);
  exit(code);
}

const isError = (value) => typeof value === "object" && value !== null && "message" in value && "stack" in value;

function messageOf(thrown) {
  if (!isError(thrown)) {
    if (typeof thrown?.message === "string" && thrown.message !== "") return thrown.message;
    return `the program threw ${typeof thrown === "string" ? thrown : inspect(thrown, { depth: 2, breakLength: 120 })}`;
  }
  const message = String(thrown.message) || String(thrown.name ?? "Error");
  const { cause } = thrown;
  return isError(cause) && cause.message && !message.includes(cause.message) ? `${message}: ${cause.message}` : message;
}

function hintOf(thrown) {
  const hint = thrown?.hint ?? thrown?.data?.hint;
  return typeof hint === "string" && hint !== "" ? hint : undefined;
}

const SDK_FOLDER = `${dirname(fileURLToPath(import.meta.url))}/`;

/** Frames of the loader, the SDK and Node tell an author nothing. */
function isOwnFrame(line) {
  if (!/^\s+at /.test(line)) return false;
  const at = line.indexOf(SDK_FOLDER);
  return /\bnode:/.test(line) || (at >= 0 && /^[^/]+\.[cm]js:/.test(line.slice(at + SDK_FOLDER.length)));
}

const withoutOwnFrames = (text) => text.split("\n").filter((line) => !isOwnFrame(line)).join("\n");

function stackOf(thrown) {
  return isError(thrown) && typeof thrown.stack === "string" ? withoutOwnFrames(thrown.stack) : undefined;
}

/** Longest text that is reported of an error, in UTF-16 units; the run's log has it whole. */
const MAX_TEXT = 32_768;

const cut = (text) => (text === undefined || text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… (cut)`);

/** What any throw looks like on the channel; every step is guarded, the value is the program's. */
function describe(thrown) {
  try {
    const code = typeof thrown?.code === "string" && CODE.test(thrown.code) ? thrown.code : "PROGRAM_ERROR";
    return {
      code,
      name: isError(thrown) ? cut(String(thrown.name)) : typeof thrown,
      message: cut(messageOf(thrown)),
      hint: cut(hintOf(thrown)),
      stack: cut(stackOf(thrown)),
    };
  } catch {
    return { code: "PROGRAM_ERROR", name: "Error", message: "the program threw a value that cannot be shown" };
  }
}

/**
 * Ends the run as failed; the first failure wins. `reason` is one of
 *   syntax | import | export | throw | unhandled | return | exit | stuck | host
 */
function fail(reason, error, trace) {
  if (stage === "done" || stage === "failed") return;
  const phase = stage === "import" || stage === "waiting" ? "import" : "run";
  stage = "failed";
  report({ type: "failed", phase, reason, error });
  if (trace !== undefined) {
    try {
      process.stderr.write(`${trace}\n`);
    } catch {
      // The program closed its stderr; the report has been sent.
    }
  }
}

const MAX_CAUSES = 5;

/** The text for the run's log: the stack of what was thrown, and of what caused it. */
function traceOf(thrown, error) {
  try {
    const parts = [stackOf(thrown) ?? error.message];
    for (let cause = thrown?.cause; cause !== undefined && parts.length <= MAX_CAUSES; cause = cause?.cause) {
      parts.push(`caused by: ${stackOf(cause) ?? messageOf(cause)}`);
    }
    for (const inner of Array.isArray(thrown?.errors) ? thrown.errors.slice(0, MAX_CAUSES) : []) {
      parts.push(`one of them: ${stackOf(inner) ?? messageOf(inner)}`);
    }
    return parts.join("\n");
  } catch {
    return error.message;
  }
}

function failWith(reason, thrown, hint) {
  const error = describe(thrown);
  error.hint ??= hint;
  fail(reason, error, traceOf(thrown, error));
}

// ---------------------------------------------------------------------------------------------
// Traps

function trapExit() {
  process.exit = (code) => {
    if (stage === "return" && !client.flushed) return; // the return value is still on its way out
    if (exitCall === undefined) {
      const at = new Error("process.exit was called here");
      Error.captureStackTrace(at, process.exit);
      exitCall = { code: code ?? process.exitCode ?? 0, at };
    }
    exit(code);
  };
  process.reallyExit = (code) => {
    exited();
    finish(code);
  };
  process.on("exit", exited);
  process.on("beforeExit", () => {
    // Nothing is left to do, but a program may wait for its cancellation alone.
    if (client?.watched && !client.signal.aborted && getEventListeners(client.signal, "abort").length > 0) client.hold();
  });
}

/** Lets readers of the pipes see their end before the process has torn itself down. */
function finish(code) {
  for (const descriptor of [1, 2]) {
    try {
      closeSync(descriptor);
    } catch {
      // closed by the program
    }
  }
  reallyExit(code);
}

function exited() {
  if (stage !== "import" && stage !== "run") return;
  if (exitCall === undefined) {
    const what = stage === "import" ? "the program's import never finished" : "run() never settled";
    fail("stuck", {
      code: "PROGRAM_ERROR",
      name: "Error",
      message: `${what}: nothing is left to wait for`,
      hint: "a promise is awaited that nothing will ever resolve; look for a missing resolve() or callback",
    });
    return;
  }
  const { at } = exitCall;
  fail(
    "exit",
    {
      code: "PROGRAM_ERROR",
      name: "Error",
      message: `the program exited without returning: it called process.exit(${exitCall.code})`,
      hint: "return a value from run() to complete, or throw an error to fail",
      stack: stackOf(at),
    },
    `process.exit(${exitCall.code}) was called before run() returned\n${(stackOf(at) ?? "").split("\n").slice(1).join("\n")}`,
  );
}

function trapErrors() {
  process.on("uncaughtException", (thrown, origin) => {
    if (process.listenerCount("uncaughtException") > 1) return; // the program handles them itself
    if (stage === "return" || stage === "done") {
      process.stderr.write(`after run() returned: ${traceOf(thrown, describe(thrown))}\n`);
      return;
    }
    const hint =
      origin === "unhandledRejection"
        ? "a promise was rejected and nobody awaited it: await it, or add .catch()"
        : "an error was thrown outside of run(), for example in a timer or an event listener";
    failWith("unhandled", thrown, hint);
    void leave(1);
  });
}

// ---------------------------------------------------------------------------------------------
// The program

/** How many files of a program are looked through for a syntax error that Node did not place. */
const MAX_CHECKED = 32;

/** Files of the program, the entry first, without those of its packages. */
function programFiles(entry) {
  const found = readdirSync(dirname(entry), { recursive: true, withFileTypes: true })
    .filter((item) => item.isFile() && /\.m?js$/.test(item.name))
    .map((item) => join(item.parentPath ?? item.path, item.name))
    .filter((path) => path !== entry && !path.includes("/node_modules/"));
  return [entry, ...found].slice(0, MAX_CHECKED);
}

/** `file:line` of a syntax error. Node tells it when a link fails; for code that does not parse, `--check` does. */
async function syntaxPlace(thrown, entry) {
  const { spawnSync } = await import("node:child_process");
  let place = /^(file:\/\/\/\S+?):(\d+)$/m.exec(thrown.stack);
  for (const file of place === null ? programFiles(entry) : []) {
    const { status, stderr } = spawnSync(process.execPath, ["--check", file], { env: {}, encoding: "utf8" });
    place = status === 0 ? null : /^(\/.+?):(\d+)$/m.exec(stderr);
    if (place !== null) break;
  }
  return place === null ? undefined : stacks().authorPlace(place[1], Number(place[2]), 1).replace(/:\d+$/, "");
}

function failExport(what, found) {
  fail("export", {
    code: "VALIDATION_FAILED",
    name: "Error",
    message: `${what} does not export a run function: ${found}`,
    hint: `write \`${SIGNATURE}\``,
  });
}

/** True when the entry only passes on the default export of another file, which has none. */
function isMissingDefault(thrown, entry) {
  const [place, code] = thrown.stack.split("\n");
  return (
    place.startsWith(`${pathToFileURL(entry).href}:`) &&
    /^\s*export\s*\{\s*default\b/.test(code) &&
    thrown.message.endsWith("does not provide an export named 'default'")
  );
}

async function failImport(thrown, entry) {
  const error = describe(thrown);
  let reason = "import";
  if (thrown instanceof SyntaxError && !/^\s+at /m.test(withoutOwnFrames(thrown.stack))) {
    // No frame of the program: the code did not parse, or does not link.
    if (isMissingDefault(thrown, entry)) {
      failExport("the program", "it has no default export");
      return;
    }
    reason = "syntax";
    const place = await syntaxPlace(thrown, entry);
    if (place !== undefined) error.message = `${place}: ${error.message}`;
  } else if (error.code === "ERR_MODULE_NOT_FOUND") {
    error.hint ??= "add the package to package.json, install it, and deploy again";
  } else {
    error.hint ??= "the error was thrown while the program was imported, before run() was called";
  }
  const { authorPath } = stacks();
  error.message = error.message.replace(/'?(\/[^\s']+)'?/g, (text, path) => (authorPath(path) === path ? text : authorPath(path)));
  fail(reason, error, traceOf(thrown, error));
}

async function importProgram(entry) {
  let program;
  try {
    program = await import(pathToFileURL(entry).href);
  } catch (thrown) {
    await failImport(thrown, entry);
    return undefined;
  }
  if (typeof program.default === "function") return program.default;
  const names = Object.keys(program).filter((name) => name !== "default");
  const found = "default" in program ? `its default export is of type ${typeof program.default}` : "it has no default export";
  const others = names.length > 0 ? ` (it exports ${names.join(", ")})` : "";
  failExport(stacks().authorPath(entry), found + others);
  return undefined;
}

async function runProgram(assignment) {
  // The import starts while the host answers: neither needs the other.
  const session = client.bootstrap();
  session.catch(() => {});
  const run = await importProgram(assignment.entry);
  if (run === undefined) return;
  let bootstrap;
  try {
    bootstrap = await session;
  } catch (thrown) {
    failWith("host", thrown);
    return;
  }
  const input = reviveBySchema(bootstrap.input, bootstrap.input_schema);
  const context = freezeContext(bootstrap.context, client);
  stage = "run";
  let value;
  try {
    value = await run(input, context);
  } catch (thrown) {
    failWith("throw", thrown);
    return;
  }
  if (stage !== "run") return;
  stage = "return";
  try {
    await client.reportReturn(value);
  } catch (thrown) {
    const mismatch = thrown instanceof HostError && thrown.code === "VALIDATION_FAILED";
    failWith("return", thrown, mismatch ? "return a value of the declared type, or change the type and redeploy" : undefined);
    return;
  }
  stage = "done";
  report({ type: "returned" });
}

function settleIn(assignment, sock) {
  process.chdir(assignment.cwd);
  for (const name of Object.keys(process.env)) {
    if (!Object.hasOwn(assignment.env, name)) delete process.env[name];
  }
  Object.assign(process.env, assignment.env);
  process.env[HOST_SOCK_ENV] = sock;
  process.argv = [process.execPath, assignment.entry];
  programRoot = assignment.root ?? dirname(assignment.entry);
  Error.prepareStackTrace = (error, frames) => stacks().prepareStackTrace(error, frames);
}

async function main() {
  const flags = process.argv.slice(2);
  trapExit();
  trapErrors();
  watchStream("stdout");
  watchStream("stderr");
  if (flags.includes("--warm")) {
    const { rehearse } = await import("./warm.mjs");
    await rehearse();
  }
  report({ type: "ready" });
  const assignment = readAssignment();
  if (assignment === undefined) exit(0);
  const sock = assignment.sock ?? flags.find((flag) => !flag.startsWith("-"));
  stage = "import";
  settleIn(assignment, sock);
  client = new HostClient(sock);
  installHost(client);
  client.onclose = () => startTimer(() => void leave(1), ORPHAN_MS);
  await runProgram(assignment);
  client.onclose = undefined;
  client.close();
  await leave(stage === "done" ? 0 : 1);
}

// Not awaited at the top level: Node would warn about a run that never settles, which `exited` reports.
main().catch((thrown) => {
  failWith("host", thrown);
  void leave(1);
});
