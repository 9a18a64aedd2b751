//! Messages to runs and to agents over HTTP.

use std::path::Path;

use flowcell_platform::{Providers, policy::Policy};
use serde_json::{Value, json};

use crate::tenants::{call, served_with};

#[test]
fn a_message_with_an_id_reaches_a_node_and_an_agent_run_once() {
    let script: Vec<_> = (0..8).map(|_| json!({ "match": "", "text": "done" })).collect();
    let profile = json!({ "dialect": "simulated", "model": "m", "script": script });
    let providers = json!({ "default": "one", "profiles": { "one": profile } });
    let providers = Providers::parse(&providers.to_string(), Path::new("")).unwrap();
    let (served, [a, _]) = served_with(&Policy::default(), |builder| builder.providers(providers));
    let post = |path: &str, body: &Value| call(&served, &a, "POST", path, body);
    let flow = json!({
        "flow": { "name": "listens", "outputs": { "turns": "{{ agent.turns }}" } },
        "nodes": [{ "id": "agent", "type": "agent.run", "input": { "prompt": "Begin" },
            "config": { "inbox": { "capacity": 8 } }, "grants": { "model": ["*"] } }],
    });
    let begun = json!({ "flow": flow, "runId": "r" });
    let parked = post("/v1/runs?wait=true", &begun).json();
    let agent = parked["waiting"][0]["agentRunId"].as_str().unwrap_or_else(|| panic!("{parked}")).to_owned();
    let ways = ["/v1/runs/r/nodes/agent/send".to_owned(), format!("/v1/runs/r/agents/{agent}/send")];
    for (number, way) in ways.iter().enumerate() {
        for id in [Some(number), Some(number), None] {
            let mut body = json!({ "content": "more" });
            if let Some(id) = id {
                body["messageId"] = json!(format!("m{id}"));
            }
            let told = post(way, &body);
            assert_eq!((told.status, &told.json()["accepted"]), (200, &json!(true)), "{told:?}");
        }
    }
    // The two ways are the same inbox, so an id that one has taken is known to the other.
    assert_eq!(post(&ways[0], &json!({ "content": "more", "messageId": "m1" })).status, 200);
    assert_eq!(post(&format!("/v1/runs/r/agents/{agent}/close"), &json!({})).status, 200);
    // The same request again waits for the end.
    let ended = post("/v1/runs?wait=true", &begun).json();
    assert_eq!((&ended["status"], &ended["outputs"]["turns"]), (&json!("succeeded"), &json!(5)), "{ended}");
    // A message to a whole run has no id, and a request with one is told so.
    let refused = post("/v1/runs/r/send", &json!({ "content": "x", "messageId": "m" }));
    assert_eq!(refused.fault(), (400, "bad_request".into()));
    let why = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.contains("messageId") && why.contains("nodes/{node}/send"), "{why}");
}
