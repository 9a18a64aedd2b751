//! What a transcript cannot show: signals, closed pipes, output that is too long to keep.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

const WAITS: &str = "flow: { name: waits }\nnodes: [{ id: hold, type: control.wait, input: { ms: 600000 } }]\n";

fn flowcell(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.args(arguments).current_dir(folder);
    command.env("FLOWCELL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = flowcell(Path::new("."), arguments).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[cfg(unix)]
#[test]
fn an_interrupt_cancels_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("waits.yaml"), WAITS).unwrap();
    let mut child = flowcell(folder.path(), &["run", "waits.yaml", "--json", "--quiet", "--events", "/dev/stderr"]);
    let mut events = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(events.any(|line| line.unwrap().contains("task:paused")), "the run did not come to its wait");
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    // Whatever it says until it ends must be read, or it would wait for that.
    events.for_each(drop);
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(result["status"], "cancelled");
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let mut child = flowcell(Path::new("."), &["schema"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_schema_is_one_for_json_schema_2020_12() {
    let schema: serde_json::Value = serde_json::from_str(&stdout(&["schema"])).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::validator_for(&schema).unwrap();
}

#[test]
fn the_schema_of_flows_of_agents_is_the_one_beside_the_examples() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/agentic/flow.schema.json");
    assert_eq!(stdout(&["schema", "--dialect", "agentic"]), std::fs::read_to_string(path).unwrap());
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout(&["completions", shell]);
        for command in ["run", "validate", "graph", "nodes", "schema", "node", "completions", "total-timeout"] {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn the_catalog_is_described_completely() {
    let types: Vec<serde_json::Value> = serde_json::from_str(&stdout(&["nodes", "--json"])).unwrap();
    assert_eq!(types.len(), 32);
    let keys =
        ["type", "version", "title", "description", "input", "config", "output", "traits", "effect", "capabilities"];
    for node in &types {
        assert_eq!(node.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(), keys);
        jsonschema::validator_for(&node["input"]).unwrap();
        jsonschema::validator_for(&node["output"]).unwrap();
    }
}
