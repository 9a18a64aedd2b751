//! Warns of arguments that are probably misspelled: no schema declares them, but a schema declares a similar name.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    agentic::{placeholder::Placeholder, read::RawSteps, step_agent::StepAgent},
    diagnostic::{Diagnostics, similar},
    fields::for_message,
    limits,
    yaml::{Kind, Span, Tree},
};

/// Warns of arguments that neither `args` nor an output schema declares, if a declared name is similar. An undeclared
/// argument without a similar name may come from the caller, so it is not reported.
pub(crate) fn warn(flow: &RawSteps<'_>, agents: &[StepAgent], diagnostics: &mut Diagnostics<'_>) {
    let declared = declared_names(flow, agents);
    let mut tried: BTreeMap<String, Option<&str>> = BTreeMap::new();
    let mut tell = |placeholder: &Placeholder, span: Span| {
        let Some(key) = placeholder.key().filter(|key| !declared.contains(*key)) else { return };
        if !tried.contains_key(key) {
            if tried.len() == limits::SIMILAR_NAMES {
                return;
            }
            let known = declared.iter().map(String::as_str).take(limits::SIMILAR_NAMES);
            tried.insert(key.to_owned(), similar(key, known));
        }
        let Some(meant) = tried[key] else { return };
        let message = format!("no schema declares the argument `{}`", for_message(key));
        diagnostics.warning("unknown_argument", span, message, Some(format!("did you mean `{}`?", for_message(meant))));
    };
    for step in &flow.steps {
        step.prompt.placeholders().for_each(|placeholder| tell(placeholder, step.prompt_span));
        for rule in &step.rules {
            if let (Some(when), Some((_, span))) = (&rule.when, &rule.written) {
                when.placeholders().for_each(|placeholder| tell(placeholder, *span));
            }
        }
    }
}

/// Returns the names that the schemas of the arguments and of the outputs declare.
fn declared_names(flow: &RawSteps<'_>, agents: &[StepAgent]) -> BTreeSet<String> {
    let mut names = BTreeSet::from(["prompt".to_owned()]);
    let schemas = flow.steps.iter().map(|step| step.output).chain([flow.args]).flatten();
    for properties in schemas.filter_map(|schema| schema.member("properties")) {
        names.extend(keys(properties));
    }
    let inherited = flow.steps.iter().zip(agents).filter(|(step, _)| step.output.is_none());
    for agent in inherited.filter_map(|(_, agents)| agents.definition.as_ref()) {
        let properties = agent.output.as_ref().and_then(|schema| schema.get("properties")?.as_object());
        names.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
    }
    names
}

fn keys(tree: &Tree) -> impl Iterator<Item = String> {
    let entries = match &tree.kind {
        Kind::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    entries.iter().map(|entry| entry.key.to_string())
}
