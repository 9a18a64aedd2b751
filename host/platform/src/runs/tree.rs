//! A run as a tree of its tasks. A task that owns a body contains the passes of the body, and a pass contains its
//! tasks. The passes of a cycle of edges stand below an item with the id of the cycle's entry.

mod page;
mod states;

use std::collections::BTreeMap;

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{Event, paging::PAGE_BYTES};
use serde::Serialize;
use serde_json::Value;

pub use self::{
    page::{TaskFilter, TaskItem},
    states::NodeStates,
};

use super::waiting::dropped_nodes;
use crate::{
    Host, StartError,
    host::{
        events::{Until, each_until},
        task_inputs::run_at,
    },
};

/// The states of tasks, the most urgent first.
pub const STATUSES: [&str; 9] =
    ["blocked", "failed", "waiting", "retrying", "running", "ready", "cancelled", "succeeded", "skipped"];

/// Approximate size in bytes of a task as JSON text, without its id and its error. It includes the JSON of one pass.
const TASK_BYTES: usize = 96;

/// A task in the tree of a run, with the passes of its body if it owns one.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Twig {
    /// The id of the node.
    pub id: String,
    /// `ready`, `running`, `waiting`, `blocked`, `retrying`, `succeeded`, `failed`, `skipped` or `cancelled`.
    pub status: &'static str,
    /// The address of the task that this one undoes. Absent for all other tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// The number of attempts that began.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempts: u64,
    /// The number of calls that left the host.
    #[serde(skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The duration of an ended task, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The error of a failed task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub error: Option<Value>,
    /// The passes of the task's body. Empty for a task without a body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub passes: Vec<Pass>,
    /// The time at which the latest attempt began, in milliseconds since 1970.
    #[serde(skip)]
    pub began: Option<u64>,
    /// True if the item is a task, and not a cycle of edges.
    #[serde(skip)]
    pub is_task: bool,
    /// True if the task has called a flow.
    #[serde(skip)]
    pub has_called: bool,
    /// The cause that a task waits for. `None`: its own nodes, a called flow, or nothing.
    #[serde(skip)]
    pub waits_for: Option<WaitsFor>,
    /// The number of the task's calls that a person has to allow.
    #[serde(skip)]
    asking: u64,
}

/// A cause from outside that lets a task go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// An answer of a person.
    Person,
    /// A named event, or a message to an agent.
    Event,
    /// A time: that of a timer, or that at which a quota renews.
    Time,
}

impl Twig {
    /// Returns the numbers of passes of the task's body by their states.
    pub fn pass_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        self.passes.iter().for_each(|pass| *counts.entry(pass.status()).or_default() += 1);
        counts
    }

    /// Reacts to an event after which an agent waits for something else.
    fn change_wait(&mut self, kind: &str) {
        self.asking = self.asking.saturating_sub(u64::from(kind == "agent:tool:decision"));
        self.waits_for = match kind {
            _ if self.asking > 0 => Some(WaitsFor::Person),
            "task:idle" => Some(WaitsFor::Event),
            _ => None,
        };
    }

    /// Sets the status of each cycle of edges. It follows from the tasks of its last pass.
    fn set_status_of_cycles(&mut self) {
        self.passes.iter_mut().flat_map(|pass| &mut pass.tasks).for_each(Twig::set_status_of_cycles);
        let Some(last) = self.passes.last().filter(|_| !self.is_task) else { return };
        let has = |wanted: fn(&str) -> bool| last.tasks.iter().any(|task| wanted(task.status));
        self.status = if has(|status| !matches!(status, "succeeded" | "failed" | "skipped" | "cancelled")) {
            "running"
        } else if has(|status| status == "cancelled") {
            "cancelled"
        } else {
            "succeeded"
        };
    }
}

/// One pass of a body.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pass {
    /// The number of the pass, counted from 0.
    pub index: u64,
    /// The tasks of the pass.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub tasks: Vec<Twig>,
}

