//! The functions of expressions in scripts: the global `fn`.

use flowcell_expr::functions::{EXAMPLE_ROOTS, FunctionKind, functions};
use flowcell_sdk::testing::Outcome;
use serde_json::{Value, json};

use super::{failure, output, play, returned};

/// Converts an example of the table of functions to JavaScript: `x | name(a, key=b)` becomes `fn.name(x, a, { key: b })`.
fn to_script(example: &str) -> String {
    let mut parts = split(example, &[" | ", " is "]).into_iter();
    let (_, first) = parts.next().unwrap();
    let is_call =
        first.split_once('(').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase()) && !name.is_empty());
    let mut script = if is_call { format!("fn.{first}") } else { first.to_owned() };
    for (sign, part) in parts {
        let (name, arguments) = part.strip_suffix(')').and_then(|part| part.split_once('(')).unwrap_or((part, ""));
        let (mut written, mut named) = (vec![script], Vec::new());
        for (_, argument) in split(arguments, &[", "]) {
            match argument.split_once('=') {
                Some((key, value)) if key.chars().all(|c| c.is_ascii_lowercase() || c == '_') => {
                    named.push(format!("{key}: {value}"));
                }
                _ if argument.is_empty() => {}
                _ => written.push(argument.to_owned()),
            }
        }
        if !named.is_empty() {
            written.push(format!("{{ {} }}", named.join(", ")));
        }
        let object = if sign == " is " { "fn.is" } else { "fn" };
        script = format!("{object}.{name}({})", written.join(", "));
    }
    script
}

/// Splits a text at signs that are neither in quotes nor in brackets. Each part comes with the sign before it.
fn split<'t>(text: &'t str, signs: &[&'static str]) -> Vec<(&'static str, &'t str)> {
    let (mut parts, mut depth, mut is_quoted, mut start, mut sign) = (Vec::new(), 0, false, 0, "");
    for (at, c) in text.char_indices() {
        match c {
            '\'' => is_quoted = !is_quoted,
            '(' | '[' | '{' if !is_quoted => depth += 1,
            ')' | ']' | '}' if !is_quoted => depth -= 1,
            _ => {}
        }
        let next = signs.iter().find(|sign| text[at..].starts_with(**sign));
        if let (Some(next), 0, false) = (next, depth, is_quoted) {
            parts.push((sign, &text[start..at]));
            (start, sign) = (at + next.len(), *next);
        }
    }
    parts.push((sign, &text[start..]));
    parts
}

#[test]
fn each_example_of_the_table_gives_its_result() {
    let examples: Vec<String> = functions().map(|function| to_script(function.example)).collect();
    // Each example names its function, so that the conversion loses none.
    for (function, example) in functions().zip(&examples) {
        let object = if function.kind == FunctionKind::Test { "fn.is." } else { "fn." };
        assert!(example.contains(&format!("{object}{}(", function.name())), "{example}");
    }
    let body = format!(
        "const {{ order, orders, key }} = {EXAMPLE_ROOTS}; const results = [];\n{}\nreturn results",
        examples.iter().map(|example| format!("results.push({example});\n")).collect::<String>(),
    );
    let results = returned(&body);
    for (at, (function, example)) in functions().zip(&examples).enumerate() {
        let expected: Value = serde_json::from_str(function.result).unwrap();
        assert_eq!(results[at], expected, "{example}");
    }
}

#[test]
fn every_name_is_a_function() {
    for function in functions() {
        for name in function.names {
            let object = if function.kind == FunctionKind::Test { "fn.is" } else { "fn" };
            let told = returned(&format!("const f = {object}['{name}']; return [typeof f, f.name]"));
            assert_eq!(told, json!(["function", format!("{object}.{name}")]));
        }
    }
    assert_eq!(
        returned("return ['slugify' in fn, 'equals' in fn.is, Object.keys(fn).includes('is')]"),
        json!([true, false, true])
    );
}

/// Checks bodies of `run` and their results.
fn check(rows: &[(&str, Value)]) {
    for (body, expected) in rows {
        let caught = format!("try {{ return {body} }} catch (error) {{ return error.message }}");
        assert_eq!(returned(&caught), *expected, "{body}");
    }
}

