//! Finds the agent of each step.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Files,
    agentic::{
        agent::{self, AgentDefinition},
        builtin,
        name::is_kebab_case,
        read::RawSteps,
    },
    diagnostic::{Findings, Severity, did_you_mean},
    fields::shown,
};

/// The agent of a step.
#[derive(Clone)]
pub(crate) struct Cast {
    pub(crate) name: String,
    /// `None` if the agent is not known at check time; the node looks it up when it runs.
    pub(crate) definition: Option<Arc<AgentDefinition>>,
}

/// The reason why a flow cannot use an agent, with a help text.
#[derive(Clone)]
struct Trouble {
    severity: Severity,
    message: String,
    help: String,
}

type Found = Result<Option<Arc<AgentDefinition>>, Trouble>;

/// Finds the agent of each step. An unknown agent is only a warning, because the machine that runs the flow may have
/// it.
pub(crate) fn cast(flow: &RawSteps<'_>, files: &dyn Files, findings: &mut Findings<'_>) -> Vec<Cast> {
    let mut known: HashMap<String, Found> = HashMap::new();
    let mut cast = Vec::new();
    for step in &flow.steps {
        let (name, span) = match &step.agent {
            Some((name, span)) => (name.clone(), *span),
            None => (builtin::DEFAULT.to_owned(), step.id_span),
        };
        let found = known.entry(name.clone()).or_insert_with(|| find(&name, files)).clone();
        let definition = found.unwrap_or_else(|Trouble { severity, message, help }| {
            match severity {
                Severity::Error => findings.error("bad_agent", span, message, Some(help)),
                Severity::Warning => findings.warning("unknown_agent", span, message, Some(help)),
            }
            None
        });
        cast.push(Cast { name, definition });
    }
    cast
}

fn find(name: &str, files: &dyn Files) -> Found {
    // The name becomes a file name, so only kebab-case is allowed.
    if !is_kebab_case(name) {
        let message = format!("`{}` is not a valid agent name", shown(name));
        let help = "write the agent's file name without its extension: lowercase letters, digits and single dashes";
        return Err(Trouble { severity: Severity::Error, message, help: help.into() });
    }
    let Some(source) = files.agent(name).or_else(|| builtin::source(name)) else {
        return match files.agents() {
            Some(names) if !names.iter().any(|known| known == name) => Err(unknown(name, &names)),
            _ => Ok(None),
        };
    };
    let checked = agent::agent_by(&source, files.rules());
    let trouble = |severity, message, help: &str| Trouble { severity, message, help: help.to_owned() };
    match checked.agent {
        Some(agent) if agent.disabled => {
            let message = format!("the agent `{}` is disabled in {}", shown(name), source.name);
            Err(trouble(Severity::Error, message, "choose another agent, or remove `disabled` from its file"))
        }
        Some(agent) => Ok(Some(Arc::new(agent))),
        None => {
            let first = checked.diagnostics.iter().find(|finding| finding.severity == Severity::Error);
            let place = first.map_or(1, |finding| finding.place.line);
            let cause = first.map_or("its file cannot be read", |finding| &finding.message);
            let message = format!("the agent `{}` cannot be used: {}:{place}: {cause}", shown(name), source.name);
            Err(trouble(Severity::Error, message, "fix the agent's file"))
        }
    }
}

fn unknown(name: &str, names: &[String]) -> Trouble {
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    builtin::names().for_each(|name| known.push(name));
    known.sort_unstable();
    known.dedup();
    let help = did_you_mean(name, known.iter().copied());
    let help = help.unwrap_or_else(|| format!("known agents: {}", shown_list(&known)));
    Trouble { severity: Severity::Warning, message: format!("unknown agent `{}`", shown(name)), help }
}

/// Maximum number of agent names in a help text.
const LISTED: usize = 12;

fn shown_list(names: &[&str]) -> String {
    let mut listed: Vec<_> = names.iter().take(LISTED).map(|name| shown(name)).collect();
    if names.len() > LISTED {
        listed.push("…".to_owned());
    }
    listed.join(", ")
}
