// What a workflow program imports. Each capability talks to the active host.
import { getHost, load, peekHost } from "./core.mjs";
import { HostError, isObject, isRunFatal, normalizeSleepArg, parseDurationMs, reviveBySchema } from "./values.mjs";

/** Runs an agent until it is done; resolves to its final text, or to a value that matches `schema`. */
export async function agent(prompt, options) {
  if (typeof prompt !== "string") throw new TypeError("agent takes a prompt as its first argument");
  return (await getHost()).agent(prompt, options);
}

function scheduleOptions(options) {
  const given = ["cron", "rate", "at"].filter((key) => options?.[key] !== undefined);
  if (given.length !== 1) {
    const found = given.length === 0 ? "none was given" : `${given.join(" and ")} were given`;
    throw new Error(`workflows.schedule needs exactly one of cron, rate and at; ${found}`);
  }
  return options.at instanceof Date ? { ...options, at: options.at.toISOString() } : options;
}

export const workflows = Object.freeze({
  /** Runs another workflow and waits for its output. */
  async call(slug, input, options) {
    const { output, outputSchema } = await (await getHost()).callWorkflow(slug, input, options);
    return reviveBySchema(output, outputSchema);
  },
  /** Starts another workflow and resolves to the id of its run at once. */
  async run(slug, input, options) {
    return (await getHost()).runWorkflow(slug, input, options);
  },
  /** Schedules another workflow; the schedule outlives this run. Resolves to its id. */
  async schedule(slug, input, options) {
    const wire = scheduleOptions(options);
    return (await getHost()).scheduleWorkflow(slug, input, wire);
  },
});

/** Waits: milliseconds, a duration such as "5m", `{ durationMs }` or `{ until }`. */
export async function sleep(arg) {
  const wire = normalizeSleepArg(arg);
  await (await getHost()).sleep(wire);
}

/** Asks a person and waits for the answer. */
export async function humanInput(options) {
  if (isObject(options) && typeof options.timeout === "string" && parseDurationMs(options.timeout) === undefined) {
    throw new HostError("INVALID_PARAMS", `humanInput: "${options.timeout}" is not a duration`, {
      hint: 'write the timeout as "30s", "5m", "2h" or "7d"',
    });
  }
  return (await getHost()).humanInput(options);
}

export const secrets = Object.freeze({
  /** The value of a secret that `permissions.secrets` of the descriptor names. */
  async get(name) {
    return (await getHost()).getSecret(name);
  },
});

export const artifacts = Object.freeze({
  /** Stores a file with the run: text or bytes. */
  async write(name, contentType, body, metadata) {
    return (await getHost()).writeArtifact(name, contentType, body, metadata);
  },
});

export const computer = Object.freeze({
  async openBrowser(options) {
    return (await getHost()).openBrowser(options);
  },
  async openDesktop(options) {
    return (await getHost()).openDesktop(options);
  },
});

/** Runs a command with the system shell in the workspace; resolves whatever its exit code is. */
export async function shell(cmd, options) {
  return (await getHost()).shell(cmd, options);
}

export const auth = Object.freeze({
  /** A signed token that proves to `audience` which workflow is running. */
  async idToken(audience) {
    if (typeof audience !== "string" || audience.trim() === "") {
      throw new TypeError("auth.idToken needs the audience that the token is for");
    }
    return (await getHost()).idToken(audience);
  },
  /** A short-lived token for the engine's own API, limited to this run's permissions. */
  async apiToken() {
    return (await getHost()).apiToken();
  },
});

export const usage = Object.freeze({
  /** What the run has spent, and its caps. */
  async get() {
    return (await getHost()).usage();
  },
});

/** Marks what follows as a phase of the run. Never fails. */
export function phase(name, options) {
  if (typeof name !== "string" || name === "") {
    console.warn("phase: the name must be text; the marker is left out");
    return;
  }
  const host = peekHost();
  if (host !== undefined) {
    host.phase(name, options);
    return;
  }
  getHost().then(
    (connected) => connected.phase(name, options),
    (error) => console.warn(`phase "${name}" is left out: ${error.message}`),
  );
}

async function settle(thunk) {
  try {
    return { value: await thunk() };
  } catch (reason) {
    return { reason, failed: true };
  }
}

