//! npm packages: which files ship, and that Node finds them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::{Package, Unpacked, below};

#[test]
fn exactly_the_reachable_files_ship() {
    let package = Package::new()
        .file("index.ts", "import { one } from 'esm';\nimport cjs from 'cjs';\nimport type { T } from 'types-only';\nexport default () => [one, cjs.two, cjs.deep];\n")
        .file("node_modules/esm/package.json", r#"{ "name": "esm", "version": "1.0.0", "type": "module",
            "exports": { ".": { "types": "./index.d.ts", "browser": "./browser.js", "import": "./dist/index.js", "require": "./dist/index.cjs" } } }"#)
        .file("node_modules/esm/dist/index.js", "export * from './one.js';\n")
        .file("node_modules/esm/dist/one.js", "export const one = 1;\n")
        .file("node_modules/esm/dist/index.cjs", "exports.one = 'cjs';\n")
        .file("node_modules/esm/dist/unused.js", "export {};\n")
        .file("node_modules/esm/browser.js", "export {};\n")
        .file("node_modules/esm/index.d.ts", "export {};\n")
        .file("node_modules/esm/README.md", "x")
        .file("node_modules/cjs/package.json", r#"{ "name": "cjs", "main": "lib" }"#)
        .file("node_modules/cjs/lib/index.js", "'use strict';\nexports.two = require('./two');\nexports.deep = require('dep').name + require('./folder');\n")
        .file("node_modules/cjs/lib/two.js", "module.exports = 2;\n")
        .file("node_modules/cjs/lib/three.js", "module.exports = 3;\n")
        .file("node_modules/cjs/lib/folder/package.json", r#"{ "main": "../real.js" }"#)
        .file("node_modules/cjs/lib/real.js", "module.exports = 'real';\n")
        .file("node_modules/dep/package.json", r#"{ "name": "dep", "main": "./index" }"#)
        .file("node_modules/dep/index.js", "module.exports = require('./data.json');\n")
        .file("node_modules/dep/data.json", r#"{ "name": "dep" }"#)
        .file("node_modules/types-only/package.json", r#"{ "name": "types-only" }"#)
        .file("node_modules/unused/package.json", r#"{ "name": "unused" }"#)
        .file("node_modules/unused/index.js", "");
    let artifact = package.build();
    assert_eq!(
        below(&artifact, "node_modules/"),
        [
            "cjs/lib/folder/package.json",
            "cjs/lib/index.js",
            "cjs/lib/real.js",
            "cjs/lib/two.js",
            "cjs/package.json",
            "dep/data.json",
            "dep/index.js",
            "dep/package.json",
            "esm/dist/index.js",
            "esm/dist/one.js",
            "esm/package.json",
        ]
    );
    assert!(artifact.report.packages.iter().all(|package| package.whole.is_none()));
    assert_eq!(Unpacked::new(&artifact).run("null"), json!([1, 2, "depreal"]));
}

#[test]
fn both_sides_of_a_dual_package_ship_when_both_are_used() {
    let package = Package::new()
        .file(
            "index.ts",
            "import { kind } from 'dual';\nimport viaCjs from 'cjs';\nexport default () => [kind, viaCjs];\n",
        )
        .file(
            "node_modules/dual/package.json",
            r#"{ "name": "dual", "exports": { "import": "./index.mjs", "require": "./index.cjs" } }"#,
        )
        .file("node_modules/dual/index.mjs", "export const kind = 'esm';\n")
        .file("node_modules/dual/index.cjs", "exports.kind = 'cjs';\n")
        .file("node_modules/cjs/index.js", "module.exports = require('dual').kind;\n");
    let artifact = package.build();
    assert_eq!(below(&artifact, "node_modules/dual/"), ["index.cjs", "index.mjs", "package.json"]);
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["esm", "cjs"]));
}

#[test]
fn the_choice_of_newer_nodes_ships_too() {
    let package = Package::new()
        .file("index.ts", "import { kind } from 'sync';\nexport default () => kind;\n")
        .file(
            "node_modules/sync/package.json",
            r#"{ "name": "sync", "exports": { "module-sync": "./sync.mjs", "default": "./old.cjs" } }"#,
        )
        .file("node_modules/sync/sync.mjs", "export * from './part.mjs';\n")
        .file("node_modules/sync/part.mjs", "export const kind = 'any';\n")
        .file("node_modules/sync/old.cjs", "exports.kind = 'any';\n");
    let artifact = package.build();
    assert_eq!(below(&artifact, "node_modules/sync/"), ["old.cjs", "package.json", "part.mjs", "sync.mjs"]);
    assert_eq!(Unpacked::new(&artifact).run("null"), json!("any"));
}

#[test]
fn literal_dynamic_imports_and_choices_are_followed() {
    let package = Package::new()
        .file("index.ts", "export default async () => [(await import('lazy')).default, (await import(`lazy/extra.js`)).default];\n")
        .file("node_modules/lazy/package.json", r#"{ "name": "lazy", "type": "module", "main": "index.js" }"#)
        .file("node_modules/lazy/index.js", "export default await import('./inner.js').then((m) => m.default);\n")
        .file("node_modules/lazy/inner.js", "export default 'inner';\n")
        .file("node_modules/lazy/extra.js", "import choice from './choice.cjs';\nexport default choice;\n")
        .file("node_modules/lazy/choice.cjs", "module.exports = require(process.env.NODE_ENV === 'production' ? './prod.cjs' : './dev.cjs');\n")
        .file("node_modules/lazy/prod.cjs", "module.exports = 'prod';\n")
        .file("node_modules/lazy/dev.cjs", "module.exports = 'dev';\n");
    let artifact = package.build();
    assert_eq!(
        below(&artifact, "node_modules/lazy/"),
        ["choice.cjs", "dev.cjs", "extra.js", "index.js", "inner.js", "package.json", "prod.cjs"]
    );
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["inner", "dev"]));
}

#[test]
fn packages_that_load_more_than_their_text_says_ship_whole() {
    let signs = [
        (
            "const load = (n) => require('./locale/' + n);\nexports.get = () => load('de.js');\n",
            "requires a computed name",
        ),
        (
            "exports.get = async () => (await import('./locale/' + 'de.js')).default;\n",
            "imports a computed name",
        ),
        ("const r = require;\nexports.get = () => r('./locale/de.js');\n", "requires a computed name"),
        (
            "const { createRequire } = require('module');\nexports.get = () => createRequire(__filename)('./locale/de.js');\n",
            "",
        ),
        (
            "exports.get = () => require('fs').readFileSync(__dirname + '/locale/de.js', 'utf8') && 'de';\n",
            "__dirname",
        ),
    ];
    for (text, reason) in signs {
        let package = Package::new()
            .file("index.ts", "import pkg from 'pkg';\nexport default async () => pkg.get();\n")
            .file(
                "node_modules/pkg/package.json",
                r#"{ "name": "pkg", "dependencies": { "declared": "1", "gone": "1" } }"#,
            )
            .file("node_modules/pkg/index.js", text)
            .file("node_modules/pkg/locale/de.js", "module.exports = 'de';\n")
            .file("node_modules/pkg/locale/test/inner.js", "module.exports = 'kept';\n")
            .file("node_modules/pkg/test/a.test.js", "")
            .file("node_modules/pkg/docs/a.html", "")
            .file("node_modules/pkg/README.md", "")
            .file("node_modules/pkg/index.d.ts", "")
            .file("node_modules/pkg/.eslintrc.json", "")
            .file("node_modules/pkg/LICENSE", "l")
            .file("node_modules/declared/index.js", "module.exports = require('./used');\n")
            .file("node_modules/declared/used.js", "")
            .file("node_modules/declared/unused.js", "");
        let artifact = package.build();
        assert_eq!(
            below(&artifact, "node_modules/"),
            [
                "declared/index.js",
                "declared/used.js",
                "pkg/LICENSE",
                "pkg/index.js",
                "pkg/locale/de.js",
                "pkg/locale/test/inner.js",
                "pkg/package.json"
            ],
            "{text}"
        );
        let shipped = artifact.report.packages.iter().find(|package| package.name == "pkg").unwrap();
        assert!(shipped.whole.as_ref().unwrap().contains(reason), "{text}: {shipped:?}");
        let notes: Vec<String> = artifact.report.warnings.iter().map(ToString::to_string).collect();
        assert!(notes.iter().any(|note| note.contains("the package pkg ships whole")), "{notes:?}");
        assert_eq!(Unpacked::new(&artifact).run("null"), json!("de"), "{text}");
    }
}

#[test]
fn native_files_ship_with_their_package_and_optional_dependencies() {
    let package = Package::new()
        .file("index.ts", "import native from 'native';\nexport default () => native;\n")
        .file("node_modules/native/package.json", r#"{ "name": "native", "optionalDependencies": { "@native/linux": "1", "@native/darwin": "1" } }"#)
        .file("node_modules/native/index.js", "let found = 'none';\ntry { found = require('./build/addon.node'); } catch (error) { found = error.code ?? 'invalid'; }\nmodule.exports = found;\n")
        .file("node_modules/native/build/addon.node", "not really")
        .file("node_modules/@native/linux/package.json", r#"{ "name": "@native/linux", "main": "lib.node" }"#)
        .file("node_modules/@native/linux/lib.node", "x");
    let artifact = package.build();
    assert_eq!(
        below(&artifact, "node_modules/"),
        [
            "@native/linux/lib.node",
            "@native/linux/package.json",
            "native/build/addon.node",
            "native/index.js",
            "native/package.json"
        ]
    );
    assert_eq!(Unpacked::new(&artifact).run("null"), json!("ERR_DLOPEN_FAILED"));
}

#[test]
fn a_bundlers_own_require_is_not_nodes() {
    let package = Package::new()
        .file("index.ts", "import pkg from 'bundle';\nexport default () => pkg;\n")
        .file("node_modules/bundle/index.js", "var modules = { 1: function (module, exports, require) { module.exports = require(2); }, 2: function (module) { module.exports = 'inner'; } };\n\
            function load(id) { var module = { exports: {} }; modules[id](module, module.exports, load); return module.exports; }\nmodule.exports = load(1);\nif (typeof require !== 'undefined' && require.main === module) load(2);\n")
        .file("node_modules/bundle/other.js", "");
    let artifact = package.build();
    assert_eq!(below(&artifact, "node_modules/"), ["bundle/index.js"]);
    assert_eq!(Unpacked::new(&artifact).run("null"), json!("inner"));
}

#[test]
fn versions_that_conflict_are_nested_for_those_who_ask() {
    let tool = |path: &str, version: &str| {
        (
            format!("{path}/index.js"),
            format!("exports.version = '{version}';\n"),
            format!("{path}/package.json"),
            format!(r#"{{ "name": "tool", "version": "{version}" }}"#),
        )
    };
    let mut package = Package::new()
        .file("index.ts", "import a from 'a';\nimport b from 'b';\nimport tool from 'tool';\nexport default () => [a, b, tool.version];\n")
        .file("node_modules/a/index.js", "module.exports = require('tool').version + require('mid');\n")
        .file("node_modules/mid/index.js", "module.exports = require('tool').version;\n")
        .file("node_modules/b/index.js", "module.exports = require('tool').version;\n");
    for (file, text, manifest, json) in [
        tool("node_modules/tool", "1.0.0"),
        tool("node_modules/a/node_modules/tool", "2.0.0"),
        tool("node_modules/mid/node_modules/tool", "3.0.0"),
    ] {
        package = package.file(&file, &text).file(&manifest, &json);
    }
    let artifact = package.build();
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["2.0.03.0.0", "1.0.0", "1.0.0"]));
    let places: Vec<&str> = artifact
        .report
        .packages
        .iter()
        .filter(|package| package.name == "tool")
        .flat_map(|package| package.places.iter().map(String::as_str))
        .collect();
    assert_eq!(
        places,
        ["node_modules/a/node_modules/tool", "node_modules/mid/node_modules/tool", "node_modules/tool"]
    );
}

#[test]
fn symlinked_stores_become_plain_folders() {
    let store = "node_modules/.pnpm";
    let package = Package::new()
        .file(
            "index.ts",
            "import { a } from 'a';\nimport { version } from 'alias';\nexport default () => [a, version];\n",
        )
        .file(
            &format!("{store}/a@1.0.0/node_modules/a/package.json"),
            r#"{ "name": "a", "version": "1.0.0", "type": "module", "exports": "./index.js" }"#,
        )
        .file(
            &format!("{store}/a@1.0.0/node_modules/a/index.js"),
            "import { b } from '@scope/b';\nimport { version } from 'tool';\nexport const a = b + version;\n",
        )
        .file(
            &format!("{store}/@scope+b@1.0.0/node_modules/@scope/b/package.json"),
            r#"{ "name": "@scope/b", "type": "module", "main": "b.js" }"#,
        )
        .file(
            &format!("{store}/@scope+b@1.0.0/node_modules/@scope/b/b.js"),
            "import { version } from 'tool';\nexport const b = 'b' + version;\n",
        )
        .file(&format!("{store}/tool@1.0.0/node_modules/tool/index.js"), "exports.version = 1;\n")
        .file(&format!("{store}/tool@1.0.0/node_modules/tool/package.json"), r#"{ "name": "tool" }"#)
        .file(&format!("{store}/tool@2.0.0/node_modules/tool/index.js"), "exports.version = 2;\n")
        .file(&format!("{store}/tool@2.0.0/node_modules/tool/package.json"), r#"{ "name": "tool" }"#)
        .link("node_modules/a", ".pnpm/a@1.0.0/node_modules/a")
        .link("node_modules/alias", ".pnpm/tool@2.0.0/node_modules/tool")
        .link(
            &format!("{store}/a@1.0.0/node_modules/@scope/b"),
            "../../../@scope+b@1.0.0/node_modules/@scope/b",
        )
        .link(&format!("{store}/a@1.0.0/node_modules/tool"), "../../tool@1.0.0/node_modules/tool")
        .link(&format!("{store}/@scope+b@1.0.0/node_modules/tool"), "../../tool@2.0.0/node_modules/tool");
    let artifact = package.build();
    assert!(artifact.files.iter().all(|file| !file.path.contains(".pnpm")), "{:?}", artifact.files);
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["b21", 2]));
}

#[test]
fn workspace_packages_in_typescript_are_part_of_the_program() {
    let package = Package::inside("packages/flow")
        .file("workflow.json", support::DESCRIPTOR)
        .file("src/index.ts", "import { shared } from '@acme/shared';\nimport { version } from 'tool';\nexport default () => [shared, version];\n")
        .file("../shared/package.json", r#"{ "name": "@acme/shared", "exports": "./src/index.ts" }"#)
        .file("../shared/src/index.ts", "import { version } from 'tool';\nexport const shared: string = `shared ${version}`;\n")
        .file("../shared/node_modules/tool/index.js", "exports.version = 'theirs';\n")
        .file("../../node_modules/tool/index.js", "exports.version = 'ours';\n")
        .link("../../node_modules/@acme/shared", "../../packages/shared");
    let artifact = package.build();
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["shared theirs", "ours"]));
}

#[test]
fn bundler_style_names_are_led_to_the_file() {
    let package = Package::new()
        .file(
            "tsconfig.json",
            r#"{ "compilerOptions": { "paths": { "short": ["./node_modules/pkg/lib/tool.js"] } } }"#,
        )
        .file(
            "index.ts",
            "import a from 'pkg/lib/tool';\nimport b from 'short';\nexport default () => [a, a === b];\n",
        )
        .file("node_modules/pkg/lib/tool.js", "module.exports = 'tool';\n")
        .file("node_modules/pkg/package.json", r#"{ "name": "pkg" }"#);
    assert_eq!(package.run("null"), json!(["tool", true]));
}

#[test]
fn self_references_and_package_imports_resolve_inside_npm() {
    let package = Package::new()
        .file("index.ts", "import a from 'pkg';\nexport default () => a;\n")
        .file("node_modules/pkg/package.json", r##"{ "name": "pkg", "type": "module", "exports": { ".": "./a.js", "./b": "./b.js" }, "imports": { "#in": "./in.js", "#dep": "dep" } }"##)
        .file("node_modules/pkg/a.js", "import b from 'pkg/b';\nimport i from '#in';\nimport dep from '#dep';\nexport default b + i + dep;\n")
        .file("node_modules/pkg/b.js", "export default 'b';\n")
        .file("node_modules/pkg/in.js", "export default 'i';\n")
        .file("node_modules/dep/package.json", r#"{ "name": "dep" }"#)
        .file("node_modules/dep/index.js", "module.exports = 'dep';\n");
    assert_eq!(package.run("null"), json!("bidep"));
}

#[test]
fn what_a_package_can_do_without_is_not_asked_for() {
    let package = Package::new()
        .file("index.ts", "import a from 'pkg';\nlet extra = 'none';\ntry { extra = (await import('not-there')).default; } catch {}\nexport default () => [a, extra];\n")
        .file("node_modules/pkg/index.js", "let optional = 'without';\ntry { optional = require('speedup'); } catch {}\nmodule.exports = optional;\n");
    let artifact = package.build();
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["without", "none"]));
    let warnings: Vec<String> = artifact.report.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["index.ts:3:29: cannot find `not-there`"], "{warnings:?}");
}

#[test]
fn the_sdk_never_ships() {
    let sdk = |path: &str| (format!("{path}/package.json"), format!("{path}/index.js"));
    let mut package = Package::new()
        .file("package.json", r#"{ "dependencies": { "@boardwalk-labs/workflow": "^0.3.0" } }"#)
        .file("index.ts", "import { phase } from '@boardwalk-labs/workflow';\nimport 'helper';\nimport { runtime } from '@trestle/workflow/runtime';\nexport default () => [phase('x'), runtime];\n")
        .file("node_modules/helper/package.json", r#"{ "name": "helper", "dependencies": { "@boardwalk-labs/workflow": "*" } }"#)
        .file("node_modules/helper/index.mjs", "export {};\n")
        .file("node_modules/helper/index.js", "require('@boardwalk-labs/workflow'.slice(0));\n")
        .file("node_modules/helper/package.json", r#"{ "name": "helper", "main": "index.mjs", "dependencies": { "@boardwalk-labs/workflow": "*" } }"#);
    for path in
        ["node_modules/@boardwalk-labs/workflow", "node_modules/helper/node_modules/@boardwalk-labs/workflow"]
    {
        let (manifest, index) = sdk(path);
        package = package
            .file(&manifest, r#"{ "name": "@boardwalk-labs/workflow", "version": "0.3.9" }"#)
            .file(&index, "");
    }
    let artifact = package.build();
    assert!(artifact.files.iter().all(|file| !file.path.contains("boardwalk-labs")), "{:?}", artifact.files);
    assert_eq!(artifact.sdk_version, "0.3.9");
    assert_eq!(Unpacked::new(&artifact).run("null"), json!(["phase x", true]));
}
