//! Flows that come whole in a request and call stored flows: in every route, over restarts, and within the rights of
//! the caller.

use std::{fs, sync::Arc};

use flowcell_platform::{Host, policy::Policy, tenants::Tenants};
use flowcell_server::{Limits, identity::Local};
use serde_json::{Value, json};

use crate::{
    client::Served,
    tenants::{call, served},
};

/// Returns a flow that outputs a text.
fn says(name: &str, text: &str) -> Value {
    json!({
        "flow": { "name": name, "outputs": { "said": "{{ say.text }}" } },
        "nodes": [{ "id": "say", "type": "data.template", "input": { "template": text } }],
    })
}

/// Returns a flow that calls another one.
fn calls(own: &str, called: &str) -> Value {
    json!({
        "flow": { "name": own, "input": { "n": "kid" }, "outputs": { "said": "{{ sub.outputs.said }}" } },
        "nodes": [{ "id": "sub", "type": "control.subflow", "input": { "name": called, "input": {} } }],
    })
}

/// Returns the only diagnostic of a flow.
#[track_caller]
fn finding(served: &Served, token: &str, flow: &Value) -> Value {
    let checked = call(served, token, "POST", "/v1/validate", &json!({ "flow": flow })).json();
    assert_eq!(checked["diagnostics"].as_array().unwrap().len(), 1, "{checked}");
    let found = checked["diagnostics"][0].clone();
    assert_eq!(checked["valid"], json!(found["severity"] == "warning"), "{checked}");
    assert!(found["line"] == 1 && found["column"].as_u64() > Some(100), "it has its place: {found}");
    found
}

#[test]
fn a_text_calls_the_stored_flows_of_its_tenant_in_every_route() {
    let (served, [a, b]) = served(&Policy::default());
    let post = |token: &str, path: &str, body: Value| call(&served, token, "POST", path, &body);
    let text = calls("text", "kid");
    assert_eq!(post(&b, "/v1/flows", json!({ "flow": says("kid", "foreign") })).status, 201);
    let missing = finding(&served, &a, &text);
    assert_eq!(missing["code"], "unknown_flow", "{missing}");
    assert!(missing["help"].as_str().unwrap().contains("store the flow `kid` first"), "{missing}");
    for version in ["one", "two"] {
        assert_eq!(post(&a, "/v1/flows", json!({ "flow": says("kid", version) })).status, 201);
    }
    let sound = json!({ "valid": true, "diagnostics": [] });
    assert_eq!(post(&a, "/v1/validate", json!({ "flow": text })).json(), sound);
    let draft = json!({ "text": text.to_string(), "name": "text.json" });
    assert_eq!(post(&a, "/v1/assist", draft).json(), sound);
    for path in ["/v1/graph", "/v1/inspect", "/v1/explain"] {
        let answer = post(&a, path, json!({ "flow": text }));
        assert_eq!((answer.status, &answer.json()["nodes"][0]["id"]), (200, &json!("sub")), "{path}: {answer:?}");
    }
    let value = post(&a, "/v1/eval", json!({ "expression": "flow.input.n", "flow": text })).json();
    assert_eq!(value["value"], "kid", "{value}");
    for (token, said) in [(&a, "two"), (&b, "foreign")] {
        for (path, status) in [("/v1/test", 200), ("/v1/runs?wait=true", 201)] {
            let ended = post(token, path, json!({ "flow": text }));
            assert_eq!((ended.status, &ended.json()["outputs"]["said"]), (status, &json!(said)), "{path}: {ended:?}");
        }
    }
}

