//! A run as a tree of its tasks: what is inside of a task stands below it, by the number of the pass.

use std::ops::ControlFlow;

use flowcell_contract::{Json, RunId};
use flowcell_runtime::Event;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{Host, StartError};

/// A task.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Twig {
    /// Its node.
    id: String,
    /// `ready`, `running`, `waiting`, `blocked`, `retrying`, `succeeded`, `failed`, `skipped` or `cancelled`.
    status: &'static str,
    /// Attempts that have begun.
    #[serde(skip_serializing_if = "is_zero")]
    attempts: u64,
    /// Calls that have left the host.
    #[serde(skip_serializing_if = "is_zero")]
    calls: u64,
    /// How long it took, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    error: Option<Value>,
    /// The passes through its body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    passes: Vec<Pass>,
}

/// A pass through a body.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct Pass {
    /// Its number, from 0.
    index: u64,
    /// Its tasks.
    #[schema(no_recursion)]
    tasks: Vec<Twig>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The tasks of a run.
#[derive(Default)]
pub struct Tree(Vec<Twig>);

impl Tree {
    /// What the store has of a run.
    pub fn of(host: &Host, run: &RunId) -> Result<Tree, StartError> {
        let mut tree = Tree::default();
        host.each_event(run, 0, |event| {
            tree.add(&event);
            ControlFlow::Continue(())
        })?;
        Ok(tree)
    }

    /// Its tasks, in the order in which they were first heard of.
    pub fn tasks(self) -> Vec<Twig> {
        self.0
    }

    fn add(&mut self, event: &Event) {
        let text = |key: &str| event.data.get(key).and_then(Json::as_str).unwrap_or_default();
        let number = |key: &str| event.data.get(key).and_then(Json::as_u64);
        let (Some(id), scope) = (event.data.get("taskId").and_then(Json::as_str), text("scope")) else { return };
        if matches!(event.kind, "call:start" | "service:call") {
            self.task(scope, id).calls += 1;
            return;
        }
        let Some(status) = status(event.kind) else { return };
        let task = self.task(scope, id);
        task.status = status;
        task.attempts = number("attempt").unwrap_or(task.attempts);
        task.duration_ms = number("durationMs").or(task.duration_ms);
        task.error = event.data.get("error").map(Json::to_serde);
    }

    fn task(&mut self, scope: &str, id: &str) -> &mut Twig {
        let mut tasks = &mut self.0;
        for part in scope.split('.').filter(|part| !part.is_empty()) {
            let (owner, index) = part.split_once('[').unwrap_or((part, "0]"));
            let index = index.trim_end_matches(']').parse().unwrap_or(0);
            tasks = &mut pass(&mut twig(tasks, owner).passes, index).tasks;
        }
        twig(tasks, id)
    }
}

fn twig<'a>(tasks: &'a mut Vec<Twig>, id: &str) -> &'a mut Twig {
    let at = tasks.iter().position(|task| task.id == id).unwrap_or_else(|| {
        tasks.push(Twig { id: id.to_owned(), status: "running", ..Twig::default() });
        tasks.len() - 1
    });
    &mut tasks[at]
}

fn pass(passes: &mut Vec<Pass>, index: u64) -> &mut Pass {
    let at = match passes.binary_search_by_key(&index, |pass| pass.index) {
        Ok(at) => at,
        Err(at) => {
            passes.insert(at, Pass { index, tasks: Vec::new() });
            at
        }
    };
    &mut passes[at]
}

fn status(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "task:ready" | "task:woken" | "task:due" => "ready",
        "task:start" | "task:resumed" | "task:repeated" | "task:resolved" => "running",
        "task:blocked" => "blocked",
        "task:paused" => "waiting",
        "task:retry" => "retrying",
        "task:complete" => "succeeded",
        "task:failed" => "failed",
        "task:skipped" => "skipped",
        "task:cancelled" => "cancelled",
        _ => return None,
    })
}
