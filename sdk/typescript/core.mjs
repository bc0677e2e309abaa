// The connection to the host: the JSON-RPC client and the active host.
import { createRequire } from "node:module";
import {
  HostError, agentWireOptions, artifactBody, compact, encodeCanonical, isFilled, isObject, isText,
} from "./values.mjs";

/**
 * Loads a part when it is needed: of the SDK, what most programs never use; of Node, a module without all of its
 * exports, which an import would take.
 */
export const load = createRequire(import.meta.url);

const { connect: connectSocket } = load("node:net");

// Taken before any program code runs, which may replace these.
const parseJson = JSON.parse;
const stringifyJson = JSON.stringify;
const startTimer = globalThis.setTimeout;
const stopTimer = globalThis.clearTimeout;

export const HOST_SOCK_ENV = "BOARDWALK_HOST_SOCK";

/** The host answers frames up to this size; a larger one is refused here, with the call still known. */
const MAX_FRAME_UNITS = 192 * 1024 * 1024;

// ---------------------------------------------------------------------------------------------
// The client

const isJson = (value) => value !== undefined;
const isNumber = (value) => typeof value === "number";
const isList = (value) => Array.isArray(value);
const isArtifactRef = (value) => isObject(value) && isFilled(value.id) && isFilled(value.name) && isFilled(value.url);
const isSpend = (value) =>
  isObject(value) &&
  isNumber(value.spent) &&
  (value.cap === null || isNumber(value.cap)) &&
  (value.remaining === null || isNumber(value.remaining));

const isContext = (value) =>
  isObject(value) &&
  ["runId", "workflowId", "orgId", "workspaceDir"].every((key) => isFilled(value[key])) &&
  isNumber(value.workflowVersion) &&
  isNumber(value.attempt) &&
  (value.environment === null || isObject(value.environment)) &&
  isObject(value.actor) &&
  isObject(value.trigger);

function isHumanResult(value) {
  if (!isObject(value)) return false;
  return isText(value.value) || (isList(value.values) && value.values.every(isText));
}

/** What each result must hold. Keys beyond these are ignored, so that a newer host can add some. */
const RESULTS = {
  bootstrap: {
    input: isJson,
    input_schema: (value) => value === null || isObject(value),
    context: isContext,
  },
  report_return: {},
  agent: { output: isJson },
  "workflows.call": { output: isJson, output_schema: (value) => value === null || isObject(value) },
  "workflows.run": { runId: isFilled },
  "workflows.schedule": { scheduleId: isFilled },
  sleep: {},
  humanInput: { result: isHumanResult },
  "secrets.get": { value: isText },
  "artifacts.write": { ref: isArtifactRef },
  "computer.openBrowser": { sessionId: isFilled },
  "computer.browser.navigate": {},
  "computer.browser.url": { url: isText },
  "computer.browser.title": { title: isText },
  "computer.browser.screenshot": { ref: isArtifactRef },
  "computer.browser.console": { entries: isList },
  "computer.browser.network": { entries: isList },
  "computer.browser.eval": { value: isJson },
  "computer.browser.close": {},
  "computer.openDesktop": { sessionId: isFilled },
  "computer.desktop.screenshot": { ref: isArtifactRef },
  "computer.desktop.close": {},
  shell: { exitCode: Number.isInteger, stdout: isText, stderr: isText },
  "auth.idToken": { token: isFilled },
  "auth.apiToken": { token: isFilled },
  "usage.get": { usd: isSpend, tokens: isSpend, compute_seconds: isSpend },
};

function badResult(method, result) {
  if (!isObject(result)) return "the result is not an object";
  for (const [key, accepts] of Object.entries(RESULTS[method])) {
    if (!accepts(result[key])) {
      return Object.hasOwn(result, key) ? `"${key}" has the wrong shape` : `"${key}" is missing`;
    }
  }
  return undefined;
}

const protocolError = (method, detail) =>
  new HostError("PROTOCOL_ERROR", `the host's answer to ${method} is malformed: ${detail}`);

/** The context of a run: nothing in it can be changed. `host.signal` is made when it is first read. */
export function freezeContext(data, host) {
  const context = { ...data };
  Object.defineProperty(context, "signal", { get: () => host.signal, enumerable: true });
  for (const key of ["environment", "actor", "trigger"]) {
    if (isObject(context[key])) context[key] = Object.freeze({ ...context[key] });
  }
  return Object.freeze(context);
}

function errorText(error) {
  try {
    return error instanceof Error ? error.message : String(error);
  } catch {
    return "the error has no text";
  }
}

