//! Tests which flows a run calls when it continues after it was parked, under the policy of its tenant: by a
//! literal name the flow with which the run was accepted, by a computed name the current flow of the run's
//! tenant.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use flowcell_platform::{Host, Providers, policy::Policy, tenants::Tenants};
use flowcell_server::{
    Limits,
    identity::{Identify, Scope},
};
use serde_json::{Value, json};

use crate::{
    client::Served,
    tenants::{call, served, served_with},
};

/// Returns a flow that outputs the text `says` and has these grants.
fn kid(says: &str, grants: Value) -> Value {
    let say = json!({ "id": "say", "type": "data.template", "input": { "template": says } });
    let ask = json!({ "id": "ask", "type": "http.request", "input": { "url": "https://example.com/" },
        "grants": grants, "when": "false" });
    let asks = grants.as_object().is_some_and(|grants| !grants.is_empty());
    let nodes: Vec<_> = [say].into_iter().chain(asks.then_some(ask)).collect();
    json!({ "flow": { "name": "kid", "outputs": { "said": "{{ say.text }}" } }, "nodes": nodes })
}

/// Returns a flow that asks a question, and then calls another flow.
fn parent(called: &str) -> Value {
    let choices = json!(["yes"]);
    json!({
        "flow": { "name": "parent", "input": { "n": "kid" }, "outputs": { "said": "{{ sub.outputs.said }}" } },
        "nodes": [
            { "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": choices } },
            { "id": "sub", "type": "control.subflow", "input": { "name": called, "input": {} } },
        ],
        "edges": [{ "from": "ok", "to": "sub" }],
    })
}

struct Caller<'a>(&'a Served, &'a str);

impl Caller<'_> {
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let answer = call(self.0, self.1, method, path, body);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        answer.json()
    }

    fn post_flow(&self, flow: &Value) {
        self.ask("POST", "/v1/flows", &json!({ "flow": flow }), 201);
    }

    /// Starts the run, and waits until it is parked and unloaded.
    fn start(&self, run: &str) {
        self.start_flow(&json!("parent"), run);
    }

    /// Starts a run of a flow, which is a name or a whole one.
    fn start_flow(&self, flow: &Value, run: &str) {
        let begun = self.ask("POST", "/v1/runs?wait=true", &json!({ "flow": flow, "runId": run }), 201);
        assert_eq!(begun["status"], "parked", "{begun}");
    }

    /// Answers the gate, and waits for the end of the run.
    fn end(&self, run: &str) -> Value {
        self.end_after(run, "ok", "yes")
    }

    /// Allows an agent's call of a flow, and checks that the called flow outputs `pinned`: the version with which the
    /// run was accepted.
    fn is_allowed(&self, run: &str) {
        let ended = self.end_after(run, "agent%233", "allow");
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let events = self.ask("GET", &format!("/v1/runs/{run}/events?limit=1000"), &Value::Null, 200).to_string();
        assert!(events.contains("pinned") && !events.contains("changed"), "{events}");
    }

    fn end_after(&self, run: &str, gate: &str, answer: &str) -> Value {
        self.ask("POST", &format!("/v1/runs/{run}/gates/{gate}/reply"), &json!({ "answer": answer }), 200);
        let view = || self.ask("GET", &format!("/v1/runs/{run}"), &Value::Null, 200);
        let ended = |view: &Value| !matches!(view["status"].as_str(), Some("running" | "parked"));
        (0..20_000).map(|_| view()).find(ended).unwrap_or_else(|| panic!("the run does not end"))
    }
}

#[test]
fn t4_a_parked_run_calls_the_flows_that_it_has_pinned() {
    let (served, [a, b]) = served(&Policy::default());
    // A flow of another tenant with the same name has no effect on the run.
    Caller(&served, &b).post_flow(&kid("foreign", json!({})));
    let caller = Caller(&served, &a);
    for (called, expected) in [("kid", "pinned"), ("{{ flow.input.n }}", "changed")] {
        caller.post_flow(&kid("pinned", json!({})));
        caller.post_flow(&parent(called));
        caller.start(expected);
        caller.post_flow(&kid("changed", json!({})));
        let ended = caller.end(expected);
        assert_eq!((&ended["status"], &ended["outputs"]["said"]), (&json!("succeeded"), &json!(expected)), "{ended}");
        // A retry calls the same flow as the run before.
        caller.post_flow(&kid("later", json!({})));
        let body = json!({ "runId": format!("again-{expected}") });
        caller.ask("POST", &format!("/v1/runs/{expected}/retry?wait=true"), &body, 201);
        let again = caller.end(&format!("again-{expected}"));
        assert_eq!(again["outputs"]["said"], json!(expected), "{again}");
    }
}