#[test]
fn a_stored_flow_has_its_files_and_the_text_has_none() {
    let served = Served::local();
    let library = served.folder().join("flows");
    fs::create_dir_all(library.join("prompts")).unwrap();
    fs::write(library.join("prompts/ask.md"), "Really?").unwrap();
    let ask =
        json!({ "id": "ask", "type": "control.gate", "promptFile": "prompts/ask.md", "input": { "choices": ["yes"] } });
    let asks = json!({ "flow": { "name": "asks" }, "nodes": [ask] });
    fs::write(library.join("asks.json"), asks.to_string()).unwrap();
    let mut text = calls("text", "asks");
    text["flow"].as_object_mut().unwrap().remove("outputs");
    let begun = served.post("/v1/runs?wait=true", &json!({ "flow": text, "runId": "r" }));
    assert_eq!(begun.json()["status"], "parked", "{begun:?}");
    let gates = served.get("/v1/runs/r/gates");
    assert!(gates.body.contains("Really?"), "{gates:?}");
    for path in ["prompts/ask.md", "./asks.json", "../flowcell.db", "/etc/hostname"] {
        let mut own = asks.clone();
        own["nodes"][0]["promptFile"] = path.into();
        let refused = served.post("/v1/runs", &json!({ "flow": own }));
        let code = &refused.json()["error"]["details"]["diagnostics"][0]["code"];
        assert_eq!((refused.status, code), (422, &json!("unreadable_file")), "{path}: {refused:?}");
        assert!(!refused.body.contains("Really?"), "{refused:?}");
    }
}

#[test]
fn a_stored_flow_that_cannot_run_is_named_at_the_call() {
    let (served, [a, _]) = served(&Policy::default());
    let text = calls("text", "kid");
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": says("kid", "one") })).status, 201);
    let file = served.folder().join("flows/.tenants/a/flows/kid.json");
    let broken = json!({ "flow": { "name": "kid" }, "nodes": [{ "id": "n", "type": "no.such" }] });
    fs::write(&file, broken.to_string()).unwrap();
    let found = finding(&served, &a, &text);
    assert_eq!((&found["code"], &found["severity"]), (&json!("unusable_flow"), &json!("warning")), "{found}");
    let message = found["message"].as_str().unwrap();
    assert!(message.starts_with("the flow `kid` cannot run: line 1: "), "{message}");
    assert!(message.ends_with("(unknown_type)"), "{message}");
    let ended = call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": text })).json();
    assert_eq!(ended["error"]["code"], "flow_not_found", "{ended}");
    fs::write(&file, "{").unwrap();
    assert!(finding(&served, &a, &text)["message"].as_str().unwrap().ends_with("(syntax)"));
    // A result is not kept longer than the flow is as it was.
    fs::write(&file, says("kid", "two").to_string()).unwrap();
    let ended = call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": text })).json();
    assert_eq!(ended["outputs"]["said"], "two", "{ended}");
    fs::remove_file(&file).unwrap();
    assert_eq!(finding(&served, &a, &text)["code"], "unknown_flow");
}

#[test]
fn a_text_is_checked_as_if_it_were_stored_under_its_name() {
    let served = Served::local();
    for flow in [says("hello", "stored"), calls("other", "hello")] {
        assert_eq!(served.post("/v1/flows", &json!({ "flow": flow })).status, 201);
    }
    for (called, chain) in [("hello", "hello -> hello"), ("other", "hello -> other -> hello")] {
        let text = calls("hello", called);
        let found = served.post("/v1/validate", &json!({ "flow": text })).json()["diagnostics"][0].clone();
        assert_eq!(found["code"], "flow_recursion", "{found}");
        assert!(found["message"].as_str().unwrap().contains(chain), "{found}");
        for path in ["/v1/runs", "/v1/test", "/v1/flows"] {
            assert_eq!(served.post(path, &json!({ "flow": text })).status, 422, "{path}");
        }
    }
    // A computed name is that of a stored flow, and never that of the text.
    let computed = json!({ "flow": calls("hello", "{{ flow.input.n }}"), "input": { "n": "hello" } });
    let ended = served.post("/v1/runs?wait=true", &computed).json();
    assert_eq!(ended["outputs"]["said"], "stored", "{ended}");
    let ended = served.post("/v1/test", &json!({ "flow": calls("text", "other") })).json();
    assert_eq!(ended["outputs"]["said"], "stored", "{ended}");
}

