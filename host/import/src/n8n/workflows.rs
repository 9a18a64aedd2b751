//! Calls of other workflows.

use serde_json::{Map, Value, json};

use super::{
    N8n, Port, calls, failures, pointer,
    values::{self, Place},
};
use crate::{
    draft::Node,
    expr::{Term, binding},
    names::cleaned,
    report::{At, Verdict},
};

/// Writes a loop with a call of the other flow for each item.
pub(super) fn call(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let is_stored = parameters.get("source").is_none_or(|source| source == "database");
    let Some(name) = name(parameters).filter(|_| is_stored) else {
        return calls::missing(n8n, node, list, sources);
    };
    let id = n8n.fresh(node);
    let (item, index) = (format!("{id}.item"), format!("{id}.index"));
    let place = Place { item: Some(&item), index: Some(&index), list };
    let input = inputs(n8n, parameters, place, &at);
    let option = |key: &str| parameters.get("options").and_then(|options| options.get(key));
    if option("waitForSubWorkflow") == Some(&false.into()) {
        let why = "the flow waits here until the other one has ended";
        n8n.report.note(Verdict::Approximated, &at.join("options"), "waitForSubWorkflow", why);
    }
    if parameters.get("mode").is_none_or(|mode| mode != "each") {
        let why = "the other flow runs once for each item here, and there once with all items";
        n8n.report.note(Verdict::Approximated, &at.join("mode"), "mode", why);
    }
    let why = format!("import the other workflow as the flow `{name}`; its output `items` has the items");
    n8n.report.note(Verdict::Approximated, &at.join("workflowId"), "workflowId", &why);
    n8n.options(parameters, &["waitForSubWorkflow"], &at);
    n8n.unknown(parameters, &["source", "workflowId", "workflowInputs", "mode", "options"], &at);
    let call = n8n.draft.names.fresh(&format!("{id}_call"));
    let inner = Node::new(&call, "control.subflow", json!({ "name": name, "input": input.to_value() }));
    let mut owner = Node::new(&id, "control.foreach", json!({ "list": binding(list), "concurrency": 1 }));
    owner.body = Some(vec![call.clone()]);
    owner.sample = Some(json!({ "items": [], "count": 0 }));
    let outputs = format!("{call}.outputs");
    let items = format!("({outputs}.items if {outputs}.items is sequence else [{outputs}])");
    failures::loop_outputs(n8n, node, &mut owner, &items);
    n8n.add(node, owner, sources);
    n8n.draft.nodes.push(inner);
    failures::loop_ports(n8n, node, &id);
}

/// Returns the name of the flow for the other workflow: its name there, or its id. `None` if it is computed.
fn name(parameters: &Map<String, Value>) -> Option<String> {
    let id = parameters.get("workflowId")?;
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let value = text(id).or_else(|| text(id.get("value")?))?;
    if value.starts_with('=') || value.is_empty() {
        return None;
    }
    let name = id.get("cachedResultName").and_then(Value::as_str).filter(|name| !name.is_empty());
    Some(cleaned(name.unwrap_or(&value), "workflow"))
}

/// Returns the input of the other flow: the item, or the values for its fields.
fn inputs(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, place: Place<'_>, at: &At) -> Term {
    let item = || Term::Expr(place.item.unwrap_or("item").to_owned());
    let Some(inputs) = parameters.get("workflowInputs") else { return item() };
    let at = at.join("workflowInputs");
    match inputs.get("value") {
        Some(value @ Value::Object(members))
            if !members.is_empty() && inputs.get("mappingMode").is_some_and(|mode| mode == "defineBelow") =>
        {
            values::term(n8n, value, place, &at.join("value"))
        }
        _ => item(),
    }
}