export class HostClient {
  #socket;
  #nextId = 1;
  #pending = new Map();
  #tools = new Map();
  /** Tools that run now, by the id of the request for them. */
  #running = new Map();
  #abort;
  #cancelled;
  #partial = [];
  #closed;
  #onClose;

  /** Opens a connection; rejects with CONNECTION_CLOSED when nobody listens at `path`. */
  static async connect(path) {
    const client = new HostClient(path);
    await client.opened;
    return client;
  }

  /** Calls may be made at once: they are sent when the connection stands. `opened` settles then. */
  constructor(path) {
    const socket = connectSocket({ path });
    this.#socket = socket;
    this.opened = new Promise((resolve, reject) => {
      socket.once("connect", resolve);
      this.#onClose = reject;
    });
    this.opened.catch(() => {});
    // Only calls in flight keep the process alive, not the connection itself.
    socket.once("connect", () => this.#balance());
    socket.setEncoding("utf8");
    socket.on("data", (text) => this.#receive(text));
    socket.on("error", (error) => this.#end(`the connection to the host failed: ${error.message}`));
    socket.on("close", () => this.#end("the host closed the connection"));
  }

  /** Aborted, with a CANCELLED HostError as its reason, when the run is cancelled. */
  get signal() {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#cancelled !== undefined) this.#abort.abort(this.#cancelled);
    }
    return this.#abort.signal;
  }

  /** True when the program has looked at `signal`: it may be waiting for it. */
  get watched() {
    return this.#abort !== undefined;
  }

  /** True when every frame handed to this client has left the process. */
  get flushed() {
    return this.#socket.writableLength === 0;
  }

  #balance() {
    if (this.#pending.size > 0) this.#socket.ref();
    else this.#socket.unref();
  }

  /** Keeps the process alive although no call is in flight. */
  hold() {
    this.#socket.ref();
  }

  close() {
    this.#end("the connection was closed");
    this.#socket.destroy();
  }

  #end(reason) {
    if (this.#closed !== undefined) return;
    this.#closed = reason;
    this.#onClose(new HostError("CONNECTION_CLOSED", reason));
    for (const { reject } of this.#pending.values()) reject(new HostError("CONNECTION_CLOSED", reason));
    this.#pending.clear();
    for (const tools of this.#tools.values()) tools.stop.abort();
    this.#tools.clear();
    this.onclose?.();
  }

  #send(frame) {
    this.#socket.write(frame + "\n");
  }

  #call(method, params, tools) {
    if (this.#closed !== undefined) {
      return Promise.reject(new HostError("CONNECTION_CLOSED", this.#closed));
    }
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve, reject) => {
      const frame = stringifyJson({ jsonrpc: "2.0", id, method, params });
      if (frame.length > MAX_FRAME_UNITS) {
        const size = `${Math.ceil(frame.length / 1024 / 1024)} MiB`;
        throw new HostError("INVALID_PARAMS", `${method}: the call is ${size}, the host reads at most 192 MiB`, {
          hint: "split the value, or write it to a file in the workspace",
        });
      }
      this.#pending.set(id, { method, resolve, reject });
      if (tools !== undefined) this.#tools.set(String(id), { byName: tools, stop: new AbortController() });
      this.#balance();
      this.#send(frame);
    });
  }

  #receive(text) {
    let rest = text;
    for (;;) {
      const end = rest.indexOf("\n");
      if (end < 0) break;
      this.#partial.push(rest.slice(0, end));
      const line = this.#partial.length === 1 ? this.#partial[0] : this.#partial.join("");
      this.#partial = [];
      rest = rest.slice(end + 1);
      this.#line(line);
    }
    if (rest !== "") this.#partial.push(rest);
  }

  #line(line) {
    let frame;
    try {
      frame = parseJson(line);
    } catch {
      return; // blank lines, and whatever else is not a frame
    }
    if (!isObject(frame)) return;
    if (typeof frame.method !== "string") this.#settle(frame);
    else if (frame.id === undefined) this.#notified(frame);
    else this.#requested(frame);
  }

  /** The call is found by its id first, so that no malformed answer can leave it waiting. */
  #settle(frame) {
    let id = typeof frame.id === "string" ? Number(frame.id) : frame.id;
    if (id === null && this.#pending.size === 1) [id] = this.#pending.keys();
    const call = this.#pending.get(id);
    if (call === undefined) return;
    this.#pending.delete(id);
    this.#tools.get(String(id))?.stop.abort();
    this.#tools.delete(String(id));
    this.#balance();
    const { method, resolve, reject } = call;
    const hasResult = Object.hasOwn(frame, "result");
    const hasError = Object.hasOwn(frame, "error");
    if (frame.jsonrpc !== "2.0") {
      reject(protocolError(method, "it is not a JSON-RPC 2.0 frame"));
    } else if (hasResult === hasError) {
      reject(protocolError(method, hasResult ? "it has both a result and an error" : "it has neither a result nor an error"));
    } else if (hasError) {
      reject(this.#failure(method, frame.error));
    } else {
      const problem = badResult(method, frame.result);
      if (problem === undefined) resolve(frame.result);
      else reject(protocolError(method, problem));
    }
  }

  #failure(method, error) {
    if (!isObject(error)) return protocolError(method, "the error is not an object");
    if (!isFilled(error.code)) {
      return protocolError(method, `the error code is not text (${stringifyJson(error.code)}: ${errorText(error.message)})`);
    }
    if (!isText(error.message)) return protocolError(method, `the error ${error.code} has no message`);
    return new HostError(error.code, error.message, error.data);
  }

  #notified(frame) {
    if (frame.method === "tool_cancel") {
      // The host has stopped waiting for this answer.
      this.#running.get(frame.params?.id)?.abort(new Error("the host no longer waits for this tool"));
      return;
    }
    if (frame.method !== "cancel" || this.#cancelled !== undefined) return;
    const reason = isObject(frame.params) && isFilled(frame.params.reason) ? frame.params.reason : "the run was cancelled";
    this.#cancelled = new HostError("CANCELLED", reason);
    this.#abort?.abort(this.#cancelled);
  }

  #answerFailure(id, code, message) {
    this.#send(stringifyJson({ jsonrpc: "2.0", id, error: { code, message } }));
  }

