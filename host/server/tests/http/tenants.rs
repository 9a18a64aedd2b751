//! Tenants on one server: each has its own data, within the limits of its policy.

use std::sync::{Arc, Mutex};

use flowcell_platform::{
    HostBuilder,
    policy::Policy,
    tenants::{NewToken, Tenants},
};
use flowcell_server::{
    Limits,
    identity::{Identify, Scope},
};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask, connect, send},
    samples::{asks, hello},
};

/// Starts a server with the tenants `a` and `b`, and returns it with a token of each. The policy applies to `a`.
pub(crate) fn served(policy: &Policy) -> (Served, [String; 2]) {
    served_with(policy, |builder| builder)
}

/// Starts such a server with additional settings of its host.
pub(crate) fn served_with(policy: &Policy, build: impl FnOnce(HostBuilder) -> HostBuilder) -> (Served, [String; 2]) {
    let tokens = Mutex::new(Vec::new());
    let served = Served::built(
        build,
        |host| {
            let tenants = Tenants::of(host);
            let all: Vec<_> = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
            for name in ["a", "b"] {
                tenants.create(name).unwrap();
                tokens.lock().unwrap().push(tenants.create_token(name, &all, "", None).unwrap().token);
            }
            tenants.set_policy("a", policy).unwrap();
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    let tokens = tokens.into_inner().unwrap().try_into().unwrap();
    (served, tokens)
}

pub(crate) fn call(served: &Served, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let token = format!("Bearer {token}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    ask(served.address, method, path, &[("Authorization", &token)], &body)
}

#[test]
fn t3_objects_of_a_tenant_are_unknown_to_another_and_names_may_repeat() {
    let (served, [a, b]) = served(&Policy::default());
    let get = |token: &str, path: &str| call(&served, token, "GET", path, &Value::Null);
    let post = |token: &str, path: &str, body: &Value| call(&served, token, "POST", path, body);
    assert_eq!(post(&a, "/v1/flows", &json!({ "flow": hello() })).status, 201);
    assert_eq!(post(&a, "/v1/runs?wait=true", &json!({ "flow": "hello", "runId": "r" })).status, 201);
    assert_eq!(get(&a, "/v1/runs/r").json()["status"], "succeeded");
    let theirs = [
        "/v1/runs/r",
        "/v1/runs/r/tree",
        "/v1/runs/r/tasks/say",
        "/v1/runs/r/events",
        "/v1/runs/r/gates",
        "/v1/flows/hello",
        "/api/flow/hello",
    ];
    for path in theirs {
        assert_eq!(get(&b, path).status, 404, "{path}");
    }
    let verbs = ["cancel", "resume", "retry", "abort"];
    for verb in verbs {
        assert_eq!(post(&b, &format!("/v1/runs/r/{verb}"), &json!({})).status, 404, "{verb}");
    }
    assert_eq!(get(&b, "/v1/runs").json()["runs"], json!([]));
    assert_eq!(get(&b, "/v1/flows").json()["flows"], json!([]));
    assert_eq!(post(&b, "/v1/runs", &json!({ "flow": "hello" })).status, 404);
    // Another tenant may use the same ids.
    assert_eq!(post(&b, "/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "r" })).status, 201);
    assert_eq!(post(&b, "/v1/flows", &json!({ "flow": hello() })).json()["version"], 1);
    assert_eq!(ask(served.address, "GET", "/api/flows", &[], "").fault(), (401, "unauthorized".to_owned()));
}

#[test]
fn a_trigger_that_names_a_flow_is_checked_against_the_library_of_its_tenant() {
    let (served, [a, b]) = served(&Policy::default());
    let follows = json!({
        "flow": { "name": "follows", "triggers": [{ "id": "after", "event": { "flow": "hello" } }] },
        "nodes": [{ "id": "n", "type": "control.noop" }],
    });
    let validate = |token: &str| call(&served, token, "POST", "/v1/validate", &json!({ "flow": follows })).json();
    let warned = |checked: &Value| {
        let finding = &checked["diagnostics"][0];
        let told = (&checked["valid"], &finding["code"], &finding["severity"]);
        assert_eq!(told, (&json!(true), &json!("unknown_flow"), &json!("warning")), "{checked}");
    };
    warned(&validate(&a));
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": hello() })).status, 201);
    assert_eq!(validate(&a), json!({ "valid": true, "diagnostics": [] }));
    warned(&validate(&b));
    // A remembered result does not outlive the flow that it named.
    assert_eq!(call(&served, &a, "DELETE", "/v1/flows/hello", &Value::Null).status, 204);
    warned(&validate(&a));
}

#[test]
fn the_policy_of_a_tenant_limits_its_runs_and_grants() {
    let policy = Policy { max_live_runs: Some(1), grants: Some([].into()), ..Policy::default() };
    let (served, [a, b]) = served(&policy);
    let start = |token: &str, flow: Value| call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow }));
    let waits = start(&a, asks()).json();
    let full = start(&a, hello());
    assert_eq!((full.fault(), full.header("retry-after").is_some()), ((429, "quota_exceeded".to_owned()), true));
    let again = format!("/v1/runs/{}/retry", waits["runId"].as_str().unwrap());
    assert_eq!(call(&served, &a, "POST", &again, &json!({})).fault(), (429, "quota_exceeded".to_owned()));
    let steps = json!({ "name": "s", "inputs": [], "steps": [{ "id": "a", "tool": "control.noop", "params": {} }] });
    assert_eq!(call(&served, &a, "POST", "/api/create_flow", &json!({ "flow": steps })).status, 201);
    assert_eq!(call(&served, &a, "POST", "/api/run_flow", &json!({ "flow_name": "s" })).status, 429);
    assert_eq!(start(&b, hello()).status, 201);
    let cancel = format!("/v1/runs/{}/cancel", waits["runId"].as_str().unwrap());
    assert!(call(&served, &a, "POST", &cancel, &json!({})).status < 300);
    let reaches = json!({ "flow": { "name": "r" }, "nodes": [{ "id": "a", "type": "agent.run", "input": { "prompt": "x" },
        "grants": { "model": ["anthropic/*"] } }] });
    let refused = call(&served, &a, "POST", "/v1/validate", &json!({ "flow": reaches })).json();
    assert_eq!(
        (&refused["valid"], &refused["diagnostics"][0]["code"]),
        (&json!(false), &json!("wrong_grant")),
        "{refused}"
    );
    assert_eq!(call(&served, &b, "POST", "/v1/validate", &json!({ "flow": reaches })).json()["valid"], true);
}

/// Starts a server with one tenant, and a token of it that may do everything.
fn served_with_audit() -> (Served, Tenants, NewToken) {
    let known = Mutex::new(None);
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            tenants.create("a").unwrap();
            let all: Vec<_> = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
            let token = tenants.create_token("a", &all, "", None).unwrap();
            *known.lock().unwrap() = Some((tenants.clone(), token));
            Arc::new(tenants)
        },
        Limits::default(),
    );
    let (tenants, token) = known.into_inner().unwrap().unwrap();
    (served, tenants, token)
}

