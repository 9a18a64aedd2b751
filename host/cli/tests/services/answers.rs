//! Tests the responses that a component gets from models, tools and flows, and without a service.

use serde_json::{Value, json};

use crate::{
    kit::stderr,
    services::{
        fake::{Fake, Reply},
        project::Project,
    },
};

const PROVIDERS: &str = "default: scripted
profiles: { scripted: { dialect: simulated, model: one, script: [{ match: weather, text: It rains. }] } }
";

#[test]
fn the_operator_decides_what_a_service_name_stands_for() {
    let calls = json!([
        { "service": "agent", "args": ["the weather?"] },
        { "service": "agent", "args": [{ "prompt": "weather", "system": "Be short." }, { "maxTokens": 9 }] },
        { "service": "pick", "args": [{ "object": { "a": 1, "b": 2 }, "keys": ["a"] }] },
        { "service": "report", "args": [{ "who": "Ada" }] },
    ]);
    let settings = json!({ "pick": { "tool": "data.pick" }, "report": { "tool": "flow:report" } });
    let project = Project::new(&calls, &["*"], &settings);
    project.write("models.yaml", PROVIDERS);
    let report = json!({ "flow": { "name": "report", "outputs": { "text": "{{ say.text }}" } }, "nodes": [
        { "id": "say", "type": "data.template", "input": { "template": "Of {{ flow.input.who }}" } }] });
    project.write("report.json", report.to_string());
    let outputs = project.outputs(&["--providers", "models.yaml"]);
    let results: Vec<&Value> = outputs["answers"].as_array().unwrap().iter().map(|answer| &answer["result"]).collect();
    for agent in &results[..2] {
        assert_eq!((&agent["kind"], &agent["value"]), (&json!("text"), &json!("It rains.")));
        assert_eq!((&agent["meta"]["model"], &agent["meta"]["stop"]), (&json!("one"), &json!("end")));
        assert!(agent["meta"]["usage"]["output"].as_u64().unwrap() > 0);
    }
    assert_eq!(results[2], &json!({ "object": { "a": 1 } }));
    assert_eq!(results[3], &json!({ "text": "Of Ada" }));
}

#[test]
fn a_failed_service_call_is_an_answer_and_the_node_continues() {
    let fake = Fake::start(|_, _| Reply::Refused(400, "no such size"));
    let mut settings = Project::images(&fake);
    settings["pick"] = json!({ "tool": "data.pick" });
    let cases = [
        (json!(["img", [null, "x", { "size": "1x" }]]), "model_invalid_request", "no such size"),
        (json!(["img", [7, "x"]]), "invalid_input", "a file"),
        (json!(["img", [null, ""]]), "invalid_input", "the prompt"),
        (json!(["img", [null, "x", { "model": "other" }]]), "invalid_input", "the model `other`"),
        (json!(["img", [null, "x", { "prompt": "y" }]]), "invalid_input", "unknown option `prompt`"),
        (json!(["img", [null, "x", { "mask": { "kind": "file", "fileId": "a" } }]]), "invalid_input", "`mask`"),
        (json!(["agent", []]), "invalid_input", "a prompt"),
        (json!(["agent", [{ "prompt": "x", "provider": "openai" }]]), "invalid_input", "`provider`"),
        (json!(["pick", ["x"]]), "invalid_input", "one argument"),
        (json!(["imgs", []]), "service_not_found", "did you mean `img`?"),
        (json!(["secret", []]), "denied", "grants: { services: [\"secret\"] }"),
    ];
    let calls = cases.iter().map(|(call, ..)| json!({ "service": call[0], "args": call[1] }));
    let project = Project::new(&calls.collect(), &["img*", "agent", "pick"], &settings);
    let outputs = project.outputs(&[]);
    let answers = outputs["answers"].as_array().unwrap();
    for ((call, code, message), answer) in cases.iter().zip(answers) {
        assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!(code)), "{call}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(message), "{call}: {answer}");
    }
    let events = project.events();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("service:call"), of("service:result"), of("service:error")), (cases.len(), 0, cases.len()));
    let denied = events.iter().find(|event| event["error"]["code"] == "denied").unwrap();
    let call = events.iter().find(|event| event["type"] == "service:call" && event["call"] == denied["call"]).unwrap();
    assert_eq!(call["about"], json!({ "service": "secret", "args": "[]" }));
    assert_eq!(fake.seen().len(), 1, "only what was right was sent");
}

#[test]
fn an_invalid_file_of_services_is_reported_with_its_place() {
    let project = Project::new(&json!([]), &["img"], &json!({ "img": { "images": { "baseUrl": "nowhere" } } }));
    let output = project.run(&[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("services.yaml") && stderr(&output).contains("services.img"),
        "{}",
        stderr(&output)
    );
}
