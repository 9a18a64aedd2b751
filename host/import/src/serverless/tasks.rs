//! Lists of tasks, and what all tasks have: `if`, `input`, `output`, `export`, `timeout`, `then` and `metadata`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{CONTEXT, MAX_PASSES, Serverless, duration, jq, query};
use crate::{
    draft::{Node, On},
    expr::{Term, escaped},
    names::{cleaned, error_code},
    report::{At, Verdict},
    scope::{Env, Exit, Scope},
    walk::{self, Machine, Target, Transition},
};

/// The keys that tell the kind of a task.
const KINDS: [&str; 12] =
    ["call", "do", "emit", "for", "fork", "listen", "raise", "run", "set", "switch", "try", "wait"];
/// The keys that every task may have.
const COMMON: [&str; 7] = ["if", "input", "output", "export", "timeout", "then", "metadata"];

/// A task, its name and its place.
#[derive(Clone, Copy)]
pub(super) struct Task<'t> {
    pub(super) id: &'t str,
    pub(super) kind: &'t str,
    pub(super) members: &'t Map<String, Value>,
    pub(super) at: &'t At,
}

/// A way out of a task.
pub(super) struct Way<'t> {
    /// The directive; `None` to go on with the next task.
    pub(super) then: Option<&'t Value>,
    /// The place of the directive.
    pub(super) at: At,
    pub(super) exit: Exit,
}