#[test]
fn t4_a_token_that_may_not_read_flows_calls_none_in_a_text() {
    let (served, [a, _]) = served(&Policy::default());
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": says("kid", "secret") })).status, 201);
    let tenants = Tenants::of(&served.host());
    let token = |scopes: &[&str]| {
        let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        tenants.create_token("a", &scopes, "", None).unwrap().token
    };
    let (starter, reader) = (token(&["run:create", "run:read"]), token(&["run:create", "run:read", "flow:read"]));
    for path in ["/v1/runs?wait=true", "/v1/test"] {
        let told = |name: &str| {
            let answer = call(&served, &starter, "POST", path, &json!({ "flow": calls("text", name) }));
            assert_eq!(answer.status, 422, "{answer:?}");
            answer.body.replace(name, "kid")
        };
        let refused = told("kid");
        assert!(refused.contains("unknown_flow") && refused.contains("flow:read"), "{refused}");
        assert_eq!(refused, told("nil"), "whether the flow exists shows nowhere");
        let computed = json!({ "flow": calls("text", "{{ flow.input.n }}") });
        let ended = call(&served, &starter, "POST", path, &computed).json();
        assert_eq!(ended["error"]["code"], "flow_not_found", "{ended}");
        let read = call(&served, &reader, "POST", path, &computed).json();
        assert_eq!(read["outputs"]["said"], "secret", "{read}");
    }
    // It starts the stored flow by its name, as before.
    let ended = call(&served, &starter, "POST", "/v1/runs?wait=true", &json!({ "flow": "kid" })).json();
    assert_eq!(ended["outputs"]["said"], "secret", "{ended}");
    for path in ["/v1/validate", "/v1/graph", "/v1/inspect", "/v1/explain"] {
        let refused = call(&served, &starter, "POST", path, &json!({ "flow": calls("text", "kid") }));
        assert_eq!(refused.fault(), (403, "forbidden".to_owned()), "{path}");
    }
}

#[test]
fn t4_the_help_about_an_unknown_flow_names_another_one_to_its_readers_alone() {
    let (served, [a, b]) = served(&Policy::default());
    for (token, name) in [(&a, "invoices"), (&a, "billing"), (&b, "invoicer")] {
        assert_eq!(call(&served, token, "POST", "/v1/flows", &json!({ "flow": says(name, "x") })).status, 201);
    }
    assert_eq!(finding(&served, &a, &calls("text", "invoicer"))["help"], "did you mean `invoices`?");
    assert_eq!(finding(&served, &b, &calls("text", "invoices"))["help"], "did you mean `invoicer`?");
    // A stored flow calls a flow that was removed since.
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": calls("parent", "billing") })).status, 201);
    let folder = served.folder().join("flows/.tenants/a/flows");
    fs::rename(folder.join("billing.json"), folder.join("billings.json")).unwrap();
    let tenants = Tenants::of(&served.host());
    let token = |scopes: &[&str]| {
        let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        tenants.create_token("a", &scopes, "", None).unwrap().token
    };
    let (reader, others) = (
        token(&["flow:read", "flow:write", "run:create", "run:read"]),
        token(&["flow:write", "run:create", "run:read"]),
    );
    let after = json!({ "id": "after", "event": { "flow": "invoicez" } });
    let requests = [
        ("/v1/runs", json!({ "flow": "parent" }), "`billings`"),
        ("/v1/runs", json!({ "flow": calls("text", "invoicez") }), "`invoices`"),
        ("/v1/test", json!({ "flow": calls("text", "invoicez") }), "`invoices`"),
        ("/v1/flows", json!({ "flow": calls("new", "invoicez") }), "`invoices`"),
        ("/v1/triggers", json!({ "flow": "invoices", "trigger": after }), "`invoices`"),
    ];
    // The results of checks are remembered for the tenant, so both callers ask after each other.
    for token in [&others, &reader, &others] {
        for (path, body, name) in &requests {
            let refused = call(&served, token, "POST", path, body);
            let error = refused.json()["error"].clone();
            assert!(refused.status >= 400 && error.to_string().contains("unknown_flow"), "{path}: {refused:?}");
            assert_eq!(error["details"].to_string().contains(name), token == &reader, "{path}: {refused:?}");
        }
    }
}

