//! The values of references in expressions: recorded outputs, looked up in the state.
//!
//! When a task becomes ready, all values that its input and config refer to are *captured*: looked up and kept until
//! the task ends. So later attempts of the task see the same values.

mod passes;

use std::sync::Arc;

use flowcell_contract::{Failure, Json, VALUE_BYTES, code};
use flowcell_expr::{Binding, Condition, ExprError, Roots, instant_text, metered};
use flowcell_flow::graph::{Bound, EdgeIx, Graph, Names, NodeIx, PassRead, Reference, Source};

pub(crate) use self::passes::seen_through;
use crate::{
    fact::{CallDigest, ScopeId, TaskKey},
    limits::PROBE_WORK,
    state::{Captured, EdgeState, Phase, Round, RunState},
    turn::evaluate,
};

/// Looks up the current values of all references in a task's input and config, at the time `now` (milliseconds since
/// 1970). `None`: there are no references.
pub(crate) fn capture(state: &RunState, key: TaskKey, now: u64) -> Option<Arc<Captured>> {
    let node = state.graph.node(key.node);
    if node.input.references.is_empty() && node.config.references.is_empty() {
        return None;
    }
    let look = |bound: &Bound<Binding>, field| {
        let names = &bound.names;
        let viewpoint = Viewpoint { state, now, scope: key.scope, task: Some(key), field, names };
        bound.references.iter().map(|reference| viewpoint.value(reference)).collect()
    };
    let (input, config) = (&node.input, &node.config);
    Some(Arc::new(Captured { input: look(input, Field::Input), config: look(config, Field::Config) }))
}

/// Completes the captured values of a task that undoes another one, when it becomes ready: `value` is the value of
/// `undo`. The other values are those of the time when the other task succeeded.
pub(crate) fn complete(
    graph: &Graph,
    node: NodeIx,
    captured: Option<&Captured>,
    (value, now): (Option<&Json>, u64),
) -> Option<Arc<Captured>> {
    let node = graph.node(node);
    let captured = captured?;
    let complete = |(reference, before): (&Reference, &Option<Json>)| match reference {
        Reference::Undo => value.cloned().or_else(|| before.clone()),
        Reference::Now => Some(instant(now)),
        _ => before.clone(),
    };
    Some(Arc::new(Captured {
        input: node.input.references.iter().zip(&captured.input).map(complete).collect(),
        config: node.config.references.iter().zip(&captured.config).map(complete).collect(),
    }))
}

/// Renders the input of a node from these captured values, or those members of it that can be rendered.
pub(crate) fn render_input(state: &RunState, node: NodeIx, captured: Option<&Captured>) -> Json {
    let input = &state.graph.node(node).input;
    let values = captured.map_or(&[][..], |captured| &captured.input);
    let roots = Named { graph: &state.graph, bound: input, values };
    let whole = evaluate(|| input.expr.render(&roots));
    whole.unwrap_or_else(|_| evaluate(|| Ok(input.expr.render_members(&roots))).unwrap_or_default())
}

/// Captures the values again when a node that owns a body continues after a pass: looks up the node's own variables
/// and the time, and keeps the other captured values, random ones among them.
pub(crate) fn recapture(state: &RunState, key: TaskKey, now: u64) -> Option<Arc<Captured>> {
    let node = state.graph.node(key.node);
    let captured = state.task(key).captured.as_deref()?;
    let names = &node.input.names;
    let viewpoint = Viewpoint { state, now, scope: key.scope, task: Some(key), field: Field::Input, names };
    let again = |(reference, before): (&Reference, &Option<Json>)| match reference {
        Reference::Owner(owner) if *owner == key.node => viewpoint.value(reference),
        Reference::Now => viewpoint.value(reference),
        _ => before.clone(),
    };
    let input = node.input.references.iter().zip(&captured.input).map(again).collect();
    Some(Arc::new(Captured { input, config: captured.config.clone() }))
}

