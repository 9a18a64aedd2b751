//! Runs every flow in `flows/script/`, and compares the result with the file next to it.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::kit::{output_of, root, stderr, stdout};

/// Returns the flows. Files in `lib` are parts of them.
fn flows() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("flows/script")).unwrap().map(|entry| entry.unwrap().path());
    let is_flow = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".flow.js") || name.ends_with(".yaml")
    };
    let mut flows: Vec<_> = entries.filter(is_flow).collect();
    flows.sort();
    flows
}

/// Returns the path next to a flow with another ending.
fn expected_path(flow: &std::path::Path, ending: &str) -> PathBuf {
    let name = flow.file_name().unwrap().to_str().unwrap().split('.').next().unwrap();
    flow.with_file_name(format!("{name}.{ending}"))
}

#[test]
fn every_example_gives_the_expected_result() {
    let flows = flows();
    assert!(flows.len() >= 4, "only {} examples", flows.len());
    for flow in flows {
        let folder = tempfile::tempdir().unwrap();
        let arguments = fs::read_to_string(expected_path(&flow, "args")).unwrap_or_default();
        let mut all = vec!["run", "--quiet", "--store", "memory:", flow.to_str().unwrap()];
        all.extend(arguments.split_whitespace());
        let output = output_of(folder.path(), &all);
        assert!(output.status.success(), "{}: {}", flow.display(), stderr(&output));
        let given: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let expected = fs::read_to_string(expected_path(&flow, "expected.json")).unwrap();
        assert_eq!(given, serde_json::from_str::<Value>(&expected).unwrap(), "{}", flow.display());
    }
}

#[test]
fn every_example_is_valid_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let flows = flows();
    let mut all = vec!["validate"];
    all.extend(flows.iter().map(|flow| flow.to_str().unwrap()));
    let output = output_of(folder.path(), &all);
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
}
