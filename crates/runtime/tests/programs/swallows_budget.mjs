import { agent } from "@boardwalk-labs/workflow";

export default async function run() {
  console.log(await agent("first", { builtins: "none" }));
  try {
    await agent("second", { builtins: "none" });
  } catch (error) {
    console.log(error.code);
  }
  return "as if nothing had happened";
}
