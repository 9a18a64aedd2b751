//! The checked graph that every dialect compiles to.
//!
//! Nodes, edges and bodies refer to each other by index, so the runtime needs no lookup by name. The graph is the same
//! for every dialect.

mod names;
mod policy;

use std::{collections::BTreeMap, fmt, sync::Arc};

use flowcell_contract::{Grants, Json, NodeId, NodeType};
use flowcell_expr::{Binding, Condition};
use indexmap::IndexMap;

pub(crate) use self::policy::is_code;
pub use self::{
    names::Names,
    policy::{FlowPolicy, Jitter, NodePolicy, Retry, RetryOn},
};
use crate::{labels::Labels, triggers::Trigger};

/// Index of a node in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct NodeIx(pub u32);

/// Index of an edge in [`Graph::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct EdgeIx(pub u32);

/// Index of a body in [`Graph::bodies`]; 0 is the flow itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct BodyIx(pub u32);

/// Index of a cycle of edges in [`Graph::cycles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CycleIx(pub u32);

/// The slot of a node that is not in the list of its body: it undoes another node, or a later version of the flow no
/// longer has it.
pub const NO_SLOT: u32 = u32::MAX;

impl BodyIx {
    /// The flow itself.
    pub const ROOT: BodyIx = BodyIx(0);
}

/// A checked flow.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The flow's name.
    pub name: Arc<str>,
    /// The flow's version as the file gives it.
    pub version: Option<Json>,
    /// Purpose of the flow.
    pub description: Option<String>,
    /// Defaults of the input, an object; members that the caller provides override them.
    pub input: Json,
    /// JSON Schema of the input.
    pub input_schema: Option<serde_json::Value>,
    /// The result. Default: the outputs of all nodes of the flow itself, by id.
    pub outputs: Option<Bound<Binding>>,
    /// True for a strict flow: a missing value fails the node that reads it, unless the expression tests for it. In
    /// other flows a missing value is null.
    pub strict: bool,
    /// Events and schedules that start the flow.
    pub triggers: Vec<Trigger>,
    /// The labels that each run of the flow gets.
    pub run_labels: Labels,
    /// Policies of the flow.
    pub policy: FlowPolicy,
    /// All nodes, including those in bodies, in the order of the file.
    pub nodes: Vec<Node>,
    /// All edges, in the order of the file.
    pub edges: Vec<Edge>,
    /// The flow itself, then the bodies. An outer body precedes the bodies inside it.
    pub bodies: Vec<Body>,
    /// The cycles of edges that loop. An outer cycle precedes those inside it.
    pub cycles: Vec<Cycle>,
    /// The edges that tell the passes of inner cycles.
    pub views: Views,
    /// Data for the code of the flow's dialect, by name. The runtime does not read it.
    pub labels: IndexMap<String, Json>,
    /// The names of the nodes in this version of the flow.
    pub names: Names,
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

    /// Returns a cycle.
    pub fn cycle(&self, cycle: CycleIx) -> &Cycle {
        &self.cycles[cycle.0 as usize]
    }

    /// Returns the nodes that name the passes around a node in its address, the innermost first: the entries of its cycles
    /// and the owners of its bodies.
    pub fn passes_around(&self, node: NodeIx) -> Vec<NodeIx> {
        let (mut at, mut names) = (Some(node), Vec::new());
        while let Some(inner) = at {
            names.extend(self.cycles_from(self.node(inner).cycle).map(|cycle| self.cycle(cycle).entry));
            at = self.body(self.node(inner).body_of).owner;
            names.extend(at);
        }
        names
    }

    /// Returns a cycle and the cycles around it, the innermost first.
    pub fn cycles_from(&self, cycle: Option<CycleIx>) -> impl Iterator<Item = CycleIx> {
        std::iter::successors(cycle, |cycle| self.cycle(*cycle).parent)
    }
}

/// A cycle of edges. Each of its passes begins at its entry. Another pass begins if an edge that goes back has fired.
#[derive(Clone, Debug)]
pub struct Cycle {
    /// The cycle that contains this one.
    pub parent: Option<CycleIx>,
    /// Index of the cycle in [`Body::cycles`].
    pub slot: u32,
    /// The node at which each pass begins. Edges from outside lead only to this node of the cycle.
    pub entry: NodeIx,
    /// All nodes, those of inner cycles among them, in the order of the file.
    pub nodes: Vec<NodeIx>,
    /// All cycles inside this one.
    pub inside: Vec<CycleIx>,
    /// Number of nodes and cycles that are in this cycle and in no cycle inside it.
    pub members: u32,
    /// The edges from nodes of the cycle to its entry, in the order of the file.
    pub back: Vec<EdgeIx>,
    /// The edges between nodes of the cycle, those that go back among them.
    pub inner: Vec<EdgeIx>,
    /// The edges from nodes of the cycle to nodes outside of it.
    pub leaving: Vec<EdgeIx>,
    /// Maximum number of passes.
    pub max_passes: u32,
}

