//! Flows that name objects of other tenants, and flows that change while a gate is open.

use std::net::TcpListener;

use flowcell_server::Limits;
use serde_json::{Value, json};

use super::household::{Household, MINE};
use crate::{client::Served, samples::hello};

/// Returns a flow with one node.
fn of(node: Value) -> Value {
    json!({ "flow": { "name": "hostile" }, "nodes": [node] })
}

/// Returns the codes of a flow's diagnostics. The flow must not be stored or run, either.
fn diagnostic_codes(served: &Served, flow: &Value) -> Vec<String> {
    let told = served.post("/v1/validate", &json!({ "flow": flow }));
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    assert_eq!(told["valid"], false, "{flow}: {told}");
    for path in ["/v1/runs", "/v1/flows"] {
        let refused = served.post(path, &json!({ "flow": flow }));
        assert_eq!(refused.status, 422, "{path} {flow}: {refused:?}");
    }
    let codes = told["diagnostics"].as_array().unwrap().iter().map(|found| found["code"].as_str().unwrap().to_owned());
    codes.collect()
}

#[test]
fn y10_a_node_type_is_never_read_as_a_path_or_url() {
    let served = Served::local();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let types = [
        "../../evil".to_owned(),
        "/etc/passwd".into(),
        "file:///etc/passwd".into(),
        format!("http://{address}/evil.wasm"),
        format!("//{address}/evil"),
        "oci://evil.test/x:1".into(),
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".into(),
        "C:\\evil".into(),
        "control.noop@latest".into(),
        "control..noop".into(),
        "CONTROL.NOOP".into(),
        "c\u{43e}ntrol.noop".into(),
        "control.noop\u{200b}".into(),
        "control.noop\u{202e}".into(),
        "control.noop\0".into(),
        " control.noop".into(),
        "x".repeat(64 * 1024),
    ];
    for kind in types {
        let codes = diagnostic_codes(&served, &of(json!({ "id": "a", "type": kind })));
        let known = ["unknown_type", "unknown_version", "no_type", "wrong_kind"];
        let name: String = kind.chars().take(40).collect();
        assert!(codes.iter().any(|code| known.contains(&code.as_str())), "{name}: {codes:?}");
    }
    assert!(listener.accept().is_err(), "somebody has asked");
    assert!(has_no_diagnostics(&served, &of(json!({ "id": "a", "type": "control.noop" }))));
}

fn has_no_diagnostics(served: &Served, flow: &Value) -> bool {
    served.post("/v1/validate", &json!({ "flow": flow })).json()["valid"] == true
}

#[test]
fn y11_unknown_members_are_refused_everywhere() {
    let served = Served::local();
    let server = json!({ "command": "sh", "args": ["-c", "id"], "env": { "LD_PRELOAD": "/tmp/x.so" } });
    let agent = |config: Value| json!({ "id": "a", "type": "agent.run", "input": { "prompt": "x" }, "config": config });
    let with = |member: &str| json!({ "id": "a", "type": "control.noop", member: server });
    let nodes = [
        agent(json!({ "mcp": { "evil": server } })),
        agent(json!({ "mcpServers": { "evil": server } })),
        agent(json!({ "command": "sh" })),
        agent(json!({ "env": { "PATH": "/tmp" } })),
        json!({ "id": "a", "type": "http.request", "input": { "url": "https://a.test" }, "config": { "proxy": "http://evil.test" },
            "grants": { "http": ["https://a.test"] } }),
        json!({ "id": "a", "type": "data.template", "input": { "template": "x", "command": "sh" } }),
        json!({ "id": "a", "type": "data.template", "input": { "template": "x" }, "config": { "env": {} } }),
        with("command"),
        with("env"),
        with("exec"),
        with("__proto__"),
        json!({ "id": "a", "type": "control.noop", "grants": { "exec": ["sh"] } }),
    ];
    for node in nodes {
        assert!(!diagnostic_codes(&served, &of(node.clone())).is_empty(), "{node}");
    }
    for member in ["command", "env", "mcp", "packs", "secrets"] {
        let mut flow = of(json!({ "id": "a", "type": "control.noop" }));
        flow[member] = server.clone();
        assert!(!diagnostic_codes(&served, &flow).is_empty(), "{member}");
        let mut flow = of(json!({ "id": "a", "type": "control.noop" }));
        flow["flow"][member] = server.clone();
        assert!(!diagnostic_codes(&served, &flow).is_empty(), "flow.{member}");
    }
}

