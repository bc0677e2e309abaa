// Types of the library that a workflow program is written against.

// ---------------------------------------------------------------------------------------------
// Values

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };

/** A JSON Schema document, draft 2020-12. */
export type JsonSchema = { [key: string]: unknown };

/**
 * What a program may hand to the engine: JSON, and the values that the engine's encoding knows
 * (dates, big integers, bytes, sets, maps). `undefined` is null, or leaves a key out.
 */
export type Encodable = unknown;

/** The global `AbortSignal`, where the project's libraries declare one. */
export type RunSignal = typeof globalThis extends { AbortSignal: { prototype: infer Signal } }
  ? Signal
  : {
      readonly aborted: boolean;
      readonly reason: unknown;
      throwIfAborted(): void;
      addEventListener(type: "abort", listener: () => void): void;
      removeEventListener(type: "abort", listener: () => void): void;
    };

// ---------------------------------------------------------------------------------------------
// The context of a run

/** Who started the run. */
export type Actor =
  | { readonly type: "user"; readonly user_id: string }
  | {
      readonly type: "workflow";
      readonly parent_run_id: string;
      readonly parent_workflow_id: string;
      /** `workflow:<parent_workflow_id>`, never a person. */
      readonly user_id: string;
    }
  | { readonly type: "webhook"; readonly source: string }
  | { readonly type: "cron"; readonly rule: string }
  | {
      readonly type: "event";
      readonly subscription_id: string;
      readonly source_run_id: string;
      readonly source_workflow_id: string;
      readonly event_type: string;
      readonly event_chain_depth: number;
    };

/** How the run was started. */
export interface TriggerInfo {
  readonly kind: "cron" | "webhook" | "manual";
  /** Milliseconds since 1970. */
  readonly firedAt: number;
  readonly source?: string;
  /** The request of a webhook; its body is the run's input. */
  readonly request?: {
    readonly method: string;
    readonly path: string;
    readonly query: Readonly<Record<string, string>>;
    /** Names in lower case, without the headers that authenticated the request. */
    readonly headers: Readonly<Record<string, string>>;
  };
}

export interface ContextData {
  readonly runId: string;
  readonly workflowId: string;
  /** Sequential number of the deployed version. */
  readonly workflowVersion: number;
  readonly orgId: string;
  readonly environment: { readonly id: string; readonly name: string } | null;
  readonly actor: Actor;
  /** 1, and one more for each restart after a crash. */
  readonly attempt: number;
  readonly trigger: TriggerInfo;
  /** Absolute path of the workspace; the program's working directory. */
  readonly workspaceDir: string;
}

/** The second argument of `run`. */
export interface Context extends ContextData {
  /** Aborted when the run is cancelled, with a `HostError` of code CANCELLED as its reason. */
  readonly signal: RunSignal;
}

// ---------------------------------------------------------------------------------------------
// Errors

/** A failure that the engine reported. */
export declare class HostError extends Error {
  constructor(code: string, message: string, data?: unknown);
  constructor(shape: { code: string; message: string; data?: unknown });
  readonly name: "HostError";
  /** Machine-readable, for example NOT_FOUND or BUDGET_EXCEEDED. */
  readonly code: string;
  readonly data?: any;
  /** What can be done about it, when the engine said so. */
  readonly hint: string | undefined;
}

/** Codes of failures that end the run: BUDGET_EXCEEDED and CANCELLED. */
export declare const RUN_FATAL_CODES: readonly ["BUDGET_EXCEEDED", "CANCELLED"];

/** True for a failure that ends the run and must not be handled as one task's failure. */
export declare function isRunFatal(reason: unknown): boolean;

// ---------------------------------------------------------------------------------------------
// Agents

export type ReasoningEffort = "none" | "minimal" | "low" | "medium" | "high" | "xhigh";

export interface ReasoningOptions {
  effort?: ReasoningEffort;
  /** Used when there is no effort. */
  maxTokens?: number;
  /** Leaves the reasoning out of the run's events. */
  exclude?: boolean;
}

