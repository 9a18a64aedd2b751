//! Imports state machines in Amazon States Language.
//!
//! | module | content |
//! |---|---|
//! | states | the states, except `Choice` |
//! | tasks | the services that a `Task` calls |
//! | choice | the state `Choice` |
//! | bounds | the bounds of the state `Map` |
//! | policy | `Retry` and time limits |
//! | catch | `Catch` |
//! | errors | the names of errors |
//! | keys | the keys of states |
//! | template | values with paths, functions or JSONata in them |
//! | path | paths and intrinsic functions |

mod bounds;
mod catch;
mod choice;
mod errors;
mod keys;
mod path;
mod policy;
mod states;
mod tasks;
mod template;

use std::collections::{BTreeSet, HashMap};

use flowcell_flow::limits;
use serde_json::{Map, Value};

use crate::{
    Import,
    draft::{Draft, Node},
    expr::{Term, binding},
    report::{At, Report, Verdict},
    scope::{Env, Exit, Scope},
    walk::{self, Machine, Parts, Target, Transition},
};

/// Greatest number of passes of a cycle: a state machine ends after 25,000 events, so the flow never ends before it.
const MAX_PASSES: u32 = 25_000;
/// Length from which an expression gets a node of its own.
const LONG: usize = 300;

/// An import in progress.
struct Asl {
    draft: Draft,
    report: Report,
    /// True if the present state is written in JSONata.
    is_jsonata: bool,
    /// Nesting of bodies.
    depth: usize,
}

/// Returns true if a document is a state machine.
pub(crate) fn is_machine(document: &Value) -> bool {
    document.get("StartAt").is_some() && document.get("States").is_some()
}

/// Imports a state machine.
pub(crate) fn import(document: &Map<String, Value>) -> Import {
    let mut asl = Asl {
        draft: Draft::default(),
        report: Report::default(),
        is_jsonata: document.get("QueryLanguage") == Some(&"JSONata".into()),
        depth: 0,
    };
    let at = At::default();
    asl.draft.head.insert("strict".into(), true.into());
    if let Some(text) = document.get("Comment").and_then(Value::as_str) {
        asl.draft.head.insert("description".into(), text.into());
        asl.report.exact(&at.join("Comment"), "Comment", None, "`flow.description`");
    }
    if let Some(seconds) = document.get("TimeoutSeconds") {
        let at = at.join("TimeoutSeconds");
        match seconds.as_u64().filter(|seconds| (1..=31_536_000).contains(seconds)) {
            Some(seconds) => {
                let policy = serde_json::json!({ "totalTimeoutMs": seconds * 1_000 });
                asl.draft.head.insert("policy".into(), policy);
                asl.report.exact(&at, "TimeoutSeconds", None, "`flow.policy.totalTimeoutMs`");
            }
            None => asl.report.mark_flow(Verdict::Refused, &at, "TimeoutSeconds", "set `flow.policy.totalTimeoutMs`"),
        }
    }
    for key in document.keys() {
        if !["Comment", "StartAt", "States", "TimeoutSeconds", "Version", "QueryLanguage"].contains(&&**key) {
            asl.report.mark_flow(Verdict::Refused, &at.join(key), key, "the key is unknown; see whether it matters");
        }
    }
    let start = Env { data: "flow.input".into(), ..Env::default() };
    let outputs = asl.machine(document, "", Exit::start(&start), &at);
    if let Some(data) = outputs {
        asl.draft.head.insert("outputs".into(), binding(&data));
    }
    if asl.draft.nodes.is_empty() {
        asl.draft.nodes.push(Node::value("start", binding("flow.input")));
    }
    asl.report.settle_flow();
    Import { draft: asl.draft, report: asl.report, cases: Vec::new() }
}

impl Asl {
    /// Writes the states of a machine. Returns the expression of its result; `None` if it never ends with success.
    fn machine(&mut self, machine: &Map<String, Value>, prefix: &str, start: Exit, at: &At) -> Option<String> {
        let Some(states) = machine.get("States").and_then(Value::as_object) else {
            return self.no_machine("States", "it must be an object of states", prefix, start, at);
        };
        let index: HashMap<&str, usize> =
            states.keys().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let first = machine.get("StartAt").and_then(Value::as_str).and_then(|name| index.get(name).copied());
        let Some(first) = first else {
            return self.no_machine("StartAt", "it names no state; correct it and import again", prefix, start, at);
        };
        let machine = Machine {
            names: states.keys().map(String::as_str).collect(),
            next: states.values().map(|state| transitions(state, &index)).collect(),
            first,
            assigned: assigned(states),
            max_passes: MAX_PASSES,
            transition: "Next",
        };
        let places: Vec<At> = machine.names.iter().map(|name| at.join("States").join(name)).collect();
        walk::machine(self, &machine, prefix, start, &places, &mut |asl, scope, state, mut exit| {
            if exit.env.data.len() > LONG {
                asl.materialize(&mut exit);
            }
            let at = &places[state];
            let ways = asl.state(scope, &states[machine.names[state]], at, exit).into_iter();
            ways.map(|(target, exit)| Transition { target, exit, at: at.clone() }).collect()
        })
        .map(|exit| exit.env.data)
    }

