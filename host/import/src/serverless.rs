//! Imports workflows in Serverless Workflow 1.0.
//!
//! A task becomes a node with its name, and the data of a task are the `value` of its last node. Runtime expressions are
//! not translated: they are queries in jq, and a node `data.query` runs them as they stand. A value with several
//! expressions is one query that makes the whole value. The query reads the data as `.`, and `$context`, `$input` and
//! the variables of loops and catches as `vars`. So `set` is one `data.query`, and `switch` is one that gives the name
//! of the case. A task list inside `do` has its nodes among those around it; `for`, `fork` and `try` have bodies. The
//! context is a variable that joins hand on, as those of a state machine.
//!
//! | module | content |
//! |---|---|
//! | head | the members of the document beside its tasks |
//! | tasks | tasks, and what all tasks have |
//! | switch, fork | the tasks of these names |
//! | calls | HTTP requests and waits |
//! | functions | calls of functions in `use` |
//! | bodies | the bodies of tasks, and `for` |
//! | catch, retry | `try`, and its retry policies |
//! | query | values with expressions |
//! | jq | reads expressions |
//! | duration | durations |

mod bodies;
mod calls;
mod catch;
mod duration;
mod fork;
mod functions;
mod head;
mod jq;
mod query;
mod retry;
mod switch;
mod tasks;

use std::collections::HashMap;

use serde_json::{Map, Value};

use self::tasks::{Task, Way};
use crate::{
    Import,
    draft::{Draft, Node},
    expr::binding,
    report::{At, Report, Verdict},
    scope::{Env, Exit, Scope},
    walk::{self, Parts},
};

/// Greatest number of passes of a cycle, which is that of flows. The source has no limit.
const MAX_PASSES: u32 = 1_000_000;
/// Greatest number of functions that call each other.
const CALLS: usize = 8;
/// Name of the variable that has the context.
const CONTEXT: &str = "context";

/// An import in progress.
struct Serverless<'d> {
    draft: Draft,
    report: Report,
    /// The member `use` of the document.
    uses: Map<String, Value>,
    /// Variables that joins hand on: the context, if a task exports it.
    assigned: Vec<String>,
    /// True if the first task exports the context, so that every other task reads an exported one.
    is_exported: bool,
    /// Ends by `then: end` of the workflow, or of the innermost body.
    ends: Vec<Exit>,
    /// True if a task may end the workflow.
    may_end: bool,
    /// The functions that are being written.
    calls: Vec<String>,
    /// Nesting of bodies.
    depth: usize,
    document: &'d Map<String, Value>,
}

/// Returns true if a document is a workflow of this format.
pub(crate) fn is_workflow(document: &Value) -> bool {
    document.pointer("/document/dsl").is_some()
}

/// Imports a workflow.
pub(crate) fn import(document: &Map<String, Value>) -> Import {
    let tasks = document.get("do").unwrap_or(&Value::Null);
    let has_exports = has_key(tasks, "export");
    let first = tasks.get(0).and_then(Value::as_object).and_then(|item| item.values().next());
    let mut serverless = Serverless {
        draft: Draft::default(),
        report: Report::default(),
        uses: document.get("use").and_then(Value::as_object).cloned().unwrap_or_default(),
        assigned: if has_exports { vec![CONTEXT.to_owned()] } else { Vec::new() },
        is_exported: first.is_some_and(|task| task.pointer("/export/as").is_some() && task.get("if").is_none()),
        ends: Vec::new(),
        may_end: true,
        calls: Vec::new(),
        depth: 0,
        document,
    };
    serverless.workflow();
    Import { draft: serverless.draft, report: serverless.report, cases: Vec::new() }
}

/// Returns true if an object in a value has a key.
fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_key(item, key)),
        Value::Object(members) => members.iter().any(|(name, member)| name == key || has_key(member, key)),
        _ => false,
    }
}

