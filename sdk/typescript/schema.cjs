// A small schema library: closed objects, all problems in one pass, paths in each of them.
"use strict";

class SchemaError extends Error {
  constructor(issues) {
    super(issues.map((issue) => `${pathText(issue.path)}: ${issue.message}`).join("\n"));
    this.name = "SchemaError";
    this.issues = issues;
  }
}

/** `triggers.0.expr`; the root is `(root)`. */
const pathText = (path) => (path.length === 0 ? "(root)" : path.join("."));

class Schema {
  constructor(check) {
    /** The checked copy of `value`; problems are added to `issues`. */
    this.check = check;
    this.safeParse = (value) => {
      const issues = [];
      const data = check(value, [], issues);
      return issues.length === 0 ? { success: true, data } : { success: false, error: new SchemaError(issues) };
    };
    this.parse = (value) => {
      const result = this.safeParse(value);
      if (!result.success) throw result.error;
      return result.data;
    };
    this["~standard"] = {
      version: 1,
      vendor: "trestle",
      validate: (value) => {
        const result = this.safeParse(value);
        return result.success ? { value: result.data } : { issues: result.error.issues };
      },
    };
  }
}

const schema = (check) => new Schema(check);

function issue(issues, path, message, more) {
  issues.push({ code: "invalid", path: [...path], message, ...more });
}

