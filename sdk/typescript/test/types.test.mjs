import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import * as sdk from "../index.mjs";
import * as runtime from "../runtime.mjs";
import { NODE, SDK, folder } from "./support.mjs";

const TOOLS = join(SDK, "test/tools/node_modules");
const TSC = join(TOOLS, "typescript/bin/tsc");
const TEMPLATE = join(SDK, "../../crates/cli/templates/init");
const EXAMPLES = join(SDK, "../../examples");

async function tsc(args, cwd) {
  try {
    await promisify(execFile)(NODE, [TSC, "--noEmit", "--pretty", "false", ...args], { cwd });
    return [];
  } catch (error) {
    return error.stdout.trim().split("\n");
  }
}

/** A project as `trestle init` makes it. */
function scaffold(t) {
  const root = folder(t);
  cpSync(TEMPLATE, root, { recursive: true });
  mkdirSync(join(root, ".trestle/types"), { recursive: true });
  for (const name of ["index.d.ts", "runtime.d.ts"]) cpSync(join(SDK, name), join(root, ".trestle/types", name));
  return root;
}

test("types hold for programs and refuse their mistakes", async () => {
  assert.deepEqual(await tsc(["-p", "tsconfig.json"], join(SDK, "test")), []);
});

test("declares exactly the values that exist", async (t) => {
  const root = scaffold(t);
  const names = (module) => Object.keys(module).join(", ");
  writeFileSync(
    join(root, "src/values.ts"),
    `import { ${names(sdk)} } from "@trestle/workflow";
     import { ${Object.keys(runtime).map((name) => `${name} as r_${name}`).join(", ")} } from "@trestle/workflow/runtime";
     import type * as Root from "@trestle/workflow";
     import type * as Runtime from "@trestle/workflow/runtime";
     export const all = [${names(sdk)}, ${Object.keys(runtime).map((name) => `r_${name}`).join(", ")}];
     export const root: Record<Exclude<keyof typeof Root, ${Object.keys(sdk).map((name) => `"${name}"`).join(" | ")}>, never> = {};
     export const side: Record<Exclude<keyof typeof Runtime, ${Object.keys(runtime).map((name) => `"${name}"`).join(" | ")}>, never> = {};`,
  );
  assert.deepEqual(await tsc(["-p", "tsconfig.json"], root), []);
});

test("checks a new project offline under both names", async (t) => {
  const root = scaffold(t);
  writeFileSync(
    join(root, "src/other.ts"),
    `import { agent, HostError } from "@boardwalk-labs/workflow";
     import { HostError as Same, getHost } from "@boardwalk-labs/workflow/runtime";
     import { HostError as Third } from "@trestle/workflow/runtime";
     export const one: typeof HostError = Same;
     export const two: typeof HostError = Third;
     export const text: Promise<string> = agent("x");
     export const host = getHost();`,
  );
  assert.deepEqual(await tsc(["-p", "tsconfig.json"], root), []);
  writeFileSync(join(root, "src/wrong.ts"), 'import { agent } from "@boardwalk-labs/workflow";\nexport const n: number = await agent("x", { temperature: 1 });\n');
  const problems = await tsc(["-p", "tsconfig.json"], root);
  assert.ok(problems.some((line) => line.startsWith("src/wrong.ts(2,")), problems.join("\n"));
});

test("needs no library for its signal type", async (t) => {
  const root = scaffold(t);
  const config = JSON.parse(readFileSync(join(root, "tsconfig.json"), "utf8"));
  config.compilerOptions.lib = ["es2023"];
  config.compilerOptions.skipLibCheck = false;
  writeFileSync(join(root, "tsconfig.json"), JSON.stringify(config));
  writeFileSync(
    join(root, "src/index.ts"),
    `import type { Context } from "@trestle/workflow";
     import type { HostClient } from "@trestle/workflow/runtime";
     export default (input: unknown, { signal }: Context) => { signal.throwIfAborted(); return [signal.aborted, {} as HostClient] };`,
  );
  assert.deepEqual(await tsc(["-p", "tsconfig.json"], root), []);
});

function packages(root) {
  return readdirSync(root, { recursive: true })
    .filter((path) => path.endsWith("workflow.jsonc") && !path.includes("node_modules"))
    .map((path) => join(root, path, ".."));
}

test("checks every example with its own settings", async () => {
  const found = packages(EXAMPLES);
  assert.ok(found.length >= 5);
  for (const root of found) {
    assert.deepEqual(await tsc(["-p", "tsconfig.json", "--typeRoots", join(TOOLS, "@types"), "--types", "node"], root), [], root);
    const descriptor = sdk.parseWorkflowDescriptor(readFileSync(join(root, "workflow.jsonc"), "utf8"));
    const { name, type } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    assert.deepEqual([name, type], [descriptor.slug, "module"]);
  }
});

test("scaffolds a descriptor that is valid", () => {
  const text = readFileSync(join(TEMPLATE, "workflow.jsonc"), "utf8").replaceAll("{{slug}}", "my-flow");
  const descriptor = sdk.parseWorkflowDescriptor(text);
  assert.equal(descriptor.slug, "my-flow");
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(TEMPLATE, "package.json"), "utf8"));
  assert.deepEqual([dependencies, devDependencies], [undefined, undefined]);
});