    /// Writes a node that fails in the place of a machine that is not imported.
    fn no_machine(&mut self, key: &str, why: &str, prefix: &str, mut start: Exit, at: &At) -> Option<String> {
        self.report.note(Verdict::Refused, &at.join(key), key, why);
        self.refused_node(&format!("{prefix}{}", key.trim_end_matches("At").to_lowercase()), key, &mut start);
        None
    }

    /// Returns the target of a transition.
    fn target(&mut self, scope: &Scope<'_>, next: Option<&Value>, at: &At) -> Target {
        let name = next.and_then(Value::as_str).unwrap_or_default();
        match scope.index.get(name) {
            Some(index) => {
                self.report.exact(at, "transition", None, "an edge");
                Target::State(*index)
            }
            None => Target::Missing(name.to_owned()),
        }
    }

    /// Adds a node that has the data in its value, and the marks of the noted findings.
    fn materialize(&mut self, exit: &mut Exit) {
        exit.materialize(&mut self.draft, &mut self.report);
    }

    /// Adds a node that fails in the place of a construct that is not imported, with the marks of the noted findings.
    fn refused_node(&mut self, name: &str, construct: &str, exit: &mut Exit) {
        exit.refuse(&mut self.draft, &mut self.report, name, construct);
    }

    /// Refuses the keys of an object that are not known.
    fn check_keys(&mut self, value: &Value, known: &[&str], at: &At) {
        for key in value.as_object().into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str())) {
            // An operator of a rule has been read already.
            let is_operator =
                ["String", "Numeric", "Boolean", "Timestamp", "Is"].iter().any(|kind| key.starts_with(kind));
            if !is_operator || !known.contains(&"Variable") {
                self.report.note(Verdict::Refused, &at.join(key), key, "the key is unknown; see whether it matters");
            }
        }
    }

    /// Refuses the keys of an inner machine that are unknown.
    fn check_machine_keys(&mut self, machine: &Value, at: &At) {
        self.check_keys(machine, &["StartAt", "States", "Comment", "ProcessorConfig"], at);
        if let Some(config) = machine.get("ProcessorConfig") {
            self.check_keys(config, &["Mode", "ExecutionType"], &at.join("ProcessorConfig"));
        }
    }

    /// Writes a node that fails in the place of a state whose inner machine is missing or nested too deep.
    fn no_body(&mut self, state: &Map<String, Value>, key: &str, at: &At, mut exit: Exit) -> Vec<(Target, Exit)> {
        let why = "the inner machine is missing, or nested too deep; write a flow of its own";
        self.report.note(Verdict::Refused, &at.join(key), key, why);
        let name = exit.env.state.clone();
        let kind = state.get("Type").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.refused_node(&name, &kind, &mut exit);
        Vec::new()
    }

    /// Returns the expression of an input that inner nodes read: a path, or the value of a node of its own.
    fn named(&mut self, exit: &mut Exit, input: Term, id: &str) -> String {
        if let Term::Expr(expr) = &input {
            return expr.clone();
        }
        let id = self.draft.names.fresh(&format!("{id}_input"));
        let mut node = Node::value(&id, input.to_value());
        self.report.settle(&mut node);
        exit.push(&mut self.draft, node);
        format!("{id}.value")
    }

    /// Returns true if one more body may stand inside the present one.
    fn may_nest(&self) -> bool {
        self.depth + 2 < limits::BODY_DEPTH
    }
}

impl Parts for Asl {
    fn parts(&mut self) -> (&mut Draft, &mut Report) {
        (&mut self.draft, &mut self.report)
    }
}

/// Returns the targets of a state: one for each way out that has data of its own.
fn transitions(state: &Value, index: &HashMap<&str, usize>) -> Vec<usize> {
    let target = |value: &Value| value.get("Next").and_then(Value::as_str).and_then(|name| index.get(name).copied());
    let items = |key: &str| state.get(key).and_then(Value::as_array).into_iter().flatten();
    match state.get("Type").and_then(Value::as_str) {
        Some("Succeed" | "Fail") => Vec::new(),
        Some("Choice") => {
            let mut found = Vec::new();
            let mut plain = BTreeSet::new();
            for rule in items("Choices") {
                let is_plain = rule.get("Assign").is_none() && rule.get("Output").is_none();
                let Some(target) = target(rule) else { continue };
                if !is_plain || plain.insert(target) {
                    found.push(target);
                }
            }
            found.extend(state.get("Default").and_then(Value::as_str).and_then(|name| index.get(name).copied()));
            found
        }
        kind => {
            let catches = matches!(kind, Some("Task" | "Parallel" | "Map"));
            let caught = catch::used(state).iter().filter(|_| catches).filter_map(target);
            let is_end = state.get("End") == Some(&true.into());
            target(state).filter(|_| !is_end).into_iter().chain(caught).collect()
        }
    }
}

/// Returns the variables that the states of one machine assign.
fn assigned(states: &Map<String, Value>) -> Vec<String> {
    let mut names = BTreeSet::new();
    for state in states.values() {
        let rules = state.get("Choices").and_then(Value::as_array).into_iter().flatten();
        for holder in rules.chain([state]) {
            let keys = holder.get("Assign").and_then(Value::as_object).into_iter().flat_map(Map::keys);
            names.extend(keys.map(|key| key.strip_suffix(".$").unwrap_or(key).to_owned()));
        }
    }
    names.into_iter().collect()
}
