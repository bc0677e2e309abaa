// Ignores every polite request to stop and never gives the loop back.
process.on("SIGTERM", () => {});
process.on("SIGINT", () => {});

export default function run() {
  process.stdout.write(`${process.pid}\n`);
  for (;;);
}
