// Asks for everything on a connection of its own and holds each answer to the closed schemas of the SDK.
import { connect } from "node:net";
import { clientToHostRequests, rpcFrameSchema } from "@trestle/workflow/runtime";

const asked = {
  bootstrap: {},
  agent: { prompt: "hi" },
  "workflows.call": { slug: "done", input: null },
  "workflows.run": { slug: "alone", input: null },
  sleep: { arg: 0 },
  "secrets.get": { name: "A" },
  "artifacts.write": { name: "a.txt", contentType: "text/plain", body: { encoding: "utf8", data: "x" } },
  shell: { cmd: "true" },
  "auth.apiToken": {},
  "usage.get": {},
  report_return: { value: null },
};

export default async function run() {
  const socket = connect(process.env.BOARDWALK_HOST_SOCK);
  const answers = new Map();
  const methods = Object.keys(asked);
  const all = new Promise((resolve) => {
    let text = "";
    socket.on("data", (data) => {
      text += data;
      let end;
      while ((end = text.indexOf("\n")) >= 0) {
        const frame = JSON.parse(text.slice(0, end));
        answers.set(methods[frame.id], frame);
        text = text.slice(end + 1);
      }
      if (answers.size === methods.length) resolve();
    });
  });
  methods.forEach((method, id) => socket.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params: asked[method] })}\n`));
  await all;
  socket.destroy();
  const wrong = [];
  for (const [method, frame] of answers) {
    const whole = rpcFrameSchema.safeParse(frame);
    const result = clientToHostRequests[method].result.safeParse(frame.result);
    if (!whole.success || !result.success) wrong.push({ method, frame });
  }
  return { wrong, answered: [...answers.keys()].sort(), context: answers.get("bootstrap").result.context };
}
