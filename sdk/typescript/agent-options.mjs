// Agent options: what the author wrote, and what the wire carries.
import { HostError, encodeBytes, isObject } from "./values.mjs";

const isText = (value) => typeof value === "string";
const isFilled = (value) => typeof value === "string" && value !== "";

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
