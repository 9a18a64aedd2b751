//! Data of the agentic dialect for the code that handles runs. Nodes and graphs carry these data in labels, which the
//! runtime does not read.

use flowcell_contract::Json;
use flowcell_expr::Condition;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    agentic::flow_session::SessionPrefix,
    graph::{Graph, Node},
};

/// The label's name on graphs and nodes.
pub(crate) const LABEL: &str = "agentic";
/// The name of the label that contains the step id of a node. The events of the node's agent runs include this id.
pub(crate) const STEP_ID: &str = "flowStepId";
/// The beginning of the text that a step receives as the output of the preceding step if that step failed. The reason
/// of the failure follows.
pub(crate) const FAILED_BEFORE: &str = "The step before failed: ";

/// The agentic label of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowLabel {
    /// Display title of the flow. The flow's name comes from its file.
    pub title: Option<String>,
    /// If true, the flow cannot be run.
    pub disabled: bool,
    /// The first step. Its session is the root of all sessions.
    pub first: String,
    /// The steps that this graph starts with.
    pub begin: Vec<String>,
    /// All steps of the flow, including steps that this graph does not reach.
    pub steps: Vec<String>,
    /// The steps with a `fallback.to`, which handles their failure.
    pub handled: Vec<String>,
    /// Prefix of the session ids. With `None` the sessions are not saved, so later runs cannot continue them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The prefix that the flow itself names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_prefix: Option<SessionPrefix>,
    /// If true, a run after one with failed steps begins with the first step instead of the failed ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
}

/// The agentic label of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepLabel {
    /// The step's id, `flowStepId` in events.
    pub step: String,
    /// Name of the step's agent.
    pub agent: String,
    /// The session in which the step's agent runs.
    pub session: SessionLabel,
    /// The rules with `postpone: true`. Their target steps start in the next run.
    pub postponed: Vec<PostponedRule>,
}

/// The session of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionLabel {
    /// Name of the flow.
    pub flow: String,
    /// Id of the step.
    pub step: String,
    /// If true and if the preceding step has the same agent, the session starts with a copy of the preceding step's
    /// history.
    pub fork: bool,
    /// If `fork` is true, the steps that lead to this step by a rule or a fallback and have the same agent.
    pub same_agent: Vec<String>,
    /// Prefix of the session id. With `None` the session is not saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

impl SessionLabel {
    /// Returns the session's id.
    pub fn id(&self, prefix: &str) -> String {
        session_id(prefix, &self.flow, &self.step)
    }
}

/// A rule with `postpone: true`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PostponedRule {
    /// Id of the step that the next run starts with.
    pub then: String,
    /// The condition of the rule over `args` and `step.iteration`: the text of an expression, or an object with `and`,
    /// `or` or `not`. With `None` the rule always applies.
    pub when: Option<Json>,
    /// The text of the rule's `if`, as the author wrote it; `when` is its translation to the expression language.
    pub written: Option<String>,
}

/// A step that a run has postponed to the next run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Postponed {
    /// Id of the postponed step.
    pub step: String,
    /// Arguments of the step.
    pub args: Json,
    /// The output of the preceding step, as text.
    pub previous: String,
    /// The id of the preceding step.
    pub from: String,
}

/// Returns the input of a run that starts with postponed steps. `args` are the flow's original arguments, which
/// its first step got, even if the run that postponed the steps was itself such a run.
pub fn resume_input(args: &Json, postponed: &[Postponed]) -> Json {
    let step = |postponed: &Postponed| {
        let texts = [("previous", &postponed.previous), ("from", &postponed.from)];
        let texts = texts.map(|(key, text)| (key, Json::from(text.as_str())));
        (postponed.step.clone(), Json::object([("args", postponed.args.clone())].into_iter().chain(texts)))
    };
    Json::object([("args", args.clone()), ("steps", Json::object(postponed.iter().map(step)))])
}

/// Returns the output of an agent node as text: its structured output as JSON if there is one, otherwise its result.
pub fn output_text(output: &Json) -> String {
    let structured = output.get("structuredOutput").filter(|structured| !structured.is_null());
    match structured.or_else(|| output.get("result")) {
        Some(Json::String(text)) => text.to_string(),
        Some(Json::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Returns the id of a step's session: `prefix-flow-step`.
pub fn session_id(prefix: &str, flow: &str, step: &str) -> String {
    format!("{prefix}-{flow}-{step}")
}

/// Returns the key in the flow's durable state under which the messages of a step's session are stored.
pub fn state_key(prefix: &str, flow: &str, step: &str) -> String {
    format!("session/{flow}/{step}/{prefix}")
}

/// Creates the record of a step that a later run starts with. `before` describes the preceding step: its id, its output
/// or the reason of its failure as text, and true if it failed. It is `None` if there is no preceding step.
pub fn postponed_step(step: &str, args: Json, before: Option<(&str, &str, bool)>) -> Postponed {
    let (from, output, failed) = before.unwrap_or_default();
    let previous = if failed { format!("{FAILED_BEFORE}{output}") } else { output.to_owned() };
    Postponed { step: step.to_owned(), args, previous, from: from.to_owned() }
}

/// Returns the agentic label of a graph, if it has one.
pub fn flow_label(graph: &Graph) -> Option<FlowLabel> {
    parse(graph.labels.get(LABEL)?)
}

/// Returns the agentic label of a node, if it has one.
pub fn step_label(node: &Node) -> Option<StepLabel> {
    parse(node.labels.get(LABEL)?)
}

/// Returns the steps that the rules of a step postpone to the next run, given the output of the step and the number of
/// its iteration, from 1. Each of them appears once, even if several rules lead to it. A condition that fails to
/// evaluate counts as false.
pub fn postponed(label: &StepLabel, output: &Json, iteration: u32) -> Vec<Postponed> {
    let args = output.get("args").cloned().unwrap_or_else(|| Json::object::<&str>([]));
    let step = Json::object([("iteration", Json::from(iteration))]);
    let roots = Json::object([("args", args.clone()), ("step", step)]);
    let holds = |rule: &&PostponedRule| {
        let Some(when) = &rule.when else { return true };
        let condition = Condition::compile(when);
        condition.is_ok_and(|condition| condition.evaluate(&roots).unwrap_or_default())
    };
    let mut left: Vec<Postponed> = Vec::new();
    for rule in label.postponed.iter().filter(holds) {
        if left.iter().all(|other| other.step != rule.then) {
            let (args, previous, from) = (args.clone(), output_text(output), label.step.clone());
            left.push(Postponed { step: rule.then.clone(), args, previous, from });
        }
    }
    left
}

/// Serializes a label.
pub(crate) fn to_json<T: Serialize>(label: &T) -> Json {
    serde_json::to_value(label).map(Json::from).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(label: &Json) -> Option<T> {
    serde_json::from_value(label.to_serde()).ok()
}
