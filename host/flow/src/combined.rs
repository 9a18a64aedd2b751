//! Combines two versions of a flow into one graph, for a run that moves from one to the other.

use std::collections::{HashMap, HashSet};

use flowcell_contract::NodeId;

use crate::graph::{
    Body, BodyIx, Bound, Edge, EdgeIx, Graph, NO_SLOT, Node, NodeIx, Outcome, Reference, Source, Views,
};

/// Returns the graph of a run that moves from the version `old` of its flow to the version `new`.
///
/// All indices of `old` keep their meaning. The nodes of the flow itself that are not in `dropped` stay, with their
/// bodies and the edges to them. They get the timeouts, retries, labels and undos that they have in `new`. All other nodes of
/// `new` follow those of `old`. The flow itself consists of the nodes of `new`.
///
/// Returns `None` if a node that stays is not in `new`, or comes after a node that does not stay. The cycles of the
/// result do not loop: no run moves from or to a version whose cycles do, but runs of older versions of Flowcell have moved.
pub fn combine_versions(old: &Graph, new: &Graph, dropped: &[NodeIx]) -> Option<Graph> {
    let dropped: HashSet<NodeIx> = dropped.iter().copied().collect();
    let kept = old.body(BodyIx::ROOT).nodes.iter().copied().filter(|node| !dropped.contains(node));
    let kept: HashMap<&NodeId, NodeIx> = kept.map(|node| (&old.node(node).id, node)).collect();
    let places = Places::new(old, new, &kept)?;
    let mut nodes = old.nodes.clone();
    dropped.iter().for_each(|node| nodes[node.0 as usize].slot = NO_SLOT);
    let shape = new.body(BodyIx::ROOT);
    let mut root = Body {
        owner: None,
        nodes: places.all(&shape.nodes)?,
        edges: Vec::new(),
        starts: places.all(&shape.starts)?,
        absent: Vec::new(),
        cycles: Vec::new(),
        outcome: places.outcome(&shape.outcome)?,
    };
    for after in shape.nodes.iter().map(|node| new.node(*node)) {
        let Some(place) = kept.get(&after.id) else { continue };
        let node = &mut nodes[place.0 as usize];
        if node.incoming.iter().any(|edge| dropped.contains(&old.edge(*edge).from)) {
            return None;
        }
        root.edges.extend(&node.incoming);
        (node.slot, node.on_cycle) = (after.slot, after.on_cycle);
        (node.policy, node.labels) = (after.policy.clone(), after.labels.clone());
        node.undo = places.maybe_node(after.undo)?;
        node.cancels = after.cancels.iter().filter_map(|node| places.node(*node)).collect();
        node.cancelled_by = after.cancelled_by.iter().filter_map(|node| places.node(*node)).collect();
        node.outgoing.clear();
    }
    let mut edges = old.edges.clone();
    for (edge, place) in new.edges.iter().zip(&places.edges) {
        let Some(place) = place else { continue };
        if new.node(edge.to).body_of == BodyIx::ROOT {
            root.edges.push(*place);
        }
        let when = places.maybe(edge.when.as_ref())?;
        edges.push(Edge { from: places.node(edge.from)?, to: places.node(edge.to)?, when, ..edge.clone() });
    }
    for (node, place) in new.nodes.iter().zip(&places.nodes) {
        if place.is_some_and(|place| place.0 as usize >= old.nodes.len()) {
            nodes.push(places.copy_of(node)?);
        }
    }
    for (slot, edge) in root.edges.iter().enumerate() {
        let line = &mut edges[edge.0 as usize];
        line.slot = slot as u32;
        let from = line.from.0 as usize;
        if from < old.nodes.len() {
            nodes[from].outgoing.push(*edge);
        }
    }
    let mut bodies = old.bodies.clone();
    bodies[0] = root;
    for (body, place) in new.bodies.iter().zip(&places.bodies).skip(1) {
        if place.is_some() {
            bodies.push(places.copy_of_body(body)?);
        }
    }
    nodes.iter_mut().for_each(|node| node.cycle = None);
    edges.iter_mut().for_each(|edge| (edge.goes_back, edge.leaves) = (false, None));
    Some(Graph {
        name: new.name.clone(),
        version: new.version.clone(),
        description: new.description.clone(),
        input: new.input.clone(),
        input_schema: new.input_schema.clone(),
        outputs: places.maybe(new.outputs.as_ref())?,
        strict: new.strict,
        triggers: new.triggers.clone(),
        run_labels: new.run_labels.clone(),
        policy: new.policy.clone(),
        nodes,
        edges,
        bodies,
        cycles: Vec::new(),
        views: Views::new(),
        labels: new.labels.clone(),
        names: new.names.clone(),
    })
}

/// The places of the new version's items in the combined graph. `None`: the combined graph has the item of the old
/// version instead.
struct Places {
    nodes: Vec<Option<NodeIx>>,
    edges: Vec<Option<EdgeIx>>,
    bodies: Vec<Option<BodyIx>>,
}

