//! The flow under construction. In its values, `{{ }}` in a text is a binding.

use std::{collections::HashSet, ops::Range};

use flowcell_flow::limits;
use serde_json::{Map, Value, json};

use crate::names::Names;

/// A node of the flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    /// Text of the source for people, written as a comment.
    pub(crate) comment: Option<String>,
    /// Reasons for which a person has to look at the node.
    pub(crate) marks: Vec<String>,
    pub(crate) input: Map<String, Value>,
    pub(crate) grants: Option<Value>,
    pub(crate) policy: Map<String, Value>,
    /// True if the first edge that fires runs the node, and cancels the other ways to it.
    pub(crate) is_race: bool,
    /// Ids of the nodes in its body.
    pub(crate) body: Option<Vec<String>>,
    pub(crate) body_output: Option<Value>,
    /// A sample output, if the node stands for a service that a person has to replace.
    pub(crate) sample: Option<Value>,
}

impl Node {
    /// Creates a node. `input` is an object.
    pub(crate) fn new(id: &str, kind: &'static str, input: Value) -> Node {
        let input = match input {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        Node { id: id.to_owned(), kind, input, ..Node::default() }
    }

    /// Creates a node that hands a value on, as `ID.value`.
    pub(crate) fn value(id: &str, value: Value) -> Node {
        Node::new(id, "control.noop", json!({ "value": value }))
    }
}

/// An edge of the flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) on: On,
}

/// The circumstances in which an edge fires.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum On {
    /// The node has succeeded.
    Success,
    /// The node has succeeded, and gave this route.
    Route(String),
    /// The node has succeeded, and a condition holds.
    When(String),
    /// The node has failed, and the condition holds if there is one.
    Error(Option<String>),
}

/// Number of edges that are compared with a new one.
const NEAR: usize = 64;

/// The flow under construction.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) names: Names,
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// Bytes of the source that stand in the flow once for each use of their name.
    pub(crate) copied: usize,
    /// Members of `flow`, beside its name and its marks.
    pub(crate) head: Map<String, Value>,
    /// Texts of the source for people, written as comments at the top.
    pub(crate) comments: Vec<String>,
}

impl Draft {
    /// Adds an edge.
    pub(crate) fn edge(&mut self, from: &str, to: &str, on: On) {
        let edge = Edge { from: from.to_owned(), to: to.to_owned(), on };
        // Equal edges come from one node, and so stand close together.
        if !self.edges.iter().rev().take(NEAR).any(|other| *other == edge) {
            self.edges.push(edge);
        }
    }

    /// Returns true if the flow has more nodes than a flow may have, so that the import is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.nodes.len() > limits::NODES || self.edges.len() > limits::EDGES || self.copied > limits::DOCUMENT_BYTES
    }

    /// Returns the ids of the nodes in a range that no other node of the range owns.
    pub(crate) fn outer_ids(&self, range: Range<usize>) -> Vec<String> {
        let nodes = &self.nodes[range];
        let owned: HashSet<&String> = nodes.iter().flat_map(|node| node.body.iter().flatten()).collect();
        nodes.iter().map(|node| &node.id).filter(|id| !owned.contains(id)).cloned().collect()
    }
}
