//! Checks references to facts about the run, such as `$facts.run.id`.

use super::reference::Reference;
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    names::{FACT_NAMES, FLOW_MEMBERS},
    yaml::Span,
};

/// Returns the names of the facts. The check of the graph knows their members. Steps undo nothing.
fn names() -> impl Iterator<Item = &'static str> {
    FACT_NAMES.into_iter().filter(|name| *name != "undo").chain(["flow"])
}

/// Returns true for a member of `flow` that is a fact. Its inputs have a reference of their own.
fn is_flow_fact(member: &str) -> bool {
    member != "input" && FLOW_MEMBERS.contains(&member)
}

/// Returns true if a reference names a fact that no step hides. Reports any other one. `ids` are the ids of the steps.
pub(super) fn check<'s>(
    found: &Reference<'_>,
    mut ids: impl Iterator<Item = &'s str>,
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
) -> bool {
    let (name, written) = (found.name, for_message(found.name));
    let (message, help) = match name {
        "flow" if !found.path.first().is_some_and(|member| is_flow_fact(member)) => {
            let message = "`$facts.flow` has the members `name` and `version`".to_owned();
            (message, Some("write `$facts.flow.name`, or `$inputs.NAME` for an input".to_owned()))
        }
        _ if !names().any(|known| known == name) => {
            let known = || format!("known facts: {}", names().collect::<Vec<_>>().join(", "));
            let help = did_you_mean(name, names()).unwrap_or_else(known);
            (format!("`$facts.{written}` does not exist"), Some(help))
        }
        _ if name != "flow" && ids.any(|id| id == name) => {
            let message = format!("`$facts.{written}` is not available, because the step `{written}` has its name");
            (message, Some("give the step another id; `save_as` keeps the name of its result".to_owned()))
        }
        _ => return true,
    };
    diagnostics.error("unknown_name", span, message, help);
    false
}
