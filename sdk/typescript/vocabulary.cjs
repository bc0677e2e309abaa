// The words of descriptors and events that a program may need without the tools that check them.
"use strict";

const GITHUB_TRIGGER_EVENTS = Object.freeze([
  "pr.opened", "pr.merged", "issue.opened", "issue.commented", "ci.completed",
]);
const LINEAR_TRIGGER_EVENTS = Object.freeze(["issue.created", "issue.status_changed", "issue.commented"]);
const JIRA_TRIGGER_EVENTS = Object.freeze(["issue.created", "issue.status_changed", "issue.commented"]);
const NOTION_TRIGGER_EVENTS = Object.freeze(["page.created", "page.updated", "comment.created"]);

/** Where the program is looked for, in this order, when the descriptor has no `entry`. */
const DEFAULT_ENTRY_SOURCES = Object.freeze([
  "src/index.ts", "src/index.tsx", "src/index.mts", "src/index.js", "src/index.mjs",
  "index.ts", "index.tsx", "index.mts", "index.js", "index.mjs",
]);
const PYTHON_DEFAULT_ENTRY = "main.py";

class DescriptorValidationError extends Error {
  constructor(message, issues = []) {
    super(message);
    this.name = "DescriptorValidationError";
    /** `{ path, message, line?, column? }` of every problem. */
    this.issues = issues;
  }
}

const CHANNELS = Object.freeze(["lifecycle", "phase", "output", "log", "agent"]);
const DEFAULT_CHANNELS = Object.freeze(["lifecycle", "phase", "output"]);

const TURN_CURSOR_STRIDE = 1_000_000;

/** `block * 1_000_000 + seq`. Throws RangeError outside block ≥ 0, 1 ≤ seq ≤ 999,999. */
function makeCursor(block, seq) {
  if (!Number.isSafeInteger(block) || block < 0) throw new RangeError(`block must be an integer of at least 0, got ${block}`);
  if (!Number.isSafeInteger(seq) || seq < 1 || seq >= TURN_CURSOR_STRIDE) {
    throw new RangeError(`seq must be an integer from 1 to ${TURN_CURSOR_STRIDE - 1}, got ${seq}`);
  }
  const cursor = block * TURN_CURSOR_STRIDE + seq;
  if (!Number.isSafeInteger(cursor)) throw new RangeError(`block ${block} is too large for a cursor`);
  return cursor;
}

module.exports = {
  CHANNELS,
  DEFAULT_CHANNELS,
  DEFAULT_ENTRY_SOURCES,
  DescriptorValidationError,
  GITHUB_TRIGGER_EVENTS,
  JIRA_TRIGGER_EVENTS,
  LINEAR_TRIGGER_EVENTS,
  NOTION_TRIGGER_EVENTS,
  PYTHON_DEFAULT_ENTRY,
  TURN_CURSOR_STRIDE,
  makeCursor,
};