/// An agent asks a person before it calls a flow as a tool. After the approval, it calls the flow that was current when
/// its run was accepted.
#[test]
fn t4_a_parked_agent_calls_the_flow_that_its_run_has_pinned() {
    let script =
        json!([{ "match": "", "toolCalls": [{ "name": "flow_kid", "input": {} }] }, { "match": "", "text": "done" }]);
    let models =
        json!({ "default": "one", "profiles": { "one": { "dialect": "simulated", "model": "m", "script": script } } });
    for (tool, is_stored) in [("flow:kid", true), ("flow:k*", true), ("flow:kid", false), ("flow:k*", false)] {
        let providers = Providers::parse(&models.to_string(), Path::new("")).unwrap();
        let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.providers(providers));
        Caller(&served, &b).post_flow(&kid("foreign", json!({})));
        let caller = Caller(&served, &a);
        caller.post_flow(&kid("pinned", json!({})));
        let mut parent = json!({ "flow": { "name": "parent" }, "nodes": [{ "id": "agent", "type": "agent.run",
            "input": { "prompt": "Call it.", "tools": [tool] }, "grants": { "model": ["*"], "tools": [tool] } }] });
        if is_stored {
            caller.post_flow(&parent);
            parent = json!("parent");
        }
        caller.start_flow(&parent, "r");
        caller.post_flow(&kid("changed", json!({})));
        caller.is_allowed("r");
        caller.ask("POST", "/v1/runs/r/retry?wait=true", &json!({ "runId": "again" }), 201);
        caller.is_allowed("again");
    }
}

#[test]
fn t4_a_run_continues_after_its_flows_are_deleted() {
    let (served, [a, _]) = served(&Policy::default());
    let caller = Caller(&served, &a);
    caller.post_flow(&kid("pinned", json!({})));
    caller.post_flow(&parent("kid"));
    caller.start("r");
    for flow in ["parent", "kid"] {
        assert_eq!(call(&served, &a, "DELETE", &format!("/v1/flows/{flow}"), &Value::Null).status, 204);
    }
    assert_eq!(caller.end("r")["outputs"]["said"], "pinned");
}

#[test]
fn t2_a_flow_called_by_a_resumed_run_must_fit_the_tenants_policy() {
    let nothing = Policy { grants: Some(BTreeMap::new()), ..Policy::default() };
    let (served, [a, _]) = served(&nothing);
    let caller = Caller(&served, &a);
    caller.post_flow(&parent("{{ flow.input.n }}"));
    caller.start("r");
    // The policy would refuse this file, which is written into the library directly.
    let library = served.folder().join("flows/.tenants/a/flows");
    let asks = kid("pinned", json!({ "http": ["https://example.com"] }));
    std::fs::write(library.join("kid.json"), asks.to_string()).unwrap();
    let ended = caller.end("r");
    assert_eq!(ended["status"], "failed", "{ended}");
    assert!(ended["error"].to_string().contains("flow_not_found"), "{ended}");
}

