//! What a check says about packages that cannot be built.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::sync::Mutex;

use support::{DESCRIPTOR, Package};
use trestle_contract::ErrorCode;
use trestle_package::{Progress, Silent, Step, build, check};

/// The only error: where and what, a part of its hint, its code.
fn only_error(package: &Package, said: &str, hint: &str, code: ErrorCode) {
    let report = package.check();
    let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains(said), "{errors:?}");
    assert_eq!(report.errors[0].code, code, "{errors:?}");
    let found = report.errors[0].hint.as_deref().unwrap_or_default();
    assert!(found.contains(hint), "{errors:?}: {found}");
    let error = build(&package.root(), &Silent).unwrap_err();
    assert_eq!(error.code(), code);
    assert_eq!(error.report, report);
}

fn invalid(package: &Package, said: &str, hint: &str) {
    only_error(package, said, hint, ErrorCode::ValidationFailed);
}

#[test]
fn a_folder_without_descriptor_or_with_two_is_no_package() {
    only_error(
        &Package::inside("x"),
        "no workflow.jsonc or workflow.json",
        "trestle init",
        ErrorCode::NotFound,
    );
    invalid(
        &Package::new().file("workflow.json", DESCRIPTOR),
        "both workflow.jsonc and workflow.json",
        "keep one",
    );
    let package =
        Package::new().file("index.ts", "export default () => 1;\n").file("other.jsonc", DESCRIPTOR);
    assert!(check(&package.root().join("workflow.jsonc"), &Silent).is_ok());
    assert!(!check(&package.root().join("other.jsonc"), &Silent).is_ok());
    assert_eq!(check(Path::new("/does/not/exist"), &Silent).errors[0].code, ErrorCode::NotFound);
}

#[test]
fn only_javascript_is_built_and_python_says_when() {
    only_error(
        &Package::new().file("main.py", "def run(input, context):\n    return 1\n"),
        "main.py: Python programs cannot be built yet",
        "TypeScript",
        ErrorCode::Unsupported,
    );
}

#[test]
fn descriptor_problems_come_with_their_lines() {
    let package =
        Package::inside("").file("workflow.jsonc", "{\n  \"slug\": \"a b\",\n  \"triggers\": []\n}\n");
    let errors: Vec<String> = package.check().errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors[0], "workflow.jsonc:2:11: slug: may hold only letters, digits and hyphens");
    assert_eq!(errors[1], "workflow.jsonc:3:15: triggers: must have at least 1 item");
    let package = Package::inside("").file("workflow.json", "{\n  oops\n}\n");
    invalid(&package, "workflow.json:2:3: unexpected `o`", "");
}

