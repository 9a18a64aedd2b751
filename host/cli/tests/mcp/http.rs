//! Tests `/mcp` of a server: the tools that each token can see, and the separation of sessions.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use flowcell::tenants::Tenants;
use flowcell_server::{Limits, identity::Identify};
use serde_json::{Value, json};

use crate::client::{Answer, Served, ask};

const SEEN: &str = "flow:read";
const ALL: [&str; 6] = ["flow:read", "flow:write", "run:create", "run:read", "run:control", "gate:decide"];

/// Starts a server with a token for each of these tenants and scopes.
fn served(tokens: &[(&str, &[&str])]) -> (Served, Vec<String>) {
    let made = Mutex::new(Vec::new());
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            for (name, scopes) in tokens {
                // Some tenants have several tokens, so creating one may fail.
                let _ = tenants.create(name);
                let scopes: Vec<_> = scopes.iter().map(|&scope| scope.to_owned()).collect();
                made.lock().unwrap().push(tenants.create_token(name, &scopes, "", None).unwrap().token);
            }
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    (served, made.into_inner().unwrap())
}

/// An MCP client with a token.
struct Client<'a> {
    address: SocketAddr,
    token: &'a str,
    session: String,
}

impl<'a> Client<'a> {
    fn begin(served: &Served, token: &'a str) -> Client<'a> {
        let mut client = Client { address: served.address, token, session: String::new() };
        let answer = client.post(&hello());
        assert_eq!(answer.status, 200, "{answer:?}");
        client.session = answer.header("mcp-session-id").unwrap().to_owned();
        let begun = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(begun.status, 202, "{begun:?}");
        client
    }

    fn post(&self, body: &Value) -> Answer {
        post(self.address, self.token, &self.session, body)
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        assert_eq!(answer.status, 200, "{answer:?}");
        let message = answer.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        let messages = message.filter(|data| !data.is_empty()).map(|data| serde_json::from_str::<Value>(data).unwrap());
        let mut answers = messages.filter(|message| message["id"] == 1);
        answers.next().unwrap_or_else(|| panic!("no answer: {answer:?}"))["result"].clone()
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    fn tools(&self) -> Vec<String> {
        let tools = self.ask("tools/list", json!({}));
        let tools = tools["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn hello() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } })
}

/// Posts a message on a new connection, and reads the whole response.
fn post(address: SocketAddr, token: &str, session: &str, body: &Value) -> Answer {
    let token = format!("Bearer {token}");
    let mut headers = vec![("Authorization", token.as_str()), ("Accept", "application/json, text/event-stream")];
    if !session.is_empty() {
        headers.push(("Mcp-Session-Id", session));
    }
    ask(address, "POST", "/mcp", &headers, &body.to_string())
}

/// Returns the text of a flow with one node.
fn greet() -> String {
    [
        "flow: { name: greet, input: { who: world } }",
        "nodes:",
        "  - { id: say, type: data.template, input: { template: \"Hello {{ flow.input.who }}\" } }",
    ]
    .join("\n")
}

#[test]
fn a_token_sees_only_the_tools_of_its_scopes() {
    let (served, tokens) = served(&[("a", &ALL), ("a", &[SEEN]), ("a", &[SEEN, "run:create"])]);
    let all = Client::begin(&served, &tokens[0]);
    assert_eq!(all.call("flowcell_create_flow", json!({ "flow": greet() }))["structuredContent"]["version"], 1);
    let ran = all.call("greet", json!({ "who": "Ada" }));
    assert_eq!(ran["structuredContent"]["say"]["text"], "Hello Ada", "{ran}");
    let run = ran["_meta"]["flowcell/runId"].clone();
    let task = all.call("flowcell_get_task", json!({ "runId": run, "task": "say" }));
    assert_eq!(task["structuredContent"]["attempts"][0]["inputDigest"], "matches", "{task}");
    let none = all.call("flowcell_get_task", json!({ "runId": run, "task": "none" }));
    assert_eq!(none["structuredContent"]["error"]["code"], "task_not_found", "{none}");
    let reads = Client::begin(&served, &tokens[1]);
    let seen = reads.tools();
    assert!(seen.contains(&"flowcell_validate_flow".to_owned()) && !seen.contains(&"greet".to_owned()), "{seen:?}");
    let hidden = [
        ("greet", json!({})),
        ("flowcell_run_flow", json!({ "flow": "greet" })),
        ("flowcell_create_flow", json!({ "flow": greet() })),
        ("flowcell_get_run", json!({ "runId": run })),
        ("flowcell_get_task", json!({ "runId": run, "task": "say" })),
        ("flowcell_list_runs", json!({})),
        ("flowcell_cancel_run", json!({ "runId": run })),
        ("flowcell_answer_gate", json!({ "runId": run, "gate": "ok", "answer": "yes" })),
    ];
    for (tool, arguments) in hidden {
        assert!(!seen.contains(&tool.to_owned()), "{tool}");
        let refused = reads.call(tool, arguments);
        assert_eq!(refused["structuredContent"]["error"]["code"], "forbidden", "{tool}: {refused}");
    }
    let starts = Client::begin(&served, &tokens[2]);
    let seen = starts.tools();
    assert!(seen.contains(&"greet".to_owned()) && !seen.contains(&"flowcell_get_run".to_owned()), "{seen:?}");
    // Each request is checked against its own token and not that of the session's start.
    let borrowed = Client { session: all.session.clone(), ..Client::begin(&served, &tokens[1]) };
    assert_eq!(borrowed.call("greet", json!({}))["structuredContent"]["error"]["code"], "forbidden");
}

#[test]
fn sessions_flows_and_runs_of_another_tenant_are_unknown() {
    let (served, tokens) = served(&[("a", &ALL), ("b", &ALL)]);
    let (a, b) = (Client::begin(&served, &tokens[0]), Client::begin(&served, &tokens[1]));
    a.call("flowcell_create_flow", json!({ "flow": greet() }));
    let run = a.call("greet", json!({}))["_meta"]["flowcell/runId"].clone();
    assert!(run.is_string());
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(post(served.address, &tokens[1], &a.session, &list).status, 404, "a session of another tenant");
    assert!(!b.tools().contains(&"greet".to_owned()));
    let unseen = b.call("flowcell_get_run", json!({ "runId": run }));
    assert_eq!(unseen["structuredContent"]["error"]["code"], "run_not_found", "{unseen}");
    assert_eq!(b.call("flowcell_list_runs", json!({}))["structuredContent"]["runs"], json!([]));
    let token = format!("Bearer {}", tokens[1]);
    let headers = [("Authorization", token.as_str()), ("Mcp-Session-Id", a.session.as_str())];
    ask(served.address, "DELETE", "/mcp", &headers, "");
    assert!(a.tools().contains(&"greet".to_owned()), "nobody else ends a session");
}

#[test]
fn jobs_act_within_the_scopes_of_their_token() {
    let (served, tokens) = served(&[("a", &ALL), ("a", &[SEEN, "run:read"]), ("b", &ALL)]);
    let [a, reads, b] = [0, 1, 2].map(|index| Client::begin(&served, &tokens[index]));
    let asks =
        "flow: { name: asks }\nnodes: [{ id: ok, type: control.gate, input: { prompt: Go?, choices: [yes] } }]\n";
    for run in 0..3 {
        let started = a.call("flowcell_run_flow", json!({ "flow": asks, "input": { "run": run } }));
        assert_eq!(started["structuredContent"]["status"], "parked", "{started}");
    }
    let cancel = |preview: bool| json!({ "action": "cancel", "filter": { "status": "parked", "flow": "asks" }, "preview": preview });
    let code = |answer: &Value| answer["structuredContent"]["error"]["code"].clone();
    for preview in [true, false] {
        assert_eq!(code(&reads.call("flowcell_create_job", cancel(preview))), "forbidden");
    }
    assert_eq!(b.call("flowcell_create_job", cancel(true))["structuredContent"]["runs"], 0);
    let found = a.call("flowcell_create_job", cancel(true));
    assert_eq!(found["structuredContent"]["runs"], 3, "{found}");
    let wrong = json!({ "action": "cancel", "filter": {}, "preview": "yes" });
    for (arguments, expected) in [(wrong, "bad_request"), (json!({ "action": "cancel", "filter": {} }), "bad_request")]
    {
        assert_eq!(code(&a.call("flowcell_create_job", arguments)), expected);
    }
    let job = a.call("flowcell_create_job", cancel(false))["structuredContent"]["id"].clone();
    let shown = || a.call("flowcell_get_job", json!({ "job": job }))["structuredContent"].clone();
    let ended = std::iter::repeat_with(shown).take(2_000).find(|job| job["state"] == "done");
    assert_eq!(ended.map(|job| job["done"].clone()), Some(json!(3)));
    assert_eq!(a.call("flowcell_list_jobs", json!({}))["structuredContent"]["jobs"][0]["id"], job);
    let steer = json!({ "job": job, "command": "pause" });
    assert_eq!(code(&reads.call("flowcell_steer_job", steer.clone())), "forbidden");
    for (tool, arguments) in [("flowcell_get_job", json!({ "job": job })), ("flowcell_steer_job", steer)] {
        let unknown = code(&b.call(tool, arguments));
        assert_eq!(unknown, "job_not_found", "{tool}");
    }
}

#[test]
fn h3_requests_of_web_pages_are_refused() {
    let served = Served::local();
    let body = hello().to_string();
    let accept = ("Accept", "application/json, text/event-stream");
    for foreign in [("Host", "evil.test"), ("Origin", "http://evil.test"), ("Origin", "null")] {
        for method in ["POST", "GET", "DELETE"] {
            let answer =
                ask(served.address, method, "/mcp", &[accept, foreign], if method == "POST" { &body } else { "" });
            assert_eq!(answer.status, 403, "{method} {foreign:?}: {answer:?}");
        }
    }
    let own = format!("http://{}", served.address);
    assert_eq!(ask(served.address, "POST", "/mcp", &[accept, ("Origin", &own)], &body).status, 200);
}

#[test]
fn sessions_and_bodies_have_limits() {
    let (served, tokens) = served(&[("a", &ALL), ("b", &ALL)]);
    let sessions: Vec<_> = (0..100).map(|_| Client::begin(&served, &tokens[0])).collect();
    let full = post(served.address, &tokens[0], "", &hello());
    assert_eq!(full.status, 429, "{full:?}");
    assert!(full.body.contains("too_many_sessions"), "{full:?}");
    Client::begin(&served, &tokens[1]);
    let token = format!("Bearer {}", tokens[0]);
    let headers = [("Authorization", token.as_str()), ("Mcp-Session-Id", sessions[0].session.as_str())];
    let ended = ask(served.address, "DELETE", "/mcp", &headers, "");
    assert!([200, 202, 204].contains(&ended.status), "{ended:?}");
    Client::begin(&served, &tokens[0]);
    let large =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "cursor": "x".repeat(9 << 20) } });
    assert_eq!(post(served.address, &tokens[0], &sessions[1].session, &large).status, 413);
}

#[test]
fn without_a_session_a_call_returns_its_open_gates() {
    let served = Served::local();
    let choices = json!(["yes", "no"]);
    let flow = json!({
        "flow": { "name": "asks" },
        "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": choices } }],
    });
    let version = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let params = json!({ "name": "flowcell_run_flow", "arguments": { "flow": flow }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", version),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "flowcell_run_flow"),
    ];
    let answer = ask(served.address, "POST", "/mcp", &headers, &body.to_string());
    assert_eq!((answer.status, answer.header("mcp-session-id")), (200, None), "{answer:?}");
    assert!(answer.body.contains("\"status\":\"parked\"") && answer.body.contains("Go on?"), "{answer:?}");
}

