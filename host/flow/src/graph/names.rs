//! The names that nodes have in a version of a flow.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::NodeId;
use flowcell_expr::RANDOM;

use super::{BodyIx, FACTS, Graph, NodeIx, Reference};

/// The names of nodes in a version of a flow that differ from the ids of the nodes. A run that moves to a version in
/// which a node has another name keeps the id of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Option<Arc<BTreeMap<NodeId, NodeId>>>);

impl Names {
    /// Creates the names of nodes, by their ids.
    pub fn new(names: BTreeMap<NodeId, NodeId>) -> Names {
        Names(Some(names).filter(|names| !names.is_empty()).map(Arc::new))
    }

    /// Returns true if all names are the ids of the nodes.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the name of the node with this id.
    pub fn name<'a>(&'a self, id: &'a NodeId) -> &'a NodeId {
        self.0.as_ref().and_then(|names| names.get(id)).unwrap_or(id)
    }

    /// Returns the ids whose nodes have other names, with the names.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &NodeId)> {
        self.0.iter().flat_map(|names| names.iter())
    }

    /// Returns the names after nodes got other ids: `ids` has the new ids by the old ones.
    pub(crate) fn with_ids(&self, ids: &BTreeMap<NodeId, NodeId>) -> Names {
        let moved = ids.iter().map(|(id, new)| (new, self.name(id))).filter(|(new, name)| new != name);
        let others = self.iter().filter(|(id, _)| !ids.contains_key(*id));
        Names::new(moved.chain(others).map(|(id, name)| (id.clone(), name.clone())).collect())
    }
}

impl Graph {
    /// Returns the name that a node has in this version of the flow.
    pub fn name_of(&self, node: NodeIx) -> &NodeId {
        self.names.name(&self.node(node).id)
    }

    /// Returns the names of nodes in the result of a pass of a body, or in the outputs of the flow itself. A body that
    /// stays when its run moves has the names of the version before, as its owner.
    pub fn names_in(&self, body: BodyIx) -> &Names {
        self.body(body).owner.map_or(&self.names, |owner| &self.node(owner).input.names)
    }

    /// Returns true if expressions use this root name for the value of the reference. `names` are those of the
    /// expression.
    pub fn is_named(&self, reference: &Reference, names: &Names, name: &str) -> bool {
        match reference {
            Reference::Flow => name == "flow",
            Reference::Nodes(_) => name == "nodes",
            Reference::Inbound => name == "inbound",
            Reference::Inbounds => name == "inbounds",
            Reference::Node(source) => names.name(&self.node(source.node).id).as_str() == name,
            Reference::Owner(node) => names.name(&self.node(*node).id).as_str() == name,
            Reference::Alias(_, alias) => &**alias == name,
            Reference::Run => name == "run",
            Reference::Task => name == "task",
            Reference::Tenant => name == "tenant",
            Reference::Undo => name == "undo",
            Reference::Now => name == "now",
            Reference::Random => name == RANDOM,
            Reference::Facts => name == FACTS,
        }
    }
}