  #requested(frame) {
    const { id, method, params } = frame;
    if (method !== "tool_invoke") {
      this.#answerFailure(id, "METHOD_NOT_FOUND", `the program does not answer ${method}`);
      return;
    }
    if (!isObject(params) || !isFilled(params.call_id) || !isFilled(params.tool) || params.input === undefined) {
      this.#answerFailure(id, "INVALID_PARAMS", "tool_invoke needs call_id, tool and input");
      return;
    }
    const call = this.#tools.get(params.call_id);
    const tool = call?.byName.get(params.tool);
    if (tool === undefined) {
      this.#answerFailure(id, "UNKNOWN_TOOL", `no tool "${params.tool}" belongs to agent call ${params.call_id}`);
      return;
    }
    this.#invoke(id, tool, params.input, call.stop.signal).then(
      (output) => {
        if (this.#closed === undefined) this.#send(stringifyJson({ jsonrpc: "2.0", id, result: { output } }));
      },
      (error) => {
        if (this.#closed === undefined) this.#answerFailure(id, "TOOL_ERROR", errorText(error));
      },
    );
  }

  /**
   * Runs one tool; its signal is aborted when the agent call ends, the run is cancelled, its time is over,
   * or the host stops waiting for it.
   */
  async #invoke(id, tool, input, ended) {
    const stop = new AbortController();
    this.#running.set(id, stop);
    const abort = (event) => stop.abort(event.target.reason);
    const sources = [ended, this.signal];
    for (const source of sources) {
      if (source.aborted) stop.abort(source.reason);
      else source.addEventListener("abort", abort, { once: true });
    }
    let timer;
    try {
      const output = await new Promise((resolve, reject) => {
        if (tool.timeoutMs !== undefined) {
          timer = startTimer(() => {
            const error = new Error(`the tool ${tool.name} did not answer within ${tool.timeoutMs} ms`);
            stop.abort(error);
            reject(error);
          }, tool.timeoutMs);
        }
        resolve(tool.execute(input, { signal: stop.signal }));
      });
      return encodeCanonical(output);
    } finally {
      this.#running.delete(id);
      stopTimer(timer);
      for (const source of sources) source.removeEventListener("abort", abort);
    }
  }

  // -- loader side

  bootstrap() {
    return this.#call("bootstrap", {});
  }

  async reportReturn(value) {
    await this.#call("report_return", { value: encodeCanonical(value) });
  }

  // -- capabilities

  async agent(prompt, options) {
    const { wire, tools } = agentWireOptions(options);
    const params = wire === undefined ? { prompt } : { prompt, opts: wire };
    return (await this.#call("agent", params, tools)).output;
  }

  /** The child's output as JSON, with the schema its author's types gave it. */
  async callWorkflow(slug, input, options) {
    const params = { slug, input: encodeCanonical(input) };
    if (options !== undefined) params.opts = compact(options);
    const { output, output_schema: outputSchema } = await this.#call("workflows.call", params);
    return { output, outputSchema };
  }

  async runWorkflow(slug, input, options) {
    const params = { slug, input: encodeCanonical(input) };
    if (options !== undefined) params.opts = compact(options);
    return (await this.#call("workflows.run", params)).runId;
  }

  async scheduleWorkflow(slug, input, options) {
    const params = { slug, input: encodeCanonical(input), opts: compact(options) };
    return (await this.#call("workflows.schedule", params)).scheduleId;
  }

  async sleep(arg) {
    await this.#call("sleep", { arg });
  }

  async humanInput(options) {
    return (await this.#call("humanInput", { opts: options })).result;
  }

  async getSecret(name) {
    return (await this.#call("secrets.get", { name })).value;
  }

  async writeArtifact(name, contentType, body, metadata) {
    return (await this.#call("artifacts.write", compact({ name, contentType, body: artifactBody(body), metadata }))).ref;
  }

  async openBrowser(options) {
    const { sessionId } = await this.#call("computer.openBrowser", compact({ opts: options }));
    const ask = (operation, more) => this.#call(`computer.browser.${operation}`, compact({ sessionId, ...more }));
    return Object.freeze({
      id: sessionId,
      navigate: async (url) => void (await ask("navigate", { url })),
      url: async () => (await ask("url")).url,
      title: async () => (await ask("title")).title,
      screenshot: async (opts) => (await ask("screenshot", { fullPage: opts?.fullPage })).ref,
      console: async (opts) => (await ask("console", { since: opts?.since })).entries,
      network: async (opts) => (await ask("network", { since: opts?.since })).entries,
      eval: async (expression) => (await ask("eval", { expression })).value,
      close: async () => void (await ask("close")),
    });
  }

  async openDesktop(options) {
    const { sessionId } = await this.#call("computer.openDesktop", compact({ opts: options }));
    return Object.freeze({
      id: sessionId,
      screenshot: async () => (await this.#call("computer.desktop.screenshot", { sessionId })).ref,
      close: async () => void (await this.#call("computer.desktop.close", { sessionId })),
    });
  }

  async shell(cmd, options) {
    const { exitCode, stdout, stderr } = await this.#call("shell", compact({ cmd, opts: options }));
    return { exitCode, stdout, stderr };
  }

  phase(name, options) {
    if (this.#closed !== undefined) return;
    this.#send(stringifyJson({ jsonrpc: "2.0", method: "phase", params: compact({ name, opts: options }) }));
  }

  async idToken(audience) {
    return (await this.#call("auth.idToken", { audience })).token;
  }

  async apiToken() {
    return (await this.#call("auth.apiToken", {})).token;
  }

  async usage() {
    const { usd, tokens, compute_seconds } = await this.#call("usage.get", {});
    return { usd, tokens, compute_seconds };
  }
}

// ---------------------------------------------------------------------------------------------
// The active host: one per process

let active;
let connecting;

/** Makes `host` the one that every author function talks to. */
export function installHost(host) {
  active = host;
  connecting = undefined;
}

/** The active host, when there is one; never connects. */
export function peekHost() {
  return active;
}

/** Forgets the active host. Does not close it. */
export function resetHost() {
  active = undefined;
  connecting = undefined;
}

/** Connects to the host at `sockPath`, by default where the environment says, and makes it active. */
export async function connectHost(options = {}) {
  const path = options.sockPath ?? process.env[HOST_SOCK_ENV];
  if (path === undefined || path === "") {
    throw new Error(
      `there is no host to talk to: ${HOST_SOCK_ENV} is not set. ` +
        "A program is started by the engine (for example `trestle dev`), which sets it; in a unit test call installTestHost() first.",
    );
  }
  const client = await HostClient.connect(path);
  installHost(client);
  return client;
}

/** The active host; the first caller connects, all others share its attempt, a failed one is forgotten. */
export async function getHost() {
  if (active !== undefined) return active;
  connecting ??= connectHost();
  const attempt = connecting;
  try {
    const connected = await attempt;
    return active ?? connected;
  } finally {
    if (connecting === attempt) connecting = undefined;
  }
}

/**
 * Makes a host of stubs the active one, in place of whatever is active. A capability without a stub
 * fails with a message that says which one to pass; `sleep`, `phase` and `usage` have defaults.
 */
export function installTestHost(overrides = {}) {
  const sdk = { HostError, freezeContext, installHost, peekHost, resetHost };
  return load("./test-host.cjs").installTestHost(overrides, sdk);
}
