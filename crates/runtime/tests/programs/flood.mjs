// One call more than a connection may have in flight.
import { connect } from "node:net";

export default async function run() {
  const socket = connect(process.env.BOARDWALK_HOST_SOCK);
  const first = new Promise((resolve) => {
    let text = "";
    socket.on("data", (data) => {
      text += data;
      const end = text.indexOf("\n");
      if (end >= 0) resolve(JSON.parse(text.slice(0, end)));
    });
  });
  const lines = [];
  for (let id = 1; id <= 10_001; id += 1) {
    lines.push(JSON.stringify({ jsonrpc: "2.0", id, method: "sleep", params: { arg: 3_600_000 } }));
  }
  socket.write(`${lines.join("\n")}\n`);
  const answer = await first;
  socket.destroy();
  return answer;
}