impl Pass {
    /// Returns the most urgent status of the tasks in the pass.
    pub fn status(&self) -> &'static str {
        self.tasks.iter().map(|task| task.status).min_by_key(|status| rank(status)).unwrap_or("succeeded")
    }
}

/// Returns the place of a status in [`STATUSES`].
pub fn rank(status: &str) -> usize {
    STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len())
}

/// Returns the run that a task has called last. `address` is that of the task, and may lead through called runs, such as
/// `review/pay`. Returns `None` if the task has called no run.
pub fn called_run(host: &Host, run: &RunId, address: &str) -> Result<Option<RunId>, StartError> {
    let below = format!("{address}/");
    let (called, rest) = run_at(run, &below, |run| host.called_by(run))?;
    Ok(rest.map(|_| called))
}

/// Returns whether a count is zero, to omit it from the JSON.
pub fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The tasks of a run, up to [`PAGE_BYTES`].
#[derive(Default)]
pub struct Tree {
    tasks: Vec<Twig>,
    /// Approximate bytes of the tasks as JSON text.
    bytes: u64,
    left_out: u64,
}

impl Tree {
    /// Builds the tree of a run as it was before the event number `end`.
    pub fn before(host: &Host, run: &RunId, end: u64) -> Result<Tree, StartError> {
        let mut tree = Tree::default();
        tree.read(host, run, end)?;
        Ok(tree)
    }

    /// Builds the tree of a run from the store. If a part of the run is unknown, the tree has the tasks before it, and the
    /// second result is the reason.
    pub fn of_known(host: &Host, run: &RunId) -> Result<(Tree, Option<String>), StartError> {
        let mut tree = Tree::default();
        match tree.read(host, run, u64::MAX) {
            Ok(()) => Ok((tree, None)),
            Err(error) => Ok((tree, Some(error.unknown_part().ok_or(error)?))),
        }
    }

    fn read(&mut self, host: &Host, run: &RunId, end: u64) -> Result<(), StartError> {
        each_until(host, run, Until::Event(end), |event| self.add(event)).map(drop)
    }

    /// Returns the number of tasks that did not fit into [`PAGE_BYTES`]. They are the tasks that began last.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the tasks, in the order of their first events.
    pub fn tasks(mut self) -> Vec<Twig> {
        self.present();
        self.tasks
    }

    /// Returns the tasks so far, in the order of their first events. More events may follow.
    pub fn present(&mut self) -> &[Twig] {
        self.tasks.iter_mut().for_each(Twig::set_status_of_cycles);
        &self.tasks
    }

