//! The agentic dialect: agents do the steps, prompts describe them, and rules connect them.
//!
//! Each step becomes one `agent.run` node, each rule an edge, and each `fallback.to` an edge on failure. A step starts
//! as soon as one edge to it fires. The arguments are a part of each node's output: a node receives `args`, merges the
//! members of its structured output into them, and outputs the result as `args` for the next step. A loop of steps becomes
//! a cycle of edges.

mod agent;
mod builtin;
mod declared;
mod discovery;
mod flow_session;
mod generate;
mod label;
mod links;
mod loops;
mod mistakes;
mod name;
mod origin;
mod permission;
mod placeholder;
mod predicate;
mod prompt_schema;
mod read;
mod step_agent;
mod template;
mod unsupported;

use flowcell_contract::{Catalog, Json};

pub(crate) use self::read::is_agentic;
pub use self::{
    agent::{AgentDefinition, CheckedAgent, agent},
    builtin::{
        DEFAULT as DEFAULT_AGENT, definition as built_in_agent, names as built_in_agents, source as built_in_source,
    },
    discovery::{
        AGENT_FOLDERS, DiscoveredFile, Discovery, DiscoveryCache, FLOW_FOLDERS, FileKind, Folder, Level, ListedFile,
        discover,
    },
    flow_session::{SESSION_PREFIX_BYTES, SessionPrefix, is_session_prefix},
    label::{
        FlowLabel, Postponed, PostponedRule, SessionLabel, StepLabel, flow_label, output_text, postponed,
        postponed_step, resume_input, session_id, state_key, step_label,
    },
    name::is_kebab_case,
    permission::{Action, Permission, decide, matches_pattern},
};
use self::{
    generate::{Generated, Generator},
    label::{LABEL, STEP_ID},
    links::Links,
    loops::Loops,
    read::RawSteps,
};
use crate::{
    CheckContext,
    diagnostic::Diagnostics,
    fields::for_message,
    graph::Graph,
    limits, lower,
    yaml::{Span, Tree},
};

/// The steps that a run starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Begin {
    /// The run starts with the first step. Its input contains the arguments.
    #[default]
    First,
    /// The run starts with the steps of these ids, which an earlier run has postponed. [`resume_input`] creates the
    /// input of this run: `{ args, steps: { <step>: { args, previous, from } } }`. The outer `args` are the flow's
    /// original arguments. Each step has its own arguments (`args`), the output of the preceding step as text
    /// (`previous`), and the id of the preceding step (`from`).
    At(Vec<String>),
}

/// Start options of a run of an agentic flow, in addition to its input.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Start {
    /// The steps that the run starts with.
    pub begin: Begin,
    /// Prefix of the ids of the run's sessions. With `None` the sessions are not saved, so later runs cannot continue
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

impl From<Begin> for Start {
    fn from(begin: Begin) -> Start {
        Start { begin, prefix: None }
    }
}

/// The values, beyond the text of the flow, that the check of an agentic flow needs.
pub(crate) struct AgenticInput<'a> {
    pub(crate) file: &'a str,
    pub(crate) start: &'a Start,
    pub(crate) catalog: &'a Catalog,
    pub(crate) context: &'a dyn CheckContext,
}

/// Checks an agentic flow and builds its graph. The graph is valid only if the check reported no error.
pub(crate) fn lower(tree: &Tree, input: &AgenticInput<'_>, diagnostics: &mut Diagnostics<'_>) -> Option<Graph> {
    let flow = read::read(tree, diagnostics);
    let name = name::file_stem(input.file);
    if !is_kebab_case(name) {
        let start = Span { line: 1, column: 1, len: 1, ..Span::default() };
        let message = format!(
            "`{}` is not a valid name for an agentic flow; the flow takes the name of its file",
            for_message(name)
        );
        diagnostics.error("bad_file_name", start, message, Some(name::rename_help(input.file)));
    }
    if is_too_large(&flow, diagnostics) {
        return None;
    }
    let links = Links::new(&flow, diagnostics);
    let loops = Loops::find(&flow, &links, diagnostics);
    let agents = step_agent::find_agents(&flow, input.context, diagnostics);
    let begin = first_step_indices(&input.start.begin, &flow, &links, diagnostics);
    if !flow.steps.is_empty() {
        mistakes::warn(&flow, &links, &loops, diagnostics);
        declared::warn(&flow, &agents, diagnostics);
    }
    // The graph is generated only from valid steps.
    if diagnostics.has_errors() || flow.steps.is_empty() {
        return None;
    }
    let generator = Generator {
        name,
        flow: &flow,
        links: &links,
        loops: &loops,
        agents: &agents,
        begin: &begin,
        at_first: input.start.begin == Begin::First,
        prefix: input.start.prefix.as_deref(),
        catalog: input.catalog,
    };
    let written = generator.generate();
    let graph = lower::lower(written.flow(), input.catalog, input.context, diagnostics)?;
    Some(with_labels(graph, &written))
}

fn is_too_large(flow: &RawSteps<'_>, diagnostics: &mut Diagnostics<'_>) -> bool {
    let rules: usize = flow.steps.iter().map(|step| step.rules.len() + 1).sum();
    let too_large = flow.steps.len() > limits::NODES || rules > limits::EDGES;
    if too_large {
        let message = format!("{} steps with {rules} rules and fallbacks", flow.steps.len());
        let help = Some(format!("use at most {} steps and {} rules and fallbacks", limits::NODES, limits::EDGES));
        diagnostics.error("too_large", flow.head, message, help);
    }
    too_large
}

fn first_step_indices(
    begin: &Begin,
    flow: &RawSteps<'_>,
    links: &Links,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<usize> {
    let Begin::At(steps) = begin else { return vec![0] };
    let mut found = Vec::new();
    for id in steps {
        match links.find(id) {
            Some(step) if !found.contains(&step) => found.push(step),
            Some(_) => {}
            None => {
                let message = format!("a run cannot start with the unknown step `{}`", for_message(id));
                diagnostics.error("unknown_step", flow.head, message, links.suggest(id));
            }
        }
    }
    found
}

fn with_labels(mut graph: Graph, written: &Generated<'_>) -> Graph {
    let (flow, steps) = written.labels();
    graph.labels.insert(LABEL.to_owned(), label::to_json(&flow));
    for (node, step) in graph.nodes.iter_mut().zip(steps) {
        node.labels.insert(LABEL.to_owned(), label::to_json(&step));
        // Events of the step's agent runs carry the step id in every dialect.
        node.labels.insert(STEP_ID.to_owned(), Json::from(step.step));
    }
    graph
}
