//! Tests tools of an operator's MCP server.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

use flowcell_mcpfake::{Plan, http::Fake};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    kit::stderr,
    tools::project::{Project, calling, saying},
};

/// A project, and an MCP server with the name `fake`.
struct World {
    project: Project,
    _fake: Fake,
    _runtime: Runtime,
}

impl World {
    fn new(granted: &[&str], calls: &[(&str, Value)]) -> World {
        let runtime = Runtime::new().unwrap();
        let fake = runtime.block_on(Fake::start(Plan::default())).unwrap();
        let replies: Vec<_> = calls.iter().map(|call| calling(std::slice::from_ref(call))).collect();
        let replies = [replies, vec![saying("done")]].concat();
        let config = json!({ "permissions": { "default": "allow" } });
        let project = Project::new(&json!({ "prompt": "go", "tools": ["mcp:*"] }), &config, granted, &replies);
        let address = fake.address().to_string();
        let servers = json!({ "fake": { "url": format!("http://{address}/mcp"), "allowPrivate": [address] } });
        project.write("mcp.yaml", &servers.to_string());
        World { project, _fake: fake, _runtime: runtime }
    }

    /// Runs the flow `errand.json`, and kills its process when an event reports that the agent calls this tool.
    fn killed_at(&self, tool: &str) {
        let arguments = ["run", "errand.json", "--run-id", "a", "--quiet", "--events", "-", "--mcp", "mcp.yaml"];
        let mut command = self.project.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let seen = lines.any(|line| {
            let event: Value = serde_json::from_str(&line).unwrap();
            event["type"] == "agent:tool:start" && event["tool"] == tool
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen, "{tool} was not called");
    }
}

const WITH_SERVERS: [&str; 2] = ["--mcp", "mcp.yaml"];

#[test]
fn an_agent_calls_only_the_granted_tools_of_a_server() {
    let calls =
        [("mcp_fake_echo", json!({ "text": "hello" })), ("mcp_fake_fail", json!({})), ("mcp_fake_refuse", json!({}))];
    let world = World::new(&["mcp:fake/echo", "mcp:fake/fail"], &calls);
    assert_eq!(world.project.outputs(&WITH_SERVERS), json!({ "result": "done", "stop": "end" }));
    let results = world.project.events("agent:tool:result");
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!((&results[0]["tool"], &results[0]["summary"]), (&json!("mcp:fake/echo"), &json!("hello")));
    let errors = world.project.events("agent:tool:error");
    assert_eq!(errors.len(), 1, "what is not granted does not get as far: {errors:?}");
    assert_eq!((&errors[0]["tool"], &errors[0]["error"]["code"]), (&json!("mcp:fake/fail"), &json!("tool_failed")));
}

#[test]
fn a_tool_that_may_have_run_is_not_called_again() {
    let world = World::new(&["mcp:*"], &[("mcp_fake_slow", json!({}))]);
    world.killed_at("mcp:fake/slow");
    let output = world.project.run(&WITH_SERVERS);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("runs resolve"), "{}", stderr(&output));
    let resolve = |reply: &str| world.project.done(&["runs", "resolve", "a", "agent", "--reply", reply]);
    let refused = resolve(r#"{ "result": "it did" }"#);
    let form = r#"a reply has no member `result`; write the reply of `tools.start-call` as { "output": … }"#;
    assert!(!refused.status.success() && stderr(&refused).contains(form), "{}", stderr(&refused));
    let given = world.project.done(&["runs", "resolve", "a", "agent", "--output", r#"{ "result": "it did" }"#]);
    let why = r#"does not match the output schema of `agent.run`: "usage" is a required property"#;
    assert!(given.status.code() == Some(2) && stderr(&given).contains(why), "{}", stderr(&given));
    let resolved = resolve(r#"{ "output": "it did" }"#);
    assert!(resolved.status.success(), "{}", stderr(&resolved));
    assert_eq!(world.project.outputs(&WITH_SERVERS)["result"], "done");
    assert_eq!(world.project.events("agent:tool:result")[0]["summary"], "it did");
}

/// W11d: if the host is killed, the tool server that it has started ends, and so do the server's child processes.
#[cfg(target_os = "linux")]
#[test]
fn w11d_a_tool_server_and_its_children_end_with_a_killed_host() {
    let world = World::new(&["mcp:*"], &[]);
    // The server and its children never read their input. One child is in its own session.
    let script = "sleep 600 & echo $! > child; setsid sleep 600 & echo $! > other; echo $$ > own; exec sleep 600";
    let server = json!({ "command": "/bin/sh", "args": ["-c", script], "env": ["PATH"] });
    world.project.write("mcp.yaml", &json!({ "fake": server }).to_string());
    let mut host = world.project.command(&["run", "errand.json", "--run-id", "a", "--quiet", "--mcp", "mcp.yaml"]);
    let mut host = host.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let read = |name: &str| world.project.read(name).filter(|text| text.ends_with('\n'));
    until(|| read("own").is_some());
    let ids = ["child", "other", "own"].map(|name| read(name).unwrap().trim().to_owned());
    assert!(ids.iter().all(|id| runs(id)), "{ids:?}");
    host.kill().unwrap();
    host.wait().unwrap();
    until(|| !ids.iter().any(|id| runs(id)));
}

/// Returns whether a process runs. A zombie does not.
fn runs(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_invalid_file_of_servers_is_reported_with_its_place() {
    let world = World::new(&["mcp:*"], &[]);
    world.project.write("mcp.yaml", "fake: { command: x, url: y }\n");
    let output = world.project.run(&WITH_SERVERS);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("mcp.yaml") && stderr(&output).contains("mcp.fake"), "{}", stderr(&output));
}
