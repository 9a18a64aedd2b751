//! Every flow in `flows/graph/` runs as its reader would run it, and gives what is written beside it. In `*.args`
//! `{folder}` is the folder of the flows.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/graph")
}

/// Cases are beside the flows that they are about.
fn is_test(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(".test.yaml"))
}

fn flows() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut flows: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml") && !is_test(path))
        .collect();
    flows.sort();
    flows
}

#[test]
fn every_example_gives_what_is_written_beside_it() {
    let flows = flows();
    assert!(flows.len() >= 8, "only {} examples", flows.len());
    for flow in flows {
        let arguments = fs::read_to_string(flow.with_extension("args")).unwrap_or_default();
        let arguments = arguments.replace("{folder}", folder().to_str().unwrap());
        let output = Command::new(env!("CARGO_BIN_EXE_flowcell"))
            .args(["run", "--quiet", "--store", "memory:"])
            .arg(&flow)
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {talk}", flow.display());
        let given: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = fs::read_to_string(flow.with_extension("expected.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(given, expected, "{}", flow.display());
    }
}

#[test]
fn the_cases_beside_the_examples_hold() {
    let tested: Vec<_> = flows().into_iter().filter(|flow| flow.with_extension("test.yaml").exists()).collect();
    assert!(tested.len() >= 2, "the cases are gone");
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).arg("test").args(tested).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_example_is_valid_without_a_warning() {
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).arg("validate").args(flows()).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    // What signs the webhook of the example is made by whoever tries it.
    let warnings: Vec<_> = talk.lines().filter(|line| line.starts_with("warning")).collect();
    assert!(warnings.iter().all(|line| line.starts_with("warning[missing_secret]")), "{talk}");
    assert_eq!(warnings.len(), 1, "{talk}");
}

/// Editors read the schema that stands beside the flows. `BLESS=1` writes it anew.
#[test]
fn the_schema_beside_the_flows_is_the_one_of_the_program() {
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).arg("schema").output().unwrap();
    let path = folder().join("flow.schema.json");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &output.stdout).unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), fs::read_to_string(path).unwrap_or_default());
}
