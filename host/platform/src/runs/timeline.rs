//! The timeline of a run: when each of its tasks began and ended, in columns, so that a large run is one small answer.

use std::collections::HashMap;

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{Event, paging::PAGE_BYTES};
use serde::Serialize;

use super::{
    tree::{is_zero, status_after},
    waiting::{address_of, dropped_nodes},
};
use crate::{
    Host, StartError,
    host::events::{Until, each_until},
};

/// Approximate size in bytes of a task in all columns as JSON text, without its address.
const TASK_BYTES: u64 = 48;

/// The tasks of a run in columns. All columns have one entry for each task, in the order of the first events of the tasks.
/// Times are milliseconds after `began`.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The time of the first event of the run, in milliseconds since 1970.
    began: u64,
    /// The time of the last event that is counted, in milliseconds since 1970.
    until: u64,
    /// The number of the next event. The timeline has everything before it.
    next: u64,
    /// The addresses of the tasks, such as `each[3].pay`.
    task: Vec<String>,
    /// The indexes of their types in `types`; null for a task without an attempt.
    #[serde(rename = "type")]
    node_type: Vec<Option<u32>>,
    /// The times at which their first attempts began; null for a task without one.
    begin: Vec<Option<u64>>,
    /// The times at which they ended; null for a task that has not ended.
    end: Vec<Option<u64>>,
    /// The indexes of their statuses in `statuses`.
    status: Vec<u32>,
    /// The numbers of attempts that began.
    attempts: Vec<u32>,
    /// The types of nodes.
    types: Vec<String>,
    /// The statuses, as in the tree of the run.
    statuses: Vec<String>,
    /// The number of the latest tasks, which are left out because the timeline exceeds 16 MiB.
    #[serde(skip_serializing_if = "is_zero")]
    tasks_left_out: u64,
    #[serde(skip)]
    places: HashMap<String, usize>,
    #[serde(skip)]
    bytes: u64,
}

impl Timeline {
    /// Reads the timeline of a run as it was before the event number `end`. Blocks its thread.
    pub fn before(host: &Host, run: &RunId, end: u64) -> Result<Timeline, StartError> {
        let mut timeline = Timeline::default();
        each_until(host, run, Until::Event(end), |event| timeline.add(event))?;
        Ok(timeline)
    }

    fn add(&mut self, event: &Event) {
        if event.seq == 0 {
            self.began = event.ts;
        }
        (self.until, self.next) = (event.ts, event.seq + 1);
        if event.kind == "harness:migrated" {
            // A node that is gone or starts anew does not go on.
            let places: Vec<_> = dropped_nodes(event).filter_map(|node| self.places.get(node).copied()).collect();
            let open: Vec<_> = places.into_iter().filter(|at| self.end[*at].is_none()).collect();
            open.into_iter().for_each(|at| self.set_status(at, "cancelled", event.ts));
            return;
        }
        let Some(status) = status_after(event.kind) else { return };
        let Some(address) = address_of(event) else { return };
        let Some(at) = self.place(address) else {
            // Each task becomes ready once for its first attempt, so this counts it once.
            self.tasks_left_out += u64::from(event.kind == "task:ready");
            return;
        };
        if event.kind == "task:start" {
            self.begin[at].get_or_insert(event.ts.saturating_sub(self.began));
            self.attempts[at] += 1;
            if let Some(name) = event.data.get("nodeType").and_then(Json::as_str) {
                self.node_type[at] = Some(index_of(&mut self.types, name));
            }
        }
        self.set_status(at, status, event.ts);
    }

    fn set_status(&mut self, at: usize, status: &str, ts: u64) {
        let has_ended = matches!(status, "succeeded" | "failed" | "skipped" | "cancelled");
        self.end[at] = has_ended.then(|| ts.saturating_sub(self.began));
        self.status[at] = index_of(&mut self.statuses, status);
    }

    /// Returns the place of a task in the columns, and adds it if it is new. Returns `None` if there is no room for it.
    fn place(&mut self, address: String) -> Option<usize> {
        if let Some(at) = self.places.get(&address) {
            return Some(*at);
        }
        if self.bytes > PAGE_BYTES {
            return None;
        }
        self.bytes += TASK_BYTES + address.len() as u64;
        let at = self.task.len();
        self.places.insert(address.clone(), at);
        self.task.push(address);
        self.node_type.push(None);
        self.begin.push(None);
        self.end.push(None);
        self.status.push(0);
        self.attempts.push(0);
        Some(at)
    }
}

/// Returns the index of a name in a list, and adds it if it is new. The lists are short.
fn index_of(names: &mut Vec<String>, name: &str) -> u32 {
    let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    at as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    fn event(seq: u64, kind: &'static str, data: serde_json::Value) -> Event {
        let data = Json::from(data);
        Event { seq, ts: 1_000 + 10 * seq, tenant: "local".into(), run_id: "r".into(), kind, data }
    }

    #[test]
    fn a_task_has_its_first_begin_and_its_last_end() {
        let mut timeline = Timeline::default();
        let starts = |node: &str| json!({ "nodeId": node, "nodeType": "http.request" });
        let of = |node: &str| json!({ "nodeId": node, "scope": "each[1]" });
        let events = [
            ("harness:start", json!({})),
            ("task:ready", json!({ "nodeId": "a" })),
            ("task:start", starts("a")),
            ("task:retry", json!({ "nodeId": "a" })),
            ("task:start", starts("a")),
            ("task:skipped", of("b")),
            ("task:complete", json!({ "nodeId": "a" })),
            ("task:start", starts("c")),
            ("log", json!({ "nodeId": "d" })),
            ("harness:migrated", json!({ "dropped": ["a", "c"] })),
        ];
        for (seq, (kind, data)) in (0..).zip(events) {
            timeline.add(&event(seq, kind, data));
        }
        let told = serde_json::to_value(&timeline).unwrap();
        let statuses = told["statuses"].as_array().unwrap();
        let status: Vec<_> = timeline.status.iter().map(|at| statuses[*at as usize].as_str().unwrap()).collect();
        assert_eq!(status, ["succeeded", "skipped", "cancelled"]);
        let expected = json!({
            "began": 1_000, "until": 1_090, "next": 10, "task": ["a", "each[1].b", "c"], "type": [0, null, 0],
            "begin": [20, null, 70], "end": [60, 50, 90], "status": told["status"], "attempts": [2, 0, 1],
            "types": ["http.request"], "statuses": told["statuses"],
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn a_timeline_is_bounded_and_counts_what_it_leaves_out() {
        let mut timeline = Timeline::default();
        let passes = 400_000;
        for pass in 0..passes {
            let data = json!({ "nodeId": "one", "scope": format!("each[{pass}]") });
            timeline.add(&event(pass, "task:ready", data.clone()));
            timeline.add(&event(pass, "task:failed", data));
        }
        assert_eq!(timeline.task.len() as u64 + timeline.tasks_left_out, passes);
        let text = serde_json::to_string(&timeline).unwrap();
        assert!(text.len() as u64 <= PAGE_BYTES && timeline.tasks_left_out > 0, "{}", text.len());
    }
}
