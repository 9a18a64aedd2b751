//! The names that the nodes of a run have in another version of its flow.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowcell_contract::NodeId;
use flowcell_flow::graph::{BodyIx, Graph, Names, NodeIx};
use serde::{Deserialize, Serialize};

/// The nodes that have another name in the other version: their names in the version that the run uses, with the new
/// ones.
pub type Renames = BTreeMap<NodeId, NodeId>;

/// A node with another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// The node.
    pub node: NodeId,
    /// Its name in the other version.
    pub name: NodeId,
}

/// The reason for which a node cannot have another name in the other version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "obstacle")]
pub enum RenameError {
    /// The version that the run uses does not have a node that is to have another name.
    #[error("the version that the run uses has no node `{node}`; rename a node that it has")]
    #[serde(rename = "rename_unknown")]
    Unknown {
        /// The name.
        node: NodeId,
    },
    /// The other version does not have a node with a new name.
    #[error("the other version has no node `{node}`; write the name that the node has there")]
    #[serde(rename = "rename_missing")]
    Missing {
        /// The new name.
        node: NodeId,
    },
    /// The other version still has a node with the earlier name of a node.
    #[error("the other version still has a node `{from}`, so `{to}` is another node; do not rename it")]
    #[serde(rename = "rename_kept")]
    Kept {
        /// The earlier name.
        from: NodeId,
        /// The new name.
        to: NodeId,
    },
    /// The version that the run uses has another node with a new name.
    #[error(
        "the version that the run uses has another node `{to}`, so `{from}` cannot become `{to}`; rename that node, \
         too, or do not rename `{from}`"
    )]
    #[serde(rename = "rename_taken")]
    Taken {
        /// The earlier name.
        from: NodeId,
        /// The new name.
        to: NodeId,
    },
    /// Two nodes are to have the same name, or one node two names.
    #[error("`{node}` is the new name of two nodes, or has two new names; rename each node once")]
    #[serde(rename = "rename_twice")]
    Twice {
        /// The new name of the two nodes, or the node.
        node: NodeId,
    },
    /// The node with the new name is in another body, or only one of both undoes a node.
    #[error(
        "`{to}` is in another body than `{from}`, or only one of them undoes a node, so it is another node; do not \
         rename it"
    )]
    #[serde(rename = "rename_elsewhere")]
    Elsewhere {
        /// The earlier name.
        from: NodeId,
        /// The new name.
        to: NodeId,
    },
    /// A node keeps its id under another name, and a node of the other version has this id as its name.
    #[error(
        "the run keeps the id `{id}` for its node `{name}`, and the other version has another node `{id}`; if it is \
         the same node, rename `{name}` to `{id}`, else repeat the run in the other version with `runs retry \
         --flow-version`"
    )]
    #[serde(rename = "rename_clash")]
    Clash {
        /// The id.
        id: NodeId,
        /// The name of the node that has the id.
        name: NodeId,
    },
}

impl RenameError {
    /// Returns a stable code, which is the member `obstacle` of the JSON form.
    pub fn code(&self) -> &'static str {
        match self {
            RenameError::Unknown { .. } => "rename_unknown",
            RenameError::Missing { .. } => "rename_missing",
            RenameError::Kept { .. } => "rename_kept",
            RenameError::Taken { .. } => "rename_taken",
            RenameError::Twice { .. } => "rename_twice",
            RenameError::Elsewhere { .. } => "rename_elsewhere",
            RenameError::Clash { .. } => "rename_clash",
        }
    }
}

/// The sign between the id of a use of a fragment and the id of a node in the fragment.
const USE_MARK: char = '_';

