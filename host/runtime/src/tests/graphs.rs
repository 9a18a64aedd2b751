//! Small graphs made from plans: each node has its behaviour beside it.

use std::sync::{Arc, LazyLock};

use flowcell_contract::{
    BodyTrait, Choice, Digest, Failure, FanOut, FlowCall, Json, Manifest, NodeType, Pause, Question, Step, StepResult,
    Value, Wake,
};
use flowcell_expr::Binding;
use flowcell_flow::graph::{
    Body, BodyIx, Bound, Edge, EdgeIx, FlowPolicy, Graph, Join, NO_SLOT, Names, Node, NodeIx, NodePolicy, On, Outcome,
    Reference, Retry, RetryOn, Source,
};

use super::loops;

/// The behaviour of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    Done,
    Fail,
    /// Fails with a retryable failure this number of times, then succeeds.
    FailTimes(u32),
    /// Fails in this number of passes of its cycle, then succeeds.
    FailPasses(u32),
    /// Runs its body once per item.
    Each {
        items: u32,
        concurrency: u32,
        /// The number of passes that may fail. With 0, the first failing pass fails the task itself.
        may_fail: u32,
    },
    /// Runs its body once, in at most this number of attempts.
    Scope(u32),
    /// Runs its body this number of times, one pass after the other.
    Loop(u32),
    /// Pauses for a timer.
    After(u64),
    /// Pauses for a checkpoint.
    Checkpoint,
    /// Asks a question.
    Ask,
    /// Waits for a named event.
    Event(&'static str),
    /// Never answers.
    Hang,
    /// Calls a flow.
    Call(&'static str),
    /// Adds one to a state that many tasks share.
    Count,
    /// Makes calls that leave the host, one after the other.
    InTurn(&'static [&'static str]),
    /// Makes calls, and does not wait for them.
    InPassing(&'static [&'static str]),
    /// Makes all calls at the same time.
    Concurrently(&'static [&'static str]),
    /// Opens an agent run. It makes calls, one of which needs the approval of a person, and waits for two messages.
    Agent,
}

/// A node of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) join: Join,
    /// With the join `any`: cancels the nodes that lead only to this one.
    pub(crate) cancel_rest: bool,
    pub(crate) continue_on_error: bool,
    pub(crate) body: Option<PlannedBody>,
    /// The index of the node that undoes this one. It has no edges.
    pub(crate) undo: Option<usize>,
}

/// The flow itself, or a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedBody {
    pub(crate) nodes: Vec<Planned>,
    /// The edges: source, target, and the outcome of the source that fires the edge.
    pub(crate) edges: Vec<(usize, usize, On)>,
    /// Maximum number of passes of each cycle. `None`: cycles do not loop, as in agentic flows. The value of the flow
    /// itself holds for its bodies, too.
    pub(crate) max_passes: Option<u32>,
}

impl Planned {
    pub(crate) fn new(plan: Plan) -> Planned {
        Planned { plan, join: Join::Settled, cancel_rest: false, continue_on_error: false, body: None, undo: None }
    }
}

impl PlannedBody {
    /// Returns the index of the node that a node undoes.
    pub(crate) fn undo_of(&self, node: usize) -> Option<usize> {
        self.nodes.iter().position(|planned| planned.undo == Some(node))
    }

    /// Adds a node that undoes another one.
    #[must_use]
    pub(crate) fn with_undo(mut self, of: usize, plan: Plan) -> PlannedBody {
        self.nodes[of].undo = Some(self.nodes.len());
        self.nodes.push(Planned::new(plan));
        self
    }
}

/// A graph, and the behaviour of its nodes.
pub(crate) struct Scripted {
    pub(crate) graph: Graph,
    pub(crate) plans: Vec<Plan>,
}

