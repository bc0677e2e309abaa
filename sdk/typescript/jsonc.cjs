// JSON with comments and trailing commas, with the place of every value.
"use strict";

class JsoncError extends SyntaxError {
  constructor(message, text, offset) {
    const { line, column } = placeOf(text, offset);
    super(`${message} at line ${line}, column ${column}`);
    this.name = "SyntaxError";
    this.offset = offset;
    this.line = line;
    this.column = column;
  }
}

/** Line and column, both from 1, of an offset in UTF-16 units. */
function placeOf(text, offset) {
  const before = text.slice(0, offset).split(/\r\n|\n|\r/);
  return { line: before.length, column: before[before.length - 1].length + 1 };
}

const MAX_DEPTH = 512;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORDS = { true: true, false: false, null: null };
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

class Reader {
  at = 0;
  depth = 0;
  /** Offset of the value at each path, keyed by the JSON text of the path. */
  offsets = new Map();
  warnings = [];

  constructor(text) {
    this.text = text;
  }

  fail(message, offset = this.at) {
    throw new JsoncError(message, this.text, offset);
  }

  found() {
    return this.at < this.text.length ? `unexpected ${JSON.stringify(this.text[this.at])}` : "unexpected end of text";
  }

  blank() {
    for (;;) {
      const rest = this.text[this.at];
      if (rest === " " || rest === "\t" || rest === "\n" || rest === "\r") this.at += 1;
      else if (this.text.startsWith("//", this.at)) {
        while (this.at < this.text.length && !/[\n\r]/.test(this.text[this.at])) this.at += 1;
      } else if (this.text.startsWith("/*", this.at)) {
        const end = this.text.indexOf("*/", this.at + 2);
        if (end < 0) this.fail("unterminated comment");
        this.at = end + 2;
      } else return;
    }
  }

  value(path) {
    this.blank();
    this.offsets.set(JSON.stringify(path), this.at);
    const first = this.text[this.at];
    if (first === "{" || first === "[") {
      if (this.depth === MAX_DEPTH) this.fail(`nested more than ${MAX_DEPTH} levels deep`);
      this.depth += 1;
      const value = first === "{" ? this.object(path) : this.array(path);
      this.depth -= 1;
      return value;
    }
    if (first === '"') return this.string();
    NUMBER.lastIndex = this.at;
    const number = NUMBER.exec(this.text);
    if (number !== null) {
      this.at += number[0].length;
      return Number(number[0]);
    }
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.fail(this.found());
  }

  string() {
    const start = this.at;
    let out = "";
    this.at += 1;
    for (;;) {
      const unit = this.text[this.at];
      if (unit === undefined) this.fail("unterminated string", start);
      if (unit < " ") this.fail(`a string cannot hold the raw character ${JSON.stringify(unit)}`);
      this.at += 1;
      if (unit === '"') return out;
      out += unit === "\\" ? this.escape() : unit;
    }
  }

  escape() {
    const unit = this.text[this.at];
    if (unit === "u") {
      const digits = this.text.slice(this.at + 1, this.at + 5);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.fail("bad \\u escape", this.at - 1);
      this.at += 5;
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    if (unit === undefined || !Object.hasOwn(ESCAPES, unit)) this.fail("bad escape", this.at - 1);
    this.at += 1;
    return ESCAPES[unit];
  }

  /** True when the container ends here; a comma may come before its end. */
  ends(close) {
    this.blank();
    if (this.text[this.at] === ",") {
      const comma = this.at;
      this.at += 1;
      this.blank();
      if (this.text[this.at] !== close) this.fail("a value is missing before this comma", comma);
      this.warn("a comma without a value", comma);
    }
    if (this.text[this.at] !== close) return false;
    this.at += 1;
    return true;
  }

  /** After an item: true at the end of the container, false before the next item. */
  afterItem(close) {
    this.blank();
    if (this.text[this.at] === close) {
      this.at += 1;
      return true;
    }
    if (this.text[this.at] !== ",") this.fail(`${this.found()}, expected "," or "${close}"`);
    this.at += 1;
    this.blank();
    if (this.text[this.at] !== close) return false;
    this.at += 1;
    return true;
  }

  array(path) {
    const out = [];
    this.at += 1;
    if (this.ends("]")) return out;
    do out.push(this.value([...path, out.length]));
    while (!this.afterItem("]"));
    return out;
  }

  object(path) {
    const out = {};
    this.at += 1;
    if (this.ends("}")) return out;
    do {
      this.blank();
      const start = this.at;
      if (this.text[start] !== '"') this.fail(`${this.found()}, expected a key in double quotes`);
      const key = this.string();
      if (Object.hasOwn(out, key)) this.warn(`duplicate key ${JSON.stringify(key)}: the last one wins`, start);
      this.blank();
      if (this.text[this.at] !== ":") this.fail(`${this.found()}, expected ":"`);
      this.at += 1;
      const value = this.value([...path, key]);
      Object.defineProperty(out, key, { value, enumerable: true, configurable: true, writable: true });
    } while (!this.afterItem("}"));
    return out;
  }

  warn(message, offset) {
    this.warnings.push({ message, ...placeOf(this.text, offset) });
  }
}

/** The value, the offset of each value by path, and what was tolerated. Throws SyntaxError with line and column. */
function readJsonc(text) {
  const reader = new Reader(text);
  if (text.startsWith("\uFEFF")) {
    reader.at = 1;
    reader.warn("a byte-order mark at the start", 0);
  }
  const value = reader.value([]);
  reader.blank();
  if (reader.at < text.length) reader.fail(`${reader.found()} after the value`);
  return { value, offsets: reader.offsets, warnings: reader.warnings };
}

/** The value of JSON text that may hold comments, trailing commas and a byte-order mark. */
function parseJsonc(text) {
  return readJsonc(text).value;
}

module.exports = { parseJsonc, placeOf, readJsonc };
