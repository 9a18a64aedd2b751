//! Agent runs over HTTP: their list, and their conversations by page.

use std::path::Path;

use flowcell_platform::{Providers, policy::Policy};
use serde_json::{Value, json};

use crate::{
    client::Served,
    samples::hello,
    tenants::{call, served_with},
};

/// A text that is longer than every preview.
const LONG: usize = 300_000;

/// A server whose model asks for two tools, answers with a long text, and then says `done`.
fn served() -> (Served, String) {
    let tool_calls = json!([
        { "name": "data_set", "input": { "object": {}, "path": "n", "value": 3 } },
        { "name": "data_merge", "input": { "objects": [{ "a": 1 }] } },
    ]);
    let script = json!([
        { "match": "Count", "toolCalls": tool_calls },
        { "match": "Count", "text": "ä".repeat(LONG / 2) },
        { "match": "more", "text": "done" },
    ]);
    let profile = json!({ "dialect": "simulated", "model": "m", "script": script });
    let providers = json!({ "default": "one", "profiles": { "one": profile } });
    let providers = Providers::parse(&providers.to_string(), Path::new("")).unwrap();
    let (served, [a, _]) = served_with(&Policy::default(), |builder| builder.providers(providers));
    (served, a)
}

fn flow() -> Value {
    let permissions = json!({ "default": "ask", "rules": [{ "tool": "data.merge", "action": "allow" }] });
    json!({
        "flow": { "name": "counts" },
        "nodes": [{ "id": "bot", "type": "agent.run",
            "input": { "prompt": "Count", "tools": ["data.set", "data.merge"] },
            "config": { "inbox": { "capacity": 8 }, "permissions": permissions },
            "grants": { "model": ["*"], "tools": ["data.*"] } }],
    })
}

#[test]
fn an_agent_is_listed_with_its_state_and_its_conversation_is_read_by_page() {
    let (served, a) = served();
    let get = |path: &str| call(&served, &a, "GET", path, &Value::Null);
    let post = |path: &str, body: &Value| assert_eq!(call(&served, &a, "POST", path, body).status, 200, "{path}");
    let begun = call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": flow(), "runId": "r" }));
    assert_eq!((begun.status, &begun.json()["status"]), (201, &json!("parked")), "{begun:?}");
    assert_eq!(get("/v1/runs/r").json()["hasAgents"], true);
    let agent = || get("/v1/runs/r/agents").json()["agents"][0].clone();
    let asks = agent();
    assert_eq!(
        (&asks["status"], &asks["task"], &asks["hasInbox"], &asks["modelCalls"], &asks["toolCalls"]),
        (&json!("asking"), &json!("bot"), &json!(true), &json!(1), &json!(2)),
        "{asks}"
    );
    assert_eq!((&asks["model"], &asks["usage"]["costUnknown"]), (&json!("m"), &json!(true)), "{asks}");
    let path = format!("/v1/runs/r/agents/{}", asks["agentRunId"].as_str().unwrap());
    let first = get(&path).json();
    let tools = &first["entries"][0]["tools"];
    assert_eq!(
        (&tools[0]["status"], &tools[0]["gate"], &tools[0]["tool"]),
        (&json!("asking"), &json!("bot#3"), &json!("data.set"))
    );
    assert_eq!(
        (&tools[1]["status"], &tools[1]["output"]),
        (&json!("succeeded"), &json!(r#"{"object":{"a":1}}"#)),
        "{first}"
    );
    let called = get(&format!("/v1/runs/{}", tools[1]["runId"].as_str().unwrap())).json();
    assert_eq!((&called["calledBy"], &called["status"]), (&json!("r"), &json!("succeeded")), "the run of the tool");
    assert!(tools[0].get("runId").is_none(), "a call that waits for a person has no run: {first}");

    post("/v1/runs/r/gates/bot%233/reply", &json!({ "answer": "allow" }));
    assert!((0..4_000).any(|_| agent()["status"] == "listening"), "{}", agent());
    post(&format!("{path}/send"), &json!({ "content": "more" }));
    assert!((0..4_000).any(|_| agent()["modelCalls"] == 3 && agent()["status"] == "listening"), "{}", agent());
    post(&format!("{path}/close"), &json!({}));
    assert!((0..4_000).any(|_| agent()["status"] == "succeeded"), "{}", agent());
    let ended = agent();
    assert_eq!(
        (&ended["stopReason"], &ended["entries"], &ended["messages"]),
        (&json!("closed"), &json!(4), &json!(1)),
        "{ended}"
    );

    let whole = get(&path).json();
    let kinds: Vec<_> = whole["entries"].as_array().unwrap().iter().map(|entry| entry["kind"].clone()).collect();
    assert_eq!(kinds, ["answer", "answer", "message", "answer"]);
    assert_eq!(
        (&whole["entries"][0]["tools"][0]["decision"], &whole["entries"][2]["state"]),
        (&json!("allow"), &json!("applied"))
    );
    assert_eq!(whole["entries"][1]["text"].as_str().unwrap().len(), LONG);
    let cut = get(&format!("{path}?preview=101")).json();
    assert_eq!(
        (cut["entries"][1]["text"].as_str().unwrap().len(), &cut["entries"][1]["textBytes"]),
        (100, &json!(LONG)),
        "it is cut at a character"
    );
    let seq = whole["entries"][3]["seq"].as_u64().unwrap();
    let event = get(&format!("/v1/runs/r/events?from={seq}&limit=1")).json();
    assert_eq!(
        (&event["events"][0]["type"], &event["events"][0]["content"][0]["text"]),
        (&json!("agent:message"), &json!("done"))
    );
    let last = get(&format!("{path}?before=9&limit=3&preview=9")).json();
    assert_eq!(
        (&last["entries"][0]["number"], &last["previous"], last.get("next")),
        (&json!(1), &json!(1), None),
        "{last}"
    );
    let first = get(&format!("{path}?limit=3&preview=9")).json();
    assert_eq!((first["entries"].as_array().unwrap().len(), &first["next"]), (3, &json!(3)), "{first}");
}

#[test]
fn requests_for_unknown_agents_and_wrong_pages_are_refused() {
    let served = Served::local();
    assert_eq!(served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "r" })).status, 201);
    assert_eq!(served.get("/v1/runs/r/agents").json(), json!({ "agents": [] }));
    assert!(served.get("/v1/runs/r").json().get("hasAgents").is_none());
    let fault = |path: &str| served.get(path).fault();
    assert_eq!(fault("/v1/runs/none/agents"), (404, "run_not_found".to_owned()));
    assert_eq!(fault("/v1/runs/none/agents/a"), (404, "run_not_found".to_owned()));
    assert_eq!(fault("/v1/runs/r/agents/%3Cimg%3E"), (404, "agent_not_found".to_owned()));
    for query in ["limit=0", "limit=201", "preview=1048577", "preview=-1", "from=x", "kind=answer"] {
        assert_eq!(fault(&format!("/v1/runs/r/agents/a?{query}")), (400, "bad_request".to_owned()), "{query}");
    }
}
