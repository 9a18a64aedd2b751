//! Resolves the labels of edges in text. A label is an outcome, such as `error`, or a port of the node that the edge
//! starts at: `then` and `else` of a condition, a route, or a choice. A port becomes a condition over the node's output.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use flowcell_contract::{Json, NodeType};
use indexmap::IndexMap;

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    edges::{OUTCOMES, RawEdge, parse_on},
    fields::for_message,
    literal,
    read::RawNode,
    yaml::{Kind, Span, Tree},
};

/// Maximum number of ports in a help text.
const MAX_SHOWN_PORTS: usize = 8;

/// The ports of a node.
struct Ports {
    /// The member of the output that tells which port the node took.
    member: &'static str,
    /// The names of the ports, with the values of the member.
    known: IndexMap<String, Json>,
    /// True if the node may take other ports, because an expression computes their names.
    is_open: bool,
}

/// The ports of the nodes of a flow, as far as they were asked for.
pub(crate) struct PortMap<'a> {
    /// The nodes by their ids, with their types.
    nodes: HashMap<&'a str, (&'a RawNode<'a>, Option<&'a NodeType>)>,
    /// The ports by the ids of their nodes.
    known: HashMap<&'a str, Option<Ports>>,
}

impl<'a> PortMap<'a> {
    /// Creates the map of all nodes. The first of several nodes with the same id counts.
    pub(crate) fn new(nodes: &'a [RawNode<'a>], types: &'a [Option<Arc<NodeType>>]) -> PortMap<'a> {
        let mut by_id = HashMap::new();
        for (node, kind) in nodes.iter().zip(types) {
            by_id.entry(node.id.as_str()).or_insert((node, kind.as_deref()));
        }
        PortMap { nodes: by_id, known: HashMap::new() }
    }

    /// Replaces the labels of edges with outcomes and conditions. Reports labels that are no port of their node, and leaves
    /// them.
    pub(crate) fn resolve(&mut self, edges: &mut [RawEdge<'_>], diagnostics: &mut Diagnostics<'_>) {
        for edge in edges {
            let Some((label, span)) = edge.label.take() else { continue };
            // An unknown node and an unknown type have diagnostics of their own.
            let Some((node, kind, ports)) = self.ports(&edge.from.0) else {
                edge.label = Some((label, span));
                continue;
            };
            let port = ports.and_then(|ports| ports.known.get(&label));
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
                    edge.label = Some((label, span));
                }
            }
        }
    }

    /// Returns the label that stands for a condition of an edge from a node; `None` if no label does.
    pub(crate) fn label(&mut self, from: &str, when: &Json) -> Option<String> {
        let (node, _, ports) = self.ports(from)?;
        let ports = ports?;
        let value = when.get("equals")?.get("value")?;
        let label = match value.as_str() {
            Some(text) => {
                ports.known.get_key_value(text).map(|(name, _)| name.as_str()).or(ports.is_open.then_some(text))?
            }
            None => ports.known.iter().find(|(_, known)| *known == value)?.0,
        };
        let is_label = parse_on(label).is_none()
            && !label.is_empty()
            && label.trim() == label
            && !label.contains("{{")
            && !label.contains(char::is_control);
        // Members in another order would give another graph.
        let same = condition(&node.id, ports, value.clone(), node.id_span).json().to_text() == when.to_text();
        (is_label && same).then(|| label.to_owned())
    }

    /// Returns a node with its type and ports; `None` if the node or its type is unknown.
    fn ports(&mut self, id: &str) -> Option<(&'a RawNode<'a>, &'a NodeType, Option<&Ports>)> {
        let (node, kind) = *self.nodes.get(id)?;
        let kind = kind?;
        let ports = self.known.entry(&node.id).or_insert_with(|| ports(node, kind));
        Some((node, kind, ports.as_ref()))
    }
}

/// Returns the ports of a node; `None` if its type has none. The output's schema tells: it has a Boolean `condition`, a
/// text `route`, or a text `response.choice`.
fn ports(node: &RawNode<'_>, kind: &NodeType) -> Option<Ports> {
    let has = |pointer: &str, name: &str| {
        kind.output.pointer(pointer).and_then(|schema| schema.get("type")).is_some_and(|found| found == name)
    };
    if has("/properties/condition", "boolean") {
        let known = [("then", true), ("else", false)].map(|(name, value)| (name.to_owned(), Json::Bool(value))).into();
        return Some(Ports { member: "condition", known, is_open: false });
    }
    let listed = |key: &str, text: fn(&Tree) -> Option<&Tree>| match node.input {
        // An expression computes the whole input.
        Some(input) if !matches!(input.kind, Kind::Map(_)) => (IndexMap::new(), true),
        input => input.and_then(|input| input.member(key)).map_or((IndexMap::new(), false), |list| texts(list, text)),
    };
    if has("/properties/route", "string") {
        let (mut known, is_open) = listed("cases", |case| case.member("route"));
        known.insert(DEFAULT_ROUTE.to_owned(), DEFAULT_ROUTE.into());
        return Some(Ports { member: "route", known, is_open });
    }
    if has("/properties/response/properties/choice", "string") {
        let (known, is_open) = listed("choices", |choice| Some(choice));
        return Some(Ports { member: "response.choice", known, is_open });
    }
    None
}

/// Words of other tools for ports and outcomes.
const FOREIGN_PORTS: [(&str, &str); 10] = [
    ("true", "then"),
    ("yes", "then"),
    ("false", "else"),
    ("no", "else"),
    ("otherwise", "default"),
    ("ok", "success"),
    ("failure", "error"),
    ("failed", "error"),
    ("always", "end"),
    ("finally", "end"),
];
/// The route that `control.switch` takes if no case holds.
const DEFAULT_ROUTE: &str = "default";

/// Returns the literal texts in a list, and whether there may be others. An expression computes a value that is no list.
fn texts(list: &Tree, text: fn(&Tree) -> Option<&Tree>) -> (IndexMap<String, Json>, bool) {
    let Kind::List(items) = &list.kind else { return (IndexMap::new(), true) };
    let literal = |item| text(item)?.text().filter(|text| !text.contains("{{"));
    let found: Vec<_> = items.iter().filter_map(literal).collect();
    let is_open = found.len() < items.len();
    (found.into_iter().map(|text| (text.to_owned(), text.into())).collect(), is_open)
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
    let known = ports.iter().flat_map(|ports| ports.known.keys());
    let names = || known.clone().map(String::as_str).chain(OUTCOMES);
    let message = format!("`{}` (`{}`) has no port `{}`", node.id, kind.name, for_message(label));
    // A diagnostic that is only counted needs no help.
    let meant = FOREIGN_PORTS.iter().find(|(foreign, port)| *foreign == label && names().any(|name| name == *port));
    let meant = meant.map(|(_, port)| format!("did you mean `{port}`?"));
    let help = if diagnostics.is_full() { None } else { meant.or_else(|| did_you_mean(label, names())) };
    let help = help.unwrap_or_else(|| {
        let shown: Vec<_> = known.clone().take(MAX_SHOWN_PORTS).map(|name| for_message(name)).collect();
        let more = if known.clone().nth(MAX_SHOWN_PORTS).is_some() { ", …" } else { "" };
        match shown.is_empty() {
            true => format!("write one of: {}", OUTCOMES.join(", ")),
            false => format!("write one of: {}{more}, {}", shown.join(", "), OUTCOMES.join(", ")),
        }
    });
    diagnostics.error("unknown_port", span, message, Some(help));
}
