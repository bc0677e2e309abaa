export default function run() {
  process.stdout.write(`${"😀".repeat(200_000)}\n`);
}
