//! Schemas of input and output from the types of `run`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use proptest::prelude::*;
use serde_json::{Value, json};
use support::Package;
use trestle_package::artifact::{Limits, derive_schemas, inspect, read_file};
use trestle_package::{Report, Severity};

/// What a check finds for a program of one module.
fn checked(source: &str) -> Report {
    let report = Package::new().file("src/index.ts", source).check();
    assert!(report.is_ok(), "{source}\n{:#?}", report.errors);
    report
}

fn gaps(report: &Report) -> Vec<String> {
    report
        .warnings
        .iter()
        .filter(|found| found.severity == Severity::Warning && found.message.contains("raw JSON"))
        .map(|found| found.message.clone())
        .collect()
}

fn input_of(declarations: &str, ty: &str) -> (Option<Value>, Vec<String>) {
    let report =
        checked(&format!("{declarations}\nexport default function run(input: {ty}) {{ return input; }}\n"));
    assert_eq!(report.schemas.output, None, "nothing is inferred");
    let gaps = gaps(&report);
    (report.schemas.input, gaps)
}

fn output_of(declarations: &str, ty: &str) -> (Option<Value>, Vec<String>) {
    let source = format!(
        "{declarations}\nexport default async function run(): Promise<{ty}> {{ return null as any; }}\n"
    );
    let report = checked(&source);
    let gaps = gaps(&report);
    (report.schemas.output, gaps)
}

/// Both directions agree, and nothing is left open.
fn same(declarations: &str, ty: &str, expected: &Value) {
    let said = format!("{declarations} {ty}");
    assert_eq!(input_of(declarations, ty), (Some(expected.clone()), vec![]), "input {said}");
    assert_eq!(output_of(declarations, ty), (Some(expected.clone()), vec![]), "output {said}");
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "number" })
}

fn big_integer() -> Value {
    json!({ "type": "string", "pattern": "^-?\\d+$" })
}

fn date() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn bytes() -> Value {
    json!({ "type": "string", "contentEncoding": "base64" })
}

fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object" });
    if properties != json!({}) {
        schema["properties"] = properties;
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

#[test]
fn every_row_of_the_reference_table_is_derived() {
    for (ty, expected) in [
        ("string", text()),
        ("number", number()),
        ("boolean", json!({ "type": "boolean" })),
        ("null", json!({ "type": "null" })),
        ("'a'", json!({ "type": "string", "const": "a" })),
        ("-1.5", json!({ "type": "number", "const": -1.5 })),
        ("42", json!({ "type": "number", "const": 42 })),
        ("true", json!({ "type": "boolean", "const": true })),
        ("'a' | 'b'", json!({ "type": "string", "enum": ["a", "b"] })),
        ("'a' | 1 | true", json!({ "enum": ["a", 1, true] })),
        ("Date", date()),
        ("bigint", big_integer()),
        ("Uint8Array", bytes()),
        ("Uint8Array<ArrayBuffer>", bytes()),
        ("string[]", json!({ "type": "array", "items": text() })),
        ("readonly string[]", json!({ "type": "array", "items": text() })),
        ("Array<number>", json!({ "type": "array", "items": number() })),
        ("ReadonlyArray<Date>", json!({ "type": "array", "items": date() })),
        ("Set<bigint>", json!({ "type": "array", "items": big_integer(), "uniqueItems": true })),
        (
            "[string, number]",
            json!({ "type": "array", "prefixItems": [text(), number()], "items": false, "minItems": 2 }),
        ),
        (
            "readonly [a: string, b?: Date]",
            json!({ "type": "array", "prefixItems": [text(), date()], "items": false, "minItems": 1 }),
        ),
        (
            "[string, ...number[]]",
            json!({ "type": "array", "prefixItems": [text()], "items": number(), "minItems": 1 }),
        ),
        ("[]", json!({ "type": "array", "items": false })),
        ("Record<string, Date>", json!({ "type": "object", "additionalProperties": date() })),
        ("{ [key: string]: number }", json!({ "type": "object", "additionalProperties": number() })),
        ("Record<'a' | 'b', number>", object(json!({ "a": number(), "b": number() }), &["a", "b"])),
        ("Record<string, unknown>", json!({ "type": "object" })),
        ("string | null", json!({ "anyOf": [text(), { "type": "null" }] })),
        (
            "'a' | 'b' | null",
            json!({ "anyOf": [{ "type": "string", "enum": ["a", "b"] }, { "type": "null" }] }),
        ),
        ("string | number", json!({ "anyOf": [text(), number()] })),
        ("string | 'a'", text()),
        ("true | false | null", json!({ "anyOf": [{ "type": "boolean" }, { "type": "null" }] })),
        (
            "{ a: string; b?: number; readonly c: Date }",
            object(json!({ "a": text(), "b": number(), "c": date() }), &["a", "c"]),
        ),
        (
            "{ a: string | undefined; b?: number | null }",
            object(json!({ "a": text(), "b": { "anyOf": [number(), { "type": "null" }] } }), &["a"][..0]),
        ),
        ("{ 'a b': string; 1: number }", object(json!({ "a b": text(), "1": number() }), &["a b", "1"])),
        (
            "{ a: { b: { c: Date[] } } }",
            object(
                json!({ "a": object(json!({ "b": object(json!({ "c": { "type": "array", "items": date() } }), &["c"]) }), &["b"]) }),
                &["a"],
            ),
        ),
        (
            "{ a: string; [more: string]: string | number }",
            json!({ "type": "object", "properties": { "a": text() }, "required": ["a"], "additionalProperties": { "anyOf": [text(), number()] } }),
        ),
        ("{}", json!({ "type": "object" })),
        ("object", json!({ "type": "object" })),
        ("`a-${string}`", json!({ "type": "string", "pattern": "^a\\-[\\s\\S]*$" })),
        ("`whole`", json!({ "type": "string", "const": "whole" })),
        ("`${string}`", text()),
        ("10n", json!({ "type": "string", "const": "10", "pattern": "^-?\\d+$" })),
        ("(string)", text()),
        ("{ get a(): string; set a(value: string) }", object(json!({ "a": text() }), &["a"])),
        ("string & { readonly __brand: 'UserId' }", text()),
        ("(string & {}) | 'auto'", text()),
        ("{ a: string } & { b: number }", object(json!({ "a": text(), "b": number() }), &["a", "b"])),
        (
            "({ kind: 'a' } | { kind: 'b' }) & { id: string }",
            json!({ "anyOf": [
            object(json!({ "id": text(), "kind": { "type": "string", "const": "a" } }), &["id", "kind"]),
            object(json!({ "id": text(), "kind": { "type": "string", "const": "b" } }), &["id", "kind"]),
        ] }),
        ),
        (
            "{ a: string; b: any; c: unknown }",
            object(json!({ "a": text(), "b": {}, "c": {} }), &["a", "b", "c"]),
        ),
    ] {
        same("", ty, &expected);
    }
}

#[test]
fn names_are_followed_to_what_they_mean() {
    let declarations = r#"
        interface Base { id: string }
        interface Item extends Base { price: number; tags?: string[] }
        interface Item { note: string | null }
        type Page<T, Extra = {}> = { items: T[]; next?: string } & Extra;
        interface Box<T> { value: T }
        interface Named<T = string> extends Box<T> { name: string }
        enum Level { Low, High = 5, Higher }
        enum Color { Red = "red", Blue = "blue", Deep = "very " + "deep" }
        const enum Flag { A = 1 << 0, B = 1 << 1, Both = A | B, Not = -1 }
        namespace Api { export interface Request { path: string; by: User } export interface User { name: string } }
        const SIZES = ["s", "m", "l"] as const;
        const LIMITS = { small: 1, large: 10 } as const;
        const SETTINGS = { retries: 3, name: "x", deep: { on: true } };
        const FROZEN = Object.freeze({ a: 1 });
        type Shape = { kind: "circle"; r: number } | { kind: "square"; side: number };
        type Mutable<T> = { -readonly [K in keyof T]: T[K] };
        type Getters<T> = { [K in keyof T as `x`]: T[K] };
        type Flat<T> = T extends (infer U)[] ? U : T;
        type NameOf<T> = T extends string ? "text" : T extends number ? "number" : "other";
        async function load(id: string): Promise<{ loaded: Date }> { return null as any; }
        let counter: number = 1;
    "#;
    let item = object(
        json!({ "id": text(), "price": number(), "tags": { "type": "array", "items": text() },
                "note": { "anyOf": [text(), { "type": "null" }] } }),
        &["id", "price", "note"],
    );
    let literal = |text: &str| json!({ "type": "string", "const": text });
    for (ty, expected) in [
        ("Item", item.clone()),
        ("Item[]", json!({ "type": "array", "items": item })),
        (
            "Page<Date>",
            object(json!({ "items": { "type": "array", "items": date() }, "next": text() }), &["items"]),
        ),
        (
            "Page<Date, { total: number }>",
            object(
                json!({ "items": { "type": "array", "items": date() }, "next": text(), "total": number() }),
                &["items", "total"],
            ),
        ),
        (
            "Box<Box<bigint>>",
            object(json!({ "value": object(json!({ "value": big_integer() }), &["value"]) }), &["value"]),
        ),
        ("Named", object(json!({ "value": text(), "name": text() }), &["value", "name"])),
        ("Named<Date>", object(json!({ "value": date(), "name": text() }), &["value", "name"])),
        ("Level", json!({ "type": "number", "enum": [0, 5, 6] })),
        ("Level.High", json!({ "type": "number", "const": 5 })),
        ("Color", json!({ "type": "string", "enum": ["red", "blue", "very deep"] })),
        ("Flag", json!({ "type": "number", "enum": [1, 2, 3, -1] })),
        ("keyof typeof Color", json!({ "type": "string", "enum": ["Red", "Blue", "Deep"] })),
        ("`${Color}`", text()),
        (
            "Api.Request",
            object(
                json!({ "path": text(), "by": object(json!({ "name": text() }), &["name"]) }),
                &["path", "by"],
            ),
        ),
        ("(typeof SIZES)[number]", json!({ "type": "string", "enum": ["s", "m", "l"] })),
        ("(typeof SIZES)[1]", literal("m")),
        ("keyof typeof LIMITS", json!({ "type": "string", "enum": ["small", "large"] })),
        ("(typeof LIMITS)[keyof typeof LIMITS]", json!({ "type": "number", "enum": [1, 10] })),
        (
            "typeof SETTINGS",
            object(
                json!({ "retries": number(), "name": text(), "deep": object(json!({ "on": { "type": "boolean" } }), &["on"]) }),
                &["retries", "name", "deep"],
            ),
        ),
        ("typeof SETTINGS.deep", object(json!({ "on": { "type": "boolean" } }), &["on"])),
        ("typeof FROZEN", object(json!({ "a": number() }), &["a"])),
        ("typeof counter", number()),
        ("Partial<Base>", object(json!({ "id": text() }), &[])),
        (
            "Required<{ a?: string; b?: number | undefined }>",
            object(json!({ "a": text(), "b": number() }), &["a", "b"]),
        ),
        ("Readonly<Base>", object(json!({ "id": text() }), &["id"])),
        (
            "Pick<Item, 'id' | 'tags'>",
            object(json!({ "id": text(), "tags": { "type": "array", "items": text() } }), &["id"]),
        ),
        (
            "Omit<Item, 'tags' | 'note' | 'nothing'>",
            object(json!({ "id": text(), "price": number() }), &["id", "price"]),
        ),
        (
            "Omit<Shape, 'r' | 'side'>",
            json!({ "anyOf": [object(json!({ "kind": literal("circle") }), &["kind"]), object(json!({ "kind": literal("square") }), &["kind"])] }),
        ),
        ("Exclude<'a' | 'b' | 'c', 'a' | 'c'>", literal("b")),
        (
            "Extract<Shape, { kind: 'circle' }>",
            object(json!({ "kind": literal("circle"), "r": number() }), &["kind", "r"]),
        ),
        ("NonNullable<string | null | undefined>", text()),
        ("keyof Base", literal("id")),
        ("Item['price']", number()),
        ("Item['tags']", json!({ "anyOf": [{ "type": "array", "items": text() }, { "type": "null" }] })),
        (
            "{ kind: Shape['kind'] }",
            object(json!({ "kind": { "type": "string", "enum": ["circle", "square"] } }), &["kind"]),
        ),
        ("{ [K in 'a' | 'b']: K }", object(json!({ "a": literal("a"), "b": literal("b") }), &["a", "b"])),
        ("{ [K in 'a']?: Date }", object(json!({ "a": date() }), &[])),
        (
            "{ [K in keyof Item]: number }",
            object(
                json!({ "id": number(), "price": number(), "tags": number(), "note": number() }),
                &["id", "price", "note"],
            ),
        ),
        (
            "{ [K in keyof Item]-?: 1 }",
            object(
                json!({ "id": { "type": "number", "const": 1 }, "price": { "type": "number", "const": 1 }, "tags": { "type": "number", "const": 1 }, "note": { "type": "number", "const": 1 } }),
                &["id", "price", "tags", "note"],
            ),
        ),
        ("Mutable<Item>['id']", text()),
        ("Getters<Base>", object(json!({ "x": text() }), &["x"])),
        ("NameOf<string | number | Date>", json!({ "type": "string", "enum": ["text", "number", "other"] })),
        ("Awaited<ReturnType<typeof load>>", object(json!({ "loaded": date() }), &["loaded"])),
        ("Awaited<Promise<Promise<string>>>", text()),
    ] {
        same(declarations, ty, &expected);
    }
    let (schema, gaps) = input_of(declarations, "Flat<string[]>");
    assert_eq!(schema, None, "infer is beyond it");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
}

#[test]
fn types_that_occur_in_themselves_are_definitions() {
    let tree = "interface Tree { value: Date; children: Tree[]; parent?: Tree | null }";
    let body = json!({ "type": "object", "required": ["value", "children"], "properties": {
        "value": date(), "children": { "type": "array", "items": { "$ref": "#/$defs/Tree" } },
        "parent": { "anyOf": [{ "$ref": "#/$defs/Tree" }, { "type": "null" }] } } });
    same(tree, "Tree", &json!({ "$ref": "#/$defs/Tree", "$defs": { "Tree": body } }));
    same(
        tree,
        "{ root: Tree; other: Tree }",
        &json!({ "type": "object", "required": ["root", "other"], "$defs": { "Tree": body },
                 "properties": { "root": { "$ref": "#/$defs/Tree" }, "other": { "$ref": "#/$defs/Tree" } } }),
    );
    same(
        "type Json = string | number | boolean | null | Json[] | { [key: string]: Json };",
        "Json",
        &json!({ "$ref": "#/$defs/Json", "$defs": { "Json": { "anyOf": [
            text(), number(), { "type": "boolean" }, { "type": "array", "items": { "$ref": "#/$defs/Json" } },
            { "type": "object", "additionalProperties": { "$ref": "#/$defs/Json" } }, { "type": "null" } ] } } }),
    );
    same(
        "interface List<T> { head: T; tail: List<T> | null } namespace Other { export interface List { a: List[] } }",
        "{ a: List<string>; b: List<Date>; c: Other.List }",
        &json!({ "type": "object", "required": ["a", "b", "c"],
            "properties": { "a": { "$ref": "#/$defs/List" }, "b": { "$ref": "#/$defs/List2" }, "c": { "$ref": "#/$defs/List3" } },
            "$defs": {
                "List": { "type": "object", "required": ["head", "tail"], "properties": { "head": text(), "tail": { "anyOf": [{ "$ref": "#/$defs/List" }, { "type": "null" }] } } },
                "List2": { "type": "object", "required": ["head", "tail"], "properties": { "head": date(), "tail": { "anyOf": [{ "$ref": "#/$defs/List2" }, { "type": "null" }] } } },
                "List3": { "type": "object", "required": ["a"], "properties": { "a": { "type": "array", "items": { "$ref": "#/$defs/List3" } } } },
            } }),
    );
    // Neither ends; both are said, and nothing hangs.
    for endless in [
        "type A = A;",
        "interface Grow<T> { more: Grow<T[]> } type A = Grow<string>;",
        "type A = Partial<A>;",
    ] {
        let (_, gaps) = input_of(endless, "A");
        assert_eq!(gaps.len(), 1, "{endless}: {gaps:?}");
    }
}

#[test]
fn what_the_author_leaves_open_has_no_schema_and_no_warning() {
    for ty in ["any", "unknown", "any | string", "unknown & any"] {
        assert_eq!(input_of("", ty), (None, vec![]), "{ty}");
        assert_eq!(output_of("", ty), (None, vec![]), "{ty}");
    }
    for source in [
        "export default function run(input) { return 1; }",
        "export default () => 1;",
        "export default async (...all) => all;",
        "export default function run(input = { a: 1 }) { return input; }",
    ] {
        let report = checked(source);
        assert_eq!((report.schemas.is_empty(), gaps(&report)), (true, vec![]), "{source}");
    }
    let report =
        Package::new().file("index.js", "export default function run(input) { return input; }\n").check();
    assert!(report.schemas.is_empty() && report.is_ok());
}

#[test]
fn a_return_value_has_its_own_rules() {
    assert_eq!(output_of("", "void"), (Some(json!({ "type": "null" })), vec![]));
    assert_eq!(output_of("", "undefined"), (Some(json!({ "type": "null" })), vec![]));
    assert_eq!(output_of("", "never"), (None, vec![]));
    assert_eq!(
        output_of("", "string | undefined").0.unwrap(),
        json!({ "anyOf": [text(), { "type": "null" }] })
    );
    assert_eq!(output_of("", "Buffer"), (Some(bytes()), vec![]));
    assert_eq!(output_of("", "{ at: URL }").0.unwrap(), object(json!({ "at": text() }), &["at"]));
    assert_eq!(
        output_of("", "Map<string, Date>").0.unwrap(),
        json!({ "type": "object", "additionalProperties": date() })
    );
    assert_eq!(
        output_of("", "(string | undefined)[]").0.unwrap(),
        json!({ "type": "array", "items": { "anyOf": [text(), { "type": "null" }] } })
    );
    for (source, expected) in [
        ("export default function run(): string { return ''; }", text()),
        ("export default function run(): Promise<Promise<string>> { return null as any; }", text()),
        (
            "export default function run(): string | Promise<number> { return ''; }",
            json!({ "anyOf": [text(), number()] }),
        ),
        ("export default function run(): PromiseLike<Date> { return null as any; }", date()),
    ] {
        assert_eq!(checked(source).schemas.output, Some(expected), "{source}");
    }
}

#[test]
fn a_part_that_is_beyond_stays_raw_json_and_is_reported_while_the_rest_is_derived() {
    let class = "class Money { constructor(readonly amount: number) {} }";
    for (declarations, ty, place, why) in [
        (class, "{ a: string; b: Money }", "input.b ", "`Money` is a class"),
        ("", "{ a: string; b: Buffer }", "input.b ", "`Uint8Array`"),
        ("", "{ a: string; b: Map<string, number>[] }", "input.b[] ", "`Record`"),
        ("", "{ a: string; b: URL }", "input.b ", "`string`"),
        ("", "{ a: string; b: RegExp }", "input.b ", "`RegExp` has no form"),
        ("", "{ a: string; b: Float64Array }", "input.b ", "`Float64Array` has no form"),
        ("", "{ a: string; b: Nowhere }", "input.b ", "`Nowhere` is not declared"),
        ("", "{ a: string; b: symbol }", "input.b ", "a symbol"),
        ("", "{ a: string; b: Promise<string> }", "input.b ", "a promise"),
        (
            "import type { Nobody } from 'nowhere';",
            "{ a: string; b: Nobody }",
            "input.b ",
            "`Nobody` of `nowhere`",
        ),
        (
            "type F<T> = T extends infer U ? U : never;",
            "{ a: string; b: F<string> }",
            "input.b ",
            "cannot be decided",
        ),
        ("enum E { A = 'x'.length }", "{ a: string; b: E }", "input.b ", "computed members"),
    ] {
        let (schema, gaps) = input_of(declarations, ty);
        let expected = json!({ "type": "object", "properties": { "a": text(), "b": {} }, "required": ["a"] });
        let schema = schema.unwrap();
        assert_eq!(schema["properties"]["a"], expected["properties"]["a"], "{ty}: {schema}");
        assert!(
            schema["properties"]["b"].as_object().is_none_or(|b| b.is_empty() || b["type"] == "array"),
            "{ty}: {schema}"
        );
        assert_eq!(gaps.len(), 1, "{ty}: {gaps:?}");
        assert!(gaps[0].starts_with(place) && gaps[0].contains(why), "{ty}: {gaps:?}");
    }
    // A whole value that is beyond has no schema at all.
    let (schema, gaps) = input_of(class, "Money");
    assert_eq!((schema, gaps.len()), (None, 1));
    // Functions are no JSON: they are not asked for.
    let (schema, gaps) = output_of("", "{ a: string; f: () => void; g(): void }");
    assert_eq!(schema.unwrap(), object(json!({ "a": text() }), &["a"]));
    assert_eq!(gaps.len(), 2, "{gaps:?}");
}

#[test]
fn alternatives_with_native_values_are_said_to_arrive_as_json() {
    let (schema, gaps) = input_of("", "{ at: Date | string }");
    assert_eq!(schema.unwrap()["properties"]["at"], json!({ "anyOf": [date(), text()] }));
    assert_eq!(gaps.len(), 1);
    assert!(gaps[0].contains("input.at") && gaps[0].contains("alternatives"), "{gaps:?}");
    // One alternative beside null is restored.
    assert_eq!(input_of("", "{ at: Date | null; n?: bigint | undefined }").1, Vec::<String>::new());
    // On the way out everything is encoded.
    assert_eq!(output_of("", "{ at: Date | string }").1, Vec::<String>::new());
}

#[test]
fn an_optional_parameter_takes_null() {
    let report = checked("export default function run(input?: { a?: string }) { return input; }\n");
    assert_eq!(
        report.schemas.input.unwrap(),
        json!({ "anyOf": [{ "type": "object", "properties": { "a": text() } }, { "type": "null" }] })
    );
}

#[test]
fn the_function_is_found_in_whatever_form_it_is_exported() {
    let expected = Some(object(json!({ "a": text() }), &["a"]));
    let input = "interface Input { a: string }\n";
    for source in [
        "export default async function run(input: Input): Promise<void> {}",
        "export default async function (input: Input): Promise<void> {}",
        "export default async ({ a }: Input, context: unknown): Promise<void> => {};",
        "const run = async (input: Input): Promise<void> => {};\nexport default run;",
        "async function run(input: Input): Promise<void> {}\nexport { run as default };",
        "const run: (input: Input) => Promise<void> = async (input) => {};\nexport default run;",
        "type Run = (input: Input) => Promise<void>;\nconst run: Run = async (input) => {};\nexport default run;",
        "type Run<I, O> = (input: I) => Promise<O>;\nexport default (async (input) => {}) satisfies Run<Input, void>;",
        "export default (async (input) => {}) as (input: Input) => Promise<void>;",
        "function run(input: Input): Promise<void>;\nasync function run(input: any): Promise<void> {}\nexport default run;",
    ] {
        let report = checked(&format!("{input}{source}\n"));
        assert_eq!(report.schemas.input, expected, "{source}");
        assert_eq!(report.schemas.output, Some(json!({ "type": "null" })), "{source}");
    }
}

#[test]
fn types_come_from_other_modules_by_every_kind_of_import() {
    let package = Package::new()
        .file("tsconfig.json", r#"{ "compilerOptions": { "paths": { "@lib/*": ["./lib/*"] } } }"#)
        .file("src/index.ts", r#"
            import type { A, Renamed as B } from "./types.js";
            import { type C } from "./types";
            import D from "./default";
            import * as All from "./types";
            import type { Lib } from "@lib/lib";
            import type { Handwritten } from "./plain.js";
            import type { Data } from "typed";
            import type { Source } from "linked";
            import type { ArtifactRef, JsonValue } from "@trestle/workflow";
            export default function run(input: {
              a: A; b: B; c: C; d: D; e: All.A; f: Lib; g: import("./types").A; h: Handwritten; i: Data;
              j: ArtifactRef; k: JsonValue; l: typeof import("./types").LEVELS[number]; m: All.Again.Inner; n: Source;
            }) { return 1; }
        "#)
        .file("src/types.ts", r#"
            export interface A { a: Inner }
            interface Inner { deep: Date }
            interface Hidden { hidden: string }
            export type { Hidden as Renamed };
            export * from "./more";
            export * as Again from "./again";
            export const LEVELS = [1, 2] as const;
        "#)
        .file("src/more.ts", "export { C } from './again';\n")
        .file("src/again.ts", "export type C = 'c';\nexport interface Inner { again: string }\n")
        .file("src/default.ts", "export default interface D { d: number }\n")
        .file("lib/lib.ts", "export type Lib = { lib: boolean };\n")
        .file("src/plain.js", "export const x = 1;\n")
        .file("src/plain.d.ts", "export interface Handwritten { by: 'hand' }\n")
        .file("node_modules/typed/package.json", r#"{ "name": "typed", "version": "1.0.0", "types": "./dist/index.d.ts", "main": "./dist/index.js" }"#)
        .file("node_modules/typed/dist/index.d.ts", "export * from './data';\n")
        .file("node_modules/typed/dist/data.d.ts", "interface Data { id: bigint }\nexport { Data };\n")
        .file("node_modules/typed/dist/index.js", "exports.x = 1;\n")
        .file("node_modules/linked/package.json", r#"{ "name": "linked", "version": "1.0.0", "exports": { ".": { "types": "./index.d.mts", "default": "./index.mjs" } } }"#)
        .file("node_modules/linked/index.d.mts", "export type Source = { via: 'exports' };\n")
        .file("node_modules/linked/index.mjs", "export {};\n");
    let report = package.check();
    assert!(report.is_ok(), "{:#?}", report.errors);
    let properties = report.schemas.input.unwrap()["properties"].clone();
    let inner = object(json!({ "a": object(json!({ "deep": date() }), &["deep"]) }), &["a"]);
    for (name, expected) in [
        ("a", inner.clone()),
        ("b", object(json!({ "hidden": text() }), &["hidden"])),
        ("c", json!({ "type": "string", "const": "c" })),
        ("d", object(json!({ "d": number() }), &["d"])),
        ("e", inner.clone()),
        ("f", object(json!({ "lib": { "type": "boolean" } }), &["lib"])),
        ("g", inner),
        ("h", object(json!({ "by": { "type": "string", "const": "hand" } }), &["by"])),
        ("i", object(json!({ "id": big_integer() }), &["id"])),
        ("j", object(json!({ "id": text(), "name": text(), "url": text() }), &["id", "name", "url"])),
        ("k", json!({})),
        ("l", json!({ "type": "number", "enum": [1, 2] })),
        ("m", object(json!({ "again": text() }), &["again"])),
        ("n", object(json!({ "via": { "type": "string", "const": "exports" } }), &["via"])),
    ] {
        assert_eq!(properties[name], expected, "{name}");
    }
}

#[test]
fn an_artifact_carries_what_was_derived_and_a_change_of_type_is_a_change_of_version() {
    let source = |ty: &str| format!("export default function run(input: {ty}): string {{ return ''; }}\n");
    let first = Package::new().file("index.ts", &source("{ a: string }")).build();
    let again = Package::new().file("index.ts", &source("{ a: string }")).build();
    let other = Package::new().file("index.ts", &source("{ a: number }")).build();
    assert_eq!(first.identity, again.identity);
    assert_ne!(first.identity, other.identity);
    let limits = Limits::default();
    let contents = inspect(first.bytes.as_slice(), &limits).unwrap();
    let schemas = contents.schemas.unwrap();
    assert_eq!(schemas, first.report.schemas);
    assert_eq!(schemas.input.unwrap(), object(json!({ "a": text() }), &["a"]));
    assert!(read_file(first.bytes.as_slice(), ".trestle/schemas.json", 1 << 20, &limits).unwrap().is_some());
    // What an artifact claims in another form counts for nothing.
    let untyped = Package::new().file("index.js", "export default () => 1;\n").build();
    assert!(inspect(untyped.bytes.as_slice(), &limits).unwrap().schemas.unwrap().is_empty());
}

#[test]
fn the_sources_of_a_foreign_artifact_give_the_same_schemas() {
    let package = Package::new()
        .file("src/index.ts", "import type { In } from './in';\nexport default (input: In): bigint => 1n;\n")
        .file("src/in.ts", "import type { Data } from 'typed';\nexport interface In { when: Date; data: Data; odd: Promise<1> }\n");
    let own = package.build();
    // As the original's build packs it: no schemas, sources and declarations beside the bundle.
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut add = |path: &str, text: &str| {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    };
    add("index.mjs", "export default () => 1;\n");
    add("workflow.jsonc", support::DESCRIPTOR);
    for path in ["src/index.ts", "src/in.ts"] {
        add(&format!(".bw-src/{path}"), &std::fs::read_to_string(package.root().join(path)).unwrap());
    }
    add(".bw-machine/types/node_modules/typed/package.json", r#"{ "name": "typed", "types": "index.d.ts" }"#);
    add(".bw-machine/types/node_modules/typed/index.d.ts", "export interface Data { n: number }\n");
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    let limits = Limits::default();
    let contents = inspect(bytes.as_slice(), &limits).unwrap();
    assert_eq!(contents.schemas, None);
    let (schemas, gaps) = derive_schemas(bytes.as_slice(), &contents, &limits).unwrap();
    let input = schemas.input.unwrap();
    assert_eq!(input["properties"]["when"], date());
    assert_eq!(input["properties"]["data"], object(json!({ "n": number() }), &["n"]));
    assert_eq!(schemas.output, own.report.schemas.output);
    assert!(gaps.len() == 1 && gaps[0].contains("input.odd"), "{gaps:?}");
}

#[test]
fn text_made_to_exhaust_the_stack_is_survived() {
    let deep = format!("{}string{}", "Array<".repeat(20_000), ">".repeat(20_000));
    let (schema, gaps) = input_of("", "{ a: string }");
    assert!(schema.is_some() && gaps.is_empty());
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, text) in [
        ("index.mjs", "export default () => 1;\n"),
        ("workflow.jsonc", support::DESCRIPTOR),
        (".bw-src/index.ts", &format!("export default (input: {deep}) => {}1;\n", "!".repeat(50_000))),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    let limits = Limits::default();
    let contents = inspect(bytes.as_slice(), &limits).unwrap();
    let (_, gaps) = derive_schemas(bytes.as_slice(), &contents, &limits).unwrap();
    assert!(gaps.iter().all(|gap| gap.contains("raw JSON")), "{gaps:?}");
}

#[test]
fn a_cron_input_must_fit_the_program() {
    let package = |input: &str| {
        Package::inside("")
            .file("workflow.jsonc", &format!("{{ \"slug\": \"s\", \"triggers\": [\n  {{ \"kind\": \"cron\", \"expr\": \"0 * * * *\"{input} }}] }}"))
            .file("index.ts", "export default function run(input: { depth: number }) { return input; }\n")
    };
    let report = package(", \"input\": { \"depth\": 3 }").check();
    assert!(
        report.is_ok() && !report.warnings.iter().any(|found| found.message.contains("program")),
        "{report:#?}"
    );
    let report = package(", \"input\": { \"depth\": \"three\" }").check();
    assert_eq!(report.errors.len(), 1, "{report:#?}");
    let error = report.errors[0].to_string();
    assert!(
        error.starts_with("workflow.jsonc:2:")
            && error.contains("triggers.0.input")
            && error.contains("/depth"),
        "{error}"
    );
    let report = package("").check();
    assert!(report.is_ok());
    assert!(report.warnings.iter().any(|found| found.message.contains("no input")), "{report:#?}");
}

// -- any type

/// A type, its text, its schema, a value of it.
#[derive(Debug, Clone)]
struct Sample {
    ty: String,
    schema: Value,
    value: Value,
    /// A value that is none of it.
    wrong: Value,
    /// Dates, big integers, byte arrays and sets in the value.
    natives: usize,
}

fn leaf() -> impl Strategy<Value = Sample> {
    let sample = |ty: &str, schema: Value, value: Value, wrong: Value, natives| Sample {
        ty: ty.into(),
        schema,
        value,
        wrong,
        natives,
    };
    prop_oneof![
        Just(sample("string", text(), json!("x"), json!(1), 0)),
        Just(sample("number", number(), json!(1.5), json!("1"), 0)),
        Just(sample("boolean", json!({ "type": "boolean" }), json!(true), json!("true"), 0)),
        Just(sample("Date", date(), json!("2020-01-02T03:04:05.678Z"), json!(0), 1)),
        Just(sample("bigint", big_integer(), json!("-12345678901234567890"), json!("1.5"), 1)),
        Just(sample("Uint8Array", bytes(), json!("AQID"), json!([1, 2, 3]), 1)),
        Just(sample(
            "'on' | 'off'",
            json!({ "type": "string", "enum": ["on", "off"] }),
            json!("on"),
            json!("of"),
            0
        )),
    ]
}

fn any_type() -> impl Strategy<Value = Sample> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|item| Sample {
                ty: format!("({})[]", item.ty),
                schema: json!({ "type": "array", "items": item.schema }),
                value: json!([item.value.clone(), item.value]),
                wrong: json!([item.wrong]),
                natives: 2 * item.natives,
            }),
            inner.clone().prop_map(|item| Sample {
                ty: format!("Set<{}>", item.ty),
                schema: json!({ "type": "array", "items": item.schema, "uniqueItems": true }),
                value: json!([item.value.clone()]),
                wrong: json!([item.value.clone(), item.value]),
                natives: 1 + item.natives,
            }),
            inner.clone().prop_map(|item| Sample {
                ty: format!("Record<string, {}>", item.ty),
                schema: json!({ "type": "object", "additionalProperties": item.schema }),
                value: json!({ "k": item.value, "__proto__": item.value }),
                wrong: json!({ "k": item.wrong }),
                natives: 2 * item.natives,
            }),
            inner.clone().prop_map(|item| Sample {
                ty: format!("{{ n: ({}) | null }}", item.ty),
                natives: item.natives,
                value: json!({ "n": item.value }),
                wrong: json!({ "n": item.wrong }),
                schema: object(json!({ "n": { "anyOf": [item.schema, { "type": "null" }] } }), &["n"]),
            }),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Sample {
                ty: format!("[{}, {}]", a.ty, b.ty),
                schema: json!({ "type": "array", "prefixItems": [a.schema, b.schema], "items": false, "minItems": 2 }),
                value: json!([a.value, b.value]),
                wrong: json!([a.value]),
                natives: a.natives + b.natives,
            }),
            (inner.clone(), inner).prop_map(|(a, b)| Sample {
                ty: format!("{{ a: {}; b?: {} }}", a.ty, b.ty),
                schema: object(json!({ "a": a.schema, "b": b.schema }), &["a"]),
                value: json!({ "a": a.value, "more": 1 }),
                wrong: json!({ "a": a.value, "b": b.wrong }),
                natives: a.natives,
            }),
        ]
    })
}

#[test]
fn values_of_any_type_are_restored_by_the_derived_schema_and_written_back_the_same() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let samples: Vec<Sample> = (0..60).map(|_| any_type().new_tree(&mut runner).unwrap().current()).collect();
    assert!(samples.iter().filter(|sample| sample.natives > 1).count() > 10);
    // One module that declares them all, and one derivation.
    let aliases: Vec<String> =
        samples.iter().enumerate().map(|(index, sample)| format!("type T{index} = {};", sample.ty)).collect();
    let fields: Vec<String> = (0..samples.len()).map(|index| format!("t{index}: T{index}")).collect();
    let (schema, gaps) = input_of(&aliases.join("\n"), &format!("{{ {} }}", fields.join("; ")));
    let (schema, values) = (schema.unwrap(), samples.iter().enumerate());
    assert_eq!(gaps, Vec::<String>::new());
    let values: serde_json::Map<String, Value> =
        values.map(|(index, sample)| (format!("t{index}"), sample.value.clone())).collect();
    let script = format!(
        "import {{ readFileSync }} from 'node:fs';
         import {{ encodeCanonical, reviveBySchema }} from {:?};
         const {{ schema, values }} = JSON.parse(readFileSync(process.argv[2], 'utf8'));
         const natives = (value) => {{
           if (typeof value === 'bigint' || value instanceof Date || value instanceof Uint8Array) return 1;
           if (value instanceof Set) return [...value].reduce((sum, item) => sum + natives(item), 1);
           if (typeof value !== 'object' || value === null) return 0;
           return Object.keys(value).reduce((sum, key) => sum + natives(value[key]), 0);
         }};
         const revived = reviveBySchema(values, schema);
         const counts = Object.fromEntries(Object.keys(values).map((key) => [key, natives(revived[key])]));
         console.log(JSON.stringify({{ counts, back: encodeCanonical(revived) }}));",
        concat!("file://", env!("CARGO_MANIFEST_DIR"), "/../../sdk/typescript/values.mjs")
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("check.mjs");
    std::fs::write(&file, script).unwrap();
    let given = folder.path().join("given.json");
    std::fs::write(&given, json!({ "schema": schema, "values": values }).to_string()).unwrap();
    let output = std::process::Command::new("node").arg(&file).arg(&given).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, sample) in samples.iter().enumerate() {
        let key = format!("t{index}");
        assert_eq!(seen["counts"][&key], sample.natives, "{}", sample.ty);
        assert_eq!(seen["back"][&key], sample.value, "{}", sample.ty);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_type_has_its_schema_which_takes_its_values_and_no_others(sample in any_type()) {
        let source = format!("type T = {};\nexport default (input: T): Promise<T> => null as any;\n", sample.ty);
        let report = checked(&source);
        prop_assert_eq!(report.schemas.input.as_ref(), Some(&sample.schema), "{}", sample.ty);
        prop_assert_eq!(report.schemas.output.as_ref(), Some(&sample.schema), "{}", sample.ty);
        let validator = jsonschema::draft202012::new(&sample.schema).unwrap();
        prop_assert!(validator.is_valid(&sample.value), "{} {}", sample.ty, sample.value);
        prop_assert!(!validator.is_valid(&sample.wrong), "{} {}", sample.ty, sample.wrong);
    }

    #[test]
    fn any_text_is_checked_without_a_fault(text in "[a-zA-Z<>{}\\[\\]|&:;?.,'=() ]{0,80}") {
        let source = format!("type T = {text};\nexport default (input: T) => input;\n");
        let report = Package::new().file("index.ts", &source).check();
        // Text that does not parse is refused; all other text has a schema or a reason.
        prop_assert!(!report.is_ok() || report.schemas.output.is_none());
    }
}
