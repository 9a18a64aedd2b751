//! Finds the cycles of edges that loop: their entries, the edges that go back, and the edges that leave.
//!
//! A cycle loops if it can be entered at one node only. Without the edges that lead back to this node, the rest of the
//! cycle may contain inner cycles. Without the edges of all cycles that go back, a graph has no cycle.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    ancestry::{Ancestry, rings_among},
    diagnostic::Diagnostics,
    edges::DEFAULT_MAX_PASSES,
    fields::for_message,
    graph::{Cycle, CycleIx, EdgeIx, NodeIx, On, Views},
    limits,
    read::RawFlow,
};

/// The valid edges of a flow.
#[derive(Clone, Copy)]
pub(crate) struct Links<'a> {
    /// Each edge with its index in the file and the indices of its source and its target.
    pub(crate) edges: &'a [(usize, usize, usize)],
    /// The edges to each node.
    pub(crate) incoming: &'a [Vec<usize>],
    /// The edges from each node.
    pub(crate) outgoing: &'a [Vec<usize>],
}

/// The number of edges whose memory a view takes.
const VIEW_COST: usize = 16;

/// A cycle of edges with one entry.
pub(crate) struct FoundCycle {
    /// The cycle that contains this one.
    pub(crate) parent: Option<usize>,
    /// The node at which each pass begins.
    pub(crate) entry: usize,
    /// All nodes, those of inner cycles among them, in the order of the file.
    pub(crate) nodes: Vec<usize>,
    /// The edges from nodes of the cycle to its entry, in the order of the file.
    pub(crate) back: Vec<usize>,
    /// The edges from nodes of the cycle to nodes outside of it.
    leaving: Vec<usize>,
    /// Maximum number of passes.
    pub(crate) max_passes: u32,
}

/// The cycles of a flow that loop. An outer cycle precedes those inside it.
#[derive(Default)]
pub(crate) struct Cycles {
    pub(crate) list: Vec<FoundCycle>,
    /// The innermost cycle of each node that is on one.
    of: BTreeMap<usize, usize>,
    /// Number of edges that [`Cycles::ways`] has looked at.
    looked_at: Cell<usize>,
    /// The views of nodes of inner cycles, see [`Views`].
    views: RefCell<BTreeMap<(usize, usize), Vec<EdgeIx>>>,
}

/// Nodes that all reach each other, and the cycle around them.
struct Ring {
    nodes: Vec<usize>,
    parent: Option<usize>,
    depth: usize,
}

