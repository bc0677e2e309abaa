// A host for unit tests: every capability is a stub of the test's choice.
"use strict";

const UNCAPPED = Object.freeze({ spent: 0, cap: null, remaining: null });

function missing(capability, where) {
  return new Error(
    `${capability} is not stubbed — pass an implementation to installTestHost, for example installTestHost({ ${where} })`,
  );
}

function stub(implementation, capability, where) {
  return async (...args) => {
    if (typeof implementation !== "function") throw missing(capability, where);
    return implementation(...args);
  };
}

function secretReader(secrets) {
  return async (name) => {
    if (typeof secrets === "function") return secrets(name);
    if (secrets === undefined) throw missing("secrets.get", `secrets: { ${JSON.stringify(name)}: "…" }`);
    const value = secrets instanceof Map ? secrets.get(name) : Object.hasOwn(secrets, name) ? secrets[name] : undefined;
    if (value === undefined) {
      throw new Error(`the secret "${name}" is not stubbed — add it to the secrets passed to installTestHost`);
    }
    return value;
  };
}

class TestHost {
  #abort = new AbortController();
  #HostError;

  constructor(overrides, HostError) {
    this.#HostError = HostError;
    const { workflows = {}, artifacts = {}, computer = {}, auth = {} } = overrides;
    this.agent = stub(overrides.agent, "agent", 'agent: () => "…"');
    const call = stub(workflows.call, "workflows.call", "workflows: { call: () => … }");
    this.callWorkflow = async (...args) => ({ output: await call(...args), outputSchema: null });
    this.runWorkflow = stub(workflows.run, "workflows.run", "workflows: { run: () => … }");
    this.scheduleWorkflow = stub(workflows.schedule, "workflows.schedule", "workflows: { schedule: () => … }");
    this.sleep = stub(overrides.sleep ?? (() => undefined), "sleep", "sleep: () => {}");
    this.humanInput = stub(overrides.humanInput, "humanInput", "humanInput: () => …");
    this.getSecret = secretReader(overrides.secrets);
    this.writeArtifact = stub(artifacts.write, "artifacts.write", "artifacts: { write: () => … }");
    this.openBrowser = stub(computer.openBrowser, "computer.openBrowser", "computer: { openBrowser: () => … }");
    this.openDesktop = stub(computer.openDesktop, "computer.openDesktop", "computer: { openDesktop: () => … }");
    this.shell = stub(overrides.shell, "shell", "shell: () => …");
    this.idToken = stub(auth.idToken, "auth.idToken", "auth: { idToken: () => … }");
    this.apiToken = stub(auth.apiToken, "auth.apiToken", "auth: { apiToken: () => … }");
    const spent = () => ({ usd: UNCAPPED, tokens: UNCAPPED, compute_seconds: UNCAPPED });
    this.usage = stub(overrides.usage ?? spent, "usage.get", "usage: () => …");
    this.phase = (name, options) => void overrides.phase?.(name, options);
  }

  get signal() {
    return this.#abort.signal;
  }

  cancel(reason = "the run was cancelled") {
    this.#abort.abort(typeof reason === "string" ? new this.#HostError("CANCELLED", reason) : reason);
  }
}

function defaultContext() {
  return {
    runId: "01TESTRUN00000000000000000",
    workflowId: "01TESTWORKFLOW000000000000",
    workflowVersion: 1,
    orgId: "01TESTORG00000000000000000",
    environment: null,
    actor: { type: "user", user_id: "01TESTUSER0000000000000000" },
    attempt: 1,
    trigger: { kind: "manual", firedAt: Date.now() },
    workspaceDir: process.cwd(),
  };
}

/** The handle of a new test host, which becomes the active one. `sdk` is the loaded copy of the SDK. */
function installTestHost(overrides, sdk) {
  const host = new TestHost(overrides, sdk.HostError);
  sdk.installHost(host);
  return Object.freeze({
    signal: host.signal,
    /** Cancels the run: aborts `signal`, by default with a CANCELLED HostError. */
    cancel: (reason) => host.cancel(reason),
    /** Removes this host, unless another one has taken its place. */
    uninstall: () => {
      if (sdk.peekHost() === host) sdk.resetHost();
    },
    /** A context to call `run` with. */
    context: (more) => sdk.freezeContext({ ...defaultContext(), ...more }, host),
  });
}

module.exports = { installTestHost };