/// Lowers a plan to a graph. Node ids are `n0`, `n1` … in the order of the graph's list.
pub(crate) fn lower(flow: &PlannedBody, policy: FlowPolicy) -> Scripted {
    let graph = Graph {
        name: "planned".into(),
        version: None,
        description: None,
        input: Json::object::<&str>([]),
        input_schema: None,
        triggers: Vec::new(),
        run_labels: Default::default(),
        outputs: None,
        strict: false,
        policy,
        nodes: Vec::new(),
        edges: Vec::new(),
        bodies: Vec::new(),
        cycles: Vec::new(),
        views: Default::default(),
        labels: Default::default(),
        names: Names::default(),
    };
    let mut scripted = Scripted { graph, plans: Vec::new() };
    lower_body(&mut scripted, flow, None, &NODE_TYPE);
    if let Some(max_passes) = flow.max_passes {
        loops::let_loop(&mut scripted.graph, max_passes);
    }
    scripted
}

fn lower_body(scripted: &mut Scripted, body: &PlannedBody, owner: Option<NodeIx>, node_type: &Arc<NodeType>) -> BodyIx {
    let body_ix = BodyIx(scripted.graph.bodies.len() as u32);
    let first = scripted.graph.nodes.len();
    let nodes: Vec<_> = (0..body.nodes.len()).map(|slot| NodeIx((first + slot) as u32)).collect();
    let listed: Vec<_> = (0..nodes.len()).filter(|index| body.undo_of(*index).is_none()).collect();
    for (index, planned) in body.nodes.iter().enumerate() {
        scripted.plans.push(planned.plan.clone());
        let undo_of = body.undo_of(index).map(|undone| nodes[undone]);
        let mut node = node(nodes[index], (body_ix, owner, undo_of), planned, node_type);
        node.slot = listed.iter().position(|listed| *listed == index).map_or(NO_SLOT, |slot| slot as u32);
        node.undo = planned.undo.map(|undo| nodes[undo]);
        scripted.graph.nodes.push(node);
    }
    let mut edges = Vec::new();
    for (slot, (from, to, on)) in body.edges.iter().enumerate() {
        let ix = EdgeIx(scripted.graph.edges.len() as u32);
        let edge = Edge {
            orders_only: false,
            from: nodes[*from],
            to: nodes[*to],
            on: *on,
            when: None,
            goes_back: false,
            leaves: None,
            slot: slot as u32,
        };
        scripted.graph.nodes[first + from].outgoing.push(ix);
        scripted.graph.nodes[first + to].incoming.push(ix);
        scripted.graph.edges.push(edge);
        edges.push(ix);
    }
    for (slot, ix) in nodes.iter().enumerate() {
        scripted.graph.nodes[ix.0 as usize].on_cycle = reaches(body, slot, slot);
        for node in rest(body, slot) {
            scripted.graph.nodes[first + node].cancelled_by.push(*ix);
            scripted.graph.nodes[ix.0 as usize].cancels.push(nodes[node]);
        }
    }
    let listed: Vec<_> = listed.into_iter().map(|index| nodes[index]).collect();
    let starts = listed.iter().copied().filter(|ix| scripted.graph.node(*ix).incoming.is_empty()).collect();
    let sinks = listed.iter().copied().filter(|ix| scripted.graph.node(*ix).outgoing.is_empty()).collect();
    let outcome = Outcome::Sinks(sinks);
    let body_of = Body { owner, nodes: listed, edges, starts, cycles: Vec::new(), outcome, absent: Vec::new() };
    scripted.graph.bodies.push(body_of);
    for (slot, planned) in body.nodes.iter().enumerate() {
        if let Some(inner) = &planned.body {
            let inner = lower_body(scripted, inner, Some(nodes[slot]), node_type);
            scripted.graph.nodes[first + slot].body = Some(inner);
        }
    }
    body_ix
}

/// Makes every join `any` of a scope one of `cancelRest`.
pub(crate) fn race(mut body: PlannedBody) -> PlannedBody {
    for node in &mut body.nodes {
        node.cancel_rest = node.join == Join::Any;
    }
    body
}