export type NormalizedReasoning = ReasoningOptions;

/** One form for both ways of asking for reasoning; undefined when nothing is asked for. */
export declare function normalizeReasoning(
  reasoning: ReasoningEffort | ReasoningOptions | undefined,
): NormalizedReasoning | undefined;

export interface ToolCallInfo {
  /** Aborted when the agent has ended, the run is cancelled, or `timeoutMs` is over. */
  readonly signal: RunSignal;
}

/** A tool of your own: the model calls it, and `execute` runs in the program. */
export interface ToolDef<Input = any> {
  name: string;
  description: string;
  /** JSON Schema of the input. */
  inputSchema: JsonSchema;
  /** Text is given to the model as it is, anything else as JSON. A throw is told to the model. */
  execute(input: Input, call: ToolCallInfo): unknown;
  /** Longest time for one call; the model is told when it is over. No limit by default. */
  timeoutMs?: number;
}

/** A server that speaks the Model Context Protocol; its tools are offered as `<name>__<tool>`. */
export type McpServerRef =
  | {
      name: string;
      transport: "http";
      url: string;
      headers?: Record<string, string>;
      excludeTools?: string[];
    }
  | {
      name: string;
      transport: "stdio";
      command: string;
      args?: string[];
      env?: Record<string, string>;
      excludeTools?: string[];
    };

/** A file shown to the model: exactly one of `data` (bytes, or base64 text) and `url`. */
export interface AgentAttachment {
  mimeType: string;
  data?: string | Uint8Array;
  url?: string;
  filename?: string;
}

export interface AgentOptions {
  /** A label for the run's log. */
  name?: string;
  /** The engine's default when absent. */
  model?: string;
  provider?: string;
  reasoning?: ReasoningEffort | ReasoningOptions;
  /** The answer is a value of this JSON Schema instead of text. */
  schema?: JsonSchema;
  /** Tools of your own. Built-in tools are chosen with `builtins`. */
  tools?: ToolDef[];
  /** Default `all`. */
  builtins?: "all" | "read-only" | "none" | string[];
  /** A folder of the workspace to work from. */
  cwd?: string;
  mcp?: McpServerRef[];
  /** Names of `skills/<name>/SKILL.md` in the package. */
  skills?: string[];
  /** A folder of the workspace that is kept from run to run. */
  memory?: string;
  /** Lets the model ask a person. */
  humanInput?: boolean;
  /** Most model calls. */
  maxIterations?: number;
  /** A session from `computer.openBrowser` or `computer.openDesktop`. */
  session?: BrowserSession | DesktopSession;
  attachments?: AgentAttachment[];
}

/** Runs an agent until it is done; resolves to its final text, or with `schema` to a value of it. */
export declare function agent<T = any>(prompt: string, options: AgentOptions & { schema: JsonSchema }): Promise<T>;
export declare function agent(prompt: string, options?: AgentOptions): Promise<string>;

// ---------------------------------------------------------------------------------------------
// Other workflows

export interface CallOptions {
  /** The same key gives the same child run. */
  idempotencyKey?: string;
}

export interface ScheduleOptions {
  /** Exactly one of `cron`, `rate` and `at`. */
  cron?: string;
  /** `5 minutes`, `1 hour`; at least one minute. */
  rate?: string;
  at?: string | Date;
  /** For `cron`; UTC by default. */
  timezone?: string;
  idempotencyKey?: string;
}

export declare const workflows: {
  /** Runs another workflow and waits for its output. The type of the output is not checked. */
  call<T = any>(slug: string, input?: Encodable, options?: CallOptions): Promise<T>;
  /** Starts another workflow; resolves to the id of its run at once. */
  run(slug: string, input?: Encodable, options?: CallOptions): Promise<string>;
  /** Schedules another workflow; resolves to the id of the schedule, which outlives this run. */
  schedule(slug: string, input: Encodable, options: ScheduleOptions): Promise<string>;
};

