// The workflow descriptor: its schema, its defaults and its key templates.
"use strict";
const { placeOf, readJsonc } = require("./jsonc.cjs");
const {
  anyObject, bool, integer, issue, list, literal, number, object, oneOf, optional, pathText, record,
  schema, text, typeName, union, variants, withDefault,
} = require("./schema.cjs");
const {
  DescriptorValidationError, GITHUB_TRIGGER_EVENTS, JIRA_TRIGGER_EVENTS, LINEAR_TRIGGER_EVENTS,
  NOTION_TRIGGER_EVENTS,
} = require("./vocabulary.cjs");

// -- fields

const slug = () => text({ min: 1, max: 100, pattern: /^[a-zA-Z0-9-]+$/ });

const relativePath = () =>
  text({
    min: 1,
    max: 512,
    rules: [
      (value) => (value.startsWith("/") ? "Must be relative to the package" : undefined),
      (value) => (value.includes("\\") ? "Must use / between folders" : undefined),
      (value) => (value.split("/").includes("") ? "Must not have an empty segment" : undefined),
      (value) => (value.split("/").some((part) => part === "." || part === "..") ? 'Must not have a "." or ".." segment' : undefined),
    ],
  });

const cronExpression = () =>
  text({
    min: 1,
    max: 120,
    rules: [
      (value) => {
        const fields = value.trim().split(/\s+/).length;
        return fields === 5 || fields === 6 ? undefined : `Must have 5 or 6 fields, has ${value.trim() === "" ? 0 : fields}`;
      },
    ],
  });

const onEvent = (kind, events, more = {}) => object({ kind: literal(kind), event: oneOf(...events), ...more });

const trigger = variants("kind", {
  manual: object({ kind: literal("manual") }),
  cron: object({
    kind: literal("cron"),
    expr: cronExpression(),
    timezone: optional(text({ min: 1, max: 80 })),
    input: optional(anyObject()),
  }),
  webhook: object({ kind: literal("webhook"), name: slug() }),
  workflow_run: object({
    kind: literal("workflow_run"),
    workflows: list(slug(), { min: 1, max: 20 }),
    conclusions: optional(list(oneOf("success", "failure", "cancelled"), { min: 1 })),
  }),
  github: onEvent("github", GITHUB_TRIGGER_EVENTS, {
    repos: optional(
      list(text({ max: 140, pattern: /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})\/[A-Za-z0-9._-]{1,100}$/ }), { min: 1, max: 50 }),
    ),
  }),
  linear: onEvent("linear", LINEAR_TRIGGER_EVENTS),
  jira: onEvent("jira", JIRA_TRIGGER_EVENTS),
  notion: onEvent("notion", NOTION_TRIGGER_EVENTS),
});

const SECRET_REFERENCE = /^\$\{\{\s*secrets\.[A-Za-z0-9_-]+\s*\}\}$/;

const envValue = () =>
  text({
    max: 32768,
    rules: [
      (value) =>
        value.includes("${{") && !SECRET_REFERENCE.test(value)
          ? "A reference must be the whole value: ${{ secrets.NAME }}"
          : undefined,
    ],
  });

const workspace = object({
  persist: optional(union(bool(), list(relativePath(), { min: 1, max: 50 }))),
  key: optional(text({ min: 1, max: 200 })),
});

/** Inside `persist`, the problems of the list are told apart from those of the boolean. */
const persistAware = schema((value, path, issues) => {
  const paths = value?.persist;
  if (!Array.isArray(paths)) return workspace.check(value, path, issues);
  list(relativePath(), { min: 1, max: 50 }).check(paths, [...path, "persist"], issues);
  const rest = workspace.check({ ...value, persist: true }, path, issues);
  return { ...rest, persist: paths };
});

const budget = object({
  max_tokens: optional(integer(1)),
  max_usd: optional(number({ above: 0 })),
  max_compute_seconds: optional(integer(1)),
});

const lane = (mode) => object({ mode: literal(mode), key: optional(text({ min: 1, max: 200 })) });

const concurrency = variants("mode", {
  serial: lane("serial"),
  latest_wins: lane("latest_wins"),
  unlimited: object({ mode: literal("unlimited") }),
});

const HOSTED = ["boardwalk/linux", "boardwalk/linux-node", "boardwalk/linux-python"];

const selfHosted = object({
  kind: literal("self-hosted"),
  pool: withDefault(text({ min: 1, max: 120 }), () => "default"),
  labels: optional(list(text({ min: 1, max: 120 }))),
});

const hosted = object({ label: oneOf(...HOSTED), size: optional(oneOf("small", "medium", "large", "xlarge")) });

