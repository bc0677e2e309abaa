// Types of the engine's side of the library: the host client, the active host, the protocol's schemas.
import type {
  Actor, AgentOptions, ArtifactBody, ArtifactRef, BrowserSession, BrowserSessionOptions, CallOptions,
  ConsoleEntry, Context, ContextData, DesktopSession, DesktopSessionOptions, HumanInputOptions,
  HumanInputResult, JsonSchema, JsonValue, McpServerRef, NetworkEntry, NormalizedSleep, PhaseOptions,
  ReasoningEffort, ReasoningOptions, RunSignal, ScheduleOptions, Schema, ShellOptions, ShellResult,
  TestHostHandle, TestHostOverrides, TriggerInfo, UsageDimension, UsageSnapshot,
} from "./index.js";

export { HostError, RUN_FATAL_CODES, installTestHost, isRunFatal } from "./index.js";
export type {
  Actor, AgentAttachment, AgentOptions, ArtifactBody, ArtifactRef, BrowserSession, BrowserSessionOptions,
  CallOptions, ConsoleEntry, Context, ContextData, DesktopSession, DesktopSessionOptions,
  HumanChoiceResult, HumanInputChoiceSpec, HumanInputMultiSelectSpec, HumanInputOptions,
  HumanInputResult, HumanInputSpec, HumanInputTextSpec, HumanMultiSelectResult, HumanTextResult,
  JsonSchema, JsonValue, McpServerRef, NetworkEntry, PhaseOptions, ReasoningEffort, ReasoningOptions,
  ScheduleOptions, Schema, ShellOptions, ShellResult, SleepArg, TestHostHandle, TestHostOverrides,
  ToolDef, TriggerInfo, UsageDimension, UsageSnapshot,
} from "./index.js";

/** The environment variable that holds the address of the host. */
export declare const HOST_SOCK_ENV: "BOARDWALK_HOST_SOCK";

export interface ConnectOptions {
  /** By default what `HOST_SOCK_ENV` says. */
  sockPath?: string;
}

/** The output of a child as JSON, with the schema of its author's types. */
export interface WorkflowCallResult {
  output: JsonValue;
  outputSchema: JsonSchema | null;
}

/** What the author's functions talk to: a connection, or the stubs of a test. */
export interface HostInterface {
  readonly signal: RunSignal;
  agent(prompt: string, options?: AgentOptions): Promise<any>;
  callWorkflow(slug: string, input: unknown, options?: CallOptions): Promise<WorkflowCallResult>;
  runWorkflow(slug: string, input: unknown, options?: CallOptions): Promise<string>;
  scheduleWorkflow(slug: string, input: unknown, options: ScheduleOptions): Promise<string>;
  sleep(arg: NormalizedSleep): Promise<void>;
  humanInput(options: HumanInputOptions): Promise<HumanInputResult>;
  getSecret(name: string): Promise<string>;
  writeArtifact(
    name: string,
    contentType: string,
    body: ArtifactBody,
    metadata?: { [key: string]: JsonValue },
  ): Promise<ArtifactRef>;
  openBrowser(options?: BrowserSessionOptions): Promise<BrowserSession>;
  openDesktop(options?: DesktopSessionOptions): Promise<DesktopSession>;
  shell(cmd: string, options?: ShellOptions): Promise<ShellResult>;
  phase(name: string, options?: PhaseOptions): void;
  idToken(audience: string): Promise<string>;
  apiToken(): Promise<string>;
  usage(): Promise<UsageSnapshot>;
}

