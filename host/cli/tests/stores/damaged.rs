//! `flowcell runs show` of damaged runs.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    kit::{output_of, stderr, stdout},
    stores::{ASKS, run_ok},
};

const CALLS: &str = "
flow: { name: calls }
nodes: [{ id: review, type: control.subflow, input: { name: asks } }]
";

/// The line about the outputs of the runs whose gate got the answer `no`.
const SAID: &str = "outputs: {\"said\":\"no\",\"count\":3}";

/// Returns a statement that changes one letter in the unit of a run that `place` selects.
fn damage(run: &str, place: &str) -> String {
    format!(
        "UPDATE units SET body = replace(body, 'u', 'v') WHERE run = (SELECT id FROM runs WHERE run = '{run}')
         AND first_seq = (SELECT {place}(first_seq) FROM units WHERE run = (SELECT id FROM runs WHERE run = '{run}'))"
    )
}

#[test]
fn a_damaged_run_shows_its_other_parts_and_says_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    fs::write(folder.join("calls.yaml"), CALLS).unwrap();
    for run in ["start", "end", "record", "whole"] {
        run_ok(folder, &["run", "asks.yaml", "--run-id", run, "-i", "amount=7", "--answer", "ask=no", "--quiet"]);
    }
    for (flow, run) in [("asks.yaml", "parked"), ("calls.yaml", "caller")] {
        let parked = output_of(folder, &["run", flow, "--run-id", run, "--quiet"]);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    }
    let database = Connection::open(folder.join(".flowcell/flowcell.db")).unwrap();
    for sql in [
        damage("start", "min"),
        damage("end", "max"),
        damage("parked", "max"),
        damage("caller.review.1", "min"),
        "UPDATE runs SET record = '{' WHERE run = 'record'".to_owned(),
    ] {
        assert_eq!(database.execute(&sql, ()).unwrap(), 1, "{sql}");
    }
    drop(database);
    // For each run: the damaged part, the lines that are still shown, and the members of the JSON form that are unknown.
    let journal = |run: &str| format!("the journal of run `{run}` is damaged");
    for (run, damaged, lines, unknown) in [
        (
            "start",
            journal("start"),
            vec!["start  asks", "succeeded; further tasks are unknown"],
            vec!["input", "tasks"],
        ),
        (
            "end",
            journal("end"),
            vec!["set succeeded", "succeeded; further tasks are unknown", "input: "],
            vec!["tasks"],
        ),
        ("parked", journal("parked"), vec!["set succeeded", "parked; further tasks are unknown"], vec!["tasks"]),
        ("record", journal("record"), vec!["record  asks", "input: ", SAID], vec!["packs", "tasks"]),
        ("caller", journal("caller.review.1"), vec!["review waiting", "\nparked\n"], vec![]),
    ] {
        let shown = output_of(folder, &["runs", "show", run]);
        let text = stdout(&shown);
        assert_eq!((shown.status.code(), &*stderr(&shown)), (Some(0), ""), "{run}");
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("incomplete: ") && first.contains(&damaged), "{run}: {text}");
        assert!(first.contains("flowcell store check") && first.contains("flowcell help store"), "{first}");
        assert!(lines.iter().all(|line| text.contains(line)), "{run}: {text}");
        let shown: Value = serde_json::from_str(&run_ok(folder, &["runs", "show", run, "--json"])).unwrap();
        // Gates follow from the events, so they are unknown in each case.
        for part in unknown.into_iter().chain(["waiting"]) {
            let why = shown[format!("{part}Unknown")].as_str().unwrap_or_default();
            assert!(why.contains(&damaged), "{run} {part}: {shown}");
        }
        assert!(shown["tasks"].is_array() && shown["runId"] == run, "{shown}");
    }
    let whole = run_ok(folder, &["runs", "show", "whole"]);
    assert!(whole.starts_with("whole  asks\n") && !whole.contains("unknown"), "{whole}");
    let whole: Value = serde_json::from_str(&run_ok(folder, &["runs", "show", "whole", "--json"])).unwrap();
    assert!(whole.as_object().unwrap().keys().all(|name| !name.ends_with("Unknown")), "{whole}");
    assert_eq!(whole["input"], json!({ "amount": 7 }));
    // One task of a damaged run has no other parts to show, and a run that does not exist is no damage.
    for (arguments, code) in [(&["end", "ask"][..], 74), (&["nobody"], 2)] {
        let refused = output_of(folder, &[&["runs", "show"], arguments].concat());
        assert_eq!((refused.status.code(), &*stdout(&refused)), (Some(code), ""), "{}", stderr(&refused));
    }
}