impl Cycles {
    /// Finds the cycles. Reports those that do not loop. `ancestry` is that of all edges.
    pub(crate) fn find(
        flow: &RawFlow<'_>,
        links: Links<'_>,
        ancestry: &Ancestry,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Cycles {
        let mut cycles = Cycles::default();
        let rings = ancestry.components().iter().filter(|ring| ancestry.on_cycle(ring[0]));
        let mut open: Vec<Ring> =
            rings.rev().map(|nodes| Ring { nodes: nodes.clone(), parent: None, depth: 1 }).collect();
        while let Some(ring) = open.pop() {
            if ring.depth > limits::CYCLE_DEPTH {
                let message = format!("cycles of edges are nested more than {} levels deep", limits::CYCLE_DEPTH);
                let help = Some("put the inner nodes into the body of a `control.loop`".into());
                diagnostics.error("too_deep", flow.nodes[ring.nodes[0]].id_span, message, help);
                continue;
            }
            if let Some(cycle) = cycles.add(flow, links, &ring, diagnostics) {
                cycles.check_end(flow, links, cycle, diagnostics);
                cycles.check_exits(flow, links, cycle, diagnostics);
                cycles.open_inner(links, cycle, ring.depth, &mut open);
            }
        }
        cycles
    }

    /// Adds the cycle of a ring, and returns its index. Reports a ring with two entries, and returns `None`.
    fn add(
        &mut self,
        flow: &RawFlow<'_>,
        links: Links<'_>,
        ring: &Ring,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Option<usize> {
        let is_in = |node: usize| ring.nodes.binary_search(&node).is_ok();
        let enters = |edge: &&usize| !is_in(links.edges[**edge].1);
        let entrances = ring.nodes.iter().filter_map(|node| Some((*node, *links.incoming[*node].iter().find(enters)?)));
        let entrances: Vec<(usize, usize)> = entrances.collect();
        if entrances.len() > 1 {
            // In the agentic dialect such a cycle does not loop.
            if !flow.is_agentic {
                report_entries(flow, links, &ring.nodes, &entrances, diagnostics);
            }
            return None;
        }
        // Nodes without incoming edges run at the start, and so does the first node of such a cycle.
        let entry = entrances.first().map_or(ring.nodes[0], |(node, _)| *node);
        let back: Vec<usize> =
            links.incoming[entry].iter().copied().filter(|edge| is_in(links.edges[*edge].1)).collect();
        let leaving = ring.nodes.iter().flat_map(|node| &links.outgoing[*node]);
        let leaving = leaving.copied().filter(|edge| !is_in(links.edges[*edge].2)).collect();
        let set = back.iter().filter_map(|edge| Some(flow.edges[links.edges[*edge].0].max_passes?.0));
        let max_passes = set.min().or(flow.max_passes).unwrap_or(DEFAULT_MAX_PASSES);
        let index = self.list.len();
        ring.nodes.iter().for_each(|node| _ = self.of.insert(*node, index));
        self.list.push(FoundCycle { parent: ring.parent, entry, nodes: ring.nodes.clone(), back, leaving, max_passes });
        Some(index)
    }

    /// Warns of a cycle that only a failure or the maximum number of passes ends: edges without conditions lead from its
    /// entry back to it.
    fn check_end(&self, flow: &RawFlow<'_>, links: Links<'_>, index: usize, diagnostics: &mut Diagnostics<'_>) {
        let FoundCycle { entry, back, max_passes, .. } = &self.list[index];
        let (mut seen, mut open) = (BTreeSet::from([*entry]), vec![*entry]);
        while let Some(node) = open.pop() {
            for edge in &links.outgoing[node] {
                let (raw, _, to) = links.edges[*edge];
                let line = &flow.edges[raw];
                let has_condition = line.when.is_some() || line.label.is_some() || line.on == On::Error;
                if has_condition || flow.nodes[node].when.is_some() || !self.contains(index, to) {
                    continue;
                }
                if back.contains(edge) {
                    let id = |node: usize| for_message(&flow.nodes[node].id);
                    let (cycle, passes) = if flow.is_agentic { ("loop", "iterations") } else { ("cycle", "passes") };
                    let message = format!(
                        "the {cycle} that begins at `{}` has no end: nothing but a failure stops it before {max_passes} \
                         {passes}, and then it fails with `loop_limit`",
                        id(*entry)
                    );
                    let help = match flow.is_agentic {
                        true => {
                            format!("give a rule an `if`, such as `if: ${{args.done}} != true` for `then: {}`", id(to))
                        }
                        false => format!(
                            "give an edge of the cycle a condition, such as `{{ from: {0}, to: {1}, when: \"not {0}.…\" }}`",
                            id(node),
                            id(to)
                        ),
                    };
                    return diagnostics.warning("endless_cycle", line.span, message, Some(help));
                }
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
    }

    /// Warns of edges without a condition that leave a cycle in its first pass although the cycle may go on. An edge from a
    /// node whose failure alone leads on does not leave then.
    fn check_exits(&self, flow: &RawFlow<'_>, links: Links<'_>, index: usize, diagnostics: &mut Diagnostics<'_>) {
        for edge in &self.list[index].leaving {
            let (raw, from, to) = links.edges[*edge];
            let line = &flow.edges[raw];
            let goes_on = |next: &&usize| {
                let (raw, _, to) = links.edges[**next];
                self.contains(index, to) && flow.edges[raw].on != On::Error
            };
            let has_condition = line.when.is_some() || line.label.is_some() || line.on == On::Error;
            if has_condition || self.goes_back(from, to) || !links.outgoing[from].iter().any(|next| goes_on(&next)) {
                continue;
            }
            let id = |node: usize| for_message(&flow.nodes[node].id);
            let (from, to) = (id(from), id(to));
            let (edge, cycle, pass) =
                if flow.is_agentic { ("rule", "loop", "iteration") } else { ("edge", "cycle", "pass") };
            let message = format!(
                "the {edge} from `{from}` to `{to}` leaves the {cycle} in its first {pass}, so `{to}` runs once, while the \
                 {cycle} may go on"
            );
            let help = match flow.is_agentic {
                true => "give it an `if` that is the opposite of that of the rule that leads back".to_owned(),
                false => format!(
                    "give it the opposite condition of the edge that goes back, such as `{{ from: {from}, to: {to}, when: \"{from}.…\" }}`"
                ),
            };
            diagnostics.warning("leaves_early", line.span, message, Some(help));
        }
    }

    /// Adds the rings inside a cycle to `open`.
    fn open_inner(&self, links: Links<'_>, index: usize, depth: usize, open: &mut Vec<Ring>) {
        let FoundCycle { entry, nodes, .. } = &self.list[index];
        let targets = |node: usize| links.outgoing[node].iter().map(|edge| links.edges[*edge].2);
        let inner = rings_among(nodes, |node| targets(node).filter(|to| to != entry).collect());
        open.extend(inner.into_iter().map(|nodes| Ring { nodes, parent: Some(index), depth: depth + 1 }));
    }

    /// Returns the innermost cycle of a node.
    pub(crate) fn innermost(&self, node: usize) -> Option<usize> {
        self.of.get(&node).copied()
    }

    /// Returns the cycles around a node, the innermost first.
    fn around(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.innermost(node), |cycle| self.list[*cycle].parent)
    }

    /// Returns true if a node is on a cycle.
    fn contains(&self, cycle: usize, node: usize) -> bool {
        self.list[cycle].nodes.binary_search(&node).is_ok()
    }

    /// Returns true if an edge of a cycle leads to the cycle's entry, so that it begins another pass.
    pub(crate) fn goes_back(&self, from: usize, to: usize) -> bool {
        self.innermost(to).is_some_and(|cycle| self.list[cycle].entry == to && self.contains(cycle, from))
    }

    /// Returns the innermost cycle that contains two nodes.
    pub(crate) fn common(&self, one: usize, other: usize) -> Option<usize> {
        self.around(one).find(|cycle| self.contains(*cycle, other))
    }

    /// Returns the edges that leave a cycle and that satisfy `is_way`. Returns none after having looked at more than
    /// [`limits::CYCLE_WAYS`] edges in total.
    pub(crate) fn ways(&self, cycle: usize, is_way: impl Fn(usize) -> bool) -> Vec<EdgeIx> {
        let leaving = &self.list[cycle].leaving;
        self.looked_at.set(self.looked_at.get() + leaving.len());
        let edges = leaving.iter().copied().filter(|edge| self.has_room() && is_way(*edge));
        edges.map(|edge| EdgeIx(edge as u32)).collect()
    }

    /// Returns true if the view of a node of an inner cycle is known, or if there is no room for another one.
    pub(crate) fn has_view(&self, from: usize, node: usize) -> bool {
        !self.has_room() || self.views.borrow().contains_key(&(from, node))
    }

    /// Adds the view of a node of an inner cycle. It takes more memory than an edge.
    pub(crate) fn add_view(&self, from: usize, node: usize, ways: Vec<EdgeIx>) {
        self.looked_at.set(self.looked_at.get() + VIEW_COST);
        self.views.borrow_mut().insert((from, node), ways);
    }

    /// Returns the views that were added.
    pub(crate) fn take_views(&self) -> Views {
        let ix = |node: usize| NodeIx(node as u32);
        let views = self.views.take().into_iter();
        views.map(|((from, node), ways)| ((ix(from), ix(node)), ways)).collect()
    }

    fn has_room(&self) -> bool {
        self.looked_at.get() <= limits::CYCLE_WAYS
    }

    /// Reports a flow whose expressions read so many outputs of cycles, and whose cycles have so many ways out, that
    /// [`Cycles::ways`] did not look at all of them.
    pub(crate) fn check_ways(&self, flow: &RawFlow<'_>, diagnostics: &mut Diagnostics<'_>) {
        if !self.has_room() {
            let message = "the nodes behind cycles of edges read too many outputs of nodes on these cycles";
            let help = "let one node behind each cycle read the outputs, and the others read that node";
            diagnostics.error("too_large", flow.head, message, Some(help.into()));
        }
    }

    /// Returns the outermost cycle that contains the first node and not the second.
    pub(crate) fn left_between(&self, node: usize, outside: usize) -> Option<usize> {
        self.around(node).take_while(|cycle| !self.contains(*cycle, outside)).last()
    }

    /// Returns the cycles in the form of the graph. `scope_of` has the scope of each node.
    pub(crate) fn lower(&self, links: Links<'_>, scope_of: &[usize]) -> Vec<Cycle> {
        let node = |node: usize| NodeIx(node as u32);
        let edge = |edge: &usize| EdgeIx(*edge as u32);
        let mut slots = BTreeMap::new();
        let lower = |(index, cycle): (usize, &FoundCycle)| {
            let slot = slots.entry(scope_of[cycle.entry]).or_insert(0);
            *slot += 1;
            let edges = || cycle.nodes.iter().flat_map(|node| &links.outgoing[*node]);
            let is_inner = |edge: &&usize| self.contains(index, links.edges[**edge].2);
            let inside = (index + 1..self.list.len()).filter(|inner| self.contains(index, self.list[*inner].entry));
            let inside: Vec<_> = inside.collect();
            let own = cycle.nodes.iter().filter(|node| self.innermost(**node) == Some(index)).count();
            let inner = inside.iter().filter(|inner| self.list[**inner].parent == Some(index)).count();
            Cycle {
                inside: inside.iter().map(|inner| CycleIx(*inner as u32)).collect(),
                members: (own + inner) as u32,
                parent: cycle.parent.map(|parent| CycleIx(parent as u32)),
                slot: *slot - 1,
                entry: node(cycle.entry),
                nodes: cycle.nodes.iter().copied().map(node).collect(),
                back: cycle.back.iter().map(edge).collect(),
                inner: edges().filter(is_inner).map(edge).collect(),
                leaving: cycle.leaving.iter().map(edge).collect(),
                max_passes: cycle.max_passes,
            }
        };
        self.list.iter().enumerate().map(lower).collect()
    }
}

/// Reports a cycle that is entered at several nodes.
fn report_entries(
    flow: &RawFlow<'_>,
    links: Links<'_>,
    ring: &[usize],
    entrances: &[(usize, usize)],
    diagnostics: &mut Diagnostics<'_>,
) {
    let id = |node: usize| for_message(&flow.nodes[node].id);
    let source = |edge: usize| links.edges[edge].1;
    let ways: Vec<_> = entrances
        .iter()
        .take(MAX_NAMED_NODES)
        .map(|(node, edge)| format!("at `{}` from `{}`", id(*node), id(source(*edge))))
        .collect();
    let message = format!(
        "{} on a cycle of edges that begins at several nodes: {}; so its passes have no beginning",
        cycle_message(flow, ring),
        ways.join(", ")
    );
    let (entry, other) = (entrances[0].0, source(entrances[1].1));
    let help = format!(
        "let all edges from outside the cycle lead to one of its nodes, such as \"{} -> {}\"; or move the cycle into the \
         body of a `control.loop`",
        id(other),
        id(entry)
    );
    let span = flow.edges[links.edges[entrances[1].1].0].span;
    diagnostics.new_rule("cycle", span, message, Some(help));
}

/// Maximum number of node names in a message about a cycle.
const MAX_NAMED_NODES: usize = 5;

/// Returns the beginning of a message about a cycle, such as "`a`, `b` lie" or "`a` lies".
pub(crate) fn cycle_message(flow: &RawFlow<'_>, ring: &[usize]) -> String {
    let names: Vec<_> =
        ring.iter().take(MAX_NAMED_NODES).map(|node| format!("`{}`", for_message(&flow.nodes[*node].id))).collect();
    match ring.len() {
        1 => format!("{} lies", names[0]),
        count if count > MAX_NAMED_NODES => format!("{} and {} more lie", names.join(", "), count - MAX_NAMED_NODES),
        _ => format!("{} lie", names.join(", ")),
    }
}
