import assert from "node:assert/strict";
import { test } from "node:test";
import {
  DEFAULT_ENTRY_SOURCES, DescriptorValidationError, GITHUB_TRIGGER_EVENTS, JIRA_TRIGGER_EVENTS, LINEAR_TRIGGER_EVENTS,
  NOTION_TRIGGER_EVENTS, PYTHON_DEFAULT_ENTRY, parseJsonc, parseWorkflowDescriptor, splitFallback,
  validateConcurrencyKeyTemplate, workflowManifestSchema,
} from "../index.mjs";

const MANUAL = [{ kind: "manual" }];
const DEFAULTS = { concurrency: { mode: "unlimited" }, runs_on: "boardwalk/linux", callable_by: "anyone_in_org" };
const minimal = (more) => ({ slug: "x", triggers: MANUAL, ...more });
const parse = (value) => parseWorkflowDescriptor(typeof value === "string" ? value : JSON.stringify(value));

function problems(value) {
  try {
    parse(value);
  } catch (error) {
    assert.ok(error instanceof DescriptorValidationError, error.stack);
    assert.equal(error.name, "DescriptorValidationError");
    return error;
  }
  return assert.fail(`accepted ${typeof value === "string" ? value : JSON.stringify(value)}`);
}

// -- JSONC

test("reads comments and trailing commas", () => {
  const table = [
    ['{"a":[1,2,],}', { a: [1, 2] }],
    ["[,]", []],
    ["{,}", {}],
    ['{"a":[,]}', { a: [] }],
    ["// one\n[1 /* two\n lines */, 2] // end", [1, 2]],
    ['{"url":"https://x//y","c":"/* no */","t":",}"}', { url: "https://x//y", c: "/* no */", t: ",}" }],
    ['{"a":1,"a":2}', { a: 2 }],
    ["// \u2028 still a comment\n1", 1],
    ["// cr ends it\r2", 2],
    ["\uFEFF{}", {}],
    ['"\\u00e9\\n\\/"', "é\n/"],
    [" -1.5e+3 ", -1500],
    ["null", null],
  ];
  for (const [text, value] of table) assert.deepEqual(parseJsonc(text), value, text);
  assert.deepEqual(Object.keys(parseJsonc('{"__proto__":1}')), ["__proto__"]);
});

test("refuses what is not JSON and says where", () => {
  const table = [
    ["[1,,]", 1, 4],
    ["[,,]", 1, 2],
    ['{"a":1,,}', 1, 8],
    ["# comment", 1, 1],
    ["{'a':1}", 1, 2],
    ["{a:1}", 1, 2],
    ["NaN", 1, 1],
    ["0x10", 1, 2],
    ["01", 1, 2],
    ["", 1, 1],
    ["1 2", 1, 3],
    ["{}\n{}", 2, 1],
    ['{\n  "a": tru\n}', 2, 8],
    ["/* open", 1, 1],
    ['"open', 1, 1],
    ['"a\nb"', 1, 3],
    ['"\\x"', 1, 2],
    ['"\\u12"', 1, 2],
    ["[1 2]", 1, 4],
    ['{"a" 1}', 1, 6],
    ["[1", 1, 3],
    [`${"[".repeat(600)}`, 1, 513],
  ];
  for (const [text, line, column] of table) {
    assert.throws(() => parseJsonc(text), (error) => {
      assert.ok(error instanceof SyntaxError);
      assert.deepEqual([error.line, error.column], [line, column], `${JSON.stringify(text)}: ${error.message}`);
      return true;
    });
  }
});

// -- valid descriptors

test("fills the defaults of the smallest descriptor", () => {
  assert.deepEqual(parse('{ "slug": "ping", "triggers": [{ "kind": "manual" }] }'), { slug: "ping", triggers: MANUAL, ...DEFAULTS });
});

