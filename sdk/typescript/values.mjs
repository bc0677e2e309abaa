// Values between a program and the wire: errors, canonical encoding, revival, durations, artifact bodies,
// agent options.

// A program may replace globals (patched JSON, fake clocks). What the protocol depends on is taken
// before any program code runs.
const stringifyJson = JSON.stringify;
const dateToIso = Date.prototype.toISOString;
const dateToTime = Date.prototype.getTime;

/** Nesting the host accepts in a program's JSON. */
const MAX_DEPTH = 512;

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

export const isText = (value) => typeof value === "string";
export const isFilled = (value) => typeof value === "string" && value !== "";

/** Object without the keys whose value is undefined: absent optionals are left out, never null. */
export function compact(object) {
  const out = {};
  for (const [key, value] of Object.entries(object)) if (value !== undefined) out[key] = value;
  return out;
}

// ---------------------------------------------------------------------------------------------
// Errors

/** Codes that end the run instead of being handled by `parallel` or handed to a model. */
export const RUN_FATAL_CODES = Object.freeze(["BUDGET_EXCEEDED", "CANCELLED"]);

export class HostError extends Error {
  constructor(code, message, data) {
    const shape = typeof code === "object" && code !== null ? code : { code, message, data };
    super(shape.message);
    this.name = "HostError";
    this.code = shape.code;
    if (shape.data !== undefined) this.data = shape.data;
  }

  /** What the reader can do about it, when the host gave one. */
  get hint() {
    const hint = this.data?.hint;
    return typeof hint === "string" && hint !== "" ? hint : undefined;
  }
}

export function isRunFatal(reason) {
  if (reason === null || (typeof reason !== "object" && typeof reason !== "function")) return false;
  return reason.fatal === true || RUN_FATAL_CODES.includes(reason.code);
}

// ---------------------------------------------------------------------------------------------
// Canonical encoding: native values to JSON, without a schema.

export class EncodeError extends TypeError {
  constructor(message, hint) {
    super(message);
    this.name = "EncodeError";
    this.code = "VALIDATION_FAILED";
    this.hint = hint;
  }
}

const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

function showPath(path) {
  let text = "$";
  for (const part of path) {
    if (typeof part === "number") text += `[${part}]`;
    else text += IDENTIFIER.test(part) ? `.${part}` : `[${stringifyJson(part)}]`;
  }
  return text;
}

const OMIT = Symbol("omit");

export function encodeBytes(bytes) {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

function encodeScalar(value) {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) ? value : null;
    case "bigint":
      return value.toString();
    case "undefined":
    case "function":
    case "symbol":
      return OMIT;
    default:
      return null;
  }
}

function encodeNode(value, key, path, ancestors) {
  if (typeof value !== "object" || value === null) return encodeScalar(value);
  if (value instanceof Date) {
    return Number.isNaN(dateToTime.call(value)) ? null : dateToIso.call(value);
  }
  if (value instanceof Uint8Array) return encodeBytes(value);
  if (value instanceof ArrayBuffer) return encodeBytes(new Uint8Array(value));
  if (ancestors.includes(value)) {
    const start = showPath(path.slice(0, ancestors.indexOf(value)));
    throw new EncodeError(
      `the value at ${showPath(path)} refers back to ${start}: a cycle cannot be written as JSON`,
      "return a copy without the back reference, for example an id in its place",
    );
  }
  if (ancestors.length >= MAX_DEPTH) {
    throw new EncodeError(
      `the value is nested more than ${MAX_DEPTH} levels deep at ${showPath(path.slice(0, 8))}…`,
      "flatten the value, or write it with artifacts.write and return the reference",
    );
  }
  ancestors.push(value);
  const encoded = encodeObject(value, key, path, ancestors);
  ancestors.pop();
  return encoded;
}