#[test]
fn the_entry_must_exist_inside_of_the_package() {
    let declared = |entry: &str| {
        Package::inside("pkg").file(
            "workflow.jsonc",
            &format!(r#"{{ "slug": "s", "entry": "{entry}", "triggers": [{{ "kind": "manual" }}] }}"#),
        )
    };
    invalid(&Package::new(), "none of the default entry files exists", "src/index.ts");
    invalid(
        &declared("src/main.ts"),
        "workflow.jsonc:1:25: entry: the entry file src/main.ts does not exist",
        "correct the name",
    );
    invalid(
        &declared("main.ts").file("src/index.ts", ""),
        "main.ts does not exist",
        "src/index.ts is found by itself",
    );
    invalid(&declared("src").file("src/index.ts", ""), "is not a file", "name the file");
    let outside =
        declared("link.ts").file("../out.ts", "export default () => 1;\n").link("link.ts", "../out.ts");
    invalid(&outside, "leads out of the package", "move the file");
    only_error(&Package::new().file("main.py", ""), "Python", "TypeScript", ErrorCode::Unsupported);
}

#[test]
fn entries_are_found_in_the_order_of_the_reference() {
    let package = Package::new().file("index.mjs", "export default () => 1;\n").file("main.py", "");
    assert_eq!(package.check().entry.as_deref(), Some("index.mjs"));
    let package = package.file("src/index.tsx", "export default () => 1;\n");
    assert_eq!(package.check().entry.as_deref(), Some("src/index.tsx"));
    let package = package.file("src/index.ts", "export default () => 1;\n");
    assert_eq!(package.check().entry.as_deref(), Some("src/index.ts"));
}

#[test]
fn syntax_errors_come_with_file_line_and_column() {
    let package = Package::new()
        .file("index.ts", "import './broken';\nexport default () => 1;\n")
        .file("broken.ts", "const fine = 1;\nconst = 2;\n");
    invalid(&package, "broken.ts:2:7: ", "");
    let package = Package::new().file("index.ts", "let a = 1;\nlet a = 2;\nexport default () => a;\n");
    invalid(&package, "index.ts:1:5: Identifier `a` has already been declared", "");
    let package = Package::new().file("index.ts", "export default () => 1;\n").file("index.js", "");
    assert!(package.check().is_ok());
}

#[test]
fn imports_that_lead_nowhere_are_all_named() {
    let package = Package::new().file(
        "src/index.ts",
        "import a from 'not-installed/sub';\nimport b from './gone';\nimport c from '@scope/pkg';\nimport d from '#alias';\n\
         const e = await import('./later.js');\nexport default () => [a, b, c, d, e];\n",
    );
    let report = package.check();
    let said: Vec<(String, String)> = report
        .errors
        .iter()
        .map(|error| (error.to_string(), error.hint.clone().unwrap_or_default()))
        .collect();
    let expected = [
        ("src/index.ts:1:15: cannot find `not-installed/sub`", "npm install not-installed`"),
        ("src/index.ts:2:15: cannot find `./gone`", ""),
        ("src/index.ts:3:15: cannot find `@scope/pkg`", "npm install @scope/pkg`"),
        ("src/index.ts:4:15: cannot find `#alias`", "\"imports\" in package.json"),
        ("src/index.ts:5:24: cannot find `./later.js`", ""),
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for ((found, hint), (text, part)) in said.iter().zip(expected) {
        assert_eq!(found, text);
        assert!(hint.contains(part), "{found}: {hint}");
    }
}

#[test]
fn what_cannot_be_imported_says_why() {
    let with = |import: &str| {
        Package::new().file("index.ts", &format!("import x from '{import}';\nexport default () => x;\n"))
    };
    invalid(&with("./style.css").file("style.css", ""), "`./style.css` is not a module", "\"files\"");
    invalid(
        &with("./types.d.ts").file("types.d.ts", "export default 1;"),
        "type declarations",
        "import type",
    );
    invalid(&with("https://example.com/x.js"), "from the network", "without installing");
    invalid(
        &with("./data.json").file("data.json", "{,}"),
        "data.json:1:2: the imported file is not JSON",
        "no comments",
    );
    invalid(&with("./Tool").file("tool.ts", "export default 1;"), "cannot find `./Tool`", "tool.ts");
    let hidden = with("pkg/secret.js")
        .file("node_modules/pkg/package.json", r#"{ "name": "pkg", "exports": { ".": "./a.js" } }"#)
        .file("node_modules/pkg/secret.js", "");
    invalid(&hidden, "is not exported", "");
    let sdk = with("./node_modules/@boardwalk-labs/workflow/index.js")
        .file("node_modules/@boardwalk-labs/workflow/index.js", "export default 1;");
    invalid(
        &sdk,
        "index.ts:1:15: `./node_modules/@boardwalk-labs/workflow/index.js` leads into an installed SDK",
        "@trestle/workflow",
    );
    let bytes = Package::new().file("index.ts", "export { default } from './bad';\n");
    std::fs::write(bytes.root().join("bad.ts"), b"export default '\xFF';\n").unwrap();
    let report = bytes.check();
    assert!(
        report.errors.iter().any(|error| error.to_string() == "bad.ts: the file is not UTF-8 text"),
        "{report:#?}"
    );
}

#[test]
fn a_program_needs_a_callable_default_export() {
    let with = |text: &str| Package::new().file("index.ts", text);
    invalid(
        &with("export async function run() {}\n"),
        "index.ts: the program has no default export",
        "add `default`",
    );
    invalid(&with("console.log(1);\n"), "no default export", "export default async function run");
    invalid(&with("export default interface Shape { a: 1 }\n"), "no default export", "export default");
    invalid(&with("\nexport default { run() {} };\n"), "index.ts:2:1: the default export is an object", "");
    invalid(&with("export default class {}\n"), "is a class", "");
    invalid(&with("export default 42 as const;\n"), "is a number", "");
    for fine in [
        "export default async function run() {}\n",
        "export default (() => 1) satisfies () => number;\n",
        "const run = () => 1;\nexport { run as default };\n",
        "export default globalThis.anything;\n",
        "export { default } from './other';\n",
    ] {
        let package = with(fine).file("other.ts", "export default () => 1;\n");
        assert!(package.check().is_ok(), "{fine}: {:#?}", package.check().errors);
    }
}

#[test]
fn broken_tsconfigs_are_errors_of_their_own() {
    let with = |config: &str| {
        Package::new().file("index.ts", "export default () => 1;\n").file("tsconfig.json", config)
    };
    invalid(&with("{ \"extends\": \"@tsconfig/none/tsconfig.json\" }"), "tsconfig.json", "npm install");
    invalid(&with("{ oops"), "tsconfig.json", "correct it");
    assert!(with("{ // comment\n \"compilerOptions\": { \"strict\": true, }, }").check().is_ok());
}

#[test]
fn files_that_match_nothing_are_errors() {
    let with = |item: &str| {
        Package::inside("")
            .file("workflow.jsonc", &format!("{{ \"slug\": \"s\", \"triggers\": [{{ \"kind\": \"manual\" }}],\n  \"files\": [\"{item}\"] }}"))
            .file("index.ts", "export default () => 1;\n")
            .file(".env", "SECRET=1")
            .file("node_modules/a/x.txt", "")
            .file("real.txt", "r")
            .link("link.txt", "real.txt")
    };
    invalid(
        &with("missing/**"),
        "workflow.jsonc:2:13: files.0: \"missing/**\" matches no file",
        "descriptor's folder",
    );
    invalid(&with(".env"), "matches no file", "trestle secrets");
    invalid(&with("node_modules/a"), "matches no file", "npm packages");
    invalid(&with("link.txt"), "matches no file", "symbolic links");
    let report = with("*.txt").check();
    assert!(report.is_ok());
    let warnings: Vec<String> = report.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["workflow.jsonc:2:13: files.0: link.txt is a symbolic link and does not ship"]);
    assert!(report.files.iter().all(|file| !file.path.contains(".env") && !file.path.contains("link")));
    let mut many = with("many");
    for number in 0..201 {
        many = many.file(&format!("many/{number}.txt"), "");
    }
    invalid(&many, "201 assets, more than the 200 allowed", "narrow");
}

#[test]
fn fields_without_an_engine_are_named() {
    let package = Package::inside("")
        .file(
            "workflow.jsonc",
            r#"{ "slug": "s", "triggers": [{ "kind": "manual" }, { "kind": "webhook", "name": "w" }],
                "egress": { "level": "none" }, "container": { "image": "i" }, "concurrency": { "mode": "serial" },
                "callable_by": "users_only", "workspace": { "persist": true, "key": "k" }, "recording": true,
                "notifications": [{ "on": "failure", "channel": "email", "target": "a@b" }] }"#,
        )
        .file("index.ts", "export default () => 1;\n");
    let report = package.check();
    assert!(report.is_ok());
    let (refused, warned): (Vec<_>, Vec<_>) =
        report.warnings.iter().partition(|warning| warning.hint.is_some());
    let fields = |list: Vec<&trestle_package::Diagnostic>| -> Vec<String> {
        list.iter().map(|warning| warning.field.clone().unwrap()).collect()
    };
    assert_eq!(fields(refused), ["workspace.key", "concurrency", "container", "callable_by", "egress"]);
    assert_eq!(fields(warned), ["triggers.1", "workspace.persist", "recording", "notifications"]);
    assert!(report.warnings.iter().all(|warning| warning.code == ErrorCode::Unsupported));
    let plain = Package::inside("")
        .file("workflow.jsonc", r#"{ "slug": "s", "triggers": [{ "kind": "manual" }], "egress": { "level": "full" },
            "callable_by": "anyone_in_org", "concurrency": { "mode": "unlimited" }, "workspace": { "persist": false } }"#)
        .file("index.ts", "export default () => 1;\n");
    assert_eq!(plain.check().warnings, []);
}

#[test]
fn a_computed_import_of_the_program_is_warned_about() {
    let package = Package::new()
        .file("index.ts", "export default async (n: string) =>\n  await import(`./tasks/${n}.js`);\n");
    let report = package.check();
    assert!(report.is_ok());
    assert_eq!(
        report.warnings[0].to_string(),
        "index.ts:2:16: this import has a computed name; what it loads is not followed"
    );
}

#[test]
fn npm_modules_that_old_nodes_cannot_load_are_warned_about() {
    let package = Package::new()
        .file("index.ts", "import a from 'pkg';\nimport b from 'missing';\nexport default () => [a, b];\n")
        .file("node_modules/pkg/package.json", r#"{ "name": "pkg", "main": "index.js" }"#)
        .file("node_modules/pkg/index.js", "export default 1;\n")
        .file("node_modules/missing/index.js", "module.exports = require('not-there');\n");
    let warnings: Vec<String> = package.check().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "index.js of the package pkg is an ES module, but its package.json does not say so",
            "index.js of the package missing needs `not-there`, which is not there"
        ]
    );
}

