//! Notices, and how they follow from the rows of runs.

use flowcell_contract::RunId;
use flowcell_platform::{Event, jobs::Job};
use flowcell_runtime::{
    fact::{WaitReason, WaitsFor},
    ports::RunRow,
};
use serde_json::{Value, json};

use crate::http::broadcast::{Frame, frame};

/// The known state of a run, from its row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) updated: u64,
    status: String,
    waits_for: Option<WaitsFor>,
}

impl Known {
    pub(super) fn of(row: &RunRow) -> Known {
        Known { updated: row.updated, status: row.status.clone(), waits_for: row.waits_for.clone() }
    }

    /// Returns true if the run has ended.
    pub(super) fn has_ended(&self) -> bool {
        !["active", "parked", "needs_attention"].contains(&self.status.as_str())
    }

    /// Returns true if the run waits for a person.
    fn waits_for_person(&self) -> bool {
        self.waits_for.as_ref().is_some_and(|waits| waits.reason != WaitReason::Event || waits.others > 0)
    }
}

/// Creates the notices of a run that has changed. `before` is what was known of the run. If nothing was, a run that was
/// created at `began` or later counts as new. A run that began earlier may have waited for a person. `id` is the id of the
/// notices.
pub(super) fn of_run(row: &RunRow, before: Option<&Known>, began: u64, id: u64) -> Vec<Frame> {
    let now = Known::of(row);
    let is_new = before.is_none() && row.created >= began;
    let has_waited = before.map_or(!is_new, Known::waits_for_person);
    let mut notices = Vec::new();
    if is_new {
        notices.push(run_notice("run:created", row, row.created));
    }
    let kind = match row.status.as_str() {
        "active" => Some("run:resumed").filter(|_| !is_new),
        "parked" | "needs_attention" => Some("run:parked"),
        "failed" => Some("run:failed"),
        _ => Some("run:ended"),
    };
    notices.extend(kind.map(|kind| run_notice(kind, row, row.updated)));
    if now.waits_for_person() {
        let mut opened = run_notice("gate:opened", row, row.updated);
        if let Some(WaitsFor { reason, task, others }) = &row.waits_for {
            opened["reason"] = reason.name().into();
            opened["others"] = (*others).into();
            if let Some(task) = task {
                opened["task"] = (**task).into();
            }
        }
        notices.push(opened);
    } else if has_waited {
        notices.push(run_notice("gate:closed", row, row.updated));
    }
    notices.into_iter().map(|notice| to_frame(&notice, Some(id))).collect()
}

fn run_notice(kind: &str, row: &RunRow, ts: u64) -> Value {
    let status = if row.status == "active" { "running" } else { &row.status };
    let mut notice = json!({ "type": kind, "ts": ts, "runId": row.run_id, "flow": row.flow, "status": status });
    let texts = [("errorCode", &row.error), ("failedNode", &row.node), ("trigger", &row.trigger)];
    for (name, value) in texts {
        if let Some(value) = value {
            notice[name] = value.as_str().into();
        }
    }
    if let Some(due) = row.due {
        notice["due"] = due.into();
    }
    notice
}

/// Returns the type of the notice about an event of a run that this process drives: a gate was opened or closed. Returns
/// `None` for other events.
pub(super) fn gate_kind(event: &Event) -> Option<&'static str> {
    match event.kind {
        "task:paused" | "call:start" => event.data.get("question").map(|_| "gate:opened"),
        "task:blocked" => Some("gate:opened"),
        "session:reply" | "agent:tool:decision" | "task:resolved" => Some("gate:closed"),
        _ => None,
    }
}

/// Creates the notice about a gate. `root` is the top run, and the event is of it or of a run below it.
pub(super) fn of_gate(kind: &str, root: &RunId, flow: &str, event: &Event, id: u64) -> Frame {
    let mut notice = json!({ "type": kind, "ts": event.ts, "runId": root, "flow": flow, "status": "running" });
    if event.run_id != *root {
        notice["calledRunId"] = json!(event.run_id);
    }
    to_frame(&notice, Some(id))
}