/// Returns the names that the nodes of a run have in another version of its flow, by the ids that the run keeps: those
/// of `renames`, and those that earlier moves gave them. Fails with the reasons for which the nodes cannot have these
/// names.
pub(super) fn names(old: &Graph, new: &Graph, renames: &Renames) -> Result<Names, Vec<RenameError>> {
    let (old, new) = (Version::new(old), Version::new(new));
    let (targets, mut errors) = targets(&old, &new, renames);
    let target = |node: NodeIx| targets.get(&node).unwrap_or_else(|| old.graph.name_of(node));
    let names: Vec<_> = old.nodes.iter().filter(|node| new.by_name.contains_key(target(**node))).collect();
    let used: HashSet<&NodeId> = names.iter().map(|node| target(**node)).collect();
    // A node that keeps its id under another name, and a node of the other version whose name is this id.
    let clashes = old.nodes.iter().filter(|node| {
        let (id, name) = (&old.graph.node(**node).id, old.graph.name_of(**node));
        id != name && new.by_name.contains_key(id) && !used.contains(id)
    });
    errors.extend(clashes.map(|node| {
        let (id, name) = (old.graph.node(*node).id.clone(), old.graph.name_of(*node).clone());
        RenameError::Clash { id, name }
    }));
    if !errors.is_empty() {
        errors.dedup();
        return Err(errors);
    }
    let pairs = names.into_iter().map(|node| (old.graph.node(*node).id.clone(), target(*node).clone()));
    Ok(Names::new(pairs.filter(|(id, name)| id != name).collect()))
}

/// Returns the nodes that have another name in the other version because of `renames`, by the names that they have in
/// the version that the run uses. The nodes of a renamed use of a fragment are among them. Fails with the reasons for
/// which the nodes cannot have these names.
pub(super) fn new_names(old: &Graph, new: &Graph, renames: &Renames) -> Result<Renames, Vec<RenameError>> {
    if renames.is_empty() {
        return Ok(Renames::new());
    }
    let (old, new) = (Version::new(old), Version::new(new));
    let (targets, mut errors) = targets(&old, &new, renames);
    if !errors.is_empty() {
        errors.dedup();
        return Err(errors);
    }
    let pairs = targets.into_iter().map(|(node, name)| (old.graph.name_of(node).clone(), name));
    Ok(pairs.filter(|(name, new)| name != new).collect())
}

/// Returns the new names of the nodes that `renames` concerns, and the reasons against them.
fn targets(old: &Version<'_>, new: &Version<'_>, renames: &Renames) -> (HashMap<NodeIx, NodeId>, Vec<RenameError>) {
    let (mut errors, mut targets): (Vec<RenameError>, HashMap<NodeIx, NodeId>) = Default::default();
    for (from, to) in renames {
        match old.node(from) {
            // A node may be given by its name and by its id.
            Some(node) if targets.insert(node, to.clone()).is_some_and(|other| other != *to) => {
                errors.push(RenameError::Twice { node: from.clone() });
            }
            Some(_) => {}
            None => errors.push(RenameError::Unknown { node: from.clone() }),
        }
        if !new.by_name.contains_key(to) {
            errors.push(RenameError::Missing { node: to.clone() });
        }
    }
    let of_uses = if errors.is_empty() { names_in_uses(old, new, &targets) } else { HashMap::new() };
    targets.extend(of_uses);
    let named = || old.nodes.iter().filter_map(|node| Some((*node, targets.get(node)?)));
    let mut by_target: HashMap<&NodeId, NodeIx> = HashMap::new();
    for (node, to) in named() {
        if by_target.insert(to, node).is_some() {
            errors.push(RenameError::Twice { node: to.clone() });
        }
    }
    for (node, to) in named() {
        let from = old.graph.name_of(node);
        if old.by_name.get(to).is_some_and(|other| !targets.contains_key(other)) {
            errors.push(RenameError::Taken { from: from.clone(), to: to.clone() });
        }
        if new.by_name.contains_key(from) && !by_target.contains_key(from) {
            errors.push(RenameError::Kept { from: from.clone(), to: to.clone() });
        }
        let Some(found) = new.by_name.get(to) else { continue };
        let owner = old.owner(node).map(|owner| targets.get(&owner).unwrap_or_else(|| old.graph.name_of(owner)));
        if owner != new.owner(*found).map(|owner| new.graph.name_of(owner)) || old.undoes(node) != new.undoes(*found) {
            errors.push(RenameError::Elsewhere { from: from.clone(), to: to.clone() });
        }
    }
    (targets, errors)
}

/// Returns the names of nodes in a fragment whose use has another name: these ids begin with that of the use.
fn names_in_uses(old: &Version<'_>, new: &Version<'_>, targets: &HashMap<NodeIx, NodeId>) -> HashMap<NodeIx, NodeId> {
    let mut found: HashMap<NodeIx, NodeId> = HashMap::new();
    for &node in old.nodes.iter().filter(|node| !targets.contains_key(node)) {
        let Some(owner) = old.owner(node) else { continue };
        let Some(use_name) = targets.get(&owner).or_else(|| found.get(&owner)) else { continue };
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
