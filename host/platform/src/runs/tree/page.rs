//! The tasks of a run by page: those at one place of its tree, or all of them in one list.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Pass, Tree, Twig, is_zero, passes, rank, tasks_in};

/// The tasks that a page contains.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// The address of a task with a body, such as `each`, whose passes are wanted, or of a pass, such as `each[3]`, whose
    /// tasks are wanted. `None`: the tasks of the flow.
    pub under: Option<String>,
    /// The address of a task: the list has this task alone.
    pub task: Option<String>,
    /// True for all tasks below that place, and false for those directly at it.
    pub deep: bool,
    /// The states. Empty: all.
    pub statuses: Vec<String>,
    /// True for the most urgent states first. False for the order of the first events.
    pub urgent_first: bool,
}

/// A task, or a pass of a body, in a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskItem {
    /// The address of the task, such as `each[3].pay`, or of the pass, such as `each[3]`.
    pub address: String,
    /// `ready`, `running`, `waiting`, `blocked`, `retrying`, `succeeded`, `failed`, `skipped` or `cancelled`. The status of a
    /// pass is the most urgent one of its tasks.
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
    /// The numbers of passes of the task's body, by their states. Empty for a task without a body, and for a pass.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub passes: BTreeMap<&'static str, u64>,
    /// The number of tasks of a pass. Absent for a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

impl TaskItem {
    fn of_task(task: &Twig, prefix: &str) -> TaskItem {
        TaskItem {
            address: format!("{prefix}{}", task.id),
            status: task.status,
            undoes: task.undoes.clone(),
            attempts: task.attempts,
            calls: task.calls,
            duration_ms: task.duration_ms,
            error: task.error.clone(),
            passes: task.pass_counts(),
            tasks: None,
        }
    }

    fn of_pass(pass: &Pass, owner: &str) -> TaskItem {
        TaskItem {
            address: format!("{owner}[{}]", pass.index),
            status: pass.status(),
            undoes: None,
            attempts: 0,
            calls: 0,
            duration_ms: None,
            error: pass.tasks.iter().find_map(|task| task.error.clone()),
            passes: BTreeMap::new(),
            tasks: Some(pass.tasks.len() as u64),
        }
    }
}

impl Tree {
    /// Returns the tasks, or the passes, that a filter selects. Returns `None` if the run has no task or pass at its place.
    pub fn select(self, filter: &TaskFilter) -> Option<Vec<TaskItem>> {
        let tasks = self.tasks();
        if let Some(address) = &filter.task {
            let (scope, task) = task_at(&tasks, address)?;
            let prefix = if scope.is_empty() { String::new() } else { format!("{scope}.") };
            return Some(vec![TaskItem::of_task(task, &prefix)]);
        }
        let under = filter.under.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        match under {
            "" => add_tasks(&tasks, "", filter.deep, &mut found),
            pass if pass.ends_with(']') => {
                add_tasks(tasks_at(&tasks, pass)?, &format!("{pass}."), filter.deep, &mut found);
            }
            owner => {
                let (_, task) = task_at(&tasks, owner)?;
                match filter.deep {
                    false => found.extend(task.passes.iter().map(|pass| TaskItem::of_pass(pass, owner))),
                    true => add_passes(&task.passes, owner, &mut found),
                }
            }
        }
        found.retain(|item| filter.statuses.is_empty() || filter.statuses.iter().any(|status| status == item.status));
        if filter.urgent_first {
            found.sort_by_key(|item| rank(item.status));
        }
        Some(found)
    }
}

fn add_tasks(tasks: &[Twig], prefix: &str, deep: bool, found: &mut Vec<TaskItem>) {
    for task in tasks {
        let item = TaskItem::of_task(task, prefix);
        let address = item.address.clone();
        // A cycle of edges is no task: its passes are.
        if task.is_task || !deep {
            found.push(item);
        }
        if deep {
            add_passes(&task.passes, &address, found);
        }
    }
}

fn add_passes(passes: &[Pass], owner: &str, found: &mut Vec<TaskItem>) {
    for pass in passes {
        add_tasks(&pass.tasks, &format!("{owner}[{}].", pass.index), true, found);
    }
}

/// Returns the task at an address, and the address of the pass around it.
fn task_at<'a, 'b>(tasks: &'a [Twig], address: &'b str) -> Option<(&'b str, &'a Twig)> {
    let (scope, id) = address.rsplit_once('.').unwrap_or(("", address));
    Some((scope, tasks_at(tasks, scope)?.iter().find(|task| task.id == id)?))
}

