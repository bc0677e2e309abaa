import { agent } from "@boardwalk-labs/workflow";

const tool = (handler) => ({ name: "lookup", description: "looks up", inputSchema: { type: "object" }, handler });

export default async function run() {
  return Promise.all([
    agent("agent-a asks", { builtins: "none", tools: [tool(async ({ who }) => `from ${who}`)] }),
    agent("agent-b asks", { builtins: "none", tools: [tool(async ({ who }) => { throw new Error(`${who} went wrong`); })] }),
  ]);
}
