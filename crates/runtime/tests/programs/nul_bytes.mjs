import { artifacts, secrets, shell, workflows } from "@trestle/workflow";

const told = (promise) => promise.then((value) => ({ value }), ({ code, message, name }) => ({ code, message, name }));

export default async () => ({
  secret: await told(secrets.get("A\0B")),
  command: await told(shell("echo a\0b")),
  variable: await told(shell("true", { env: { "A\0B": "x" } })),
  value: await told(shell("true", { env: { A: "x\0y" } })),
  directory: await told(shell("true", { cwd: "a\0b" })),
  equals: await told(shell("true", { env: { "A=B": "x" } })),
  slug: await told(workflows.call("a\0b", null)),
  input: await told(workflows.call("unknown", "a\0b")),
  artifact: await told(artifacts.write("a.bin", "application/octet-stream", "a\0b")),
});
