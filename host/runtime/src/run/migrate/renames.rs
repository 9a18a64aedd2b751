//! The names that the nodes of a run have in another version of its flow.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowcell_contract::NodeId;
use flowcell_flow::graph::{BodyIx, Graph, Names, NodeIx};

use super::plan::{Obstacle, Renamed};

/// The nodes that have another name in the other version: their names in the version that the run uses, with the new
/// ones.
pub type Renames = BTreeMap<NodeId, NodeId>;

/// The sign between the id of a use of a fragment and the id of a node in the fragment.
const USE_MARK: char = '_';

/// Returns the names that the nodes of a run have in another version of its flow: those of `renames`, and those that
/// earlier moves gave them. Fails with the reasons for which the nodes cannot have these names.
pub(super) fn names(old: &Graph, new: &Graph, renames: &Renames) -> Result<Names, Vec<Obstacle>> {
    let (old, new) = (Version::new(old), Version::new(new));
    let (mut obstacles, mut targets) = (Vec::new(), HashMap::new());
    for (from, to) in renames {
        match old.node(from) {
            // A node may be given by its name and by its id.
            Some(node) if targets.insert(node, to).is_some_and(|other| other != to) => {
                obstacles.push(Obstacle::RenameTwice { node: from.clone() });
            }
            Some(_) => {}
            None => obstacles.push(Obstacle::RenameUnknown { node: from.clone() }),
        }
        if !new.by_name.contains_key(to) {
            obstacles.push(Obstacle::RenameMissing { node: to.clone() });
        }
    }
    let of_uses = if obstacles.is_empty() { names_in_uses(&old, &new, &targets) } else { HashMap::new() };
    targets.extend(of_uses.iter().map(|(node, name)| (*node, name)));
    let target = |node: NodeIx| targets.get(&node).copied().unwrap_or_else(|| old.graph.name_of(node));
    let mut by_target: HashMap<&NodeId, NodeIx> = HashMap::new();
    for node in old.nodes.iter().copied().filter(|node| targets.contains_key(node)) {
        if by_target.insert(target(node), node).is_some() {
            obstacles.push(Obstacle::RenameTwice { node: target(node).clone() });
        }
    }
    for &node in old.nodes.iter().filter(|node| targets.contains_key(node)) {
        let (from, to) = (old.graph.name_of(node), target(node));
        if old.by_name.get(to).is_some_and(|other| !targets.contains_key(other)) {
            obstacles.push(Obstacle::RenameTaken { from: from.clone(), to: to.clone() });
        }
        if new.by_name.contains_key(from) && !by_target.contains_key(from) {
            obstacles.push(Obstacle::RenameKept { from: from.clone(), to: to.clone() });
        }
        let Some(found) = new.by_name.get(to) else { continue };
        let owner = old.owner(node).map(target);
        if owner != new.owner(*found).map(|owner| new.graph.name_of(owner)) || old.undoes(node) != new.undoes(*found) {
            obstacles.push(Obstacle::RenameElsewhere { from: from.clone(), to: to.clone() });
        }
    }
    let names: Vec<_> = old.nodes.iter().filter(|node| new.by_name.contains_key(target(**node))).collect();
    let used: HashSet<&NodeId> = names.iter().map(|node| target(**node)).collect();
    // A node that keeps its id under another name, and a node of the other version whose name is this id.
    let clashes = old.nodes.iter().filter(|node| {
        let (id, name) = (&old.graph.node(**node).id, old.graph.name_of(**node));
        id != name && new.by_name.contains_key(id) && !used.contains(id)
    });
    obstacles.extend(clashes.map(|node| {
        let (id, name) = (old.graph.node(*node).id.clone(), old.graph.name_of(*node).clone());
        Obstacle::RenameClash { id, name }
    }));
    if !obstacles.is_empty() {
        obstacles.dedup();
        return Err(obstacles);
    }
    let pairs = names.into_iter().map(|node| (old.graph.node(*node).id.clone(), target(*node).clone()));
    Ok(Names::new(pairs.filter(|(id, name)| id != name).collect()))
}

