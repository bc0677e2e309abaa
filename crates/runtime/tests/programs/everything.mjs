// Asks for everything that a run process asks the control plane for.
import { agent, artifacts, phase, secrets, sleep, workflows } from "@boardwalk-labs/workflow";

export default async function run() {
  console.log("first");
  phase("work");
  const secret = await secrets.get("KEY");
  const file = await artifacts.write("small.txt", "text/plain", "small");
  await artifacts.write("large.bin", "application/octet-stream", new Uint8Array(4_000_000).fill(7));
  const child = await workflows.call("child", { n: 1 });
  const answer = await agent("say", { model: "m", builtins: "none" });
  const other = await agent("say more", { model: "m", provider: "elsewhere", builtins: "none" });
  await sleep(600);
  for (let number = 0; number < 40; number++) console.log(`line ${number}`);
  console.log(`it is ${secret}`);
  return { file: file.name, child, answer, other, length: secret.length };
}
