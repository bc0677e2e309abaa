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
        .file(
            "node_modules/tiny/package.json",
            r#"{ "name": "tiny", "exports": { "./jsx-runtime": "./rt.mjs" } }"#,
        )
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
            .file(
                "workflow.json",
                r#"{ "slug": "sample", "entry": "main.cjs", "triggers": [{ "kind": "manual" }] }"#,
            )
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
        .file(
            "src/index.ts",
            "import { shared } from '../../../shared/tool';\nexport default () => shared;\n",
        )
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
    let package =
        package.file("tsconfig.json", r#"{ "compilerOptions": { "useDefineForClassFields": false } }"#);
    assert_eq!(package.run("null"), json!("set"));
}

#[test]
fn standard_decorators_run_in_the_order_of_the_language() {
    let package = Package::new().file(
        "src/index.ts",
        r#"
const log: string[] = [];
const see = (name: string) => { log.push(`eval ${name}`); return (value: any, context: any): any => {
  log.push(`call ${name} ${context.kind} ${String(context.name)} ${context.static} ${context.private} ${typeof value}`);
}; };
@see("class 1")
@see("class 2")
export class Base<T> {
  @see("static field") static count: number = (log.push("init static"), 1);
  @see("field")
  @see("field too")
  title = "t";
  @see("computed") [`m${1}`]() { return 1; }
  @see("getter") get size() { return 2; }
  @see("setter") set size(_value) {}
  @see("static method") static make() { return new Base(); }
  @see("private") #hidden: number;
  value?: T;
}
export default () => log;
"#,
    );
    assert_eq!(
        package.run("null"),
        json!([
            "eval class 1",
            "eval class 2",
            "eval static field",
            "eval field",
            "eval field too",
            "eval computed",
            "eval getter",
            "eval setter",
            "eval static method",
            "eval private",
            "call static method method make true false function",
            "call computed method m1 false false function",
            "call getter getter size false false function",
            "call setter setter size false false function",
            "call static field field count true false undefined",
            "call field too field title false false undefined",
            "call field field title false false undefined",
            "call private field #hidden false true undefined",
            "call class 2 class Base undefined undefined function",
            "call class 1 class Base undefined undefined function",
            "init static",
        ])
    );
}

#[test]
fn standard_decorators_change_what_they_decorate() {
    let package = Package::new().file(
        "src/index.ts",
        r#"
const log: string[] = [];
const twice = (method: (...args: any[]) => number, context: ClassMethodDecoratorContext) =>
  function (this: unknown, ...args: any[]) { return method.apply(this, args) * 2; };
const bound = (_method: unknown, context: any) => {
  context.addInitializer(function (this: any) { this[context.name] = this[context.name].bind(this); });
};
const plus = (by: number) => (_: undefined, context: any) => {
  context.addInitializer(function (this: any) { log.push(`${String(context.name)}=${context.access.get(this)}`); });
  return (value: number) => (value ?? 0) + by;
};
const clamp = (target: any, _context: any) => ({
  get(this: any) { return target.get.call(this); },
  set(this: any, value: number) { target.set.call(this, Math.min(value, 10)); },
  init: (value: number) => value + 1,
});
const registry = new Map<string, unknown>();
const register = (name: string) => (value: any, context: ClassDecoratorContext) => {
  registry.set(name, value);
  context.addInitializer(function (this: any) { log.push(`ready ${this.name}`); });
  return class extends value { extra = "extra"; };
};

@register("counter")
class Counter {
  @plus(5) @plus(1) start = 10;
  @plus(2) #secret!: number;
  @plus(3) empty!: number;
  @clamp accessor level = 1;
  accessor plain: string = "plain";
  @plus(1) static total = 1;
  static instance = new Counter();
  @twice double(n: number) { return n; }
  @bound whoami() { return this.start; }
  get secret() { return this.#secret; }
  self() { return Counter; }
}

@((_value, context) => { log.push(`anonymous ${context.name}`); })
class Outer { inner = @register("inner") class { deep = 1; }; }

export default () => {
  const counter: any = new Counter();
  counter.level = 99;
  const { whoami } = counter;
  return {
    start: counter.start, secret: counter.secret, empty: counter.empty, level: counter.level, plain: counter.plain,
    keys: Object.keys(counter), double: counter.double(4), whoami: whoami(), extra: counter.extra,
    total: Counter.total, single: (Counter.instance as any).double(1), self: counter.self() === Counter,
    registered: registry.get("counter") !== Counter, statics: Object.getOwnPropertySymbols(registry.get("counter")!).length,
    deep: new (new Outer().inner as any)().deep, log,
  };
};
"#,
    );
    let instance = ["start=16", "start=16", "#secret=2", "empty=3"];
    let mut log = vec!["total=2"];
    log.extend(instance);
    log.extend(["ready ", "anonymous Outer"]);
    log.extend(instance);
    log.push("ready ");
    assert_eq!(
        package.run("null"),
        json!({
            "start": 16, "secret": 2, "empty": 3, "level": 10, "plain": "plain",
            "keys": ["whoami", "start", "empty", "extra"], "double": 8, "whoami": 16, "extra": "extra",
            "total": 2, "single": 2, "self": true, "registered": true, "statics": 0, "deep": 1, "log": log,
        })
    );
}

#[test]
fn exported_decorated_classes_keep_their_exports_and_lines() {
    let package = Package::new()
        .file("src/index.ts", "import Plain, { Named, later } from './classes';\nexport default () => [Plain.name, new Plain().go(), Named.name, later.name, new Named().fail()];\n")
        .file(
            "src/classes.ts",
            "const note = (value: any, _context: any) => value;\n\n@note export class Named {\n  @note\n  fail(): never {\n    throw new Error('line six');\n  }\n}\n\nexport default @note class {\n  @note async go() { return 1; }\n}\nexport const later = @note class Later {};\n",
        );
    let output = Unpacked::new(&package.build()).node(&["--enable-source-maps"], "null");
    assert!(output.stderr.contains(".bw-src/src/classes.ts:6:"), "{}", output.stderr);
    let package = package.file("src/index.ts", "import Plain, { Named, later } from './classes';\nexport default async () => [Plain.name, await new Plain().go(), Named.name, later.name];\n");
    assert_eq!(package.run("null"), json!(["default", 1, "Named", "Later"]));
}

#[test]
fn a_decorator_that_cannot_be_written_out_is_refused_with_its_line() {
    let package = Package::new()
        .file("src/index.ts", "const note = (value: any) => value;\nclass A {\n  @note #secret() {}\n}\nexport default () => new A();\n");
    let report = package.check();
    let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["src/index.ts:3:3: decorators of private methods are not supported"]);
    assert!(report.errors[0].hint.as_ref().unwrap().contains("experimentalDecorators"));
}
