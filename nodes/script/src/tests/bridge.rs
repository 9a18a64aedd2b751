//! The values that scripts and services exchange.

use flowcell_sdk::Failure;
use serde_json::{Value, json};

use super::{failure, host, output, play, play_on, returned};

#[test]
fn values_pass_unchanged() {
    let values = json!([
        null, true, false, 0, -0.0, 1, -7, 2147483648u32, 1.5, 1e300, 9007199254740991u64, "", "text", "ü🙂\u{0}\n", [], [[null]], {},
        { "a": { "b": [1, { "c": "d" }] } }, { "kind": "file", "fileId": "f" }, { "__proto__": { "x": 1 }, "constructor": 1 },
        { "": 1, "then": 2, "length": 3 },
    ]);
    let source = "export async function run(services) {\n\
                    services.outputs('given', services.inputs.values);\n\
                    services.outputs('called', await services.echo(services.inputs.values));\n\
                    return services.input('values');\n\
                  }";
    let output = output(&play(source, json!({ "values": values })));
    for given in [&output["result"], &output["outputs"]["given"], &output["outputs"]["called"]] {
        assert_eq!(given.to_string(), values.to_string());
    }
}

#[test]
fn whole_numbers_that_a_script_would_round_are_refused() {
    for number in ["9007199254740993", "-9007199254740993", "18446744073709551615"] {
        let value: Value = serde_json::from_str(number).unwrap();
        let failure =
            failure(&play("export const run = services => services.input('value')", json!({ "value": value })));
        assert!(failure.message.contains("more digits than a script can keep exactly"), "{number}: {failure}");
    }
}

