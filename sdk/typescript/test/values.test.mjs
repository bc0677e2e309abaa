import assert from "node:assert/strict";
import { test } from "node:test";
import {
  HostError, RUN_FATAL_CODES, encodeCanonical, isRunFatal, normalizeSleepArg, parseDurationMs, reviveBySchema,
} from "../values.mjs";
import { normalizeReasoning } from "../index.mjs";

/** What arrives at the host: the encoding as JSON text, parsed. */
const sent = (value) => JSON.parse(JSON.stringify(encodeCanonical(value)));

test("encodes every native value of the table", () => {
  const table = [
    [new Date("2024-03-01T10:00:00.5Z"), "2024-03-01T10:00:00.500Z"],
    [new Date(Number.NaN), null],
    [12345678901234567890n, "12345678901234567890"],
    [new Uint8Array([0, 255, 16]), "AP8Q"],
    [Buffer.from("hello"), "aGVsbG8="],
    [new Uint8Array([1, 2, 3, 4]).buffer, "AQIDBA=="],
    [new Set([2, 1, 2]), [2, 1]],
    [Number.NaN, null],
    [Infinity, null],
    [-Infinity, null],
    [undefined, null],
    [() => 1, null],
    [Symbol("x"), null],
    [{ a: undefined, b: () => 1, c: Symbol("c"), d: null }, { d: null }],
    [[undefined, () => 1, Symbol("c")], [null, null, null]],
    [new Set([undefined]), [null]],
    [{ toJSON: () => ({ at: new Date(0) }) }, { at: "1970-01-01T00:00:00.000Z" }],
    [{ toJSON: () => undefined }, null],
    [new Map([["a", 1n]]), { a: "1" }],
    [new Map([[1, "a"], ["b", 2n]]), [[1, "a"], ["b", "2"]]],
    [new Map(), {}],
    [/x/, {}],
    [new Float32Array([1.5]), { 0: 1.5 }],
    [Object("boxed"), "boxed"],
    [Object(7), 7],
    ["text", "text"],
    [0, 0],
    [false, false],
    [null, null],
  ];
  for (const [value, expected] of table) assert.deepEqual(sent(value), expected);
});

test("encodes an error with its name and message", () => {
  const error = Object.assign(new TypeError("no"), { code: "E_NO" });
  assert.deepEqual(sent({ error }), { error: { name: "TypeError", message: "no", code: "E_NO" } });
});

test("encodes own enumerable keys of instances only", () => {
  class Point {
    #hidden = 3;
    x = 1;
    get length() {
      return this.#hidden;
    }
  }
  assert.deepEqual(sent(new Point()), { x: 1 });
  const inherited = Object.create({ above: 1 });
  inherited.own = 2;
  assert.deepEqual(sent(inherited), { own: 2 });
});

test("keeps a key named __proto__ while encoding and reviving", () => {
  const value = JSON.parse('{"__proto__":{"a":1},"b":2}');
  assert.equal(JSON.stringify(encodeCanonical(value)), '{"__proto__":{"a":1},"b":2}');
  const revived = reviveBySchema(value, { type: "object" });
  assert.deepEqual(Object.keys(revived), ["__proto__", "b"]);
  assert.equal(Object.getPrototypeOf(revived), Object.prototype);
});

test("refuses a cycle and names where it closes", () => {
  const root = { list: [{ name: "x" }] };
  root.list[0]["up there"] = root;
  assert.throws(() => encodeCanonical(root), {
    code: "VALIDATION_FAILED",
    message: /\$\.list\[0\]\["up there"\] refers back to \$:/,
    hint: /back reference/,
  });
  const map = new Map();
  map.set("self", { map });
  assert.throws(() => encodeCanonical([map]), /\$\[0\]\.self\.map refers back to \$\[0\]/);
});

test("encodes the same object twice when it is no cycle", () => {
  const shared = { n: 1 };
  assert.deepEqual(sent([shared, shared, { shared }]), [{ n: 1 }, { n: 1 }, { shared: { n: 1 } }]);
});

test("refuses nesting beyond 512 levels instead of exhausting the stack", () => {
  const nest = (levels) => {
    let value = 1;
    for (let i = 0; i < levels; i += 1) value = [value];
    return value;
  };
  assert.doesNotThrow(() => encodeCanonical(nest(512)));
  assert.throws(() => encodeCanonical(nest(513)), { code: "VALIDATION_FAILED", message: /512 levels/ });
  assert.throws(() => encodeCanonical(nest(100_000)), { code: "VALIDATION_FAILED" });
});

