//! The export of a whole run as one JSON document.

use flowcell_contract::Json;
use flowcell_runtime::{
    Flows, NoFlows, RunOptions,
    export::{ExportError, export},
    limits::MAX_INLINE_BYTES,
    ports::{Entry, Journal, Record, Sweep},
    sqlite::Reader,
};

use super::{COUNTS, FlowMap, everything, forget, graph, large::entry, open, options, run, tenant};

fn document(reader: &Reader, flows: &dyn Flows, run: &str) -> Result<Json, ExportError> {
    let mut out = Vec::new();
    export(reader, flows, &tenant(), &run.into(), &mut out)?;
    Ok(Json::parse(&String::from_utf8(out).unwrap()).unwrap())
}

#[test]
fn a_document_has_the_record_the_units_the_events_and_the_children() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let input = Json::object([("a", Json::from("ü".repeat(MAX_INLINE_BYTES)))]);
    let result = run(&store, COUNTS, RunOptions { input: input.clone(), ..options("r") });
    let record = store.find(&tenant(), &"r".into()).unwrap().unwrap();
    for (child, parent) in [("r/1", "r"), ("r/1/1", "r/1"), ("r/2", "r")] {
        for unit in everything(store.reader(), "r") {
            let called = Record { parent: Some(parent.into()), depth: 1, ..record.clone() };
            let record = (unit.first_seq == 0).then_some(called);
            store.append(Entry { record, ..entry(child, (*unit).clone()) });
        }
    }
    // In its turn, and so after all of that.
    store.sweep(&tenant()).unwrap();
    let reader = Reader::open(folder.path()).unwrap();
    let whole = document(&reader, &FlowMap(graph(COUNTS)), "r").unwrap();
    let at = |pointer: &str| whole.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}")).clone();
    assert_eq!(at("/v").as_u64(), Some(1));
    assert_eq!([at("/run/runId"), at("/run/status"), at("/record/flow")], ["r", "succeeded", "f"].map(Json::from));
    assert_eq!(at("/units/0/facts/0/RunStarted/input"), input);
    let as_json = |text: String| Json::parse(&text).unwrap();
    assert_eq!(at("/units"), as_json(serde_json::to_string(&everything(&reader, "r")).unwrap()));
    assert_eq!(at("/events"), as_json(serde_json::to_string(&result.events).unwrap()));
    assert_eq!(at("/children/0/units"), at("/units"));
    let children = ["/children/0/run/runId", "/children/0/children/0/run/runId", "/children/1/run/runId"];
    assert_eq!(children.map(at), ["r/1", "r/1/1", "r/2"].map(Json::from));
    assert_eq!(at("/children/1/children"), Json::array([]));
    assert_eq!([at("/inputs/0/task"), at("/inputs/0/inputDigest")], ["count", "matches"].map(Json::from));
    assert_eq!(at("/inputs/0/input"), Json::object::<&str>([]));
    assert_eq!(at("/children/1/events/0/runId"), Json::from("r/2"));
    assert_eq!(at("/children/0/record/parent"), Json::from("r"));
}

#[test]
fn a_run_whose_flow_is_lost_is_exported_without_events() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    run(&store, COUNTS, options("r"));
    let whole = document(store.reader(), &NoFlows, "r").unwrap();
    assert_eq!([whole.get("events"), whole.get("inputs")], [Some(&Json::array([])); 2]);
    let why = whole.get("eventsMissing").and_then(Json::as_str).unwrap();
    assert!(why.contains("no flow has the pin `f`"), "{why}");
    assert!(!whole.get("units").unwrap().as_array().unwrap().is_empty());
}

#[test]
fn a_run_that_is_not_there_is_not_exported() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    run(&store, COUNTS, options("r"));
    let unknown = document(store.reader(), &NoFlows, "other").unwrap_err();
    assert_eq!(unknown.to_string(), "the run `other` does not exist");
    forget(&store, "r");
    store.sweep(&tenant()).unwrap();
    let removed = document(store.reader(), &NoFlows, "r").unwrap_err();
    assert_eq!(removed.to_string(), "the run `r` was removed, and its id cannot be used again");
}
