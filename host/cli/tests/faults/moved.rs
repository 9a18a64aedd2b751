//! The process dies at each commit of the move of a run to another version of its flow. The run is then in the old
//! version or in the new one.

#![cfg(target_os = "linux")]

use std::fs;

use serde_json::{Value, json};

use crate::{
    faults::process::{Life, Project},
    guests,
};

/// Maximum number of commits of a move, and of the run after it.
const MAX_COMMITS: usize = 40;

/// The names of the nodes in the first version.
const NAMES: [&str; 3] = ["sum", "ask", "pay"];

fn flow(value: u32, [sum, ask, pay]: [&str; 3]) -> String {
    format!(
        "
flow: {{ name: order, outputs: {{ paid: '{{{{ [{pay}.value, {sum}.value, {ask}.response.choice] }}}}' }} }}
nodes:
  - {{ id: {sum}, type: control.noop, input: {{ value: 7 }} }}
  - {{ id: {ask}, type: control.gate, input: {{ prompt: 'Well?', choices: ['yes', 'no'] }} }}
  - {{ id: {pay}, type: control.noop, input: {{ value: {value} }} }}
edges: [{{ from: {sum}, to: {ask} }}, {{ from: {ask}, to: {pay} }}]
"
    )
}

/// Moves a run in a process that dies at the commit `number`, and then goes on with it. Returns whether the process
/// died, and whether the run had moved.
fn move_until(number: usize, names: [&str; 3]) -> (bool, bool) {
    let library = guests::bad_machine();
    let project = Project::new(1, 0);
    let file = project.folder().join("moves.yaml");
    fs::write(&file, flow(1, NAMES)).unwrap();
    let parked = project.done(&["run", "moves.yaml", "--run-id", "r", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{parked:?}");
    fs::write(&file, flow(2, names)).unwrap();
    let changed = NAMES.iter().zip(names).filter(|(old, new)| *old != new);
    let renames: Vec<_> = changed.map(|(old, new)| format!("--rename={old}={new}")).collect();
    let options: Vec<_> = renames.iter().map(String::as_str).collect();
    let arguments = ["runs", "migrate", "r", "--to", "latest", "--answer", "ask=yes", "--quiet"];
    let mut command = project.flowcell(&[&arguments[..], &options].concat());
    let (code, _, said) = Life::of(command.env("LD_PRELOAD", &library).env("BAD_DISK", format!("die:{number}"))).end();
    let died = project.folder().join("bad-disk").exists();
    assert_eq!(died, code.is_none(), "{number}: {code:?} {said}");
    let before = String::from_utf8(project.done(&["runs", "events", "r"]).stdout).unwrap();
    let moved = before.contains("\"harness:migrated\"");
    let answer: &[&str] = if before.contains("\"session:reply\"") { &[] } else { &["--answer", "ask=yes"] };
    let resumed = project.done(&[&["runs", "resume", "r", "--quiet"], answer].concat());
    assert!(resumed.status.success(), "{number}: {resumed:?}");
    let outputs: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(outputs, json!({ "paid": [if moved { 2 } else { 1 }, 7, "yes"] }), "{number}");
    (died, moved)
}

#[test]
fn r1_a_move_is_whole_at_whatever_commit_its_process_dies() {
    move_until_it_ends(NAMES);
}

#[test]
fn r1_a_move_with_other_names_is_whole_at_whatever_commit_its_process_dies() {
    move_until_it_ends(["total", "confirm", "charge"]);
}

fn move_until_it_ends(names: [&str; 3]) {
    let (mut before, mut after) = (0, 0);
    for number in 1..MAX_COMMITS {
        match move_until(number, names) {
            (true, false) => before += 1,
            (true, true) => after += 1,
            (false, moved) => {
                assert!(moved && before > 0 && after > 0, "{before} {after}");
                return;
            }
        }
    }
    panic!("the process never ends by itself");
}