const runsOn = schema((value, path, issues) => {
  if (typeof value === "object" && value !== null) {
    return (Object.hasOwn(value, "kind") ? selfHosted : hosted).check(value, path, issues);
  }
  return oneOf(...HOSTED).check(value, path, issues);
});

const permissions = object({
  id_token: optional(oneOf("none", "write")),
  artifacts: optional(oneOf("none", "read", "write")),
  contents: optional(oneOf("none", "read", "write")),
  secrets: optional(list(object({ name: text({ min: 1, max: 120 }) }))),
});

const byRole = object({ roles: list(oneOf("owner", "admin", "member", "viewer"), { min: 1 }) });
const byWorkflow = object({ workflows: list(slug(), { min: 1 }) });

const callableBy = schema((value, path, issues) => {
  if (typeof value === "object" && value !== null) {
    return (Object.hasOwn(value, "roles") ? byRole : byWorkflow).check(value, path, issues);
  }
  return oneOf("anyone_in_org", "users_only", "workflows_only").check(value, path, issues);
});

const egress = variants("level", {
  custom: object({ level: literal("custom"), allow: list(text({ min: 1, max: 256 }), { min: 1 }) }),
  none: object({ level: literal("none") }),
  full: object({ level: literal("full") }),
});

const target = () => text({ min: 1, max: 2048 });
const onEnd = (on) =>
  object({ on: literal(on), channel: oneOf("email", "webhook"), target: target(), template: optional(text({ max: 10000 })) });
const onBudget = object({ on: literal("budget_exceeded"), channel: literal("email"), target: target() });
const byEnd = variants("on", {
  completion: onEnd("completion"),
  failure: onEnd("failure"),
  cancelled: onEnd("cancelled"),
  budget_exceeded: onBudget,
});

const notification = schema((value, path, issues) => {
  if (value?.on === "budget_exceeded" && value.channel === "webhook") {
    issue(issues, path, "budget_exceeded is told by email only");
    return value;
  }
  return byEnd.check(value, path, issues);
});

const FIELDS = {
  slug: slug(),
  title: optional(
    text({ min: 1, max: 200, rules: [(value) => (value.includes("\n") ? "Must be a single line" : undefined)] }),
  ),
  description: optional(text({ max: 1000 })),
  entry: optional(relativePath()),
  triggers: list(trigger, { min: 1 }),
  env: optional(record(envValue(), { key: text({ min: 1, max: 120 }), max: 100 })),
  workspace: optional(persistAware),
  recording: optional(bool()),
  budget: optional(budget),
  concurrency: withDefault(concurrency, () => ({ mode: "unlimited" })),
  runs_on: withDefault(runsOn, () => "boardwalk/linux"),
  container: optional(object({ image: text({ min: 1, max: 512 }) })),
  permissions: optional(permissions),
  callable_by: withDefault(callableBy, () => "anyone_in_org"),
  egress: optional(egress),
  notifications: optional(list(notification)),
  files: optional(list(relativePath(), { min: 1, max: 100 })),
};

const DERIVED = ["input_schema", "output_schema"];

const descriptorSchema = object(FIELDS);

/** A descriptor with its defaults filled in, and the schemas that a deploy derives. */
const workflowManifestSchema = object({
  ...FIELDS,
  input_schema: optional(anyObject()),
  output_schema: optional(anyObject()),
});

// -- key templates

const OPERATORS = /[+\-*/%<>!&|?=~^]/;

/** The path and the fallback of what stands between `${` and `}`; no `??`: no fallback. */
function splitFallback(body) {
  const at = body.indexOf("??");
  if (at < 0) return { path: body.trim() };
  return { path: body.slice(0, at).trim(), fallback: body.slice(at + 2).trim() };
}

