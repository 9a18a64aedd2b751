//! Sentences about calls that may cost money or change something outside the host.

use flowcell_contract::{Effect, Json, MarkKind, Trait};

use super::{owner, sentences::counted};
use crate::graph::{Graph, Node};

/// Returns sentences about the costs of a node.
pub(super) fn of_node(graph: &Graph, node: &Node) -> Vec<String> {
    let mut said = Vec::new();
    if node.node_type.has(Trait::Agent) || node.node_type.asks_for("model") {
        said.push(model(node));
        said.push(budget(node));
    }
    said.extend(effect(node.node_type.effect).map(str::to_owned));
    if calls_flow(node) {
        said.push("It runs another flow, whose costs are not counted here.".to_owned());
    }
    let attempts = node
        .policy
        .retry
        .max_attempts
        .max(node.policy.retry.rules.iter().map(|rule| rule.max_attempts).max().unwrap_or_default());
    let is_costly = !said.is_empty();
    if attempts > 1 && is_costly {
        said.push(format!("Up to {attempts} attempts may each cost as much."));
    }
    if let Some(owner) = owner(graph, node).filter(|_| is_costly) {
        said.push(format!("Each pass of `{}` costs anew.", owner.id));
    }
    if said.is_empty() {
        said.push("Its type declares no call that costs money or changes something outside.".to_owned());
    }
    said
}

/// Returns true if a node runs another flow.
fn calls_flow(node: &Node) -> bool {
    node.node_type.marks.iter().any(|mark| mark.kind == MarkKind::Flow)
}

fn model(node: &Node) -> String {
    let named = setting(node, &["model"]).map(|model| format!("the model {model}"));
    let provider = setting(node, &["provider"]).map(|provider| format!("the profile {provider}"));
    match (named, provider) {
        (Some(model), Some(provider)) => format!("It asks {model} of {provider}."),
        (Some(model), None) => format!("It asks {model} of the operator's default profile."),
        (None, Some(provider)) => format!("It asks the model of {provider}."),
        (None, None) => "It asks the model of the operator's default profile.".to_owned(),
    }
}

fn budget(node: &Node) -> String {
    let most = |name: &str, thing: &str| {
        let given = setting(node, &[name]).or_else(|| default(node, name));
        given.map(|number| format!("{number} {thing}"))
    };
    let money = setting(node, &["budget", "usd"]).map(|usd| format!("{usd} US dollars"));
    let tokens = setting(node, &["budget", "tokens"]).map(|tokens| format!("{tokens} tokens"));
    let calls = [most("maxModelCalls", "calls of the model"), most("maxToolCalls", "calls of tools")];
    let limits: Vec<_> = [money.clone(), tokens.clone()].into_iter().chain(calls).flatten().collect();
    let missing = if money.is_none() && tokens.is_none() { " It has no `budget`." } else { "" };
    match limits.is_empty() {
        true => format!("It sets no limit of its own.{missing}"),
        false => format!("An attempt ends at {}.{missing}", limits.join(", ")),
    }
}

/// Returns a literal setting of the input or of the config as text, or a note that the run computes it.
fn setting(node: &Node, path: &[&str]) -> Option<String> {
    let of = [&node.input.expr, &node.config.expr];
    let found = of.into_iter().find_map(|value| path.iter().try_fold(value, |value, step| value.member(step)))?;
    Some(match found.as_literal() {
        Some(Json::String(text)) => format!("`{}`", super::short(text)),
        Some(value) => super::short(&value.to_text()),
        None => "that the run computes".to_owned(),
    })
}

/// Returns the default of a setting in the schema of the config.
fn default(node: &Node, name: &str) -> Option<String> {
    Some(node.node_type.config.get("properties")?.get(name)?.get("default")?.to_string())
}

fn effect(effect: Effect) -> Option<&'static str> {
    match effect {
        Effect::Inert | Effect::Read => None,
        Effect::Transactional => Some("Its change becomes visible together with its outcome, or not at all."),
        Effect::Idempotent => Some("Its calls leave the host; a repeated call does no harm."),
        Effect::AtLeastOnce => Some("Its calls leave the host; after an ambiguous end they may be repeated."),
        Effect::Once => {
            Some("Its calls leave the host and are never repeated after an ambiguous end: a person decides.")
        }
    }
}

/// Returns the sums of the nodes that may cost something, for the whole flow.
pub(super) fn of_flow(graph: &Graph) -> Vec<String> {
    let calls = graph.nodes.iter().filter(|node| calls_flow(node)).count();
    let calls = (calls > 0)
        .then(|| format!("{} can run other flows, whose costs are not counted here.", counted(calls, "node")));
    own_of_flow(graph).into_iter().chain(calls).collect()
}

fn own_of_flow(graph: &Graph) -> Option<String> {
    let agents = graph.nodes.iter().filter(|node| node.node_type.asks_for("model")).count();
    let outside = graph.nodes.iter().filter(|node| node.node_type.effect.is_external()).count();
    match (agents, outside) {
        (0, 0) => None,
        (0, outside) => Some(format!("{} can change something outside the host.", counted(outside, "node"))),
        (agents, outside) => Some(format!(
            "{} can ask a model, and {} can change something outside the host.",
            counted(agents, "node"),
            counted(outside, "node")
        )),
    }
}