function encodeObject(value, key, path, ancestors) {
  if (Array.isArray(value)) return encodeItems(value, path, ancestors);
  if (value instanceof Set) return encodeItems([...value], path, ancestors);
  if (value instanceof Map) return encodeMap(value, path, ancestors);
  if (typeof value.toJSON === "function") {
    return encodeNode(value.toJSON(key), key, path, ancestors);
  }
  if (value instanceof String || value instanceof Number || value instanceof Boolean) {
    return encodeScalar(value.valueOf());
  }
  // A key named __proto__ is data here: an object without a prototype keeps it as an own key.
  const out = Object.create(null);
  if (value instanceof Error) {
    // `name` and `message` are not enumerable; without them an error would be `{}`.
    out.name = value.name;
    out.message = value.message;
  } else if (value instanceof Promise) {
    process.emitWarning(`the value at ${showPath(path)} is a promise and is written as {}: await it first`);
  }
  for (const name of Object.keys(value)) {
    path.push(name);
    const item = encodeNode(value[name], name, path, ancestors);
    path.pop();
    if (item !== OMIT) out[name] = item;
  }
  return out;
}

function encodeItems(items, path, ancestors) {
  const out = new Array(items.length);
  for (let i = 0; i < items.length; i += 1) {
    path.push(i);
    const item = encodeNode(items[i], String(i), path, ancestors);
    path.pop();
    out[i] = item === OMIT ? null : item;
  }
  return out;
}

/** A map whose keys are all strings is an object, any other one a list of pairs. */
function encodeMap(map, path, ancestors) {
  const keys = [...map.keys()];
  if (!keys.every((key) => typeof key === "string")) {
    return encodeItems([...map.entries()], path, ancestors);
  }
  const out = Object.create(null);
  for (const [name, value] of map) {
    path.push(name);
    const item = encodeNode(value, name, path, ancestors);
    path.pop();
    if (item !== OMIT) out[name] = item;
  }
  return out;
}

/**
 * The JSON form of a native value: dates as ISO text, big integers as digits, bytes as base64, sets
 * as lists, maps as objects or pairs. Throws `EncodeError` on a cycle or on nesting beyond 512.
 */
export function encodeCanonical(value) {
  const encoded = encodeNode(value, "", [], []);
  return encoded === OMIT ? null : encoded;
}

// ---------------------------------------------------------------------------------------------
// Revival: JSON to native values, guided by a JSON Schema. Never throws.

const MAX_REF_HOPS = 16;
const INTEGER_PATTERN = "^-?\\d+$";
const INTEGER = /^-?\d+$/;

function resolvePointer(root, ref) {
  if (ref === "#") return root;
  if (!ref.startsWith("#/")) return undefined;
  let node = root;
  for (const part of ref.slice(2).split("/")) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof node !== "object" || node === null || !Object.hasOwn(node, name)) return undefined;
    node = node[name];
  }
  return node;
}

function followRefs(schema, root) {
  let node = schema;
  for (let hops = 0; isObject(node) && typeof node.$ref === "string"; hops += 1) {
    if (hops === MAX_REF_HOPS) return undefined;
    node = resolvePointer(root, node.$ref);
  }
  return node;
}

function reviveString(value, schema) {
  if (typeof value !== "string") return value;
  if (schema.format === "date-time") {
    const date = new Date(value);
    return Number.isNaN(dateToTime.call(date)) ? value : date;
  }
  if (schema.contentEncoding === "base64") return Uint8Array.from(Buffer.from(value, "base64"));
  if (schema.pattern === INTEGER_PATTERN && INTEGER.test(value)) return BigInt(value);
  return value;
}

function reviveArray(value, schema, root) {
  if (!Array.isArray(value)) return value;
  const prefix = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const items = value.map((item, i) => {
    if (i < prefix.length) return reviveNode(item, prefix[i], root);
    return isObject(schema.items) ? reviveNode(item, schema.items, root) : item;
  });
  return schema.uniqueItems === true ? new Set(items) : items;
}

