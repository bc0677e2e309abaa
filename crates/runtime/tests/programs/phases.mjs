import { phase, usage } from "@trestle/workflow";

export default async function run() {
  phase("  one  ");
  await usage.get();
  phase("two", { id: "own" });
  phase("three", { id: "own" });
  // Just before the end: it must not be lost.
  phase("last");
}