/// Renders a task's input and config from the captured values.
pub(crate) fn render(state: &RunState, key: TaskKey) -> Result<(Json, Json), Failure> {
    let node = state.graph.node(key.node);
    let captured = state.task(key).captured.as_deref();
    let one = |bound: &Bound<Binding>, values: &[Option<Json>], field: &str| {
        let roots = Named { graph: &state.graph, bound, values };
        let place = |error: &ExprError| format!("{field} of `{}`{}", node.id, error.pointer);
        evaluate(|| bound.expr.render(&roots))
            .map_err(|error| expression_failure(code::BINDING_ERROR, &place(&error), &error))
    };
    let input = one(&node.input, captured.map_or(&[], |captured| &captured.input), "input")?;
    let config = one(&node.config, captured.map_or(&[], |captured| &captured.config), "config")?;
    Ok((input, config))
}

/// Looks up the current values of all references in the outputs of the flow, at the time `now` (milliseconds since 1970).
pub(crate) fn look_up_outputs(state: &RunState, now: u64) -> Box<[Option<Json>]> {
    let Some(outputs) = &state.graph.outputs else { return Box::default() };
    let names = &outputs.names;
    let viewpoint = Viewpoint { state, now, scope: ScopeId::ROOT, task: None, field: Field::Output, names };
    outputs.references.iter().map(|reference| viewpoint.value(reference)).collect()
}

/// Renders the expression of a person from the values of its references.
pub(crate) fn render_probe(
    graph: &Graph,
    expression: &Bound<Binding>,
    values: &[Option<Json>],
) -> Result<Json, Failure> {
    let roots = Named { graph, bound: expression, values };
    let place = |error: &ExprError| format!("the expression{}", error.pointer);
    let value = metered(PROBE_WORK, || expression.expr.render(&roots)).result;
    let value = value.map_err(|error| expression_failure(code::BINDING_ERROR, &place(&error), &error))?;
    check_size(value, "the value of the expression")
}

/// Returns the failure of a binding or a condition. `place` names the binding or condition in the message.
fn expression_failure(code: &str, place: &str, error: &ExprError) -> Failure {
    let code = if error.is_missing { code::MISSING_VALUE } else { code };
    let hint = error.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    Failure::new(code, format!("{place}: {}{hint}", error.message))
}

/// Adds to a failure about the schema of an input or a config the paths that gave the null values in it: of `list: "{{
/// c.value.n }}"`, the path `c.value.n`. Returns any other failure unchanged.
pub(crate) fn with_sources_of_nulls(graph: &Graph, node: NodeIx, failure: Failure) -> Failure {
    if failure.code != code::INVALID_INPUT || !failure.message.contains(NULL) {
        return failure;
    }
    let node = graph.node(node);
    let field = if failure.message.contains(": config: ") { &node.config } else { &node.input };
    let places = failure.message.split(NULL).filter_map(|before| Some(before.rsplit_once("at `")?.1));
    let places = places.take(failure.message.matches(NULL).count());
    let told = places.filter_map(|place| {
        let found = place.split('/').skip(1).try_fold(&field.expr, |binding, step| {
            let index = step.parse::<usize>().ok();
            binding.member(&step.replace("~1", "/").replace("~0", "~")).or_else(|| binding.item(index?))
        });
        Some(format!("; `{}` at `{place}` is null or missing", found?.as_path()?))
    });
    let told: String = told.collect();
    Failure { message: failure.message + &told, ..failure }
}

/// The text between a place and a null value in the message about a value that does not match its schema.
const NULL: &str = "`: null is not ";

/// Renders a task's input, without the members whose rendering fails.
pub(crate) fn render_members(state: &RunState, key: TaskKey) -> Json {
    let input = &state.graph.node(key.node).input;
    let values = state.task(key).captured.as_deref().map_or(&[][..], |captured| &captured.input);
    let roots = Named { graph: &state.graph, bound: input, values };
    evaluate(|| Ok(input.expr.render_members(&roots))).unwrap_or_default()
}

/// Evaluates a condition from the viewpoint of a task: `inbound` refers to the task's incoming edges. `place` names
/// the condition in error messages. `now` is the time of the decision, in milliseconds since 1970.
pub(crate) fn holds(
    (state, now): (&RunState, u64),
    task: TaskKey,
    condition: &Bound<Condition>,
    (field, place): (Field, &str),
) -> Result<bool, Failure> {
    let viewpoint = Viewpoint { state, now, scope: task.scope, task: Some(task), field, names: &condition.names };
    let roots = Live { viewpoint, references: &condition.references };
    let place = |error: &ExprError| format!("{place}{}", error.pointer);
    evaluate(|| condition.expr.evaluate(&roots))
        .map_err(|error| expression_failure(code::CONDITION_ERROR, &place(&error), &error))
}

