//! Tests `flowcell mcp` through pipes.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    kit::{flowcell, output_of, stdout},
    mcp::conformance::put_flows,
};

/// A client that has started the program.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
    /// The messages of the program other than responses.
    told: Vec<Value>,
    /// The answer to questions for the person. `None` means that the client has no person.
    person: Option<Value>,
}

impl Client {
    pub(crate) fn start(folder: &Path, person: Option<Value>) -> Client {
        let mut command = flowcell(folder);
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let capabilities = if person.is_some() { json!({ "elicitation": {} }) } else { json!({}) };
        let mut client = Client { child, input, output, last: 0, told: Vec::new(), person };
        let this = json!({ "name": "t", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": this });
        let hello = client.ask("initialize", params);
        assert_eq!(hello["serverInfo"]["name"], "flowcell", "{hello}");
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Reads a line, which is one message of the protocol.
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Handles a message other than a response. A question is answered.
    fn handle_notification(&mut self, message: Value) {
        if message["method"] == "elicitation/create" {
            let person = self.person.clone().unwrap();
            self.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": person }));
        }
        self.told.push(message);
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.hear();
            if message["id"] == id && message["method"].is_null() {
                return if message["result"].is_null() { message["error"].clone() } else { message["result"].clone() };
            }
            self.handle_notification(message);
        }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    fn until_notified(&mut self, method: &str) -> Value {
        loop {
            let message = self.hear();
            let found = message["method"] == method;
            self.handle_notification(message);
            if found {
                return self.told.last().cloned().unwrap();
            }
        }
    }

    /// Closes the input. Returns the program's exit code.
    pub(crate) fn leave(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().unwrap().code()
    }
}

pub(crate) fn project_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put_flows(folder.path());
    folder
}

#[test]
fn flows_are_tools() {
    let folder = project_folder();
    let mut client = Client::start(folder.path(), None);
    let tools = client.ask("tools/list", json!({}));
    let tools = tools["tools"].as_array().unwrap();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let asks = tool("test_elicitation");
    assert_eq!(asks["description"], "Asks somebody.");
    assert_eq!(asks["inputSchema"]["properties"]["message"]["default"], "Go on?");
    assert_eq!(asks["inputSchema"]["required"], json!([]), "what has a default need not be given");
    assert_eq!(tool("test_simple_text")["annotations"]["readOnlyHint"], true);
    assert_eq!(tool("flowcell_validate_flow")["annotations"]["readOnlyHint"], true);
    let text = client.call("test_simple_text", json!({}));
    assert_eq!(text["content"][0]["text"], "This is a simple text response for testing.", "{text}");
    assert_eq!(text["_meta"]["flowcell/status"], "succeeded", "{text}");
    let failed = client.call("test_error_handling", json!({}));
    assert_eq!(failed["isError"], true, "{failed}");
    assert_eq!(failed["structuredContent"]["error"]["task"], "fail", "{failed}");
    let wrong = client.call("json_schema_2020_12_tool", json!({ "name": 7 }));
    assert_eq!(wrong["structuredContent"]["error"]["code"], "invalid_input", "{wrong}");
    let unknown = client.call("nothing", json!({}));
    assert_eq!(unknown["code"], -32602, "{unknown}");
    let token = json!({ "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": "p" } });
    let done = client.ask("tools/call", token);
    assert_eq!(done["isError"], false, "{done}");
    let progress: Vec<_> = client.told.iter().filter(|told| told["method"] == "notifications/progress").collect();
    let steps: Vec<_> = progress.iter().map(|told| told["params"]["progress"].as_f64().unwrap()).collect();
    assert_eq!(steps, [1.0, 2.0, 3.0], "{progress:?}");
    assert_eq!(progress[0]["params"]["total"], 3.0);
    assert_eq!(client.leave(), Some(0));
    let runs = stdout(&list_runs(folder.path()));
    assert_eq!(runs.matches("test_simple_text").count(), 1, "the runs are kept: {runs}");
}

fn list_runs(folder: &Path) -> std::process::Output {
    output_of(folder, &["runs", "list", "--json"])
}

#[test]
fn a_gate_is_a_question_to_the_person() {
    let folder = project_folder();
    let accepts = json!({ "action": "accept", "content": { "choice": "yes" } });
    let mut client = Client::start(folder.path(), Some(accepts));
    let answered = client.call("test_elicitation", json!({ "message": "Pay?" }));
    assert_eq!(answered["structuredContent"]["answer"], "yes", "{answered}");
    let question = client.told.iter().find(|told| told["method"] == "elicitation/create").unwrap();
    assert_eq!(question["params"]["message"], "Pay?");
    assert_eq!(question["params"]["requestedSchema"]["properties"]["choice"]["enum"], json!(["yes", "no"]));
    client.person = Some(json!({ "action": "decline" }));
    let declined = client.call("test_elicitation", json!({}));
    assert_eq!(declined["structuredContent"]["status"], "parked", "{declined}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn without_a_person_the_gate_waits_and_survives_the_process() {
    let folder = project_folder();
    let mut client = Client::start(folder.path(), None);
    let parked = client.call("test_elicitation", json!({}));
    let run = parked["structuredContent"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(parked["structuredContent"]["waiting"][0]["address"], "ask", "{parked}");
    assert!(parked["content"][0]["text"].as_str().unwrap().contains("flowcell_answer_gate"), "{parked}");
    assert_eq!(parked["_meta"]["flowcell/runId"], run.as_str());
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let mut client = Client::start(folder.path(), None);
    let shown = client.call("flowcell_get_run", json!({ "runId": run }));
    assert_eq!(shown["structuredContent"]["waiting"][0]["prompt"], "Go on?", "{shown}");
    let answered = client.call("flowcell_answer_gate", json!({ "runId": run, "gate": "ask", "answer": "later" }));
    assert_eq!(answered["structuredContent"]["answer"], "later", "{answered}");
    let late = client.call("flowcell_answer_gate", json!({ "runId": run, "gate": "ask", "answer": "yes" }));
    assert_eq!(late["isError"], true, "{late}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_cancelled_call_cancels_its_run_and_a_killed_run_is_resumed() {
    let folder = project_folder();
    let wait = "flow: { name: slow }\nnodes:\n  - { id: go, type: control.noop }\n  - { id: hold, type: control.wait, \
                input: { ms: 590000 } }\nedges: [{ from: go, to: hold }]\n";
    std::fs::write(folder.path().join("flows/slow.yaml"), wait).unwrap();
    let mut client = Client::start(folder.path(), None);
    let call = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": 1 } });
    let status = |client: &mut Client| {
        let runs = client.call("flowcell_list_runs", json!({ "flow": "slow" }));
        runs["structuredContent"]["runs"][0]["status"].as_str().unwrap().to_owned()
    };
    for _ in 0..20 {
        let id = client.send("tools/call", call.clone());
        client.until_notified("notifications/progress");
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        // Cancelling takes time, so ask until it is done.
        assert!((0..10_000).any(|_| status(&mut client) == "cancelled"));
    }
    client.send("tools/call", call);
    client.until_notified("notifications/progress");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let mut client = Client::start(folder.path(), None);
    assert_ne!(status(&mut client), "cancelled", "a client that is gone has not taken its call back");
    let runs = client.call("flowcell_list_runs", json!({ "flow": "slow" }));
    let run = runs["structuredContent"]["runs"][0]["runId"].clone();
    let cancelled = client.call("flowcell_cancel_run", json!({ "runId": run }));
    assert_eq!(cancelled["structuredContent"]["accepted"], true, "{cancelled}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn authors_of_flows_have_tools() {
    let folder = project_folder();
    let mut client = Client::start(folder.path(), None);
    let types = client.call("flowcell_list_node_types", json!({}));
    assert!(types["structuredContent"]["nodes"].as_array().unwrap().len() > 20);
    let gate = client.call("flowcell_describe_node_type", json!({ "type": "control.gate" }));
    assert!(gate["structuredContent"]["examples"].as_array().is_some_and(|examples| !examples.is_empty()), "{gate}");
    let unknown = client.call("flowcell_describe_node_type", json!({ "type": "control.gat" }));
    assert_eq!(unknown["structuredContent"]["error"]["code"], "node_type_not_found", "{unknown}");
    let bad = "flow: { name: greet }\nnodes: [{ id: a, type: control.nop }]\n";
    let found = client.call("flowcell_validate_flow", json!({ "flow": bad }));
    let finding = &found["structuredContent"]["diagnostics"][0];
    assert_eq!(
        (&finding["line"], finding["code"].is_string(), finding["help"].is_string()),
        (&json!(2), true, true),
        "{found}"
    );
    let refused = client.call("flowcell_create_flow", json!({ "flow": bad }));
    assert_eq!(refused["structuredContent"]["error"]["code"], "invalid_flow", "{refused}");
    let good = bad.replace("control.nop", "control.noop");
    let kept = client.call("flowcell_create_flow", json!({ "flow": good }));
    assert_eq!(kept["structuredContent"]["version"], 1, "{kept}");
    client.until_notified("notifications/tools/list_changed");
    let listed = client.ask("tools/list", json!({}));
    assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "greet"));
    let described = client.call("flowcell_describe_flow", json!({ "name": "greet" }));
    assert_eq!(described["structuredContent"]["inputSchema"]["type"], "object", "{described}");
    let ran = client.call("flowcell_run_flow", json!({ "flow": good, "input": {} }));
    assert_eq!(ran["_meta"]["flowcell/status"], "succeeded", "{ran}");
    let wrong = client.call("flowcell_run_flow", json!({ "flows": "greet" }));
    assert_eq!(wrong["structuredContent"]["error"]["code"], "bad_request", "{wrong}");
    let read = |client: &mut Client, uri: &str| {
        client.ask("resources/read", json!({ "uri": uri }))["contents"][0]["text"].as_str().unwrap().to_owned()
    };
    assert!(read(&mut client, "flowcell://language").contains("# A flow, explained"));
    assert!(read(&mut client, "flowcell://manual/trigger").starts_with("# "));
    assert!(read(&mut client, "flowcell://nodes/control.if").contains("\"examples\""));
    assert!(read(&mut client, "flowcell://schema/graph").contains("\"properties\""));
    let resources = client.ask("resources/list", json!({}));
    assert!(resources["resources"].as_array().unwrap().iter().any(|one| one["uri"] == "flowcell://nodes/control.if"));
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_program_that_is_not_a_client_gets_an_error() {
    let folder = project_folder();
    let mut command = flowcell(folder.path());
    let output = command.arg("mcp").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let memory = Command::new(env!("CARGO_BIN_EXE_flowcell")).args(["mcp", "--store", "memory:"]).output().unwrap();
    assert_eq!(memory.status.code(), Some(2), "runs of tools are durable: {memory:?}");
}

#[test]
fn a_flow_is_inspected_and_tested_without_being_stored() {
    let folder = project_folder();
    let mut client = Client::start(folder.path(), None);
    let flow = json!({
        "flow": { "name": "late", "description": "Waits.", "input": { "n": 1 },
            "outputs": { "n": "{{ hold.waitedMs }}", "m": "{{ flow.input.n | required }}", "k": 7 } },
        "nodes": [{ "id": "go", "type": "control.noop" }, { "id": "hold", "type": "control.wait", "input": { "ms": 3600000 } }],
        "edges": [{ "from": "go", "to": "hold" }],
    });
    let seen = client.call("flowcell_inspect_flow", json!({ "flow": flow }))["structuredContent"].clone();
    assert_eq!((&seen["name"], &seen["description"]), (&json!("late"), &json!("Waits.")));
    assert_eq!(seen["inputSchema"]["properties"]["n"]["default"], 1, "{seen}");
    assert_eq!(seen["outputs"], json!(["k", "m", "n"]));
    assert_eq!((&seen["nodes"][1]["id"], &seen["edges"][0]["to"]), (&json!("hold"), &json!("hold")), "{seen}");
    let tested = client.call("flowcell_test_flow", json!({ "flow": flow, "input": { "n": 2 } }));
    let expected = json!({ "status": "succeeded", "outputs": { "n": 3_600_000, "m": 2, "k": 7 } });
    assert_eq!(tested["structuredContent"], expected);
    let wrong = client.call("flowcell_test_flow", json!({ "flow": flow, "simulate": ["imgs"] }));
    assert_eq!(wrong["isError"], true, "{wrong}");
    assert!(wrong["content"][0]["text"].as_str().unwrap().contains("did you mean `img`?"), "{wrong}");
    // The names of outputs need no values.
    let costly = json!({ "flow": { "name": "x", "outputs": { "big": "{{ range(10000000000) | list | length }}" } }, "nodes": [] });
    let seen = client.call("flowcell_inspect_flow", json!({ "flow": costly }));
    assert_eq!(seen["structuredContent"]["outputs"], json!(["big"]), "{seen}");
    let invalid = client.call("flowcell_inspect_flow", json!({ "flow": { "flow": { "name": "x" } } }));
    assert_eq!(invalid["structuredContent"]["error"]["code"], "invalid_flow", "{invalid}");
    assert_eq!(client.leave(), Some(0));
    assert_eq!(stdout(&list_runs(folder.path())).trim(), "[]");
}

/// The tool `flowcell_test_flow` keeps the values of a test in memory, up to a limit. Without the limit, the values of
/// this test would take 240 MB.
#[test]
fn v13_a_test_of_a_flow_ends_when_its_values_are_too_large() {
    let folder = project_folder();
    let mut client = Client::start(folder.path(), None);
    let each = |items: u32| {
        let list: Vec<_> = (0..items).collect();
        json!({
            "flow": { "name": "large", "input": { "text": "" }, "outputs": { "count": "{{ each.count }}" } },
            "nodes": [
                { "id": "each", "type": "control.foreach", "input": { "list": list, "concurrency": 1 }, "body": ["say"],
                    "bodyOutput": "{{ each.index }}" },
                { "id": "say", "type": "control.noop", "input": { "value": "{{ flow.input.text }}" } },
            ],
        })
    };
    let input = json!({ "text": "x".repeat(600_000) });
    let fits = client.call("flowcell_test_flow", json!({ "flow": each(10), "input": input }));
    assert_eq!(fits["structuredContent"], json!({ "status": "succeeded", "outputs": { "count": 10 } }));
    let large =
        client.call("flowcell_test_flow", json!({ "flow": each(400), "input": input }))["structuredContent"].clone();
    assert_eq!((&large["status"], &large["error"]["code"]), (&json!("failed"), &json!("run_too_large")), "{large}");
    assert_eq!(client.leave(), Some(0));
}
