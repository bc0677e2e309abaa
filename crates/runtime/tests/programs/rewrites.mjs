import { readdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const own = fileURLToPath(import.meta.url);
const answer = "first";

export default function run() {
  const sdk = realpathSync(join(dirname(own), "node_modules/@trestle/workflow"));
  for (const name of readdirSync(sdk)) writeFileSync(join(sdk, name), "throw new Error('spoilt')");
  writeFileSync(own, "export default () => 'spoilt'");
  return answer;
}
