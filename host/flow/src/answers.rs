//! Warns of nodes that answer no post: no trigger waits for them, or an earlier node has answered.

use std::sync::Arc;

use flowcell_contract::{NodeType, http_answer::RESPOND};

use crate::{
    diagnostic::Diagnostics,
    graph::On,
    read::RawFlow,
    shape::Shape,
    triggers::{Cause, Respond, Trigger},
};

/// Warns of the nodes `control.respond` of a flow if no trigger of its file waits for them, and of each node behind which
/// another one would answer in vain.
pub(crate) fn check(
    flow: &RawFlow<'_>,
    shape: &Shape,
    types: &[Option<Arc<NodeType>>],
    triggers: &[Trigger],
    diagnostics: &mut Diagnostics<'_>,
) {
    let answers = |node: &usize| types[*node].as_ref().is_some_and(|kind| *kind.name == *RESPOND);
    let nodes: Vec<usize> = (0..types.len()).filter(answers).collect();
    let Some(first) = nodes.first() else { return };
    let waits =
        |trigger: &Trigger| matches!(&trigger.cause, Cause::Webhook(webhook) if webhook.respond == Respond::Node);
    if !triggers.iter().any(waits) {
        let message = "no trigger of this flow waits for the answer: none has a webhook with `respond: node`";
        let help = "add `respond: node` to the webhook of a trigger; triggers that are bound to the flow count, too";
        diagnostics.warning("respond_unused", flow.nodes[*first].type_span, message, Some(help.into()));
    }
    let leads = leads_to_answers(shape, &nodes);
    for node in nodes.iter().filter(|node| has_later_answer(flow, shape, &leads, **node)) {
        let message = "another `control.respond` may follow, but only the first one of a run answers";
        let help = "keep one of them, or put them on ways of which a run takes one";
        diagnostics.warning("respond_twice", flow.nodes[*node].type_span, message, Some(help.into()));
    }
}

/// Returns for each node whether it, a node of its body, or a node behind it in the same body answers.
fn leads_to_answers(shape: &Shape, answers: &[usize]) -> Vec<bool> {
    let mut leads = vec![false; shape.scope_of.len()];
    let mut open = answers.to_vec();
    while let Some(node) = open.pop() {
        if std::mem::replace(&mut leads[node], true) {
            continue;
        }
        open.extend(shape.incoming[node].iter().map(|edge| shape.edges[*edge].1));
        open.extend(shape.scopes[shape.scope_of[node]].owner);
    }
    leads
}

/// Returns whether an edge from this node, or from an owner of it, leads to a node that answers. Behind a failure of the
/// node itself another one may answer.
fn has_later_answer(flow: &RawFlow<'_>, shape: &Shape, leads: &[bool], node: usize) -> bool {
    let owner = |node: &usize| shape.scopes[shape.scope_of[*node]].owner;
    std::iter::successors(Some(node), owner).any(|from| {
        shape.outgoing[from].iter().map(|edge| shape.edges[*edge]).any(|(edge, _, to)| {
            let is_failure = from == node && flow.edges[edge].on == On::Error;
            leads[to] && !is_failure
        })
    })
}
