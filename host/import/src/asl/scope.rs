//! The way of the data through the states of one machine.
//!
//! A state reads its input from the node that has it: an earlier state, the flow's input, or the item of a loop. Where
//! several transitions meet, or a cycle begins, the nodes before hand the data on as `value`, and a node `…_in` takes
//! them from `inbound`.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::{
    draft::{Draft, Node, On},
    expr::{binding, member, quoted},
};

/// The values that a state can read.
#[derive(Clone, Debug, Default)]
pub(super) struct Env {
    /// Expression of the state's input.
    pub(super) data: String,
    /// Expressions of the variables.
    pub(super) vars: BTreeMap<String, String>,
    /// Expressions of the item and the index of the innermost loop.
    pub(super) item: Option<(String, String)>,
    /// Name of the state.
    pub(super) state: String,
}

/// The end of a way through the nodes, where the next node begins.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    /// The node from which an edge leads on; `None` at the beginning of a machine.
    pub(super) from: Option<(String, On)>,
    pub(super) env: Env,
    /// True if the output of the node has the data, and all variables, as `value`.
    pub(super) carries: bool,
}

impl Exit {
    /// Adds a node behind this end, and moves the end behind the node.
    pub(super) fn push(&mut self, draft: &mut Draft, node: Node) {
        self.lead_to(draft, &node.id);
        self.from = Some((node.id.clone(), On::Success));
        self.carries = false;
        draft.nodes.push(node);
    }

    /// Adds an edge from this end to a node.
    pub(super) fn lead_to(&self, draft: &mut Draft, id: &str) {
        if let Some((from, on)) = &self.from {
            draft.edge(from, id, on.clone());
        }
    }
}

/// The states of one machine, and the nodes where their transitions meet.
pub(super) struct Scope<'s> {
    /// Indices of the states by their names.
    pub(super) index: HashMap<&'s str, usize>,
    /// Variables that the states of this machine assign.
    pub(super) assigned: Vec<String>,
    /// Ids of the nodes that take the data from `inbound`, by the states that they begin.
    pub(super) joins: HashMap<usize, String>,
    /// The values that the first state can read.
    pub(super) outer: Env,
}

impl Scope<'_> {
    /// Returns the expression of the data together with the variables, as joins hand them on.
    pub(super) fn record(&self, env: &Env) -> String {
        if self.assigned.is_empty() {
            return env.data.clone();
        }
        let value = |name: &String| env.vars.get(name).map_or("null", String::as_str).to_owned();
        let vars = self.assigned.iter().map(|name| format!("{}: {}", quoted(name), value(name)));
        format!("{{'data': {}, 'vars': {{{}}}}}", env.data, vars.collect::<Vec<_>>().join(", "))
    }

    /// Returns the values behind a join, whose node hands on the record.
    pub(super) fn behind(&self, id: &str) -> Env {
        let mut env = self.outer.clone();
        env.data = format!("{id}.value");
        if !self.assigned.is_empty() {
            env.data = format!("{id}.value.data");
            let vars = format!("{id}.value.vars");
            env.vars.extend(self.assigned.iter().map(|name| (name.clone(), member(&vars, name))));
        }
        env
    }

    /// Leads an end to a join. Adds a node that hands the data on if the last one does not.
    pub(super) fn lead_to_join(&self, draft: &mut Draft, mut exit: Exit, id: &str) {
        if let (Some((from, _)), false) = (&exit.from, exit.carries) {
            let out = draft.names.fresh(&format!("{from}_out"));
            let node = Node::value(&out, binding(&self.record(&exit.env)));
            exit.push(draft, node);
        }
        exit.lead_to(draft, id);
    }

    /// Returns the value of a join: that of the node before, or at the beginning of the machine the first input.
    pub(super) fn join_value(&self, is_start: bool) -> Value {
        match is_start {
            false => binding("inbound.value"),
            true => binding(&format!("inbound.value if inbound is defined else {}", self.record(&self.outer))),
        }
    }
}
