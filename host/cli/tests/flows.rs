//! Runs every flow in `flows/graph/` with its arguments, and compares the result with the file next to it. In `*.args`,
//! `{folder}` stands for the folder of the flows.

mod cycles;
mod fragments;
mod joins;
mod places;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/graph")
}

/// Returns whether a file holds test cases.
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
fn every_example_gives_the_expected_result() {
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
fn the_cases_of_the_examples_pass() {
    let tested: Vec<_> = flows().into_iter().filter(|flow| flow.with_extension("test.yaml").exists()).collect();
    assert!(tested.len() >= 2, "the cases are gone");
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).arg("test").args(tested).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The long form of each example has neither texts nor `after`; the short form of it has maps only for what texts cannot
/// express. `flowcell fmt` changes a file only if the graph is the same.
#[test]
fn the_examples_are_the_same_in_both_forms() {
    let copy = tempfile::tempdir().unwrap();
    let flows: Vec<_> = flows().into_iter().map(|flow| (copy.path().join(flow.file_name().unwrap()), flow)).collect();
    flows.iter().for_each(|(copy, flow)| _ = fs::copy(flow, copy).unwrap());
    let fmt = |option: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_flowcell"))
            .args(["fmt", option])
            .args(flows.iter().map(|(copy, _)| copy))
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told = String::from_utf8(output.stdout).unwrap();
        let texts: Vec<_> = flows.iter().map(|(copy, _)| fs::read_to_string(copy).unwrap()).collect();
        (told, texts)
    };
    let (told, long) = fmt("--long");
    assert!(!told.contains("unchanged"), "{told}");
    assert!(long.iter().all(|text| !text.contains(" -> ")), "{long:?}");
    assert!(fmt("--long").0.lines().all(|line| line.contains(": 0 edges")), "a second time changes nothing");
    let (told, short) = fmt("--short");
    // A condition that is no port, and an edge that only orders its nodes, have no short form.
    let kept = told.lines().filter(|line| line.contains("unchanged"));
    let kept: Vec<_> = kept.filter_map(|line| Path::new(line.split(':').next()?).file_stem()?.to_str()).collect();
    assert_eq!(kept, KEPT_LONG, "{told}");
    fmt("--long");
    assert_eq!(fmt("--short").1, short);
}

/// The examples with edges that have no short form.
const KEPT_LONG: [&str; 3] = ["reminder", "respond", "review"];

/// The node after an error edge gets the input of the failed node. A field of this input that the failed node would
/// have evaluated itself, such as `when`, is passed unevaluated, together with the values that it refers to.
#[test]
fn an_error_edge_passes_unevaluated_fields_with_their_values() {
    let flow = |strict: bool, rest: &str| {
        format!(
            "flow: {{ name: a, strict: {strict}, input: {{ most: x }}, outputs: {{ got: '{{{{ caught.value }}}}' }} }}\n\
             nodes:\n  - {{ id: fails, {rest} }}\n  \
             - {{ id: caught, type: control.noop, input: {{ value: '{{{{ inbound.input }}}}' }} }}\n\
             edges: [{{ from: fails, to: caught, on: error }}]\n"
        )
    };
    let table = [
        (
            "type: data.filter, input: { list: [1], when: 'item < flow.input.most' }",
            r#"{ "list": [1], "when": { "expr": "item < flow.input.most", "vars": { "flow.input.most": "x" } } }"#,
        ),
        (
            "type: control.if, input: { condition: { lt: { var: flow.input.most, value: 1 } } }",
            r#"{ "condition": { "expr": { "lt": { "var": "flow.input.most", "value": 1 } }, "vars": { "flow.input.most": "x" } } }"#,
        ),
        (
            "type: data.template, input: { template: '{{ flow.input.most + 1 }}' }",
            r#"{ "template": { "template": "{{ flow.input.most + 1 }}", "vars": { "flow.input.most": "x" } } }"#,
        ),
    ];
    for (rest, expected) in table {
        for strict in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("a.yaml"), flow(strict, rest)).unwrap();
            let flowcell = |arguments: &[&str]| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
                command.args(arguments).current_dir(folder.path()).output().unwrap()
            };
            let output = flowcell(&["run", "--quiet", "--run-id", "r", "a.yaml"]);
            let talk = String::from_utf8_lossy(&output.stderr);
            let given: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{talk}"));
            let mut expected: serde_json::Value = serde_json::from_str(expected).unwrap();
            for field in expected.as_object_mut().unwrap().values_mut().filter(|field| field.is_object() && strict) {
                field["strict"] = true.into();
            }
            assert_eq!(given["got"], expected, "{rest}");
            let shown = flowcell(&["runs", "show", "r", "fails"]);
            let shown = String::from_utf8_lossy(&shown.stdout);
            assert!(shown.contains("input matches its digest"), "{shown}");
        }
    }
}

