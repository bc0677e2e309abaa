// Rehearses one run in a process that waits for its assignment, so that the real one finds everything
// loaded and compiled. Nothing of it stays: no connection, no timer, no file.
import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { HostClient, freezeContext } from "./core.mjs";
import { reviveBySchema } from "./values.mjs";

// What most programs import, found in the way that they find it.
import "@trestle/workflow";

const CONTEXT = {
  runId: "0",
  workflowId: "0",
  workflowVersion: 1,
  orgId: "0",
  environment: null,
  actor: { type: "user", user_id: "0" },
  attempt: 1,
  trigger: { kind: "manual", firedAt: 0 },
  workspaceDir: "/",
};
const SCHEMA = { type: "object", properties: { at: { type: "string", format: "date-time" } } };
const RESULTS = {
  bootstrap: { input: { at: "2000-01-01T00:00:00Z" }, input_schema: SCHEMA, context: CONTEXT },
  report_return: {},
};

function listen() {
  const server = createServer((socket) => {
    socket.setEncoding("utf8");
    socket.on("data", (text) => {
      for (const line of text.split("\n").filter((part) => part !== "")) {
        const { id, method } = JSON.parse(line);
        if (id !== undefined) socket.write(`${JSON.stringify({ jsonrpc: "2.0", id, result: RESULTS[method] })}\n`);
      }
    });
    socket.on("error", () => {});
  });
  // A name in the abstract namespace leaves no file behind.
  const name = `\0${randomUUID()}`;
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(name, () => resolve({ server, name }));
  });
}

async function rehearseRun() {
  const { server, name } = await listen();
  const client = new HostClient(name);
  try {
    client.phase("rehearsal");
    const { input, input_schema, context } = await client.bootstrap();
    reviveBySchema(input, input_schema);
    freezeContext(context, client);
    await client.reportReturn({ at: new Date(0), list: [1, "two", null] });
  } finally {
    client.close();
    await new Promise((closed) => server.close(closed));
  }
}

/** Never fails: a rehearsal that cannot be held only makes the run start slower. */
export async function rehearse() {
  // Opened before anything is written, so that the first line of a program does not wait for it.
  void process.stdout;
  void process.stderr;
  if (process.platform !== "linux") return;
  try {
    await rehearseRun();
  } catch {
    // the run will load what it needs
  }
}
