import { auth, computer, humanInput, usage, workflows } from "@trestle/workflow";

const refused = (promise) => promise.then(() => "done", ({ code, message, data }) => ({ code, message, data }));

export default async function run() {
  return {
    gate: await refused(humanInput({ prompt: "Go on?", input: { kind: "text" } })),
    schedule: await refused(workflows.schedule("other", {}, { rate: "5 minutes" })),
    identity: await refused(auth.idToken("audience")),
    browser: await refused(computer.openBrowser()),
    desktop: await refused(computer.openDesktop()),
    token: (await auth.apiToken()) === "bwk_api-token-canary" ? "[REDACTED]" : "another",
    usage: await usage.get(),
  };
}