/// Returns the tasks of the pass at an address such as `each[3].inner[0]`; of the flow, if it is empty. An address that is
/// written in another way is none.
fn tasks_at<'a>(tasks: &'a [Twig], address: &str) -> Option<&'a [Twig]> {
    let written: Vec<_> = passes(address).map(|(owner, index)| format!("{owner}[{index}]")).collect();
    if written.join(".") == address { tasks_in(tasks, address) } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::Json;
    use flowcell_runtime::Event;

    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let mut add = |kind, scope: &str, node: &str| {
            let data = Json::object([("taskId", Json::from(node)), ("scope", Json::from(scope))]);
            tree.add(&Event { seq: 1, ts: 0, tenant: "local".into(), run_id: "r".into(), kind, data });
        };
        for (kind, scope, node) in [
            ("task:complete", "", "first"),
            ("task:start", "", "each"),
            ("task:complete", "each[0]", "get"),
            ("task:failed", "each[1]", "get"),
            ("task:skipped", "each[1]", "put"),
            ("task:complete", "each[1].inner[2]", "deep"),
            ("task:complete", "coder[0]", "coder"),
        ] {
            add(kind, scope, node);
        }
        tree
    }

    fn addresses(under: Option<&str>, deep: bool, statuses: &[&str], urgent_first: bool) -> Option<Vec<String>> {
        let statuses = statuses.iter().map(|status| (*status).to_owned()).collect();
        let filter = TaskFilter { under: under.map(str::to_owned), task: None, deep, statuses, urgent_first };
        let items = tree().select(&filter)?;
        Some(items.into_iter().map(|item| format!("{} {}", item.address, item.status)).collect())
    }

    /// The members of a filter in their order, and the expected addresses.
    type Row<'a> = (Option<&'a str>, bool, &'a [&'a str], bool, &'a [&'a str]);

    #[test]
    fn a_page_has_the_tasks_at_a_place_or_all_below_it() {
        let table: [Row<'_>; 9] = [
            (None, false, &[], false, &["first succeeded", "each running", "coder succeeded"]),
            (None, false, &[], true, &["each running", "first succeeded", "coder succeeded"]),
            (Some("each"), false, &[], false, &["each[0] succeeded", "each[1] failed"]),
            (Some("each"), false, &[], true, &["each[1] failed", "each[0] succeeded"]),
            (
                Some("each[1]"),
                false,
                &[],
                false,
                &["each[1].get failed", "each[1].put skipped", "each[1].inner succeeded"],
            ),
            (Some("each[1].inner"), false, &[], false, &["each[1].inner[2] succeeded"]),
            (Some("each[1].inner[2]"), true, &[], false, &["each[1].inner[2].deep succeeded"]),
            (None, true, &["failed", "skipped"], true, &["each[1].get failed", "each[1].put skipped"]),
            (Some("coder"), true, &[], false, &["coder[0].coder succeeded"]),
        ];
        for (under, deep, statuses, urgent_first, expected) in table {
            assert_eq!(addresses(under, deep, statuses, urgent_first).unwrap(), expected, "{under:?} {deep}");
        }
        for unknown in [
            "each[-1]",
            "each[00]",
            "each[1][0]",
            "each[1].",
            "other",
            "each[7]",
            "each[1].none",
            "each[x]",
            "]",
            ".",
            "each[1].inner[2].deep.x",
        ] {
            assert_eq!(addresses(Some(unknown), false, &[], false), None, "{unknown}");
        }
    }

    #[test]
    fn one_task_is_found_by_its_address() {
        let find = |task: &str| {
            let items = tree().select(&TaskFilter { task: Some(task.to_owned()), ..TaskFilter::default() })?;
            Some(items.into_iter().map(|item| (item.address, item.status)).collect::<Vec<_>>())
        };
        for (task, status) in
            [("first", "succeeded"), ("each[1].get", "failed"), ("each[1].inner[2].deep", "succeeded")]
        {
            assert_eq!(find(task), Some(vec![(task.to_owned(), status)]), "{task}");
        }
        for unknown in ["", "none", "each[1]", "each[9].get", "each[1].get.x", "each[+1].get"] {
            assert_eq!(find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_task_counts_its_passes_by_their_states() {
        let items = tree().select(&TaskFilter::default()).unwrap();
        assert_eq!(items[1].passes, BTreeMap::from([("failed", 1), ("succeeded", 1)]));
        assert!(items[0].passes.is_empty() && items[0].tasks.is_none());
    }
}