/// Renders the output binding of a body or of the flow, with the values that its references have in this scope. `now` is
/// the time of the decision, in milliseconds since 1970.
pub(crate) fn render_in(
    (state, now): (&RunState, u64),
    scope: ScopeId,
    binding: &Bound<Binding>,
) -> Result<Json, Failure> {
    let viewpoint = Viewpoint { state, now, scope, task: None, field: Field::Output, names: &binding.names };
    let roots = Live { viewpoint, references: &binding.references };
    let owner = state.graph.body(state.scope(scope).body).owner;
    let what = owner.map_or("outputs".to_owned(), |owner| format!("bodyOutput of `{}`", state.graph.node(owner).id));
    let place = |error: &ExprError| format!("{what}{}", error.pointer);
    let value = evaluate(|| binding.expr.render(&roots));
    let value = value.map_err(|error| expression_failure(code::BINDING_ERROR, &place(&error), &error))?;
    check_size(value, "the value of the output")
}

/// Returns the value if its JSON text has at most [`VALUE_BYTES`] bytes and a limited depth, and otherwise the failure
/// `output_too_large`. A part that the value contains several times counts each time, although memory holds it once.
pub(crate) fn check_size(value: Json, what: &str) -> Result<Json, Failure> {
    match value.measure(VALUE_BYTES) {
        Ok(_) => Ok(value),
        Err(misfit) => Err(Failure::new(code::OUTPUT_TOO_LARGE, format!("{what} {misfit}; use a smaller part"))),
    }
}

/// Resolves the root names (first identifiers) of an expression from captured values.
struct Named<'a> {
    graph: &'a Graph,
    bound: &'a Bound<Binding>,
    values: &'a [Option<Json>],
}

impl Roots for Named<'_> {
    fn root(&self, name: &str) -> Option<Json> {
        let is_named = |reference: &Reference| self.graph.is_named(reference, &self.bound.names, name);
        let at = self.bound.references.iter().position(is_named)?;
        self.values.get(at).cloned()?
    }

    fn is_strict(&self) -> bool {
        self.graph.strict
    }
}

/// Resolves the root names (first identifiers) of an expression directly from the state.
struct Live<'a> {
    viewpoint: Viewpoint<'a>,
    references: &'a [Reference],
}

impl Roots for Live<'_> {
    fn root(&self, name: &str) -> Option<Json> {
        let (graph, names) = (&self.viewpoint.state.graph, self.viewpoint.names);
        let reference = self.references.iter().find(|reference| graph.is_named(reference, names, name))?;
        self.viewpoint.value(reference)
    }

    fn is_strict(&self) -> bool {
        self.viewpoint.state.graph.strict
    }
}

/// The part of a flow whose references are looked up. Each part has random values of its own.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// The input of a node.
    Input,
    /// The config of a node.
    Config,
    /// The condition of a node.
    When,
    /// The condition of an edge.
    Edge(EdgeIx),
    /// The output of a body or of the flow.
    Output,
}

/// The scope, and possibly the task, from which references are looked up.
struct Viewpoint<'a> {
    state: &'a RunState,
    /// The time, in milliseconds since 1970.
    now: u64,
    scope: ScopeId,
    task: Option<TaskKey>,
    field: Field,
    /// The names by which the expression calls nodes.
    names: &'a Names,
}

