//! A run before each of its events: the answers that the routes gave then.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    approvals::{flow, gate},
    client::Served,
};

/// The routes of a run whose answers have a moment.
const PATHS: [&str; 9] = [
    "",
    "/tree",
    "/timeline",
    "/gates",
    "/graph",
    "/tasks?deep=true",
    "/tasks/each",
    "/tasks/each%5B1%5D.step",
    "/tasks/ask",
];

fn named(name: &str, flow: Value) -> Value {
    let mut flow = flow;
    flow["flow"]["name"] = name.into();
    flow
}

fn at(path: &str, before: u64) -> String {
    format!("/v1/runs/r{path}{}before={before}", if path.contains('?') { "&" } else { "?" })
}

fn answers(served: &Served) -> Vec<Value> {
    PATHS.map(|path| served.get(&format!("/v1/runs/r{path}")).json()).into()
}

fn other_gate() -> Value {
    let mut gate = gate();
    gate["id"] = "hold".into();
    gate
}

/// A run with a loop, a question, and a failure after it.
fn recorded(served: &Served) -> (Vec<Value>, u64) {
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [1, 2] },
        "body": { "nodes": [{ "id": "step", "type": "control.noop", "input": { "value": "{{ each.item }}" } }], "edges": [] } });
    let bad = json!({ "id": "bad", "type": "control.fail", "input": { "code": "no_stock", "message": "none left" } });
    let flow = flow(&[each, gate(), bad], &[("each", "ask"), ("ask", "bad")]);
    let parked = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" })).json();
    assert_eq!(parked["status"], "parked", "{parked}");
    let then = answers(served);
    let next = then[0]["events"].as_u64().unwrap();
    let replied = served.post("/v1/runs/r/gates/ask/reply", &json!({ "answer": "yes" }));
    assert_eq!(replied.status, 200, "{replied:?}");
    assert_eq!(served.ended("r")["status"], "failed");
    (then, next)
}

#[test]
fn a_run_before_an_event_is_the_run_that_clients_saw() {
    let served = Served::local();
    let (then, next) = recorded(&served);
    for (path, expected) in PATHS.iter().zip(&then) {
        let shown = served.get(&at(path, next)).json();
        assert_eq!(&shown, expected, "{path}");
        let has_changed = &served.get(&format!("/v1/runs/r{path}")).json() != expected;
        // The loop had ended before the question.
        assert_eq!(has_changed, !path.starts_with("/tasks/each"), "{path}");
    }
    // Later than the last event is now.
    let now = answers(&served);
    let all = now[0]["events"].as_u64().unwrap();
    for (path, expected) in PATHS.iter().zip(&now) {
        for before in [all, all + 1, u64::MAX] {
            assert_eq!(&served.get(&at(path, before)).json(), expected, "{path} {before}");
        }
    }
}

#[test]
fn each_event_changes_what_it_is_about() {
    let served = Served::local();
    recorded(&served);
    let events = served.get("/v1/runs/r/events?limit=1000").json()["events"].as_array().unwrap().clone();
    let is = |event: &Value, kind: &str, node: &str| event["type"] == kind && event["nodeId"] == node;
    let (mut has_begun, mut is_asking, mut has_ended, mut parks) = (false, false, false, 0);
    for (before, event) in (1_u64..).zip(&events) {
        let view = served.get(&at("", before)).json();
        let expected = match event["type"].as_str().unwrap() {
            "harness:parked" => "parked",
            "harness:complete" => "failed",
            _ if has_ended => "failed",
            _ => "running",
        };
        has_ended = expected == "failed";
        assert_eq!((&view["status"], &view["events"]), (&json!(expected), &json!(before)), "{view}");
        let has_error = view["error"]["code"] == "no_stock" && view["errorCode"] == "no_stock";
        assert_eq!(has_error, expected == "failed", "{view}");
        assert_eq!(view["waitsFor"].is_object(), expected == "parked", "{view}");
        parks += u64::from(expected == "parked");
        is_asking = (is_asking || is(event, "task:paused", "ask")) && !is(event, "task:woken", "ask");
        let gates = served.get(&at("/gates", before)).json();
        assert_eq!(gates["waiting"].as_array().unwrap().len(), usize::from(is_asking), "{before}: {gates}");
        has_begun |= is(event, "task:start", "each");
        assert_eq!(served.get(&at("/tasks/each", before)).status, if has_begun { 200 } else { 404 }, "{before}");
        let timeline = served.get(&at("/timeline", before)).json();
        assert_eq!((&timeline["next"], &timeline["until"]), (&json!(before), &event["ts"]), "{timeline}");
        // No task has an end, and no bar reaches, beyond the last event that counts.
        let until = event["ts"].as_u64().unwrap() - timeline["began"].as_u64().unwrap();
        let ends = timeline["end"].as_array().unwrap();
        assert!(ends.iter().filter_map(Value::as_u64).all(|end| end <= until), "{timeline}");
        let tree = served.get(&at("/tree", before)).json();
        let tasks = served.get(&at("/tasks", before)).json();
        let statuses = |tasks: &Value| -> Vec<Value> {
            tasks.as_array().unwrap().iter().map(|task| task["status"].clone()).collect()
        };
        assert_eq!(statuses(&tree["tasks"]), statuses(&tasks["tasks"]), "{before}");
    }
    assert_eq!(parks, 1);
    let start = served.get(&at("", 0)).json();
    assert_eq!((&start["status"], &start["events"]), (&json!("running"), &json!(0)), "{start}");
    let timeline = served.get(&at("/timeline", 0)).json();
    assert_eq!((&timeline["next"], &timeline["task"]), (&json!(0), &json!([])), "{timeline}");
}

