// A host on a Unix socket, a supervisor for the loader, and throwaway folders, for the tests of this SDK.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const SDK = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/** The Node that programs run on; the one that runs the tests unless NODE names another. */
export const NODE = process.env.NODE || process.execPath;

export const CONTEXT = Object.freeze({
  runId: "01JABCDEFGHJKMNPQRSTVWXYZ0",
  workflowId: "01JWORKFLOW0000000000000000",
  workflowVersion: 3,
  orgId: "01JORG00000000000000000000",
  environment: null,
  actor: { type: "user", user_id: "01JUSER0000000000000000000" },
  attempt: 1,
  trigger: { kind: "manual", firedAt: 1733000000000 },
  workspaceDir: "/tmp",
});

export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), "sdk-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Resolves to the first value that `look` gives, looking again after every change told through `poke`. */
export class Watched {
  #waiting = [];

  poke() {
    for (const check of [...this.#waiting]) check();
  }

  until(look) {
    return new Promise((found) => {
      const check = () => {
        const value = look();
        if (value === undefined || value === false) return false;
        this.#waiting = this.#waiting.filter((other) => other !== check);
        found(value);
        return true;
      };
      if (!check()) this.#waiting.push(check);
    });
  }
}

/** Every line of a stream; a stream that is cut off just ends. */
function lines(stream, take) {
  const reader = createInterface({ input: stream });
  reader.on("error", () => {});
  reader.on("line", take);
}

export const ok = (id, result) => JSON.stringify({ jsonrpc: "2.0", id, result });
export const failed = (id, code, message, data) => JSON.stringify({ jsonrpc: "2.0", id, error: { code, message, data } });

/**
 * Listens on a socket and keeps every frame it gets. `answers` maps a method to a result, or to a
 * function of (params, frame, connection) that gives one; a string is sent as the raw line, and
 * undefined means that the test answers later. The loader's methods have default answers.
 */
export async function startHost(t, answers = {}) {
  const path = join(folder(t), "host.sock");
  const defaults = { bootstrap: { input: null, input_schema: null, context: CONTEXT }, report_return: {} };
  const table = { ...defaults, ...answers };
  const host = Object.assign(new Watched(), { path, frames: [], connections: [], ended: 0 });
  const answer = async (frame, connection) => {
    const entry = table[frame.method];
    let result;
    try {
      result = typeof entry === "function" ? await entry(frame.params, frame, connection) : entry;
    } catch (error) {
      connection.send(failed(frame.id, error.code ?? "INTERNAL_ERROR", error.message, error.data));
      return;
    }
    if (typeof result === "string") connection.send(result);
    else if (result !== undefined) connection.send(ok(frame.id, result));
  };
  const server = createServer((socket) => {
    const connection = { host, send: (line) => socket.write(`${line}\n`), socket };
    host.connections.push(connection);
    socket.on("error", () => {});
    socket.on("close", () => {
      host.ended += 1;
      host.poke();
    });
    lines(socket, (line) => {
      const frame = JSON.parse(line);
      host.frames.push(frame);
      if (frame.id !== undefined && frame.method !== undefined) void answer(frame, connection);
      host.poke();
    });
    host.poke();
  });
  await new Promise((listening) => server.listen(path, listening));
  t.after(() => {
    for (const { socket } of host.connections) socket.destroy();
    server.close();
  });
  host.calls = (method) => host.frames.filter((frame) => frame.method === method).map((frame) => frame.params);
  host.frame = (look) => host.until(() => host.frames.find(look));
  return host;
}

/** A program folder as an engine lays it out: files, and both names of the SDK as links to one place. */
export function program(t, files) {
  const root = folder(t);
  const all = typeof files === "string" ? { "index.mjs": files } : files;
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  for (const scope of ["@boardwalk-labs", "@trestle"]) {
    mkdirSync(join(root, "node_modules", scope), { recursive: true });
    symlinkSync(SDK, join(root, "node_modules", scope, "workflow"));
  }
  return root;
}

/** Starts the loader with descriptor 3 as its channel. */
export function startLoader(t, { args = [], env } = {}) {
  const child = spawn(NODE, [join(SDK, "loader.mjs"), ...args], {
    stdio: ["ignore", "pipe", "pipe", "pipe"],
    env: env ?? { PATH: process.env.PATH, LANG: "C.UTF-8" },
  });
  t.after(() => child.kill("SIGKILL"));
  const loader = Object.assign(new Watched(), { child, messages: [], stdout: "", stderr: "" });
  child.stdout.setEncoding("utf8").on("data", (text) => {
    loader.stdout += text;
    loader.poke();
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    loader.stderr += text;
    loader.poke();
  });
  const channel = child.stdio[3];
  channel.on("error", () => {});
  lines(channel, (line) => {
    loader.messages.push(JSON.parse(line));
    loader.poke();
  });
  child.on("close", (code, signal) => {
    loader.exit = { code, signal };
    loader.poke();
  });
  loader.assign = (assignment) => channel.write(`${JSON.stringify(assignment)}\n`);
  loader.message = (type) => loader.until(() => loader.messages.find((message) => message.type === type));
  loader.end = () => loader.until(() => loader.exit);
  loader.channel = channel;
  return loader;
}

/** Runs a program to its end against a host. */
export async function runProgram(t, files, { answers, assignment, args } = {}) {
  const host = await startHost(t, answers);
  const root = program(t, files);
  const cwd = folder(t);
  const loader = startLoader(t, { args });
  loader.assign({ sock: host.path, entry: join(root, "index.mjs"), cwd, env: {}, root, ...assignment });
  const exit = await loader.end();
  const outcome = loader.messages.find((message) => message.type !== "ready");
  return { host, loader, root, cwd, exit, outcome, stdout: loader.stdout, stderr: loader.stderr };
}
