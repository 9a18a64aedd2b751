//! The failures of scripts: code, message and place.

use serde_json::json;

use super::{failure, play};

#[test]
fn syntax_errors_are_reported_with_their_place() {
    for (source, place) in [
        ("let let", (1, 5)),
        ("export function run( {\n", (1, 23)),
        ("function run() {\n  return 1 +;\n}", (2, 13)),
        ("const a = 'open\n", (1, 16)),
        ("/* open", (1, 8)),
        // The engine does not say which of the two declarations is wrong.
        ("const a = 1;\nconst a = 2;\nfunction run() {}", (1, 1)),
        ("function run() { `open", (1, 23)),
        ("return 1", (1, 1)),
        ("// nothing\n}", (2, 1)),
    ] {
        let failure = failure(&play(source, json!({})));
        assert_eq!(failure.code, "syntax_error", "{source}");
        let details = failure.details.unwrap();
        let found = (details["line"].as_u64().unwrap(), details["column"].as_u64().unwrap());
        assert_eq!(found, place, "{source}: {}", failure.message);
        assert!(failure.message.ends_with(&format!("(source:{}:{})", place.0, place.1)), "{}", failure.message);
        assert!(!failure.message.contains("found$by$flowcell"), "{}", failure.message);
    }
}

#[test]
fn thrown_values_are_reported_with_their_place() {
    for (source, message) in [
        (
            "export function run() {\n  null.x;\n}",
            "TypeError: cannot convert 'null' or 'undefined' to object (source:2:",
        ),
        ("export function run() {\n  missing();\n}", "ReferenceError: missing is not defined (source:2:3)"),
        (
            "export function run() {\n  require('fs');\n}",
            "ReferenceError: require is not defined: a script cannot import modules",
        ),
        (
            "export function run() {\n  setTimeout(run, 1);\n}",
            "ReferenceError: setTimeout is not defined: a script has no timers",
        ),
        (
            "export function run() {\n  fetch('https://a.example');\n}",
            "ReferenceError: fetch is not defined: a script has no network",
        ),
        (
            "const a = { b: 1 };\nexport function run() {\n  return a.b + // b\n    b;\n}",
            "ReferenceError: b is not defined (source:4:5)",
        ),
        (
            "export function run() {\n  if (typeof b === 'undefined') 1;\n  const f = b => () => b;\n  return b;\n}",
            "ReferenceError: b is not defined (source:4:10)",
        ),
        (
            "export function run() {\n  const n = later();\n  return total + n;\n  const total = 1;\n}\nconst later = () => 1;",
            "ReferenceError: `total` is used before the line that declares it (source:3:10)",
        ),
        ("const a = () => b;\na();\nconst b = 1;\nfunction run() {}", "ReferenceError: b is not defined (source:1:17)"),
        ("export async function run() {\n  await 1;\n  throw new RangeError('far');\n}", "RangeError: far (source:3:"),
        (
            "class Own extends Error { name = 'Own' }\nexport function run() { throw new Own('mine') }",
            "Own: mine (source:2:",
        ),
        ("export function run() { throw { a: 1 } }", "the script threw {\"a\":1} (source:1:"),
        ("export function run() { throw undefined }", "the script threw null"),
        ("throw new Error('at once')\nfunction run() {}", "Error: at once (source:1:"),
        (
            "import x from './other.js';\nfunction run() {}",
            "TypeError: a script cannot import modules: use the services",
        ),
        (
            "const run = async () => { await import('x') }",
            "TypeError: a script cannot import modules: use the services",
        ),
        ("const run = () => Promise.any([Promise.reject(1)])", "AggregateError"),
    ] {
        let failure = failure(&play(source, json!({})));
        assert_eq!(failure.code, "script_failed", "{source}");
        assert!(failure.message.starts_with(message), "{source}: {}", failure.message);
    }
}

#[test]
fn the_stack_of_calls_is_reported() {
    let source = "const deep = n => n ? deep(n - 1) : boom();\nconst boom = () => { throw new Error('x') };\nfunction run() { deep(3) }";
    let stack = failure(&play(source, json!({}))).details.unwrap()["stack"].as_array().unwrap().clone();
    assert!(stack[0].as_str().unwrap().starts_with("boom (source:2:"), "{stack:?}");
    assert!(stack.last().unwrap().as_str().unwrap().starts_with("run (source:3:"), "{stack:?}");
    // The stack has the place of the message.
    let failure = failure(&play("function run() {\n  const a = 1;\n  missing(a);\n}", json!({})));
    assert!(failure.message.ends_with("(source:3:3)"), "{}", failure.message);
    assert_eq!(failure.details.unwrap()["stack"][0], "run (source:3:3)");
}

#[test]
fn a_promise_that_is_never_settled_is_reported() {
    for source in [
        "export const run = () => new Promise(() => {})",
        "export async function run(services) { await services.echo(1); await new Promise(() => {}) }",
        "await new Promise(() => {}); function run() {}",
        "const setup = () => new Promise(() => {}); function run() {}",
        "export const run = () => ({ then() {} })",
    ] {
        assert_eq!(failure(&play(source, json!({}))).code, "never_settled", "{source}");
    }
}

#[test]
fn an_unhandled_rejection_fails_the_script() {
    let unheard = "function run() { Promise.reject(new Error('lost')); return 1 }";
    assert!(failure(&play(unheard, json!({}))).message.starts_with("Error: lost"));
    let heard =
        "async function run() { const p = Promise.reject(new Error('x')); await 1; return p.catch(e => e.message) }";
    assert_eq!(super::output(&play(heard, json!({})))["result"], "x");
}

#[test]
fn a_script_without_run_fails() {
    for source in ["function setup() {}", "const run = 1", "export default function run() {}\n//"] {
        let played = play(source, json!({}));
        match source.contains("default") {
            // A function that is exported as default keeps its name.
            true => assert_eq!(super::output(&played)["result"], json!(null)),
            false => assert_eq!(failure(&played).code, "no_run", "{source}"),
        }
    }
}