// ---------------------------------------------------------------------------------------------
// Waiting and asking

/** Milliseconds; `"250ms"`, `"30s"`, `"5m"`, `"1.5h"`, `"7d"`; a length; a moment. */
export type SleepArg = number | string | { durationMs: number } | { until: Date | string };

export declare function sleep(arg: SleepArg): Promise<void>;

export interface HumanInputTextSpec {
  kind: "text";
  multiline?: boolean;
  placeholder?: string;
  required?: boolean;
}

export interface HumanInputChoiceSpec {
  kind: "choice";
  options: string[];
  /** Default true. */
  allowOther?: boolean;
  otherLabel?: string;
}

export interface HumanInputMultiSelectSpec {
  kind: "multiselect";
  options: string[];
  /** Default true. */
  allowOther?: boolean;
  otherLabel?: string;
  min?: number;
  max?: number;
}

export type HumanInputSpec = HumanInputTextSpec | HumanInputChoiceSpec | HumanInputMultiSelectSpec;

export interface HumanTextResult {
  value: string;
}

export interface HumanChoiceResult {
  value: string;
  isOther: boolean;
}

export interface HumanMultiSelectResult {
  values: string[];
  other?: string;
}

export type HumanInputResult = HumanTextResult | HumanChoiceResult | HumanMultiSelectResult;

export interface HumanInputOptions<Spec extends HumanInputSpec = HumanInputSpec> {
  /** Names the question; the answer is kept under it. */
  key?: string;
  prompt: string;
  input: Spec;
  /** `role:<role>` or `user:<id>`; anyone who may answer by default. */
  assignees?: string[];
  /** `"30s"`, `"5m"`, `"2h"`, `"7d"`. */
  timeout?: string;
  /** What happens then; default `fail`. */
  onTimeout?: "fail" | { value: HumanInputResult };
}

/** Asks a person and waits for the answer. */
export declare function humanInput(options: HumanInputOptions<HumanInputTextSpec>): Promise<HumanTextResult>;
export declare function humanInput(options: HumanInputOptions<HumanInputChoiceSpec>): Promise<HumanChoiceResult>;
export declare function humanInput(
  options: HumanInputOptions<HumanInputMultiSelectSpec>,
): Promise<HumanMultiSelectResult>;
export declare function humanInput(options: HumanInputOptions): Promise<HumanInputResult>;

// ---------------------------------------------------------------------------------------------
// Secrets, artifacts, shell, tokens, usage

export declare const secrets: {
  /** The value of a secret that `permissions.secrets` of the descriptor names. */
  get(name: string): Promise<string>;
};

/** Text, or bytes. */
export type ArtifactBody = string | Uint8Array | ArrayBuffer;

export interface ArtifactRef {
  id: string;
  name: string;
  /** Where the file can be downloaded; valid for a limited time. */
  url: string;
}

export declare const artifacts: {
  /** Stores a file with the run. */
  write(
    name: string,
    contentType: string,
    body: ArtifactBody,
    metadata?: { [key: string]: JsonValue },
  ): Promise<ArtifactRef>;
};

export interface ShellOptions {
  /** Relative to the workspace. */
  cwd?: string;
  /** Added to the run's environment. */
  env?: Record<string, string>;
  timeoutMs?: number;
  /** Most bytes of each stream; 16 MiB by default. */
  maxBuffer?: number;
}

export interface ShellResult {
  /** 128 + the signal's number when a signal ended the command. */
  exitCode: number;
  stdout: string;
  stderr: string;
}

/** Runs a command with the system shell in the workspace; resolves whatever its exit code is. */
export declare function shell(cmd: string, options?: ShellOptions): Promise<ShellResult>;

export declare const auth: {
  /** A signed token that proves to `audience` which workflow is running. */
  idToken(audience: string): Promise<string>;
  /** A short-lived token for the engine's own API, limited to this run's permissions. */
  apiToken(): Promise<string>;
};

