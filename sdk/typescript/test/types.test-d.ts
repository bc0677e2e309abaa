// Compiled, never run: what authors write must type-check, and each mistake marked below must not.
import {
  agent, artifacts, auth, channelOf, computer, HostError, humanInput, installTestHost, isRunFatal, makeCursor,
  normalizeReasoning, parallel, parseJsonc, parseRunEventLenient, parseWorkflowDescriptor, phase, runEventSchema,
  secrets, shell, sleep, splitFallback, usage, validateConcurrencyKeyTemplate, workflowManifestSchema, workflows,
} from "@boardwalk-labs/workflow";
import type {
  Actor, AgentAttachment, AgentOptions, ArtifactBody, ArtifactRef, BrowserSession, BrowserSessionOptions, Budget,
  CallableBy, CallOptions, Channel, Concurrency, ConcurrencyKeyTemplateIssue, ConsoleEntry, Container, Context,
  ContextData, CronTrigger, DesktopSession, DesktopSessionOptions, EgressPolicy, EnvVars, EventEnvelope, GithubTrigger,
  GithubTriggerEvent, HostedRunnerSize, HostedRunsOn, HostedRunsOnObject, HumanChoiceResult, HumanInputChoiceSpec,
  HumanInputMultiSelectSpec, HumanInputOptions, HumanInputResult, HumanInputSpec, HumanInputTextSpec,
  HumanMultiSelectResult, HumanTextResult, JiraTrigger, JiraTriggerEvent, JsonSchema, JsonValue, LinearTrigger,
  LinearTriggerEvent, ManualTrigger, McpServerRef, NetworkEntry, NormalizedReasoning, Notification, NotionTrigger,
  NotionTriggerEvent, OrgRole, PhaseOptions, ReasoningEffort, ReasoningOptions, RunEvent, RunEventKind,
  RunPermissionAccess, RunPermissions, RunsOn, RunStatus, ScheduleOptions, SecretRef, SelfHostedRunsOn, ShellOptions,
  ShellResult, SleepArg, TestHostHandle, TestHostOverrides, TokenUsage, ToolDef, ToolReturn, Trigger, TriggerInfo,
  UsageDimension, UsageSnapshot, WebhookTrigger, WorkflowDescriptor, WorkflowManifest, WorkflowRunTrigger, Workspace,
} from "@trestle/workflow";
import { clientToHostRequests, connectHost, getHost, HostClient, peekHost, reviveBySchema } from "@trestle/workflow/runtime";
import type {
  AgentWireOptions, ArtifactWireBody, ConnectOptions, HostInterface, HostMethod, HostMethodParams, HostMethodResult,
  ProtocolErrorShape, RpcErrorFrame, RpcFrame, RpcId, RpcNotificationFrame, RpcRequestFrame, RpcSuccessFrame,
  SleepWireArg, ToolDeclaration, ToolInvokeParams, Usage, WorkflowCallResult,
} from "@trestle/workflow/runtime";

