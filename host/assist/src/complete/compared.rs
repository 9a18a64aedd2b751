//! Completions of a value that is compared with another one: routes, choices, and values that a schema lists.

use serde_json::Value as Json;

use super::{CompletionKind, Offer, links::own_ports, quoted};
use crate::{
    expression::{Expression, PathAt},
    flow::Flow,
    locate::Located,
    names::{names, schemas_of},
    reading::Style,
    schemas::Step,
    spots::{self, Place},
};

/// Returns the values that the value of a path may have, as far as the flow and the schemas list them.
fn listed(flow: &Flow<'_>, place: &Place, path: &PathAt) -> Vec<Json> {
    let node = spots::named_node(flow, place, path).and_then(|(id, _)| flow.find(&id));
    if let Some(ports) = node.map(|node| own_ports(flow, node)) {
        let steps = path.steps.iter().skip(usize::from(path.root == "nodes"));
        let member: Vec<_> = steps.map(|step| step.name.as_str()).collect();
        if !ports.values.is_empty() && member.join(".") == ports.member {
            return ports.values;
        }
    }
    let known = names(flow, place);
    schemas_of(&known, flow, path, path.steps.len()).iter().flat_map(|schema| schema.values()).collect()
}

fn offer(value: &Json, insert: impl Fn(&str) -> String) -> Offer {
    match value.as_str() {
        Some(text) => Offer::new(text, CompletionKind::Value, "").with_insert(insert(text)),
        None => Offer::new(value.to_string(), CompletionKind::Value, ""),
    }
}

/// Returns the values with which a condition compares its `var`, for a place in `equals.value` or `in.values`.
pub(super) fn in_condition(flow: &Flow<'_>, located: &Located<'_>, style: Style) -> Vec<Offer> {
    let is_compared = match located.steps.as_slice() {
        [.., Step::Key(operator), Step::Key(value)] => operator == "equals" && value == "value",
        [.., Step::Key(operator), Step::Key(values), Step::Item] => operator == "in" && values == "values",
        _ => false,
    };
    let var = located.around.iter().rev().find_map(|around| around.member("var")).filter(|_| is_compared);
    let Some(var) = var else { return Vec::new() };
    let mut found = Vec::new();
    spots::each(flow, Some(&var.range), &mut |spot| {
        if let Some(path) = spot.expression().paths().first().filter(|_| spot.is_path) {
            found = listed(flow, spot.place, path);
        }
    });
    let is_writable = |value: &&Json| value.is_string() || style == Style::Plain;
    found.iter().filter(is_writable).map(|value| offer(value, |text| quoted(text, style))).collect()
}

/// Returns the values with which an expression compares the path before or behind the token at an index. In quotes, only
/// texts.
pub(super) fn in_expression(
    flow: &Flow<'_>,
    place: &Place,
    expression: &Expression<'_>,
    index: usize,
    is_quoted: bool,
) -> Vec<Offer> {
    let is_operator = |index: usize| matches!(expression.word(index), "==" | "!=");
    let paths = expression.paths();
    let path = match index.checked_sub(1).filter(|before| is_operator(*before)) {
        Some(operator) => paths.iter().rfind(|path| path.end() <= expression.tokens[operator].range.start),
        None if is_operator(index + 1) => {
            paths.iter().find(|path| path.root_range.start >= expression.tokens[index + 1].range.end)
        }
        None => None,
    };
    let Some(path) = path else { return Vec::new() };
    // A text that ends the quotes around it would be another text.
    let is_writable = |value: &Json| match value.as_str() {
        Some(text) => !text.contains(['"', '\'', '\\', '\n', '{', '}']),
        None => !is_quoted,
    };
    let write = |text: &str| if is_quoted { text.to_owned() } else { format!("'{text}'") };
    listed(flow, place, path).iter().filter(|value| is_writable(value)).map(|value| offer(value, write)).collect()
}
