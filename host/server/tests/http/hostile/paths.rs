//! Flows that name files of other tenants.

use std::fs;

use flowcell_server::Limits;
use serde_json::{Value, json};

use super::household::{Household, all_scopes};
use crate::client::Answer;

/// A text that only the tenant `b` has.
const CANARY: &str = "the-canary-of-b";

/// Returns a flow with one node and a given name.
fn of(name: &str, node: Value, packs: &[&str]) -> Value {
    let mut flow = json!({ "flow": { "name": name }, "nodes": [node] });
    if !packs.is_empty() {
        flow["flow"]["packs"] = json!(packs);
    }
    flow
}

/// Returns flows that each make the host read a file in another way.
fn readers(path: &str) -> Vec<Value> {
    let gate = json!({ "id": "a", "type": "control.gate", "promptFile": path, "input": { "choices": ["yes"] } });
    let noop = json!({ "id": "a", "type": "control.noop" });
    vec![
        of("gate", gate, &[]),
        of("script", json!({ "id": "a", "type": "script.run", "input": { "file": path } }), &[]),
        of("packed", noop, &[path]),
    ]
}

#[test]
fn h2_a_flow_of_local_reads_nothing_of_other_tenants() {
    let house = Household::new(Limits::default());
    house.tenants.create("local").unwrap();
    let local = house.tenants.create_token("local", &all_scopes(), "", None).unwrap().token;
    let mut theirs = crate::samples::hello();
    theirs["flow"]["name"] = "theirs".into();
    for version in ["1", "2"] {
        theirs["flow"]["description"] = format!("{CANARY} {version}").into();
        let kept = house.call(&house.b, "POST", "/v1/flows", &json!({ "flow": theirs }));
        assert!(kept.status < 300, "{kept:?}");
    }
    let flows = house.served.folder().join("flows");
    let there = flows.join(".tenants/b/flows/theirs.json");
    assert!(fs::read_to_string(&there).unwrap().contains(CANARY), "the canary is where this test looks for it");
    assert!(flows.join(".tenants/b/flows/.versions/theirs/1.json").exists());
    assert_eq!(house.call(&local, "POST", "/v1/flows", &json!({ "flow": crate::samples::hello() })).status, 201);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(".tenants/b", flows.join("friend")).unwrap();
        std::os::unix::fs::symlink(".tenants/b/flows/theirs.json", flows.join("linked.json")).unwrap();
    }
    let told = |path: &str| -> Vec<Answer> {
        let keep = |flow: Value| house.call(&local, "POST", "/v1/flows", &json!({ "flow": flow }));
        readers(path).into_iter().map(keep).collect()
    };
    for path in [
        ".tenants/b/flows/theirs.json",
        "./.tenants/b/flows/theirs.json",
        "x/../.tenants/b/flows/theirs.json",
        ".TENANTS/b/flows/theirs.json",
        ".tenants/b/flows/.versions/theirs/1.json",
        "friend/flows/theirs.json",
        "linked.json",
        "../flowcell.db",
        "../secret.key",
    ] {
        for answer in told(path) {
            assert_eq!(answer.status, 422, "{path}: {answer:?}");
            assert!(!answer.body.contains(CANARY), "{path}: {answer:?}");
        }
    }
    // The answer does not reveal that a tenant exists.
    let at = |path: &str| told(path).into_iter().map(|answer| answer.body.replace(path, "")).collect::<Vec<_>>();
    assert_eq!(at(".tenants/b/flows/theirs.json"), at(".tenants/c/flows/theirs.json"));
    // The library refuses the link by its name, and still lists the other flows.
    let asked = |method: &str, path: &str, body: Value| house.call(&local, method, path, &body);
    for (method, path, body) in [
        ("GET", "/v1/flows/linked", Value::Null),
        ("GET", "/v1/flows/linked/versions", Value::Null),
        ("DELETE", "/v1/flows/linked", Value::Null),
        ("POST", "/v1/runs", json!({ "flow": "linked" })),
    ] {
        let refused = asked(method, path, body);
        assert_eq!(refused.fault(), (409, "link_refused".into()), "{method} {path}");
        assert!(refused.body.contains("linked.json") && !refused.body.contains(CANARY), "{refused:?}");
    }
    let listed = asked("GET", "/v1/flows", Value::Null);
    let names: Vec<_> = listed.json()["flows"].as_array().unwrap().iter().map(|flow| flow["name"].clone()).collect();
    assert!(names.contains(&json!("hello")) && !names.contains(&json!("linked")), "{names:?}");
    let computes = json!({
        "flow": { "name": "computes", "input": { "n": "linked" } },
        "nodes": [{ "id": "a", "type": "control.subflow", "input": { "name": "{{ flow.input.n }}" } }],
    });
    assert_eq!(asked("POST", "/v1/flows", json!({ "flow": computes })).status, 201);
    let ended = asked("POST", "/v1/runs?wait=true", json!({ "flow": "computes" }));
    assert!(ended.body.contains("cannot read `linked.json` next to the calling flow"), "{ended:?}");
    // A subflow is found by its name, but not through a link out of the library.
    let calls = of("calls", json!({ "id": "a", "type": "control.subflow", "input": { "name": "linked" } }), &[]);
    let called = house.call(&local, "POST", "/v1/runs?wait=true", &json!({ "flow": calls }));
    assert!(!called.body.contains("succeeded"), "{called:?}");
    house.canary();
}