const VALID = [
  `{ "$schema": "https://boardwalk.sh/schemas/workflow.json", "slug": "Nightly-Sweep", /* ok */\r\n
     "title": "Nightly sweep — staging",
     "triggers": [ { "kind": "cron", "expr": "30 2 * * *", "timezone": "Europe/Lisbon", "input": { "depth": 3, }, },
                   { "kind": "manual", }, ], }`,
  { slug: "heartbeat", entry: "lib/beat.mts", triggers: [{ kind: "cron", expr: "*/15 * * * * *" }] },
  {
    slug: "repo-indexer",
    triggers: [{ kind: "webhook", name: "gh-org" }],
    concurrency: { mode: "latest_wins", key: "idx:${input.repository.full_name ?? 'unknown'}" },
    workspace: { persist: ["index", "cache/blobs"], key: "${input.repository.full_name ?? 'unknown'}" },
  },
  minimal({
    permissions: { id_token: "write", artifacts: "write", contents: "none", secrets: [{ name: "LEDGER_KEY" }, { name: "slack-hook" }] },
    env: { LEDGER_API_KEY: "${{ secrets.LEDGER_KEY }}", SLACK: "${{secrets.slack-hook}}", PRICE: "$5 {flat}" },
  }),
  minimal({
    description: "",
    budget: { max_usd: 0.75, max_tokens: 400000, max_compute_seconds: 5400 },
    notifications: [
      { on: "failure", channel: "webhook", target: "https://ops.example/hook", template: "run {id} failed" },
      { on: "budget_exceeded", channel: "email", target: "finance@example.com" },
    ],
  }),
  minimal({ recording: false, runs_on: { kind: "self-hosted", labels: ["gpu", "a100"] }, container: { image: "registry.example/eval:7" } }),
  minimal({
    runs_on: { label: "boardwalk/linux-node", size: "large" },
    egress: { level: "custom", allow: ["api.example.com", "*.cdn.example.com"] },
    callable_by: { workflows: ["orchestrator", "nightly"] },
  }),
  {
    slug: "fan-in",
    triggers: [
      { kind: "github", event: "ci.completed", repos: ["acme/web", "acme/api.v2"] },
      { kind: "linear", event: "issue.status_changed" },
      { kind: "jira", event: "issue.commented" },
      { kind: "notion", event: "page.updated" },
      { kind: "workflow_run", workflows: ["build", "lint"], conclusions: ["failure", "cancelled"] },
    ],
  },
  minimal({
    entry: "app/main.py",
    files: ["prompts/**", "data/weights.json", "*.csv"],
    concurrency: { mode: "serial", key: '${input.tenant}/${ input.rows[0].id ?? "none" }' },
  }),
  minimal({ workspace: {}, budget: {}, permissions: { secrets: [] }, notifications: [], env: {} }),
  minimal({ workspace: { persist: true } }),
  minimal({ triggers: [{ kind: "cron", expr: "a b c d e" }] }),
  minimal({ egress: { level: "none" }, callable_by: { roles: ["owner", "viewer"] }, runs_on: { kind: "self-hosted" } }),
  minimal({ slug: "-", entry: "C:/x y/*.env." }),
  minimal({ title: "🙂".repeat(100), budget: { max_tokens: 1 } }),
];

for (const [index, sample] of VALID.entries()) {
  test(`accepts the valid sample number ${index + 2}`, () => {
    const descriptor = parse(sample);
    const { $schema, ...given } = typeof sample === "string" ? parseJsonc(sample) : sample;
    const expected = { ...DEFAULTS, ...given };
    if (given.runs_on?.kind === "self-hosted") expected.runs_on = { pool: "default", ...given.runs_on };
    assert.deepEqual(descriptor, expected);
    assert.deepEqual(parse(descriptor), descriptor, "parsing twice changes nothing");
    assert.deepEqual(workflowManifestSchema.parse({ ...descriptor, input_schema: { type: "object" } }), { ...descriptor, input_schema: { type: "object" } });
    assert.equal($schema === undefined || !("$schema" in descriptor), true);
  });
}

test("writes fields in the order of the schema", () => {
  const descriptor = parse({ files: ["a"], triggers: MANUAL, title: "t", slug: "x" });
  assert.deepEqual(Object.keys(descriptor), ["slug", "title", "triggers", "concurrency", "runs_on", "callable_by", "files"]);
});

// -- invalid descriptors