function reviveObject(value, schema, root) {
  if (!isObject(value)) return value;
  const properties = isObject(schema.properties) ? schema.properties : {};
  const rest = isObject(schema.additionalProperties) ? schema.additionalProperties : undefined;
  const out = {};
  for (const name of Object.keys(value)) {
    const guide = Object.hasOwn(properties, name) ? properties[name] : rest;
    const item = guide === undefined ? value[name] : reviveNode(value[name], guide, root);
    if (name === "__proto__") {
      Object.defineProperty(out, name, { value: item, enumerable: true, configurable: true, writable: true });
    } else {
      out[name] = item;
    }
  }
  return out;
}

function reviveNode(value, schema, root) {
  let node = followRefs(schema, root);
  for (let hops = 0; isObject(node) && Array.isArray(node.anyOf); hops += 1) {
    if (value === null || hops === MAX_REF_HOPS) return value;
    const branches = node.anyOf.filter((branch) => !(isObject(branch) && branch.type === "null"));
    if (branches.length !== 1) return value;
    node = followRefs(branches[0], root);
  }
  if (!isObject(node)) return value;
  switch (node.type) {
    case "string":
      return reviveString(value, node);
    case "array":
      return reviveArray(value, node, root);
    case "object":
      return reviveObject(value, node, root);
    default:
      return value;
  }
}

/** Native values for JSON, as the schema says; whatever the schema does not reach stays as it is. */
export function reviveBySchema(value, schema) {
  try {
    return isObject(schema) ? reviveNode(value, schema, schema) : value;
  } catch {
    return value; // nesting that exhausts the stack, accessors that throw
  }
}

// ---------------------------------------------------------------------------------------------
// Durations

const DURATION = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$/i;
const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Whole milliseconds of `"250ms"`, `"1.5h"`, …; undefined when the text is not a duration. */
export function parseDurationMs(text) {
  const match = DURATION.exec(text);
  if (match === null) return undefined;
  return Math.round(Number(match[1]) * UNIT_MS[match[2].toLowerCase()]);
}

const SLEEP_USAGE = 'sleep takes milliseconds, "30s" | "5m" | "1.5h" | "7d", { durationMs } or { until: Date | ISO text }';

/** The wire form of what the author passed to `sleep`. Throws TypeError, or RangeError on an invalid Date. */
export function normalizeSleepArg(arg) {
  if (typeof arg === "number") {
    if (!Number.isFinite(arg) || arg < 0) throw new TypeError(`${SLEEP_USAGE}; got ${arg}`);
    return arg;
  }
  if (typeof arg === "string") {
    const durationMs = parseDurationMs(arg);
    if (durationMs === undefined) throw new TypeError(`${SLEEP_USAGE}; got ${stringifyJson(arg)}`);
    return { durationMs };
  }
  if (isObject(arg) && !(arg instanceof Date)) {
    if (arg.durationMs !== undefined) {
      if (typeof arg.durationMs !== "number") throw new TypeError(`${SLEEP_USAGE}; durationMs is not a number`);
      return { durationMs: arg.durationMs };
    }
    if (arg.until instanceof Date) return { until: dateToIso.call(arg.until) };
    if (typeof arg.until === "string") return { until: arg.until };
  }
  throw new TypeError(SLEEP_USAGE);
}

// ---------------------------------------------------------------------------------------------
// Artifact bodies

export function artifactBody(body) {
  if (typeof body === "string") return { encoding: "utf8", data: body };
  if (ArrayBuffer.isView(body)) return { encoding: "base64", data: encodeBytes(body) };
  if (body instanceof ArrayBuffer) return { encoding: "base64", data: encodeBytes(new Uint8Array(body)) };
  throw new TypeError("artifacts.write takes text or bytes as its body; turn an object into text with JSON.stringify first");
}

// ---------------------------------------------------------------------------------------------
// Agent options: what the author wrote, and what the wire carries

const AGENT_OPTIONS = new Set([
  "name", "model", "provider", "reasoning", "schema", "tools", "builtins", "cwd", "mcp", "skills",
  "memory", "humanInput", "maxIterations", "session", "attachments",
]);

