//! Tests behaviour beyond transcripts: signals, closed pipes and very long output.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
};

use crate::kit::Running;

const WAITS: &str = "flow: { name: waits }\nnodes: [{ id: hold, type: control.wait, input: { ms: 600000 } }]\n";

fn flowcell(folder: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.args(arguments).current_dir(folder);
    command.env("FLOWCELL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().into()
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
    // Read all output, or the process would wait for the reader.
    events.for_each(drop);
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(result["status"], "cancelled");
}

#[cfg(unix)]
#[test]
fn a_terminated_process_leaves_its_run_to_another() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("waits.yaml"), WAITS).unwrap();
    for (store, code, status) in [(".flowcell", 143, "parked"), ("memory:", 130, "cancelled")] {
        let place = if store == "memory:" { ["--store", store] } else { ["--state", store] };
        let mut arguments = vec!["run", "waits.yaml", "--run-id", "r", "--json", "--events", "/dev/stderr"];
        arguments.extend(place);
        let mut child = flowcell(folder.path(), &arguments);
        let mut events = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(events.any(|line| line.contains("task:paused")), "the run did not come to its wait");
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        let told: Vec<String> = events.collect();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{told:?}");
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&said).unwrap()["status"], status);
        let how = told.iter().any(|line| line.contains("flowcell runs resume r"));
        assert_eq!(how, code == 143, "{told:?}");
    }
    let output = flowcell(folder.path(), &["runs", "events", "r"]).wait_with_output().unwrap();
    let events = String::from_utf8(output.stdout).unwrap();
    assert!(events.lines().last().unwrap().contains("harness:parked"), "{events}");
}

/// A limit of the address space in KiB: the program runs within it, but no sandbox fits into it.
#[cfg(target_os = "linux")]
const ADDRESS_SPACE_KIB: u32 = 3_000_000;

#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_room_for_a_sandbox_fails_the_task_and_not_its_pack() {
    let folder = tempfile::tempdir().unwrap();
    let flow = "flow: { name: one }\nnodes: [{ id: hold, type: control.noop, input: {}, policy: { retry: { maxAttempts: 2, backoffMs: 1 } } }]\n";
    std::fs::write(folder.path().join("one.yaml"), flow).unwrap();
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &script,
        "sh",
        env!("CARGO_BIN_EXE_flowcell"),
        "run",
        "one.yaml",
        "--json",
        "--store",
        "memory:",
    ]);
    command.env("FLOWCELL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    let output = command.current_dir(folder.path()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &result["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&"host_shortage".into(), &true.into()), "{error}");
    assert!(error["message"].as_str().unwrap().contains("give the process more memory"), "{error}");
    let attempts = &result["outputs"]["hold"]["attempts"];
    assert_eq!(attempts, &2, "it was not tried again: {result}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = flowcell(Path::new("."), &["schema"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_schema_is_a_valid_json_schema_2020_12() {
    let schema: serde_json::Value = serde_json::from_str(&stdout(&["schema"])).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::validator_for(&schema).unwrap();
}

#[test]
fn a_schema_without_node_types_takes_no_packs() {
    for arguments in [&["schema", "--packs", "."][..], &["schema", "--dialect", "agentic", "--packs", "."]] {
        let output = flowcell(Path::new("."), arguments).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("remove `--packs`") && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn the_schema_in_the_folder_of_agentic_flows_is_current() {
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
    assert_eq!(types.len(), 49);
    let keys =
        ["type", "version", "title", "description", "input", "config", "output", "traits", "effect", "capabilities"];
    for node in &types {
        assert_eq!(node.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(), keys);
        jsonschema::validator_for(&node["input"]).unwrap();
        jsonschema::validator_for(&node["output"]).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn terminal_commands_in_file_names_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let flow = "flow: { name: waits }\nnodes: [{ id: hold, type: control.noop }]\n";
    let names = ["\u{1b}[2Jgood.yaml", "inv\u{202e}lmay.yaml", "a\u{200b}b.yaml"];
    for (name, text) in [(names[0], flow), (names[1], "flow: ["), (names[2], flow)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    for arguments in [vec!["validate"], vec!["validate", "--json"], vec!["run", "--store", "memory:"]] {
        for name in names.iter().chain(&["no\u{1b}such\u{2066}.yaml"]) {
            let output = flowcell(folder.path(), &[&arguments[..], &[name]].concat()).wait_with_output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            let harmful = ['\u{1b}', '\u{202e}', '\u{200b}', '\u{2066}'];
            assert!(!said.contains(harmful) && !said.is_empty(), "{arguments:?} {name:?}: {said:?}");
        }
    }
}

/// Limit in bytes of the database after a run of [`COLLECTS`], 8 MiB of which are packs. Its log has at most 4 MiB more.
const MAX_DATABASE_BYTES: u64 = 11 << 20;

/// A flow that collects 600 different pages of 50 rows.
const COLLECTS: &str = r#"
flow:
  name: pages
  input: { rows: ROWS }
  outputs: { pages: "{{ read.items | length }}", last: "{{ read.items[599][49] }}" }
nodes:
  - id: read
    type: control.loop
    input: { while: "read.iteration < 600", maxIterations: 600, collect: true }
    body:
      nodes:
        - id: page
          type: data.map
          input:
            list: "{{ flow.input.rows }}"
            template: { id: "{{ index }}", page: "{{ read.iteration }}", name: "row {{ item }} of a page" }
    bodyOutput: "{{ page.list }}"
"#;

#[test]
fn a_collecting_loop_stores_each_page_once() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<u32> = (0..50).collect();
    let flow = COLLECTS.replace("ROWS", &format!("{rows:?}"));
    std::fs::write(folder.path().join("pages.yaml"), flow).unwrap();
    let output = flowcell(folder.path(), &["run", "pages.yaml", "--json", "--quiet"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["outputs"]["pages"], 600);
    assert_eq!(result["outputs"]["last"]["name"], "row 49 of a page");
    let bytes = std::fs::metadata(folder.path().join(".flowcell/flowcell.db")).unwrap().len();
    assert!(bytes < MAX_DATABASE_BYTES, "the database has {bytes} bytes");
}
