//! Finds the agent of each step.

use std::{collections::HashMap, sync::Arc};

use crate::{
    CheckContext,
    agentic::{
        agent::{self, AgentDefinition},
        builtin,
        name::is_kebab_case,
        read::RawSteps,
    },
    diagnostic::{Diagnostics, Severity, did_you_mean},
    fields::for_message,
};

/// The agent of a step.
#[derive(Clone)]
pub(crate) struct StepAgent {
    pub(crate) name: String,
    /// The definition of the agent. `None` if it is unknown in this check. The node of such a step fails when it
    /// runs.
    pub(crate) definition: Option<Arc<AgentDefinition>>,
}

/// The reason why a flow cannot use an agent, with a help text.
#[derive(Clone)]
struct AgentProblem {
    severity: Severity,
    message: String,
    help: String,
}

type Found = Result<Option<Arc<AgentDefinition>>, AgentProblem>;

/// Finds the agent of each step. Only warns of an unknown agent, because the machine that runs the flow may have it.
pub(crate) fn find_agents(
    flow: &RawSteps<'_>,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<StepAgent> {
    let mut known: HashMap<String, Found> = HashMap::new();
    let mut agents = Vec::new();
    for step in &flow.steps {
        let (name, span) = match &step.agent {
            Some((name, span)) => (name.clone(), *span),
            None => (builtin::DEFAULT.to_owned(), step.id_span),
        };
        let found = known.entry(name.clone()).or_insert_with(|| find(&name, context)).clone();
        let definition = found.unwrap_or_else(|AgentProblem { severity, message, help }| {
            match severity {
                Severity::Error => diagnostics.error("bad_agent", span, message, Some(help)),
                Severity::Warning => diagnostics.warning("unknown_agent", span, message, Some(help)),
            }
            None
        });
        agents.push(StepAgent { name, definition });
    }
    agents
}

fn find(name: &str, context: &dyn CheckContext) -> Found {
    // The name becomes a file name, so only kebab-case is allowed.
    if !is_kebab_case(name) {
        let message = format!("`{}` is not a valid agent name", for_message(name));
        let help = "write the agent's file name without its extension: lowercase letters, digits and single dashes";
        return Err(AgentProblem { severity: Severity::Error, message, help: help.into() });
    }
    let Some(source) = context.agent(name).or_else(|| builtin::source(name)) else {
        return match context.agents() {
            Some(names) if !names.iter().any(|known| known == name) => Err(unknown(name, &names)),
            _ => Ok(None),
        };
    };
    let checked = agent::agent_in_mode(&source, context.mode());
    let error = |severity, message, help: &str| AgentProblem { severity, message, help: help.to_owned() };
    match checked.agent {
        Some(agent) if agent.disabled => {
            let message = format!("the agent `{}` is disabled in {}", for_message(name), source.name);
            Err(error(Severity::Error, message, "choose another agent, or remove `disabled` from its file"))
        }
        Some(agent) => Ok(Some(Arc::new(agent))),
        None => {
            let first = checked.diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error);
            let place = first.map_or(1, |diagnostic| diagnostic.location.line);
            let cause = first.map_or("its file cannot be read", |diagnostic| &diagnostic.message);
            let message = format!("the agent `{}` cannot be used: {}:{place}: {cause}", for_message(name), source.name);
            Err(error(Severity::Error, message, "fix the agent's file"))
        }
    }
}

fn unknown(name: &str, names: &[String]) -> AgentProblem {
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    builtin::names().for_each(|name| known.push(name));
    known.sort_unstable();
    known.dedup();
    let help = did_you_mean(name, known.iter().copied());
    let help = help.unwrap_or_else(|| format!("known agents: {}", shown_list(&known)));
    AgentProblem { severity: Severity::Warning, message: format!("unknown agent `{}`", for_message(name)), help }
}

/// Maximum number of agent names in a help text.
const MAX_LISTED_NAMES: usize = 12;

fn shown_list(names: &[&str]) -> String {
    let mut listed: Vec<_> = names.iter().take(MAX_LISTED_NAMES).map(|name| for_message(name)).collect();
    if names.len() > MAX_LISTED_NAMES {
        listed.push("…".to_owned());
    }
    listed.join(", ")
}
