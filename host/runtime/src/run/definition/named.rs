//! The nodes that an expression calls by names.

use flowcell_expr::{Path, Segment};
use flowcell_flow::graph::{Bound, Graph, NodeIx, Reference};

/// The nodes that an expression may name.
pub(super) struct NamedNodes {
    nodes: Vec<NamedNode>,
}

struct NamedNode {
    id: String,
    name: String,
    /// True if the node is a source of an edge to the node of the expression: a member of `inbounds`.
    is_inbound: bool,
}

impl NamedNodes {
    /// Collects the nodes. `at`: the node whose incoming edges the expression may name.
    pub(super) fn new<T>(graph: &Graph, bound: &Bound<T>, at: Option<NodeIx>) -> NamedNodes {
        let named = |node: NodeIx, is_inbound: bool| {
            let id = &graph.node(node).id;
            NamedNode { id: id.to_string(), name: bound.names.name(id).to_string(), is_inbound }
        };
        let mut nodes = Vec::new();
        for reference in &bound.references {
            match reference {
                Reference::Node(source) => nodes.push(named(source.node, false)),
                Reference::Nodes(sources) => nodes.extend(sources.iter().map(|source| named(source.node, false))),
                Reference::Owner(owner) => nodes.push(named(*owner, false)),
                Reference::Inbounds => {
                    let edges = at.into_iter().flat_map(|at| &graph.node(at).incoming);
                    nodes.extend(edges.map(|edge| named(graph.edge(*edge).from, true)));
                }
                _ => {}
            }
        }
        NamedNodes { nodes }
    }

    /// Returns the id of the node with a name.
    pub(super) fn id(&self, name: &str) -> Option<String> {
        self.nodes.iter().find(|node| node.name == name).map(|node| node.id.clone())
    }

    /// Returns false if the expression reads all members of `nodes` or `inbounds`, or one that it computes, and a node
    /// has another name in the other expression. `paths` are those of the expression.
    pub(super) fn reads_same_names(&self, other: &NamedNodes, paths: &[Path]) -> bool {
        let is_whole = |path: &Path| !matches!(path.segments().first(), Some(Segment::Key(_)));
        paths.iter().filter(|path| is_whole(path)).all(|path| {
            let is_inbound = path.root() == "inbounds";
            let is_read = |node: &&NamedNode| node.is_inbound == is_inbound;
            let has_name = |node: &NamedNode| {
                other.nodes.iter().filter(is_read).any(|other| (&other.id, &other.name) == (&node.id, &node.name))
            };
            !is_inbound && path.root() != "nodes" || self.nodes.iter().filter(is_read).all(has_name)
        })
    }
}
