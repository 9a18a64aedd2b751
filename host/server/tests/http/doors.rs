//! Every way to start a run, under the quotas of its tenant and while the server drains.

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_platform::{
    HostBuilder,
    policy::{PerDay, Policy},
};
use ring::hmac;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, ask},
    samples::{asks, hello},
    tenants::{call, served_with},
};

const KEY: &str = "a-key-of-many-characters";

/// A way to start a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StartRoute {
    Named,
    Whole,
    Retry,
    Steps,
    RunTool,
    FlowTool,
    Webhook,
}

const START_ROUTES: [StartRoute; 7] = [
    StartRoute::Named,
    StartRoute::Whole,
    StartRoute::Retry,
    StartRoute::Steps,
    StartRoute::RunTool,
    StartRoute::FlowTool,
    StartRoute::Webhook,
];

/// A server with the tenants `a` and `b`. Each has a flow that every route can start, and an ended run `done` that can
/// be retried.
struct House {
    served: Served,
    tokens: [String; 2],
}

impl House {
    fn new(policy: &Policy, build: impl FnOnce(HostBuilder) -> HostBuilder) -> House {
        let (served, tokens) = served_with(policy, build);
        let house = House { served, tokens };
        let mut flow = hello();
        flow["flow"]["triggers"] = json!([{ "id": "hook", "webhook": { "secret": "key" } }]);
        let steps =
            json!({ "name": "s", "inputs": [], "steps": [{ "id": "a", "tool": "control.noop", "params": {} }] });
        for tenant in 0..2 {
            let done = [
                house.call(tenant, "PUT", "/v1/secrets/key", &signing_key()),
                house.call(tenant, "POST", "/v1/flows", &json!({ "flow": flow })),
                house.call(tenant, "POST", "/api/create_flow", &json!({ "flow": steps })),
                house.call(tenant, "POST", "/v1/runs?wait=true", &json!({ "flow": "hello", "runId": "done" })),
            ];
            done.iter().for_each(|answer| assert!(answer.status < 300, "{answer:?}"));
            let listed = || house.call(tenant, "GET", "/v1/triggers", &Value::Null).body.contains("hook");
            assert!((0..20_000).any(|_| listed()), "the trigger is not found");
        }
        house
    }

    fn call(&self, tenant: usize, method: &str, path: &str, body: &Value) -> Answer {
        call(&self.served, &self.tokens[tenant], method, path, body)
    }

    /// Starts a run through this route. `id` is the id of the post to a webhook; only a new id starts a new run.
    fn start(&self, tenant: usize, route: StartRoute, id: &str) -> Answer {
        let post = |path: &str, body: &Value| self.call(tenant, "POST", path, body);
        match route {
            StartRoute::Named => post("/v1/runs", &json!({ "flow": "hello" })),
            StartRoute::Whole => post("/v1/runs", &json!({ "flow": hello() })),
            StartRoute::Retry => post("/v1/runs/done/retry", &json!({})),
            StartRoute::Steps => post("/api/run_flow", &json!({ "flow_name": "s" })),
            StartRoute::RunTool => {
                tool(&self.served, &self.tokens[tenant], "flowcell_run_flow", &json!({ "flow": "hello" }))
            }
            StartRoute::FlowTool => tool(&self.served, &self.tokens[tenant], "hello", &json!({})),
            StartRoute::Webhook => {
                let path = format!("/v1/hooks/{}/hello/hook", ["a", "b"][tenant]);
                hook(&self.served, &path, id, r#"{"who":"post"}"#)
            }
        }
    }

    /// Checks that a route refuses the first tenant for this reason, with this status. A tool call has no status: it
    /// reports an error.
    #[track_caller]
    fn is_refused(&self, route: StartRoute, status: u16, why: &str) {
        let refused = self.start(0, route, "refused");
        let is_error = match route {
            StartRoute::RunTool | StartRoute::FlowTool => refused.body.contains("\"isError\":true"),
            _ => refused.status == status,
        };
        assert!(is_error && refused.body.contains(why), "{route:?}: {refused:?}");
    }

    #[track_caller]
    fn is_open(&self, tenant: usize, route: StartRoute, id: &str) {
        let begun = self.start(tenant, route, id);
        assert!(begun.status < 300 && !begun.body.contains("\"isError\":true"), "{route:?}: {begun:?}");
    }

    fn count_runs(&self, tenant: usize) -> usize {
        self.call(tenant, "GET", "/v1/runs", &Value::Null).json()["runs"].as_array().unwrap().len()
    }
}

/// Calls a tool over MCP without a session.
pub(crate) fn tool(served: &Served, token: &str, name: &str, arguments: &Value) -> Answer {
    let version = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let token = format!("Bearer {token}");
    let headers = [
        ("Authorization", token.as_str()),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", version),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", name),
    ];
    ask(served.address, "POST", "/mcp", &headers, &body.to_string())
}

