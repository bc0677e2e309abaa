import { workflows } from "@trestle/workflow";

const refused = (promise) => promise.then(() => "done", ({ code, message, data }) => ({ code, message, data }));

export default async function run() {
  const same = [{ a: 1, b: 2 }, { b: 2, a: 1 }, { a: 1, b: 2 }].map((input) => workflows.call("same", { a: input.a, b: input.b }));
  const dates = (await Promise.all(same)).map((output) => output.when instanceof Date);
  return {
    dates,
    failed: await refused(workflows.call("fails", null)),
    stopped: await refused(workflows.call("stopped", null)),
    unknown: await refused(workflows.call("unknown", null)),
    started: await workflows.run("alone", {}, { idempotencyKey: "mine" }),
  };
}