test("encodes with the JSON and Date functions that were there at the start", () => {
  const { toISOString } = Date.prototype;
  Date.prototype.toISOString = () => "patched";
  try {
    assert.equal(encodeCanonical(new Date(0)), "1970-01-01T00:00:00.000Z");
  } finally {
    Date.prototype.toISOString = toISOString;
  }
});

const revivals = [
  ["date", { type: "string", format: "date-time" }, "2024-01-01T00:00:00Z", new Date("2024-01-01T00:00:00Z")],
  ["bad date", { type: "string", format: "date-time" }, "soon", "soon"],
  ["date wins over bytes", { type: "string", format: "date-time", contentEncoding: "base64" }, "2024-01-01", new Date("2024-01-01")],
  ["bytes", { type: "string", contentEncoding: "base64" }, "AP8Q", new Uint8Array([0, 255, 16])],
  ["url-safe bytes", { type: "string", contentEncoding: "base64" }, "-_8", new Uint8Array([251, 255])],
  ["integer", { type: "string", pattern: "^-?\\d+$" }, "-12345678901234567890", -12345678901234567890n],
  ["not an integer", { type: "string", pattern: "^-?\\d+$" }, "1.5", "1.5"],
  ["decimal stays text", { type: "string", pattern: "^-?\\d+(\\.\\d+)?$" }, "1.5", "1.5"],
  ["other pattern", { type: "string", pattern: "^\\d+$" }, "15", "15"],
  ["string schema, number", { type: "string", format: "date-time" }, 5, 5],
  ["array items", { type: "array", items: { type: "string", pattern: "^-?\\d+$" } }, ["1", "x"], [1n, "x"]],
  ["tuple", { type: "array", prefixItems: [{ type: "string", pattern: "^-?\\d+$" }], items: false }, ["1", "2"], [1n, "2"]],
  ["tuple with rest", { type: "array", prefixItems: [{}], items: { type: "string", pattern: "^-?\\d+$" } }, ["1", "2"], ["1", 2n]],
  ["set", { type: "array", uniqueItems: true, items: { type: "string", pattern: "^-?\\d+$" } }, ["1", "1"], new Set([1n])],
  ["unique but not true", { type: "array", uniqueItems: "yes" }, [1], [1]],
  ["array schema, object", { type: "array", uniqueItems: true }, { a: 1 }, { a: 1 }],
  ["properties", { type: "object", properties: { at: { type: "string", format: "date-time" } } }, { at: "2024-01-01", k: "2024-01-01" }, { at: new Date("2024-01-01"), k: "2024-01-01" }],
  ["additional", { type: "object", additionalProperties: { type: "string", pattern: "^-?\\d+$" } }, { a: "1" }, { a: 1n }],
  ["closed object keeps keys", { type: "object", properties: {}, additionalProperties: false }, { a: "1" }, { a: "1" }],
  ["object schema, array", { type: "object", additionalProperties: {} }, ["1"], ["1"]],
  ["nullable null", { anyOf: [{ type: "string", format: "date-time" }, { type: "null" }] }, null, null],
  ["nullable value", { anyOf: [{ type: "null" }, { type: "string", pattern: "^-?\\d+$" }] }, "7", 7n],
  ["two branches", { anyOf: [{ type: "string", pattern: "^-?\\d+$" }, { type: "number" }] }, "7", "7"],
  ["oneOf is not followed", { oneOf: [{ type: "string", pattern: "^-?\\d+$" }] }, "7", "7"],
  ["allOf is not followed", { allOf: [{ type: "string", pattern: "^-?\\d+$" }] }, "7", "7"],
  ["type list", { type: ["string", "null"], pattern: "^-?\\d+$" }, "7", "7"],
  ["empty schema", {}, "7", "7"],
  ["null schema", null, "7", "7"],
  ["absent schema", undefined, "7", "7"],
  ["boolean schema", true, "7", "7"],
  ["ref", { $defs: { "a/b~c": { type: "string", pattern: "^-?\\d+$" } }, $ref: "#/$defs/a~1b~0c" }, "7", 7n],
  ["ref wins over siblings", { $defs: { n: {} }, $ref: "#/$defs/n", type: "string", pattern: "^-?\\d+$" }, "7", "7"],
  ["unresolvable ref", { $ref: "#/$defs/none" }, "7", "7"],
  ["remote ref", { $ref: "https://example.com/s.json" }, "7", "7"],
  ["cyclic ref", { $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" }, "7", "7"],
  ["anyOf that refers to itself", { anyOf: [{ $ref: "#" }] }, "7", "7"],
];

for (const [name, schema, value, expected] of revivals) {
  test(`revives by schema: ${name}`, () => {
    const before = structuredClone(value);
    assert.deepEqual(reviveBySchema(value, schema), expected);
    assert.deepEqual(value, before, "the JSON itself is left alone");
  });
}

test("revives a recursive type at every depth", () => {
  const schema = {
    $ref: "#/$defs/node",
    $defs: { node: { type: "object", properties: { at: { type: "string", format: "date-time" }, next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] } } } },
  };
  const value = { at: "2024-01-01", next: { at: "2024-01-02", next: null } };
  assert.deepEqual(reviveBySchema(value, schema), {
    at: new Date("2024-01-01"),
    next: { at: new Date("2024-01-02"), next: null },
  });
});

