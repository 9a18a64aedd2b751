//! The settings of nodes, and what happens when a node fails.

use serde_json::{Value, json};

use super::{N8n, Port, pointer};
use crate::{
    draft::{Node, On},
    expr::{atom, binding},
    report::Verdict,
};

/// The kinds of nodes whose failures can give items.
const HANDLED: [&str; 4] = ["code", "executeWorkflow", "function", "httpRequest"];

/// The way on behind a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnError {
    /// The run fails.
    Stop,
    /// An item with the error goes to the usual output.
    Regular,
    /// An item with the error goes to a second output.
    Second,
}

/// Returns the way on behind a failure of a node.
pub(super) fn on_error(n8n: &N8n<'_>, node: usize) -> OnError {
    let raw = n8n.nodes[node];
    match raw.get("onError").and_then(Value::as_str) {
        _ if !HANDLED.contains(&n8n.kind(node)) => OnError::Stop,
        Some("continueRegularOutput") => OnError::Regular,
        Some("continueErrorOutput") => OnError::Second,
        None if raw.get("continueOnFail") == Some(&true.into()) => OnError::Regular,
        _ => OnError::Stop,
    }
}

/// Notes the settings of a node, and gives them to the node of the flow.
pub(super) fn settings(n8n: &mut N8n<'_>, node: usize, made: &mut Node) {
    let (raw, at) = (n8n.nodes[node], pointer(node));
    // A node that is disabled or not imported is of another kind.
    let is_handled = on_error(n8n, node) != OnError::Stop && ["control.foreach", "script.run"].contains(&made.kind);
    for (key, value) in raw.iter().filter(|(key, _)| !super::SILENT.contains(&key.as_str())) {
        let at = at.join(key);
        let is_off = *value == Value::Bool(false);
        let (verdict, why) = match key.as_str() {
            "notes" => {
                made.comment = value.as_str().map(str::to_owned);
                (Verdict::Exact, "a comment")
            }
            "continueOnFail" | "retryOnFail" | "alwaysOutputData" | "executeOnce" if is_off => continue,
            // The caller has noted `disabled`, and `always_output` notes its key. The others belong to `retryOnFail`.
            "disabled" | "alwaysOutputData" | "maxTries" | "waitBetweenTries" => continue,
            "executeOnce" => (Verdict::Exact, "only the first item"),
            "onError" if *value == "stopWorkflow" => (Verdict::Exact, "the run fails"),
            "retryOnFail" => {
                made.policy.insert("retry".into(), retry(n8n, node));
                (Verdict::Exact, "`policy.retry`")
            }
            "credentials" => (
                Verdict::Refused,
                "store the credentials with `flowcell secret set`, and name them in `grants.secrets`",
            ),
            "onError" | "continueOnFail" if is_handled => {
                (Verdict::Approximated, "the item of a failure has only `error`, or its message, and no other fields")
            }
            "onError" | "continueOnFail" => (Verdict::Refused, "write an error edge, or `policy.continueOnError`"),
            _ => (Verdict::Refused, "the key has no counterpart; see whether it matters"),
        };
        n8n.report.note(verdict, &at, key, why);
    }
}

/// Returns the policy for `retryOnFail`.
fn retry(n8n: &N8n<'_>, node: usize) -> Value {
    let number = |key: &str, default: u64| {
        n8n.nodes[node].get(key).and_then(Value::as_u64).filter(|number| *number > 0).unwrap_or(default)
    };
    // The bounds are those of n8n, which takes the default for 0.
    let (tries, wait) = (number("maxTries", 3).clamp(2, 5), number("waitBetweenTries", 1_000).min(5_000));
    json!({ "maxAttempts": tries, "backoffMs": wait, "factor": 1, "maxBackoffMs": wait, "jitter": "none", "on": "any" })
}