function checkTasks(tasks, options) {
  if (!Array.isArray(tasks)) throw new TypeError("parallel takes an array of functions");
  const wrong = tasks.findIndex((task) => typeof task !== "function");
  if (wrong >= 0) {
    const found = tasks[wrong] instanceof Promise ? "a promise" : `of type ${typeof tasks[wrong]}`;
    throw new TypeError(`parallel: entry ${wrong} is ${found}; pass a function: () => agent("…")`);
  }
  const limit = options?.concurrency ?? Infinity;
  if (!(limit >= 1)) throw new TypeError("parallel: concurrency must be a number of at least 1");
  return Math.min(Math.floor(limit), tasks.length);
}

/**
 * Runs all tasks and waits for all of them. A task that fails gives null, with a warning; a failure
 * that ends the run (`isRunFatal`) is thrown once everything that was started has settled.
 * `concurrency` bounds how many run at a time; after a run-fatal failure no further task is started.
 */
export async function parallel(tasks, options) {
  const workers = checkTasks(tasks, options);
  const outcomes = new Array(tasks.length);
  let next = 0;
  let fatal = false;
  const work = async () => {
    while (next < tasks.length && !(fatal && workers < tasks.length)) {
      const index = next;
      next += 1;
      outcomes[index] = await settle(tasks[index]);
      fatal ||= outcomes[index].failed === true && isRunFatal(outcomes[index].reason);
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  const first = outcomes.find((outcome) => outcome?.failed === true && isRunFatal(outcome.reason));
  if (first !== undefined) throw first.reason;
  return outcomes.map((outcome, index) => {
    if (outcome.failed !== true) return outcome.value;
    console.warn(`parallel: task ${index} failed and gives null:`, outcome.reason);
    return null;
  });
}

/** One form for both ways of asking for reasoning; undefined when nothing is asked for. */
export function normalizeReasoning(reasoning) {
  if (reasoning === undefined || reasoning === null) return undefined;
  if (typeof reasoning === "string") return { effort: reasoning };
  const out = {};
  if (reasoning.effort !== undefined) out.effort = reasoning.effort;
  else if (reasoning.maxTokens !== undefined) out.maxTokens = reasoning.maxTokens;
  if (reasoning.exclude === true) out.exclude = true;
  return Object.keys(out).length === 0 ? undefined : out;
}

export { installTestHost } from "./core.mjs";
export { HostError, RUN_FATAL_CODES, isRunFatal } from "./values.mjs";

// ---------------------------------------------------------------------------------------------
// Descriptor and event tools: loaded when they are first used

export const {
  CHANNELS, DEFAULT_CHANNELS, DEFAULT_ENTRY_SOURCES, DescriptorValidationError, GITHUB_TRIGGER_EVENTS,
  JIRA_TRIGGER_EVENTS, LINEAR_TRIGGER_EVENTS, NOTION_TRIGGER_EVENTS, PYTHON_DEFAULT_ENTRY,
  TURN_CURSOR_STRIDE, makeCursor,
} = load("./vocabulary.cjs");

const descriptorTools = () => load("./descriptor.cjs");
const eventTools = () => load("./events.cjs");

/** A schema that is built when it is first asked something. */
function lazySchema(find) {
  return Object.freeze({
    parse: (value) => find().parse(value),
    safeParse: (value) => find().safeParse(value),
    "~standard": Object.freeze({ version: 1, vendor: "trestle", validate: (value) => find()["~standard"].validate(value) }),
  });
}

export const workflowManifestSchema = lazySchema(() => descriptorTools().workflowManifestSchema);
export const runEventSchema = lazySchema(() => eventTools().runEventSchema);

/** The value of JSON text that may hold comments, trailing commas and a byte-order mark. */
export const parseJsonc = (text) => load("./jsonc.cjs").parseJsonc(text);

/** The descriptor in `text`, with its defaults. Throws DescriptorValidationError with every problem. */
export const parseWorkflowDescriptor = (text) => descriptorTools().parseWorkflowDescriptor(text);

/** Every problem of a key template, each with the index of its `${`. */
export const validateConcurrencyKeyTemplate = (template) => descriptorTools().validateConcurrencyKeyTemplate(template);

/** The path and the fallback of what stands between `${` and `}`; no `??`: no fallback. */
export const splitFallback = (body) => descriptorTools().splitFallback(body);

/** The event as far as this version knows it: unknown keys are dropped; anything else unknown gives null. */
export const parseRunEventLenient = (value) => eventTools().parseRunEventLenient(value);

/** The channel of an event; undefined for a kind that this version does not know. */
export const channelOf = (event) => eventTools().channelOf(event);

export const matchesChannels = (event, channels) => eventTools().matchesChannels(event, channels);
