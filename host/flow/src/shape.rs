//! Resolves the structure of a flow: the body of each node, the ends of each edge, cycles and ancestors.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    ancestry::{self, Ancestry},
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    graph::Join,
    limits,
    read::{RawBody, RawFlow},
    yaml::Span,
};

/// The structure of a flow. A scope is the flow itself (scope 0) or one body. The scope of an outer body precedes the
/// scopes inside it.
pub(crate) struct Shape {
    pub(crate) by_id: BTreeMap<String, usize>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) scope_of: Vec<usize>,
    /// The scope of the body that each node owns; `None` for a node without a body.
    pub(crate) owned: Vec<Option<usize>>,
    /// The valid edges, each with its index in the file and the indices of its source and its target.
    pub(crate) edges: Vec<(usize, usize, usize)>,
    pub(crate) incoming: Vec<Vec<usize>>,
    pub(crate) outgoing: Vec<Vec<usize>>,
    pub(crate) ancestry: Ancestry,
    /// Index of each node in its scope.
    pub(crate) slot: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) owner: Option<usize>,
    pub(crate) nodes: Vec<usize>,
}

impl Shape {
    /// Computes the structure of a flow and reports its errors.
    pub(crate) fn new(flow: &RawFlow<'_>, diagnostics: &mut Diagnostics<'_>) -> Shape {
        let count = flow.nodes.len();
        let by_id = index_by_id(flow.nodes.iter().map(|node| (node.id.as_str(), node.id_span)), diagnostics);
        let parent = parents(flow, &by_id, diagnostics);
        let mut shape = Shape {
            by_id,
            scopes: vec![Scope::default()],
            scope_of: vec![0; count],
            owned: vec![None; count],
            edges: Vec::new(),
            incoming: vec![Vec::new(); count],
            outgoing: vec![Vec::new(); count],
            ancestry: Ancestry::default(),
            slot: vec![0; count],
        };
        shape.place_nodes(flow, &parent, diagnostics);
        shape.resolve_edges(flow, diagnostics);
        for scope in &shape.scopes {
            scope.nodes.iter().enumerate().for_each(|(slot, node)| shape.slot[*node] = slot);
        }
        let predecessors: Vec<Vec<usize>> = (0..count).map(|node| shape.predecessors(node).collect()).collect();
        shape.ancestry = Ancestry::new(&predecessors);
        shape
    }

    /// Assigns the nodes to scopes. Begins with the nodes outside of bodies, then takes the bodies that they own, and
    /// so on.
    fn place_nodes(&mut self, flow: &RawFlow<'_>, parent: &[Option<usize>], diagnostics: &mut Diagnostics<'_>) {
        let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (node, owner) in parent.iter().enumerate() {
            children.entry(*owner).or_default().push(node);
        }
        let mut depth = vec![0];
        self.scopes[0].nodes = children.remove(&None).unwrap_or_default();
        let mut at = 0;
        while at < self.scopes.len() {
            for node in self.scopes[at].nodes.clone() {
                self.scope_of[node] = at;
                if matches!(flow.nodes[node].body, RawBody::None) {
                    continue;
                }
                let nodes = children.remove(&Some(node)).unwrap_or_default();
                if nodes.is_empty() {
                    let help = Some("add at least one node, or remove `body`".into());
                    diagnostics.error("empty_body", flow.nodes[node].body_span, "the body has no nodes", help);
                }
                if depth[at] == limits::BODY_DEPTH {
                    let message = format!("bodies are nested more than {} levels deep", limits::BODY_DEPTH);
                    diagnostics.error("too_deep", flow.nodes[node].body_span, message, None);
                    continue;
                }
                self.owned[node] = Some(self.scopes.len());
                self.scopes.push(Scope { owner: Some(node), nodes });
                depth.push(depth[at] + 1);
            }
            at += 1;
        }
        // The remaining nodes belong to bodies that contain each other.
        for node in children.into_values().flatten() {
            let help = Some("a node cannot be inside its own body".into());
            diagnostics.error("body_ring", flow.nodes[node].id_span, "bodies contain each other", help);
        }
    }

