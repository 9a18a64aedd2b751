//! Derives the lines of the log from a run's events: one line for each step that ended.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{Json, RunId};
use flowcell_flow::{
    graph::{Graph, Node},
    steps::step_label,
};
use flowcell_runtime::{Channel, Event};
use parking_lot::Mutex;

use super::log::{StepLine, StepLog};
use crate::shape::timestamp;

/// Maximum number of characters of a result's summary, and of an error.
const MAX_SUMMARY_CHARS: usize = 1_000;
/// Maximum size in bytes of parameters as JSON text. Of larger parameters, only the beginning is logged, as a string.
const MAX_PARAMS_BYTES: usize = 16 * 1024;

/// Derives the log lines of one run from its events.
pub(super) struct Steps {
    flow: String,
    graph: Arc<Graph>,
    run: RunId,
    input: Json,
    /// The results so far, by step id.
    results: Vec<(Arc<str>, Json)>,
    begun: HashSet<String>,
    /// The number of the next event.
    next: u64,
}

impl Steps {
    pub(super) fn new(flow: &str, graph: Arc<Graph>, run: RunId) -> Steps {
        let (flow, input) = (flow.to_owned(), Json::Null);
        Steps { flow, graph, run, input, results: Vec::new(), begun: HashSet::new(), next: 0 }
    }

    /// Handles an event, and returns the log line if a step has ended. It ignores events that it has handled before,
    /// and events of child runs and of body passes.
    pub(super) fn handle(&mut self, event: &Event) -> Option<StepLine> {
        if event.run_id != self.run || event.seq < self.next || event.data.get("scope").is_some() {
            return None;
        }
        self.next = event.seq + 1;
        if event.kind == "harness:start" {
            self.input = event.data.get("input").cloned().unwrap_or_default();
            return None;
        }
        let step = event.data.get("taskId").and_then(Json::as_str)?;
        match event.kind {
            "task:start" => {
                self.begun.insert(step.to_owned());
                None
            }
            "task:complete" => {
                let result = event.data.get("result").cloned().unwrap_or_default();
                let line = self.line(event, step, Ok(&result));
                self.results.push((step.into(), result));
                Some(line)
            }
            "task:failed" => {
                let error = event.data.get("error").cloned().unwrap_or_default();
                let text = |key| error.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
                Some(self.line(event, step, Err(format!("{}: {}", text("code"), text("message")))))
            }
            "task:cancelled" if self.begun.contains(step) => Some(self.line(event, step, Err("cancelled".to_owned()))),
            _ => None,
        }
    }

    fn line(&self, event: &Event, step: &str, ended: Result<&Json, String>) -> StepLine {
        let node = self.graph.nodes.iter().rfind(|node| node.id.as_str() == step);
        StepLine {
            flow_run_id: self.run.to_string(),
            flow_name: self.flow.clone(),
            step_id: step.to_owned(),
            tool_name: node.map(tool_name).unwrap_or_default(),
            status: if ended.is_ok() { "success" } else { "error" }.to_owned(),
            params: node.map(|node| self.params(node)).unwrap_or_default(),
            result_summary: ended.as_ref().ok().map(|result| summary(result)),
            error: ended.err().map(|error| shorten(&error)),
            timestamp: timestamp(event.ts),
        }
    }

    fn params(&self, node: &Node) -> serde_json::Value {
        let results = Json::object(self.results.iter().cloned());
        let roots = [("flow", Json::object([("input", self.input.clone())])), ("nodes", results)];
        let roots = roots.into_iter().map(|(name, root)| (Arc::from(name), root));
        let roots = Json::object(self.results.iter().cloned().chain(roots));
        let binding = &node.input.expr;
        let params = binding.render(&roots).unwrap_or_else(|_| binding.render_members(&roots));
        match params.to_text() {
            text if text.len() > MAX_PARAMS_BYTES => shorten(&text).into(),
            _ => params.to_serde(),
        }
    }
}

/// Returns the tool of a step, as the flow names it. For nodes of other dialects it returns the node's type.
fn tool_name(node: &Node) -> String {
    step_label(node).map_or_else(|| node.node_type.name.to_string(), |label| label.tool)
}

fn summary(result: &Json) -> String {
    match result.as_str() {
        Some(text) => shorten(text),
        None => shorten(&result.to_text()),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SUMMARY_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Logs the steps of a run as they end. A failure to log does not fail the run.
pub(super) struct StepLogger {
    steps: Mutex<Steps>,
    log: Arc<StepLog>,
}

impl StepLogger {
    pub(super) fn new(steps: Steps, log: Arc<StepLog>) -> StepLogger {
        StepLogger { steps: Mutex::new(steps), log }
    }
}

impl Channel for StepLogger {
    fn on_event(&self, event: &Event) {
        let mut steps = self.steps.lock();
        let Some(line) = steps.handle(event) else { return };
        if let Err(error) = self.log.add(&steps.flow, &[line]) {
            tracing::warn!(flow = steps.flow, %error, "cannot log a step");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_761_955_199_999, "2025-10-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, expected) in cases {
            assert_eq!(timestamp(ms), expected);
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "ä".repeat(MAX_SUMMARY_CHARS + 1);
        assert_eq!(shorten(&long).chars().count(), MAX_SUMMARY_CHARS + 1);
        assert_eq!(shorten(&long[..2 * MAX_SUMMARY_CHARS]), &long[..2 * MAX_SUMMARY_CHARS]);
    }
}
