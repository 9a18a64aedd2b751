//! What this dialect needs once a run is under way. It travels as opaque labels; nothing that runs a graph reads them.

use flowcell_contract::Json;
use flowcell_expr::Condition;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::graph::{Graph, Node};

/// The label's name, on graphs and on nodes.
pub(crate) const LABEL: &str = "agentic";
/// The label of a node that events of its agent runs show.
pub(crate) const STEP_ID: &str = "flowStepId";
/// What stands before the reason of a failure, where the output of a step would.
pub(crate) const FAILED_BEFORE: &str = "The step before failed: ";

/// What the label of a graph says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowLabel {
    /// What people call the flow; its own name is its file's.
    pub title: Option<String>,
    /// Whether it refuses to run.
    pub disabled: bool,
    /// The first step, whose session is the root of all sessions.
    pub first: String,
    /// The steps with which this graph begins.
    pub begin: Vec<String>,
    /// All steps, those included that this graph does not come to.
    pub steps: Vec<String>,
    /// Those of them whose failure another step takes over.
    pub handled: Vec<String>,
    /// What the ids of the sessions begin with; none: nothing is left to later runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

/// What the label of a node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepLabel {
    /// The step, `flowStepId` in events.
    pub step: String,
    /// The agent's name.
    pub agent: String,
    /// Its session.
    pub session: SessionLabel,
    /// Rules that store their target for the next run.
    pub postponed: Vec<PostponedRule>,
}

/// The session of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionLabel {
    /// The flow's name.
    pub flow: String,
    /// The step.
    pub step: String,
    /// Whether it begins with a copy of the history of the step before, if that had the same agent.
    pub fork: bool,
    /// The steps that lead here and have the same agent.
    pub same_agent: Vec<String>,
    /// What the id begins with; none: nothing is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

impl SessionLabel {
    /// The session's id.
    pub fn id(&self, prefix: &str) -> String {
        session_id(prefix, &self.flow, &self.step)
    }
}

/// A rule with `postpone: true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PostponedRule {
    /// The step that the next run begins with.
    pub then: String,
    /// The condition over `args`; none always holds.
    pub when: Option<String>,
    /// What `if` says.
    pub written: Option<String>,
}

/// A step that a run has left to the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Postponed {
    /// The step.
    pub step: String,
    /// Its arguments.
    pub args: Json,
    /// The output of the step before, as text.
    pub previous: String,
    /// The step before.
    pub from: String,
}

/// The input of a run that begins with what an earlier one has left; `args` are those that the flow once began with.
pub fn input_of(args: &Json, left: &[Postponed]) -> Json {
    let step = |left: &Postponed| {
        let texts = [("previous", &left.previous), ("from", &left.from)];
        let texts = texts.map(|(key, text)| (key, Json::from(text.as_str())));
        (left.step.clone(), Json::object([("args", left.args.clone())].into_iter().chain(texts)))
    };
    Json::object([("args", args.clone()), ("steps", Json::object(left.iter().map(step)))])
}

/// The output of an agent's node as text: the structured one as JSON if there is one, else the result.
pub fn text_of(output: &Json) -> String {
    let structured = output.get("structuredOutput").filter(|structured| !structured.is_null());
    match structured.or_else(|| output.get("result")) {
        Some(Json::String(text)) => text.to_string(),
        Some(Json::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// The id of the session of a step: `prefix-flow-step`.
pub fn session_id(prefix: &str, flow: &str, step: &str) -> String {
    format!("{prefix}-{flow}-{step}")
}

/// The key of the flow's state that holds what was said in the session of a step.
pub fn state_key(prefix: &str, flow: &str, step: &str) -> String {
    format!("session/{flow}/{step}/{prefix}")
}

/// A step that is begun again, or for the first time, with its arguments and after a step that ended before: that step, its
/// output as text, and whether it had failed.
pub fn left_by(step: &str, args: Json, before: Option<(&str, &str, bool)>) -> Postponed {
    let (from, output, failed) = before.unwrap_or_default();
    let previous = if failed { format!("{FAILED_BEFORE}{output}") } else { output.to_owned() };
    Postponed { step: step.to_owned(), args, previous, from: from.to_owned() }
}

/// What the label of a graph says; none if the graph has none.
pub fn flow_label(graph: &Graph) -> Option<FlowLabel> {
    parse(graph.labels.get(LABEL)?)
}

/// What the label of a node says; none if the node has none.
pub fn step_label(node: &Node) -> Option<StepLabel> {
    parse(node.labels.get(LABEL)?)
}

/// The steps that a step leaves to the next run, given its output. A step is left once, whatever rules lead to it; a
/// condition that cannot be evaluated does not hold.
pub fn postponed(label: &StepLabel, output: &Json) -> Vec<Postponed> {
    let args = output.get("args").cloned().unwrap_or_else(|| Json::object::<&str>([]));
    let roots = Json::object([("args", args.clone())]);
    let holds = |rule: &&PostponedRule| {
        let Some(when) = &rule.when else { return true };
        let condition = Condition::compile(&when.as_str().into());
        condition.is_ok_and(|condition| condition.evaluate(&roots).unwrap_or_default())
    };
    let mut left: Vec<Postponed> = Vec::new();
    for rule in label.postponed.iter().filter(holds) {
        if left.iter().all(|other| other.step != rule.then) {
            let (args, previous, from) = (args.clone(), text_of(output), label.step.clone());
            left.push(Postponed { step: rule.then.clone(), args, previous, from });
        }
    }
    left
}

/// A label as its graph or node carries it.
pub(crate) fn write<T: Serialize>(label: &T) -> Json {
    serde_json::to_value(label).map(Json::from).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(label: &Json) -> Option<T> {
    serde_json::from_value(label.to_serde()).ok()
}