impl Viewpoint<'_> {
    /// Returns the value of a reference. If the reference has no value, returns null, or `None` in a strict flow.
    fn value(&self, reference: &Reference) -> Option<Json> {
        let state = self.state;
        let value = match reference {
            Reference::Flow => Some(state.flow_root.clone()),
            Reference::Node(source) => self.output(source),
            Reference::Nodes(sources) => {
                let outputs = sources.iter().filter_map(|source| Some((source.node, self.output(source)?)));
                Some(Json::object(outputs.map(|(node, output)| (self.name(node), output))))
            }
            Reference::Owner(owner) => self.owner(*owner),
            Reference::Alias(owner, _) => {
                let pass = state.pass_of(self.scope, *owner);
                pass.and_then(|pass| pass.variables.get(state.graph.node(*owner).node_type.aliased_variable()).cloned())
            }
            Reference::Inbound => self.inbound(),
            Reference::Inbounds => self.inbounds(),
            Reference::Run => Some(self.run()),
            Reference::Task => self.task(),
            Reference::Tenant => Some(self.tenant()),
            // The value is known when the undo begins.
            Reference::Undo => Some(Json::Null),
            Reference::Now => Some(instant(self.now)),
            Reference::Random => Some(self.seed()),
            Reference::Facts => Some(self.facts()),
        };
        if state.graph.strict { value } else { Some(value.unwrap_or_default()) }
    }

    /// Returns the name by which the expression calls a node.
    fn name(&self, node: NodeIx) -> Arc<str> {
        self.names.name(&self.state.graph.node(node).id).0.clone()
    }

    fn run(&self) -> Json {
        let about = self.state.about.as_ref();
        let labels = about.into_iter().flat_map(|about| &about.labels);
        let labels = labels.map(|(name, value)| (name.as_str(), Json::from(value.as_str())));
        Json::object([
            ("id", about.map_or(Json::Null, |about| Json::from(about.run.as_str()))),
            ("started", instant(self.state.began)),
            ("labels", Json::object(labels)),
        ])
    }

    fn task(&self) -> Option<Json> {
        self.task.map(|key| {
            let cycle = self.state.cycle_of(key.node);
            let pass = cycle.map_or(Json::Null, |cycle| Json::from(self.state.round(key.scope, cycle).pass));
            Json::object([("id", Json::from(self.state.address(key))), ("pass", pass)])
        })
    }

    fn tenant(&self) -> Json {
        self.state.about.as_ref().map_or(Json::Null, |about| Json::from(about.tenant.as_str()))
    }

    /// Returns the facts for nodes that get them as a field of their input.
    fn facts(&self) -> Json {
        let flow = |member| (member, self.state.flow_root.get(member).cloned().unwrap_or_default());
        Json::object([
            ("run", self.run()),
            ("flow", Json::object(["name", "version"].map(flow))),
            ("task", self.task().unwrap_or_default()),
            ("tenant", self.tenant()),
        ])
    }

    /// Returns the seed of the random values in this field: it follows from the seed of the run, from the address of the
    /// task or of the pass, and from the field. So it is the same whenever the journal is folded, and for all attempts.
    fn seed(&self) -> Json {
        let address = match self.task {
            // After an undo, the next attempt has other values, as its calls have other keys. So has the undo itself.
            Some(key) => match self.state.graph.node(key.node).undo_of {
                Some(undone) => format!("{}~undo", self.state.key_address(TaskKey { node: undone, ..key })),
                None => self.state.key_address(key),
            },
            None => self.state.scope(self.scope).path.as_str().to_owned(),
        };
        let field = match self.field {
            Field::Input => "input".to_owned(),
            Field::Config => "config".to_owned(),
            Field::When => "when".to_owned(),
            Field::Edge(edge) => format!("edge {}", edge.0),
            Field::Output => "output".to_owned(),
        };
        let place = Json::array([Json::from(self.state.seed), Json::from(address)]);
        Json::from(&*CallDigest::of("random", &field, &place).0)
    }

    fn output(&self, source: &Source) -> Option<Json> {
        let (state, node) = (self.state, source.node);
        let id = state.scope_of(self.scope, node)?;
        match &source.pass {
            PassRead::Previous(cycle) if state.loops => {
                Some(state.round(id, *cycle).previous.get(&node).cloned().unwrap_or_default())
            }
            PassRead::Left(edges) if state.loops => passes::seen_behind(state, id, edges, node).output,
            _ => state.task(TaskKey { scope: id, node }).output.clone(),
        }
    }

    /// Returns the variables of the owner's pass that contains this scope. If the task is the owner itself, returns
    /// the variables of its latest pass.
    fn owner(&self, owner: flowcell_flow::graph::NodeIx) -> Option<Json> {
        if let Some(key) = self.task.filter(|key| key.node == owner) {
            let details = self.state.task(key).details.as_ref();
            let variables = details.map(|details| details.variables.clone()).unwrap_or_default();
            return Some(with_last(&variables, details.map(|details| details.last.clone()).unwrap_or_default()));
        }
        self.state.pass_of(self.scope, owner).map(|pass| pass.variables.clone())
    }

    fn inbound(&self) -> Option<Json> {
        let key = self.task?;
        let node = self.state.graph.node(key.node);
        if let Some(round) = self.round_of_entry(key) {
            let began_by = round.began_by.first().map(|(_, value)| value.clone());
            let edge = || self.fired_edges(key).next();
            return Some(began_by.or_else(|| Some(edge_value(self.state, key.scope, edge()?))).unwrap_or_default());
        }
        let edge = match node.join {
            flowcell_flow::graph::Join::Any => self.state.task(key).first_fired?,
            _ => self.fired_edges(key).next()?,
        };
        if self.state.graph.edge(edge).orders_only {
            return None;
        }
        Some(edge_value(self.state, key.scope, edge))
    }

    fn inbounds(&self) -> Option<Json> {
        let key = self.task?;
        let graph = &self.state.graph;
        let source = |edge: EdgeIx| self.name(graph.edge(edge).from);
        if let Some(round) = self.round_of_entry(key).filter(|round| round.pass > 0) {
            return Some(Json::object(round.began_by.iter().map(|(edge, value)| (source(*edge), value.clone()))));
        }
        let fired = self.fired_edges(key);
        Some(Json::object(fired.map(|edge| (source(edge), edge_value(self.state, key.scope, edge)))))
    }

    /// Returns the current pass of the cycle that begins at the task's node, if one does.
    fn round_of_entry(&self, key: TaskKey) -> Option<&Round> {
        let cycle = self.state.cycle_of(key.node)?;
        let is_entry = self.state.graph.cycle(cycle).entry == key.node;
        is_entry.then(|| self.state.round(key.scope, cycle))
    }

    /// Returns the edges that have fired and that the task waited for, in the order of the file. Leaves out those that only
    /// order their nodes.
    fn fired_edges(&self, key: TaskKey) -> impl Iterator<Item = EdgeIx> {
        let graph = &self.state.graph;
        let incoming = graph.node(key.node).incoming.iter().copied().filter(|edge| !graph.edge(*edge).orders_only);
        incoming.filter(move |edge| !self.state.goes_back(*edge) && self.fired(key.scope, *edge))
    }

    fn fired(&self, scope: ScopeId, edge: EdgeIx) -> bool {
        self.state.scope(scope).edges[self.state.graph.edge(edge).slot as usize] == EdgeState::Fired
    }
}

