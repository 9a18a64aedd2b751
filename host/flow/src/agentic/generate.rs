//! Generates the nodes and edges of the graph dialect from steps.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use flowcell_contract::{BuiltIn, Catalog, Json, Lookup, TypeRef};

use crate::{
    agentic::{
        agent::AgentDefinition,
        label::{self, FlowLabel, PostponedRule, SessionLabel, StepLabel},
        links::{Link, LinkKind, Links},
        loops::{Effect, Loops},
        origin::{Origin, Start, args_of, whole_binding},
        permission::{Action, Permission},
        placeholder::PlaceholderValues,
        predicate::POSTPONED,
        prompt_schema::with_prompt,
        read::{RawRule, RawStep, RawSteps},
        step_agent::StepAgent,
    },
    edges::RawEdge,
    graph::{FlowPolicy, Jitter, Join, NodePolicy, On, Retry, RetryOn},
    literal,
    read::{RawBody, RawFlow, RawNode},
    yaml::{Span, Tree},
};

/// The node type of every step.
const NODE_TYPE: &str = "agent.run";
/// The parameters of an agent that become members of `sampling` in the node's config.
const SAMPLING: [&str; 6] = ["temperature", "topP", "maxTokens", "stop", "seed", "effort"];
/// Maximum number of tool calls that `agent.run` makes by default. A step with more turns gets as many calls.
const DEFAULT_TOOL_CALLS: u64 = 50;
/// The capabilities that a node gets from the definition of its agent.
const GRANTED: [BuiltIn; 2] = [BuiltIn::Model, BuiltIn::Tools];

/// A checked agentic flow, and the settings with which its graph is generated.
pub(crate) struct Generator<'a> {
    pub(crate) name: &'a str,
    pub(crate) flow: &'a RawSteps<'a>,
    pub(crate) links: &'a Links,
    pub(crate) loops: &'a Loops,
    pub(crate) agents: &'a [StepAgent],
    /// The indices of the steps that a run starts with. Only links of a loop start these steps again.
    pub(crate) begin: &'a [usize],
    /// True if the run starts as the flow defines it, false if it starts with postponed steps.
    pub(crate) at_first: bool,
    /// Prefix of the session ids.
    pub(crate) prefix: Option<&'a str>,
    pub(crate) catalog: &'a Catalog,
}

/// The generated nodes and edges. [`lower`](crate::lower) builds the graph from them.
pub(crate) struct Generated<'a> {
    generator: Generator<'a>,
    /// Schema of the arguments.
    args: Option<Tree>,
    nodes: Vec<GeneratedNode>,
    edges: Vec<GeneratedEdge<'a>>,
}

struct GeneratedNode {
    step: usize,
    input: Tree,
    config: Tree,
    grants: Tree,
}

struct GeneratedEdge<'a> {
    link: &'a Link,
    when: Option<Tree>,
}

