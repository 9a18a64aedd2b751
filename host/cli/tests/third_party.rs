//! Tests packs that were written from the WIT alone, outside the workspace, in Rust, JavaScript and Python. The host
//! knows no node by name, and trusts no manifest.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::guests::{build, guest};

/// Runs the guest's flow with the packs of a directory.
fn run(name: &str, packs: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command
        .args(["run", "--quiet", "--store", "memory:", "--packs"])
        .arg(packs)
        .args(args)
        .arg(guest(name).join("flow.yaml"));
    command.output().unwrap()
}

#[track_caller]
fn check_expected_outputs(name: &str, output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let given: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = fs::read_to_string(guest(name).join("flow.expected.json")).unwrap();
    assert_eq!(given, serde_json::from_str::<serde_json::Value>(&expected).unwrap());
}

#[test]
fn a_strangers_foreach_and_gate_work_like_those_of_the_catalog() {
    let packs = build("acme", "");
    check_expected_outputs("acme", &run("acme", &packs, &["--answer", "ask=yes"]));
}

#[test]
fn a_strangers_agent_has_an_inbox_and_events() {
    let packs = build("acme", "");
    let folder = tempfile::tempdir().unwrap();
    let flow = guest("acme").join("scribe.yaml");
    let flowcell = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        command.current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        command.current_dir(folder.path()).args(["run", "--quiet", "--run-id", "s", "--packs"]);
        command.arg(&packs).arg(&flow).output().unwrap()
    };
    assert_eq!(run().status.code(), Some(3), "it listens");
    for arguments in [&["--id", "m1", "one"][..], &["--id", "m1", "one"], &["--id", "m2", "two"], &["--close"]] {
        let sent = flowcell(&[&["send", "s", "--to", "scribe"], arguments].concat());
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        let code = if arguments == ["--close"] { 0 } else { 3 };
        let output = run();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        if code == 0 {
            let outputs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(outputs, serde_json::json!({ "lines": ["one", "two"] }));
        }
    }
    let events = String::from_utf8(flowcell(&["runs", "events", "s"]).stdout).unwrap();
    let kinds = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let kinds: Vec<_> = kinds.map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let count = |kind: &str| kinds.iter().filter(|other| *other == kind).count();
    assert_eq!((count("agent:start"), count("agent:event"), count("agent:complete")), (1, 2, 1), "{kinds:?}");
}

#[test]
fn code_that_breaks_its_manifest_fails_only_its_own_node() {
    let packs = build("liar", "");
    check_expected_outputs("liar", &run("liar", &packs, &[]));
}

#[test]
fn n21_a_pack_with_an_unknown_import_is_refused_before_it_runs() {
    let packs = build("liar", "forbidden");
    let refused = run("liar", &packs, &[]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("imports `liar:pack/nuke@0.1.0`, which this host does not offer"), "{told}");
}

#[test]
fn a_pack_that_calls_a_server_is_tested_without_one() {
    let packs = build("courier", "");
    let flow = guest("courier").join("flow.yaml");
    let flowcell = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        command.args(arguments).arg("--packs").arg(&packs).arg(&flow).output().unwrap()
    };
    let tested = flowcell(&["test"]);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    let simulated = flowcell(&["run", "--quiet", "--store", "memory:", "--simulate", "http"]);
    assert!(simulated.status.success(), "{}", String::from_utf8_lossy(&simulated.stderr));
    let outputs: serde_json::Value = serde_json::from_slice(&simulated.stdout).unwrap();
    assert_eq!(outputs["pay"]["answers"][0]["simulated"], true);
    assert_eq!(outputs["all"]["answers"].as_array().unwrap().len(), 3);
}

/// Builds a guest with the toolchain of its language. If the toolchain is missing, prints a note and returns `None`.
fn build_with(tool: &str, name: &str, file: &str) -> Option<tempfile::TempDir> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&paths).any(|folder| folder.join(tool).is_file()) {
        assert!(std::env::var_os("FLOWCELL_TEST_TOOLCHAINS").is_none(), "the guest `{name}` needs `{tool}`");
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        eprintln!("skipped: {test}: `{tool}` is missing; tests/guests/{name}/build.sh says how to get it");
        return None;
    }
    let packs = tempfile::tempdir().unwrap();
    let built = Command::new("sh").arg(guest(name).join("build.sh")).arg(packs.path().join(file)).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(packs)
}

#[cfg(unix)]
#[test]
fn a_pack_in_javascript_transforms_remembers_and_asks() {
    let Some(packs) = build_with("componentize-qjs", "javascript", "notes.wasm") else { return };
    check_expected_outputs("javascript", &run("javascript", packs.path(), &["--answer", "review=keep"]));
}

#[cfg(unix)]
#[test]
fn a_pack_in_python_transforms_remembers_and_runs_bodies() {
    let Some(packs) = build_with("componentize-py", "python", "figures.wasm") else { return };
    check_expected_outputs("python", &run("python", packs.path(), &[]));
}