/// Returns the names of nodes in a fragment whose use has another name: these ids begin with that of the use.
fn names_in_uses(old: &Version<'_>, new: &Version<'_>, targets: &HashMap<NodeIx, &NodeId>) -> HashMap<NodeIx, NodeId> {
    let mut found: HashMap<NodeIx, NodeId> = HashMap::new();
    for &node in old.nodes.iter().filter(|node| !targets.contains_key(node)) {
        let Some(owner) = old.owner(node) else { continue };
        let Some(use_name) = targets.get(&owner).copied().or_else(|| found.get(&owner)) else { continue };
        let name = old.graph.name_of(node);
        let rest = name.as_str().strip_prefix(old.graph.name_of(owner).as_str());
        let Some(rest) = rest.filter(|rest| rest.starts_with(USE_MARK)) else { continue };
        let renamed = NodeId::from(format!("{use_name}{rest}"));
        if !new.by_name.contains_key(name) && new.by_name.contains_key(&renamed) {
            found.insert(node, renamed);
        }
    }
    found
}

/// Returns nodes that may have another name in the other version: in the same body, and the only ones of their type
/// that just one of the versions has. The ids of `new` are those of the run.
pub(super) fn similar(old: &Graph, new: &Graph) -> Vec<Renamed> {
    let (old, new) = (Version::new(old), Version::new(new));
    let alone = |version: &Version<'_>, other: &Version<'_>| {
        let ids: HashSet<&NodeId> = other.nodes.iter().map(|node| &other.graph.node(*node).id).collect();
        let mut found: BTreeMap<(Option<NodeId>, String, bool, bool), Vec<NodeIx>> = BTreeMap::new();
        for &ix in version.nodes.iter().filter(|node| !ids.contains(&version.graph.node(**node).id)) {
            let node = version.graph.node(ix);
            let owner = version.owner(ix).map(|owner| version.graph.node(owner).id.clone());
            let kind = (owner, node.node_type.name.to_string(), node.body.is_some(), version.undoes(ix));
            found.entry(kind).or_default().push(ix);
        }
        found
    };
    let (gone, mut added) = (alone(&old, &new), alone(&new, &old));
    let pair = |(kind, gone): (_, Vec<NodeIx>)| match (gone.as_slice(), added.remove(&kind)?.as_slice()) {
        ([from], [to]) => {
            Some(Renamed { node: old.graph.name_of(*from).clone(), name: new.graph.name_of(*to).clone() })
        }
        _ => None,
    };
    gone.into_iter().filter_map(pair).collect()
}

/// A version of a flow, with its nodes. A graph of a run that has moved also has nodes that are gone.
struct Version<'g> {
    graph: &'g Graph,
    /// The nodes, an owner before the nodes of its body.
    nodes: Vec<NodeIx>,
    by_name: HashMap<&'g NodeId, NodeIx>,
    by_id: HashMap<&'g NodeId, NodeIx>,
}

impl<'g> Version<'g> {
    fn new(graph: &'g Graph) -> Version<'g> {
        let mut nodes = Vec::new();
        let mut open = vec![BodyIx::ROOT];
        while let Some(body) = open.pop() {
            for &ix in &graph.body(body).nodes {
                let with_undo = [Some(ix), graph.node(ix).undo];
                for node in with_undo.into_iter().flatten() {
                    nodes.push(node);
                    open.extend(graph.node(node).body);
                }
            }
        }
        let by_name = nodes.iter().map(|node| (graph.name_of(*node), *node)).collect();
        let by_id = nodes.iter().map(|node| (&graph.node(*node).id, *node)).collect();
        Version { graph, nodes, by_name, by_id }
    }

    /// Returns the node with a name, or else the node with an id.
    fn node(&self, name: &NodeId) -> Option<NodeIx> {
        self.by_name.get(name).or_else(|| self.by_id.get(name)).copied()
    }

    fn owner(&self, node: NodeIx) -> Option<NodeIx> {
        self.graph.body(self.graph.node(node).body_of).owner
    }

    fn undoes(&self, node: NodeIx) -> bool {
        self.graph.node(node).undo_of.is_some()
    }
}
