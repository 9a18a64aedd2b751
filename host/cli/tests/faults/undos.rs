//! Checks the undos in the journal of a run that has ended.

use std::collections::BTreeSet;

use serde_json::Value;

/// Checks that each undo has ended, once, and that each success of a node that was undone was undone. In the flows of these
/// tests, a scope with undos fails in all of its attempts.
pub(crate) fn check(facts: &[(String, Value)], wrong: &mut Vec<String>) {
    let all = |wanted: &'static str| facts.iter().filter(move |(name, _)| name == wanted).map(|(_, fact)| fact);
    let scopes = |wanted: &'static str| all(wanted).map(|fact| fact["scope"].to_string()).collect::<Vec<_>>();
    if scopes("UndoStarted") != scopes("UndoEnded") {
        wrong.push("I3 the undos did not end one after another".into());
    }
    let undone: BTreeSet<String> = all("UndoStarted").map(|fact| fact["undone"].to_string()).collect();
    let nodes: BTreeSet<String> = all("UndoStarted").map(|fact| fact["undone"]["node"].to_string()).collect();
    for task in all("TaskSucceeded").map(|fact| &fact["task"]) {
        if nodes.contains(&task["node"].to_string()) && !undone.contains(&task.to_string()) {
            wrong.push(format!("I3 the task {task} was not undone"));
        }
    }
}