#[test]
fn arguments_follow_the_value_in_order_or_by_name() {
    check(&[
        ("fn.padstart('7', 3, '0')", json!("007")),
        ("fn.padstart('7', 3, { fill: '0' })", json!("007")),
        (
            "fn.padstart(7, 3)",
            json!("fn.padstart: `padstart` needs a text, not a number; `value` is a number; `width` is a number"),
        ),
        ("fn.padstart('7', 3, undefined)", json!("  7")),
        ("fn.sort([{ a: 2 }, { a: 1 }], { attribute: 'a' })", json!([{ "a": 1 }, { "a": 2 }])),
        ("fn.range(6, { step: 2 })", json!([0, 2, 4])),
        // An object is a value, unless it has only names of optional arguments.
        ("fn.merge({ separator: 1 }, { attribute: 2 })", json!({ "separator": 1, "attribute": 2 })),
        ("fn.default(null, { a: 1 })", json!({ "a": 1 })),
        ("fn.default(null, {})", json!({})),
        ("fn.default(0, 7, { lax: true })", json!(7)),
        ("fn.default(null, { lax: true }, false)", json!({ "lax": true })),
        ("fn.tojson({ separator: 1 })", json!(r#"{"separator":1}"#)),
        ("fn.map(['a'], 'upper')", json!(["A"])),
        ("fn.select([1, 2], '>', 1)", json!([2])),
        ("fn.is['>'](2, 1)", json!(true)),
        ("fn.regexfind('a', 'b')", json!(null)),
        ("['b', 'a'].map(text => fn.upper(text))", json!(["B", "A"])),
        ("fn.dateformat(new Date(0), '%Y')", json!("1970")),
        ("fn.decadd('0.1', 0.2)", json!("0.3")),
        ("fn.string('{{ 1 }}')", json!("{{ 1 }}")),
    ]);
}

#[test]
fn each_call_has_other_random_values() {
    // Outside of the sandbox the seed of the attempt is another one each time.
    check(&[
        ("fn.uuid() !== fn.uuid()", json!(true)),
        ("new Set([...Array(20)].map(() => fn.random())).size", json!(20)),
        ("new Set([...Array(20)].map(() => fn.shuffle([1, 2, 3, 4, 5, 6, 7, 8]).join())).size > 1", json!(true)),
        ("[...Array(99)].every(() => fn.random(3) < 3)", json!(true)),
    ]);
}

#[test]
fn errors_name_the_function_and_the_line() {
    for (call, why) in [
        ("fn.slugify(null)", "TypeError: fn.slugify: `slugify` does not work on null"),
        ("fn.slugify()", "fn.slugify: `slugify` does not work on null"),
        ("fn.dateformat('x', '%Y')", "fn.dateformat: `dateformat`"),
        ("fn.dateformat('2026-11-26', '%Y', 'Europe/Berln')", "did you mean `Europe/Berlin`?"),
        ("fn.round('x')", "fn.round: `round`"),
        ("fn.round(2.675, { prec: 2 })", "fn.round: unknown argument `prec`: the optional ones are `precision`"),
        ("fn.is.matches('a', '(')", "fn.is.matches:"),
        ("fn.regexfind('a', '(?=a)')", "fn.regexfind:"),
        ("fn.regexfindall('a'.repeat(1e6), 'a.*z|a')", "the text is too long for this pattern"),
        ("fn.range(1e9)", "fn.range: `range` does too much work"),
        ("fn.padstart('a', 1e9)", "longer than"),
        ("fn.sort([1], 2)", "fn.sort:"),
        ("fn.sort([1], { atribute: 'a' })", "fn.sort:"),
        ("fn.batch([1], 2, { fill: 0 })", "`fill` has no name in calls"),
        ("fn.int('9007199254740993')", "more digits than a script can keep exactly"),
        ("fn.upper(1n)", "argument 1 of fn.upper is a BigInt"),
        ("fn.merge({}, { a: () => 1 })", "argument 2 of fn.merge at `a` is a function"),
        (
            "fn.length((() => { const a = []; a.push(a); return a })())",
            "argument 1 of fn.length at `[0]` is an object that contains itself",
        ),
        (
            "fn.length((() => { let a = []; for (let i = 0; i < 200; i++) a = [a]; return a })())",
            "nested more than 127",
        ),
        ("fn.length('x'.repeat(5 << 20))", "argument 1 of fn.length is larger than 4 MiB"),
        ("fn.upper({ kind: 'file', fileId: 'f' })", "fn.upper:"),
        ("fn.upper(fn)", "argument 1 of fn.upper is not a plain object"),
        ("fn.slugfy('a')", "unknown function `fn.slugfy`: did you mean `fn.slugify`?"),
        ("fn.toUpperCase('a')", "did you mean `fn.upper`?"),
        ("fn.matches('a', 'a')", "did you mean `fn.is.matches`?"),
        ("fn.is.upperr('a')", "unknown function `fn.is.upperr`: did you mean `fn.upper`?"),
        ("fn.frobnicate('a')", "`flowcell functions` lists all functions"),
        ("fn['x'.repeat(1e6)]()", "unknown function `fn.xxx"),
        ("fn('a')", "not a callable function"),
        ("fn.upper = 7", "cannot set non-writable property"),
        ("fn.chain([1], ...Array(600).fill([1]))", "more than 1000 tokens"),
    ] {
        let failure = failure(&play(&format!("export function run() {{\n{call}\n}}"), json!({})));
        assert!(failure.code == "script_failed" && failure.message.contains(why), "{call}: {}", failure.message);
        assert!(failure.message.len() < 1_000, "{call}: {}", failure.message);
        assert_eq!(failure.details.unwrap()["line"], 2, "{call}: {}", failure.message);
    }
    let caught = returned("try { fn.slugify(null) } catch (error) { return [error.name, error instanceof TypeError] }");
    assert_eq!(caught, json!(["TypeError", true]));
}

#[test]
fn a_script_may_use_the_name_for_itself() {
    for (source, expected) in [
        ("const fn = x => x + 1; export const run = () => fn(1)", json!(2)),
        ("function fn() { return 'own' } export const run = () => fn()", json!("own")),
        ("globalThis.fn = 7; export const run = () => fn", json!(7)),
        ("const { upper } = fn; export const run = () => upper('a')", json!("A")),
        (
            "export const run = async () => [await fn.upper('a'), typeof fn.then, typeof fn.is.toJSON]",
            json!(["A", "undefined", "undefined"]),
        ),
        ("Object.prototype.upper = () => 'evil'; export const run = () => fn.upper('a')", json!("A")),
    ] {
        let played = play(source, json!({}));
        assert!(matches!(played.outcome, Outcome::Output(_)), "{source}: {played:?}");
        assert_eq!(output(&played)["result"], expected, "{source}");
    }
}