function fallbackProblem(fallback) {
  if (fallback === "") return 'a value is missing after "??"';
  if (/^(''|"")$/.test(fallback)) return "the fallback must not be empty";
  if (!/^(?:'[^'\\]+'|"[^"\\]+")$/.test(fallback)) return "the fallback must be one text in quotes, without backslashes";
  return undefined;
}

function accessorProblem(rest) {
  let left = rest;
  while (left !== "") {
    const step = /^(?:\.([A-Za-z_$][A-Za-z0-9_$]*)|\[(0|[1-9]\d*)\])/.exec(left);
    if (step === null) return stepProblem(left);
    left = left.slice(step[0].length);
  }
  return undefined;
}

function stepProblem(left) {
  if (left.startsWith("[")) {
    return left.includes("]") ? "an index must be a whole number without leading zeros" : 'a "[" is not closed';
  }
  if (left.includes("(")) return "a function cannot be called here";
  if (/^\.(?:\.|\[|$)/.test(left)) return "a segment is empty";
  if (/\s/.test(left)) return "a path cannot contain whitespace";
  if (OPERATORS.test(left)) return "a path cannot contain operators";
  if (/^\.\d/.test(left)) return "a field name cannot start with a digit";
  return `unexpected character ${JSON.stringify([...left.replace(/^\./, "")][0] ?? left)}`;
}

function pathProblem(path) {
  if (path === "") return "the interpolation is empty";
  if (path === "input") return "the whole input is not a single value: name a field, as in input.id";
  if (!/^input[.[]/.test(path)) return 'a path must start with "input."';
  return accessorProblem(path.slice("input".length));
}

/** Every problem of a key template, each with the index of its `${`. */
function validateConcurrencyKeyTemplate(template) {
  const issues = [];
  for (let at = template.indexOf("${"); at >= 0; at = template.indexOf("${", at)) {
    const end = template.indexOf("}", at);
    if (end < 0) {
      issues.push({ index: at, message: 'a "${" is not closed' });
      break;
    }
    const { path, fallback } = splitFallback(template.slice(at + 2, end));
    const problems = [fallback === undefined ? undefined : fallbackProblem(fallback), pathProblem(path)];
    for (const message of problems) if (message !== undefined) issues.push({ index: at, message });
    at = end + 1;
  }
  return issues;
}

// -- parsing

function placed(problem, source) {
  if (source === undefined) return { path: pathText(problem.path), message: problem.message };
  // The problem of an absent key is placed at the object that misses it.
  let path = problem.path;
  while (path.length > 0 && !source.offsets.has(JSON.stringify(path))) path = path.slice(0, -1);
  return { path: pathText(problem.path), message: problem.message, ...placeOf(source.text, source.offsets.get(JSON.stringify(path)) ?? 0) };
}

const listed = (issues) =>
  issues.map(({ path, message, line }) => `  ${path}: ${message}${line === undefined ? "" : ` (line ${line})`}`).join("\n");

function templateIssues(descriptor) {
  const found = [];
  for (const field of ["concurrency", "workspace"]) {
    const template = descriptor[field]?.key;
    if (typeof template !== "string") continue;
    for (const { index, message } of validateConcurrencyKeyTemplate(template)) {
      found.push({ path: [field, "key"], index, message });
    }
  }
  return found;
}

function failTemplates(issues, source) {
  const fields = [...new Set(issues.map(({ path }) => path.join(".")))];
  const text = fields.map((field) => {
    const lines = issues.filter(({ path }) => path.join(".") === field);
    return [`${field} template is invalid:`, ...lines.map(({ index, message }) => `  at index ${index}: ${message}`)].join("\n");
  });
  throw new DescriptorValidationError(text.join("\n"), issues.map((problem) => ({ ...placed(problem, source), index: problem.index })));
}

/** The descriptor in `text`, with its defaults. Throws DescriptorValidationError with every problem. */
function parseWorkflowDescriptor(text) {
  let source;
  try {
    source = { text, ...readJsonc(text) };
  } catch (error) {
    const { line, column } = error;
    const message = `workflow.jsonc is not valid JSONC: ${error.message}`;
    throw new DescriptorValidationError(message, [{ path: "(root)", message: error.message, line, column }]);
  }
  const { value } = source;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new DescriptorValidationError(`workflow.jsonc must hold a single JSON object, not ${typeName(value)}`);
  }
  const { $schema, ...rest } = value;
  void $schema;
  const derived = DERIVED.filter((key) => Object.hasOwn(rest, key));
  if (derived.length > 0) {
    throw new DescriptorValidationError(
      `workflow.jsonc sets ${derived.join(" and ")}: schemas are derived from the program at deploy, remove ${derived.length === 1 ? "it" : "them"}`,
      derived.map((key) => ({ ...placed({ path: [key], message: "is derived, remove it" }, source) })),
    );
  }
  const result = descriptorSchema.safeParse(rest);
  if (!result.success) {
    const issues = result.error.issues.map((problem) => placed(problem, source));
    throw new DescriptorValidationError(`workflow.jsonc failed descriptor validation:\n${listed(issues)}`, issues);
  }
  const templates = templateIssues(result.data);
  if (templates.length > 0) failTemplates(templates, source);
  return result.data;
}

module.exports = { parseWorkflowDescriptor, splitFallback, validateConcurrencyKeyTemplate, workflowManifestSchema };
