//! Imports the files in `asl`, `n8n` and `serverless`, and compares flow, tests and report with the files beside them. `BLESS=1`
//! rewrites those. Each flow must be valid except for its marks.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{CheckContext, Severity, Source, load};
use flowcell_import::{Finding, Imported, Verdict, import};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Returns the sources of a format.
fn sources(format: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(tests().join(format)).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    found.sort();
    found
}

/// Returns the catalog of the node types of this repository.
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (index, pack) in ["control", "data", "http", "query", "script", "system"].iter().enumerate() {
        let manifest = tests().join("../../../nodes").join(pack).join("node.yaml");
        let manifest = Manifest::parse(&fs::read_to_string(manifest).unwrap()).unwrap();
        catalog.add(manifest, &Digest(format!("{index:02}").into()));
    }
    catalog
}

fn imported(path: &Path) -> Imported {
    let name = path.file_stem().unwrap().to_str().unwrap();
    import(&fs::read_to_string(path).unwrap(), name, None).unwrap()
}

/// A folder in which all flows exist that an imported flow calls.
struct Folder;

impl CheckContext for Folder {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("an imported flow reads no files".into())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        let text = format!("flow: {{ name: {name} }}\nnodes: [{{ id: start, type: control.noop }}]\n");
        Some(Source { name: format!("{name}.yaml"), text })
    }
}

/// Returns the errors of a flow, except for its marks.
fn errors(flow: &str, catalog: &Catalog) -> Vec<String> {
    let source = Source { name: "flow.yaml".into(), text: flow.into() };
    let checked = load(&source, catalog, &Folder);
    let found = checked.diagnostics.iter();
    found
        .filter(|found| found.severity == Severity::Error && found.code != "approximated")
        .map(ToString::to_string)
        .collect()
}

fn report(imported: &Imported) -> String {
    let line = |finding: &Finding| {
        let Finding { path, construct, verdict, node, note } = finding;
        format!("{} {path} [{construct}] {} {note}\n", verdict.word(), node.as_deref().unwrap_or("-"))
    };
    imported.findings.iter().map(line).collect()
}

