// A process that the program started speaks the protocol by itself.
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const script = `
  const socket = require("node:net").connect(process.env.BOARDWALK_HOST_SOCK);
  const calls = [["bootstrap", {}], ["report_return", { value: "stolen" }], ["secrets.get", { name: "open" }]];
  const answers = {};
  let text = "";
  socket.on("data", (data) => {
    text += data;
    let end;
    while ((end = text.indexOf("\\n")) >= 0) {
      const answer = JSON.parse(text.slice(0, end));
      text = text.slice(end + 1);
      answers[calls[answer.id - 1][0]] = answer;
      if (Object.keys(answers).length === calls.length) {
        console.log(JSON.stringify(answers));
        process.exit(0);
      }
    }
  });
  calls.forEach(([method, params], index) => socket.write(JSON.stringify({ jsonrpc: "2.0", id: index + 1, method, params }) + "\\n"));
`;

export default async function run() {
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", script]);
  return { ...JSON.parse(stdout), mine: "kept" };
}