#[test]
fn values_convert_to_their_json_form() {
    for (value, json) in [
        ("undefined", json!(null)),
        ("{ a: undefined, b: 1 }", json!({ "b": 1 })),
        ("[undefined, 1, , 2]", json!([null, 1, null, 2])),
        ("new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("{ toJSON: () => [7] }", json!([7])),
        ("Object.create({ inherited: 1 }, { hidden: { value: 2 } })", json!({})),
        ("new (class { a = 1; #b = 2; get c() { return 3 } })()", json!({ "a": 1 })),
        ("({ get a() { return 1 } })", json!({ "a": 1 })),
        ("{ [Symbol('s')]: 1, b: 2 }", json!({ "b": 2 })),
        ("Object.assign(Object.create(null), { 10: 1, 9: 2 })", json!({ "9": 2, "10": 1 })),
    ] {
        assert_eq!(returned(&format!("return await services.echo({value})")), json, "{value}");
    }
}

#[test]
fn values_without_a_json_form_are_refused_with_their_path() {
    for (value, why) in [
        ("1n", "argument 1 of services.echo is a BigInt"),
        ("() => 1", "is a function"),
        ("Symbol('s')", "is a symbol"),
        ("NaN", "is NaN"),
        ("{ a: [0, { b: 1 / 0 }] }", "at `a[1].b` is inf"),
        ("'\\ud800'", "is a text with half a surrogate pair"),
        ("(() => { const a = { b: {} }; a.b.c = [a]; return a })()", "at `b.c[0]` is an object that contains itself"),
        ("services.echo(1)", "is a promise; write `await` before it"),
        ("new Map([[1, 2]])", "is not a plain object"),
        ("services", "is not a plain object"),
        ("{ get a() { throw new RangeError('got') } }", "RangeError: got"),
        ("{ toJSON() { throw 'form' } }", "the script threw \"form\""),
        (
            "(() => { let a = []; for (let i = 0; i < 200; i++) a = [a]; return a })()",
            "nested more than 127 lists and objects deep",
        ),
        ("'x'.repeat(5 << 20)", "larger than 4 MiB"),
        ("Object.assign([], { length: 4294967295 })", "larger than 4 MiB"),
    ] {
        for call in [format!("await services.echo({value})"), format!("services.outputs('o', {value})")] {
            let failure = failure(&play(&format!("export async function run(services) {{\n{call}\n}}"), json!({})));
            let why = if call.contains("outputs") {
                why.replace("argument 1 of services.echo", "the output `o`")
            } else {
                why.into()
            };
            assert!(failure.message.contains(&why), "{call}: {}", failure.message);
            // A thrown value that is not an `Error` has no place.
            let line = if call.contains("throw 'form'") { json!(null) } else { json!(2) };
            assert_eq!(failure.details.unwrap()["line"], line, "{call}: {}", failure.message);
        }
    }
    let failure = failure(&play("export const run = () => ({ a: [() => 1] })", json!({})));
    assert!(failure.message.contains("the result of `run` at `a[0]` is a function"), "{}", failure.message);
}

#[test]
fn the_error_of_a_failed_call_can_be_caught() {
    let caught = returned(
        "try { await services.broken(1) } catch (e) { return [e.message, e.code, e.service, e instanceof Error] }",
    );
    assert_eq!(caught, json!(["no images are left", "quota_exceeded", "broken", true]));
}

#[test]
fn an_uncaught_error_of_a_call_fails_the_script_at_the_call() {
    for source in [
        "export async function run(services) {\n  const a = 1;\n  await services.broken(a);\n}",
        "async function deep(services) {\n  const a = 1;\n  return services.broken(a);\n}\nexport const run = s => deep(s)",
        "export async function run(services) {\n  const a = 1;\n  services.broken(a); // nobody waits for it\n  return 7;\n}",
        "export function run(services) {\n  const all = [services.echo(1),\n    services.broken(2)];\n  return Promise.all(all);\n}",
    ] {
        let failure = failure(&play(source, json!({})));
        assert_eq!(failure.code, "script_failed");
        assert!(failure.message.starts_with("Error: no images are left (source:3:"), "{source}: {}", failure.message);
        let details = failure.details.unwrap();
        assert_eq!((&details["service"], &details["code"]), (&json!("broken"), &json!("quota_exceeded")), "{source}");
    }
}

#[test]
fn every_other_name_is_a_service() {
    let failure = failure(&play("export const run = async services => { await services.nobody() }", json!({})));
    assert!(failure.message.contains("unknown service `nobody`"), "{}", failure.message);
    assert_eq!(
        returned("return [typeof services.then, typeof services.toJSON, typeof services.inputs]"),
        json!(["undefined", "undefined", "object"])
    );
    assert_eq!(returned("return await services.args(1, undefined, 'c')"), json!([1, null, "c"]));
    assert_eq!(returned("const { echo } = services; return await echo(5)"), 5);
    assert_eq!(returned("return await services['echo'].call(null, 5)"), 5);
}

#[test]
fn calls_run_concurrently_and_end_in_any_order() {
    let source = "export async function run(services) {\n\
                    const order = [];\n\
                    const one = n => services.echo(n).then(n => order.push(n));\n\
                    await Promise.all([1, 2, 3].map(one));\n\
                    return order;\n\
                  }";
    let played = play_on(|| host().backwards(), json!({ "source": source }));
    assert_eq!(output(&played)["result"], json!([3, 2, 1]));
    let kinds: Vec<_> = played.calls.iter().map(|call| call.name.as_str()).filter(|name| *name != "log.log").collect();
    assert_eq!(&kinds[..4], ["services.start-call", "services.start-call", "services.start-call", "queue.next-event"]);
}

#[test]
fn concurrent_calls_are_limited() {
    let body = "const n = 200; const all = await Promise.all([...Array(n).keys()].map(i => services.echo(i))); return all.reduce((a, b) => a + b)";
    let played = play(&format!("export async function run(services) {{ {body} }}"), json!({}));
    assert_eq!(output(&played)["result"], 199 * 100);
    let (mut under_way, mut most) = (0, 0);
    for call in &played.calls {
        match call.name.as_str() {
            "services.start-call" => under_way += 1,
            "queue.next-event" => under_way -= 1,
            _ => continue,
        }
        most = most.max(under_way);
    }
    assert_eq!(most, 64);
}

#[test]
fn unawaited_calls_end_before_the_script() {
    let source =
        "export function run(services) { services.echo(1).then(n => services.outputs('late', n)); return 'early' }";
    assert_eq!(output(&play(source, json!({}))), json!({ "result": "early", "outputs": { "late": 1 } }));
}

#[test]
fn a_host_that_refuses_to_start_a_call_rejects_its_promise() {
    let source = "export const run = async services => { try { await services.echo(1) } catch (e) { return e.code } }";
    let played = play_on(|| host().deny("services.start-call"), json!({ "source": source }));
    assert_eq!(output(&played)["result"], "denied");
}

#[test]
fn a_script_can_come_from_a_file() {
    let input = |text: &str| json!({ "file": { "path": "./lib/x.js", "text": text } });
    assert_eq!(output(&play_on(host, input("export const run = () => 1")))["result"], 1);
    let failure: Failure = failure(&play_on(host, input("export const run = () => {\n  nothing() }")));
    assert!(failure.message.ends_with("(./lib/x.js:2:3)"), "{}", failure.message);
    let none: Value = json!({ "source": "a", "file": { "path": "b", "text": "c" } });
    assert_eq!(super::failure(&play_on(host, none)).code, "invalid_input");
}
