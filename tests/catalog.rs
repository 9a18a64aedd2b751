//! Checks that the catalog's manifests are complete for the readers of `flowcell nodes`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use flowcell_contract::Manifest;

const TYPES: [&str; 49] = [
    "agent.classify",
    "agent.coder",
    "agent.plan",
    "agent.reviewer",
    "agent.run",
    "agent.summarize",
    "control.fail",
    "control.foreach",
    "control.gate",
    "control.if",
    "control.loop",
    "control.merge",
    "control.noop",
    "control.respond",
    "control.scope",
    "control.subflow",
    "control.switch",
    "control.wait",
    "data.filter",
    "data.flatten",
    "data.group",
    "data.json.parse",
    "data.json.stringify",
    "data.map",
    "data.merge",
    "data.object",
    "data.pick",
    "data.query",
    "data.reduce",
    "data.set",
    "data.sort",
    "data.template",
    "data.unique",
    "data.validate",
    "file.list",
    "file.content",
    "file.read",
    "file.write",
    "http.request",
    "report.fetch_dummy_data",
    "report.summarize_text",
    "script.inspect",
    "script.run",
    "system.cache.get",
    "system.cache.set",
    "system.log",
    "system.metrics",
    "system.state.get",
    "system.state.set",
];

fn manifests() -> Vec<Manifest> {
    let nodes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nodes");
    let read = |pack: &str| Manifest::parse(&fs::read_to_string(nodes.join(pack).join("node.yaml")).unwrap()).unwrap();
    ["agent", "control", "data", "examples/report", "file", "http", "query", "script", "system"].map(read).into()
}

#[test]
fn the_catalog_has_these_types_in_one_version() {
    let manifests = manifests();
    let names: BTreeSet<_> = manifests.iter().flat_map(|pack| &pack.nodes).map(|node| node.name.to_string()).collect();
    assert_eq!(names, TYPES.map(str::to_owned).into());
    let versions: BTreeSet<_> = manifests.iter().map(|pack| pack.version.to_string()).collect();
    assert_eq!(versions.len(), 1, "{versions:?}");
}

#[test]
fn every_type_is_described_with_schemas_examples_and_errors() {
    for node in manifests().iter().flat_map(|pack| &pack.nodes) {
        assert!(!node.description.is_empty(), "{} has no description", node.name);
        assert!(node.input.get("properties").is_some(), "{} does not describe its input", node.name);
        assert!(!node.examples.is_empty(), "{} has no example", node.name);
        for example in &node.examples {
            let told = [example.output.is_some(), example.failure.is_some(), example.pause.is_some()];
            assert_eq!(told.iter().filter(|told| **told).count(), 1, "{}: {}", node.name, example.title);
        }
        let failing = node.examples.iter().any(|example| example.failure.is_some());
        assert!(failing || node.errors.is_empty(), "{} has errors but no example of one", node.name);
    }
}

/// `flowcell validate` can find a misspelt member of an output only if the output's schema is closed. The outputs that
/// stay open contain values from a flow's author, a caller or a server.
#[test]
fn outputs_with_known_members_are_closed() {
    let mut open = BTreeSet::new();
    for node in manifests().iter().flat_map(|pack| &pack.nodes) {
        find_open(&node.output, &node.name, &mut open);
    }
    let expected: BTreeSet<_> = OPEN.into_iter().map(str::to_owned).collect();
    assert_eq!(open, expected);
}

const OPEN: [&str; 14] = [
    "agent.classify.args",
    "agent.coder.args",
    "agent.plan.args",
    "agent.reviewer.args",
    "agent.run.args",
    "agent.summarize.args",
    "control.respond.headers",
    "control.subflow.outputs",
    "data.merge.object",
    "data.object",
    "data.pick.object",
    "data.set.object",
    "http.request.headers",
    "script.run.outputs",
];

fn find_open(schema: &serde_json::Value, path: &str, open: &mut BTreeSet<String>) {
    if schema["type"] == "object" && schema["additionalProperties"] != false {
        open.insert(path.to_owned());
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        find_open(member, &format!("{path}.{name}"), open);
    }
    if let Some(items) = schema.get("items") {
        find_open(items, &format!("{path}[]"), open);
    }
}
