//! Completions of links between nodes: ends of edges, `after`, bodies and `undo`; and of the labels of edges in text.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use flowcell_contract::NodeType;
use serde_json::Value as Json;

use super::{
    CompletionKind, Context, MARK, MAX_COMPLETIONS, Offer,
    new_edges::{Answers, NewCycles, NewEdge},
    quoted,
};
use crate::{
    flow::{EdgeText, Flow},
    locate::{Located, Role, Target},
    reading::{Kind, Style, Value},
    scalar::Scalar,
    spots::{self, Visible},
};

/// The labels that any node may have.
pub(super) const OUTCOMES: [&str; 3] = ["error", "end", "success"];
/// Maximum number of nodes of a condition whose later nodes are looked up.
const MAX_NAMED: usize = 16;
/// Maximum number of nodes at the other end of an edge that closes a cycle. Only the nearest are checked and offered.
const MAX_LOOPS: usize = 64;

/// Returns the ids that fit the place.
pub(super) fn ids(context: &Context<'_>, located: &Located<'_>, role: Role) -> Vec<Offer> {
    let (flow, Target::Value(typed)) = (context.flow, located.target) else { return Vec::new() };
    let style = typed.style().unwrap_or(Style::Plain);
    let found = match role {
        Role::After => located.node.map(|node| sources(flow, node, NewEdge::default(), &[])).unwrap_or_default(),
        Role::Undo => located.node.map(|node| undos(flow, node)).unwrap_or_default(),
        Role::Body => located.node.map(|node| inner_nodes(flow, node)).unwrap_or_default(),
        _ => {
            let Some(edge) = located.around.last() else { return Vec::new() };
            let end = |name: &str| flow.text(edge.member(name)).and_then(|(id, _)| flow.find(&id));
            let on = flow.text(edge.member("on")).map(|(on, _)| on);
            let has_when = edge.member("when").is_some();
            let new = NewEdge {
                is_special: has_when || on.is_some(),
                is_conditional: has_when || on.as_deref() == Some("error"),
                after_failure: on.as_deref() == Some("error"),
                goes_back: edge.member("maxPasses").is_some(),
            };
            match (role, end("from"), end("to")) {
                (Role::EdgeFrom, _, Some(to)) => sources(flow, to, new, &named_in(flow, edge)),
                (Role::EdgeTo, Some(from), _) => targets(flow, from, new, &context.marked.typed()),
                _ => any_nodes(flow, located),
            }
        }
    };
    offers(flow, found, style)
}

fn offers(flow: &Flow<'_>, nodes: Vec<usize>, style: Style) -> Vec<Offer> {
    let offer = |node: usize| {
        let node = &flow.nodes[node];
        let detail = node.kind.as_ref().map(|kind| kind.name.to_string()).unwrap_or_default();
        Offer::new(&node.id, CompletionKind::Name, detail).with_insert(quoted(&node.id, style))
    };
    nodes
        .into_iter()
        .filter(|node| !flow.nodes[*node].id.is_empty() && !flow.nodes[*node].id.contains(MARK))
        .map(offer)
        .collect()
}

/// Returns the ids and labels that fit an edge in text, and the bytes of the word in the text.
pub(super) fn edge_text(context: &Context<'_>, located: &Located<'_>, scalar: &Scalar) -> (Vec<Offer>, Range<usize>) {
    let flow = context.flow;
    let parts = EdgeText::read(&scalar.text);
    let has_mark = |range: &Range<usize>| scalar.text[range.clone()].contains(MARK);
    let node = |range: Option<&Range<usize>>| range.and_then(|range| flow.find(&scalar.text[range.clone()]));
    if let Some(label) = parts.label.clone().filter(has_mark) {
        let from = node(parts.ids.first());
        let ports = from.map(|from| own_ports(flow, from)).unwrap_or_default();
        let ports = ports.names.into_iter().map(|port| Offer::new(port, CompletionKind::Value, "a port"));
        let outcomes = OUTCOMES.map(|outcome| Offer::new(outcome, CompletionKind::Value, "an outcome"));
        return (ports.chain(outcomes).collect(), label);
    }
    let Some(index) = parts.ids.iter().position(has_mark) else { return (Vec::new(), 0..scalar.text.len()) };
    let before = index.checked_sub(1).and_then(|index| node(parts.ids.get(index)));
    let after = node(parts.ids.get(index + 1));
    let label = parts.label.as_ref().map(|label| &scalar.text[label.clone()]);
    let new = NewEdge {
        is_special: label.is_some(),
        is_conditional: label.is_some_and(|label| !matches!(label, "success" | "end")),
        after_failure: label == Some("error"),
        goes_back: false,
    };
    let fitting = match (before, after) {
        (Some(from), Some(to)) => {
            let before: HashSet<_> = sources(flow, to, new, &[]).into_iter().collect();
            let found = targets(flow, from, new, &context.marked.typed());
            found.into_iter().filter(|node| before.contains(node)).collect()
        }
        (Some(from), None) => targets(flow, from, new, &context.marked.typed()),
        (None, Some(to)) => {
            let mut found = sources(flow, to, new, &[]);
            if let Some(label) = label {
                let has = |node: &usize| own_ports(flow, *node).names.iter().any(|port| port == label);
                if !OUTCOMES.contains(&label) && found.iter().any(has) {
                    found.retain(has);
                }
            }
            found
        }
        (None, None) => any_nodes(flow, located),
    };
    (offers(flow, fitting, Style::Plain), parts.ids[index].clone())
}

