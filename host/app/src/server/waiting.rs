//! What a run waits for, as its events tell it.

use std::collections::BTreeMap;

use flowcell_contract::{Json, RunId};
use flowcell_runtime::Event;
use serde_json::{Value, json};

use super::{app::Request, fault::Fault};
use std::ops::ControlFlow;

/// Runs below a run that are looked at.
const DEPTH: usize = 16;

/// What a run, and those below it, wait for.
pub(super) fn of(request: &Request, run: &RunId) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    below(request, run, "", DEPTH, &mut found)?;
    Ok(found)
}

fn below(request: &Request, run: &RunId, prefix: &str, depth: usize, found: &mut Vec<Value>) -> Result<(), Fault> {
    let mut open = Open::default();
    request.host.each_event(run, 0, |event| {
        open.hear(&event);
        ControlFlow::Continue(())
    })?;
    found.extend(open.0.into_values().flatten().map(|(_, mut waits)| {
        let address = waits["address"].as_str().unwrap_or_default();
        waits["address"] = format!("{prefix}{address}").into();
        waits
    }));
    if depth == 0 {
        return Ok(());
    }
    for child in request.runs()?.children(request.tenant(), run)? {
        if let Some(task) = calling(run, &child) {
            below(request, &child, &format!("{prefix}{task}/"), depth - 1, found)?;
        }
    }
    Ok(())
}

/// The task that has called a run: its address stands in the run's id, before the attempt.
fn calling<'a>(parent: &RunId, child: &'a RunId) -> Option<&'a str> {
    let rest = child.as_str().strip_prefix(parent.as_str())?.strip_prefix('.')?;
    Some(rest.rsplit_once('.')?.0)
}

/// What each task waits for: by a name, as there may be several.
#[derive(Default)]
struct Open(BTreeMap<String, Vec<(String, Value)>>);

impl Open {
    fn hear(&mut self, event: &Event) {
        if event.kind == "harness:complete" {
            return self.0.clear();
        }
        let text = |key: &str| event.data.get(key).and_then(Json::as_str);
        let Some(node) = text("nodeId") else { return };
        let address = text("scope").map_or_else(|| node.to_owned(), |scope| format!("{scope}.{node}"));
        match event.kind {
            "task:paused" => self.paused(event, &address),
            "call:start" => {
                if let Some(question) = event.data.get("question") {
                    self.asks(&address, &format!("call {}", number(event, "call")), question);
                }
            }
            "agent:tool:decision" => self.over(&address, &format!("call {}", number(event, "call"))),
            "task:blocked" => {
                let (reason, message) = (text("reason"), text("message"));
                let waits = json!({ "kind": "decision", "address": address, "reason": reason, "message": message });
                self.add(&address, "decision", waits);
            }
            "task:resolved" => self.over(&address, "decision"),
            "task:idle" => {
                let waits = json!({ "kind": "message", "address": address });
                self.add(&address, "message", waits);
            }
            "task:busy" => self.over(&address, "message"),
            "task:woken" | "task:resumed" | "task:complete" | "task:failed" | "task:cancelled" | "task:retry" => {
                self.0.remove(&address);
            }
            _ => {}
        }
    }

    fn paused(&mut self, event: &Event, address: &str) {
        self.0.remove(address);
        if let Some(question) = event.data.get("question") {
            self.asks(address, "question", question);
        }
        if let Some(name) = event.data.get("event").and_then(Json::as_str) {
            self.add(address, "event", json!({ "kind": "event", "address": address, "event": name }));
        }
    }

    fn asks(&mut self, task: &str, name: &str, question: &Json) {
        let mut waits = question.to_serde();
        waits["kind"] = "gate".into();
        self.add(task, name, waits);
    }

    fn add(&mut self, task: &str, name: &str, waits: Value) {
        self.over(task, name);
        self.0.entry(task.to_owned()).or_default().push((name.to_owned(), waits));
    }

    fn over(&mut self, task: &str, name: &str) {
        if let Some(open) = self.0.get_mut(task) {
            open.retain(|(known, _)| known != name);
        }
    }
}

fn number(event: &Event, key: &str) -> u64 {
    event.data.get(key).and_then(Json::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_names_the_task_that_called_it() {
        let parent = RunId::from("run-1.x");
        for (child, task) in [("run-1.x.review.1", "review"), ("run-1.x.each[3].review.2-1", "each[3].review")] {
            assert_eq!(calling(&parent, &child.into()), Some(task));
        }
        assert_eq!(calling(&parent, &"run-2.review.1".into()), None);
    }
}