#[test]
fn t4_names_in_a_text_lead_out_of_no_library() {
    let (served, [a, b]) = served(&Policy::default());
    for (token, text) in [(&a, "own"), (&b, "foreign")] {
        assert_eq!(call(&served, token, "POST", "/v1/flows", &json!({ "flow": says("kid", text) })).status, 201);
    }
    fs::write(served.folder().join("flows/local.json"), says("local", "of the operator").to_string()).unwrap();
    let whole = served.folder().join("flows/.tenants/b/flows/kid").display().to_string();
    let long = "kid".repeat(30_000);
    let names = [
        "local",
        "../../../local",
        "../../b/flows/kid",
        "./kid",
        "kid.json",
        ".versions/kid",
        "KID",
        "kid\0",
        "kid\0.json",
        "\u{1b}[31mkid",
        "kid\u{202e}",
        "",
        "..",
        &whole,
        &long,
    ];
    for name in names {
        let checked = call(&served, &a, "POST", "/v1/validate", &json!({ "flow": calls("text", name) })).json();
        assert_eq!(checked["valid"], false, "{name:?}: {checked}");
        for found in checked["diagnostics"].as_array().unwrap() {
            let message = found["message"].as_str().unwrap();
            assert!(message.len() < 500 && !message.chars().any(char::is_control), "{name:?}: {message:?}");
            assert!(!message.contains('\u{202e}') && !message.contains("flows/.tenants/a"), "{message:?}");
        }
        let computed = json!({ "flow": calls("text", "{{ flow.input.n }}"), "input": { "n": name } });
        let ended = call(&served, &a, "POST", "/v1/runs?wait=true", &computed).json();
        assert_ne!(ended["status"], "succeeded", "{name:?}: {ended}");
        assert!(ended["outputs"]["said"].is_null(), "{ended}");
    }
}

/// Returns a flow that asks a question before it calls another one.
fn asks_and_calls(called: &str) -> Value {
    let mut flow = calls("text", called);
    let ok = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes"] } });
    flow["nodes"].as_array_mut().unwrap().push(ok);
    flow["edges"] = json!([{ "from": "ok", "to": "sub" }]);
    flow
}

#[test]
fn a_parked_run_of_a_text_finds_its_flows_after_a_restart() {
    let served = Served::local();
    let store = |served: &Served, text: &str| {
        assert_eq!(served.post("/v1/flows", &json!({ "flow": says("kid", text) })).status, 201);
    };
    store(&served, "pinned");
    for (run, called) in [("literal", "kid"), ("computed", "{{ flow.input.n }}")] {
        let begun = served.post("/v1/runs?wait=true", &json!({ "flow": asks_and_calls(called), "runId": run }));
        assert_eq!(begun.json()["status"], "parked", "{begun:?}");
    }
    store(&served, "changed");
    let folder = served.end();
    let host = Host::builder().instances(16).state_dir(folder.path()).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    let end = |run: &str| {
        let replied = served.post(&format!("/v1/runs/{run}/gates/ok/reply"), &json!({ "answer": "yes" }));
        assert_eq!(replied.status, 200, "{replied:?}");
        served.ended(run)
    };
    let expected = [("literal", "pinned"), ("computed", "changed")];
    for (run, said) in expected {
        let ended = end(run);
        assert_eq!(ended["outputs"]["said"], said, "{ended}");
    }
    store(&served, "later");
    for (run, said) in expected {
        // The text itself has no other version.
        let newest = served.post(&format!("/v1/runs/{run}/retry"), &json!({ "flowVersion": "latest" }));
        assert_eq!(newest.fault(), (404, "flow_not_found".to_owned()), "{newest:?}");
        // A retry calls the same flow.
        let again = format!("again-{run}");
        let begun = served.post(&format!("/v1/runs/{run}/retry?wait=true"), &json!({ "runId": again }));
        assert_eq!(begun.json()["status"], "parked", "{begun:?}");
        assert_eq!(end(&again)["outputs"]["said"], said);
    }
}
