//! The agentic dialect: steps done by agents, which prompts describe and rules join.
//!
//! Every step becomes one node `agent.run`, every rule an edge, every `fallback.to` an edge on failure, and the first
//! arrival opens a step. Arguments travel as output: a node is given `args`, and gives them on with its structured
//! output merged in.

mod agent;
mod argument;
mod builtin;
mod cast;
mod check;
mod declared;
mod discovery;
mod label;
mod name;
mod permission;
mod predicate;
mod read;
mod template;
mod values;
mod write;

use flowcell_contract::{Catalog, Json};

pub(crate) use self::read::is_agentic;
pub use self::{
    agent::{AgentDefinition, CheckedAgent, agent},
    builtin::{
        DEFAULT as DEFAULT_AGENT, definition as built_in_agent, names as built_in_agents, source as built_in_source,
    },
    discovery::{AGENT_FOLDERS, Discovery, Entry, FLOW_FOLDERS, Folder, Kind, Level, Listed, Registry, discover},
    label::{
        FlowLabel, Postponed, PostponedRule, SessionLabel, StepLabel, flow_label, input_of, left_by, postponed,
        session_id, state_key, step_label, text_of,
    },
    name::is_kebab_case,
    permission::{Action, Permission, decide, fits},
};
use self::{
    check::Links,
    label::{LABEL, STEP_ID},
    read::RawSteps,
    write::{Writer, Written},
};
use crate::{
    Files,
    diagnostic::Findings,
    fields::shown,
    graph::Graph,
    limits, lower,
    yaml::{Span, Tree},
};

/// With which steps a run begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Begin {
    /// With the first one. The run's input are the arguments.
    #[default]
    First,
    /// With these, which an earlier run has left. The run's input is what [`input_of`] makes,
    /// `{ args, steps: { <step>: { args, previous, from } } }`: the arguments that the flow once began with, and for each
    /// of these steps its own, the output before it as text, and the step that gave it.
    At(Vec<String>),
}

/// What a run of a flow of this dialect begins with, beside its input.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Start {
    /// Its steps.
    pub begin: Begin,
    /// What the ids of its sessions begin with; none: nothing of it is left to later runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

impl From<Begin> for Start {
    fn from(begin: Begin) -> Start {
        Start { begin, prefix: None }
    }
}

/// What a flow is checked against.
pub(crate) struct Surroundings<'a> {
    pub(crate) file: &'a str,
    pub(crate) start: &'a Start,
    pub(crate) catalog: &'a Catalog,
    pub(crate) files: &'a dyn Files,
}

/// Checks a flow of this dialect and builds its graph. The graph is of use only if nothing was found.
pub(crate) fn lower(tree: &Tree, around: &Surroundings<'_>, findings: &mut Findings<'_>) -> Option<Graph> {
    let flow = read::read(tree, findings);
    let name = name::of_file(around.file);
    if !is_kebab_case(name) {
        let start = Span { line: 1, column: 1, len: 1, start: 0 };
        let message = format!("`{}` cannot be the name of an agentic flow, which is the name of its file", shown(name));
        findings.error("bad_file_name", start, message, Some(name::rename(around.file)));
    }
    if is_too_large(&flow, findings) {
        return None;
    }
    let links = Links::new(&flow, findings);
    let cast = cast::cast(&flow, around.files, findings);
    let begin = begin(&around.start.begin, &flow, &links, findings);
    if !flow.steps.is_empty() {
        links.warn(&flow, findings);
        declared::warn(&flow, &cast, findings);
    }
    // What follows is written from steps that are sound.
    if findings.has_errors() || flow.steps.is_empty() {
        return None;
    }
    let writer = Writer {
        name,
        flow: &flow,
        links: &links,
        cast: &cast,
        begin: &begin,
        at_first: around.start.begin == Begin::First,
        prefix: around.start.prefix.as_deref(),
        catalog: around.catalog,
    };
    let written = writer.write();
    let graph = lower::lower(&written.flow(), around.catalog, around.files, findings)?;
    Some(labelled(graph, &written))
}

fn is_too_large(flow: &RawSteps<'_>, findings: &mut Findings<'_>) -> bool {
    let rules: usize = flow.steps.iter().map(|step| step.rules.len() + 1).sum();
    let too_large = flow.steps.len() > limits::NODES || rules > limits::EDGES;
    if too_large {
        let message = format!("{} steps with {rules} rules and fallbacks", flow.steps.len());
        let help = Some(format!("at most {} steps, and {} ways between them", limits::NODES, limits::EDGES));
        findings.error("too_large", flow.head, message, help);
    }
    too_large
}

fn begin(begin: &Begin, flow: &RawSteps<'_>, links: &Links, findings: &mut Findings<'_>) -> Vec<usize> {
    let Begin::At(steps) = begin else { return vec![0] };
    let mut found = Vec::new();
    for id in steps {
        match links.find(id) {
            Some(step) if !found.contains(&step) => found.push(step),
            Some(_) => {}
            None => {
                let message = format!("a run cannot begin with `{}`: there is no such step", shown(id));
                findings.error("unknown_step", flow.head, message, links.meant(id));
            }
        }
    }
    found
}

fn labelled(mut graph: Graph, written: &Written<'_>) -> Graph {
    let (flow, steps) = written.labels();
    graph.labels.insert(LABEL.to_owned(), label::write(&flow));
    for (node, step) in graph.nodes.iter_mut().zip(steps) {
        node.labels.insert(LABEL.to_owned(), label::write(&step));
        // Events of its agent runs have it, whatever dialect it is of.
        node.labels.insert(STEP_ID.to_owned(), Json::from(step.step));
    }
    graph
}