/// For the source of an edge out of a cycle, and a node of an inner cycle that is read behind that edge: the edges out of
/// the inner cycle that lead from the second node to the first one. They count as those of [`PassRead::Left`].
pub type Views = BTreeMap<(NodeIx, NodeIx), Vec<EdgeIx>>;

/// A node whose recorded output an expression reads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The node.
    pub node: NodeIx,
    /// The pass of the output, if the node is on a cycle.
    pub pass: PassRead,
}

/// The pass of a cycle whose output of a node an expression reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassRead {
    /// The current pass. After the end of the cycle: the last one.
    Current,
    /// The pass of this cycle before the current one. The output is null in the first pass.
    Previous(CycleIx),
    /// The pass that one of these edges left: the latest one of those that have fired. If none has fired, the last pass. For
    /// the cycles inside the cycle that the edges leave, [`Graph::views`] has the edges.
    Left(Vec<EdgeIx>),
}

/// Writes the node, and the pass only if it is not the current one.
impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pass {
            PassRead::Current => self.node.fmt(formatter),
            pass => write!(formatter, "{:?} of {pass:?}", self.node),
        }
    }
}

impl Source {
    /// Creates a source that is read from the current pass.
    pub fn current(node: NodeIx) -> Source {
        Source { node, pass: PassRead::Current }
    }
}

/// A compiled binding or condition, and the values to which its root names refer.
#[derive(Clone, Debug)]
pub struct Bound<T> {
    /// The compiled form.
    pub expr: T,
    /// The values that the expression refers to, without repetition.
    pub references: Vec<Reference>,
    /// The names by which the expression calls nodes.
    pub names: Names,
}

/// The root name of [`Reference::Facts`]. Expressions cannot use it.
pub const FACTS: &str = " facts";

/// The meaning of an expression's root name.
#[derive(Clone, Debug, PartialEq)]
pub enum Reference {
    /// `flow`: `{ "input": …, "name": …, "version": … }`.
    Flow,
    /// `ID`: the recorded output of a node in the same scope or in the scope of an owner.
    Node(Source),
    /// `nodes`: the recorded outputs of these nodes, by id. These are the nodes that the expression names, or all
    /// visible nodes if it does not name each of them.
    Nodes(Vec<Source>),
    /// `ID` of an owner: its variables. They are the members of the object that the owner provided for the current
    /// pass, and `last`, the result of the preceding pass. Fields of the owner itself can use the variables if the host
    /// captures the fields again for each pass.
    Owner(NodeIx),
    /// `NAME`, the value of the field `as` of this owner: the item of the owner's current pass.
    Alias(NodeIx, Arc<str>),
    /// `inbound`: the output or the error of the source of the edge that started the node.
    Inbound,
    /// `inbounds`: the outputs or errors of the sources of all edges that fired, by the ids of these sources.
    Inbounds,
    /// `run`: `{ "id": …, "started": …, "labels": … }`.
    Run,
    /// `task`: `{ "id": … }`, the address of the task.
    Task,
    /// `tenant`: the name of the tenant.
    Tenant,
    /// `undo`, in a node that undoes another: `{ "input": …, "output": …, "task": … }` of the task that it undoes.
    Undo,
    /// `now`: the time at which the task became ready, or at which the host decided about the condition or the outputs.
    Now,
    /// The seed of `uuid()` and other random values. No expression names it.
    Random,
    /// [`FACTS`]: `{ "run": …, "flow": { "name": …, "version": … }, "task": …, "tenant": … }`. No expression names it.
    Facts,
}