/// Creates the notice of a job that has changed.
pub(super) fn of_job(job: &Job, id: u64) -> Frame {
    let notice = json!({
        "type": "job:changed", "ts": job.updated, "jobId": job.id, "action": job.request.action, "state": job.state,
        "matched": job.matched, "done": job.done, "failed": job.failed,
    });
    to_frame(&notice, Some(id))
}

/// Creates the notice that a stream has begun. Its id is the time from which on all changes follow.
pub(super) fn ready(now: u64) -> Frame {
    to_frame(&json!({ "type": "ready", "ts": now }), Some(now))
}

/// Creates the notice that any notices may be missing. It has no id, so a client that goes on later gets it again.
pub(in crate::http) fn gap() -> Frame {
    gap_in(&["runs", "gates", "jobs"])
}

/// Creates the notice that notices about these lists may be missing.
pub(super) fn gap_in(lists: &[&str]) -> Frame {
    to_frame(&json!({ "type": "gap", "lists": lists }), None)
}

fn to_frame(notice: &Value, id: Option<u64>) -> Frame {
    let kind = notice["type"].as_str().unwrap_or_default();
    frame(notice, id, kind)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeMap;

    use super::*;

    fn row(status: &str, created: u64, updated: u64, waits: Option<WaitReason>) -> RunRow {
        RunRow {
            run_id: "r".into(),
            flow: "f".into(),
            status: status.into(),
            created,
            updated,
            due: None,
            waits_for: waits.map(|reason| WaitsFor { reason, task: Some("ok".into()), others: 0 }),
            version: None,
            labels: BTreeMap::new(),
            trigger: None,
            retry_of: None,
            error: None,
            paused_until: None,
            node: None,
        }
    }

    fn kinds(row: &RunRow, before: Option<&RunRow>) -> Vec<String> {
        let before = before.map(Known::of);
        of_run(row, before.as_ref(), 100, 7).into_iter().map(|frame| frame.kind.into()).collect()
    }

    #[test]
    fn notices_follow_from_the_row_before_and_the_row_after() {
        let gate = Some(WaitReason::Gate);
        let active = row("active", 100, 100, None);
        let asks = row("parked", 100, 110, gate);
        let waits = row("parked", 100, 110, Some(WaitReason::Event));
        let ended = row("succeeded", 100, 120, None);
        let old = row("succeeded", 99, 120, None);
        for (row, before, expected) in [
            (&active, None, &["run:created"][..]),
            (&asks, None, &["run:created", "run:parked", "gate:opened"]),
            (&asks, Some(&active), &["run:parked", "gate:opened"]),
            (&waits, Some(&active), &["run:parked"]),
            (&active, Some(&asks), &["run:resumed", "gate:closed"]),
            (&active, Some(&waits), &["run:resumed"]),
            (&ended, Some(&asks), &["run:ended", "gate:closed"]),
            (&ended, Some(&active), &["run:ended"]),
            // A run that was never seen may have waited before.
            (&old, None, &["run:ended", "gate:closed"]),
            (&row("failed", 100, 120, None), Some(&active), &["run:failed"]),
            (&row("cancelled", 100, 120, None), Some(&waits), &["run:ended"]),
            (
                &row("needs_attention", 100, 120, Some(WaitReason::CrashLoop)),
                Some(&active),
                &["run:parked", "gate:opened"],
            ),
        ] {
            assert_eq!(kinds(row, before), expected, "{row:?}");
        }
    }

    #[test]
    fn a_notice_has_no_contents_of_a_run() {
        let failed = RunRow { error: Some("timeout".into()), node: Some("a".into()), ..row("failed", 100, 120, None) };
        let [frame] = of_run(&failed, Some(&Known::of(&row("active", 100, 100, None))), 100, 7).try_into().unwrap();
        let told: Value = serde_json::from_slice(&frame.text).unwrap();
        let expected = json!({
            "type": "run:failed", "ts": 120, "runId": "r", "flow": "f", "status": "failed", "errorCode": "timeout",
            "failedNode": "a",
        });
        assert_eq!((told, frame.seq), (expected, Some(7)));
    }
}