/// Gives the only output of a node one empty item, if it has none, for `alwaysOutputData`.
pub(super) fn always_output(n8n: &mut N8n<'_>, node: usize) {
    const KEY: &str = "alwaysOutputData";
    let at = pointer(node).join(KEY);
    match n8n.nodes[node].get(KEY) {
        None | Some(Value::Bool(false)) => return,
        Some(_) => {}
    }
    match n8n.ports.get_mut(&node).map(Vec::as_mut_slice) {
        None | Some([]) => n8n.report.exact(&at, KEY, None, "the node has no output"),
        Some([port]) => {
            let (list, from) = (&port.list, port.from.as_deref().unwrap_or_default());
            if port.may_be_empty && !from.is_empty() {
                let is_empty = format!("({} | default([]) | length) == 0", atom(list));
                // A node that did not run gives no item.
                port.list = format!("([{{}}] if {is_empty} and {from}.skipped is not true else {list})");
                port.may_be_empty = false;
            }
            n8n.report.exact(&at, KEY, port.from.as_deref(), "an empty item, if there are no others");
        }
        Some(_) => {
            let why = "a node with several outputs gives no empty item here; write the node";
            n8n.report.mark_flow(Verdict::Refused, &at, KEY, why);
        }
    }
}

/// Sets the outputs of a loop over items, whose failures are collected if the node goes on. The body gives `output`.
pub(super) fn loop_outputs(n8n: &mut N8n<'_>, node: usize, owner: &mut Node, output: &str) {
    owner.body_output = Some(binding(output));
    if on_error(n8n, node) != OnError::Stop {
        owner.input.insert("onItemError".into(), "collect".into());
        // A member tells a result from a failure.
        owner.body_output = Some(binding(&format!("{{'ok': {output}}}")));
    }
}

/// Sets the ports of such a loop with an id.
pub(super) fn loop_ports(n8n: &mut N8n<'_>, node: usize, id: &str) {
    match on_error(n8n, node) {
        OnError::Stop => n8n.single(node, id, "items", format!("({id}.items | default([]) | flatten(1))"), true),
        OnError::Regular => {
            let result = n8n.draft.names.fresh(&format!("{id}_result"));
            let template = "{{ item.ok if item.ok is defined else {'error': item.error.message}  }}";
            let input = json!({ "list": binding(&format!("{id}.items")), "template": template });
            n8n.draft.nodes.push(Node::new(&result, "data.map", input));
            n8n.draft.edge(id, &result, On::Success);
            n8n.single(node, &result, "list", format!("({result}.list | default([]) | flatten(1))"), true);
        }
        OnError::Second => {
            let good =
                format!("({id}.items | default([]) | selectattr('ok', 'defined') | map(attribute='ok') | flatten(1))");
            let bad = format!("({id}.items | default([]) | rejectattr('ok', 'defined'))");
            let port = |list: String| Port { list, from: Some(id.to_owned()), may_be_empty: true, fails: false };
            n8n.ports.insert(node, vec![port(good), port(bad)]);
        }
    }
}

/// Sets the ports of a node that fails as a whole. `list` has its items.
pub(super) fn whole_ports(n8n: &mut N8n<'_>, node: usize, id: &str, list: String) {
    let error = format!("[{{'error': {id}.error.message}}]");
    match on_error(n8n, node) {
        OnError::Stop => n8n.single(node, id, "result", list, true),
        OnError::Regular => {
            n8n.single(node, id, "result", format!("({error} if {id}.failed is true else {list})"), true);
        }
        OnError::Second => {
            let good = Port { list, from: Some(id.to_owned()), may_be_empty: true, fails: false };
            let bad = Port { list: error, from: Some(id.to_owned()), may_be_empty: false, fails: true };
            n8n.ports.insert(node, vec![good, bad]);
        }
    }
}

/// Lets the flow go on if a node fails as a whole, unless an error edge handles the failure.
pub(super) fn go_on(n8n: &N8n<'_>, node: usize, made: &mut Node) {
    let has_edge = n8n.outgoing[node].iter().any(|link| n8n.links[*link].output == 1);
    let way = on_error(n8n, node);
    if way == OnError::Regular || way == OnError::Second && !has_edge {
        made.policy.insert("continueOnError".into(), true.into());
    }
}