#[test]
fn t4_the_flow_of_another_tenant_is_unknown_to_checks_and_runs() {
    let house = Household::new(Limits::default());
    let mut theirs = hello();
    theirs["flow"]["name"] = "theirs".into();
    assert_eq!(house.call(&house.b, "POST", "/v1/flows", &json!({ "flow": theirs })).status, 201);
    let calls = |name: &str| of(json!({ "id": "a", "type": "control.subflow", "input": { "name": name } }));
    for path in ["/v1/validate", "/v1/flows", "/v1/runs"] {
        let told = |name: &str| {
            let answer = house.call(&house.a, "POST", path, &json!({ "flow": calls(name) }));
            (answer.status, answer.body.replace(name, "theirs"))
        };
        let foreign = told("theirs");
        assert!(foreign.0 == 422 || foreign.1.contains("\"valid\":false"), "{path}: {foreign:?}");
        assert_eq!(foreign, told("nobody"), "{path}: whether others have it shows nowhere");
        for name in ["../b/theirs", "b/theirs", ".tenants/b/theirs", "../.tenants/b/theirs.json"] {
            let (status, body) = told(name);
            assert!(status == 422 || body.contains("\"valid\":false"), "{path} {name}: {body}");
        }
    }
    let named = house.call(&house.a, "POST", "/v1/runs", &json!({ "flow": "theirs" }));
    assert_eq!(named.fault(), (404, "flow_not_found".to_owned()));
    let own = house.call(&house.b, "POST", "/v1/runs?wait=true", &json!({ "flow": "theirs" }));
    assert_eq!(own.json()["status"], "succeeded", "{own:?}");
}

/// Returns a flow that asks a question, and then outputs a text.
fn asking_flow(says: &str) -> Value {
    json!({
        "flow": { "name": MINE, "outputs": { "said": "{{ after.text }}" } },
        "nodes": [
            { "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } },
            { "id": "after", "type": "data.template", "input": { "template": says } },
        ],
        "edges": [{ "from": "ok", "to": "after" }],
    })
}

#[test]
fn y16_the_approved_version_of_a_flow_runs() {
    let served = Served::local();
    assert_eq!(served.post("/v1/flows", &json!({ "flow": asking_flow("pay 1") })).json()["version"], 1);
    let start = |body: Value| served.post("/v1/runs?wait=true", &body);
    assert_eq!(start(json!({ "flow": MINE, "runId": "r" })).json()["status"], "parked");
    assert_eq!(served.post("/v1/flows", &json!({ "flow": asking_flow("pay 1000000") })).json()["version"], 2);
    // The same run id cannot start another flow.
    let other = start(json!({ "flow": asking_flow("pay 1000000"), "runId": "r" }));
    assert_eq!(other.fault(), (409, "run_exists".to_owned()));
    assert_eq!(served.post("/v1/runs/r/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    assert_eq!(start(json!({ "flow": MINE, "runId": "r" })).json()["outputs"]["said"], "pay 1");
    // The flow is deleted, and another flow gets its name.
    assert_eq!(start(json!({ "flow": MINE, "version": 1, "runId": "s" })).json()["status"], "parked");
    assert!(served.ask("DELETE", &format!("/v1/flows/{MINE}"), "").status < 300);
    assert_eq!(served.post("/v1/flows", &json!({ "flow": asking_flow("pay 7") })).json()["version"], 1);
    assert_eq!(served.post("/v1/runs/s/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    assert_eq!(start(json!({ "flow": MINE, "version": 1, "runId": "s" })).json()["outputs"]["said"], "pay 1");
}