const INVALID = [
  [{ slug: "x" }, "triggers"],
  [{ slug: "x", triggers: [] }, "triggers"],
  [minimal({ slug: "nightly_sweep" }), "slug"],
  [minimal({ name: "X" }), "(root)"],
  [minimal({ triggers: [{ kind: "cron", expr: "@hourly" }] }), "triggers.0.expr"],
  [minimal({ triggers: [{ kind: "cron", expr: "* * * * *", input: ["a"] }] }), "triggers.0.input"],
  [minimal({ triggers: [{ kind: "webhook", name: "w", auth: "token" }] }), "triggers.0"],
  [minimal({ triggers: [{ kind: "event", event_name: "deploy" }] }), "triggers.0.kind"],
  [minimal({ triggers: [{ kind: "github", event: "pr.opened", repos: ["api"] }] }), "triggers.0.repos.0"],
  [minimal({ triggers: [{ kind: "github", event: "pull_request.closed" }] }), "triggers.0.event"],
  [minimal({ env: { DSN: "postgres://u:${{ secrets.PW }}@db" } }), "env.DSN"],
  [minimal({ env: { K: "${{ secrets.K }} " } }), "env.K"],
  [minimal({ env: { K: "${{ secrets.K }}\n" } }), "env.K"],
  [minimal({ permissions: { secrets: ["GH"] } }), "permissions.secrets.0"],
  [minimal({ workspace: { persist: ["../shared"] } }), "workspace.persist.0"],
  [minimal({ budget: { deadline_seconds: 60 } }), "budget"],
  [minimal({ concurrency: { mode: "unlimited", key: "${input.a}" } }), "concurrency"],
  [minimal({ egress: { level: "full", allow: ["a.example"] } }), "egress"],
  [minimal({ notifications: [{ on: "budget_exceeded", channel: "webhook", target: "t" }] }), "notifications.0"],
  [minimal({ files: ["/etc/hosts"] }), "files.0", 2],
  [minimal({ entry: "./src/index.ts" }), "entry"],
  [minimal({ title: null }), "title"],
  [minimal({ title: "a\nb" }), "title"],
  [minimal({ budget: { max_tokens: 1e17 } }), "budget.max_tokens"],
  [minimal({ budget: { max_usd: 0 } }), "budget.max_usd"],
  [minimal({ container: {} }), "container.image"],
  [minimal({ runs_on: "boardwalk/windows" }), "runs_on"],
  [minimal({ runs_on: { kind: "self-hosted", label: "boardwalk/linux" } }), "runs_on"],
  [minimal({ callable_by: { roles: [] } }), "callable_by.roles"],
  [minimal({ callable_by: { roles: ["owner"], workflows: ["a"] } }), "callable_by"],
  [minimal({ concurrency: { mode: "serial_by_key" } }), "concurrency.mode"],
  [minimal({ entry: "dir/" }), "entry"],
  [minimal({ entry: "a\\b" }), "entry"],
  [minimal({ files: [] }), "files"],
  [minimal({ description: "x".repeat(1001) }), "description"],
  [minimal({ title: "🙂".repeat(101) }), "title"],
  [minimal({ slug: "x".repeat(101) }), "slug"],
  ['{"slug":"x","triggers":[{"kind":"manual"}],"__proto__":1}', "(root)"],
];

for (const [index, [sample, path, count = 1]] of INVALID.entries()) {
  test(`refuses the invalid sample number ${index + 1} at ${path}`, () => {
    const error = problems(sample);
    assert.deepEqual(error.issues.map((issue) => issue.path), Array.from({ length: count }, () => path), error.message);
    assert.match(error.message, /^workflow\.jsonc failed descriptor validation:\n {2}/);
    assert.ok(error.issues.every((issue) => issue.line >= 1 && issue.column >= 1));
  });
}

test("reports all problems at once, each with its line", () => {
  const error = problems('{\n  "slug": "a_b",\n  "triggers": [\n    { "kind": "cron", "expr": "@daily", "zone": 1 }\n  ],\n  "extra": 1, "more": 2\n}');
  assert.deepEqual(error.issues.map(({ path, line }) => [path, line]), [
    ["slug", 2],
    ["triggers.0.expr", 4],
    ["triggers.0", 4],
    ["(root)", 1],
  ]);
  assert.match(error.message, /Unrecognized keys: "extra", "more" \(line 1\)/);
  assert.match(error.message, /Unrecognized key: "zone" \(line 4\)/);
});