#[test]
fn a_called_run_is_shown_as_it_was_at_that_time() {
    let served = Served::local();
    let kid = named("kid", flow(&[gate()], &[]));
    let sub = json!({ "id": "sub", "type": "control.subflow", "input": { "name": "kid", "input": {} } });
    // The event of this question lies between the question of the called run and the answer to it.
    for flow in [kid, named("parent", flow(&[sub, other_gate()], &[]))] {
        let stored = served.post("/v1/flows", &json!({ "flow": flow }));
        assert_eq!(stored.status, 201, "{stored:?}");
    }
    let parked = served.post("/v1/runs?wait=true", &json!({ "flow": "parent", "runId": "r" })).json();
    assert_eq!(parked["status"], "parked", "{parked}");
    let get = |path: &str| served.get(path).json();
    let (gates, task) = (get("/v1/runs/r/gates"), get("/v1/runs/r/tasks/sub%2Fask"));
    let addresses = gates["waiting"].as_array().unwrap().iter().map(|gate| gate["address"].as_str().unwrap());
    assert_eq!(addresses.collect::<BTreeSet<_>>(), ["hold", "sub/ask"].into(), "{gates}");
    let answer = |gate: &str| {
        let replied = served.post(&format!("/v1/runs/r/gates/{gate}/reply"), &json!({ "answer": "yes" }));
        assert_eq!(replied.status, 200, "{replied:?}");
    };
    let events = || get("/v1/runs/r/events?limit=1000");
    answer("hold");
    // The other answer comes when the run is parked again.
    let is_parked_again = |events: &Value| {
        let events = events["events"].as_array().unwrap();
        let has_ended = events.iter().any(|event| event["type"] == "task:complete" && event["nodeId"] == "hold");
        has_ended && events.last().unwrap()["type"] == "harness:parked"
    };
    assert!((0..20_000).any(|_| is_parked_again(&events())), "the run does not park");
    answer("sub%2Fask");
    assert_eq!(served.ended("r")["status"], "succeeded");
    let events = events();
    let is_answer = |event: &Value| event["type"] == "task:woken" && event["nodeId"] == "hold";
    let next = events["events"].as_array().unwrap().iter().position(is_answer).unwrap() as u64;
    assert_eq!(get(&at("/gates", next)), gates);
    assert_eq!(get("/v1/runs/r/gates")["waiting"], json!([]));
    let earlier = get(&at("/tasks/sub%2Fask", next));
    assert_eq!(earlier, task);
    assert_eq!(earlier["attempts"].as_array().unwrap().len(), 1, "{earlier}");
    assert_eq!(get("/v1/runs/r/tasks/sub%2Fask")["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(get(&at("/gates", 0))["waiting"], json!([]));
    assert_eq!(served.get(&at("/tasks/sub%2Fask", 0)).fault(), (404, "task_not_found".to_owned()));
}

#[test]
fn answers_to_a_run_and_to_the_run_that_it_called_count_at_once() {
    let served = Served::local();
    let sub = json!({ "id": "sub", "type": "control.subflow", "input": { "name": "kid", "input": {} } });
    for flow in [named("kid", flow(&[gate()], &[])), named("parent", flow(&[sub, other_gate()], &[]))] {
        assert_eq!(served.post("/v1/flows", &json!({ "flow": flow })).status, 201);
    }
    // The called run gets its answer just when its caller is about to park again.
    for round in 0..20 {
        let run = format!("r{round}");
        let parked = served.post("/v1/runs?wait=true", &json!({ "flow": "parent", "runId": run })).json();
        assert_eq!(parked["status"], "parked", "{parked}");
        for gate in ["hold", "sub%2Fask"] {
            let replied = served.post(&format!("/v1/runs/{run}/gates/{gate}/reply"), &json!({ "answer": "yes" }));
            assert_eq!(replied.status, 200, "{round}: {replied:?}");
        }
        assert_eq!(served.ended(&run)["status"], "succeeded", "{round}");
    }
}

#[test]
fn a_moment_is_the_number_of_an_event() {
    let served = Served::local();
    recorded(&served);
    for path in PATHS {
        for wrong in ["-1", "x", "1.5", "1e3", "18446744073709551616", "%00"] {
            let path = format!("/v1/runs/r{path}{}before={wrong}", if path.contains('?') { "&" } else { "?" });
            assert_eq!(served.get(&path).fault(), (400, "bad_request".to_owned()), "{path}");
        }
    }
    for path in ["", "/tree", "/timeline", "/gates"] {
        let unknown = served.get(&format!("/v1/runs/r{path}?befor=1"));
        assert_eq!(unknown.fault(), (400, "bad_request".to_owned()), "{path}");
        let none = served.get(&format!("/v1/runs/none{path}?before=1"));
        assert_eq!(none.fault(), (404, "run_not_found".to_owned()), "{path}");
    }
}