#[test]
fn sources_give_the_expected_flows() {
    let catalog = catalog();
    let mut wrong = Vec::new();
    for format in ["asl", "n8n", "serverless"] {
        let sources = sources(format);
        assert!(sources.len() >= 20, "{format}: {}", sources.len());
        for path in sources {
            let imported = imported(&path);
            let shown = path.display();
            wrong.extend(errors(&imported.flow, &catalog).into_iter().map(|error| format!("{shown}: {error}")));
            let has_marks = imported.findings.iter().any(|finding| finding.verdict != Verdict::Exact);
            assert_eq!(has_marks, imported.marks > 0, "{shown}");
            for (end, given) in
                [("yaml", &imported.flow), ("test.yaml", &imported.tests), ("report", &report(&imported))]
            {
                let golden = path.with_extension(end);
                if std::env::var_os("BLESS").is_some() {
                    fs::write(&golden, given).unwrap();
                }
                if fs::read_to_string(&golden).unwrap_or_default() != *given {
                    wrong.push(format!("{}:\n{given}", golden.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The state machines that a crate carries for its tests, valid and invalid ones. They are read where `.ci/tools` puts them.
#[test]
fn state_machines_of_others_give_flows_that_are_valid_except_for_their_marks() {
    let folder = tests().join("../../../target/tools/asl/tests/test-data/asl-validator");
    if !folder.is_dir() {
        let needed = std::env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
        assert!(
            !needed.split(',').any(|needed| needed == "asl"),
            "the state machines in {} are missing",
            folder.display()
        );
        eprintln!("skipped: the state machines in {} are missing", folder.display());
        return;
    }
    let catalog = catalog();
    let (mut valid, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_valid = path.file_name().unwrap().to_str().unwrap().starts_with("valid-");
        match import(&fs::read_to_string(&path).unwrap(), "machine", None) {
            Ok(imported) => {
                let errors = errors(&imported.flow, &catalog);
                wrong.extend(errors.into_iter().map(|error| format!("{}: {error}", path.display())));
            }
            Err(error) if is_valid => wrong.push(format!("{}: {error:?}", path.display())),
            Err(_) => {}
        }
        valid += usize::from(is_valid);
    }
    assert!(valid >= 40, "{valid} valid ones");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the distance between the places of a document that are changed. With a larger `FLOWCELL_TEST_SCALE` more are.
fn stride() -> usize {
    let scale = std::env::var("FLOWCELL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    (7 / usize::max(scale, 1)).max(1)
}

/// Replaces values of a document in turn, and calls a function with the changed document.
fn mutated(document: &serde_json::Value, visit: &mut dyn FnMut(&serde_json::Value)) {
    fn pointers(value: &serde_json::Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
        match value {
            serde_json::Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), found));
            }
            serde_json::Value::Object(members) => {
                members.iter().for_each(|(key, member)| pointers(member, &format!("{at}/{}", escape(key)), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    pointers(document, "", &mut found);
    let odd =
        serde_json::json!([null, true, -1, 1.5, "", "x", "{{ y }}", "$.a.b", [], {}, ["x"], { "x": 1 }, "States.ALL"]);
    for (index, pointer) in found.iter().skip(1).enumerate().step_by(stride()) {
        let mut changed = document.clone();
        odd[(index / stride()) % 13].clone_into(changed.pointer_mut(pointer).unwrap());
        visit(&changed);
    }
}

#[test]
fn changed_sources_give_flows_that_are_valid_except_for_their_marks() {
    let catalog = catalog();
    let (mut count, mut wrong) = (0, Vec::new());
    for path in ["asl", "n8n", "serverless"].into_iter().flat_map(sources) {
        let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        mutated(&document, &mut |changed| {
            let Ok(imported) = import(&changed.to_string(), "changed", None) else { return };
            count += 1;
            let errors = errors(&imported.flow, &catalog);
            if !errors.is_empty() {
                wrong.push(format!("{}: {}\n{changed}", path.display(), errors.join("\n")));
            }
        });
    }
    assert!(count > 150, "only {count} documents");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n\n"));
}

/// Returns the length of the flow of a source. The flow is valid except for its marks.
fn length(source: &serde_json::Value) -> usize {
    let flow = import(&source.to_string(), "long", None).unwrap().flow;
    let errors = errors(&flow, &catalog());
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    flow.len()
}

#[test]
fn small_files_do_not_give_huge_flows() {
    // Each layer takes the items of both nodes of the layer before.
    let name = |layer: usize, side: usize| format!("W{layer}_{side}");
    let node = |name: &str, kind: &str, parameters: serde_json::Value| serde_json::json!({ "name": name, "type": format!("n8n-nodes-base.{kind}"), "parameters": parameters });
    let mut nodes = vec![node("Start", "manualTrigger", serde_json::json!({}))];
    let mut connections = serde_json::Map::new();
    let to =
        |names: [String; 2]| serde_json::json!({ "main": [names.map(|name| serde_json::json!({ "node": name }))] });
    connections.insert("Start".into(), to([name(0, 0), name(0, 1)]));
    for layer in 0..40 {
        for side in 0..2 {
            nodes.push(node(&name(layer, side), "wait", serde_json::json!({ "amount": 1 })));
            if layer < 39 {
                connections.insert(name(layer, side), to([name(layer + 1, 0), name(layer + 1, 1)]));
            }
        }
    }
    assert!(length(&serde_json::json!({ "nodes": nodes, "connections": connections })) < 100_000);
    // The condition of each catcher excludes those before it.
    let catcher = |number: usize| serde_json::json!({ "ErrorEquals": [format!("E{number}")], "Next": "B" });
    let catchers: Vec<_> = (0..3_000).map(catcher).collect();
    let machine = serde_json::json!({ "StartAt": "A", "States": {
        "A": { "Type": "Task", "Resource": "x", "Catch": catchers, "End": true }, "B": { "Type": "Succeed" },
    } });
    assert!(length(&machine) < 2_000_000);
    let parts: Vec<_> =
        (0..5_000).map(|_| serde_json::json!({ "Variable": "$.a.b.c.d.e.f", "IsPresent": true })).collect();
    let machine = serde_json::json!({ "StartAt": "A", "States": {
        "A": { "Type": "Choice", "Choices": [{ "Or": parts, "Next": "B" }], "Default": "B" }, "B": { "Type": "Succeed" },
    } });
    assert!(length(&machine) < 50_000);
}

/// Sources whose expressions would have more tokens, or be deeper, than an expression may.
#[test]
fn large_expressions_are_refused_by_the_import_and_not_by_the_check() {
    let machine = |state: serde_json::Value| serde_json::json!({ "StartAt": "A", "States": { "A": state, "B": { "Type": "Succeed" } } });
    let workflow = |nodes: Vec<serde_json::Value>, connections: serde_json::Value| {
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|mut node| {
                node["type"] = format!("n8n-nodes-base.{}", node["type"].as_str().unwrap()).into();
                node
            })
            .collect();
        serde_json::json!({ "nodes": nodes, "connections": connections })
    };
    let parts: Vec<_> =
        (0..77).map(|part| serde_json::json!({ "Variable": "$.a", "StringEquals": format!("p{part}") })).collect();
    let choice = serde_json::json!({ "Type": "Choice", "Choices": [{ "Or": parts, "Next": "B" }], "Default": "B" });
    let catchers: Vec<_> =
        (0..33).map(|number| serde_json::json!({ "ErrorEquals": [format!("E{number}")], "Next": "B" })).collect();
    let task = serde_json::json!({ "Type": "Task", "Resource": "x", "Catch": catchers, "End": true });
    let path = format!("${}", ".a".repeat(40));
    let pass = serde_json::json!({ "Type": "Pass", "Result": 1, "ResultPath": path, "End": true });
    let fields: Vec<_> =
        (0..70).map(|field| serde_json::json!({ "name": format!("f{field}"), "type": "number", "value": 1 })).collect();
    let start = || serde_json::json!({ "name": "Start", "type": "manualTrigger", "parameters": {} });
    let set = serde_json::json!({ "name": "Set", "type": "set", "typeVersion": 3.4,
        "parameters": { "assignments": { "assignments": fields }, "includeOtherFields": true } });
    let after_start = |names: &[String]| {
        let ends: Vec<_> =
            names.iter().map(|name| serde_json::json!({ "node": name, "type": "main", "index": 0 })).collect();
        serde_json::json!({ "main": [ends] })
    };
    let waits: Vec<String> = (0..600).map(|number| format!("W{number}")).collect();
    let mut many = vec![start(), serde_json::json!({ "name": "End", "type": "noOp", "parameters": {} })];
    many.extend(waits.iter().map(|name| serde_json::json!({ "name": name, "type": "noOp", "parameters": {} })));
    let mut connections: serde_json::Map<_, _> =
        waits.iter().map(|name| (name.clone(), after_start(&["End".into()]))).collect();
    connections.insert("Start".into(), after_start(&waits));
    // An input beyond all numbers.
    let merge = serde_json::json!({ "name": "Merge", "type": "merge", "parameters": {} });
    let beyond = serde_json::json!({ "Start": { "main": [[{ "node": "Merge", "type": "main", "index": u64::MAX }]] } });
    let sources = [
        machine(choice),
        machine(task),
        machine(pass),
        workflow(vec![start(), set], serde_json::json!({ "Start": after_start(&["Set".into()]) })),
        workflow(many, connections.into()),
        workflow(vec![start(), merge], beyond),
    ];
    for (number, source) in sources.iter().enumerate() {
        length(source);
        let marks = import(&source.to_string(), "large", None).unwrap().marks;
        assert!(marks > 0, "the source {number} has no mark");
    }
}

/// Sources whose flows would be so large that the import could not write them in any time. It stops at the limit.
#[test]
fn huge_sources_are_refused_with_the_limit() {
    let workflow = |tasks: serde_json::Value, functions: serde_json::Value| serde_json::json!({ "document": { "dsl": "1.0.3" }, "use": { "functions": functions }, "do": tasks });
    let mut forks = serde_json::json!({ "set": {} });
    let mut machine = serde_json::json!({ "Type": "Succeed" });
    for _ in 0..9 {
        let branches: Vec<_> = (0..3).map(|number| serde_json::json!({ format!("b{number}"): forks })).collect();
        forks = serde_json::json!({ "fork": { "branches": branches } });
    }
    for _ in 0..7 {
        let branch = serde_json::json!({ "StartAt": "A", "States": { "A": machine } });
        machine = serde_json::json!({ "Type": "Parallel", "Branches": vec![branch; 4], "End": true });
    }
    // Each function calls the next one ten times.
    let calls = |name: String| -> serde_json::Value {
        (0..10).map(|number| serde_json::json!({ format!("c{number}"): { "call": name } })).collect()
    };
    let mut functions = serde_json::Map::new();
    for level in 0..8 {
        functions.insert(format!("f{level}"), serde_json::json!({ "do": calls(format!("f{}", level + 1)) }));
    }
    let large = serde_json::json!({ "f": { "set": { "x": "x".repeat(1_000_000) } } });
    let many: Vec<_> = (0..9_000).map(|number| serde_json::json!({ format!("c{number}"): { "call": "f" } })).collect();
    let tried: Vec<_> = (0..10_001).map(|number| serde_json::json!({ format!("t{number}"): { "set": {} } })).collect();
    let sources = [
        (workflow(serde_json::json!([{ "a": forks }]), serde_json::Value::Null), "limit is 10000"),
        (serde_json::json!({ "StartAt": "A", "States": { "A": machine } }), "limit is 10000"),
        (workflow(calls("f0".into()), functions.into()), "more than 10000 nodes"),
        (workflow(many.into(), large), "more than 4194304 bytes"),
        (workflow(serde_json::json!([{ "a": { "try": tried } }]), serde_json::Value::Null), "limit is 10000"),
    ];
    for (source, expected) in sources {
        let error = import(&source.to_string(), "huge", None).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
        assert_eq!(error.help, "split the workflow");
    }
}

#[test]
fn a_file_of_no_known_format_is_refused() {
    for text in ["{}", "[]", "{\"a\": 1}", "steps: []", "", "7"] {
        let error = import(text, "x", None).unwrap_err();
        assert!(!error.help.is_empty(), "{text}: {error}");
    }
}