test("follows sixteen references and no more", () => {
  const chain = (length) => {
    const $defs = { 0: { type: "string", pattern: "^-?\\d+$" } };
    for (let i = 1; i < length; i += 1) $defs[i] = { $ref: `#/$defs/${i - 1}` };
    return { $defs, $ref: `#/$defs/${length - 1}` };
  };
  assert.equal(reviveBySchema("7", chain(16)), 7n);
  assert.equal(reviveBySchema("7", chain(17)), "7");
});

test("round trips native values with the schema of their types", () => {
  const value = { at: new Date(5), big: 9n, bytes: new Uint8Array([1, 2]), set: new Set(["a"]) };
  const schema = {
    type: "object",
    properties: {
      at: { type: "string", format: "date-time" },
      big: { type: "string", pattern: "^-?\\d+$" },
      bytes: { type: "string", contentEncoding: "base64" },
      set: { type: "array", uniqueItems: true },
    },
  };
  assert.deepEqual(reviveBySchema(sent(value), schema), value);
});

test("reads the duration grammar", () => {
  const good = { "250ms": 250, "1.5h": 5_400_000, " 7 d ": 604_800_000, "30M": 1_800_000, "0s": 0, "1.0005s": 1001, "2 S": 2000 };
  for (const [text, ms] of Object.entries(good)) assert.equal(parseDurationMs(text), ms, text);
  for (const text of [".5h", "5.h", "1h30m", "15 minutes", "15", "-5m", "", "ms", "1w"]) {
    assert.equal(parseDurationMs(text), undefined, text);
  }
});

test("normalises every form of a sleep", () => {
  assert.equal(normalizeSleepArg(1500), 1500);
  assert.equal(normalizeSleepArg(0), 0);
  assert.deepEqual(normalizeSleepArg("2s"), { durationMs: 2000 });
  assert.deepEqual(normalizeSleepArg({ durationMs: -1 }), { durationMs: -1 });
  assert.deepEqual(normalizeSleepArg({ until: new Date(0) }), { until: "1970-01-01T00:00:00.000Z" });
  assert.deepEqual(normalizeSleepArg({ until: "tomorrow" }), { until: "tomorrow" });
  for (const bad of [Number.NaN, Infinity, -1, "soon", {}, { durationMs: "5" }, null, undefined, [], new Date(), true]) {
    assert.throws(() => normalizeSleepArg(bad), TypeError);
  }
  assert.throws(() => normalizeSleepArg({ until: new Date(Number.NaN) }), RangeError);
});

test("knows the run fatal reasons and no others", () => {
  assert.deepEqual(RUN_FATAL_CODES, ["BUDGET_EXCEEDED", "CANCELLED"]);
  for (const code of RUN_FATAL_CODES) assert.equal(isRunFatal(new HostError(code, "x")), true);
  assert.equal(isRunFatal({ fatal: true }), true);
  assert.equal(isRunFatal(Object.assign(() => {}, { code: "CANCELLED" })), true);
  for (const reason of ["CANCELLED", null, undefined, 5, new Error("x"), { fatal: 1 }, { code: "CHILD_CANCELLED" }]) {
    assert.equal(isRunFatal(reason), false);
  }
});

test("shows the hint that a host error carries", () => {
  const error = new HostError("NOT_FOUND", "no such secret", { hint: "declare it" });
  assert.equal(error.hint, "declare it");
  assert.equal(error.name, "HostError");
  assert.ok(error instanceof Error);
  assert.equal(new HostError({ code: "X", message: "y" }).hint, undefined);
  assert.equal("data" in new HostError("X", "y"), false);
});

test("normalises reasoning from both of its forms", () => {
  assert.equal(normalizeReasoning(undefined), undefined);
  assert.equal(normalizeReasoning({}), undefined);
  assert.equal(normalizeReasoning({ exclude: false }), undefined);
  assert.deepEqual(normalizeReasoning("high"), { effort: "high" });
  assert.deepEqual(normalizeReasoning({ effort: "low", maxTokens: 5 }), { effort: "low" });
  assert.deepEqual(normalizeReasoning({ maxTokens: 5, exclude: true }), { maxTokens: 5, exclude: true });
});
