//! The program's own modules: TypeScript, JSX, JSON, paths, and how they start under Node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::{Package, Unpacked, below};

#[test]
fn typescript_runs_without_its_types() {
    let package = Package::new()
        .file(
            "src/index.ts",
            r#"
import { phase } from "@boardwalk-labs/workflow";
import { phase as again } from "@trestle/workflow";
import type { Shape } from "./types";
import { area, type Unit } from "./area.js";
import { Colour, Level, Geometry } from "./kinds";
import * as fs from "fs";
import { join } from "node:path";

export default async function run(input: { n: number }, _ctx: unknown) {
  const shape: Shape = { side: input.n };
  const unit = "cm" satisfies Unit;
  return {
    area: area(shape!), unit, phase: phase("a"), same: phase === again,
    colour: Colour.Blue, name: Colour[Colour.Blue], level: Level.High, pi: Geometry.pi, deep: Geometry.Inner.two,
    fs: typeof fs.readFileSync, join: join("a", "b"),
    late: (await import("./late")).default,
  };
}
"#,
        )
        .file("src/types.ts", "export interface Shape { side: number }\nexport type Alias = Shape;\n")
        .file(
            "src/area.ts",
            "import { Shape, Alias } from './types';\nexport type Unit = 'cm' | 'm';\nexport { Shape, Alias } from './types';\n\
             class Box { constructor(private readonly shape: Shape) {} get area() { return this.shape.side ** 2; } }\n\
             export function area(shape: Shape): number { return new Box(shape).area; }\n",
        )
        .file(
            "src/kinds.ts",
            "export enum Colour { Red, Blue = Red + 4 }\nexport const enum Level { Low = 'low', High = 'high' }\n\
             export namespace Geometry { export const pi = 3; export namespace Inner { export const two = pi - 1; } }\n",
        )
        .file("src/late.mts", "export default 'late';\n");
    assert_eq!(
        package.run(r#"{"n":3}"#),
        json!({"area": 9, "unit": "cm", "phase": "phase a", "same": true, "colour": 4, "name": "Blue",
            "level": "high", "pi": 3, "deep": 2, "fs": "function", "join": "a/b", "late": "late"})
    );
}

#[test]
fn types_that_look_like_values_do_not_break_the_start() {
    let package = Package::new()
        .file("index.ts", "export { Person, name } from './model';\nimport { Person as P, name } from './model';\nexport { P };\nexport default () => name;\n")
        .file("model.ts", "export * from './inner';\nexport interface Person { id: string }\n")
        .file("inner.ts", "export const name = 'n';\nexport interface Hidden { a: 1 }\n");
    assert_eq!(package.run("null"), json!("n"));
}

#[test]
fn an_import_that_is_read_but_missing_is_left_to_node() {
    let package = Package::new()
        .file("index.ts", "import { nothing } from './model';\nexport default () => nothing;\n")
        .file("model.ts", "export const other = 1;\n");
    let output = Unpacked::new(&package.build()).node(&[], "null");
    assert!(output.stderr.contains("does not provide an export named 'nothing'"), "{}", output.stderr);
}

#[test]
fn legacy_decorators_run_with_experimental_decorators() {
    let package = Package::new()
        .file("tsconfig.json", r#"{ "compilerOptions": { "experimentalDecorators": true, /* jsonc */ } }"#)
        .file(
            "src/index.ts",
            r#"
const log: string[] = [];
const named = (name: string) => (target: any, key?: any, descriptor?: any) => { log.push(`${name}:${typeof target}:${String(key)}:${typeof descriptor}`); };
@named("class")
class Job {
  @named("field") title = "t";
  @named("method") go(@named("param") _value: number) { return this.title; }
  @named("static") static make() { return new Job(); }
}
export default () => ({ log, title: Job.make().go(1) });
"#,
        );
    assert_eq!(
        package.run("null"),
        json!({"title": "t", "log": ["field:object:title:undefined", "param:object:go:number",
            "method:object:go:object", "static:function:make:object", "class:function:undefined:undefined"]})
    );
}

#[test]
fn using_declarations_run_on_every_node() {
    let package = Package::new().file(
        "src/index.ts",
        r#"
const dispose: symbol = (Symbol as any).dispose ?? Symbol.for("Symbol.dispose");
const asyncDispose: symbol = (Symbol as any).asyncDispose ?? Symbol.for("Symbol.asyncDispose");
export default async () => {
  const log: string[] = [];
  const resource = (name: string): any => ({
    [dispose]() { log.push(`close ${name}`); },
    async [asyncDispose]() { await null; log.push(`end ${name}`); },
  });
  {
    using a = resource("a");
    await using b = resource("b");
    log.push("body");
  }
  try { using c = resource("c"); throw new Error("boom"); } catch (error) { log.push((error as Error).message); }
  return log;
};
"#,
    );
    assert_eq!(package.run("null"), json!(["body", "end b", "close a", "close c", "boom"]));
}

#[test]
fn jsx_uses_the_configured_factory() {
    let package = Package::new()
        .file("tsconfig.json", r#"{ "compilerOptions": { "jsx": "react", "jsxFactory": "h", "jsxFragmentFactory": "Fragment" } }"#)
        .file(
            "src/index.tsx",
            "const Fragment = 'frag';\nconst h = (tag: any, props: any, ...children: any[]) => ({ tag, props, children });\n\
             export default () => <><b id=\"x\">hi {1 + 1}</b></>;\n",
        );
    assert_eq!(
        package.run("null"),
        json!({"tag": "frag", "props": null, "children": [{"tag": "b", "props": {"id": "x"}, "children": ["hi ", 2]}]})
    );
}

#[test]
fn jsx_imports_its_runtime_from_the_configured_package() {
    let package = Package::new()
        .file("tsconfig.json", r#"{ "compilerOptions": { "jsx": "react-jsx", "jsxImportSource": "tiny" } }"#)
        .file("node_modules/tiny/package.json", r#"{ "name": "tiny", "exports": { "./jsx-runtime": "./rt.mjs" } }"#)
        .file("node_modules/tiny/rt.mjs", "export const jsx = (tag, props) => ({ tag, props });\n")
        .file("src/index.tsx", "export default () => <b id=\"x\" />;\n");
    assert_eq!(package.run("null"), json!({"tag": "b", "props": {"id": "x"}}));
}

#[test]
fn json_is_imported_with_and_without_attributes() {
    let package = Package::new()
        .file("data.json", r#"{ "big": 9007199254740993, "a-b": [1], "__proto__": "own", "name": "n" }"#)
        .file(
            "index.ts",
            "import data, { name } from './data.json' with { type: 'json' };\nimport again from './data.json';\n\
             import { version } from 'pkg/package.json';\n\
             export default async () => ({ same: data === again, name, list: data['a-b'], own: Object.hasOwn(data, '__proto__'),\n\
             version, late: (await import('./data.json', { with: { type: 'json' } })).default.name });\n",
        )
        .file("node_modules/pkg/package.json", r#"{ "name": "pkg", "version": "1.2.3" }"#);
    assert_eq!(
        package.run("null"),
        json!({"same": true, "name": "n", "list": [1], "own": true, "version": "1.2.3", "late": "n"})
    );
}

#[test]
fn tsconfig_paths_and_extends_are_followed() {
    let package = Package::new()
        .file("config/base.json", r#"{ "compilerOptions": { "paths": { "@lib/*": ["../src/lib/*"], "tools": ["../src/tools/main.ts"] } } }"#)
        .file("tsconfig.json", r#"{ "extends": "./config/base.json", "include": ["src"] }"#)
        .file("src/index.ts", "import { a } from '@lib/a';\nimport tools from 'tools';\nexport default () => [a, tools];\n")
        .file("src/lib/a.ts", "export const a = 'a';\n")
        .file("src/tools/main.ts", "export default 'tools';\n");
    assert_eq!(package.run("null"), json!(["a", "tools"]));
}

#[test]
fn package_imports_lead_to_local_files() {
    let package = Package::new()
        .file("package.json", r##"{ "type": "module", "imports": { "#lib/*": "./src/lib/*.ts" } }"##)
        .file("src/index.ts", "import { a } from '#lib/a';\nexport default () => a;\n")
        .file("src/lib/a.ts", "export const a = 'via imports';\n");
    assert_eq!(package.run("null"), json!("via imports"));
}

#[test]
fn a_javascript_import_means_the_typescript_file() {
    let package = Package::new()
        .file("src/index.ts", "import { a } from './a.js';\nimport { b } from './b.mjs';\nimport c from './dir';\nexport default () => [a, b, c];\n")
        .file("src/a.ts", "export const a = 1;\n")
        .file("src/b.mts", "export const b = 2;\n")
        .file("src/dir/index.ts", "export default 3;\n");
    assert_eq!(package.run("null"), json!([1, 2, 3]));
}

#[test]
fn commonjs_modules_of_the_program_run() {
    let package = Package::new()
        .file("index.mjs", "import tools from './tools.cjs';\nimport { createRequire } from 'node:module';\n\
            const load = createRequire(import.meta.url);\n\
            export default () => ({ ...tools, again: load('./tools.cjs') === tools, data: load('./data.json').x });\n")
        .file("tools.cjs", "'use strict';\nconst path = require('path');\nconst { x } = require('./data.json');\nconst plain = require('./plain');\n\
            module.exports = { x, plain: plain.value, base: path.basename(__filename), dir: __dirname, strict: (function () { return this === undefined; })() };\n")
        .file("plain.js", "exports.value = typeof require;\nif (false) return;\n")
        .file("data.json", r#"{ "x": 7 }"#);
    let artifact = package.build();
    let unpacked = Unpacked::new(&artifact);
    assert_eq!(
        unpacked.run("null"),
        json!({"x": 7, "plain": "function", "base": "index.mjs", "dir": unpacked.root(), "strict": true,
            "again": true, "data": 7})
    );
}

#[test]
fn a_commonjs_entry_is_started_by_its_exports() {
    for (text, expected) in [
        ("module.exports = async (input) => input.n + 1;\n", json!(2)),
        ("exports.default = (input) => input.n + 2;\n", json!(3)),
    ] {
        let package = Package::inside("")
            .file("workflow.json", r#"{ "slug": "sample", "entry": "main.cjs", "triggers": [{ "kind": "manual" }] }"#)
            .file("main.cjs", text);
        assert_eq!(package.run(r#"{"n":1}"#), expected);
    }
}

#[test]
fn typescript_commonjs_forms_become_modules() {
    let package = Package::inside("")
        .file("workflow.json", r#"{ "slug": "sample", "entry": "main.cts", "triggers": [{ "kind": "manual" }] }"#)
        .file("main.cts", "import path = require('path');\nimport tool = require('./tool.cjs');\nexport = () => [path.join('a', 'b'), tool.name];\n")
        .file("tool.cts", "const name: string = 'tool';\nexport = { name };\n");
    assert_eq!(package.run("null"), json!(["a/b", "tool"]));
    let package = Package::new()
        .file("index.ts", "import path = require('path');\nimport type nothing = require('./gone');\nexport default () => path.sep;\n")
        .file("gone.ts", "export {};\n");
    assert_eq!(package.run("null"), json!("/"));
}

#[test]
fn require_works_in_a_module_that_mixes_both_worlds() {
    let package = Package::new()
        .file("index.ts", "declare const require: any;\nconst os = require('os');\nconst part = require('./part.cjs');\nexport const x = 1;\nexport default () => [typeof os.cpus, part];\n")
        .file("part.cjs", "module.exports = 'part';\n");
    assert_eq!(package.run("null"), json!(["function", "part"]));
}

#[test]
fn import_meta_is_that_of_the_root() {
    let package = Package::inside("")
        .file("workflow.jsonc", r#"{ "slug": "sample", "triggers": [{ "kind": "manual" }], "files": ["prompts/**"] }"#)
        .file("prompts/x.md", "hello")
        .file("src/index.ts", "export { default } from './deep/inner';\n")
        .file(
            "src/deep/inner.ts",
            "import { readFileSync } from 'node:fs';\n\
             export default () => ({ text: readFileSync(new URL('./prompts/x.md', import.meta.url), 'utf8'),\n\
             url: import.meta.url, filename: import.meta.filename, dirname: import.meta.dirname,\n\
             resolved: import.meta.resolve('./prompts/x.md'), fs: import.meta.resolve('node:fs'), keys: Object.keys(import.meta).sort() });\n",
        );
    let unpacked = Unpacked::new(&package.build());
    let root = unpacked.root().display().to_string();
    assert_eq!(
        unpacked.run("null"),
        json!({"text": "hello", "url": format!("file://{root}/index.mjs"), "filename": format!("{root}/index.mjs"),
            "dirname": root, "resolved": format!("file://{root}/prompts/x.md"), "fs": "node:fs",
            "keys": ["dirname", "filename", "resolve", "url"]})
    );
}

#[test]
fn a_stack_trace_names_the_authors_line() {
    let package = Package::new()
        .file("src/index.ts", "import { explode } from './explode';\n\nexport default (): never => {\n  return explode();\n};\n")
        .file(
            "src/explode.ts",
            "interface Long {\n  a: string;\n  b: number;\n}\n\n// a comment\nenum E { A }\n\nexport function explode(): never {\n  const value: Long | undefined = undefined;\n  void import.meta.url;\n  throw new Error(`boom ${E.A} ${value}`);\n}\n",
        );
    let artifact = package.build();
    let output = Unpacked::new(&artifact).node(&["--enable-source-maps"], "null");
    assert!(!output.success);
    assert!(output.stderr.contains(".bw-src/src/explode.ts:12:9"), "{}", output.stderr);
    assert!(output.stderr.contains(".bw-src/src/index.ts:4:"), "{}", output.stderr);
    let sources = below(&artifact, ".bw-src/");
    assert_eq!(sources, ["src/explode.ts", "src/index.ts"]);
}

#[test]
fn names_with_odd_characters_are_found() {
    let package = Package::inside("we#ird %41 dir")
        .file("workflow.json", support::DESCRIPTOR)
        .file("src/index.ts", "import a from './%41 b.js';\nexport default () => a;\n")
        .file("src/%41 b.ts", "export default 'odd';\n");
    assert_eq!(package.run("null"), json!("odd"));
}

#[test]
fn modules_outside_of_the_package_are_part_of_the_program() {
    let package = Package::inside("flows/one")
        .file("workflow.json", support::DESCRIPTOR)
        .file("src/index.ts", "import { shared } from '../../../shared/tool';\nexport default () => shared;\n")
        .file("../../shared/tool.ts", "export const shared: string = 'shared';\n");
    let artifact = package.build();
    assert!(below(&artifact, ".trestle/app/").contains(&"__up2/shared/tool.ts.mjs".to_owned()));
    assert_eq!(Unpacked::new(&artifact).run("null"), json!("shared"));
}

#[test]
fn circular_imports_keep_working() {
    let package = Package::new()
        .file("index.ts", "import { b } from './b';\nexport const a = () => import.meta.url.length > 0;\nexport default () => b();\n")
        .file("b.ts", "import { a } from './index';\nexport const b = () => a();\n");
    assert_eq!(package.run("null"), json!(true));
}

#[test]
fn fields_without_initialiser_follow_the_configured_semantics() {
    let source = "class Base { constructor() { this.init(); } init() {} }\nclass Derived extends Base { value!: string; init() { (this as any).value = 'set'; } }\nexport default () => new Derived().value ?? 'undefined';\n";
    let package = Package::new().file("index.ts", source);
    assert_eq!(package.run("null"), json!("undefined"));
    let package = package.file("tsconfig.json", r#"{ "compilerOptions": { "useDefineForClassFields": false } }"#);
    assert_eq!(package.run("null"), json!("set"));
}