/// Returns the secret that signs the posts of [`hook`].
pub(crate) fn signing_key() -> Value {
    json!({ "value": KEY, "for": ["webhook"] })
}

/// Posts a signed body to a trigger.
pub(crate) fn hook(served: &Served, path: &str, id: &str, body: &str) -> Answer {
    hook_signed_by(KEY, served, path, id, body)
}

/// Posts a body that this secret signs to a trigger.
pub(crate) fn hook_signed_by(key: &str, served: &Served, path: &str, id: &str, body: &str) -> Answer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signed = STANDARD.encode(hmac::sign(&key, format!("{id}.{now}.{body}").as_bytes()));
    let signature = format!("v1,{signed}");
    let headers = [("webhook-id", id), ("webhook-timestamp", &now), ("webhook-signature", &signature)];
    ask(served.address, "POST", path, &headers, body)
}

#[test]
fn t1_every_way_to_start_a_run_respects_the_limit_of_live_runs() {
    let house = House::new(&Policy { max_live_runs: Some(1), ..Policy::default() }, |builder| builder);
    let parked = house.call(0, "POST", "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "rests" }));
    assert_eq!(parked.json()["status"], "parked", "{parked:?}");
    for route in START_ROUTES {
        house.is_refused(route, 429, "which is its limit");
        house.is_open(1, route, "open");
    }
    assert_eq!(house.count_runs(0), 2, "a refused run was begun");
    assert_eq!(house.call(0, "POST", "/v1/runs/rests/cancel", &json!({})).status, 200);
    // One run at a time may begin, whichever route it takes.
    for route in START_ROUTES {
        let begun = || house.start(0, route, "refused");
        let begun = (0..20_000).map(|_| begun()).find(|begun| !begun.body.contains("which is its limit")).unwrap();
        assert!(begun.status < 300 && !begun.body.contains("\"isError\":true"), "{route:?}: {begun:?}");
    }
}

#[test]
fn t2_every_way_to_start_a_run_respects_the_daily_quotas() {
    let per_day = PerDay { events: Some(1), ..PerDay::default() };
    let house = House::new(&Policy { per_day, ..Policy::default() }, |builder| builder);
    for route in START_ROUTES {
        // The run `done` has used up the quota.
        house.is_refused(route, 429, "events");
        house.is_open(1, route, "open");
    }
    assert_eq!(house.count_runs(0), 1, "a refused run was begun");
}

#[test]
fn r23_a_draining_server_refuses_every_way_to_start_a_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let loopback = "127.0.0.0/8".parse().unwrap();
    let mut house = House::new(&Policy::default(), |builder| builder.allow_private([loopback]));
    let node = json!({ "id": "a", "type": "http.request", "input": { "url": url }, "grants": { "http": [url] } });
    let hangs = json!({ "flow": { "name": "hangs" }, "nodes": [node] });
    assert_eq!(house.call(1, "POST", "/v1/runs", &json!({ "flow": hangs })).status, 201);
    // The server waits some seconds for the end of this call.
    let (mut pending, _) = listener.accept().unwrap();
    let asked = read_head(&mut pending);
    assert!(asked.starts_with("GET / "), "{asked}");
    house.served.begin_stop();
    // It is unready before it refuses runs: balancers get time to notice.
    let resume = || house.call(0, "POST", "/v1/runs/done/resume", &json!({}));
    assert!((0..20_000).any(|_| resume().fault() == (503, "draining".to_owned())));
    assert_eq!(house.served.get("/readyz").status, 503);
    for route in START_ROUTES {
        house.is_refused(route, 503, "the server is stopping");
    }
    assert_eq!(house.count_runs(0), 1, "a refused run was begun");
    pending.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
}

/// Reads the head of a request.
fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}