/// A mistake in a file of test cases is reported, and the command fails. For a misspelt name, the message suggests the
/// correct name.
#[test]
fn a_mistake_in_a_case_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let flow = "flow: { name: a, outputs: { x: '{{ pay.value }}' } }\nnodes: [{ id: pay, type: control.noop, input: { value: 1 } }]\n";
    fs::write(folder.path().join("a.yaml"), flow).unwrap();
    for (cases, told, code) in [
        ("cases: [{ name: a, expect: { outputs: { x: 1 } } }]", "1 case, 0 failed", 0),
        (
            "cases: [{ name: a, given: { pay: { output: { value: 2 } } }, expect: { outputs: { x: 2 } } }]",
            "0 failed",
            0,
        ),
        ("cases: []", "is empty", 2),
        ("case: []", "did you mean `cases`?", 2),
        ("cases: [{ name: a, inptu: {} }]", "did you mean `input`?", 2),
        ("cases: [{ name: a, expect: { outptus: {} } }]", "did you mean `outputs`?", 2),
        ("cases: [{ name: a, given: { pay: { outptu: {} } } }]", "did you mean `output`?", 2),
        ("cases: [{ name: a, calls: [{ nod: pay }] }]", "did you mean `node`?", 2),
        (
            "cases: [{ name: a, given: { pya: { output: {} } } }]",
            "`pya` under `given`: unknown node; did you mean `pay`?",
            1,
        ),
        ("cases: [{ name: a, given: { 'x[0].pya': { output: {} } } }]", "did you mean `pay`?", 1),
        ("cases: [{ name: a, calls: [{ node: other, times: any }] }]", "`other` under `calls`: unknown node", 1),
        ("cases: [{ name: a, answers: { pya: 'yes' } }]", "`pya` under `answers`", 1),
        ("cases: [{ name: a, expect: { outputs: { x: { $tpye: number } } } }]", "did you mean `$type`?", 1),
        ("cases: [{ name: a, expect: { status: succeded } }]", "did you mean `succeeded`?", 2),
        ("cases: [{ name: a, expect: { outputs: { x: { $any: false } } } }]", "`$any` must be `true`, not false", 1),
    ] {
        fs::write(folder.path().join("a.test.yaml"), cases).unwrap();
        let arguments = ["test", "a.yaml"];
        let output =
            Command::new(env!("CARGO_BIN_EXE_flowcell")).args(arguments).current_dir(folder.path()).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && talk.contains(told), "{cases}: {talk}");
    }
}

#[test]
fn every_example_is_valid_without_a_warning() {
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).arg("validate").args(flows()).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    // The example's webhooks need secrets that only their user creates.
    let warnings: Vec<_> = talk.lines().filter(|line| line.starts_with("warning")).collect();
    assert!(warnings.iter().all(|line| line.starts_with("warning[missing_secret]")), "{talk}");
    assert_eq!(warnings.len(), 3, "{talk}");
}

/// Every example that has `nodes` sets `strict: true`. Flows of agents, of steps and of scripts have no setting
/// `strict`; the manual names these exceptions.
#[test]
fn every_example_with_nodes_is_strict() {
    let root = folder().join("..");
    let mut strict = 0;
    for kind in fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for path in fs::read_dir(kind).unwrap().map(|entry| entry.unwrap().path()) {
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml") && !is_test(&path);
            let text = if is_yaml { fs::read_to_string(&path).unwrap() } else { continue };
            if text.lines().any(|line| line == "nodes:") {
                assert!(text.lines().any(|line| line == "  strict: true"), "{} is not strict", path.display());
                strict += 1;
            }
        }
    }
    assert!(strict >= 15, "only {strict} examples have nodes");
}

/// Compares the schema next to the flows, which editors read, with the program's. `BLESS=1` overwrites it.
#[test]
fn the_schema_in_the_flows_folder_is_current() {
    let output = Command::new(env!("CARGO_BIN_EXE_flowcell")).arg("schema").output().unwrap();
    let path = folder().join("flow.schema.json");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &output.stdout).unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), fs::read_to_string(path).unwrap_or_default());
}

/// Returns the commands in the README of a new folder.
fn commands_of(readme: &str) -> Vec<String> {
    let quoted = |line: &str| Some(line.strip_prefix("- `")?.split_once('`')?.0.to_owned());
    readme.lines().filter_map(quoted).collect()
}

/// Every command in the README of every example works.
#[test]
fn every_example_of_init_works_as_its_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let program = |arguments: &[&str], folder: &Path| {
        Command::new(env!("CARGO_BIN_EXE_flowcell")).args(arguments).current_dir(folder).output().unwrap()
    };
    let listed = program(&["init", "--examples"], folder.path());
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: Vec<_> = listed.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(names.len() > 20 && names[0] == "hello", "{listed}");
    let bin = Path::new(env!("CARGO_BIN_EXE_flowcell")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut wrong = Vec::new();
    for name in names {
        let made = program(&["init", name, "--example", name], folder.path());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let own = folder.path().join(name);
        for command in commands_of(&fs::read_to_string(own.join("README.md")).unwrap()) {
            let mut shell = Command::new("sh");
            shell.args(["-c", &command]).env("PATH", &path).current_dir(&own).stdin(std::process::Stdio::null());
            let output = shell.output().unwrap();
            // A run that waits for a person is parked.
            let is_good = output.status.success() || (command.contains(" run ") && output.status.code() == Some(3));
            if !is_good {
                wrong.push(format!("{name}: {command}: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        let again = program(&["init", name, "--example", name], folder.path());
        let told = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.code() == Some(2) && told.contains("already has"), "{told}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unknown = program(&["init", "x", "--example", "trage"], folder.path());
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(2) && told.contains("did you mean `triage`?"), "{told}");
    assert!(!folder.path().join("x").exists());
}