impl Parts for Serverless<'_> {
    fn parts(&mut self) -> (&mut Draft, &mut Report) {
        (&mut self.draft, &mut self.report)
    }
}

impl Serverless<'_> {
    fn workflow(&mut self) {
        let at = At::default();
        self.draft.head.insert("strict".into(), true.into());
        head::head(self, &at);
        let mut start = Exit::start(&Env { data: "flow.input".into(), ..Env::default() });
        head::workflow_input(self, &mut start, &at);
        start.env.vars.insert(CONTEXT.into(), start.env.data.clone());
        let outer = start.env.clone();
        let list = self.document.get("do").cloned().unwrap_or_default();
        let end = self.tasks(&list, "", start, &at.join("do"));
        let mut ends = std::mem::take(&mut self.ends);
        ends.extend(end);
        let scope = Scope { index: HashMap::new(), assigned: self.assigned.clone(), joins: HashMap::new(), outer };
        if let Some(mut end) = walk::join(&mut self.draft, &scope, ends, "") {
            head::workflow_output(self, &mut end, &at);
            self.draft.head.insert("outputs".into(), binding(&end.env.data));
        }
        if self.draft.nodes.is_empty() {
            self.draft.nodes.push(Node::value("start", binding("flow.input")));
        }
        self.report.settle_flow();
    }

    /// Returns a copy of a member of `use`. The flow is full if there are too many.
    fn used(&mut self, kind: &str, name: &str) -> Option<Value> {
        let value = self.uses.get(kind)?.get(name)?.clone();
        self.draft.copied += value.to_string().len();
        Some(value)
    }

    /// Refuses the keys of an object that are not known.
    fn check_keys(&mut self, value: &Value, known: &[&str], at: &At) {
        for key in value.as_object().into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str())) {
            self.report.note(
                Verdict::Refused,
                &at.join(key),
                key,
                "the key has no counterpart here; see whether it matters",
            );
        }
    }

    /// Writes the nodes of a task. Returns its ends.
    fn work(&mut self, task: &Task<'_>, mut exit: Exit) -> Vec<Exit> {
        let Task { id, kind, members, at } = *task;
        let end = match kind {
            "set" => {
                let (env, at) = (exit.env.clone(), at.join("set"));
                let query = if members["set"].is_string() || members["set"].is_object() {
                    query::of(self, &members["set"], &env, &at)
                } else {
                    query::refused(self, "it must be an object or an expression", &at)
                };
                let mut node = query::node(self, id, query, &env, &at);
                self.settle(task, &mut node);
                exit.push(&mut self.draft, node);
                exit.env.data = format!("{id}.value");
                exit.carries = self.assigned.is_empty();
                Some(exit)
            }
            "do" => {
                self.note(task, "its tasks stand among the others");
                self.report.settle_flow();
                let outer = exit.env.clone();
                let end = self.tasks(&members["do"], &format!("{id}_"), exit, &at.join("do"));
                end.map(|exit| tasks::left(exit, &outer))
            }
            "wait" => Some(calls::wait(self, task, exit)),
            "raise" => {
                self.raise(task, exit);
                None
            }
            "for" => bodies::for_each(self, task, exit),
            "fork" => fork::fork(self, task, exit),
            "try" => return catch::attempt(self, task, exit),
            "call" if members["call"] == "http" => Some(calls::request(self, task, exit)),
            "call" => functions::call(self, task, exit),
            _ => {
                calls::missing(self, task, &mut exit);
                Some(exit)
            }
        };
        end.into_iter().collect()
    }

    /// Adds a node with the marks of the noted findings behind an end.
    fn push(&mut self, exit: &mut Exit, mut node: Node) {
        self.report.settle(&mut node);
        exit.push(&mut self.draft, node);
    }

    /// Writes `switch`. Returns its ways out.
    fn switch<'t>(&mut self, task: &Task<'_>, members: &'t Map<String, Value>, exit: Exit) -> Vec<Way<'t>> {
        switch::switch(self, task, members, exit)
    }
}