impl<'a> Generator<'a> {
    /// Generates nodes for the steps that a run can reach.
    pub(crate) fn generate(self) -> Generated<'a> {
        let reached = self.links.reached(self.begin, false);
        let edges = self.links.all.iter().filter(|link| self.can_fire(link, &reached));
        let edges = edges.map(|link| GeneratedEdge { link, when: self.when(link) }).collect();
        let mut steps: Vec<_> = (0..self.flow.steps.len()).filter(|step| reached.contains(step)).collect();
        if !self.at_first {
            steps.sort_by_key(|step| self.loops.rank(*step));
        }
        let nodes = steps.into_iter().map(|step| self.node(step, &reached)).collect();
        let args = self.flow.args.filter(|_| self.at_first).map(with_prompt);
        Generated { generator: self, args, nodes, edges }
    }

    /// Returns true if the edge of a link can fire. A step runs only once, except in a loop: so the edge to a step in `begin`
    /// and the edge from a step to itself never fire outside of loops.
    fn can_fire(&self, link: &Link, reached: &HashSet<usize>) -> bool {
        let leads_on = match self.loops.effect(link) {
            Effect::Back => true,
            Effect::Onward => link.from != link.to,
            Effect::None => self.loops.is_empty() && link.from != link.to,
        };
        let starts = self.begin.contains(&link.to) && !self.loops.share(link.from, link.to);
        !link.postponed && leads_on && reached.contains(&link.from) && !starts
    }

    /// Returns the expression for the number of the present iteration of the loop around a step.
    fn iteration(&self, step: usize) -> &'static str {
        if self.loops.contains(step) { "(task.pass + 1)" } else { "1" }
    }

    fn when(&self, link: &Link) -> Option<Tree> {
        let step = &self.flow.steps[link.from];
        let rule = rule(step, link)?;
        let values = PlaceholderValues { args: &args_of(&step.id), iteration: self.iteration(link.from) };
        Some(literal::unescaped(&rule.when.as_ref()?.condition(values), rule.span))
    }

    fn node(&self, index: usize, reached: &HashSet<usize>) -> GeneratedNode {
        let step = &self.flow.steps[index];
        let span = step.id_span;
        let origin = self.origin_of_step(index, reached);
        let args = origin.args(self.at_first);
        let text = |expression: String| literal::text(whole_binding(&expression), span);
        let values = PlaceholderValues { args: &args, iteration: self.iteration(index) };
        let prompt = literal::text(step.prompt.binding(values), step.prompt_span);
        let mut input = vec![("prompt", prompt), ("args", text(args))];
        input.extend(origin.previous().map(|previous| ("previous", text(previous))));
        input.extend(origin.from().map(|from| ("from", text(from))));
        GeneratedNode {
            step: index,
            input: literal::map(span, input),
            config: literal::tree(&self.config(index), span),
            grants: literal::tree(&self.grants(index), span),
        }
    }

    /// Returns the way in which a run reaches a step.
    fn origin_of_step(&self, index: usize, reached: &HashSet<usize>) -> Origin {
        let start = self.begin.contains(&index).then(|| match self.at_first {
            true => Start::First,
            false => Start::Postponed(self.flow.steps[index].id.clone()),
        });
        let ways = || self.links.to(index).filter(|link| self.can_fire(link, reached)).map(|link| link.kind);
        Origin {
            start,
            success: ways().any(|kind| kind != LinkKind::Fallback),
            error: ways().any(|kind| kind == LinkKind::Fallback),
        }
    }

    /// Returns the node's config. Agents of a flow run unattended, so every tool call that the definition does not deny
    /// is allowed.
    fn config(&self, index: usize) -> Json {
        let step_agent = &self.agents[index];
        let mut config = vec![("agent", Json::from(step_agent.name.as_str()))];
        if let Some(agent) = &step_agent.definition {
            config.extend(definition_config(agent));
        }
        let own = self.flow.steps[index].output.map(Tree::json);
        let inherited = step_agent.definition.as_ref().and_then(|agent| agent.output.clone()).map(Json::from);
        config.extend(own.or(inherited).map(|schema| ("output", Json::object([("schema", schema)]))));
        if let Some(turns) = self.flow.steps[index].max_turns {
            config.retain(|(key, _)| *key != "maxModelCalls");
            config.push(("maxModelCalls", Json::from(turns)));
            if turns > DEFAULT_TOOL_CALLS {
                config.push(("maxToolCalls", Json::from(turns)));
            }
        }
        config.push(("session", label::to_json(&self.session(index))));
        Json::object(config)
    }

    /// Returns the node's grants: those parts of the agent's definition that grant the capabilities in [`GRANTED`].
    fn grants(&self, index: usize) -> Json {
        let Lookup::Found(kind) = self.catalog.lookup(&TypeRef::parse(NODE_TYPE)) else {
            return Json::object::<&str>([]);
        };
        let definition = self.agents[index].definition.as_deref();
        let grant = |capability: BuiltIn| match capability {
            BuiltIn::Model => definition.and_then(|agent| agent.model.clone()).map_or(every(), |model| texts(&[model])),
            _ => texts(definition.map(|agent| agent.tools.as_slice()).unwrap_or_default()),
        };
        let asked = GRANTED.into_iter().filter(|capability| kind.asks_for(capability.name()));
        Json::object(asked.map(|capability| (capability.name(), grant(capability))))
    }

    fn session(&self, index: usize) -> SessionLabel {
        let step = &self.flow.steps[index];
        let same =
            |link: &&Link| step.fork && link.from != index && self.agents[link.from].name == self.agents[index].name;
        let same = self.links.to(index).filter(same);
        let mut same_agent: Vec<_> = same.map(|link| self.flow.steps[link.from].id.clone()).collect();
        same_agent.dedup();
        let (flow, prefix) = (self.name.to_owned(), self.prefix.map(str::to_owned));
        SessionLabel { flow, step: step.id.clone(), fork: step.fork, same_agent, prefix }
    }

    /// Returns the label of the graph.
    fn flow_label(&self) -> FlowLabel {
        let id = |step: &usize| self.flow.steps[*step].id.clone();
        FlowLabel {
            title: self.flow.title.clone(),
            disabled: self.flow.disabled,
            first: id(&0),
            begin: self.begin.iter().map(id).collect(),
            steps: self.flow.steps.iter().map(|step| step.id.clone()).collect(),
            handled: self
                .links
                .all
                .iter()
                .filter(|link| link.kind == LinkKind::Fallback && link.from != link.to)
                .map(|link| id(&link.from))
                .collect(),
            prefix: self.prefix.map(str::to_owned),
            own_prefix: self.flow.session.prefix.clone(),
            restarts: self.flow.session.restarts,
        }
    }

    fn step_label(&self, index: usize) -> StepLabel {
        let step = &self.flow.steps[index];
        let postponed = step.rules.iter().filter(|rule| rule.postpone).map(|rule| PostponedRule {
            then: rule.then.0.clone(),
            when: rule.when.as_ref().map(|when| when.condition(POSTPONED)),
            written: rule.written.as_ref().map(|(written, _)| written.clone()),
        });
        StepLabel {
            step: step.id.clone(),
            agent: self.agents[index].name.clone(),
            session: self.session(index),
            postponed: postponed.collect(),
        }
    }
}

