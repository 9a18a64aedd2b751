//! Resolves the labels of edges in text. A label is an outcome, such as `error`, or a port of the node that the edge
//! starts at: `then` and `else` of a condition, a route, or a choice. A port becomes a condition over the node's output.

use std::{borrow::Cow, collections::HashMap, mem, sync::Arc};

use flowcell_contract::{Json, NodeType};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    edges::{OUTCOMES, parse_on},
    fields::for_message,
    literal,
    read::{RawFlow, RawNode},
    yaml::{Kind, Span, Tree},
};

/// Maximum number of ports in a help text.
const MAX_SHOWN_PORTS: usize = 8;

/// The ports of a node.
struct Ports {
    /// The member of the output that tells which port the node took.
    member: &'static str,
    /// The names of the ports, with the values of the member.
    known: Vec<(String, Json)>,
    /// True if the node may take other ports, because an expression computes their names.
    is_open: bool,
}

/// Replaces the labels of all edges with outcomes and conditions. Reports labels that are no port of their node.
pub(crate) fn resolve(flow: &mut RawFlow<'_>, types: &[Option<Arc<NodeType>>], diagnostics: &mut Diagnostics<'_>) {
    if flow.edges.iter().all(|edge| edge.label.is_none()) {
        return;
    }
    let mut edges = mem::take(&mut flow.edges);
    let mut nodes = HashMap::new();
    for (node, kind) in flow.nodes.iter().zip(types) {
        nodes.entry(node.id.as_str()).or_insert((node, kind.as_deref()));
    }
    let mut known: HashMap<&str, Option<Ports>> = HashMap::new();
    for edge in &mut edges {
        let Some((label, span)) = edge.label.take() else { continue };
        // An unknown node and an unknown type have diagnostics of their own. Without its condition, the edge would be
        // reported as a duplicate, too.
        let Some((node, Some(kind))) = nodes.get(edge.from.0.as_str()) else {
            edge.is_short = false;
            continue;
        };
        let ports = known.entry(&node.id).or_insert_with(|| ports(node, kind)).as_ref();
        let port = ports.and_then(|ports| ports.known.iter().find(|(name, _)| *name == label)).map(|(_, value)| value);
        match (parse_on(&label), port, ports) {
            (Some(on), Some(_), Some(ports)) => {
                report_ambiguous(&label, node, ports, span, diagnostics);
                edge.on = on;
            }
            (Some(on), ..) => edge.on = on,
            (None, Some(value), Some(ports)) => {
                edge.when = Some(Cow::Owned(condition(&node.id, ports, value.clone(), span)));
            }
            (None, None, Some(ports)) if ports.is_open => {
                edge.when = Some(Cow::Owned(condition(&node.id, ports, label.into(), span)));
            }
            _ => {
                report_unknown(&label, (node, kind), ports, span, diagnostics);
                // Without its condition, the edge would be reported as a duplicate, too.
                edge.is_short = false;
            }
        }
    }
    flow.edges = edges;
}

/// Returns the ports of a node; `None` if its type has none. The output's schema tells: it has a Boolean `condition`, a
/// text `route`, or a text `response.choice`.
fn ports(node: &RawNode<'_>, kind: &NodeType) -> Option<Ports> {
    let has = |pointer: &str, name: &str| {
        kind.output.pointer(pointer).and_then(|schema| schema.get("type")).is_some_and(|found| found == name)
    };
    if has("/properties/condition", "boolean") {
        let known = vec![("then".to_owned(), Json::Bool(true)), ("else".to_owned(), Json::Bool(false))];
        return Some(Ports { member: "condition", known, is_open: false });
    }
    let listed = |key: &str, text: fn(&Tree) -> Option<&Tree>| match node.input {
        // An expression computes the whole input.
        Some(input) if !matches!(input.kind, Kind::Map(_)) => (Vec::new(), true),
        input => input.and_then(|input| input.member(key)).map_or((Vec::new(), false), |list| texts(list, text)),
    };
    if has("/properties/route", "string") {
        let (mut known, is_open) = listed("cases", |case| case.member("route"));
        if !known.iter().any(|(name, _)| name == DEFAULT_ROUTE) {
            known.push((DEFAULT_ROUTE.to_owned(), DEFAULT_ROUTE.into()));
        }
        return Some(Ports { member: "route", known, is_open });
    }
    if has("/properties/response/properties/choice", "string") {
        let (known, is_open) = listed("choices", |choice| Some(choice));
        return Some(Ports { member: "response.choice", known, is_open });
    }
    None
}

/// The route that `control.switch` takes if no case holds.
const DEFAULT_ROUTE: &str = "default";

/// Returns the literal texts in a list, and whether there may be others. An expression computes a value that is no list.
fn texts(list: &Tree, text: fn(&Tree) -> Option<&Tree>) -> (Vec<(String, Json)>, bool) {
    let Kind::List(items) = &list.kind else { return (Vec::new(), true) };
    let literal = |item| text(item)?.text().filter(|text| !text.contains("{{"));
    let found: Vec<_> = items.iter().filter_map(literal).map(|text| (text.to_owned(), text.into())).collect();
    let is_open = found.len() < items.len();
    (found, is_open)
}

/// Returns the condition that a node's output names the port.
fn condition(id: &str, ports: &Ports, value: Json, span: Span) -> Tree {
    let node = if id.contains('-') { format!("nodes[\"{id}\"]") } else { id.to_owned() };
    let var = literal::text(format!("{node}.{}", ports.member), span);
    let value = Tree { span, kind: Kind::Scalar(value) };
    literal::map(span, [("equals", literal::map(span, [("var", var), ("value", value)]))])
}

fn report_ambiguous(label: &str, node: &RawNode<'_>, ports: &Ports, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let message = format!("`{label}` is both an outcome and a port of `{}`", node.id);
    let condition = format!("{{ equals: {{ var: {}.{}, value: {label} }} }}", node.id, ports.member);
    let help = format!("write a map with `on: {label}`, or with `when: {condition}`");
    diagnostics.error("ambiguous_port", span, message, Some(help));
}

fn report_unknown(
    label: &str,
    (node, kind): (&RawNode<'_>, &NodeType),
    ports: Option<&Ports>,
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
) {
    let ports = ports.map(|ports| ports.known.as_slice()).unwrap_or_default();
    let names = || ports.iter().map(|(name, _)| name.as_str()).chain(OUTCOMES);
    let message = format!("`{}` (`{}`) has no port `{}`", node.id, kind.name, for_message(label));
    let help = did_you_mean(label, names()).unwrap_or_else(|| {
        let shown: Vec<_> = ports.iter().take(MAX_SHOWN_PORTS).map(|(name, _)| for_message(name)).collect();
        let more = if ports.len() > MAX_SHOWN_PORTS { ", …" } else { "" };
        match shown.is_empty() {
            true => format!("write one of: {}", OUTCOMES.join(", ")),
            false => format!("write one of: {}{more}, {}", shown.join(", "), OUTCOMES.join(", ")),
        }
    });
    diagnostics.error("unknown_port", span, message, Some(help));
}