impl Serverless<'_> {
    /// Writes a list of tasks. Returns its end; `None` if it never ends with success.
    pub(super) fn tasks(&mut self, list: &Value, prefix: &str, mut start: Exit, at: &At) -> Option<Exit> {
        let empty = Map::new();
        let items: Option<Vec<(&str, &Map<String, Value>)>> = list.as_array().and_then(|items| {
            items
                .iter()
                .map(single)
                .map(|item| item.map(|(name, task)| (name.as_str(), task.as_object().unwrap_or(&empty))))
                .collect()
        });
        let index: HashMap<&str, usize> =
            items.iter().flatten().enumerate().map(|(index, (name, _))| (*name, index)).collect();
        let items = match items {
            Some(items) if !items.is_empty() && index.len() == items.len() => items,
            _ => {
                let why = "it must be a list of tasks, each an object with one name that no other task has";
                self.report.note(Verdict::Refused, at, "tasks", why);
                start.refuse(&mut self.draft, &mut self.report, &format!("{prefix}tasks"), "tasks");
                return None;
            }
        };
        let next = |position: usize| {
            let targets = directives(items[position].1).into_iter();
            let states = targets.filter_map(|directive| match target(directive, position, &index) {
                Target::State(state) => Some(state),
                _ => None,
            });
            states.collect()
        };
        let machine = Machine {
            names: items.iter().map(|(name, _)| *name).collect(),
            next: (0..items.len()).map(next).collect(),
            first: 0,
            assigned: self.assigned.clone(),
            max_passes: MAX_PASSES,
            transition: "then",
        };
        let places: Vec<At> = items.iter().enumerate().map(|(index, (name, _))| at.join(index).join(name)).collect();
        walk::machine(self, &machine, prefix, start, &places, &mut |import, scope, position, exit| {
            let ways = import.task(items[position].1, &places[position], exit).into_iter();
            ways.filter_map(|way| import.directed(way, position, &scope.index)).collect()
        })
    }

    /// Returns the transition of a directive. Leads `end` to the end of the workflow.
    fn directed(&mut self, way: Way<'_>, position: usize, index: &HashMap<&str, usize>) -> Option<Transition> {
        let Way { then, at, mut exit } = way;
        if then.is_some() {
            self.report.exact(&at, "then", None, "an edge");
        }
        if then.and_then(Value::as_str) != Some("end") {
            return Some(Transition { target: target(then, position, index), exit, at });
        }
        if self.may_end {
            self.ends.push(exit);
        } else {
            let why = "the workflow cannot end inside a fork; raise an error, or end it behind the fork";
            self.report.note(Verdict::Refused, &at, "end", why);
            exit.refuse(&mut self.draft, &mut self.report, "end_in_fork", "end");
        }
        None
    }

    /// Writes a task. Returns its ways out.
    pub(super) fn task<'t>(&mut self, members: &'t Map<String, Value>, at: &At, mut exit: Exit) -> Vec<Way<'t>> {
        let name = exit.env.state.clone();
        let id = self.draft.names.fresh(&cleaned(&name, "task"));
        let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| members.contains_key(*kind)).collect();
        // `for` has a `do` of its own, too.
        let kind = match kinds.as_slice() {
            [kind] => *kind,
            ["do", "for"] => "for",
            _ => {
                self.report.note(Verdict::Refused, at, "task", "it must be of one kind; write a node");
                exit.refuse(&mut self.draft, &mut self.report, &id, "task");
                return Vec::new();
            }
        };
        let task = Task { id: &id, kind, members, at };
        self.common(&task);
        let mut ways = Vec::new();
        let (then, at_then) = (members.get("then"), at.join("then"));
        if let Some(condition) = members.get("if") {
            let exit = self.condition(condition, &task, &mut exit);
            ways.push(Way { then: None, at: at_then.clone(), exit });
        }
        self.input(&task, &mut exit);
        if kind == "switch" {
            ways.extend(self.switch(&task, members, exit));
            return ways;
        }
        let before = exit.env.clone();
        for mut exit in self.work(&task, exit) {
            self.output(&task, &before, &mut exit);
            ways.push(Way { then, at: at_then.clone(), exit });
        }
        ways
    }

    /// Notes the keys that are the same for all tasks.
    fn common(&mut self, task: &Task<'_>) {
        let Task { kind, members, at, .. } = *task;
        let own: &[&str] = match kind {
            "call" => &["call", "with"],
            "for" => &["for", "do", "while"],
            "try" => &["try", "catch"],
            _ => &[],
        };
        for key in members.keys().map(String::as_str) {
            if key != kind && !COMMON.contains(&key) && !own.contains(&key) {
                let why = "the key has no counterpart here; see whether it matters";
                self.report.note(Verdict::Refused, &at.join(key), key, why);
            }
        }
        if let Some(metadata) = members.get("metadata") {
            self.draft.comments.push(format!("metadata of {}: {metadata}", task.id));
            self.report.note(Verdict::Exact, &at.join("metadata"), "metadata", "a comment");
        }
        self.timeout(task);
    }

    /// Refuses a time limit that a node of this kind does not have.
    fn timeout(&mut self, task: &Task<'_>) {
        if task.members.contains_key("timeout") && self.limit(task).is_none() {
            let why = "the time limit is not imported; set `policy.totalTimeoutMs`";
            self.report.note(Verdict::Refused, &task.at.join("timeout"), "timeout", why);
        }
    }

    /// Returns the time limit of a task whose work is one node.
    fn limit(&self, task: &Task<'_>) -> Option<u64> {
        let is_one = matches!(task.kind, "wait" | "for" | "fork") || task.members.get("call") == Some(&"http".into());
        self.limit_of(task.members.get("timeout")?).filter(|_| is_one)
    }

    /// Returns a time limit, which may be the name of one, in milliseconds.
    pub(super) fn limit_of(&self, timeout: &Value) -> Option<u64> {
        let named = timeout.as_str().and_then(|name| self.uses.get("timeouts")?.get(name));
        let timeout = named.unwrap_or(timeout).as_object().filter(|timeout| timeout.len() == 1)?;
        duration::millis(timeout.get("after")?).filter(|millis| *millis > 0)
    }

    pub(super) fn note(&mut self, task: &Task<'_>, why: &str) {
        self.report.note(Verdict::Exact, task.at, task.kind, why);
    }

    /// Reports the noted findings with the node of a task, and gives it the time limit.
    pub(super) fn settle(&mut self, task: &Task<'_>, node: &mut Node) {
        self.note(task, &format!("`{}`", node.kind));
        if let Some(millis) = self.limit(task) {
            node.policy.insert("totalTimeoutMs".into(), millis.into());
            self.report.note(Verdict::Exact, &task.at.join("timeout"), "timeout", "`policy.totalTimeoutMs`");
        }
        self.report.settle(node);
    }

    /// Writes the condition of a task. Returns the end of the way around the task.
    fn condition(&mut self, condition: &Value, task: &Task<'_>, exit: &mut Exit) -> Exit {
        let (env, at) = (exit.env.clone(), task.at.join("if"));
        let mut query = query::field(self, condition, &env, &at);
        query.text = format!("if {} then true else false end", query.text);
        (query.literal, query.is_identity) = (None, false);
        let members = task.members;
        if ["output", "export", "then"].iter().any(|key| members.contains_key(*key)) {
            let why =
                "a task that is skipped hands its input on to the next one here, without `output`, `export` and `then`";
            self.report.note(Verdict::Approximated, &at, "if", why);
        } else {
            self.report.note(Verdict::Exact, &at, "if", "a node and two edges");
        }
        let id = self.draft.names.fresh(&format!("{}_if", task.id));
        let node = query::node(self, &id, query, &env, &at);
        self.push(exit, node);
        let mut skipped = exit.clone();
        skipped.from = Some((id.clone(), On::When(format!("not {id}.value"))));
        exit.from = Some((id.clone(), On::When(format!("{id}.value"))));
        skipped
    }

    /// Writes `input.from`, whose value the task reads.
    fn input(&mut self, task: &Task<'_>, exit: &mut Exit) {
        if let Some(input) = task.members.get("input") {
            let at = task.at.join("input");
            self.schema(input, &["from"], &at);
            if let Some(from) = input.get("from") {
                let (env, at) = (exit.env.clone(), at.join("from"));
                let query = query::field(self, from, &env, &at);
                exit.env.data = query::computed(self, exit, query, &env, &format!("{}_input", task.id), &at);
                exit.carries = false;
            }
        }
        exit.env.vars.insert("input".into(), exit.env.data.clone());
    }

    /// Writes `output.as` and `export.as`.
    fn output(&mut self, task: &Task<'_>, before: &Env, exit: &mut Exit) {
        let mut env = exit.env.clone();
        env.vars.extend(before.vars.get("input").map(|input| ("input".to_owned(), input.clone())));
        for key in ["output", "export"] {
            let Some(member) = task.members.get(key) else { continue };
            let at = task.at.join(key);
            self.schema(member, &["as"], &at);
            let Some(value) = member.get("as") else { continue };
            let at = at.join("as");
            env.vars.insert("output".into(), env.data.clone());
            if key == "output" {
                env.vars.remove("output");
            }
            let query = query::field(self, value, &env, &at);
            if key == "output" {
                exit.env.data = query::computed(self, exit, query, &env, &format!("{}_output", task.id), &at);
                env.data.clone_from(&exit.env.data);
                exit.carries = exit.carries && self.assigned.is_empty();
            } else {
                let id = self.draft.names.fresh(&format!("{}_context", cleaned(task.id, "task")));
                let node = query::node(self, &id, query, &env, &at);
                self.push(exit, node);
                exit.env.vars.insert(CONTEXT.into(), format!("{id}.value"));
            }
            self.report.exact(&at, key, None, "a node, if it is not the data themselves");
        }
        exit.env.vars.remove("input");
        exit.env.vars.remove("output");
        if !self.report.notes.is_empty() {
            exit.materialize(&mut self.draft, &mut self.report);
        }
    }

    /// Refuses all members of `input`, `output` and `export` but these.
    pub(super) fn schema(&mut self, value: &Value, known: &[&str], at: &At) {
        if !value.is_object() {
            self.report.note(Verdict::Refused, at, "value", "it must be an object");
        }
        for key in value.as_object().into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str())) {
            let why = "nothing is checked here; write a `data.validate`";
            self.report.note(Verdict::Refused, &at.join(key), key, why);
        }
    }

    /// Writes `raise`.
    pub(super) fn raise(&mut self, task: &Task<'_>, mut exit: Exit) {
        let Task { id, members, at, .. } = *task;
        let (env, at_error) = (exit.env.clone(), at.join("raise").join("error"));
        self.check_keys(&members["raise"], &["error"], &at.join("raise"));
        let error = members["raise"].get("error").cloned().unwrap_or_default();
        let named = error.as_str().and_then(|name| self.used("errors", name));
        let mut error = named.unwrap_or(error);
        self.check_keys(&error, &["type", "status", "title", "detail", "instance"], &at_error);
        let kind = error.get("type").and_then(Value::as_str).map(str::to_owned);
        let (Some(members), Some(kind)) = (error.as_object_mut(), kind) else {
            self.report.note(
                Verdict::Refused,
                &at_error,
                "error",
                "it must be an error with a `type`, or the name of one",
            );
            return exit.refuse(&mut self.draft, &mut self.report, id, "raise");
        };
        if members.contains_key("instance") {
            let why = "the place of the source stays as it is written";
            self.report.note(Verdict::Approximated, &at_error.join("instance"), "instance", why);
        }
        members.entry("instance").or_insert_with(|| at.to_string().into());
        let query = query::of(self, &error, &env, &at_error);
        let message = ["detail", "title", "type"].iter().find(|key| error.get(**key).is_some_and(Value::is_string));
        let message = *message.unwrap_or(&"type");
        let (details, message) = match query.literal {
            Some(_) => (escaped(&error), Term::Literal(error[message].clone()).to_value()),
            None => {
                let value = query::computed(self, &mut exit, query, &env, &format!("{id}_error"), &at_error);
                (crate::expr::binding(&value), crate::expr::binding(&format!("{value}.{message} | string")))
            }
        };
        let last = kind.rsplit('/').next().unwrap_or_default();
        let code = error_code(last);
        if code != last || jq::inner(&kind).is_some() {
            let why = format!("the code is the last part of the type as it is written: `{code}`");
            self.report.note(Verdict::Approximated, &at_error.join("type"), "type", &why);
        }
        let mut node = Node::new(id, "control.fail", json!({ "message": message, "code": code, "details": details }));
        self.settle(task, &mut node);
        exit.push(&mut self.draft, node);
    }
}

