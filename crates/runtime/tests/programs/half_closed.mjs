// A command that the program runs speaks to the host: it says all it has to say, then listens.
import { writeFileSync } from "node:fs";
import { shell } from "@trestle/workflow";

const client = `
  const socket = require("node:net").connect({ path: process.env.BOARDWALK_HOST_SOCK, allowHalfOpen: true });
  socket.end('{"jsonrpc":"2.0","id":1,"method":"secrets.get","params":{"name":"A"}}');
  socket.pipe(process.stdout);
`;

export default async function run() {
  writeFileSync("client.cjs", client);
  const { stdout, stderr } = await shell(`'${process.execPath}' client.cjs`);
  if (stderr !== "") throw new Error(stderr);
  return JSON.parse(stdout);
}
