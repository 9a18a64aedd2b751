//! Clients and servers that others wrote: pytest-lsp and Neovim use `flowcell lsp`, and the language server for YAML the
//! schema of `flowcell schema --types`.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::{Server, end_in_time, position, uri};
use crate::kit::{self, flowcell, root};

/// Runs a client with the settings of the program, and returns its output also as a text.
fn output_with_program(mut client: Command, program: &mut Command) -> (Output, String) {
    client.env("FLOWCELL_PROGRAM", program.get_program());
    for (name, value) in program.env("FLOWCELL_LOG", "off").get_envs() {
        if let Some(value) = value {
            client.env(name, value);
        }
    }
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watched = end_in_time(&client);
    let output = client.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output, printed)
}

#[test]
fn a_client_that_others_wrote_agrees() {
    if !kit::has_program("pytest") {
        return;
    }
    let mut pytest = Command::new("pytest");
    pytest
        .args(["-q", "--asyncio-mode=auto", "-p", "no:cacheprovider", "test_editor.py"])
        .current_dir(root().join("host/cli/tests/lsp"));
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").env("FLOWCELL_EXAMPLES", root().join("flows/graph"));
    let (output, printed) = output_with_program(pytest, &mut flowcell(&root()));
    if printed.contains("No module named 'pytest_lsp'") {
        return kit::skip_without("pytest-lsp");
    }
    assert!(output.status.success(), "{printed}");
}

#[test]
fn neovim_agrees() {
    if !kit::has_program("nvim") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let flow = folder.path().join("triage.yaml");
    fs::copy(root().join("flows/graph/triage.yaml"), &flow).unwrap();
    let mut neovim = Command::new("nvim");
    // Without settings, swap file and history.
    neovim.args(["--headless", "--clean", "-n", "-i", "NONE", "-S"]).arg(root().join("host/cli/tests/lsp/editor.lua"));
    neovim.current_dir(folder.path()).env("FLOWCELL_FLOW", &flow);
    let (output, printed) = output_with_program(neovim, &mut flowcell(folder.path()));
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("the rename leaves `route`"), "{printed}");
}

#[test]
fn the_yaml_language_server_completes_and_checks_types_and_inputs() {
    if !kit::has_program("yaml-language-server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let schema = flowcell(folder.path()).args(["schema", "--types"]).output().unwrap();
    fs::write(folder.path().join("flow.schema.json"), schema.stdout).unwrap();
    let mut command = Command::new("yaml-language-server");
    command.arg("--stdio").current_dir(folder.path());
    let mut server = Server::run(command);
    server.ask("initialize", json!({ "capabilities": {}, "processId": null, "rootUri": null }));
    server.tell("initialized", json!({}));
    // Nothing is loaded from the network.
    let settings = json!({ "schemaStore": { "enable": false }, "validate": true, "completion": true, "hover": true });
    server.tell("workspace/didChangeConfiguration", json!({ "settings": { "yaml": settings } }));
    let flow = |node: &str| {
        format!(
            "# yaml-language-server: $schema=./flow.schema.json\nflow:\n  name: a\nnodes:\n  - id: x\n    type: {node}"
        )
    };
    let uri = |name: &str| uri(&folder.path().join(name));
    let mut offered = |name: &str, node: &str| -> Vec<String> {
        let text = flow(node);
        server.open(&uri(name), &text);
        let place = json!({ "textDocument": { "uri": uri(name) }, "position": position(&text, text.len()) });
        let reply = server.ask("textDocument/completion", place);
        let items = reply["result"]["items"].as_array().unwrap_or_else(|| panic!("{reply}"));
        items.iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect()
    };
    let types = offered("types.yaml", "");
    for name in ["control.foreach", "agent.run", "http.request"] {
        assert!(types.iter().any(|label| label == name), "{name} of {types:?}");
    }
    let inputs = offered("inputs.yaml", "control.foreach\n    input:\n      ");
    for name in ["list", "concurrency", "onItemError"] {
        assert!(inputs.iter().any(|label| label == name), "{name} of {inputs:?}");
    }
    assert!(inputs.iter().all(|label| !label.contains('%')), "{inputs:?}");
    assert_eq!(offered("values.yaml", "control.foreach\n    input:\n      onItemError: "), ["fail", "collect"]);
    for (name, node, message) in [
        ("right.yaml", "control.foreach\n    input: { list: [1], concurrency: \"{{ flow.input.n }}\" }\n", None),
        ("type.yaml", "control.iff\n", Some("not accepted")),
        ("input.yaml", "control.if\n    input: { conditoin: true }\n", Some("conditoin")),
    ] {
        server.open(&uri(name), &flow(node));
        let found = server.diagnostics(&uri(name));
        let messages: Vec<_> = found.iter().map(|found| found["message"].as_str().unwrap_or_default()).collect();
        match message {
            Some(message) => assert!(messages.iter().any(|found| found.contains(message)), "{name}: {messages:?}"),
            None => assert_eq!(messages, [""; 0], "{name}"),
        }
    }
    server.ask("shutdown", Value::Null);
    server.tell("exit", Value::Null);
    server.child.wait().unwrap();
}