    /// Adds the next event of the run.
    pub fn add(&mut self, event: &Event) {
        if event.kind == "harness:migrated" {
            // A node that is gone or starts anew does not go on.
            for node in dropped_nodes(event) {
                let task = self.tasks.iter_mut().find(|task| task.id == node);
                let open = task.filter(|task| !matches!(task.status, "succeeded" | "failed" | "skipped"));
                if let Some(task) = open {
                    (task.status, task.asking, task.waits_for) = ("cancelled", 0, None);
                }
            }
            return;
        }
        let text = |key: &str| event.data.get(key).and_then(Json::as_str).unwrap_or_default();
        let number = |key: &str| event.data.get(key).and_then(Json::as_u64);
        let (Some(id), scope) = (event.data.get("taskId").and_then(Json::as_str), text("scope")) else { return };
        if matches!(event.kind, "task:idle" | "task:busy" | "agent:tool:decision") {
            if let Some(task) = find_task_mut(&mut self.tasks, scope, id) {
                task.change_wait(event.kind);
            }
            return;
        }
        let is_call = matches!(event.kind, "call:start" | "service:call");
        // The end of an undo names the undone task, too. It is told beside the end of the task itself.
        let undoes = (event.kind == "undo:start").then(|| text("undoes"));
        let status = status_after(event.kind);
        if !is_call && status.is_none() && undoes.is_none() {
            return;
        }
        if self.bytes > PAGE_BYTES && find_task(&self.tasks, scope, id).is_none() {
            // Each task becomes ready once for its first attempt, so this counts it once.
            self.left_out += u64::from(event.kind == "task:ready");
            return;
        }
        let error = event.data.get("error").map(Json::to_serde);
        let bytes = error.as_ref().map_or(0, |error| error.to_string().len());
        let task = self.task_at(scope, id);
        if let Some(undoes) = undoes {
            // An earlier attempt of the scope may have undone the same task.
            *task = Twig { undoes: Some(undoes.to_owned()), id: std::mem::take(&mut task.id), ..Twig::default() };
            (task.status, task.is_task) = ("ready", true);
            return;
        }
        task.is_task = true;
        match status {
            None => {
                task.calls += 1;
                if event.data.get("question").is_some() {
                    (task.asking, task.waits_for) = (task.asking + 1, Some(WaitsFor::Person));
                }
            }
            Some(status) => {
                task.status = status;
                (task.asking, task.waits_for) = (0, waits_for(event));
                task.has_called |= event.data.get("flow").is_some() && event.kind == "task:paused";
                if event.kind == "task:start" {
                    (task.attempts, task.began) = (task.attempts + 1, Some(event.ts));
                }
                task.duration_ms = number("durationMs").or(task.duration_ms);
                task.error = error;
                self.bytes += bytes as u64;
            }
        }
    }

    fn task_at(&mut self, scope: &str, id: &str) -> &mut Twig {
        let (mut tasks, bytes) = (&mut self.tasks, &mut self.bytes);
        for (owner, index) in passes(scope) {
            tasks = &mut find_or_add_pass(&mut find_or_add_task(tasks, owner, bytes).passes, index).tasks;
        }
        find_or_add_task(tasks, id, bytes)
    }
}

/// Splits a scope into its passes: for each, the node that owns the body, and the number of the pass.
fn passes(scope: &str) -> impl Iterator<Item = (&str, u64)> {
    scope.split('.').filter(|part| !part.is_empty()).map(|part| {
        let (owner, index) = part.split_once('[').unwrap_or((part, "0]"));
        (owner, index.trim_end_matches(']').parse().unwrap_or(0))
    })
}

/// Returns the tasks of a pass; of the flow, if the scope is empty.
fn tasks_in<'a>(mut tasks: &'a [Twig], scope: &str) -> Option<&'a [Twig]> {
    for (owner, index) in passes(scope) {
        let passes = &tasks.iter().find(|task| task.id == owner)?.passes;
        tasks = &passes[passes.binary_search_by_key(&index, |pass| pass.index).ok()?].tasks;
    }
    Some(tasks)
}

fn find_task<'a>(tasks: &'a [Twig], scope: &str, id: &str) -> Option<&'a Twig> {
    tasks_in(tasks, scope)?.iter().find(|task| task.id == id)
}

fn find_task_mut<'a>(mut tasks: &'a mut [Twig], scope: &str, id: &str) -> Option<&'a mut Twig> {
    for (owner, index) in passes(scope) {
        let passes = &mut tasks.iter_mut().find(|task| task.id == owner)?.passes;
        let at = passes.binary_search_by_key(&index, |pass| pass.index).ok()?;
        tasks = &mut passes[at].tasks;
    }
    tasks.iter_mut().find(|task| task.id == id)
}

fn find_or_add_task<'a>(tasks: &'a mut Vec<Twig>, id: &str, bytes: &mut u64) -> &'a mut Twig {
    let at = tasks.iter().position(|task| task.id == id).unwrap_or_else(|| {
        *bytes += (TASK_BYTES + id.len()) as u64;
        tasks.push(Twig { id: id.to_owned(), status: "running", ..Twig::default() });
        tasks.len() - 1
    });
    &mut tasks[at]
}

