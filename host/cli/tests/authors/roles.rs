//! Uses one pack in three roles: as a command, as a tool of an agent, and as a tool of another program's agent. All
//! have the schemas of its manifest.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    authors::language::{done, flowcell},
    kit,
};

/// A model that reads a table with the pack's tool.
const PROVIDERS: &str = r#"default: scripted
profiles:
  scripted:
    dialect: simulated
    model: one
    script:
      - { match: table, toolCalls: [{ name: csv_read, input: { text: "n\n1\n", types: { n: integer } } }] }
      - { match: table, text: There is 1 row. }
"#;
const AGENT: &str = r#"flow:
  name: reader
  outputs: { result: '{{ agent.result }}' }
nodes:
  - id: agent
    type: agent.run
    input: { prompt: Read the table., tools: ['csv.*'] }
    config: { permissions: { default: allow } }
    grants: { model: ['*'], tools: ['csv.*'] }
"#;

#[test]
fn a_pack_is_a_command_a_tool_of_agents_and_a_tool_over_mcp() {
    let folder = tempfile::tempdir().unwrap();
    let packs = folder.path().join("packs");
    done(flowcell(&kit::root()).args(["node", "build", "nodes/examples/csv", "--out"]).arg(&packs));
    command(folder.path());
    agent(folder.path());
    over_mcp(folder.path());
}

fn command(folder: &Path) {
    let types = "types={\"n\":\"integer\"}";
    let arguments = ["node", "run", "csv.read", "-i", "text=n\n1\n", "-i", types, "--packs", "packs", "--quiet"];
    let read: Value = serde_json::from_str(&done(flowcell(folder).args(arguments))).unwrap();
    assert_eq!(read, json!({ "columns": ["n"], "rows": [{ "n": 1 }] }));
    let unfit = flowcell(folder).args(["node", "run", "csv.read", "-i", "txt=n", "--packs", "packs"]).output().unwrap();
    assert_eq!(unfit.status.code(), Some(1));
    assert!(kit::stderr(&unfit).contains("invalid_input"), "{}", kit::stderr(&unfit));
}

fn agent(folder: &Path) {
    fs::write(folder.join("providers.yaml"), PROVIDERS).unwrap();
    fs::write(folder.join("reader.yaml"), AGENT).unwrap();
    let arguments = ["run", "reader.yaml", "--quiet", "--store", "memory:", "--packs", "packs", "--events", "events"];
    let read = done(flowcell(folder).args(arguments).args(["--providers", "providers.yaml"]));
    assert_eq!(serde_json::from_str::<Value>(&read).unwrap(), json!({ "result": "There is 1 row." }));
    let events = fs::read_to_string(folder.join("events")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended = events.iter().find(|event| event["type"] == "agent:tool:result").unwrap();
    assert!(ended.to_string().contains(r#"\"rows\""#) || ended.to_string().contains(r#""rows""#), "{ended}");
}

fn over_mcp(folder: &Path) {
    let flows = kit::root().join("flows/packs");
    let mut command = flowcell(folder);
    command.args(["mcp", "--packs", "packs", "--flows"]).arg(flows);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |id: u64, method: &str, params: Value| {
        writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    let this = json!({ "name": "t", "version": "1" });
    ask(1, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": this }));
    let listed = ask(2, "tools/list", json!({}));
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"orders") && !names.contains(&"words"), "flows whose packs are there: {names:?}");
    let described =
        ask(3, "tools/call", json!({ "name": "flowcell_describe_node_type", "arguments": { "type": "csv.read" } }));
    assert!(described.to_string().contains("csv_field"), "{described}");
    let table = json!({ "table": "id,amount,paid\nB-1,2,false\n" });
    let called = ask(4, "tools/call", json!({ "name": "orders", "arguments": table }));
    assert_eq!(called["structuredContent"]["table"], "id,amount\nB-1,2.0\n", "{called}");
    drop(input);
    child.wait().unwrap();
}
