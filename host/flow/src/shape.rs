//! Resolves the structure of a flow: the body of each node, the ends of each edge, cycles and ancestors.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    ancestry::Ancestry,
    cycles::{Cycles, Links, cycle_message},
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    graph::NO_SLOT,
    limits,
    read::{RawBody, RawFlow},
    undo::Undos,
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
    /// The ancestors of each node. Edges that go back do not count.
    pub(crate) ancestry: Ancestry,
    /// The cycles that loop.
    pub(crate) cycles: Cycles,
    /// Index of each node in its scope, among the nodes that undo no other. The others have no slot.
    pub(crate) slot: Vec<usize>,
    pub(crate) undos: Undos,
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
            cycles: Cycles::default(),
            slot: vec![NO_SLOT as usize; count],
            undos: Undos::default(),
        };
        shape.place_nodes(flow, &parent, diagnostics);
        shape.resolve_edges(flow, diagnostics);
        shape.undos = Undos::resolve(flow, &shape.by_id, diagnostics);
        let edge_of = |node: usize| {
            let edge = shape.incoming[node].iter().chain(&shape.outgoing[node]).next()?;
            Some(flow.edges[shape.edges[*edge].0].span)
        };
        shape.undos.check(flow, &shape.scope_of, edge_of, diagnostics);
        for scope in &shape.scopes {
            let nodes = scope.nodes.iter().filter(|node| shape.undos.of[**node].is_none());
            nodes.enumerate().for_each(|(slot, node)| shape.slot[*node] = slot);
        }
        shape.find_cycles(flow, diagnostics);
        shape.check_max_passes(flow, diagnostics);
        shape.undos.check_cycles(flow, |node| shape.cycles.innermost(node).is_some(), diagnostics);
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

    pub(crate) fn predecessors(&self, node: usize) -> impl Iterator<Item = usize> {
        self.incoming[node].iter().map(|edge| self.edges[*edge].1)
    }

    /// Returns the nodes at the end of a scope: those without edges to later nodes, and that undo no other.
    pub(crate) fn sinks(&self, scope: usize) -> impl Iterator<Item = usize> {
        let is_end = |node: &usize| self.outgoing[*node].iter().all(|edge| self.goes_back(*edge));
        self.scopes[scope].nodes.iter().copied().filter(|node| self.undos.of[*node].is_none()).filter(is_end)
    }

    /// Finds the cycles that loop, and then leaves their edges that go back out of account for the ancestors. A node of an
    /// agentic flow without loops runs once: its cycles do not loop, and the edges that close them have no effect. Reports
    /// cycles of such a flow that never start.
    fn find_cycles(&mut self, flow: &RawFlow<'_>, diagnostics: &mut Diagnostics<'_>) {
        let predecessors = |shape: &Shape, goes_back: &dyn Fn(usize, usize) -> bool| {
            let before = |node: usize| shape.predecessors(node).filter(|from| !goes_back(*from, node)).collect();
            (0..flow.nodes.len()).map(before).collect::<Vec<Vec<usize>>>()
        };
        let ancestry = Ancestry::new(&predecessors(self, &|_, _| false));
        if !flow.is_agentic || flow.edges.iter().any(|edge| edge.max_passes.is_some()) {
            let cycles = Cycles::find(flow, self.links(), &ancestry, diagnostics);
            if !cycles.list.is_empty() {
                self.ancestry = Ancestry::new(&predecessors(self, &|from, to| cycles.goes_back(from, to)));
                self.cycles = cycles;
                return;
            }
        }
        for ring in ancestry.components().iter().filter(|ring| flow.is_agentic && ancestry.on_cycle(ring[0])) {
            let entered = |node: &usize| self.predecessors(*node).any(|before| ring.binary_search(&before).is_err());
            if !ring.iter().any(entered) {
                let message = format!(
                    "{} on a cycle without an edge from outside, so it never starts",
                    cycle_message(flow, ring)
                );
                let help = Some("add an edge to it from a node outside the cycle".into());
                diagnostics.error("unreachable", flow.nodes[ring[0]].id_span, message, help);
            }
        }
        self.ancestry = ancestry;
    }

    /// Returns the valid edges.
    pub(crate) fn links(&self) -> Links<'_> {
        Links { edges: &self.edges, incoming: &self.incoming, outgoing: &self.outgoing }
    }

    /// Returns true if a node lies on a cycle.
    pub(crate) fn on_cycle(&self, node: usize) -> bool {
        self.cycles.innermost(node).is_some() || self.ancestry.on_cycle(node)
    }

    /// Returns true if an edge begins another pass of a cycle.
    pub(crate) fn goes_back(&self, edge: usize) -> bool {
        let (_, from, to) = self.edges[edge];
        self.cycles.goes_back(from, to)
    }

    /// Reports `maxPasses` on edges that begin no pass.
    fn check_max_passes(&self, flow: &RawFlow<'_>, diagnostics: &mut Diagnostics<'_>) {
        for (edge, (raw, from, to)) in self.edges.iter().enumerate() {
            let Some((_, span)) = flow.edges[*raw].max_passes.filter(|_| !self.goes_back(edge)) else { continue };
            let id = |node: &usize| for_message(&flow.nodes[*node].id);
            let message =
                format!("the edge from `{}` to `{}` does not lead back to the entry of a cycle", id(from), id(to));
            let help = "write `maxPasses` on an edge that does, or as `flow.maxPasses` for all cycles";
            diagnostics.error("not_going_back", span, message, Some(help.into()));
        }
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