fn find_or_add_pass(passes: &mut Vec<Pass>, index: u64) -> &mut Pass {
    let at = match passes.binary_search_by_key(&index, |pass| pass.index) {
        Ok(at) => at,
        Err(at) => {
            passes.insert(at, Pass { index, tasks: Vec::new() });
            at
        }
    };
    &mut passes[at]
}

/// Returns the cause from outside that a task waits for after an event with its status.
fn waits_for(event: &Event) -> Option<WaitsFor> {
    let until = event.data.get("until").and_then(Json::as_array).unwrap_or_default();
    match event.kind {
        "call:held" => Some(WaitsFor::Time),
        "task:paused" if event.data.get("question").is_some() => Some(WaitsFor::Person),
        "task:paused" if event.data.get("event").is_some() => Some(WaitsFor::Event),
        "task:paused" if until.iter().any(|wake| wake.as_str() == Some("after")) => Some(WaitsFor::Time),
        _ => None,
    }
}

pub(super) fn status_after(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "task:ready" | "task:woken" | "task:due" => "ready",
        "task:start" | "task:resumed" | "task:repeated" | "task:resolved" => "running",
        "task:blocked" => "blocked",
        "task:paused" | "call:held" => "waiting",
        "task:retry" => "retrying",
        "task:complete" => "succeeded",
        "task:failed" => "failed",
        "task:skipped" => "skipped",
        "task:cancelled" => "cancelled",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_node_that_a_move_drops_is_cancelled_unless_it_has_ended() {
        let event = |kind, data| Event { seq: 1, ts: 0, tenant: "local".into(), run_id: "r".into(), kind, data };
        let mut tree = Tree::default();
        for (kind, node) in [("task:blocked", "a"), ("task:complete", "b"), ("task:paused", "c"), ("task:paused", "d")]
        {
            let members = [("taskId", Json::from(node)), ("question", Json::from("q"))];
            tree.add(&event(kind, Json::object(members)));
        }
        let dropped = Json::array(["a", "b", "d"].map(Json::from));
        tree.add(&event("harness:migrated", Json::object([("dropped", dropped)])));
        let tasks = tree.tasks();
        let shown: Vec<_> = tasks.iter().map(|task| (task.status, task.waits_for)).collect();
        let expected =
            [("cancelled", None), ("succeeded", None), ("waiting", Some(WaitsFor::Person)), ("cancelled", None)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_task_that_undoes_another_has_its_own_status_at_each_time() {
        let mut tree = Tree::default();
        let mut shown = Vec::new();
        for (kind, undoes) in [
            ("undo:start", true),
            ("task:ready", false),
            ("task:start", false),
            ("task:complete", false),
            ("undo:complete", true),
        ] {
            let members = [("taskId", Json::from("release")), ("undoes", Json::from("reserve"))];
            let data = Json::object(members.into_iter().take(if undoes { 2 } else { 1 }));
            tree.add(&Event { seq: 1, ts: 0, tenant: "local".into(), run_id: "r".into(), kind, data });
            let task = &tree.tasks[0];
            shown.push((task.status, task.undoes.clone(), task.attempts));
        }
        let state = |status, attempts| (status, Some("reserve".to_owned()), attempts);
        assert_eq!(shown[..4], [state("ready", 0), state("ready", 0), state("running", 1), state("succeeded", 1)]);
        assert_eq!(shown[4], state("succeeded", 1), "the end of the undo changes nothing");
    }

    #[test]
    fn a_cycle_has_the_status_of_its_last_pass() {
        let mut tree = Tree::default();
        let mut add = |kind, scope: &str, node: &str| {
            let data = Json::object([("taskId", Json::from(node)), ("scope", Json::from(scope))]);
            tree.add(&Event { seq: 1, ts: 0, tenant: "local".into(), run_id: "r".into(), kind, data });
        };
        for pass in ["coder[0]", "coder[1]"] {
            add("task:start", pass, "coder");
            add("task:complete", pass, "coder");
        }
        add("task:failed", "coder[0]", "reviewer");
        add("task:paused", "loop[0]", "gate");
        let tasks = tree.tasks();
        let shown: Vec<_> = tasks.iter().map(|task| (task.id.as_str(), task.status, task.passes.len())).collect();
        assert_eq!(shown, [("coder", "succeeded", 2), ("loop", "running", 1)]);
        assert_eq!((tasks[0].attempts, tasks[0].passes[1].tasks[0].attempts), (0, 1));
    }

    #[test]
    fn a_waiting_task_has_its_cause() {
        let mut tree = Tree::default();
        for (kind, data, cause) in [
            ("task:paused", r#"{"until":["answer","after"],"question":{"prompt":"?"}}"#, Some(WaitsFor::Person)),
            ("task:woken", "{}", None),
            ("task:paused", r#"{"until":["event","after"],"event":"paid"}"#, Some(WaitsFor::Event)),
            ("task:paused", r#"{"until":["after"]}"#, Some(WaitsFor::Time)),
            ("task:paused", r#"{"until":["flow"],"flow":"other"}"#, None),
            ("call:held", "{}", Some(WaitsFor::Time)),
            ("task:start", "{}", None),
            ("task:idle", "{}", Some(WaitsFor::Event)),
            ("task:busy", "{}", None),
            ("call:start", r#"{"call":1,"question":{"prompt":"?"}}"#, Some(WaitsFor::Person)),
            ("call:start", r#"{"call":2,"question":{"prompt":"?"}}"#, Some(WaitsFor::Person)),
            ("agent:tool:decision", r#"{"call":1}"#, Some(WaitsFor::Person)),
            ("agent:tool:decision", r#"{"call":2}"#, None),
            ("task:complete", "{}", None),
        ] {
            let mut data: Value = serde_json::from_str(data).unwrap();
            data["taskId"] = "a".into();
            let (tenant, run_id) = ("local".into(), "r".into());
            tree.add(&Event { seq: 1, ts: 0, tenant, run_id, kind, data: Json::from(data) });
            assert_eq!(tree.tasks[0].waits_for, cause, "{kind}");
        }
        assert!(tree.tasks[0].has_called);
        // An event about a task that the tree has no room for adds nothing.
        let data = Json::object([("taskId", Json::from("b")), ("scope", Json::from("each[0]"))]);
        let (tenant, run_id) = ("local".into(), "r".into());
        tree.add(&Event { seq: 1, ts: 0, tenant, run_id, kind: "task:idle", data });
        assert_eq!(tree.tasks().len(), 1);
    }

    #[test]
    fn a_tree_is_bounded_and_counts_what_it_leaves_out() {
        let mut tree = Tree::default();
        let passes = 300_000_u64;
        let event = |kind, pass: u64, error: &str| Event {
            seq: pass,
            ts: 0,
            tenant: "local".into(),
            run_id: "r".into(),
            kind,
            data: Json::object([
                ("taskId", Json::from("one")),
                ("scope", Json::from(format!("each[{pass}]"))),
                ("error", Json::from(error)),
            ]),
        };
        for pass in 0..passes {
            tree.add(&event("task:ready", pass, ""));
            // An omitted task is not counted twice.
            tree.add(&event("task:failed", pass, "it fails"));
        }
        let left_out = tree.left_out();
        let tasks = tree.tasks();
        let kept = tasks[0].passes.len() as u64;
        assert_eq!(kept + left_out, passes);
        assert_eq!(tasks[0].passes[0].tasks[0].status, "failed");
        let text = serde_json::to_string(&tasks).unwrap();
        assert!(text.len() as u64 <= PAGE_BYTES && text.len() as u64 > PAGE_BYTES / 2, "{}", text.len());
    }
}