export declare class HostClient implements HostInterface {
  /** Calls may be made at once; they are sent when the connection stands. */
  constructor(path: string);
  /** Rejects with CONNECTION_CLOSED when nobody listens at `path`. */
  static connect(path: string): Promise<HostClient>;
  /** Settles when the connection stands, or cannot. */
  readonly opened: Promise<void>;
  /** Called once when the connection ends. */
  onclose?: () => void;
  readonly signal: RunSignal;
  /** True when `signal` has been read. */
  readonly watched: boolean;
  /** True when everything that was sent has left the process. */
  readonly flushed: boolean;
  /** Keeps the process alive although no call is in flight. */
  hold(): void;
  bootstrap(): Promise<HostMethodResult<"bootstrap">>;
  reportReturn(value: unknown): Promise<void>;
  close(): void;
  agent(prompt: string, options?: AgentOptions): Promise<any>;
  callWorkflow(slug: string, input: unknown, options?: CallOptions): Promise<WorkflowCallResult>;
  runWorkflow(slug: string, input: unknown, options?: CallOptions): Promise<string>;
  scheduleWorkflow(slug: string, input: unknown, options: ScheduleOptions): Promise<string>;
  sleep(arg: NormalizedSleep): Promise<void>;
  humanInput(options: HumanInputOptions): Promise<HumanInputResult>;
  getSecret(name: string): Promise<string>;
  writeArtifact(
    name: string,
    contentType: string,
    body: ArtifactBody,
    metadata?: { [key: string]: JsonValue },
  ): Promise<ArtifactRef>;
  openBrowser(options?: BrowserSessionOptions): Promise<BrowserSession>;
  openDesktop(options?: DesktopSessionOptions): Promise<DesktopSession>;
  shell(cmd: string, options?: ShellOptions): Promise<ShellResult>;
  phase(name: string, options?: PhaseOptions): void;
  idToken(audience: string): Promise<string>;
  apiToken(): Promise<string>;
  usage(): Promise<UsageSnapshot>;
}

/** Connects and makes the connection the active host. */
export declare function connectHost(options?: ConnectOptions): Promise<HostClient>;
/** The active host; connects when there is none. */
export declare function getHost(): Promise<HostInterface>;
/** The active host, when there is one; never connects. */
export declare function peekHost(): HostInterface | undefined;
/** Forgets the active host. Does not close it. */
export declare function resetHost(): void;

/** Native values for JSON, as the schema says; whatever the schema does not reach stays as it is. */
export declare function reviveBySchema(value: JsonValue, schema: JsonSchema | null | undefined): any;

// ---------------------------------------------------------------------------------------------
// Frames

export type RpcId = number | string;

export interface ProtocolErrorShape {
  code: string;
  message: string;
  data?: JsonValue;
}

export interface RpcRequestFrame {
  jsonrpc: "2.0";
  id: RpcId;
  method: string;
  params?: JsonValue;
}

export interface RpcNotificationFrame {
  jsonrpc: "2.0";
  method: string;
  params?: JsonValue;
}

export interface RpcSuccessFrame {
  jsonrpc: "2.0";
  id: RpcId;
  result: JsonValue;
}

export interface RpcErrorFrame {
  jsonrpc: "2.0";
  id: RpcId | null;
  error: ProtocolErrorShape;
}

export type RpcFrame = RpcRequestFrame | RpcNotificationFrame | RpcSuccessFrame | RpcErrorFrame;

// ---------------------------------------------------------------------------------------------
// Methods

export interface ToolDeclaration {
  name: string;
  description: string;
  input_schema: JsonSchema;
}

export interface AgentWireOptions {
  name?: string;
  model?: string;
  provider?: string;
  reasoning?: ReasoningEffort | ReasoningOptions;
  schema?: JsonSchema;
  tools?: ToolDeclaration[];
  builtins?: "all" | "read-only" | "none" | string[];
  cwd?: string;
  mcp?: McpServerRef[];
  skills?: string[];
  memory?: string;
  humanInput?: boolean;
  maxIterations?: number;
  sessionId?: string;
  attachments?: { mimeType: string; data?: string; url?: string; filename?: string }[];
}

export type SleepWireArg = NormalizedSleep;

export type ArtifactWireBody = { encoding: "utf8"; data: string } | { encoding: "base64"; data: string };

export interface ToolInvokeParams {
  call_id: string;
  tool: string;
  input: JsonValue;
}

export type Usage = UsageSnapshot;

type None = Record<string, never>;
type CallParams = { slug: string; input: JsonValue; opts?: CallOptions };
type Session = { sessionId: string };