/** `cap` and `remaining` are null together when there is no cap. */
export interface UsageDimension {
  spent: number;
  cap: number | null;
  remaining: number | null;
}

export interface UsageSnapshot {
  usd: UsageDimension;
  tokens: UsageDimension;
  compute_seconds: UsageDimension;
}

export declare const usage: {
  get(): Promise<UsageSnapshot>;
};

// ---------------------------------------------------------------------------------------------
// Phases and tasks

export interface PhaseOptions {
  /** `phase-<n>` by default. */
  id?: string;
}

/** Marks what follows as a phase of the run. Never fails. */
export declare function phase(name: string, options?: PhaseOptions): void;

export interface ParallelOptions {
  /** Most tasks that run at a time; all of them by default. */
  concurrency?: number;
}

/**
 * Runs all tasks and waits for all of them. A task that fails gives null, with a warning in the log.
 * A failure that ends the run (`isRunFatal`) is thrown once everything that was started has settled.
 */
export declare function parallel<Tasks extends readonly (() => unknown)[]>(
  tasks: readonly [...Tasks],
  options?: ParallelOptions,
): Promise<{ -readonly [Index in keyof Tasks]: Awaited<ReturnType<Tasks[Index]>> | null }>;
export declare function parallel<T>(
  tasks: readonly (() => T | Promise<T>)[],
  options?: ParallelOptions,
): Promise<(T | null)[]>;

// ---------------------------------------------------------------------------------------------
// Computers

export interface ConsoleEntry {
  level: "log" | "info" | "warn" | "error" | "debug";
  text: string;
  timestamp: number;
}

export interface NetworkEntry {
  method: string;
  url: string;
  status?: number;
  timestamp: number;
}

export interface BrowserSessionOptions {
  startUrl?: string;
  viewport?: { width: number; height: number };
  grounding?: "auto" | "a11y" | "vision" | "none";
}

export interface BrowserSession {
  readonly id: string;
  navigate(url: string): Promise<void>;
  url(): Promise<string>;
  title(): Promise<string>;
  screenshot(options?: { fullPage?: boolean }): Promise<ArtifactRef>;
  /** Entries with `timestamp >= since`. */
  console(options?: { since?: number }): Promise<ConsoleEntry[]>;
  network(options?: { since?: number }): Promise<NetworkEntry[]>;
  eval(expression: string): Promise<any>;
  close(): Promise<void>;
}

export interface DesktopSessionOptions {
  grounding?: "auto" | "none";
}

export interface DesktopSession {
  readonly id: string;
  screenshot(): Promise<ArtifactRef>;
  close(): Promise<void>;
}

export declare const computer: {
  openBrowser(options?: BrowserSessionOptions): Promise<BrowserSession>;
  openDesktop(options?: DesktopSessionOptions): Promise<DesktopSession>;
};

// ---------------------------------------------------------------------------------------------
// Unit tests

type Maybe<T> = T | Promise<T>;

/** The wire form of `SleepArg`. */
export type NormalizedSleep = number | { durationMs: number } | { until: string };

/** Stubs of capabilities. One that is left out fails when it is used, and says so. */
export interface TestHostOverrides {
  agent?(prompt: string, options?: AgentOptions): Maybe<unknown>;
  workflows?: {
    call?(slug: string, input?: any, options?: CallOptions): Maybe<unknown>;
    run?(slug: string, input?: any, options?: CallOptions): Maybe<string>;
    schedule?(slug: string, input: any, options: ScheduleOptions): Maybe<string>;
  };
  /** Returns at once by default. */
  sleep?(arg: NormalizedSleep): Maybe<void>;
  humanInput?(options: HumanInputOptions): Maybe<HumanInputResult>;
  secrets?: Record<string, string> | Map<string, string> | ((name: string) => Maybe<string>);
  artifacts?: {
    write?(
      name: string,
      contentType: string,
      body: ArtifactBody,
      metadata?: { [key: string]: JsonValue },
    ): Maybe<ArtifactRef>;
  };
  computer?: {
    openBrowser?(options?: BrowserSessionOptions): Maybe<BrowserSession>;
    openDesktop?(options?: DesktopSessionOptions): Maybe<DesktopSession>;
  };
  shell?(cmd: string, options?: ShellOptions): Maybe<ShellResult>;
  /** Does nothing by default. */
  phase?(name: string, options?: PhaseOptions): void;
  auth?: {
    idToken?(audience: string): Maybe<string>;
    apiToken?(): Maybe<string>;
  };
  /** Nothing spent and no caps by default. */
  usage?(): Maybe<UsageSnapshot>;
}