    fn resolve_edges(&mut self, flow: &RawFlow<'_>, diagnostics: &mut Diagnostics<'_>) {
        let (mut seen, mut same) = (HashSet::new(), HashMap::new());
        for (index, edge) in flow.edges.iter().enumerate() {
            let mut end = |(id, span): &(String, Span)| {
                let found = self.by_id.get(id.as_str()).copied();
                if found.is_none() && !id.is_empty() {
                    let help = did_you_mean(id, self.by_id.keys().map(String::as_str));
                    let help = help.or_else(|| Some("use the id of a node".into()));
                    diagnostics.error("dangling_edge", *span, format!("unknown node `{}`", for_message(id)), help);
                }
                found
            };
            let (Some(from), Some(to)) = (end(&edge.from), end(&edge.to)) else { continue };
            if self.scope_of[from] != self.scope_of[to] {
                let message =
                    format!("the edge from `{}` to `{}` crosses the border of a body", edge.from.0, edge.to.0);
                let help = Some("data leave a body through its owner; start the edge at the owner".into());
                diagnostics.error("border_crossed", edge.span, message, help);
                continue;
            }
            // An edge with a label of unknown meaning may be unlike all others.
            if edge.label.is_none() {
                let when = edge.when.as_deref().map(|when| when.json().to_text());
                let same = same.insert((from, to, edge.on as u8, when), edge.is_short);
                let is_double = !seen.insert((from, to, edge.on as u8)) && edge.when.is_none();
                let remove = || Some("remove one of them".to_owned());
                if same.is_some_and(|other_is_short| edge.is_short || other_is_short) {
                    let message = format!("this edge from `{}` to `{}` exists already", edge.from.0, edge.to.0);
                    diagnostics.error("duplicate_edge", edge.span, message, remove());
                } else if is_double {
                    let message = format!("two edges of the same kind lead from `{}` to `{}`", edge.from.0, edge.to.0);
                    diagnostics.warning("double_edge", edge.span, message, remove());
                }
            }
            self.outgoing[from].push(self.edges.len());
            self.incoming[to].push(self.edges.len());
            self.edges.push((index, from, to));
        }
    }

    pub(crate) fn successors(&self, node: usize) -> impl Iterator<Item = usize> {
        self.outgoing[node].iter().map(|edge| self.edges[*edge].2)
    }

    pub(crate) fn predecessors(&self, node: usize) -> impl Iterator<Item = usize> {
        self.incoming[node].iter().map(|edge| self.edges[*edge].1)
    }

    /// Reports cycles of edges. A node runs once, so no cycle repeats anything. A cycle without an `any` join is an
    /// error, because it never starts. A cycle with an `any` join starts, and the edge that closes it has no effect.
    /// Such a cycle is permitted in an agentic flow if an edge from outside leads into it. In every other flow it is
    /// an error. It is only a warning in a flow that was stored before this rule existed.
    pub(crate) fn check_cycles(&self, flow: &RawFlow<'_>, joins: &[Join], diagnostics: &mut Diagnostics<'_>) {
        let waits = |node: &usize| joins[*node] != Join::Any;
        let successors = |node: usize| self.successors(node).filter(waits).collect();
        let waiting: Vec<Vec<usize>> =
            (0..joins.len()).map(|node| if waits(&node) { successors(node) } else { Vec::new() }).collect();
        let mut stuck = vec![false; joins.len()];
        for ring in ancestry::components(&waiting) {
            if ring.len() == 1 && !waiting[ring[0]].contains(&ring[0]) {
                continue;
            }
            ring.iter().for_each(|node| stuck[*node] = true);
            let message = format!(
                "{} on a cycle of edges; a node runs once, so the cycle cannot start",
                cycle_message(flow, &ring)
            );
            diagnostics.error("cycle", flow.nodes[ring[0]].id_span, message, Some(loop_help(flow, &ring)));
        }
        for ring in self.ancestry.components().iter().filter(|ring| self.ancestry.on_cycle(ring[0])) {
            let entered = |node: &usize| self.predecessors(*node).any(|before| ring.binary_search(&before).is_err());
            let span = flow.nodes[ring[0]].id_span;
            if ring.iter().any(|node| stuck[*node]) {
                continue;
            }
            if !ring.iter().any(entered) {
                let message = format!(
                    "{} on a cycle without an edge from outside, so it never starts",
                    cycle_message(flow, ring)
                );
                let help = match flow.is_agentic {
                    true => "add an edge to it from a node outside the cycle".to_owned(),
                    // An edge from outside would not help here: outside of agentic flows, a cycle is an error, too.
                    false => loop_help(flow, ring),
                };
                diagnostics.error("unreachable", span, message, Some(help));
            } else if !flow.is_agentic {
                let message = format!(
                    "{} on a cycle of edges; a node runs once, so nothing is repeated",
                    cycle_message(flow, ring)
                );
                diagnostics.new_rule("cycle", span, message, Some(loop_help(flow, ring)));
            }
        }
    }
}

