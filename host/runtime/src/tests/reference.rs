//! The rules of readiness in their simplest form: recompute everything until nothing changes.

use std::collections::BTreeSet;

use flowcell_flow::graph::{Join, On};

use super::graphs::{Plan, PlannedBody, reaches, rest};

/// The end of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    Skipped,
}

/// Returns the end of every node of a scope, without `failFast`, and true if a failure stays unhandled.
pub(crate) fn run(body: &PlannedBody) -> (Vec<End>, bool) {
    // Nodes that undo others do not take part.
    let mut ends: Vec<Option<End>> =
        (0..body.nodes.len()).map(|node| body.undo_of(node).map(|_| End::Skipped)).collect();
    loop {
        let before = ends.clone();
        for node in 0..body.nodes.len() {
            if ends[node].is_none() {
                ends[node] = end_of(body, &ends, node);
            }
        }
        if ends != before {
            continue;
        }
        let waiting: Vec<_> = (0..ends.len()).filter(|node| ends[*node].is_none()).collect();
        if waiting.is_empty() {
            break;
        }
        let on_cycles: Vec<_> = waiting.iter().copied().filter(|node| reaches(body, *node, *node)).collect();
        for node in if on_cycles.is_empty() { waiting } else { on_cycles } {
            ends[node] = Some(End::Skipped);
        }
    }
    let ends: Vec<_> = ends.into_iter().flatten().collect();
    let unhandled = (0..ends.len()).any(|node| ends[node] == End::Failed && !is_handled(body, node));
    (ends, unhandled)
}

/// Returns the nodes that a race may cancel, as soon as one of the nodes that cancel them has run.
pub(crate) fn losers(body: &PlannedBody, ends: &[End]) -> BTreeSet<usize> {
    let opened = |join: &usize| ends[*join] != End::Skipped;
    (0..body.nodes.len()).filter(opened).flat_map(|join| rest(body, join)).collect()
}

/// Returns true if the run may end as failed or not. A race may cancel a node before it fails.
pub(crate) fn may_fail(body: &PlannedBody, ends: &[End], has_failed: bool) -> bool {
    let losers = losers(body, ends);
    let mut unhandled = (0..ends.len()).filter(|node| ends[*node] == End::Failed && !is_handled(body, *node));
    if has_failed { unhandled.next().is_some() } else { unhandled.all(|node| losers.contains(&node)) }
}

fn is_handled(body: &PlannedBody, node: usize) -> bool {
    body.nodes[node].continue_on_error || body.edges.iter().any(|(from, _, on)| *from == node && *on != On::Success)
}

/// Returns true if an edge fired, false if it was skipped, and `None` if neither has happened yet.
fn edge(body: &PlannedBody, ends: &[Option<End>], (from, _, on): (usize, usize, On)) -> Option<bool> {
    let end = ends[from]?;
    let continued = end == End::Failed && body.nodes[from].continue_on_error;
    Some(match on {
        On::Success => end == End::Succeeded || continued,
        On::Error => end == End::Failed,
        On::End => end != End::Skipped,
    })
}

fn end_of(body: &PlannedBody, ends: &[Option<End>], node: usize) -> Option<End> {
    let incoming: Vec<_> =
        body.edges.iter().filter(|(_, to, _)| *to == node).map(|line| edge(body, ends, *line)).collect();
    let settled = incoming.iter().all(Option::is_some);
    let fired = incoming.contains(&Some(true));
    let runs = match body.nodes[node].join {
        _ if incoming.is_empty() => true,
        Join::Any if fired => true,
        _ if !settled => return None,
        Join::All => !incoming.contains(&Some(false)),
        Join::Settled | Join::Any => fired,
    };
    Some(if runs { performed(&body.nodes[node]) } else { End::Skipped })
}

fn performed(node: &super::graphs::Planned) -> End {
    let body_fails = || node.body.as_ref().is_some_and(|body| run(body).1);
    let fails = match node.plan {
        Plan::Fail => true,
        Plan::Each { items, may_fail, .. } => items > may_fail && body_fails(),
        Plan::Scope(_) => body_fails(),
        Plan::Loop(count) => count > 0 && body_fails(),
        _ => false,
    };
    if fails { End::Failed } else { End::Succeeded }
}