impl Generated<'_> {
    /// Returns the flow in the graph dialect.
    pub(crate) fn flow(&self) -> RawFlow<'_> {
        let Generator { name, flow, .. } = &self.generator;
        RawFlow {
            name: (*name).to_owned(),
            version: None,
            description: flow.description.clone(),
            input: None,
            input_schema: self.args.as_ref(),
            outputs: None,
            strict: false,
            triggers: None,
            labels: Default::default(),
            policy: FlowPolicy { fail_fast: false, ..FlowPolicy::default() },
            max_passes: None,
            defaults: Default::default(),
            nodes: self.nodes.iter().map(|node| self.raw_node(node)).collect(),
            edges: self.edges.iter().map(|edge| self.raw_edge(edge)).collect(),
            is_agentic: true,
            starts: self.starts(),
            vars: None,
            references: None,
            head: flow.head,
        }
    }

    /// Returns the nodes at which a run begins that goes on inside a loop. Edges of the loop lead to some of them.
    fn starts(&self) -> Option<Vec<usize>> {
        let Generator { begin, at_first, loops, .. } = &self.generator;
        if *at_first || loops.is_empty() {
            return None;
        }
        Some((0..self.nodes.len()).filter(|node| begin.contains(&self.nodes[*node].step)).collect())
    }

    fn raw_node<'s>(&'s self, node: &'s GeneratedNode) -> RawNode<'s> {
        let step = &self.generator.flow.steps[node.step];
        RawNode {
            id: step.id.clone(),
            id_span: step.id_span,
            type_name: NODE_TYPE.to_owned(),
            type_span: step.id_span,
            input: Some(&node.input),
            config: Some(&node.config),
            prompt_file: None,
            when: None,
            join: Some((Join::Any, step.id_span)),
            cancel_rest: None,
            policy: policy(step),
            own_policy: None,
            grants: Some(&node.grants),
            body: RawBody::None,
            body_span: step.id_span,
            body_output: None,
            undo: None,
            inline_owner: None,
        }
    }

    fn raw_edge<'s>(&'s self, edge: &'s GeneratedEdge<'_>) -> RawEdge<'s> {
        let steps = &self.generator.flow.steps;
        let (from, to) = (&steps[edge.link.from], &steps[edge.link.to]);
        let end = |step: &RawStep<'_>, span: Span| (step.id.clone(), span);
        RawEdge {
            from: end(from, edge.link.span),
            to: end(to, edge.link.span),
            on: if edge.link.kind == LinkKind::Fallback { On::Error } else { On::Success },
            when: edge.when.as_ref().map(Cow::Borrowed),
            label: None,
            is_short: false,
            max_passes: self.max_passes(edge.link),
            orders_only: false,
            span: edge.link.span,
        }
    }

    /// Returns the maximum number of iterations of the loop whose next iteration a link begins.
    fn max_passes(&self, link: &Link) -> Option<(u32, Span)> {
        let loops = self.generator.loops;
        (loops.effect(link) == Effect::Back).then(|| (loops.max_iterations(link.to), link.span))
    }

    /// Returns the label of the graph, and the labels of the nodes in their order.
    pub(crate) fn labels(&self) -> (FlowLabel, impl Iterator<Item = StepLabel>) {
        let steps = self.nodes.iter().map(|node| self.generator.step_label(node.step));
        (self.generator.flow_label(), steps)
    }
}

