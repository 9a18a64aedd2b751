//! The parts that authors write: `setup` and `run`, and the objects that these get.

use flowcell_sdk::{Given, testing::Script};
use serde_json::{Value, json};

use super::{failure, host, logged, output, play, play_on};

/// An example script as an author would write it.
const LOGO: &str = r#"function setup(flow) {
  flow.title("Logo overlay");
  flow.inImg("logo", "Logo");
  flow.inImg("photo", "Photo");
  flow.outImgs("result", "Output");
}

export async function run(services) {
  const logo = services.inputs.logo;            // { kind: "file", fileId }
  const photo = services.inputs.photo;
  const prompt = "Blend the logo into the photo";

  const result = await services.img([logo, photo], prompt);
  services.outputs("result", result);
}
"#;

fn file(id: &str) -> Value {
    json!({ "kind": "file", "fileId": id })
}

fn outline(source: &str) -> Value {
    let given = Given { input: json!({ "source": source }), ..Given::default() };
    output(&Script::new().play(crate::run_node, "script.inspect", given))
}

#[test]
fn a_service_call_returns_the_answer_of_the_host() {
    let made = || host().service("img", |_| Ok(file("made")));
    let input = json!({ "source": LOGO, "inputs": { "logo": file("a"), "photo": file("b") } });
    let played = play_on(made, input);
    assert_eq!(output(&played), json!({ "result": null, "outputs": { "result": file("made") } }));
    let expected = json!({
        "kind": "flow-service-call", "callId": "1", "service": "img",
        "args": [[file("a"), file("b")], "Blend the logo into the photo"],
    });
    assert_eq!(played.of("services.start-call"), [&expected]);
}

#[test]
fn declarations_are_returned_without_running_the_script() {
    let expected = json!({
        "title": "Logo overlay",
        "inputs": [
            { "id": "logo", "kind": "img", "label": "Logo", "optional": false },
            { "id": "photo", "kind": "img", "label": "Photo", "optional": false },
        ],
        "outputs": [{ "id": "result", "kind": "imgs", "label": "Output", "optional": false }],
    });
    assert_eq!(outline(LOGO), expected);
    let all = r#"
        const init = flow => {
            flow.describe("first"); flow.description("what it does");
            flow.inText("a", "A", { optional: true }); flow.inFile("b", { optional: 1 }); flow.inJson("c");
            flow.outImg("d"); flow.outText("e", "E"); flow.outJson("f", undefined, { optional: true });
        };
        export function run() { throw new Error("it is not called") }
    "#;
    let port = |id: &str, kind: &str, optional: bool| json!({ "id": id, "kind": kind, "optional": optional });
    let mut expected = json!({
        "description": "what it does",
        "inputs": [port("a", "text", true), port("b", "file", true), port("c", "json", false)],
        "outputs": [port("d", "img", false), port("e", "text", false), port("f", "json", true)],
    });
    expected["inputs"][0]["label"] = "A".into();
    expected["outputs"][1]["label"] = "E".into();
    assert_eq!(outline(all), expected);
}

#[test]
fn every_form_of_function_definition_is_found() {
    for source in [
        "function run(services) { return services.inputs.a }",
        "export function run(services) { return services.inputs.a }",
        "export const run = services => services.inputs.a",
        "const run = async services => services.inputs.a",
        "async function main(services) { return services.inputs.a }\nexport { main as run }",
        "let a; export async function run(services) { return services.inputs.a } // the end",
        "const a = await Promise.resolve(1); export function run(services) { return services.input('a') }",
    ] {
        assert_eq!(output(&play(source, json!({ "a": 7 })))["result"], 7, "{source}");
    }
}

#[test]
fn a_missing_input_fails_before_the_script_runs() {
    let source = "function setup(flow) { flow.inText('a'); flow.inText('b', { optional: true }); flow.inJson('c') }\n\
                  export function run() { console.log('it runs') }";
    for (inputs, missing) in [(json!({}), json!(["a", "c"])), (json!({ "a": "x", "c": null }), json!(["c"]))] {
        let played = play(source, inputs);
        let failure = failure(&played);
        assert_eq!((&*failure.code, failure.details), ("missing_input", Some(json!({ "missing": missing }))));
        assert!(logged(&played).is_empty());
    }
    assert_eq!(output(&play(source, json!({ "a": "", "c": 0 })))["outputs"], json!({}));
}

#[test]
fn the_second_argument_of_run_has_the_facts() {
    let facts = json!({ "run": { "id": "r", "labels": { "__proto__": "x" } }, "tenant": "local" });
    let source = "export const run = (services, facts) => [facts, typeof globalThis.facts]";
    let output_with =
        |facts: &Value| output(&play_on(host, json!({ "source": source, "facts": facts })))["result"].clone();
    assert_eq!(output_with(&facts), json!([facts, "undefined"]));
    assert_eq!(output_with(&Value::Null), json!([null, "undefined"]));
}

#[test]
fn outputs_store_the_value_at_the_time_of_the_call() {
    let source = "const setup = flow => { flow.outText('x'); flow.outText('never') };\n\
                  export function run(services) {\n\
                    const list = [1]; services.outputs('x', list); list.push(2);\n\
                    services.output('y', list); services.outputs('z', 1); services.outputs('z', 2);\n\
                  }";
    let played = play(source, json!({}));
    assert_eq!(output(&played)["outputs"], json!({ "x": [1], "y": [1, 2], "z": 2 }));
    assert_eq!(logged(&played), ["warn the script did not set its output `never`"]);
}

#[test]
fn the_console_writes_to_the_log() {
    let source = "console.log('a', 1, { b: [true, null] }, undefined, () => 1);\n\
                  export function run() { console.error('bad'); console.warn(new Error('e')); console.debug(''); console.info(1n) }";
    let played = play(source, json!({}));
    let logged = logged(&played);
    assert_eq!(logged.len(), 5, "{logged:?}");
    assert!(logged[0].starts_with("info a 1 {\"b\":[true,null]} undefined "), "{}", logged[0]);
    assert_eq!(logged[1], "error bad");
    assert!(logged[2].starts_with("warn ") && logged[2].contains("Error: e"), "{}", logged[2]);
    assert_eq!(&logged[3..], ["debug ", "info 1n"]);
}

#[test]
fn invalid_declarations_fail_at_their_line() {
    for (call, why) in [
        ("flow.inText()", "must be a text, not undefined"),
        ("flow.inText('')", "an id must have 1 to 64"),
        ("flow.inText('a b')", "an id must have 1 to 64"),
        ("flow.inText('a'); flow.inImg('a')", "`a` is already declared"),
        ("flow.inText('a', 7)", "the label of `a`: must be a text, not number"),
        ("flow.title({})", "flow.title: must be a text, not object"),
        ("flow.title('x'.repeat(5000))", "longer than 4096 bytes"),
        ("for (let i = 0; i < 300; i++) flow.outText('a' + i)", "at most 256 inputs and 256 outputs"),
        ("flow.inVideo('a')", "not a callable function"),
    ] {
        let failure = failure(&play(&format!("\nfunction setup(flow) {{ {call} }}\nfunction run() {{}}"), json!({})));
        assert_eq!(failure.code, "script_failed");
        assert!(failure.message.contains(why), "{call}: {}", failure.message);
        assert_eq!(failure.details.unwrap()["line"], 2, "{call}");
    }
}