fn any_nodes(flow: &Flow<'_>, located: &Located<'_>) -> Vec<usize> {
    let scope = located.node;
    let mut found: Vec<_> = flow.scope(scope).filter(|node| flow.nodes[*node].undoes.is_none()).collect();
    found.sort_by_key(|node| flow.outgoing(*node).count() + flow.incoming(*node).count());
    found
}

/// Returns the nodes from which an edge may lead to a node. The condition of the edge reads the nodes `named`.
fn sources(flow: &Flow<'_>, to: usize, new: NewEdge, named: &[usize]) -> Vec<usize> {
    let missing = missing_ancestors(flow, to);
    let mut found = linkable(flow, to);
    let known: HashSet<_> = flow.incoming(to).filter(|_| !new.is_special).map(|edge| edge.from).collect();
    found.retain(|from| !known.contains(from));
    let reached = flow.reached(to, false);
    let is_loop = |from: usize| reached[from];
    let cycles = NewCycles::new(flow);
    let late = cycles.too_late_for(to);
    found.retain(|from| !late[*from]);
    let answers = Answers::new(flow);
    found.retain(|from| !answers.are_two((*from, to), new));
    retain_loops(&mut found, to, is_loop, |from| cycles.fits((from, to), new));
    if new.goes_back && found.iter().any(|from| is_loop(*from)) {
        found.retain(|from| is_loop(*from));
    }
    // An edge from elsewhere would leave the expressions of the node without the values that they read.
    let gives = flow.reached_from(&missing);
    let is_needed = |from: &usize| gives[*from];
    if found.iter().any(is_needed) {
        found.retain(|from| is_needed(from) || named.contains(from));
    }
    // The condition of the edge reads nodes that run before it.
    let distinct: BTreeSet<_> = named.iter().take(MAX_NAMED).collect();
    let walks: Vec<_> = distinct.into_iter().map(|named| flow.after(*named)).collect();
    let sees = |from: &usize| walks.iter().all(|after| after[*from]);
    if found.iter().any(sees) {
        found.retain(sees);
    }
    found.sort_by_cached_key(|from| {
        let is_end = flow.outgoing(*from).next().is_none();
        (!named.contains(from), !missing.contains(from), is_loop(*from), !is_end, distance(*from, to))
    });
    found
}

/// Returns the nodes to which an edge may lead from a node, and whose ids contain what is typed. Of very many nodes,
/// only the nearest are ordered by what they read.
fn targets(flow: &Flow<'_>, from: usize, new: NewEdge, typed: &str) -> Vec<usize> {
    let mut found = linkable(flow, from);
    let known: HashSet<_> = flow.outgoing(from).filter(|_| !new.is_special).map(|edge| edge.to).collect();
    found.retain(|to| !known.contains(to));
    let reaching = flow.reached(from, true);
    let is_loop = |to: usize| reaching[to];
    found.retain(|to| flow.nodes[*to].id.to_lowercase().contains(typed));
    let cycles = NewCycles::new(flow);
    let early = cycles.read_before(from);
    found.retain(|to| !early.contains(to));
    let answers = Answers::new(flow);
    found.retain(|to| !answers.are_two((from, *to), new));
    retain_loops(&mut found, from, is_loop, |to| cycles.fits((from, to), new));
    if new.goes_back && found.iter().any(|to| is_loop(*to)) {
        found.retain(|to| is_loop(*to));
    }
    let is_start = |to: usize| flow.incoming(to).next().is_none();
    found.sort_by_key(|to| (!is_start(*to), distance(from, *to)));
    let near = MAX_COMPLETIONS.min(found.len());
    found[..near].sort_by_cached_key(|to| {
        let missing = missing_ancestors(flow, *to);
        let needs = missing.contains(&from) || missing.iter().any(|node| reaching[*node]);
        (!needs, is_loop(*to), !is_start(*to), distance(from, *to))
    });
    found
}

