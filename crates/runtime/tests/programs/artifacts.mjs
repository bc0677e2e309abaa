import { artifacts } from "@trestle/workflow";

const refused = (promise) => promise.then(() => "done", ({ code, message }) => ({ code, message }));

export default async function run() {
  const small = await artifacts.write("small.txt", "text/plain", "héllo", { kind: "note" });
  await artifacts.write("bytes.bin", "application/octet-stream", new Uint8Array([1, 2, 3]));
  await artifacts.write("middle.bin", "application/octet-stream", new Uint8Array(3_670_016));
  await artifacts.write("control.txt", "text/plain", "\u0001".repeat(1_048_576));
  await artifacts.write("large.bin", "application/octet-stream", new Uint8Array(8_000_000).fill(7));
  return {
    small,
    long: await refused(artifacts.write("n".repeat(256), "text/plain", "x")),
    bad: await rawWrite(),
  };
}

// The library never sends base64 that is none.
async function rawWrite() {
  const { connect } = await import("node:net");
  const socket = connect(process.env.BOARDWALK_HOST_SOCK);
  const params = { name: "a", contentType: "text/plain", body: { encoding: "base64", data: "not base64!" } };
  socket.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "artifacts.write", params })}\n`);
  const [data] = await new Promise((resolve) => socket.once("data", (...data) => resolve(data)));
  socket.destroy();
  return JSON.parse(data).error;
}
