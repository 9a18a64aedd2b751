//! The grants and the policy of a node, as `flowcell validate` and `flowcell run --dry-run` print them.

use flowcell::{
    contract::{CredentialGrant, Json, NodeLimits},
    explain::policy_json,
    from_defaults,
    graph::{Node, NodePolicy},
};

use crate::terminal::inert;

/// Lists the capabilities that a node's type requests, and its other grants, each with the flow's grant. A grant from
/// `flow.defaults` is marked. Returns `nothing` if there are none.
pub(super) fn grants_text(node: &Node) -> String {
    let defaults = from_defaults(node).unwrap_or_default();
    let asked = node.node_type.capabilities.iter().map(|request| &*request.name);
    let others = node.grants.0.keys().map(String::as_str).filter(|name| !node.node_type.asks_for(name));
    let reached = asked.chain(others).map(|name| {
        let mark = if defaults.contains(&format!("grants.{name}").as_str()) { " by default" } else { "" };
        match node.grants.0.get(name) {
            Some(Json::Array(items)) => {
                let items: Vec<_> = items.iter().map(item_text).collect();
                format!("{name} ({}){mark}", items.join(", "))
            }
            Some(grant) => format!("{name} ({grant}){mark}"),
            None => name.to_owned(),
        }
    });
    let reached: Vec<_> = reached.collect();
    if reached.is_empty() { "nothing".to_owned() } else { inert(&reached.join(", ")).into_owned() }
}

/// Returns an item of a grant as text: a text itself, and a credential with both of its names.
fn item_text(item: &Json) -> String {
    match item.as_str() {
        Some(text) => text.to_owned(),
        None => CredentialGrant::parse(item).map_or_else(|_| item.to_text(), |credential| credential.to_string()),
    }
}

/// Returns the memory and the output that a node's type asks for, after two spaces. Empty if it asks for none.
pub(super) fn limits_text(node: &Node) -> String {
    // The policy of the node shows its time, which the flow may set.
    let limits = NodeLimits { timeout_ms: None, ..node.node_type.limits };
    if limits.is_empty() { String::new() } else { format!("  asks for {}", limits.summary()) }
}

/// Lists the members of a node's policy that differ from the built-in ones. Those from `flow.defaults` are marked. Returns
/// `None` if there are none.
pub(super) fn policy_text(node: &Node) -> Option<String> {
    let defaults = from_defaults(node).unwrap_or_default();
    let usual = policy_json(&NodePolicy::default());
    let policy = policy_json(&node.policy);
    let members = policy.as_object().into_iter().flatten().filter(|(key, value)| usual.get(*key) != Some(*value));
    let members: Vec<_> = members
        .map(|(key, value)| {
            let mark = if defaults.contains(&format!("policy.{key}").as_str()) { " by default" } else { "" };
            match value.get("maxAttempts") {
                Some(attempts) => format!("{key} ({attempts} attempts){mark}"),
                None => format!("{key} {value}{mark}"),
            }
        })
        .collect();
    (!members.is_empty()).then(|| members.join(", "))
}
