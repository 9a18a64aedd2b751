//! Writes the states of one machine in their order, with a join where several transitions meet, and edges back for
//! cycles.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::{
    draft::{Draft, Node, On},
    expr::binding,
    order::Order,
    report::{At, Report, Verdict},
    scope::{Exit, Scope},
};

/// The state to which a transition leads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    State(usize),
    /// The end of the machine.
    End,
    /// No rule of a `Choice` holds.
    NoMatch,
    /// A state that the machine does not have.
    Missing(String),
}

/// The states of a state machine, or the tasks of a list.
pub(crate) struct Machine<'m> {
    pub(crate) names: Vec<&'m str>,
    /// The targets of each state: at least one for each way out that has data of its own.
    pub(crate) next: Vec<Vec<usize>>,
    /// The state that begins.
    pub(crate) first: usize,
    /// Variables that the states assign.
    pub(crate) assigned: Vec<String>,
    /// Greatest number of passes of a cycle.
    pub(crate) max_passes: u32,
    /// The key of the source that names the next state.
    pub(crate) transition: &'static str,
}

/// An import that has a flow and a report.
pub(crate) trait Parts {
    fn parts(&mut self) -> (&mut Draft, &mut Report);
}

/// One way out of a state.
pub(crate) struct Transition {
    pub(crate) target: Target,
    /// The end of the way to the target.
    pub(crate) exit: Exit,
    /// The place in the source of the state, or of the key that names the target.
    pub(crate) at: At,
}

/// Writes a state. Returns its transitions.
pub(crate) type Write<'w, P> = &'w mut dyn FnMut(&mut P, &Scope<'_>, usize, Exit) -> Vec<Transition>;

/// The ways through a machine, as far as they are written.
struct Ways<'w> {
    machine: &'w Machine<'w>,
    scope: &'w Scope<'w>,
    order: &'w Order,
    /// Ends that lead to a state without a join.
    arrived: HashMap<usize, Exit>,
    /// States with a join that an end leads to.
    joined: HashSet<usize>,
    /// Ends of the machine.
    ends: Vec<Exit>,
}

/// Writes the states of a machine, whose places in the source are `places`. Returns the end of the machine; `None` if it
/// never ends with success, or if the flow is full.
pub(crate) fn machine<P: Parts>(
    import: &mut P,
    machine: &Machine<'_>,
    prefix: &str,
    start: Exit,
    places: &[At],
    write: Write<'_, P>,
) -> Option<Exit> {
    let index = machine.names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    let mut scope =
        Scope { index, assigned: machine.assigned.clone(), joins: HashMap::new(), outer: start.env.clone() };
    let order = Order::new(&machine.next, machine.first);
    let (draft, _) = import.parts();
    for state in order.states.iter().filter(|state| order.is_join(**state)) {
        let id = draft.names.fresh(&format!("{}_in", crate::names::cleaned(machine.names[*state], "state")));
        scope.joins.insert(*state, id);
    }
    if order.has_cycle() {
        draft.head.insert("maxPasses".into(), machine.max_passes.into());
    }
    let arrived = [(machine.first, start)].into();
    let mut ways = Ways { machine, scope: &scope, order: &order, arrived, joined: HashSet::new(), ends: Vec::new() };
    for state in &order.states {
        if import.parts().0.is_full() {
            return None;
        }
        let Some(mut exit) = ways.enter(import.parts().0, *state) else {
            let why = "no transition that was imported leads to it, so it is left out";
            import.parts().1.mark_flow(Verdict::Refused, &places[*state], "state", why);
            continue;
        };
        machine.names[*state].clone_into(&mut exit.env.state);
        for transition in write(import, &scope, *state, exit) {
            ways.lead(import.parts(), *state, transition);
        }
    }
    let reached: HashSet<usize> = order.states.iter().copied().collect();
    for state in (0..places.len()).filter(|state| !reached.contains(state)) {
        let why = "no transition leads to it, so it is left out";
        import.parts().1.exact(&places[state], "state", None, why);
    }
    join(import.parts().0, &scope, ways.ends, prefix)
}

impl Ways<'_> {
    /// Returns the beginning of a state, behind its join if it has one; `None` if no way leads to it.
    fn enter(&mut self, draft: &mut Draft, state: usize) -> Option<Exit> {
        let arrived = self.arrived.remove(&state);
        let Some(id) = self.scope.joins.get(&state) else { return arrived };
        if arrived.is_none() && !self.joined.contains(&state) {
            return None;
        }
        // Only the first state has an end that was not led to its join.
        let begins = arrived.as_ref().is_some_and(|start| start.from.is_none());
        if let Some(start) = arrived.filter(|_| !begins) {
            self.scope.lead_to_join(draft, start, id);
        }
        draft.nodes.push(Node::value(id, self.scope.join_value(begins)));
        let from = Some((id.clone(), On::Success));
        Some(Exit { from, env: self.scope.behind(id), carries: self.scope.assigned.is_empty() })
    }

    /// Leads the end of a state to the target of a transition.
    fn lead(&mut self, (draft, report): (&mut Draft, &mut Report), state: usize, transition: Transition) {
        let Transition { target, mut exit, at } = transition;
        let key = self.machine.transition;
        match target {
            Target::End => self.ends.push(exit),
            Target::State(to) if self.order.is_into_middle(state, to) => {
                let why = "this transition leads into the middle of a cycle; move the beginning of the cycle";
                report.note(Verdict::Refused, &at, key, why);
                exit.refuse(draft, report, "into_cycle", key);
            }
            Target::State(to) => match self.scope.joins.get(&to) {
                Some(id) => {
                    self.scope.lead_to_join(draft, exit, id);
                    self.joined.insert(to);
                }
                None => _ = self.arrived.insert(to, exit),
            },
            Target::NoMatch => {
                let id = draft.names.fresh("no_match");
                let input = json!({ "message": "no rule of the state holds", "code": "States.NoChoiceMatched" });
                exit.push(draft, Node::new(&id, "control.fail", input));
            }
            Target::Missing(name) => {
                let why = format!("the state {} does not exist", Value::from(name));
                report.note(Verdict::Refused, &at, key, &why);
                exit.refuse(draft, report, "missing_state", key);
            }
        }
    }
}

/// Joins the ends of a machine. Returns `None` without ends.
pub(crate) fn join(draft: &mut Draft, scope: &Scope<'_>, mut ends: Vec<Exit>, prefix: &str) -> Option<Exit> {
    if ends.len() < 2 {
        return ends.pop();
    }
    let id = draft.names.fresh(&format!("{prefix}result"));
    for exit in ends {
        scope.lead_to_join(draft, exit, &id);
    }
    draft.nodes.push(Node::value(&id, binding("inbound.value")));
    let from = Some((id.clone(), On::Success));
    Some(Exit { from, env: scope.behind(&id), carries: scope.assigned.is_empty() })
}
