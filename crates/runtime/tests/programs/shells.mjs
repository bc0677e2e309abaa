import { mkdirSync } from "node:fs";
import { shell } from "@trestle/workflow";

const refused = (promise) => promise.then(() => "done", ({ code, message }) => ({ code, message }));

export default async function run() {
  mkdirSync("sub");
  const where = await shell('basename "$PWD"; echo "$EXTRA"; echo "$HOME"', { cwd: "sub", env: { EXTRA: "of shell" } });
  const lines = where.stdout.trim().split("\n");
  return {
    plain: await shell("echo 'out ü'; echo err >&2; exit 3"),
    killed: await shell("kill -9 $$"),
    where: [lines[0], lines[1], lines[2] === process.env.HOME ? "of run" : lines[2]],
    late: await shell("echo begun; exec sleep 1000", { timeoutMs: 100 }),
    stubborn: await shell("trap '' TERM; echo begun; while :; do sleep 1; done", { timeoutMs: 100 }),
    held: await shell("(trap '' TERM; exec sleep 1000) & echo done"),
    fits: (await shell("head -c 1000 /dev/zero | tr '\\0' x", { maxBuffer: 1000 })).stdout.length,
    over: await refused(shell("head -c 1001 /dev/zero | tr '\\0' x; sleep 1000", { maxBuffer: 1000 })),
    large: (await shell("head -c 3000000 /dev/zero | tr '\\0' y")).stdout.length,
    nowhere: await refused(shell("true", { cwd: "no/such/directory" })),
    input: (await shell("cat")).stdout,
  };
}