#[test]
fn a_script_is_checked_tested_stored_and_called() {
    let (served, tokens) = served(&[("a", &ALL)]);
    let client = Client::begin(&served, &tokens[0]);
    let script = "export const setup = flow => { flow.title('Asks'); flow.inText('who'); flow.outText('said') };
        export async function run(services) {
            services.outputs('said', (await services.agent(`Hello ${services.inputs.who}`)).value);
        }";
    let flow = json!({ "name": "asks", "script": script });
    let call = |tool: &str, arguments: Value| client.call(tool, arguments)["structuredContent"].clone();
    assert_eq!(call("flowcell_validate_flow", json!({ "flow": flow })), json!({ "valid": true, "diagnostics": [] }));
    let inspected = call("flowcell_inspect_flow", json!({ "flow": flow }));
    assert_eq!((&inspected["name"], &inspected["script"]["title"]), (&json!("asks"), &json!("Asks")), "{inspected}");
    let tested = call("flowcell_test_flow", json!({ "flow": flow, "input": { "who": "Ada" } }));
    assert_eq!(tested["outputs"], json!({ "said": "simulated reply to: Hello Ada" }), "{tested}");
    assert_eq!(call("flowcell_create_flow", json!({ "flow": flow }))["version"], 1);
    assert!(client.tools().contains(&"asks".to_owned()));
    let missing = client.call("asks", json!({}));
    assert_eq!(missing["structuredContent"]["error"]["code"], "invalid_input", "{missing}");
    let broken = json!({ "flow": { "name": "asks", "script": "function run() {\n  return 1 +;\n}" } });
    let told = call("flowcell_validate_flow", broken)["diagnostics"][0].clone();
    assert_eq!(
        (&told["code"], &told["line"], &told["column"]),
        (&json!("bad_script"), &json!(2), &json!(13)),
        "{told}"
    );
}