/// Leaves out the nodes at the other end of an edge that closes a cycle, unless `fits`. Of very many, only the nearest to
/// the node `at` are left.
fn retain_loops(nodes: &mut Vec<usize>, at: usize, is_loop: impl Fn(usize) -> bool, fits: impl Fn(usize) -> bool) {
    let mut loops: Vec<_> = nodes.iter().copied().filter(|node| is_loop(*node)).collect();
    loops.sort_by_key(|node| distance(at, *node));
    let fitting: HashSet<_> = loops.into_iter().take(MAX_LOOPS).filter(|node| fits(*node)).collect();
    nodes.retain(|node| !is_loop(*node) || fitting.contains(node));
}

/// Orders nodes that stand behind each other in the file before others.
fn distance(from: usize, to: usize) -> (bool, usize) {
    (to < from, from.abs_diff(to))
}

/// Returns the nodes of the same scope that may have edges.
fn linkable(flow: &Flow<'_>, node: usize) -> Vec<usize> {
    if flow.nodes[node].undoes.is_some() {
        return Vec::new();
    }
    let is_other = |other: &usize| *other != node && flow.nodes[*other].undoes.is_none();
    flow.scope(flow.nodes[node].owner).filter(is_other).collect()
}

/// Returns the nodes that the expressions of a node name although no edges lead from them.
fn missing_ancestors(flow: &Flow<'_>, node: usize) -> Vec<usize> {
    let ancestors: HashSet<_> = flow.ancestors(node).into_iter().collect();
    let mut found = Vec::new();
    spots::each(flow, Some(&flow.nodes[node].value.range), &mut |spot| {
        if spot.place.visible != Visible::Before(node) {
            return;
        }
        for path in spot.expression().paths() {
            let named = spots::named_node(flow, spot.place, &path).and_then(|(id, _)| flow.find(&id));
            found.extend(named.filter(|named| !ancestors.contains(named) && *named != node));
        }
    });
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the nodes that the condition of an edge names.
fn named_in(flow: &Flow<'_>, edge: &Value) -> Vec<usize> {
    let Some(when) = edge.member("when") else { return Vec::new() };
    let text = &flow.file[when.range.clone()];
    let expression = crate::expression::Expression::new(text, 0..text.len());
    let paths = expression.tokens.iter().enumerate().filter_map(|(index, _)| flow.find(expression.word(index)));
    let quoted = text.split(['"', '\'', ' ']).flat_map(|part| {
        let inner = crate::expression::Expression::new(part, 0..part.len());
        inner.paths().into_iter().filter_map(|path| flow.find(&path.root)).collect::<Vec<_>>()
    });
    paths.chain(quoted).collect()
}

/// Returns the nodes that may stand in the body of a node.
fn inner_nodes(flow: &Flow<'_>, owner: usize) -> Vec<usize> {
    let around = flow.owners_from(Some(owner));
    let scope = flow.nodes[owner].owner;
    let items = flow.nodes[owner].value.member("body").map(Value::items).unwrap_or_default();
    let listed: HashSet<_> =
        items.iter().filter_map(|item| flow.text(Some(item)).and_then(|(id, _)| flow.find(&id))).collect();
    // A node that undoes one of the body stands beside it, and may be in the list, too.
    let undoing = flow.scope(Some(owner)).filter(|node| flow.nodes[*node].undoes.is_some());
    let possible = flow.scope(scope).filter(|node| !around.contains(node)).chain(undoing);
    let mut found: Vec<_> = possible.filter(|node| !listed.contains(node)).collect();
    let inside: HashSet<_> = flow.scope(Some(owner)).collect();
    let names = [Some(flow.nodes[owner].id.as_str()), flow.nodes[owner].alias.as_deref()];
    let uses_item = |node: usize| {
        let text = &flow.file[flow.nodes[node].value.range.clone()];
        let expression = crate::expression::Expression::new(text, 0..text.len());
        let words = 0..expression.tokens.len();
        words
            .into_iter()
            .any(|index| names.contains(&Some(expression.word(index))) || text_names(expression.word(index), &names))
    };
    let is_linked = |node: usize| {
        flow.incoming(node).any(|edge| inside.contains(&edge.from))
            || flow.outgoing(node).any(|edge| inside.contains(&edge.to))
    };
    let is_free = |node: usize| flow.incoming(node).next().is_none() && flow.outgoing(node).next().is_none();
    // A node whose output is read outside of the body cannot stand in it.
    let reads =
        spots::reads(flow).into_iter().filter(|read| read.by.is_none_or(|by| by != owner && !inside.contains(&by)));
    let read_outside: HashSet<_> = reads.map(|read| read.node).collect();
    if found.iter().any(|node| !read_outside.contains(node)) {
        found.retain(|node| !read_outside.contains(node));
    }
    // A node with edges to nodes outside of the body cannot stand in it.
    let crosses = |node: usize| {
        let ends = flow.incoming(node).map(|edge| edge.from).chain(flow.outgoing(node).map(|edge| edge.to));
        ends.filter(|end| !inside.contains(end)).count() > 0
    };
    if found.iter().any(|node| !crosses(*node)) {
        found.retain(|node| !crosses(*node));
    }
    found.sort_by_cached_key(|node| {
        (!is_linked(*node), Reverse(uses_item(*node)), !is_free(*node), distance(owner, *node))
    });
    found
}

/// Returns true if a quoted text contains one of the names as a word.
fn text_names(text: &str, names: &[Option<&str>]) -> bool {
    let is_part = |sign: char| !sign.is_ascii_alphanumeric() && !matches!(sign, '_' | '-');
    text.split(is_part).any(|word| names.contains(&Some(word)))
}

/// Returns the nodes that may undo a node: those without edges.
fn undos(flow: &Flow<'_>, node: usize) -> Vec<usize> {
    let is_free = |other: &usize| {
        let has_edges = flow.incoming(*other).next().is_some() || flow.outgoing(*other).next().is_some();
        let value = flow.nodes[*other].value;
        let has_other = ["body", "when", "join", "undo"].iter().any(|key| value.member(key).is_some());
        *other != node && !has_edges && !has_other && flow.nodes[*other].undoes.is_none()
    };
    let mut found: Vec<_> = flow.scope(flow.nodes[node].owner).filter(is_free).collect();
    let uses_undo = |node: usize| flow.file[flow.nodes[node].value.range.clone()].contains("undo.");
    found.sort_by_key(|other| (!uses_undo(*other), distance(node, *other)));
    found
}

/// Returns the ports of a node, as the check knows them.
pub(super) fn own_ports(flow: &Flow<'_>, node: usize) -> Ports {
    let node = &flow.nodes[node];
    node.kind.as_ref().map(|kind| ports(flow, node.value, kind)).unwrap_or_default()
}

/// The ports of a node.
#[derive(Default)]
pub(super) struct Ports {
    /// The member of the output that tells which port the node took, with dots between its steps.
    pub(super) member: &'static str,
    pub(super) names: Vec<String>,
    /// The values of the member, in the order of the names.
    pub(super) values: Vec<Json>,
    /// True if there may be others, because an expression computes them.
    pub(super) is_open: bool,
}

impl Ports {
    fn of_names(member: &'static str, names: Vec<String>, is_open: bool) -> Ports {
        let values = names.iter().map(|name| name.as_str().into()).collect();
        Ports { member, names, values, is_open }
    }
}

/// Returns the ports that a node has if it is of this type.
pub(super) fn ports(flow: &Flow<'_>, node: &Value, kind: &NodeType) -> Ports {
    let is = |pointer: &str, name: &str| kind.output.pointer(pointer).is_some_and(|found| found == name);
    let listed = |field: &str, member: Option<&str>| {
        let input = node.member("input");
        let list = input.and_then(|input| input.member(field));
        let items = list.map(Value::items).unwrap_or_default();
        let text = |item: &Value| {
            let item = match member {
                Some(member) => item.member(member)?,
                None => item,
            };
            flow.text(Some(item)).map(|(text, _)| text).filter(|text| !text.contains("{{"))
        };
        let names: Vec<_> = items.iter().filter_map(text).collect();
        let is_computed = input.is_some_and(|input| matches!(input.kind, Kind::Scalar(_)))
            || list.is_some_and(|list| matches!(list.kind, Kind::Scalar(_)));
        let is_open = is_computed || names.len() < items.len();
        (names, is_open)
    };
    if is("/properties/condition/type", "boolean") {
        let (names, values) = (vec!["then".into(), "else".into()], vec![true.into(), false.into()]);
        return Ports { member: "condition", names, values, is_open: false };
    }
    if is("/properties/route/type", "string") {
        let (mut routes, is_open) = listed("cases", Some("route"));
        routes.push("default".into());
        return Ports::of_names("route", routes, is_open);
    }
    if is("/properties/response/properties/choice/type", "string") {
        let (choices, is_open) = listed("choices", None);
        return Ports::of_names("response.choice", choices, is_open);
    }
    Ports::default()
}
