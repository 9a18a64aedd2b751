//! Imports state machines in Amazon States Language.
//!
//! | module | content |
//! |---|---|
//! | scope | the way of the data through the states of a machine |
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
mod scope;
mod states;
mod tasks;
mod template;

use std::collections::{BTreeSet, HashMap, HashSet};

use flowcell_flow::limits;
use serde_json::{Map, Value};

use self::scope::{Env, Exit, Scope};
use crate::{
    Import,
    draft::{Draft, Node, On},
    expr::{Term, binding},
    order::Order,
    report::{At, Report, Verdict},
};

/// Greatest number of passes of a cycle: a state machine ends after 25,000 events, so the flow never ends before it.
const MAX_PASSES: u32 = 25_000;
/// Length from which an expression gets a node of its own.
const LONG: usize = 300;

/// The state to which a transition leads.
#[derive(Clone, Debug, PartialEq)]
enum Target {
    State(usize),
    /// The end of the machine.
    End,
    /// No rule of a `Choice` holds.
    NoMatch,
    /// A state that the machine does not have.
    Missing(String),
}

/// The ways through a machine, as far as they are written.
struct Ways {
    /// Ends that lead to a state without a join.
    arrived: HashMap<usize, Exit>,
    /// States with a join that an end leads to.
    joined: HashSet<usize>,
    /// Ends of the machine.
    ends: Vec<Exit>,
}

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
        let mut scope = Scope { index, assigned: assigned(states), joins: HashMap::new(), outer: start.env.clone() };
        let next: Vec<_> = states.values().map(|state| transitions(state, &scope.index)).collect();
        let order = Order::new(&next, first);
        let names: Vec<&String> = states.keys().collect();
        for state in order.states.iter().filter(|state| order.is_join(**state)) {
            let id = self.draft.names.fresh(&format!("{}_in", crate::names::cleaned(names[*state], "state")));
            scope.joins.insert(*state, id);
        }
        if order.has_cycle() {
            self.draft.head.insert("maxPasses".into(), MAX_PASSES.into());
        }
        let mut ways = Ways { arrived: [(first, start)].into(), joined: HashSet::new(), ends: Vec::new() };
        for state in &order.states {
            let name = names[*state];
            let at = at.join("States").join(name);
            let Some(mut exit) = self.enter(&scope, *state, &mut ways) else {
                let why = "no transition that was imported leads to it, so it is left out";
                self.report.mark_flow(Verdict::Refused, &at, "state", why);
                continue;
            };
            exit.env.state.clone_from(name);
            if exit.env.data.len() > LONG {
                self.materialize(&mut exit);
            }
            for (target, exit) in self.state(&scope, &states[name], &at, exit) {
                let is_cut = matches!(target, Target::State(to) if order.is_into_middle(*state, to));
                self.lead(&scope, is_cut, target, exit, &mut ways, &at);
            }
        }
        let reached: HashSet<usize> = order.states.iter().copied().collect();
        for (_, name) in names.iter().enumerate().filter(|(index, _)| !reached.contains(index)) {
            let why = "no transition leads to it, so it is left out";
            self.report.exact(&at.join("States").join(name), "state", None, why);
        }
        self.end(&scope, ways.ends, prefix)
    }

    /// Writes a node that fails in the place of a machine that is not imported.
    fn no_machine(&mut self, key: &str, why: &str, prefix: &str, mut start: Exit, at: &At) -> Option<String> {
        self.report.note(Verdict::Refused, &at.join(key), key, why);
        self.refused_node(&format!("{prefix}{}", key.trim_end_matches("At").to_lowercase()), key, &mut start);
        None
    }

    /// Returns the beginning of a state, behind its join if it has one; `None` if no way leads to it.
    fn enter(&mut self, scope: &Scope<'_>, state: usize, ways: &mut Ways) -> Option<Exit> {
        let arrived = ways.arrived.remove(&state);
        let Some(id) = scope.joins.get(&state) else { return arrived };
        if arrived.is_none() && !ways.joined.contains(&state) {
            return None;
        }
        // Only the first state has an end that was not led to its join.
        let begins = arrived.as_ref().is_some_and(|start| start.from.is_none());
        if let Some(start) = arrived.filter(|_| !begins) {
            scope.lead_to_join(&mut self.draft, start, id);
        }
        self.draft.nodes.push(Node::value(id, scope.join_value(begins)));
        let from = Some((id.clone(), On::Success));
        Some(Exit { from, env: scope.behind(id), carries: scope.assigned.is_empty() })
    }

    /// Leads the end of a state to the target of its transition.
    fn lead(&mut self, scope: &Scope<'_>, is_cut: bool, target: Target, mut exit: Exit, ways: &mut Ways, at: &At) {
        match target {
            Target::End => ways.ends.push(exit),
            Target::State(_) if is_cut => {
                let why = "this transition leads into the middle of a cycle; move the beginning of the cycle";
                self.report.note(Verdict::Refused, at, "Next", why);
                self.refused_node("into_cycle", "Next", &mut exit);
            }
            Target::State(to) => match scope.joins.get(&to) {
                Some(id) => {
                    scope.lead_to_join(&mut self.draft, exit, id);
                    ways.joined.insert(to);
                }
                None => _ = ways.arrived.insert(to, exit),
            },
            Target::NoMatch => {
                let id = self.draft.names.fresh("no_match");
                let input =
                    serde_json::json!({ "message": "no rule of the state holds", "code": "States.NoChoiceMatched" });
                exit.push(&mut self.draft, Node::new(&id, "control.fail", input));
            }
            Target::Missing(name) => {
                let why = format!("the state {} does not exist", Value::from(name));
                self.report.note(Verdict::Refused, at, "Next", &why);
                self.refused_node("missing_state", "Next", &mut exit);
            }
        }
    }

    /// Joins the ends of a machine. Returns the expression of its result.
    fn end(&mut self, scope: &Scope<'_>, mut ends: Vec<Exit>, prefix: &str) -> Option<String> {
        if ends.len() < 2 {
            return ends.pop().map(|exit| exit.env.data);
        }
        let id = self.draft.names.fresh(&format!("{prefix}result"));
        for exit in ends {
            scope.lead_to_join(&mut self.draft, exit, &id);
        }
        self.draft.nodes.push(Node::value(&id, binding("inbound.value")));
        Some(scope.behind(&id).data)
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
        let id = self.draft.names.fresh(&format!("{}_data", crate::names::cleaned(&exit.env.state, "state")));
        let mut node = Node::value(&id, binding(&exit.env.data));
        self.report.settle(&mut node);
        exit.push(&mut self.draft, node);
        exit.env.data = format!("{id}.value");
    }

    /// Adds a node that fails in the place of a construct that is not imported, with the marks of the noted findings.
    fn refused_node(&mut self, name: &str, construct: &str, exit: &mut Exit) {
        let id = self.draft.names.fresh(name);
        let message = format!("`{construct}` was not imported");
        let mut node =
            Node::new(&id, "control.fail", serde_json::json!({ "message": message, "code": "not_imported" }));
        self.report.settle(&mut node);
        exit.push(&mut self.draft, node);
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

impl Exit {
    /// Returns the beginning of a machine.
    fn start(env: &Env) -> Exit {
        Exit { from: None, env: env.clone(), carries: false }
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
