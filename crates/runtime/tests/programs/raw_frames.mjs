// Speaks the protocol byte by byte, on a connection of its own.
import { connect } from "node:net";

export default async function run() {
  const socket = connect(process.env.BOARDWALK_HOST_SOCK);
  const answers = [];
  const all = new Promise((resolve) => {
    let text = "";
    socket.on("data", (data) => {
      text += data;
      let end;
      while ((end = text.indexOf("\n")) >= 0) {
        answers.push(JSON.parse(text.slice(0, end)));
        text = text.slice(end + 1);
      }
      if (answers.length === 13) resolve();
    });
  });
  const frame = (id, method, params) => JSON.stringify({ jsonrpc: "2.0", id, method, params });
  const lines = [
    "this is no JSON",
    "",
    "   ",
    `  ${frame(1, "secrets.get", { name: "A" })}\r`,
    frame("1", "secrets.get", { name: "A" }),
    frame(2, "secrets.steal", {}),
    frame(3, "usage.get"),
    frame(4, "agent", { prompt: "x", opts: { temperature: 1 } }),
    `{"jsonrpc":"2.0","id":5,"method":"report_return","params":{"value":${"[".repeat(10_000)}${"]".repeat(10_000)}}}`,
    frame(6, "sleep", { arg: -1 }),
    frame(7, "sleep", { arg: 0 }),
    frame(8, "humanInput", {}),
    frame(1.5, "usage.get", {}),
    frame("", "usage.get", {}),
    "[]",
    '{"jsonrpc":"2.0","id":9,"result":{},"error":{"code":"X","message":"y"}}',
    '{"jsonrpc":"2.0","id":999,"result":{"output":"nobody asked"}}',
    '{"jsonrpc":"2.0","method":"unknown_notification"}',
  ];
  socket.write(`${lines.join("\n")}\n`);
  await all;
  socket.destroy();
  return answers;
}