/** Options for which null means the same as leaving them out. */
const NULLABLE_OPTIONS = new Set(["tools", "builtins", "cwd", "mcp", "skills", "attachments"]);

const BUILTIN_TOOLS = new Set([
  "read", "write", "edit", "ls", "grep", "glob", "bash", "apply_patch", "diagnostics", "navigate",
  "clock", "todo", "webfetch", "http", "web_search", "artifacts", "subagent", "run_code",
]);

const TOOL_SHAPE = "{ name, description, inputSchema, execute: async (input) => … }";

function badOption(message, hint) {
  return new HostError("INVALID_PARAMS", `agent: ${message}`, hint === undefined ? undefined : { hint });
}

function wireTool(tool, index) {
  if (!isObject(tool)) {
    const known = typeof tool === "string" && BUILTIN_TOOLS.has(tool);
    throw badOption(
      `tools[${index}] is ${typeof tool === "string" ? `the name "${tool}"` : "not an object"}`,
      known
        ? `"${tool}" is built in and already offered; builtins: ["${tool}"] restricts an agent to it`
        : `tools takes definitions of your own: ${TOOL_SHAPE}`,
    );
  }
  const problems = [];
  if (!isFilled(tool.name)) problems.push("name: must be text");
  if (!isText(tool.description)) problems.push("description: must be text");
  const schema = tool.inputSchema ?? tool.input_schema;
  if (!isObject(schema)) problems.push("inputSchema: must be a JSON Schema object");
  const execute = tool.execute ?? tool.handler;
  if (typeof execute !== "function") problems.push("execute: must be a function");
  if (tool.timeoutMs !== undefined && !(Number.isFinite(tool.timeoutMs) && tool.timeoutMs > 0)) {
    problems.push("timeoutMs: must be a number above 0");
  }
  if (problems.length > 0) throw badOption(`tools[${index}]: ${problems.join("; ")}`, `a tool is ${TOOL_SHAPE}`);
  return {
    declaration: { name: tool.name, description: tool.description, input_schema: schema },
    handler: { name: tool.name, execute: (input, call) => execute.call(tool, input, call), timeoutMs: tool.timeoutMs },
  };
}

function wireAttachment(attachment) {
  if (!isObject(attachment) || !ArrayBuffer.isView(attachment.data)) return attachment;
  return { ...attachment, data: encodeBytes(attachment.data) };
}

function wireSession(session) {
  if (isObject(session) && isFilled(session.id)) return session.id;
  throw badOption("session is not an open session", "pass what computer.openBrowser or computer.openDesktop returned");
}

/**
 * The wire options and the tools by name, of the options an author wrote. Throws a HostError
 * INVALID_PARAMS with a hint for what the host would refuse without one.
 */
export function agentWireOptions(options) {
  if (options === undefined || options === null) return {};
  if (!isObject(options)) throw badOption("the options are not an object", 'for example agent("…", { model: "…" })');
  const wire = {};
  let tools;
  for (const [key, value] of Object.entries(options)) {
    if (!AGENT_OPTIONS.has(key)) {
      throw badOption(`unknown option "${key}"`, `known options: ${[...AGENT_OPTIONS].join(", ")}`);
    }
    if (value === undefined || (value === null && NULLABLE_OPTIONS.has(key))) continue;
    if (key === "tools") {
      if (!Array.isArray(value)) throw badOption("tools must be an array", `a tool is ${TOOL_SHAPE}`);
      const wired = value.map(wireTool);
      tools = new Map(wired.map(({ handler }) => [handler.name, handler]));
      if (tools.size < wired.length) throw badOption("two tools have the same name");
      wire.tools = wired.map(({ declaration }) => declaration);
    } else if (key === "session") {
      wire.sessionId = wireSession(value);
    } else if (key === "attachments" && Array.isArray(value)) {
      wire.attachments = value.map(wireAttachment);
    } else if (key !== "maxIterations" || Number.isFinite(value)) {
      wire[key] = value;
    }
  }
  return { wire, tools };
}