fn rule<'s>(step: &'s RawStep<'_>, link: &Link) -> Option<&'s RawRule> {
    match link.kind {
        LinkKind::Rule(index) => step.rules.get(index),
        LinkKind::Fallback => None,
    }
}

fn policy(step: &RawStep<'_>) -> NodePolicy {
    let retry = Retry {
        max_attempts: step.fallback.retry + 1,
        backoff_ms: step.fallback.delay_ms,
        factor: 1.0,
        max_backoff_ms: step.fallback.delay_ms,
        jitter: Jitter::None,
        on: RetryOn::Any,
        rules: Arc::default(),
    };
    NodePolicy { timeout_ms: step.timeout_ms, retry, ..NodePolicy::default() }
}

fn definition_config(agent: &AgentDefinition) -> Vec<(&'static str, Json)> {
    let number = |key, number: Option<u64>| number.map(|number| (key, Json::from(number)));
    let text = |key, text: &Option<String>| text.as_deref().map(|text| (key, Json::from(text)));
    let mut config = vec![("system", Json::from(agent.system.as_str())), ("tools", texts(&agent.tools))];
    config.extend(text("provider", &agent.provider));
    config.extend(text("model", &agent.model));
    config.extend(number("maxTurns", agent.max_turns));
    config.extend(number("maxModelCalls", agent.max_model_calls));
    // `sampling` holds the parameters that all providers share, `params` those of a single provider.
    let (sampling, params): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
        agent.params.clone().into_iter().partition(|(name, _)| SAMPLING.contains(&name.as_str()));
    if !sampling.is_empty() {
        config.push(("sampling", serde_json::Value::Object(sampling).into()));
    }
    if !params.is_empty() {
        config.push(("params", serde_json::Value::Object(params).into()));
    }
    config.push(("permissions", permissions(&agent.permissions)));
    config
}

/// Returns the rules as JSON. In them `allow` replaces `ask`, because no person is present during the run.
fn permissions(rules: &[Permission]) -> Json {
    let answered = |rule: &Permission| {
        let action = if rule.action == Action::Deny { Action::Deny } else { Action::Allow };
        label::to_json(&Permission { action, ..rule.clone() })
    };
    Json::object([("default", Json::from("allow")), ("rules", Json::array(rules.iter().map(answered)))])
}

fn texts(texts: &[String]) -> Json {
    Json::array(texts.iter().map(|text| Json::from(text.as_str())))
}

fn every() -> Json {
    Json::array([Json::from("*")])
}
