//! Which lines of the log follow from the events of a run: one for each step that ended.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use flowcell_contract::{Json, RunId};
use flowcell_flow::{
    graph::{Graph, Node},
    steps::step_label,
};
use flowcell_runtime::{Channel, Event};
use serde::{Deserialize, Serialize};

use super::log::StepLog;

/// Characters of a summary of a result, and of an error.
const SUMMARY: usize = 1_000;
/// Bytes of the JSON text of parameters; of larger ones the beginning is logged, as a text.
const PARAMS: usize = 16 * 1024;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepLine {
    /// The run.
    pub flow_run_id: String,
    /// The flow.
    pub flow_name: String,
    /// The step.
    pub step_id: String,
    /// The tool, as the flow names it.
    pub tool_name: String,
    /// `success`, or `error`.
    pub status: String,
    /// What the tool was given; of a step whose references failed, what of it could be computed.
    pub params: serde_json::Value,
    /// The beginning of the result as text; null if there is none.
    pub result_summary: Option<String>,
    /// Why the step failed; null if it did not.
    pub error: Option<String>,
    /// When it ended, in UTC.
    pub timestamp: String,
}

/// Follows one run.
pub(super) struct Steps {
    flow: String,
    graph: Arc<Graph>,
    run: RunId,
    input: Json,
    /// Results so far, by the ids of the steps.
    results: Vec<(Arc<str>, Json)>,
    begun: HashSet<String>,
    /// The number of the event that comes next.
    next: u64,
}

impl Steps {
    pub(super) fn new(flow: &str, graph: Arc<Graph>, run: RunId) -> Steps {
        let (flow, input) = (flow.to_owned(), Json::Null);
        Steps { flow, graph, run, input, results: Vec::new(), begun: HashSet::new(), next: 0 }
    }

    /// Takes an event in. What was taken in before, and what is of runs and passes below this one, says nothing.
    pub(super) fn follow(&mut self, event: &Event) -> Option<StepLine> {
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
        let node = self.graph.nodes.iter().find(|node| node.id.as_str() == step);
        StepLine {
            flow_run_id: self.run.to_string(),
            flow_name: self.flow.clone(),
            step_id: step.to_owned(),
            tool_name: node.map(tool).unwrap_or_default(),
            status: if ended.is_ok() { "success" } else { "error" }.to_owned(),
            params: node.map(|node| self.params(node)).unwrap_or_default(),
            result_summary: ended.as_ref().ok().map(|result| summary(result)),
            error: ended.err().map(|error| cut(&error)),
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
            text if text.len() > PARAMS => cut(&text).into(),
            _ => params.to_serde(),
        }
    }
}

/// What the flow calls the tool of a step; in other dialects the node's type.
fn tool(node: &Node) -> String {
    step_label(node).map_or_else(|| node.node_type.name.to_string(), |label| label.tool)
}

fn summary(result: &Json) -> String {
    match result.as_str() {
        Some(text) => cut(text),
        None => cut(&result.to_text()),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A time as RFC 3339 writes it, in UTC, with milliseconds.
fn timestamp(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// The date of a day since 1970. Years are counted from March, so that a leap day is the last of one.
fn date(days: u64) -> (u64, u64, u64) {
    let since = days + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Logs the steps of a run as they end. What cannot be logged is not the run's trouble.
pub(super) struct Following {
    steps: Mutex<Steps>,
    log: Arc<StepLog>,
}

impl Following {
    pub(super) fn new(steps: Steps, log: Arc<StepLog>) -> Following {
        Following { steps: Mutex::new(steps), log }
    }
}

impl Channel for Following {
    fn on_event(&self, event: &Event) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = steps.follow(event) else { return };
        if let Err(error) = self.log.add(&steps.flow, &[line]) {
            tracing::warn!(flow = steps.flow, %error, "a step could not be logged");
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
        let long = "ä".repeat(SUMMARY + 1);
        assert_eq!(cut(&long).chars().count(), SUMMARY + 1);
        assert_eq!(cut(&long[..2 * SUMMARY]), &long[..2 * SUMMARY]);
    }
}