/// A computed name cannot lead out of the library. This also holds for a flow that came with a request.
#[test]
fn t4_computed_names_do_not_reach_the_flows_of_others() {
    let (served, [a, b]) = served(&Policy::default());
    Caller(&served, &b).post_flow(&kid("foreign", json!({})));
    let caller = Caller(&served, &a);
    caller.post_flow(&kid("own", json!({})));
    std::fs::copy(served.folder().join("flows/.tenants/b/flows/kid.json"), served.folder().join("flows/kid.json"))
        .unwrap();
    let whole = served.folder().join("flows/.tenants/b/flows/kid").display().to_string();
    let names = [
        "../../b/flows/kid",
        "../b/flows/kid",
        "../../../kid",
        "./kid",
        "kid.json",
        ".versions/kid",
        &whole,
        "..",
        "KID",
    ];
    let mut alone = parent("{{ flow.input.n }}");
    alone["nodes"] = json!([alone["nodes"][1]]);
    alone["edges"] = json!([]);
    caller.post_flow(&alone);
    let run = |flow: &Value, name: &str| {
        caller.ask("POST", "/v1/runs?wait=true", &json!({ "flow": flow, "input": { "n": name } }), 201)
    };
    for name in names {
        for flow in [&json!("parent"), &alone] {
            let ended = run(flow, name);
            assert_eq!(ended["error"]["code"], "flow_not_found", "{name}: {ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains("the library has no flow"), "{name}: {ended}");
        }
    }
    for flow in [&json!("parent"), &alone] {
        assert_eq!(run(flow, "kid")["outputs"]["said"], "own");
    }
}

/// Starts a server with the tenant `a`. Returns it with its host for the operator, and a token.
fn serve_with_operator() -> (Served, Host, String) {
    let known = Mutex::new(None);
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            tenants.create("a").unwrap();
            let all: Vec<_> = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
            let token = tenants.create_token("a", &all, "", None).unwrap().token;
            *known.lock().unwrap() = Some((host.clone(), token));
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    let (host, token) = known.into_inner().unwrap().unwrap();
    (served, host, token)
}

/// Returns a flow that has a grant of `http`, with the text `called` as its output.
fn asking(called: &str) -> Value {
    kid(called, json!({ "http": ["https://example.com"] }))
}

#[test]
fn t2_a_retry_must_fit_the_current_policy_of_its_tenant() {
    let (served, host, token) = serve_with_operator();
    let caller = Caller(&served, &token);
    let begin = |flow: &str, run: &str| {
        let ended = caller.ask("POST", "/v1/runs?wait=true", &json!({ "flow": flow, "runId": run }), 201);
        assert_eq!(ended["status"], "succeeded", "{ended}");
    };
    caller.post_flow(&asking("pinned"));
    begin("kid", "alone");
    for (flow, called) in [("literal", "kid"), ("computed", "{{ flow.input.n }}")] {
        let mut parent = parent(called);
        parent["flow"]["name"] = json!(flow);
        parent["nodes"].as_array_mut().unwrap().remove(0);
        parent["edges"] = json!([]);
        caller.post_flow(&parent);
        begin(flow, flow);
    }
    // A retry that was accepted before the change continues.
    caller.post_flow(&parent("kid"));
    caller.start("rests");
    caller.ask("POST", "/v1/runs/rests/retry?wait=true", &json!({ "runId": "accepted" }), 201);

    let set = |grants: Option<BTreeMap<_, _>>| {
        Tenants::of(&host).set_policy("a", &Policy { grants, ..Policy::default() }).unwrap();
    };
    set(Some(BTreeMap::new()));
    let refused = caller.ask("POST", "/v1/runs/alone/retry?wait=true", &json!({}), 422);
    let found = &refused["error"]["details"]["diagnostics"][0];
    assert_eq!(
        (&refused["error"]["code"], &found["code"]),
        (&json!("invalid_flow"), &json!("wrong_grant")),
        "{refused}"
    );
    assert!(found["line"].as_u64().is_some_and(|line| line > 0), "{refused}");
    for flow in ["literal", "computed"] {
        let ended = caller.ask("POST", &format!("/v1/runs/{flow}/retry?wait=true"), &json!({}), 201);
        assert_eq!(
            (&ended["status"], &ended["error"]["code"]),
            (&json!("failed"), &json!("flow_not_found")),
            "{ended}"
        );
        assert!(
            ended["error"]["message"].as_str().unwrap().contains("the operator does not allow this tenant"),
            "{ended}"
        );
    }
    for run in ["rests", "accepted"] {
        assert_eq!(caller.end(run)["status"], "succeeded", "{run}");
    }
    set(Some([("http".to_owned(), vec!["https://example.com".to_owned()])].into()));
    for flow in ["alone", "literal", "computed"] {
        let again = caller.ask("POST", &format!("/v1/runs/{flow}/retry?wait=true"), &json!({}), 201);
        assert_eq!((&again["status"], &again["outputs"]["said"]), (&json!("succeeded"), &json!("pinned")), "{again}");
    }
}