/// The flow itself, or a subgraph owned by a node.
#[derive(Clone, Debug)]
pub struct Body {
    /// The owner; `None` for the flow itself.
    pub owner: Option<NodeIx>,
    /// The body's nodes, without those that undo others. [`Node::slot`] is a node's index here.
    pub nodes: Vec<NodeIx>,
    /// The body's edges. [`Edge::slot`] is an edge's index here.
    pub edges: Vec<EdgeIx>,
    /// The nodes that start when the body begins: those without incoming edges other than edges that go back. A run of an
    /// agentic flow may begin inside a cycle, with other nodes.
    pub starts: Vec<NodeIx>,
    /// The nodes without incoming edges other than edges that go back that are not in `starts`. The first pass of their
    /// cycle skips them.
    pub absent: Vec<NodeIx>,
    /// The body's cycles. [`Cycle::slot`] is a cycle's index here.
    pub cycles: Vec<CycleIx>,
    /// The result of a pass.
    pub outcome: Outcome,
}

/// The result of one pass of a body. Unused for the flow itself.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The value of `bodyOutput`.
    Output(Bound<Binding>),
    /// The output of the only node without outgoing edges other than edges that go back.
    Sink(NodeIx),
    /// The outputs of all nodes without outgoing edges other than edges that go back, by id.
    Sinks(Vec<NodeIx>),
}

/// A node of the graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// Id of the node, unique in the flow.
    pub id: NodeId,
    /// The type of the node.
    pub node_type: Arc<NodeType>,
    /// The body that contains the node.
    pub body_of: BodyIx,
    /// Index of the node in its body, or [`NO_SLOT`].
    pub slot: u32,
    /// Binding of the input.
    pub input: Bound<Binding>,
    /// Binding of the config: settings of the node that the host passes on beside the input.
    pub config: Bound<Binding>,
    /// The condition for running the node. If it is false, the node is skipped.
    pub when: Option<Bound<Condition>>,
    /// Condition for starting the node, based on its incoming edges.
    pub join: Join,
    /// With `cancelRest`: the nodes that lead only to this one. When its join opens, those that have not ended are
    /// cancelled.
    pub cancels: Vec<NodeIx>,
    /// The nodes whose `cancels` has this node.
    pub cancelled_by: Vec<NodeIx>,
    /// Timeouts, retries and the handling of failures.
    pub policy: NodePolicy,
    /// The node that undoes this one, after it has succeeded, if its scope or the flow fails.
    pub undo: Option<NodeIx>,
    /// The node that this one undoes. It runs only for that, and has no edges.
    pub undo_of: Option<NodeIx>,
    /// Capabilities that the flow grants to the node.
    pub grants: Arc<Grants>,
    /// The body that the node owns.
    pub body: Option<BodyIx>,
    /// Edges to the node, in the order of the file.
    pub incoming: Vec<EdgeIx>,
    /// Edges from the node, in the order of the file.
    pub outgoing: Vec<EdgeIx>,
    /// True if the node lies on a cycle of edges, whether it loops or not.
    pub on_cycle: bool,
    /// The innermost cycle of the node. `None`: the node is on no cycle, or its cycle does not loop.
    pub cycle: Option<CycleIx>,
    /// True if the host captures the values for the node's input again each time an event wakes the node.
    pub rebinds: bool,
    /// The name of the output member that lists the results of the body's passes. With `None`, these results are
    /// dropped.
    pub collects: Option<Arc<str>>,
    /// Data for the code of the flow's dialect, by name. The runtime does not read it.
    pub labels: IndexMap<String, Json>,
}

/// An edge between two nodes of one body.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Source of the edge.
    pub from: NodeIx,
    /// Target of the edge.
    pub to: NodeIx,
    /// The outcomes of `from` after which the edge can fire.
    pub on: On,
    /// An additional condition for firing. The edge fires only if it holds.
    pub when: Option<Bound<Condition>>,
    /// True if the edge leads from a node of a cycle to the entry of this cycle, so that it begins another pass.
    pub goes_back: bool,
    /// True if the edge only orders its nodes: its source is not in `inbound` and `inbounds` of its target.
    pub orders_only: bool,
    /// The outermost cycle that the edge leaves.
    pub leaves: Option<CycleIx>,
    /// Index of the edge in its body.
    pub slot: u32,
}

/// The outcomes of a node after which an edge can fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The node succeeded, or failed under `continueOnError`.
    #[default]
    Success,
    /// The node failed.
    Error,
    /// Success or failure.
    End,
}

/// The condition under which a node with incoming edges starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Join {
    /// Every edge has fired or certainly will not fire, and at least one has fired.
    #[default]
    Settled,
    /// All edges have fired.
    All,
    /// One edge has fired.
    Any,
}