interface HostMethods {
  bootstrap: [None, { input: JsonValue; input_schema: JsonSchema | null; context: ContextData }];
  report_return: [{ value: JsonValue }, None];
  agent: [{ prompt: string; opts?: AgentWireOptions }, { output: JsonValue }];
  "workflows.call": [CallParams, { output: JsonValue; output_schema: JsonSchema | null }];
  "workflows.run": [CallParams, { runId: string }];
  "workflows.schedule": [
    { slug: string; input: JsonValue; opts: Omit<ScheduleOptions, "at"> & { at?: string } },
    { scheduleId: string },
  ];
  sleep: [{ arg: SleepWireArg }, None];
  humanInput: [{ opts: HumanInputOptions }, { result: HumanInputResult }];
  "secrets.get": [{ name: string }, { value: string }];
  "artifacts.write": [
    { name: string; contentType: string; body: ArtifactWireBody; metadata?: { [key: string]: JsonValue } },
    { ref: ArtifactRef },
  ];
  "computer.openBrowser": [{ opts?: BrowserSessionOptions }, Session];
  "computer.browser.navigate": [Session & { url: string }, None];
  "computer.browser.url": [Session, { url: string }];
  "computer.browser.title": [Session, { title: string }];
  "computer.browser.screenshot": [Session & { fullPage?: boolean }, { ref: ArtifactRef }];
  "computer.browser.console": [Session & { since?: number }, { entries: ConsoleEntry[] }];
  "computer.browser.network": [Session & { since?: number }, { entries: NetworkEntry[] }];
  "computer.browser.eval": [Session & { expression: string }, { value: JsonValue }];
  "computer.browser.close": [Session, None];
  "computer.openDesktop": [{ opts?: DesktopSessionOptions }, Session];
  "computer.desktop.screenshot": [Session, { ref: ArtifactRef }];
  "computer.desktop.close": [Session, None];
  shell: [{ cmd: string; opts?: ShellOptions }, ShellResult];
  "auth.idToken": [{ audience: string }, { token: string }];
  "auth.apiToken": [None, { token: string }];
  "usage.get": [None, UsageSnapshot];
}

export type HostMethod = keyof HostMethods;
export type HostMethodParams<Method extends HostMethod> = HostMethods[Method][0];
export type HostMethodResult<Method extends HostMethod> = HostMethods[Method][1];

// ---------------------------------------------------------------------------------------------
// Schemas; all objects are closed

export declare const protocolErrorSchema: Schema<ProtocolErrorShape>;
export declare const rpcFrameSchema: Schema<RpcFrame>;
export declare const rpcRequestFrameSchema: Schema<RpcRequestFrame>;
export declare const rpcNotificationFrameSchema: Schema<RpcNotificationFrame>;
export declare const rpcSuccessFrameSchema: Schema<RpcSuccessFrame>;
export declare const rpcErrorFrameSchema: Schema<RpcErrorFrame>;

export declare const clientToHostRequests: {
  readonly [Method in HostMethod]: {
    readonly params: Schema<HostMethodParams<Method>>;
    readonly result: Schema<HostMethodResult<Method>>;
  };
};
export declare const clientToHostNotifications: {
  readonly phase: { readonly params: Schema<{ name: string; opts?: PhaseOptions }> };
};
export declare const hostToClientRequests: {
  readonly tool_invoke: {
    readonly params: Schema<ToolInvokeParams>;
    readonly result: Schema<{ output: JsonValue }>;
  };
};
export declare const hostToClientNotifications: {
  readonly cancel: { readonly params: Schema<{ reason?: string } | undefined> };
};

export declare const jsonValueSchema: Schema<JsonValue>;
export declare const agentWireOptionsSchema: Schema<AgentWireOptions>;
export declare const toolDeclarationSchema: Schema<ToolDeclaration>;
export declare const sleepWireArgSchema: Schema<SleepWireArg>;
export declare const humanInputResultSchema: Schema<HumanInputResult>;
export declare const humanInputWireOptionsSchema: Schema<HumanInputOptions>;
export declare const artifactWireBodySchema: Schema<ArtifactWireBody>;
export declare const artifactRefSchema: Schema<ArtifactRef>;
export declare const shellResultSchema: Schema<ShellResult>;
export declare const usageSnapshotSchema: Schema<UsageSnapshot>;
export declare const actorSchema: Schema<Actor>;
export declare const triggerInfoSchema: Schema<TriggerInfo>;
export declare const contextDataSchema: Schema<ContextData>;