impl Places {
    /// Assigns the places. `kept`: the nodes that stay, by their ids.
    fn new(old: &Graph, new: &Graph, kept: &HashMap<&NodeId, NodeIx>) -> Option<Places> {
        let is_kept = |node: &Node| node.body_of == BodyIx::ROOT && kept.contains_key(&node.id);
        // An outer body precedes the bodies inside it.
        let mut bodies: Vec<Option<BodyIx>> = vec![Some(BodyIx::ROOT)];
        let mut next = old.bodies.len() as u32;
        for body in &new.bodies[1..] {
            let owner = new.node(body.owner?);
            let stays = is_kept(owner) || bodies[owner.body_of.0 as usize].is_none();
            bodies.push((!stays).then(|| BodyIx(take(&mut next))));
        }
        let is_copied = |node: &Node| bodies[node.body_of.0 as usize].is_some() && !is_kept(node);
        let mut next = old.nodes.len() as u32;
        let place = |node: &Node| match is_copied(node) {
            true => Some(NodeIx(take(&mut next))),
            false => kept.get(&node.id).copied().filter(|_| node.body_of == BodyIx::ROOT),
        };
        let nodes: Vec<_> = new.nodes.iter().map(place).collect();
        let mut next = old.edges.len() as u32;
        let edges = new.edges.iter().map(|edge| is_copied(new.node(edge.to)).then(|| EdgeIx(take(&mut next))));
        let edges = edges.collect();
        let found = new.body(BodyIx::ROOT).nodes.iter().filter(|node| is_kept(new.node(**node))).count();
        (found == kept.len()).then_some(Places { nodes, edges, bodies })
    }

    fn node(&self, node: NodeIx) -> Option<NodeIx> {
        self.nodes[node.0 as usize]
    }

    /// Returns the place of an optional node. The outer `None`: the node has no place.
    fn maybe_node(&self, node: Option<NodeIx>) -> Option<Option<NodeIx>> {
        match node {
            Some(node) => self.node(node).map(Some),
            None => Some(None),
        }
    }

    fn edge(&self, edge: EdgeIx) -> Option<EdgeIx> {
        self.edges[edge.0 as usize]
    }

    fn source(&self, source: &Source) -> Option<Source> {
        self.node(source.node).map(Source::current)
    }

    fn all(&self, nodes: &[NodeIx]) -> Option<Vec<NodeIx>> {
        nodes.iter().map(|node| self.node(*node)).collect()
    }

    fn bound<T: Clone>(&self, bound: &Bound<T>) -> Option<Bound<T>> {
        let reference = |reference: &Reference| {
            Some(match reference {
                Reference::Node(source) => Reference::Node(self.source(source)?),
                Reference::Nodes(nodes) => {
                    Reference::Nodes(nodes.iter().map(|source| self.source(source)).collect::<Option<_>>()?)
                }
                Reference::Owner(owner) => Reference::Owner(self.node(*owner)?),
                Reference::Alias(owner, name) => Reference::Alias(self.node(*owner)?, name.clone()),
                Reference::Flow
                | Reference::Inbound
                | Reference::Inbounds
                | Reference::Run
                | Reference::Task
                | Reference::Tenant
                | Reference::Undo
                | Reference::Now
                | Reference::Random
                | Reference::Facts => reference.clone(),
            })
        };
        let references = bound.references.iter().map(reference).collect::<Option<_>>()?;
        Some(Bound { expr: bound.expr.clone(), references, names: bound.names.clone() })
    }

    /// Returns the copy of an optional item. The outer `None`: it refers to an item that has no place.
    fn maybe<T: Clone>(&self, bound: Option<&Bound<T>>) -> Option<Option<Bound<T>>> {
        match bound {
            Some(bound) => self.bound(bound).map(Some),
            None => Some(None),
        }
    }

    fn outcome(&self, outcome: &Outcome) -> Option<Outcome> {
        Some(match outcome {
            Outcome::Output(output) => Outcome::Output(self.bound(output)?),
            Outcome::Sink(node) => Outcome::Sink(self.node(*node)?),
            Outcome::Sinks(nodes) => Outcome::Sinks(self.all(nodes)?),
        })
    }

    fn copy_of(&self, node: &Node) -> Option<Node> {
        let edges = |edges: &[EdgeIx]| edges.iter().map(|edge| self.edge(*edge)).collect::<Option<Vec<_>>>();
        let body = match node.body {
            Some(body) => Some(self.bodies[body.0 as usize]?),
            None => None,
        };
        Some(Node {
            body_of: self.bodies[node.body_of.0 as usize]?,
            input: self.bound(&node.input)?,
            config: self.bound(&node.config)?,
            when: self.maybe(node.when.as_ref())?,
            undo: self.maybe_node(node.undo)?,
            undo_of: self.maybe_node(node.undo_of)?,
            body,
            incoming: edges(&node.incoming)?,
            outgoing: edges(&node.outgoing)?,
            cancels: node.cancels.iter().filter_map(|node| self.node(*node)).collect(),
            cancelled_by: node.cancelled_by.iter().filter_map(|node| self.node(*node)).collect(),
            ..node.clone()
        })
    }

    fn copy_of_body(&self, body: &Body) -> Option<Body> {
        Some(Body {
            owner: Some(self.node(body.owner?)?),
            nodes: self.all(&body.nodes)?,
            edges: body.edges.iter().map(|edge| self.edge(*edge)).collect::<Option<_>>()?,
            starts: self.all(&body.starts)?,
            absent: Vec::new(),
            cycles: Vec::new(),
            outcome: self.outcome(&body.outcome)?,
        })
    }
}

/// Returns the next free index.
fn take(next: &mut u32) -> u32 {
    let index = *next;
    *next += 1;
    index
}
