//! The way of the data through the states of one machine: the states of a state machine, or the tasks of a list.
//!
//! A state reads its input from the node that has it: an earlier state, the flow's input, or the item of a loop. Where
//! several transitions meet, or a cycle begins, the nodes before hand the data on as `value`, and a node `…_in` takes
//! them from `inbound`.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::{
    draft::{Draft, Node, On},
    expr::{binding, member, quoted},
    report::Report,
};

/// The values that a state can read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env {
    /// Expression of the state's input.
    pub(crate) data: String,
    /// Expressions of the variables.
    pub(crate) vars: BTreeMap<String, String>,
    /// Expressions of the item and the index of the innermost loop.
    pub(crate) item: Option<(String, String)>,
    /// Name of the state.
    pub(crate) state: String,
}

/// The end of a way through the nodes, where the next node begins.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    /// The node from which an edge leads on; `None` at the beginning of a machine.
    pub(crate) from: Option<(String, On)>,
    pub(crate) env: Env,
    /// True if the output of the node has the data, and all variables, as `value`.
    pub(crate) carries: bool,
}

impl Exit {
    /// Returns the beginning of a machine.
    pub(crate) fn start(env: &Env) -> Exit {
        Exit { from: None, env: env.clone(), carries: false }
    }

    /// Adds a node behind this end, and moves the end behind the node.
    pub(crate) fn push(&mut self, draft: &mut Draft, node: Node) {
        self.lead_to(draft, &node.id);
        self.from = Some((node.id.clone(), On::Success));
        self.carries = false;
        draft.nodes.push(node);
    }

    /// Adds an edge from this end to a node.
    pub(crate) fn lead_to(&self, draft: &mut Draft, id: &str) {
        if let Some((from, on)) = &self.from {
            draft.edge(from, id, on.clone());
        }
    }

    /// Adds a node that has the data in its value, and the marks of the noted findings.
    pub(crate) fn materialize(&mut self, draft: &mut Draft, report: &mut Report) {
        let id = draft.names.fresh(&format!("{}_data", crate::names::cleaned(&self.env.state, "state")));
        let mut node = Node::value(&id, binding(&self.env.data));
        report.settle(&mut node);
        self.push(draft, node);
        self.env.data = format!("{id}.value");
    }

    /// Adds a node that fails in the place of a construct that is not imported, with the marks of the noted findings.
    pub(crate) fn refuse(&mut self, draft: &mut Draft, report: &mut Report, name: &str, construct: &str) {
        let id = draft.names.fresh(name);
        let message = format!("`{construct}` was not imported");
        let mut node = Node::new(&id, "control.fail", json!({ "message": message, "code": "not_imported" }));
        report.settle(&mut node);
        self.push(draft, node);
    }
}

/// The states of one machine, and the nodes where their transitions meet.
pub(crate) struct Scope<'s> {
    /// Indices of the states by their names.
    pub(crate) index: HashMap<&'s str, usize>,
    /// Variables that the states of this machine assign.
    pub(crate) assigned: Vec<String>,
    /// Ids of the nodes that take the data from `inbound`, by the states that they begin.
    pub(crate) joins: HashMap<usize, String>,
    /// The values that the first state can read.
    pub(crate) outer: Env,
}

impl Scope<'_> {
    /// Returns the expression of the data together with the variables, as joins hand them on.
    pub(crate) fn record(&self, env: &Env) -> String {
        if self.assigned.is_empty() {
            return env.data.clone();
        }
        let value = |name: &String| env.vars.get(name).map_or("null", String::as_str).to_owned();
        let vars = self.assigned.iter().map(|name| format!("{}: {}", quoted(name), value(name)));
        format!("{{'data': {}, 'vars': {{{}}}}}", env.data, vars.collect::<Vec<_>>().join(", "))
    }

    /// Returns the values behind a join, whose node hands on the record.
    pub(crate) fn behind(&self, id: &str) -> Env {
        self.read(&format!("{id}.value"))
    }

    /// Returns the values of a record.
    pub(crate) fn read(&self, record: &str) -> Env {
        let mut env = self.outer.clone();
        env.data = record.to_owned();
        if !self.assigned.is_empty() {
            env.data = format!("{record}.data");
            let vars = format!("{record}.vars");
            env.vars.extend(self.assigned.iter().map(|name| (name.clone(), member(&vars, name))));
        }
        env
    }

    /// Leads an end to a join. Adds a node that hands the data on if the last one does not.
    pub(crate) fn lead_to_join(&self, draft: &mut Draft, mut exit: Exit, id: &str) {
        if let (Some((from, _)), false) = (&exit.from, exit.carries) {
            let out = draft.names.fresh(&format!("{from}_out"));
            let node = Node::value(&out, binding(&self.record(&exit.env)));
            exit.push(draft, node);
        }
        exit.lead_to(draft, id);
    }

    /// Returns the value of a join: that of the node before, or at the beginning of the machine the first input.
    pub(crate) fn join_value(&self, is_start: bool) -> Value {
        match is_start {
            false => binding("inbound.value"),
            true => binding(&format!("inbound.value if inbound is defined else {}", self.record(&self.outer))),
        }
    }
}