export interface TestHostHandle {
  readonly signal: RunSignal;
  /** Cancels the run, by default with a CANCELLED `HostError`. */
  cancel(reason?: unknown): void;
  /** Removes the test host, unless another one has taken its place. */
  uninstall(): void;
  /** A context to call `run` with. */
  context(overrides?: Partial<ContextData>): Context;
}

/** Makes a host of stubs the one that every capability talks to. */
export declare function installTestHost(overrides?: TestHostOverrides): TestHostHandle;

// ---------------------------------------------------------------------------------------------
// Schemas

export interface SchemaIssue {
  code: string;
  path: (string | number)[];
  message: string;
}

export type SafeParseResult<T> =
  | { success: true; data: T }
  | { success: false; error: Error & { issues: SchemaIssue[] } };

/** A validator; also a Standard Schema. */
export interface Schema<T> {
  /** The checked value, with its defaults. Throws an error with `issues`. */
  parse(value: unknown): T;
  safeParse(value: unknown): SafeParseResult<T>;
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    validate(value: unknown): { value: T; issues?: undefined } | { issues: readonly SchemaIssue[] };
    readonly types?: { readonly input: T; readonly output: T } | undefined;
  };
}

// ---------------------------------------------------------------------------------------------
// The descriptor

export type GithubTriggerEvent = "pr.opened" | "pr.merged" | "issue.opened" | "issue.commented" | "ci.completed";
export type LinearTriggerEvent = "issue.created" | "issue.status_changed" | "issue.commented";
export type JiraTriggerEvent = "issue.created" | "issue.status_changed" | "issue.commented";
export type NotionTriggerEvent = "page.created" | "page.updated" | "comment.created";

export declare const GITHUB_TRIGGER_EVENTS: readonly GithubTriggerEvent[];
export declare const LINEAR_TRIGGER_EVENTS: readonly LinearTriggerEvent[];
export declare const JIRA_TRIGGER_EVENTS: readonly JiraTriggerEvent[];
export declare const NOTION_TRIGGER_EVENTS: readonly NotionTriggerEvent[];

export interface ManualTrigger {
  kind: "manual";
}

export interface CronTrigger {
  kind: "cron";
  expr: string;
  timezone?: string;
  input?: { [key: string]: JsonValue };
}

export interface WebhookTrigger {
  kind: "webhook";
  name: string;
}

export interface WorkflowRunTrigger {
  kind: "workflow_run";
  workflows: string[];
  conclusions?: ("success" | "failure" | "cancelled")[];
}

export interface GithubTrigger {
  kind: "github";
  event: GithubTriggerEvent;
  repos?: string[];
}

export interface LinearTrigger {
  kind: "linear";
  event: LinearTriggerEvent;
}

export interface JiraTrigger {
  kind: "jira";
  event: JiraTriggerEvent;
}

export interface NotionTrigger {
  kind: "notion";
  event: NotionTriggerEvent;
}

export type Trigger =
  | ManualTrigger
  | CronTrigger
  | WebhookTrigger
  | WorkflowRunTrigger
  | GithubTrigger
  | LinearTrigger
  | JiraTrigger
  | NotionTrigger;

export type EnvVars = Record<string, string>;

export interface Workspace {
  persist?: boolean | string[];
  key?: string;
}

export interface Budget {
  max_tokens?: number;
  max_usd?: number;
  max_compute_seconds?: number;
}

