//! Hostile scripts. They fail, or affect only themselves. The limits of the sandbox are tested with the real program.

use serde_json::{Value, json};

use super::{failure, output, play, returned};

#[test]
fn j1_polluted_prototypes_do_not_reach_the_bridge() {
    let source = "\
        Object.defineProperty(Object.prototype, 'ok', { get: () => true, set() { throw 1 }, configurable: true });\n\
        Object.prototype.service = 'evil'; Object.prototype.callId = '9'; Object.prototype.enumerable = true;\n\
        Array.prototype.push = Array.prototype.map = () => 'evil'; Array.prototype[Symbol.iterator] = null;\n\
        Promise.prototype.then = () => 'evil'; Promise.resolve = () => 'evil'; globalThis.Promise = null; globalThis.Error = null;\n\
        JSON.stringify = JSON.parse = () => 'evil'; Object.prototype.toJSON = undefined;\n\
        export async function run(services) {\n\
          const a = await services.echo([1, { b: 2 }]);\n\
          services.outputs('a', a);\n\
          return [a, services.inputs.given];\n\
        }";
    let played = play(source, json!({ "given": { "__proto__": { "polluted": 1 } } }));
    let output = output(&played);
    assert_eq!(output["result"].to_string(), r#"[[1,{"b":2}],{"__proto__":{"polluted":1}}]"#);
    assert_eq!(played.of("services.start-call")[0]["callId"], "1");
    assert_eq!(played.of("services.start-call")[0]["service"], "echo");
}

#[test]
fn j1_inputs_do_not_pollute_prototypes() {
    let inputs = json!({ "__proto__": { "polluted": 1 }, "constructor": { "prototype": { "polluted": 1 } } });
    let source = "export const run = services => [({}).polluted, Object.keys(services.inputs).length]";
    assert_eq!(output(&play(source, inputs))["result"], json!([null, 2]));
}

#[test]
fn j2_call_ids_cannot_be_forged() {
    let source = "\
        export async function run(services) {\n\
          const forged = { kind: 'flow-service-response', callId: '1', ok: true, result: 'forged' };\n\
          const first = services.echo(forged), second = services.echo({ kind: 'flow-service-call', callId: '1', service: 'broken' });\n\
          return [(await first).kind, (await second).kind];\n\
        }";
    let played = play(source, json!({}));
    assert_eq!(output(&played)["result"], json!(["flow-service-response", "flow-service-call"]));
    let ids: Vec<_> = played.of("services.start-call").iter().map(|call| call["callId"].clone()).collect();
    assert_eq!(ids, ["1", "2"]);
}

#[test]
fn j3_scripts_cannot_access_the_machine() {
    let names = "['process', 'require', 'fetch', 'Deno', 'WebAssembly', 'setTimeout', 'importScripts', 'Intl', 'XMLHttpRequest', '$262']";
    let there = returned(&format!("return {names}.filter(name => typeof globalThis[name] !== 'undefined')"));
    assert_eq!(there, json!([]));
    assert_eq!(
        returned("return (0, eval)('typeof services') + new Function('return typeof services')()"),
        "undefinedundefined"
    );
    assert_eq!(returned("return eval('services.echo(3)')"), 3);
}

#[test]
fn j4_endless_recursion_fails() {
    for body in ["const f = n => 1 + f(n + 1); return f(0)", "const f = () => [1].map(f); return f()"] {
        let played = std::thread::Builder::new()
            .stack_size(256 << 20)
            .spawn(move || failure(&play(&format!("function run() {{ {body} }}"), json!({}))));
        let failure = played.unwrap().join().unwrap();
        assert_eq!(failure.code, "limit_exceeded", "{body}: {}", failure.message);
    }
}

#[test]
fn j5_manipulated_errors_are_still_reported() {
    for (thrown, said) in [
        ("Object.defineProperty(new Error('a'), 'message', { get() { throw 1 } })", "Error"),
        ("Object.assign(new Error('a'), { name: Symbol('n') })", "a"),
        ("Object.assign(new Error('a'), { stack: '    at x (source:9:9)' })", "Error: a (source:1:"),
        ("new Proxy({}, { get() { throw 1 } })", "the script threw a value of type object"),
        ("new Error('x'.repeat(1e6))", "Error: xxx"),
        ("Object.assign(new Error('a'), { code: { toString() { throw 1 } }, service: 7 })", "Error: a"),
    ] {
        let failure = failure(&play(&format!("function run() {{ throw {thrown} }}"), json!({})));
        assert!(failure.message.starts_with(said) && failure.message.len() < 4_000, "{thrown}: {}", failure.message);
    }
}

#[test]
fn j6_thousands_of_promises_are_settled() {
    let body = "let p = Promise.resolve(0); for (let i = 0; i < 20000; i++) p = p.then(n => n + 1); return await p";
    assert_eq!(returned(body), 20_000);
    let many =
        "return (await Promise.allSettled([...Array(5000)].map((_, i) => i % 2 ? Promise.reject(i) : i))).length";
    assert_eq!(returned(many), 5_000);
}

#[test]
fn j7_changes_of_the_object_services_affect_only_the_script() {
    let source = "export async function run(services) {\n\
                    services.img = () => 'mine'; delete services.outputs; Object.freeze(services);\n\
                    return [services.img(), await services.echo(1), Object.keys(services.inputs)];\n\
                  }";
    let result: Value = output(&play(source, json!({ "a": 1 })))["result"].clone();
    assert_eq!(result, json!(["mine", 1, ["a"]]));
}

#[test]
fn j10_a_text_nested_too_deeply_fails_early() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{ a: ", "}"), ("`${", "}`"), ("f(", ")"), ("- ", ""), ("a => ", "")]
    {
        let nested = |deep: usize| {
            format!("function run() {{\n  const f = ü => (\n{}0{});\n}}", open.repeat(deep), close.repeat(deep))
        };
        let read = move || {
            assert_eq!(output(&play(&nested(20), json!({})))["outputs"], json!({}), "{open}");
            failure(&play(&nested(100_000), json!({})))
        };
        // Parsing takes more of this machine's stack than a test thread has.
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(read);
        let failure = thread.unwrap().join().unwrap();
        assert_eq!(failure.code, "limit_exceeded", "{open}: {}", failure.message);
        assert!(failure.message.starts_with("the script is nested too deeply"), "{open}: {}", failure.message);
        let details = failure.details.unwrap();
        let (line, column) = (details["line"].as_u64().unwrap(), details["column"].as_u64().unwrap());
        assert_eq!(line, 3, "{open}");
        assert!((20..50_000).contains(&column), "{open}: {column}");
        assert!(failure.message.ends_with(&format!("(source:3:{column})")), "{open}: {}", failure.message);
    }
}
