//! The checked inner form that every dialect lowers to.
//!
//! Everything is an index into a list of the graph, so that running it looks nothing up by name. After lowering nobody
//! can tell which dialect a flow was written in.

use std::sync::Arc;

use flowcell_contract::{Grants, Json, NodeId, NodeType};
use flowcell_expr::{Binding, Condition};
use indexmap::IndexMap;

use crate::triggers::Trigger;

/// A node, as an index into [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct NodeIx(pub u32);

/// An edge, as an index into [`Graph::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct EdgeIx(pub u32);

/// A body, as an index into [`Graph::bodies`]; 0 is the flow itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct BodyIx(pub u32);

impl BodyIx {
    /// The flow itself.
    pub const ROOT: BodyIx = BodyIx(0);
}

/// A checked flow.
#[derive(Debug)]
pub struct Graph {
    /// The flow's name.
    pub name: Arc<str>,
    /// The flow's version, as written.
    pub version: Option<Json>,
    /// What it is for.
    pub description: Option<String>,
    /// Defaults of the input, an object; the caller's members win.
    pub input: Json,
    /// JSON Schema of the input.
    pub input_schema: Option<serde_json::Value>,
    /// The result; none: the outputs of every node of the flow itself, by id.
    pub outputs: Option<Bound<Binding>>,
    /// Whether a missing value that no expression tests fails its node. Otherwise it is null.
    pub strict: bool,
    /// When it starts by itself.
    pub triggers: Vec<Trigger>,
    /// Policies of the whole.
    pub policy: FlowPolicy,
    /// All nodes, of the flow and of every body, in the order in which they were written.
    pub nodes: Vec<Node>,
    /// All edges, in the order in which they were written.
    pub edges: Vec<Edge>,
    /// The flow itself, then bodies; an owner's body comes after the body that the owner is in.
    pub bodies: Vec<Body>,
    /// What a dialect needs later, opaque.
    pub labels: IndexMap<String, Json>,
}

impl Graph {
    /// Returns a node.
    pub fn node(&self, node: NodeIx) -> &Node {
        &self.nodes[node.0 as usize]
    }

    /// Returns an edge.
    pub fn edge(&self, edge: EdgeIx) -> &Edge {
        &self.edges[edge.0 as usize]
    }

    /// Returns a body.
    pub fn body(&self, body: BodyIx) -> &Body {
        &self.bodies[body.0 as usize]
    }
}

/// An expression and what its roots stand for.
#[derive(Clone, Debug)]
pub struct Bound<T> {
    /// The compiled expression.
    pub expr: T,
    /// What it names, without repetition.
    pub references: Vec<Reference>,
}

/// What a root name of an expression stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Reference {
    /// `flow`: `{ "input": … }`.
    Flow,
    /// A node's recorded output, by its id; `node` is in the same scope or in the scope of an owner.
    Node(NodeIx),
    /// `nodes`: the recorded outputs of these nodes, by id (those that the expression names, or all that it may).
    Nodes(Vec<NodeIx>),
    /// An owner's variables, by its id: the object of what it gave this pass, with `last`. Also in fields of the owner
    /// itself that are captured again.
    Owner(NodeIx),
    /// The item of this owner's current pass, under the name that its `as` gives.
    Alias(NodeIx, Arc<str>),
    /// `inbound`.
    Inbound,
    /// `inbounds`.
    Inbounds,
}

/// The flow itself or a sub-graph owned by a node.
#[derive(Debug)]
pub struct Body {
    /// Who owns it; none for the flow itself.
    pub owner: Option<NodeIx>,
    /// Its nodes; a node's [`Node::slot`] is its index here.
    pub nodes: Vec<NodeIx>,
    /// Its edges; an edge's [`Edge::slot`] is its index here.
    pub edges: Vec<EdgeIx>,
    /// Nodes without incoming edges.
    pub starts: Vec<NodeIx>,
    /// What a pass gives.
    pub outcome: Outcome,
}

/// What a pass through a body gives. Of no meaning for the flow itself.
#[derive(Debug)]
pub enum Outcome {
    /// `bodyOutput`.
    Output(Bound<Binding>),
    /// The output of the only sink.
    Sink(NodeIx),
    /// The outputs of the sinks, by id.
    Sinks(Vec<NodeIx>),
}