export type Concurrency =
  | { mode: "serial"; key?: string }
  | { mode: "latest_wins"; key?: string }
  | { mode: "unlimited" };

export type HostedRunsOn = "boardwalk/linux" | "boardwalk/linux-node" | "boardwalk/linux-python";
export type HostedRunnerSize = "small" | "medium" | "large" | "xlarge";

export interface HostedRunsOnObject {
  label: HostedRunsOn;
  size?: HostedRunnerSize;
}

export interface SelfHostedRunsOn {
  kind: "self-hosted";
  pool: string;
  labels?: string[];
}

export type RunsOn = HostedRunsOn | HostedRunsOnObject | SelfHostedRunsOn;

export interface Container {
  image: string;
}

export interface SecretRef {
  name: string;
}

export type RunPermissionAccess = "none" | "read" | "write";

export interface RunPermissions {
  id_token?: "none" | "write";
  artifacts?: RunPermissionAccess;
  contents?: RunPermissionAccess;
  secrets?: SecretRef[];
}

export type OrgRole = "owner" | "admin" | "member" | "viewer";

export type CallableBy =
  | "anyone_in_org"
  | "users_only"
  | "workflows_only"
  | { roles: OrgRole[] }
  | { workflows: string[] };

export type EgressPolicy = { level: "custom"; allow: string[] } | { level: "none" } | { level: "full" };

export type Notification =
  | {
      on: "completion" | "failure" | "cancelled";
      channel: "email" | "webhook";
      target: string;
      template?: string;
    }
  | { on: "budget_exceeded"; channel: "email"; target: string };

/** `workflow.jsonc`, with its defaults filled in. */
export interface WorkflowDescriptor {
  slug: string;
  title?: string;
  description?: string;
  entry?: string;
  triggers: Trigger[];
  env?: EnvVars;
  workspace?: Workspace;
  recording?: boolean;
  budget?: Budget;
  concurrency: Concurrency;
  runs_on: RunsOn;
  container?: Container;
  permissions?: RunPermissions;
  callable_by: CallableBy;
  egress?: EgressPolicy;
  notifications?: Notification[];
  files?: string[];
}

/** The descriptor, with the schemas that a deploy derives from the program's types. */
export interface WorkflowManifest extends WorkflowDescriptor {
  input_schema?: JsonSchema;
  output_schema?: JsonSchema;
}

export interface ConcurrencyKeyTemplateIssue {
  /** Where the interpolation starts in the template. */
  index: number;
  message: string;
}

export declare class DescriptorValidationError extends Error {
  constructor(message: string, issues?: { path: string; message: string; line?: number; column?: number }[]);
  readonly name: "DescriptorValidationError";
  readonly issues: { path: string; message: string; line?: number; column?: number }[];
}

/** Where the program is looked for, in this order, when the descriptor has no `entry`. */
export declare const DEFAULT_ENTRY_SOURCES: readonly string[];
export declare const PYTHON_DEFAULT_ENTRY: "main.py";

/** The value of JSON text that may hold comments, trailing commas and a byte-order mark. Throws SyntaxError. */
export declare function parseJsonc(text: string): any;

/** The descriptor in `text`. Throws `DescriptorValidationError` with every problem. */
export declare function parseWorkflowDescriptor(text: string): WorkflowDescriptor;

/** Every problem of a key template. */
export declare function validateConcurrencyKeyTemplate(template: string): ConcurrencyKeyTemplateIssue[];

/** The path and the fallback of what stands between `${` and `}`. */
export declare function splitFallback(body: string): { path: string; fallback?: string };

export declare const workflowManifestSchema: Schema<WorkflowManifest>;

// ---------------------------------------------------------------------------------------------
// Run events

export type RunStatus =
  | "queued"
  | "pending"
  | "running"
  | "sleeping"
  | "awaiting_input"
  | "waiting_for_child"
  | "completed"
  | "failed"
  | "cancelled"
  | "cancelling";