/// Returns the actions of a token from the audit log.
fn audited_actions(tenants: &Tenants, token: &NewToken) -> Vec<String> {
    let noted = tenants.audit("a", 0, 1_000).unwrap().into_iter().filter(|entry| entry.actor == *token.id);
    noted.map(|entry| format!("{}: {}", entry.action, entry.subject)).collect()
}

#[test]
fn changes_of_flows_and_decisions_are_in_the_audit_log() {
    let (served, tenants, token) = served_with_audit();
    let post = |path: &str, body: &Value| call(&served, &token.token, "POST", path, body).status;
    assert_eq!(post("/v1/flows", &json!({ "flow": hello() })), 201);
    assert_eq!(post("/v1/flows", &json!({ "flow": "not one" })), 422, "what was refused is not noted");
    assert_eq!(post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "r" })), 201);
    assert_eq!(post("/v1/runs/r/gates/ok/reply", &json!({ "answer": "yes" })), 200);
    let ended = call(&served, &token.token, "GET", "/v1/runs/r/events/stream", &Value::Null);
    assert_eq!(ended.status, 200, "the stream ends with the run: {ended:?}");
    assert_eq!(call(&served, &token.token, "DELETE", "/v1/runs/r", &Value::Null).status, 204);
    assert_eq!(
        audited_actions(&tenants, &token),
        ["POST /v1/flows: /v1/flows/hello", "gate.reply: r/ok", "run.delete: r"]
    );
    assert!(tenants.verify_audit("a", None).unwrap().damage.is_empty());
}

#[test]
fn a_change_whose_caller_disconnects_is_in_the_audit_log() {
    let (served, tenants, token) = served_with_audit();
    let node = |index: usize| json!({ "id": format!("n{index}"), "type": "control.noop", "when": "flow.input.a == 1" });
    let nodes: Vec<_> = (0..300).map(node).collect();
    let bearer = format!("Bearer {}", token.token);
    for index in 0..20 {
        let name = format!("f{index}");
        let body = json!({ "flow": { "flow": { "name": name, "input": { "a": 1 } }, "nodes": nodes } }).to_string();
        let stream = connect(served.address);
        send(&stream, served.address, "POST", "/v1/flows", &[("Authorization", &bearer)], &body);
        drop(stream);
        let place = format!("/v1/flows/{name}");
        let is_kept = || call(&served, &token.token, "GET", &place, &Value::Null).status == 200;
        assert!((0..2_000).any(|_| is_kept()), "{name} is not kept");
        let noted = format!("POST /v1/flows: {place}");
        // Each request gives the server time to write the entry.
        assert!(
            (0..2_000).any(|_| is_kept() && audited_actions(&tenants, &token).contains(&noted)),
            "{name} is not noted"
        );
    }
}
