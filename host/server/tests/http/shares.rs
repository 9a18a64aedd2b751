//! Servers that tenants share. Hanging calls of one tenant do not delay the calls of another.
//!
//! A tenant may use two of a server's four permits. So the tests count the calls that arrive, and do not measure time.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use flowcell_mcpfake::{List, Plan, http::Fake};
use flowcell_platform::{Providers, policy::Policy};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    client::Served,
    tenants::{call, served_with},
};

/// The number of calls of the first tenant.
const CALLS: usize = 12;
/// The number of these calls that get a permit.
const MAX_HELD_CALLS: usize = 2;

/// A server with two tenants, and an MCP server with four permits for calls.
struct World {
    /// The runtime of the MCP server. It is the first field, so it is dropped first. This ends the hanging calls, so
    /// that the Flowcell server does not wait for them.
    _runtime: Runtime,
    served: Served,
    tokens: [String; 2],
    fake: Fake,
    _folder: TempDir,
}

impl World {
    fn new(plan: Plan) -> World {
        let runtime = Runtime::new().unwrap();
        let fake = runtime.block_on(Fake::start(plan)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [mcp, services] = ["mcp.yaml", "services.yaml"].map(|name| folder.path().join(name));
        let address = fake.address().to_string();
        let server = json!({ "url": format!("http://{address}/mcp"), "allowPrivate": [address], "maxCalls": 4 });
        fs::write(&mcp, json!({ "fake": server }).to_string()).unwrap();
        let tools = ["slow", "echo"].map(|tool| (tool.to_owned(), json!({ "tool": format!("mcp:fake/{tool}") })));
        fs::write(&services, Value::Object(tools.into_iter().collect()).to_string()).unwrap();
        let (served, tokens) =
            served_with(&Policy::default(), |builder| builder.mcp_file(&mcp).services_file(&services));
        World { _runtime: runtime, served, tokens, fake, _folder: folder }
    }

    fn run(&self, tenant: usize, query: &str, flow: &Value) -> Value {
        let answer =
            call(&self.served, &self.tokens[tenant], "POST", &format!("/v1/runs{query}"), &json!({ "flow": flow }));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    /// Calls the echo tool as the second tenant.
    fn echoes(&self) {
        let ended = self.run(1, "?wait=true", &script("return await services.echo({ text: 'hello' })"));
        assert!(ended["outputs"]["result"].to_string().contains("hello"), "{ended}");
    }
}

fn script(body: &str) -> Value {
    let script = format!("export const run = async services => {{ {body} }}");
    json!({ "name": "calls", "script": script })
}

/// Waits up to 60 s until the condition is true.
fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn t1_calls_that_hang_at_a_shared_mcp_server_do_not_delay_other_tenants() {
    let world = World::new(Plan::default());
    let hangs = format!(
        "return await Promise.all(Array.from({{ length: {CALLS} }}, () => services.slow({{}}).catch(e => e.code)))"
    );
    world.run(0, "", &script(&hangs));
    until(|| world.fake.called("slow") == MAX_HELD_CALLS);
    for _ in 0..3 {
        world.echoes();
    }
    assert_eq!((world.fake.called("slow"), world.fake.called("echo")), (MAX_HELD_CALLS, 3));
}

#[test]
fn t1_hanging_lists_of_tools_do_not_delay_other_tenants() {
    let world = World::new(Plan { list: List::Silent, ..Plan::default() });
    let agent = |number: usize| {
        json!({ "id": format!("a{number}"), "type": "agent.run", "input": { "prompt": "go", "tools": ["mcp:*"] },
            "grants": { "model": ["*"], "tools": ["mcp:*"] } })
    };
    let agents = |count: usize| {
        json!({ "flow": { "name": "agents" },
            "nodes": (0..count).map(agent).collect::<Vec<_>>(), "edges": [] })
    };
    world.run(0, "", &agents(CALLS));
    until(|| world.fake.listed() == MAX_HELD_CALLS);
    world.echoes();
    assert_eq!(world.fake.listed(), MAX_HELD_CALLS);
    // The calls of the next tenant start at once.
    world.run(1, "", &agents(1));
    until(|| world.fake.listed() == MAX_HELD_CALLS + 1);
}

#[test]
fn t1_turns_that_hang_at_a_shared_provider_do_not_delay_other_tenants() {
    let runtime = Runtime::new().unwrap();
    let turns = json!([
        { "expect": { "lastText": "hang" }, "fault": "noHead", "repeat": true },
        { "reply": { "text": "done" }, "repeat": true },
    ]);
    let fake = runtime.block_on(flowcell_modelfake::Fake::start(json!({ "turns": turns }))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "test-key").unwrap();
    let profile = json!({ "dialect": "chat", "model": "m", "baseUrl": fake.url("/v1"), "keyFile": key,
        "allowPrivate": [fake.address().to_string()], "maxCalls": 4, "maxTokens": 10 });
    let providers = json!({ "default": "fake", "profiles": { "fake": profile } });
    let providers = Providers::parse(&providers.to_string(), Path::new("")).unwrap();
    let (served, tokens) = served_with(&Policy::default(), |builder| builder.providers(providers));
    let run = |token: &str, query: &str, prompt: &str, count: usize| {
        let agent = |number: usize| {
            json!({ "id": format!("a{number}"), "type": "agent.run", "input": { "prompt": prompt },
                "grants": { "model": ["*"] } })
        };
        let flow = json!({ "flow": { "name": "agents" },
            "nodes": (0..count).map(agent).collect::<Vec<_>>(), "edges": [] });
        call(&served, token, "POST", &format!("/v1/runs{query}"), &json!({ "flow": flow }))
    };
    assert_eq!(run(&tokens[0], "", "hang", CALLS).status, 201);
    until(|| fake.requests().len() == MAX_HELD_CALLS);
    let ended = run(&tokens[1], "?wait=true", "go", 1).json();
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!(fake.requests().len(), MAX_HELD_CALLS + 1);
    // This ends the hanging turns, so that the server does not wait for them.
    drop(runtime);
}