export interface EventEnvelope {
  runId: string;
  turnId: string;
  seq: number;
  /** Milliseconds since 1970. */
  t: number;
}

export interface TokenUsage {
  inputTokens?: number;
  outputTokens?: number;
  cacheCreationTokens?: number;
  /** A part of `inputTokens`. */
  cacheReadTokens?: number;
  totalTokens?: number;
}

export interface EventError {
  code: string;
  message: string;
  hint?: string;
}

export interface ToolReturn {
  kind?: string;
  humanSummary?: string;
  data?: { [key: string]: JsonValue };
}

interface AgentIdentity {
  agentId: string;
  agentName?: string;
}

export type RunEvent = EventEnvelope &
  (
    | { kind: "run_status"; status: RunStatus; error?: EventError }
    | { kind: "suspended"; reason: "sleep" | "human_input" | "child"; wakeAt?: number }
    | { kind: "resumed" }
    | { kind: "human_input_requested"; requestId: string; key: string; prompt: string }
    | { kind: "human_input_resolved"; requestId: string; key: string }
    | { kind: "phase"; name: string; id: string }
    | { kind: "output"; value: JsonValue }
    | { kind: "program_output"; stream: "stdout" | "stderr"; text: string }
    | { kind: "egress_denied"; host: string; method?: string; reason: string }
    | {
        kind: "workspace_persist_skipped";
        reason: "too_large" | "storage_limit" | "error";
        bytes?: number;
        maxBytes?: number;
        detail?: string;
      }
    | ({ kind: "turn_started" } & AgentIdentity)
    | ({
        kind: "turn_ended";
        reason: "complete" | "cancelled" | "error";
        usage?: TokenUsage;
        error?: EventError;
      } & AgentIdentity)
    | { kind: "text_start"; blockId: string }
    | { kind: "text_delta"; blockId: string; text: string }
    | { kind: "text_end"; blockId: string }
    | { kind: "reasoning_delta"; text: string }
    | { kind: "turn_reset" }
    | { kind: "tool_call_start"; toolCallId: string; toolName: string }
    | { kind: "tool_call_input_delta"; toolCallId: string; partialJson: string }
    | { kind: "tool_call_input_complete"; toolCallId: string; input: { [key: string]: JsonValue } }
    | { kind: "tool_call_executing"; toolCallId: string }
    | { kind: "tool_output_delta"; toolCallId: string; stream: "stdout" | "stderr"; text: string }
    | { kind: "tool_call_result"; toolCallId: string; result: ToolReturn }
    | { kind: "tool_call_error"; toolCallId: string; error: EventError }
    | ({ kind: "compaction_started"; tokens: number; budget: number; contextTokens?: number } & AgentIdentity)
    | ({
        kind: "compaction_ended";
        tokens: number;
        reclaimed: number;
        method: "deduped" | "summarized" | "none";
      } & AgentIdentity)
  );

export type RunEventKind = RunEvent["kind"];

export type Channel = "lifecycle" | "phase" | "output" | "log" | "agent";

export declare const CHANNELS: readonly Channel[];
export declare const DEFAULT_CHANNELS: readonly Channel[];

/** One event, closed: an added key, a missing one or an unknown kind is refused. */
export declare const runEventSchema: Schema<RunEvent>;

/** The event as far as this version knows it: unknown keys are dropped; anything else unknown gives null. */
export declare function parseRunEventLenient(value: unknown): RunEvent | null;

/** The channel of an event; undefined for a kind that this version does not know. */
export declare function channelOf(event: { kind: RunEventKind }): Channel;
export declare function channelOf(event: { kind: string }): Channel | undefined;

export declare function matchesChannels(event: { kind: string }, channels: readonly Channel[]): boolean;

export declare const TURN_CURSOR_STRIDE: 1000000;

/** `block * TURN_CURSOR_STRIDE + seq`. Throws RangeError outside block ≥ 0 and 1 ≤ seq ≤ 999,999. */
export declare function makeCursor(block: number, seq: number): number;
