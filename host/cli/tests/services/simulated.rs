//! Tests simulated services: flows run without real ones.

use std::fs;

use serde_json::{Value, json};

use crate::{
    guests::build,
    kit::{flowcell, stderr},
    services::project::Project,
};

fn answers(project: &Project, more: &[&str]) -> Vec<Value> {
    let outputs = project.outputs(more);
    outputs["answers"].as_array().unwrap().iter().map(|answer| answer["result"].clone()).collect()
}

#[test]
fn simulated_services_answer_as_documented() {
    let calls = json!([
        { "service": "img", "args": [[], "Blend", { "size": "64x64" }] },
        { "service": "img", "args": [[], "Another"] },
        { "service": "agent", "args": ["Hello"] },
        { "service": "agent", "args": [{ "prompt": "Hi", "system": "Be short." }] },
    ]);
    let project = Project::new(&calls, &["*"], &json!({}));
    let answers = answers(&project, &["--simulate", "img,agent", "--out", "made"]);
    let ids: Vec<&str> = answers[..2].iter().map(|answer| answer["fileId"].as_str().unwrap()).collect();
    let meta = json!({ "simulated": true, "prompt": "Blend", "options": { "size": "64x64" } });
    assert_eq!(answers[0], json!({ "kind": "file", "fileId": ids[0], "meta": meta }));
    assert_eq!(answers[1]["meta"], json!({ "simulated": true, "prompt": "Another", "options": {} }));
    assert_ne!(ids[0], ids[1], "what is asked for differently can be told apart");
    let text = json!({ "kind": "text", "value": "simulated reply to: Hello",
        "meta": { "simulated": true, "inputSummary": "Hello" } });
    assert_eq!(answers[2], text);
    assert_eq!(answers[3]["value"], "simulated reply to: Hi");
    assert_eq!(answers[3]["meta"]["inputSummary"], r#"{"prompt":"Hi","system":"Be short."}"#);
    // A simulated image is a real file.
    let png = fs::read(project.path().join("made/first.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xae\x42\x60\x82"), "{png:?}");
}

#[test]
fn every_service_can_be_simulated_and_grants_hold() {
    let calls = json!([{ "service": "report", "args": [{ "n": 1 }] }, { "service": "other", "args": [] }]);
    let project = Project::new(&calls, &["report"], &json!({}));
    let outputs = project.outputs(&["--simulate", "services"]);
    assert_eq!(outputs["first"], json!({ "simulated": true, "service": "report", "args": [{ "n": 1 }] }));
    assert_eq!(outputs["answers"][1]["error"]["code"], "denied");
}

#[test]
fn an_unknown_service_cannot_be_simulated() {
    let project = Project::new(&json!([]), &["img"], &json!({ "report": { "tool": "flow:report" } }));
    assert!(project.run(&["--simulate", "report,img,http"]).status.success());
    let output = project.run(&["--simulate", "modle"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("cannot simulate the unknown service `modle`; did you mean `model`?"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_case_can_set_the_answers_of_services() {
    let calls = json!([{ "service": "img", "args": [[], "x"] }, { "service": "agent", "args": ["x"] }]);
    let project = Project::new(&calls, &["*"], &json!({}));
    let cases = json!({ "cases": [
        { "name": "given", "calls": [
            { "service": "img", "result": { "kind": "file", "fileId": "a" } },
            { "service": "agent", "error": { "code": "model_quota", "message": "no more" } }],
          "expect": { "outputs": {
            "first": { "kind": "file", "fileId": "a" },
            "answers": [
              { "kind": "flow-service-response", "callId": "0", "ok": true, "result": { "kind": "file", "fileId": "a" } },
              { "kind": "flow-service-response", "callId": "1", "ok": false,
                "error": { "code": "model_quota", "message": "no more" } }] } } },
    ] });
    project.write("ask.test.yaml", cases.to_string());
    let test = |more: &[&str]| {
        let mut command = flowcell(project.path());
        command.args(["test", "ask.json", "--packs"]).arg(build("courier", "")).args(more).output().unwrap()
    };
    assert!(test(&[]).status.success(), "{}", stderr(&test(&[])));
    // Calls without a reply in the case are simulated only if the command says so.
    let cases = json!({ "cases": [{ "name": "half", "calls": [{ "service": "img", "result": 1 }],
        "expect": { "outputs": { "first": 1, "answers": [
            { "kind": "flow-service-response", "callId": "0", "ok": true, "result": 1 },
            { "kind": "flow-service-response", "callId": "1", "ok": true, "result": { "kind": "text",
                "value": "simulated reply to: x", "meta": { "simulated": true, "inputSummary": "x" } } }] } } }] });
    project.write("ask.test.yaml", cases.to_string());
    assert_eq!(test(&[]).status.code(), Some(1));
    assert!(test(&["--simulate", "agent"]).status.success(), "{}", stderr(&test(&["--simulate", "agent"])));
}

#[test]
fn a_flow_is_tested_without_cases() {
    let calls = json!([{ "service": "img", "args": [["{{ flow.input.photo }}"], "x"] }]);
    let project = Project::new(&calls, &["*"], &json!({}));
    project.write("photo.png", b"\x89PNG\r\n\x1a\n");
    let test = |more: &[&str]| {
        let mut command = flowcell(project.path());
        command.args(["test", "ask.json", "--packs"]).arg(build("courier", "")).args(more).output().unwrap()
    };
    let output = test(&["--simulate", "img", "-i", "photo=@photo.png", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let tried: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&tried["status"], &tried["outputs"]["first"]["meta"]["prompt"]), (&json!("succeeded"), &json!("x")));
    let unanswered: Value = serde_json::from_slice(&test(&["--json"]).stdout).unwrap();
    assert_eq!(unanswered["outputs"]["answers"][0]["error"]["code"], "no_reply_given");
}