/** Compiles only when both types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(..._: Same<A, B> extends true ? [] : ["the types differ"]): void => {};

interface Finding {
  title: string;
  score: number;
}

export default async function run(input: { since: Date; limit: bigint }, context: Context): Promise<Finding[]> {
  const { signal, actor, trigger } = context;
  await fetch("https://example.com", { signal });
  signal.addEventListener("abort", () => console.log(signal.reason));
  if (actor.type === "workflow") console.log(actor.parent_run_id);
  // @ts-expect-error a user has no parent
  if (actor.type === "user") console.log(actor.parent_run_id);
  console.log(trigger.request?.headers["x-a"], input.since.getTime(), input.limit + 1n);
  // @ts-expect-error the context cannot be changed
  context.runId = "x";

  const text = await agent("Summarise", { model: "m", reasoning: "high", builtins: ["read"] });
  same<typeof text, string>();
  const finding = await agent<Finding>("Rate", { schema: { type: "object" } });
  same<typeof finding, Finding>();
  const tool: ToolDef<{ id: string }> = {
    name: "lookup",
    description: "Finds a customer",
    inputSchema: { type: "object" },
    execute: async ({ id }, call) => ({ id: id.length, aborted: call.signal.aborted }),
    timeoutMs: 1000,
  };
  await agent("x", { tools: [tool], attachments: [{ mimeType: "image/png", data: new Uint8Array() }] });
  // @ts-expect-error names of built-in tools belong in `builtins`
  await agent("x", { tools: ["bash"] });
  // @ts-expect-error there is no such option
  await agent("x", { temperature: 1 });
  // @ts-expect-error there is no such effort
  await agent("x", { reasoning: "huge" });

  const child = await workflows.call<{ total: number }>("child", { at: new Date(), set: new Set([1n]) });
  same<typeof child, { total: number }>();
  same<Awaited<ReturnType<typeof workflows.run>>, string>();
  await workflows.schedule("child", null, { rate: "5 minutes" });
  // @ts-expect-error a schedule needs its options
  await workflows.schedule("child", null);

  await sleep(5);
  await sleep("5m");
  await sleep({ until: new Date() });
  // @ts-expect-error neither a length nor a moment
  await sleep({ for: 5 });

  const choice = await humanInput({ prompt: "?", input: { kind: "choice", options: ["a"] } });
  same<typeof choice, HumanChoiceResult>();
  const many = await humanInput({ prompt: "?", input: { kind: "multiselect", options: ["a"] } });
  same<typeof many, HumanMultiSelectResult>();
  const answer = await humanInput({ prompt: "?", input: { kind: "text" } });
  same<typeof answer, HumanTextResult>();

  const tuple = await parallel([async () => 1, () => "two", () => agent("x")]);
  same<typeof tuple, [number | null, string | null, string | null]>();
  const list = await parallel(["a", "b"].map((name) => async () => name.length), { concurrency: 2 });
  same<typeof list, (number | null)[]>();
  // @ts-expect-error promises have already started
  await parallel([agent("x")]);

  const ref: ArtifactRef = await artifacts.write("r.json", "application/json", JSON.stringify(finding), { n: 1 });
  await artifacts.write("r.bin", "application/octet-stream", Buffer.from("x"));
  // @ts-expect-error an object has to be turned into text
  await artifacts.write("r.json", "application/json", finding);
  const { exitCode, stdout }: ShellResult = await shell("ls", { timeoutMs: 1000 });
  const browser: BrowserSession = await computer.openBrowser({ viewport: { width: 1, height: 1 } });
  await agent("x", { session: browser });
  phase("Done", { id: "done" });
  const { usd }: UsageSnapshot = await usage.get();
  console.log(ref.url, exitCode, stdout, usd.remaining, await secrets.get("A"), await auth.idToken("aud"));

  try {
    await agent("x");
  } catch (error) {
    if (isRunFatal(error)) throw error;
    if (error instanceof HostError) console.log(error.code, error.hint?.length, error.data);
  }
  return [finding];
}

export function tools(): void {
  const host: TestHostHandle = installTestHost({
    agent: (prompt, options) => `${prompt}${options?.model}`,
    workflows: { call: async (slug, input) => ({ slug, input }) },
    secrets: { A: "one" },
    sleep: (arg) => console.log(typeof arg === "number" ? arg : arg),
  });
  host.cancel();
  const context: Context = host.context({ attempt: 2 });
  host.uninstall();
  const descriptor: WorkflowDescriptor = parseWorkflowDescriptor("{}");
  if (descriptor.concurrency.mode !== "unlimited") console.log(descriptor.concurrency.key);
  const manifest: WorkflowManifest = workflowManifestSchema.parse(parseJsonc("{}"));
  const issues: ConcurrencyKeyTemplateIssue[] = validateConcurrencyKeyTemplate("x");
  const parts: { path: string; fallback?: string } = splitFallback("x");
  const event: RunEvent | null = parseRunEventLenient({});
  if (event?.kind === "text_delta") console.log(event.text, event.seq);
  if (event !== null) same<ReturnType<typeof channelOf>, Channel | undefined>();
  const result = runEventSchema.safeParse({});
  if (result.success) console.log(result.data.kind);
  else console.log(result.error.issues[0]?.path);
  const normal: NormalizedReasoning | undefined = normalizeReasoning("low");
  console.log(context, manifest, issues, parts, makeCursor(0, 1), normal);
}

export async function engine(): Promise<void> {
  const client: HostClient = await connectHost({ sockPath: "x" });
  const { input, input_schema, context } = await client.bootstrap();
  console.log(reviveBySchema(input, input_schema), context.runId);
  const host: HostInterface | undefined = peekHost() ?? (await getHost());
  await host?.sleep({ durationMs: 5 });
  // @ts-expect-error the author's form of a sleep is not the wire's
  await host?.sleep("5m");
  const params: HostMethodParams<"secrets.get"> = { name: "A" };
  const value: HostMethodResult<"secrets.get"> = clientToHostRequests["secrets.get"].result.parse({});
  const method: HostMethod = "workflows.call";
  console.log(params, value.value, method);
}

/** Every type that programs and engines may name. */
export type Named = [
  Actor, AgentAttachment, AgentOptions, ArtifactBody, BrowserSessionOptions, Budget, CallableBy, CallOptions, Concurrency,
  ConsoleEntry, Container, ContextData, CronTrigger, DesktopSession, DesktopSessionOptions, EgressPolicy, EnvVars,
  EventEnvelope, GithubTrigger, GithubTriggerEvent, HostedRunnerSize, HostedRunsOn, HostedRunsOnObject,
  HumanInputChoiceSpec, HumanInputMultiSelectSpec, HumanInputOptions, HumanInputResult, HumanInputSpec,
  HumanInputTextSpec, JiraTrigger, JiraTriggerEvent, JsonSchema, JsonValue, LinearTrigger, LinearTriggerEvent,
  ManualTrigger, McpServerRef, NetworkEntry, Notification, NotionTrigger, NotionTriggerEvent, OrgRole, PhaseOptions,
  ReasoningEffort, ReasoningOptions, RunEventKind, RunPermissionAccess, RunPermissions, RunsOn, RunStatus,
  ScheduleOptions, SecretRef, SelfHostedRunsOn, ShellOptions, SleepArg, TestHostOverrides, TokenUsage, ToolReturn,
  Trigger, TriggerInfo, UsageDimension, WebhookTrigger, WorkflowRunTrigger, Workspace,
  AgentWireOptions, ArtifactWireBody, ConnectOptions, ProtocolErrorShape, RpcErrorFrame, RpcFrame, RpcId,
  RpcNotificationFrame, RpcRequestFrame, RpcSuccessFrame, SleepWireArg, ToolDeclaration, ToolInvokeParams, Usage,
  WorkflowCallResult,
];
