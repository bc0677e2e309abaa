// Waits for everything that can be waited for, and tells how each wait ended.
import { readFileSync } from "node:fs";
import { agent, shell, sleep, workflows } from "@boardwalk-labs/workflow";

export default async function run(input, context) {
  const told = (name, promise) => promise.then(
    () => `${name} done`,
    (error) => `${name} ${error.code} ${error.data?.reason}`,
  );
  // A command whose child leaves the group and ignores the polite signal.
  const command = shell("setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' & wait");
  const waits = [
    told("agent", agent("think")),
    told("call", workflows.call("other", {})),
    told("pause", sleep("1h")),
    told("shell", command),
  ];
  let pid = "";
  while (pid === "") {
    await new Promise((resolve) => setTimeout(resolve, 5));
    try {
      pid = readFileSync("pid", "utf8").trim();
    } catch {}
  }
  console.log(`${process.pid} ${pid}`);
  const outcomes = await Promise.all(waits);
  outcomes.push(await told("later", sleep(1)));
  outcomes.push(`signal ${context.signal.reason.message}`);
  console.log(outcomes.join(", "));
  return "swallowed";
}
