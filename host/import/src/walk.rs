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

/// Writes a state. Returns its transitions, each with the end of the way to it.
pub(crate) type Write<'w, P> = &'w mut dyn FnMut(&mut P, &Scope<'_>, usize, Exit) -> Vec<(Target, Exit)>;

/// The ways through a machine, as far as they are written.
struct Ways {
    /// Ends that lead to a state without a join.
    arrived: HashMap<usize, Exit>,
    /// States with a join that an end leads to.
    joined: HashSet<usize>,
    /// Ends of the machine.
    ends: Vec<Exit>,
}

/// Writes the states of a machine, whose places in the source are `places`. Returns the end of the machine; `None` if it
/// never ends with success.
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
    let mut ways = Ways { arrived: [(machine.first, start)].into(), joined: HashSet::new(), ends: Vec::new() };
    for state in &order.states {
        let at = &places[*state];
        let Some(mut exit) = enter(import.parts().0, &scope, *state, &mut ways) else {
            let why = "no transition that was imported leads to it, so it is left out";
            import.parts().1.mark_flow(Verdict::Refused, at, "state", why);
            continue;
        };
        machine.names[*state].clone_into(&mut exit.env.state);
        for (target, exit) in write(import, &scope, *state, exit) {
            let is_cut = matches!(target, Target::State(to) if order.is_into_middle(*state, to));
            lead(import.parts(), machine, &scope, is_cut, target, exit, &mut ways, at);
        }
    }
    let reached: HashSet<usize> = order.states.iter().copied().collect();
    for state in (0..places.len()).filter(|state| !reached.contains(state)) {
        let why = "no transition leads to it, so it is left out";
        import.parts().1.exact(&places[state], "state", None, why);
    }
    join(import.parts().0, &scope, ways.ends, prefix)
}

/// Returns the beginning of a state, behind its join if it has one; `None` if no way leads to it.
fn enter(draft: &mut Draft, scope: &Scope<'_>, state: usize, ways: &mut Ways) -> Option<Exit> {
    let arrived = ways.arrived.remove(&state);
    let Some(id) = scope.joins.get(&state) else { return arrived };
    if arrived.is_none() && !ways.joined.contains(&state) {
        return None;
    }
    // Only the first state has an end that was not led to its join.
    let begins = arrived.as_ref().is_some_and(|start| start.from.is_none());
    if let Some(start) = arrived.filter(|_| !begins) {
        scope.lead_to_join(draft, start, id);
    }
    draft.nodes.push(Node::value(id, scope.join_value(begins)));
    let from = Some((id.clone(), On::Success));
    Some(Exit { from, env: scope.behind(id), carries: scope.assigned.is_empty() })
}

/// Leads the end of a state to the target of its transition.
#[expect(clippy::too_many_arguments, reason = "the parts of one transition")]
fn lead(
    (draft, report): (&mut Draft, &mut Report),
    machine: &Machine<'_>,
    scope: &Scope<'_>,
    is_cut: bool,
    target: Target,
    mut exit: Exit,
    ways: &mut Ways,
    at: &At,
) {
    let key = machine.transition;
    match target {
        Target::End => ways.ends.push(exit),
        Target::State(_) if is_cut => {
            let why = "this transition leads into the middle of a cycle; move the beginning of the cycle";
            report.note(Verdict::Refused, at, key, why);
            exit.refuse(draft, report, "into_cycle", key);
        }
        Target::State(to) => match scope.joins.get(&to) {
            Some(id) => {
                scope.lead_to_join(draft, exit, id);
                ways.joined.insert(to);
            }
            None => _ = ways.arrived.insert(to, exit),
        },
        Target::NoMatch => {
            let id = draft.names.fresh("no_match");
            let input = json!({ "message": "no rule of the state holds", "code": "States.NoChoiceMatched" });
            exit.push(draft, Node::new(&id, "control.fail", input));
        }
        Target::Missing(name) => {
            let why = format!("the state {} does not exist", Value::from(name));
            report.note(Verdict::Refused, at, key, &why);
            exit.refuse(draft, report, "missing_state", key);
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
