//! The outcomes of tasks in the facts of a run.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns the number of outcomes of each task. On a cycle of edges a task has one in each pass, and only the last pass
/// counts.
pub(crate) fn of(facts: &[(String, Value)]) -> BTreeMap<String, usize> {
    // With each number, the pass of the latest outcome.
    let (mut outcomes, mut passes): (BTreeMap<String, (usize, usize)>, BTreeMap<String, usize>) = Default::default();
    for (name, fact) in facts {
        let more = match name.as_str() {
            "TaskReady" => 0,
            "TaskSucceeded" | "TaskFailed" | "TaskSkipped" | "TaskCancelled" => 1,
            "CyclePassStarted" => {
                *passes.entry(fact["scope"].to_string()).or_default() += 1;
                continue;
            }
            _ => continue,
        };
        let pass = passes.get(&fact["task"]["scope"].to_string()).copied().unwrap_or_default();
        let (count, at) = outcomes.entry(fact["task"].to_string()).or_default();
        (*count, *at) = (if *at < pass { more } else { *count + more }, pass);
    }
    outcomes.into_iter().map(|(task, (count, _))| (task, count)).collect()
}