test("refuses a root that is no object, text that is no JSON, and derived fields", () => {
  assert.match(problems("[{}]").message, /single JSON object, not array/);
  assert.match(problems("null").message, /single JSON object, not null/);
  assert.match(problems("# note").message, /^workflow\.jsonc is not valid JSONC: .*line 1, column 1/);
  for (const value of [{ type: "object" }, null]) {
    const error = problems({ slug: "bad slug", input_schema: value });
    assert.match(error.message, /input_schema: schemas are derived/);
    assert.deepEqual(error.issues.map((issue) => issue.path), ["input_schema"]);
  }
});

// -- key templates

const TEMPLATES = [
  ["${input.a}", []],
  ["${input[0]}", []],
  ['${ input.a[0].b ?? "none" }', []],
  ["${input.a??'n'}", []],
  ["x", []],
  ["{input.a}", []],
  ["$${input.a}", []],
  ["$5", []],
  ["${input.__proto__}", []],
  ["${}", [0]],
  ["${?? 'x'}", [0]],
  ["${input}", [0]],
  ["${repo}", [0]],
  ["${inputs.a}", [0]],
  ["${ input . a }", [0]],
  ["${input.a()}", [0]],
  ["${input.a-b}", [0]],
  ["${input.a+1}", [0]],
  ["${input.a b}", [0]],
  ["${input.é}", [0]],
  ["${input.a@b}", [0]],
  ["${input.a.}", [0]],
  ["${input..a}", [0]],
  ["${input.1a}", [0]],
  ['${input["a"]}', [0]],
  ["${input.a[01]}", [0]],
  ["${input.a[-1]}", [0]],
  ["${input.a[0}", [0]],
  ["${input.a ?? ''}", [0]],
  ["${input.a ?? }", [0]],
  ["${input.a ?? n}", [0]],
  ["${input.a ?? input.b}", [0]],
  ['${input.a ?? "b" ?? "c"}', [0]],
  ["${input.a", [0]],
  ["${repo}-${input.a+1}", [0, 8]],
  ["${repo ?? n}", [0, 0]],
  ["ok ${input.a} then ${", [19]],
];

for (const [template, indexes] of TEMPLATES) {
  test(`judges the key template ${template}`, () => {
    const issues = validateConcurrencyKeyTemplate(template);
    assert.deepEqual(issues.map((issue) => issue.index), indexes, JSON.stringify(issues));
    const value = minimal({ concurrency: { mode: "serial", key: template } });
    if (indexes.length === 0) assert.equal(parse(value).concurrency.key, template);
    else assert.match(problems(value).message, /^concurrency\.key template is invalid:\n {2}at index \d+: /);
  });
}

test("shows the problems of both templates", () => {
  const error = problems(minimal({ concurrency: { mode: "serial", key: "${a}" }, workspace: { key: "${input.a ?? input.b}" } }));
  assert.deepEqual(error.issues.map((issue) => issue.path), ["concurrency.key", "workspace.key"]);
  assert.match(error.message, /concurrency\.key template is invalid:.*workspace\.key template is invalid:/s);
});

test("splits a fallback at the first mark", () => {
  assert.deepEqual(splitFallback(" input.a "), { path: "input.a" });
  assert.deepEqual(splitFallback("input.a ?? 'b' ?? 'c'"), { path: "input.a", fallback: "'b' ?? 'c'" });
  assert.deepEqual(splitFallback("??"), { path: "", fallback: "" });
});

test("lists entries and trigger events in their order", () => {
  assert.equal(DEFAULT_ENTRY_SOURCES[0], "src/index.ts");
  assert.equal(DEFAULT_ENTRY_SOURCES.length, 10);
  assert.equal(PYTHON_DEFAULT_ENTRY, "main.py");
  assert.deepEqual(GITHUB_TRIGGER_EVENTS, ["pr.opened", "pr.merged", "issue.opened", "issue.commented", "ci.completed"]);
  assert.deepEqual(LINEAR_TRIGGER_EVENTS, JIRA_TRIGGER_EVENTS);
  assert.deepEqual(NOTION_TRIGGER_EVENTS, ["page.created", "page.updated", "comment.created"]);
});