/// Returns the end of an inner list with the variables of the outer one.
pub(super) fn left(mut exit: Exit, outer: &Env) -> Exit {
    let context = exit.env.vars.get(CONTEXT).cloned();
    exit.env.vars.clone_from(&outer.vars);
    exit.env.vars.extend(context.map(|context| (CONTEXT.to_owned(), context)));
    exit
}

/// Returns the only member of an object.
fn single(item: &Value) -> Option<(&String, &Value)> {
    item.as_object().filter(|item| item.len() == 1)?.iter().next()
}

/// Returns the cases of a switch with their names.
pub(super) fn cases(switch: &Value) -> impl Iterator<Item = (&String, &Value)> {
    switch.as_array().into_iter().flatten().filter_map(single)
}

/// Returns the directives of a task: one for each way out.
fn directives(task: &Map<String, Value>) -> Vec<Option<&Value>> {
    let mut found = Vec::new();
    if task.contains_key("if") {
        found.push(None);
    }
    if let Some(switch) = task.get("switch") {
        found.extend(cases(switch).map(|(_, case)| case.get("then")));
    }
    found.push(task.get("then"));
    if task.contains_key("try") {
        found.push(task.get("then"));
    }
    found
}

/// Returns the target of a directive of the task at a position.
fn target(directive: Option<&Value>, position: usize, index: &HashMap<&str, usize>) -> Target {
    match directive.map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("continue") if position + 1 < index.len() => Target::State(position + 1),
        None | Some("continue" | "exit" | "end") => Target::End,
        Some(name) => match index.get(name) {
            Some(state) => Target::State(*state),
            None => Target::Missing(name.to_owned()),
        },
    }
}

/// Returns the scope with which a body hands its values on.
pub(super) fn record(import: &Serverless<'_>, outer: &Env) -> Scope<'static> {
    Scope { index: HashMap::new(), assigned: import.assigned.clone(), joins: HashMap::new(), outer: outer.clone() }
}
