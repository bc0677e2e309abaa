import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { shell } from "@trestle/workflow";

export default async function run() {
  const detached = spawn("sh", ["-c", "trap '' TERM HUP; while :; do sleep 1; done"], { detached: true, stdio: "ignore" });
  detached.unref();
  // Holds the command's pipes open for ever: the command itself is over.
  const { stdout } = await shell("setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $!");
  console.log(process.pid, detached.pid, stdout.trim());
  // Until the test has looked at them.
  while (!existsSync("seen")) await new Promise((resolve) => setTimeout(resolve, 5));
}
