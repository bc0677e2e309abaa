import { agent, secrets } from "@boardwalk-labs/workflow";

export default async function run() {
  const key = await secrets.get("key");
  const tool = { name: "tell", description: "tells", inputSchema: { type: "object" }, handler: async () => `it is ${key}` };
  await agent(`use ${key}`, { builtins: "none", name: key, tools: [tool] });
}
