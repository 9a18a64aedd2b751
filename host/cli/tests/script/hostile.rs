//! Several hostile scripts and a benign one in one run: a hostile script may fail, but it harms no other task.

use std::fs;

use serde_json::{Value, json};

use crate::kit::{output_of, stderr, stdout};

/// The case's name, the body of `run(services)`, its time limit in milliseconds, and the result.
const CASES: [(&str, &str, u32, &str); 16] = [
    ("a loop without end", "for (;;);", 300, "timeout"),
    ("a loop without end in an attempt to catch", "for (;;) { try { null.x } catch {} }", 300, "timeout"),
    (
        "promises that make promises",
        "const f = () => void Promise.resolve().then(f); f(); return new Promise(() => {})",
        300,
        "timeout",
    ),
    ("a pattern that looks back and forth", "return /(a+)+$/.test('a'.repeat(60) + 'b')", 300, "timeout"),
    ("100 MB of text", "return 'x'.repeat(100e6).length", 240_000, "out_of_memory"),
    ("text that doubles", "let s = 'ab'; for (;;) { s += s; s.at(-1) }", 240_000, "out_of_memory"),
    ("a list that grows", "const a = []; for (;;) a.push({ a })", 240_000, "out_of_memory"),
    (
        "a bomb of promises",
        "const all = []; for (;;) all.push(new Promise(() => {}).then(() => all))",
        240_000,
        "out_of_memory",
    ),
    ("bytes at once", "return new Uint8Array(1e9).length", 240_000, "out_of_memory"),
    ("a function that calls itself", "const f = () => 1 + f(); return f()", 240_000, "limit_exceeded"),
    ("recursion through the engine", "const f = () => [1].map(f); return f()", 240_000, "stack_overflow"),
    ("code that is made of nested brackets", "return eval('['.repeat(20000))", 240_000, "trap"),
    ("a result that is too large", "return ['x'.repeat(3 << 20), 'x'.repeat(3 << 20)]", 240_000, "script_failed"),
    (
        "many outputs",
        "for (let i = 0; i < 9; i++) services.outputs('o' + i, 'x'.repeat(1 << 20))",
        240_000,
        "output_too_large",
    ),
    ("a log without end", "for (;;) console.log('x'.repeat(1000))", 240_000, "limit_exceeded"),
    ("a service that is not granted", "return services.img('x')", 240_000, "script_failed"),
];

fn node(id: &str, body: &str, timeout_ms: u32) -> Value {
    json!({
        "id": id, "type": "script.run",
        "input": { "source": format!("export async function run(services) {{ {body} }}") },
        "policy": { "timeoutMs": timeout_ms, "continueOnError": true },
    })
}

#[test]
fn j8_hostile_scripts_harm_no_other_task() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes: Vec<_> =
        CASES.iter().enumerate().map(|(index, (_, body, ms, _))| node(&format!("h{index}"), body, *ms)).collect();
    nodes.push(node("canary", "return 40 + 2", 240_000));
    let flow = json!({ "flow": { "name": "hostile", "policy": { "maxConcurrency": 4 } }, "nodes": nodes });
    fs::write(folder.path().join("hostile.json"), flow.to_string()).unwrap();
    let output = output_of(folder.path(), &["run", "--quiet", "--store", "memory:", "hostile.json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let outputs: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for (index, (name, _, _, code)) in CASES.iter().enumerate() {
        let came = &outputs[format!("h{index}")];
        assert_eq!(came["error"]["code"], *code, "{name}: {came}");
    }
    assert_eq!(outputs["canary"], json!({ "result": 42, "outputs": {} }));
}

#[test]
fn j9_hostile_scripts_are_inspected_without_harm() {
    let folder = tempfile::tempdir().unwrap();
    for (text, why) in [
        ("const a = 'x'.repeat(100e6); function run() {}", "MiB of memory"),
        ("export function setup() { throw new Error('no') }\nexport function run() {}", "Error: no"),
        ("export const setup = () => services.img(1);\nexport function run() {}", "services is not defined"),
        ("await new Promise(() => {}); function run() {}", "can no longer settle"),
    ] {
        fs::write(folder.path().join("a.flow.js"), text).unwrap();
        let output = output_of(folder.path(), &["validate", "a.flow.js"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why) && stderr(&output).contains("bad_script"), "{why}: {}", stderr(&output));
    }
}

/// The text that opens a nested expression, the text that closes it, and the error code of a script that nests it
/// 100,000 times. An error `limit_exceeded` names the line of the expression, and `stack_overflow` only the start of
/// the script.
const NESTED: [(&str, &str, &str); 8] = [
    ("(", ")", "limit_exceeded"),
    ("[", "]", "limit_exceeded"),
    ("{ a: ", " }", "limit_exceeded"),
    ("`${", "}`", "limit_exceeded"),
    ("f(", ")", "limit_exceeded"),
    ("!", "", "limit_exceeded"),
    ("() => {", "}", "stack_overflow"),
    ("a => ", "", "stack_overflow"),
];

#[test]
fn j10_a_script_nested_too_deeply_gets_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for (open, close, code) in NESTED {
        let deep = format!("{}0{}", open.repeat(100_000), close.repeat(100_000));
        let text = format!("function run() {{\n  return {deep};\n}}");
        let (why, place) = match code {
            "limit_exceeded" => ("nested too deeply", "--> a.flow.js:2:"),
            _ => ("exceeds the sandbox's stack", "--> a.flow.js:1:1"),
        };
        write("a.flow.js", &text);
        for command in ["validate", "inspect", "run"] {
            let output = output_of(folder.path(), &[command, "a.flow.js"]);
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{command} {open}: {told}");
            for part in ["bad_script", why, place] {
                assert!(told.contains(part), "{command} {open}: {told}");
            }
        }
        // A computed script is checked when it runs.
        let node = json!({ "id": "a", "type": "script.run", "input": { "source": "{{ flow.input.text }}" } });
        let flow = json!({ "flow": { "name": "computes", "input": { "text": text } }, "nodes": [node] });
        write("computes.json", &flow.to_string());
        let output = output_of(folder.path(), &["run", "--quiet", "--json", "--store", "memory:", "computes.json"]);
        let error = serde_json::from_str::<Value>(&stdout(&output)).unwrap()["error"].clone();
        assert_eq!(error["code"], code, "{open}: {error}");
        if code == "limit_exceeded" {
            assert_eq!(error["details"]["line"], 2, "{open}: {error}");
            assert!(error["message"].as_str().unwrap().contains(why), "{open}: {error}");
        }
    }
}

#[test]
fn scripts_may_be_nested_as_deeply_as_people_write_them() {
    let folder = tempfile::tempdir().unwrap();
    for (open, close, _) in NESTED {
        let nested = format!("({}0{})", open.repeat(64), close.repeat(64));
        let text = format!("const deep = f => {nested};\nexport const run = () => 'it runs';\n");
        fs::write(folder.path().join("a.flow.js"), text).unwrap();
        let output = output_of(folder.path(), &["run", "--quiet", "--store", "memory:", "a.flow.js"]);
        assert!(output.status.success() && stdout(&output).contains("it runs"), "{open}: {}", stderr(&output));
    }
}