/// Returns the value of an edge: the output of its source. For an error edge it is `{ failed, error, input }`. An edge that
/// left a cycle in an earlier pass keeps the value of this pass.
pub(crate) fn edge_value(state: &RunState, scope: ScopeId, edge: EdgeIx) -> Json {
    if let Some(left) = state.scope(scope).left.iter().find(|left| left.edge == edge) {
        return left.value.clone();
    }
    let source = TaskKey { scope, node: state.graph.edge(edge).from };
    let task = state.task(source);
    let output = task.output.clone().unwrap_or_default();
    if task.phase != Phase::Failed || state.graph.node(source.node).policy.continue_on_error {
        return output;
    }
    let input = task.failed_input.clone().unwrap_or_default();
    Json::object([
        ("failed", Json::from(true)),
        ("error", output.get("error").cloned().unwrap_or_default()),
        ("input", input),
    ])
}

/// Returns the text of an instant, in UTC.
fn instant(milliseconds: u64) -> Json {
    instant_text(milliseconds).map_or(Json::Null, Json::from)
}

/// Returns the owner's variables with the member `last`, which replaces an earlier one.
pub(crate) fn with_last(variables: &Json, last: Json) -> Json {
    let members = variables.as_object().into_iter().flatten();
    let members = members.filter(|(key, _)| &***key != "last").map(|(key, value)| (key.clone(), value.clone()));
    Json::object(members.chain([(Arc::from("last"), last)]))
}