/// Returns the nodes that a node with `cancelRest` cancels: those from which every edge leads to it, or to another of them.
pub(crate) fn rest(body: &PlannedBody, join: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let targets = |node: usize| body.edges.iter().filter(move |(from, ..)| *from == node).map(|(_, to, _)| *to);
    if !body.nodes[join].cancel_rest {
        return found;
    }
    loop {
        let leads_here = |node: &usize| {
            let mut targets = targets(*node).peekable();
            targets.peek().is_some() && targets.all(|to| to == join || found.contains(&to))
        };
        let candidates = (0..body.nodes.len()).filter(|node| *node != join && !reaches(body, join, *node));
        let more: Vec<_> = candidates.filter(|node| !found.contains(node) && leads_here(node)).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Returns true if a path of at least one edge leads from one node to another.
pub(crate) fn reaches(body: &PlannedBody, from: usize, to: usize) -> bool {
    let mut seen = vec![false; body.nodes.len()];
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for (_, next, _) in body.edges.iter().filter(|(source, _, _)| *source == at) {
            if *next == to {
                return true;
            }
            if !std::mem::replace(&mut seen[*next], true) {
                open.push(*next);
            }
        }
    }
    false
}

/// Returns the references of a node: the flow's input, its incoming edges, facts about the run, its own pass, and the
/// passes of its body. A node that undoes another one has no edges, and refers to the other one.
fn references_of(ix: NodeIx, (owner, undo_of): (Option<NodeIx>, Option<NodeIx>), planned: &Planned) -> Bound<Binding> {
    if let Some(undone) = undo_of {
        let members = [
            ("undo".to_owned(), Json::from("{{ undo }}")),
            ("output".to_owned(), Json::from(format!("{{{{ n{} }}}}", undone.0))),
            ("facts".to_owned(), Json::from("{{ run }} at {{ now }}")),
        ];
        let references =
            vec![Reference::Undo, Reference::Node(Source::current(undone)), Reference::Run, Reference::Now];
        return Bound { expr: Binding::compile(&Json::object(members)).unwrap(), references, names: Names::default() };
    }
    let mut references = vec![Reference::Flow, Reference::Inbound, Reference::Inbounds, Reference::Run, Reference::Now];
    references.push(Reference::Random);
    let mut members = vec![
        ("flow".to_owned(), Json::from("{{ flow.input }}")),
        ("inbound".to_owned(), Json::from("{{ inbound }}")),
        ("text".to_owned(), Json::from("from {{ inbounds }}")),
        ("facts".to_owned(), Json::from("{{ run }} at {{ now }}")),
        ("random".to_owned(), Json::from("{{ uuid() }}")),
    ];
    for owner in owner.into_iter().chain(planned.body.is_some().then_some(ix)) {
        references.push(Reference::Owner(owner));
        members.push((format!("of{}", owner.0), Json::from(format!("{{{{ n{} }}}}", owner.0))));
    }
    Bound { expr: Binding::compile(&Json::object(members)).unwrap(), references, names: Names::default() }
}

fn node(
    ix: NodeIx,
    (body_of, owner, undo_of): (BodyIx, Option<NodeIx>, Option<NodeIx>),
    planned: &Planned,
    node_type: &Arc<NodeType>,
) -> Node {
    let nothing = || Bound {
        expr: Binding::literal(Json::object::<&str>([])),
        references: Vec::<Reference>::new(),
        names: Names::default(),
    };
    let mut policy = NodePolicy { continue_on_error: planned.continue_on_error, ..NodePolicy::default() };
    if let Plan::FailTimes(times) = planned.plan {
        policy.retry.max_attempts = times + 1;
    }
    if let Plan::Scope(attempts) = planned.plan {
        policy.retry = Retry { max_attempts: attempts, on: RetryOn::Any, ..policy.retry };
    }
    if planned.plan == Plan::Count {
        policy.retry.max_attempts = 1_000;
    }
    let mut node_type = node_type.clone();
    if matches!(planned.plan, Plan::Scope(_)) {
        let body = Some(BodyTrait { undoes: true, ..BodyTrait::default() });
        node_type = Arc::new(NodeType { body, ..(*node_type).clone() });
    }
    Node {
        id: format!("n{}", ix.0).into(),
        node_type,
        body_of,
        slot: NO_SLOT,
        input: references_of(ix, (owner, undo_of), planned),
        config: nothing(),
        when: None,
        join: planned.join,
        cancels: Vec::new(),
        cancelled_by: Vec::new(),
        policy,
        undo: None,
        undo_of,
        grants: Arc::default(),
        body: None,
        incoming: Vec::new(),
        outgoing: Vec::new(),
        on_cycle: false,
        cycle: None,
        rebinds: planned.body.is_some(),
        collects: None,
        labels: Default::default(),
    }
}

/// Type of all planned nodes, which is read once for the many graphs of a test.
static NODE_TYPE: LazyLock<Arc<NodeType>> = LazyLock::new(|| {
    let manifest = "name: plan\nversion: 1.0.0\nnodes: [{ type: plan.node, title: A planned node, capabilities: [{ name: outside, reason: To call }] }]";
    let mut node = Manifest::parse(manifest).unwrap().nodes.remove(0);
    node.pack = Some(Digest("00".into()));
    Arc::new(node)
});

/// Returns the answer of a planned node, or `None` if it hangs.
pub(crate) fn perform(plan: &Plan, attempt: u32, woken: Option<&Value>, state: Option<&Value>) -> Option<StepResult> {
    let pause =
        |wake: Wake, state: u64| Ok(Step::Pause(Pause { until: vec![wake], state: Value::from(Json::from(state)) }));
    let failed = woken.and_then(|woken| woken.json().get("error")).is_some();
    let done = || Ok(Step::Done(Value::from(Json::object([("done", Json::from(true))]))));
    let passes = state.and_then(|state| state.json().as_u64()).unwrap_or(0);
    Some(match plan {
        Plan::Hang => return None,
        Plan::Fail => Err(Failure::new("planned", "this node fails")),
        Plan::FailPasses(passes) if attempt <= *passes => Err(Failure::new("planned", "not in this pass")),
        Plan::FailTimes(times) if attempt <= *times => Err(Failure::retryable("planned", "not yet")),
        _ if failed => Err(Failure::new("pass_failed", "a pass or a child failed")),
        Plan::Each { items, concurrency, may_fail } if woken.is_none() => {
            let items = Value::from(Json::array((0..*items).map(Json::from)));
            let concurrency = Some(*concurrency);
            let max_failures = Some(*may_fail).filter(|most| !matches!(most, 0 | &u32::MAX));
            pause(Wake::Each(FanOut { items, concurrency, stop_on_failure: *may_fail == 0, max_failures }), 0)
        }
        Plan::Scope(_) if woken.is_none() => pause(Wake::Body(Value::from(Json::object::<&str>([]))), 0),
        Plan::Loop(count) if passes < u64::from(*count) => {
            pause(Wake::Body(Value::from(Json::object([("iteration", Json::from(passes))]))), passes + 1)
        }
        Plan::After(ms) if woken.is_none() => pause(Wake::After(*ms), 0),
        Plan::Checkpoint if passes < 3 => pause(Wake::Now, passes + 1),
        Plan::Ask if woken.is_none() => {
            let choice = |value: &str| Choice { value: value.into(), label: None };
            let choices = vec![choice("yes"), choice("no")];
            pause(Wake::Answer(Question { prompt: "Well?".into(), choices, ..Question::default() }), 0)
        }
        Plan::Event(name) if woken.is_none() => pause(Wake::Event((*name).into()), 0),
        Plan::Call(name) if woken.is_none() => {
            pause(Wake::Flow(FlowCall { name: (*name).into(), input: Value::from(Json::object::<&str>([])) }), 0)
        }
        _ => done(),
    })
}