/// Returns a help text that suggests a loop in place of a cycle.
fn loop_help(flow: &RawFlow<'_>, ring: &[usize]) -> String {
    let mut body: Vec<_> = ring.iter().take(MAX_NAMED_NODES).map(|node| for_message(&flow.nodes[*node].id)).collect();
    if ring.len() > MAX_NAMED_NODES {
        body.push("…".to_owned());
    }
    format!(
        "move the nodes into a loop, connect outer edges to the loop, and remove the edge that goes back: \
         `{{ id: again, type: control.loop, input: {{ while: \"again.iteration < 3\" }}, body: [{}] }}`",
        body.join(", ")
    )
}

/// Maximum number of node names in a message about a cycle.
const MAX_NAMED_NODES: usize = 5;

/// Returns the beginning of a message about a cycle, such as "`a`, `b` lie" or "`a` lies".
fn cycle_message(flow: &RawFlow<'_>, ring: &[usize]) -> String {
    let names: Vec<_> =
        ring.iter().take(MAX_NAMED_NODES).map(|node| format!("`{}`", for_message(&flow.nodes[*node].id))).collect();
    match ring.len() {
        1 => format!("{} lies", names[0]),
        count if count > MAX_NAMED_NODES => format!("{} and {} more lie", names.join(", "), count - MAX_NAMED_NODES),
        _ => format!("{} lie", names.join(", ")),
    }
}

/// Returns a map from each id to the index of its first occurrence in a list. Reports ids that occur again.
pub(crate) fn index_by_id<'i>(
    ids: impl Iterator<Item = (&'i str, Span)>,
    diagnostics: &mut Diagnostics<'_>,
) -> BTreeMap<String, usize> {
    let mut first: BTreeMap<&str, (usize, Span)> = BTreeMap::new();
    for (index, (id, span)) in ids.enumerate().filter(|(_, (id, _))| !id.is_empty()) {
        match first.get(id) {
            Some((_, Span { line, .. })) => {
                let message = format!("the id `{}` is already used in line {line}", for_message(id));
                diagnostics.error("duplicate_id", span, message, Some("change one of the ids".into()));
            }
            None => {
                first.insert(id, (index, span));
            }
        }
    }
    first.into_iter().map(|(id, (index, _))| (id.to_owned(), index)).collect()
}

/// Returns for each node the owner of the body that contains the node; `None` for a node outside of bodies.
fn parents(
    flow: &RawFlow<'_>,
    by_id: &BTreeMap<String, usize>,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<Option<usize>> {
    let mut parent: Vec<_> = flow.nodes.iter().map(|node| node.inline_owner).collect();
    for (owner, node) in flow.nodes.iter().enumerate() {
        let RawBody::Ids(ids) = &node.body else { continue };
        for (id, span) in ids {
            let Some(inner) = by_id.get(id.as_str()).copied() else {
                let help = did_you_mean(id, by_id.keys().map(String::as_str));
                diagnostics.error("unknown_node", *span, format!("unknown node `{}`", for_message(id)), help);
                continue;
            };
            if inner == owner {
                diagnostics.error("body_ring", *span, "a node cannot be inside its own body", None);
            } else if parent[inner].is_some_and(|other| other != node.inline_owner.unwrap_or(usize::MAX)) {
                let message = format!("`{}` is already in another body", for_message(id));
                diagnostics.error("two_bodies", *span, message, Some("list a node in at most one body".into()));
            } else {
                parent[inner] = Some(owner);
            }
        }
    }
    parent
}