function typeName(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

const expected = (issues, path, what, value) =>
  issue(issues, path, value === undefined ? `Required: expected ${what}` : `Expected ${what}, received ${typeName(value)}`);

const isPlain = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** A copy keeps a key named __proto__ as a key. */
function put(target, key, value) {
  if (key === "__proto__") {
    Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
  } else {
    target[key] = value;
  }
}

/** Text of `min` to `max` UTF-16 units; `pattern` and each of `rules` (returning a message) must hold. */
function text({ min = 0, max = Infinity, pattern, rules = [], as = "string" } = {}) {
  return schema((value, path, issues) => {
    if (typeof value !== "string") expected(issues, path, as, value);
    else {
      if (value.length < min) issue(issues, path, min === 1 ? "Must not be empty" : `Must have at least ${min} characters`);
      if (value.length > max) issue(issues, path, `Must have at most ${max} characters`);
      if (pattern !== undefined && !pattern.test(value)) issue(issues, path, `Must match ${pattern}`);
      for (const rule of rules) {
        const message = rule(value);
        if (message !== undefined) issue(issues, path, message);
      }
    }
    return value;
  });
}

const filled = () => text({ min: 1 });

function number({ min = -Infinity, above = -Infinity, integer = false } = {}) {
  const what = integer ? "integer" : "number";
  return schema((value, path, issues) => {
    if (typeof value !== "number" || !Number.isFinite(value)) expected(issues, path, what, value);
    else if (integer && !Number.isSafeInteger(value)) {
      issue(issues, path, Number.isInteger(value) ? "Must be within ±(2^53 - 1)" : "Must be an integer");
    } else if (value < min) issue(issues, path, `Must be at least ${min}`);
    else if (value <= above) issue(issues, path, `Must be above ${above}`);
    return value;
  });
}

const integer = (min) => number({ integer: true, min });

const bool = () =>
  schema((value, path, issues) => {
    if (typeof value !== "boolean") expected(issues, path, "boolean", value);
    return value;
  });

function oneOf(...values) {
  return schema((value, path, issues) => {
    if (!values.includes(value)) {
      const list = values.map((item) => JSON.stringify(item)).join(" | ");
      issue(issues, path, value === undefined ? `Required: expected ${list}` : `Expected ${list}`);
    }
    return value;
  });
}

const literal = (value) => oneOf(value);

const MAX_JSON_DEPTH = 512;

/** A cycle ends at the depth limit: the first value beyond it makes everything above it false. */
function isJson(value, depth) {
  switch (typeof value) {
    case "string":
    case "boolean":
      return true;
    case "number":
      return Number.isFinite(value);
    case "object":
      if (value === null) return true;
      return depth < MAX_JSON_DEPTH && Object.values(value).every((item) => isJson(item, depth + 1));
    default:
      return false;
  }
}

const json = () =>
  schema((value, path, issues) => {
    if (!isJson(value, 0)) issue(issues, path, value === undefined ? "Required" : "Must be a JSON value");
    return value;
  });

/** An object whose contents are free. */
const anyObject = () =>
  schema((value, path, issues) => {
    if (!isPlain(value)) expected(issues, path, "object", value);
    else if (!isJson(value, 0)) issue(issues, path, "Must be a JSON object");
    return value;
  });

function list(item, { min = 0, max = Infinity } = {}) {
  return schema((value, path, issues) => {
    if (!Array.isArray(value)) {
      expected(issues, path, "array", value);
      return value;
    }
    if (value.length < min) issue(issues, path, `Must have at least ${min} ${min === 1 ? "item" : "items"}`);
    if (value.length > max) issue(issues, path, `Must have at most ${max} items`);
    return value.map((entry, index) => item.check(entry, [...path, index], issues));
  });
}

function record(item, { key, max = Infinity } = {}) {
  return schema((value, path, issues) => {
    if (!isPlain(value)) {
      expected(issues, path, "object", value);
      return value;
    }
    const names = Object.keys(value);
    if (names.length > max) issue(issues, path, `Must have at most ${max} entries`);
    const out = {};
    for (const name of names) {
      key?.check(name, [...path, name], issues);
      put(out, name, item.check(value[name], [...path, name], issues));
    }
    return out;
  });
}

/** The key may be absent; an explicit null is still wrong. */
function optional(inner) {
  const out = schema(inner.check);
  out.optional = true;
  return out;
}

function withDefault(inner, fallback) {
  const out = optional(inner);
  out.fallback = fallback;
  return out;
}

const nullable = (inner) =>
  schema((value, path, issues) => (value === null ? null : inner.check(value, path, issues)));

/** A closed object; keys come out in the order of `shape`. Unknown keys are one problem, reported last. */
function object(shape) {
  const names = Object.keys(shape);
  const known = new Set(names);
  const out = schema((value, path, issues) => {
    if (!isPlain(value)) {
      expected(issues, path, "object", value);
      return value;
    }
    const copy = {};
    for (const name of names) {
      const field = shape[name];
      const given = Object.hasOwn(value, name) ? value[name] : undefined;
      if (given === undefined && field.optional === true) {
        if (field.fallback !== undefined) copy[name] = field.fallback();
      } else {
        copy[name] = field.check(given, [...path, name], issues);
      }
    }
    const keys = Object.keys(value).filter((name) => !known.has(name));
    if (keys.length > 0) {
      const shown = keys.map((name) => JSON.stringify(name)).join(", ");
      const message = `Unrecognized ${keys.length === 1 ? "key" : "keys"}: ${shown}`;
      issue(issues, path, message, { code: "unrecognized_keys", keys });
    }
    return copy;
  });
  out.shape = shape;
  return out;
}

/** The variant is picked by the value of `key`, and problems are reported inside it. */
function variants(key, byValue) {
  const out = schema((value, path, issues) => {
    if (!isPlain(value)) {
      expected(issues, path, "object", value);
      return value;
    }
    const name = value[key];
    const variant = typeof name === "string" && Object.hasOwn(byValue, name) ? byValue[name] : undefined;
    if (variant !== undefined) return variant.check(value, path, issues);
    const names = Object.keys(byValue).map((item) => JSON.stringify(item)).join(" | ");
    issue(issues, [...path, key], name === undefined ? `Required: expected ${names}` : `Expected ${names}`);
    return value;
  });
  out.options = byValue;
  return out;
}

/** The first of `members` that takes the value; none: one problem at the value itself. */
function union(...members) {
  return schema((value, path, issues) => {
    for (const member of members) {
      const found = [];
      const data = member.check(value, path, found);
      if (found.length === 0) return data;
    }
    issue(issues, path, "Invalid input");
    return value;
  });
}

module.exports = { anyObject, bool, filled, integer, issue, json, list, literal, nullable, number, object, oneOf, optional, pathText, record, schema, SchemaError, text, typeName, union, variants, withDefault };
