import { agent } from "@boardwalk-labs/workflow";

export default async function run() {
  return agent("say hello", { model: "m", builtins: "none" });
}
