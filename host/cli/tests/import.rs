//! Imports files with the real program, and runs the cases that promise what the source's engine gives.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::kit::{flowcell, output_of, root, stderr, stdout};

/// Returns the sources with cases, which are written after the specification of their format, in files
/// with this ending.
fn sources(ending: &str) -> Vec<PathBuf> {
    let folders = ["asl", "n8n", "serverless"].map(|format| root().join("host/import/tests").join(format));
    let entries = folders.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.with_extension(ending).exists() && path.extension().is_some_and(|end| end == "json"));
    found.sort();
    found
}

/// The names of flows that imported flows call. Each gives its input as the only item.
const CALLED: [&str; 2] = ["Send_a_bill", "workflow_12"];

/// Imports sources, and runs their cases. If the flows have marks, removes them first.
fn run_cases(ending: &str, have_marks: bool, least: usize) {
    let folder = tempfile::tempdir().unwrap();
    let sources = sources(ending);
    assert!(sources.len() >= least, "only {}", sources.len());
    for name in CALLED {
        let flow = format!(
            "flow: {{ name: {name}, outputs: {{ items: \"{{{{ [flow.input] }}}}\" }} }}\nnodes: [{{ id: start, type: control.noop }}]\n"
        );
        fs::write(folder.path().join(format!("{name}.yaml")), flow).unwrap();
    }
    let mut tested = Vec::new();
    for path in sources {
        let name = path.file_stem().unwrap().to_str().unwrap().replace('-', "_");
        let output =
            output_of(folder.path(), &["import", path.to_str().unwrap(), "--name", &format!("flow_{name}"), "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["marks"] != 0, have_marks, "{report}");
        if have_marks {
            remove_marks(&folder.path().join(report["flow"].as_str().unwrap()));
        }
        fs::copy(path.with_extension(ending), folder.path().join(report["tests"].as_str().unwrap())).unwrap();
        tested.push(report["flow"].as_str().unwrap().to_owned());
    }
    let output = flowcell(folder.path()).arg("test").args(tested).output().unwrap();
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
}

/// Removes the marks of a flow, as a person does who has compared it with its source.
fn remove_marks(path: &Path) {
    let mut unmarked = flowcell_flow::read_value(&fs::read_to_string(path).unwrap()).unwrap().to_serde();
    unmarked["flow"].as_object_mut().unwrap().remove("approximated");
    for node in unmarked["nodes"].as_array_mut().unwrap() {
        node.as_object_mut().unwrap().remove("approximated");
    }
    fs::write(path, unmarked.to_string()).unwrap();
}

#[test]
fn imported_flows_give_the_outputs_of_their_sources() {
    run_cases("cases.yaml", false, 34);
}

#[test]
fn flows_with_marks_give_the_outputs_of_their_sources_where_they_agree() {
    run_cases("marked.cases.yaml", true, 20);
}

#[test]
fn a_flow_with_marks_is_not_valid_until_they_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"{ "StartAt": "A", "States": { "A": { "Type": "Pass", "Result": 1, "End": true, "Odd": 1 } } }"#;
    fs::write(folder.path().join("odd.asl.json"), source).unwrap();
    let output = output_of(folder.path(), &["import", "odd.asl.json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("/States/A/Odd"), "{}", stdout(&output));
    let output = output_of(folder.path(), &["validate", "odd.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("error[approximated]"), "{}", stderr(&output));
    let flow = fs::read_to_string(folder.path().join("odd.yaml")).unwrap();
    let unmarked: String =
        flow.lines().filter(|line| !line.contains("approximated:")).map(|line| format!("{line}\n")).collect();
    fs::write(folder.path().join("odd.yaml"), unmarked).unwrap();
    let output = output_of(folder.path(), &["run", "--quiet", "odd.yaml"]);
    assert_eq!(stdout(&output).trim(), "1", "{}", stderr(&output));
}

#[test]
fn the_name_of_a_flow_must_be_valid() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"{ "StartAt": "A", "States": { "A": { "Type": "Succeed" } } }"#;
    fs::write(folder.path().join("2nd order.asl.json"), source).unwrap();
    let output = output_of(folder.path(), &["import", "2nd order.asl.json", "--name", "my flow"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("not a valid name of a flow"), "{}", stderr(&output));
    for (arguments, file) in [(vec!["--name", "2nd-order"], "2nd-order.yaml"), (vec![], "imported_2nd_order.yaml")] {
        let output = flowcell(folder.path()).args(["import", "2nd order.asl.json"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(folder.path().join(file).exists(), "{file}: {}", stdout(&output));
    }
}

#[test]
fn existing_files_are_kept_without_force() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.json"), r#"{ "StartAt": "A", "States": { "A": { "Type": "Succeed" } } }"#).unwrap();
    fs::write(folder.path().join("a.test.yaml"), "mine").unwrap();
    let output = output_of(folder.path(), &["import", "a.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("a.test.yaml exists already"), "{}", stderr(&output));
    assert!(!folder.path().join("a.yaml").exists(), "one file was written");
    assert!(output_of(folder.path(), &["import", "a.json", "--force"]).status.success());
    assert_ne!(fs::read_to_string(folder.path().join("a.test.yaml")).unwrap(), "mine");
}

#[test]
fn a_file_that_cannot_be_imported_says_why() {
    let folder = tempfile::tempdir().unwrap();
    for (text, arguments, expected) in [
        ("{}", vec![], "no known format"),
        ("{", vec![], "neither JSON nor YAML"),
        ("{\"a\": 1, \"a\": 2}", vec!["--from", "asl"], "occurs twice"),
        ("[]", vec!["--from", "n8n"], "not an object"),
    ] {
        fs::write(folder.path().join("x.json"), text).unwrap();
        let output = flowcell(folder.path()).args(["import", "x.json"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(expected) && stderr(&output).contains("help:"), "{}", stderr(&output));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