#[test]
fn steps_are_named_in_order_and_end() {
    struct Told(Mutex<Vec<String>>);
    impl Progress for Told {
        fn started(&self, step: Step) {
            self.0.lock().unwrap().push(format!("> {}", step.label()));
        }
        fn advanced(&self, step: Step, count: usize) {
            assert_eq!(step, Step::FollowImports);
            assert!(count > 0);
        }
        fn finished(&self, step: Step) {
            self.0.lock().unwrap().push(format!("< {}", step.label()));
        }
    }
    let told = Told(Mutex::new(Vec::new()));
    let package = Package::new().file("index.ts", "export default () => 1;\n");
    build(&package.root(), &told).unwrap();
    assert_eq!(
        *told.0.lock().unwrap(),
        [
            "> Reading the descriptor",
            "< Reading the descriptor",
            "> Following imports",
            "< Following imports",
            "> Collecting files",
            "< Collecting files",
            "> Packing",
            "< Packing"
        ]
    );
}

#[test]
fn every_example_can_be_built() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")];
    let mut checked = 0;
    while let Some(folder) = folders.pop() {
        if folder.join("workflow.jsonc").is_file() {
            let report = check(&folder, &Silent);
            assert!(report.is_ok(), "{}: {:#?}", folder.display(), report.errors);
            checked += 1;
            continue;
        }
        folders.extend(
            std::fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_dir()),
        );
    }
    assert!(checked >= 4, "{checked} examples");
}