/// A box in the graph.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// What it runs.
    pub node_type: Arc<NodeType>,
    /// Which body it is in.
    pub body_of: BodyIx,
    /// Its index in that body.
    pub slot: u32,
    /// Its input.
    pub input: Bound<Binding>,
    /// What the host hands it beside its input.
    pub config: Bound<Binding>,
    /// Whether it runs at all.
    pub when: Option<Bound<Condition>>,
    /// When it is ready.
    pub join: Join,
    /// Timeouts, retries, what a failure means.
    pub policy: NodePolicy,
    /// What the flow allows it to reach.
    pub grants: Arc<Grants>,
    /// The body that it owns.
    pub body: Option<BodyIx>,
    /// Edges that lead to it, in the order in which they were written.
    pub incoming: Vec<EdgeIx>,
    /// Edges that lead from it, in the order in which they were written.
    pub outgoing: Vec<EdgeIx>,
    /// Whether it lies on a cycle.
    pub on_cycle: bool,
    /// Keys of the input that are captured again whenever the node is woken.
    pub rebinds: bool,
    /// The output member that lists what each pass of the body gave; none: passes are not kept.
    pub collects: Option<Arc<str>>,
    /// What a dialect needs later, opaque.
    pub labels: IndexMap<String, Json>,
}

/// A line between two boxes of one body.
#[derive(Debug)]
pub struct Edge {
    /// Where it leads from.
    pub from: NodeIx,
    /// Where it leads to.
    pub to: NodeIx,
    /// Which end of `from` it waits for.
    pub on: On,
    /// Whether it fires then.
    pub when: Option<Bound<Condition>>,
    /// Its index in its body.
    pub slot: u32,
}

/// Which end of a node an edge waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// It succeeded, or failed under `continueOnError`.
    #[default]
    Success,
    /// It failed.
    Error,
    /// Both.
    End,
}

/// When a node with incoming edges is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Join {
    /// Every edge is settled and at least one fired.
    #[default]
    Settled,
    /// Every edge fired.
    All,
    /// The first edge fired.
    Any,
}

/// Policies of a flow.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FlowPolicy {
    /// Whether the first unhandled failure cancels the rest of its scope.
    pub fail_fast: bool,
    /// Wall time for the whole run.
    pub total_timeout_ms: Option<u64>,
    /// Attempts running at a time.
    pub max_concurrency: u32,
}

impl Default for FlowPolicy {
    fn default() -> FlowPolicy {
        FlowPolicy { fail_fast: true, total_timeout_ms: None, max_concurrency: 16 }
    }
}

/// Policies of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePolicy {
    /// Running time of one attempt, over its resumes.
    pub timeout_ms: u64,
    /// Wall time from readiness to the end.
    pub total_timeout_ms: Option<u64>,
    /// Further attempts.
    pub retry: Retry,
    /// Whether the flow goes on as if a failure were an output.
    pub continue_on_error: bool,
}

impl Default for NodePolicy {
    fn default() -> NodePolicy {
        NodePolicy { timeout_ms: 300_000, total_timeout_ms: None, retry: Retry::default(), continue_on_error: false }
    }
}

/// Further attempts after a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// Delay before the second attempt.
    pub backoff_ms: u64,
    /// By how much each delay grows.
    pub factor: f64,
    /// The longest delay.
    pub max_backoff_ms: u64,
    /// How the delay is spread.
    pub jitter: Jitter,
    /// Which failures are tried again.
    pub on: RetryOn,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            max_attempts: 1,
            backoff_ms: 500,
            factor: 2.0,
            max_backoff_ms: 60_000,
            jitter: Jitter::Full,
            on: RetryOn::Retryable,
        }
    }
}

/// How a delay is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// Anywhere between nothing and the whole delay.
    Full,
    /// Exactly the delay.
    None,
}

/// Which failures are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RetryOn {
    /// Those marked retryable, timeouts, lost workers.
    Retryable,
    /// All.
    Any,
}