#[test]
fn tools_are_listed_by_page() {
    let (served, tokens) = served(&[("local", &ALL)]);
    let client = Client::begin(&served, &tokens[0]);
    let folder = served.folder().join("flows");
    std::fs::create_dir_all(&folder).unwrap();
    let describe = "x".repeat(3_500_000);
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        let flow = json!({ "flow": { "name": name, "description": describe }, "nodes": [{ "id": "n", "type": "control.noop" }] });
        std::fs::write(folder.join(format!("{name}.json")), flow.to_string()).unwrap();
    }
    // Invalid flows also count towards the flows that one page examines.
    (0..200).for_each(|index| std::fs::write(folder.join(format!("bad{index:03}.json")), "").unwrap());
    let (mut names, mut sizes, mut params) = (Vec::new(), Vec::new(), json!({}));
    loop {
        let page = client.ask("tools/list", params);
        let tools = page["tools"].as_array().unwrap();
        let flows =
            tools.iter().map(|tool| tool["name"].as_str().unwrap()).filter(|name| !name.starts_with("flowcell_"));
        let flows: Vec<_> = flows.map(str::to_owned).collect();
        sizes.push(flows.len());
        names.extend(flows);
        assert!(page.to_string().len() <= 17 << 20, "{sizes:?}");
        let Some(next) = page["nextCursor"].as_str() else { break };
        params = json!({ "cursor": next });
    }
    assert_eq!((names.concat().as_str(), sizes), ("abcdefg", vec![2, 4, 1]));
    let listed = client.call("flowcell_list_flows", json!({ "cursor": "f" }));
    let listed = &listed["structuredContent"]["flows"];
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &json!("g")));
}
