//! Checks references to facts about the run, such as `$facts.run.id`.

use super::reference::Reference;
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    yaml::Span,
};

/// The names of the facts. The check of the graph knows their members.
const NAMES: [&str; 5] = ["run", "flow", "task", "tenant", "now"];

/// The members of `flow` that are facts. Its inputs have a reference of their own.
const FLOW_MEMBERS: [&str; 2] = ["name", "version"];

/// Returns true if a reference names a fact that no step hides. Reports any other one. `ids` are the ids of the steps.
pub(super) fn check<'s>(
    found: &Reference<'_>,
    mut ids: impl Iterator<Item = &'s str>,
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
) -> bool {
    let (name, written) = (found.name, for_message(found.name));
    let (message, help) = match name {
        "flow" if !found.path.first().is_some_and(|member| FLOW_MEMBERS.contains(member)) => {
            let message = "`$facts.flow` has the members `name` and `version`".to_owned();
            (message, Some("write `$facts.flow.name`, or `$inputs.NAME` for an input".to_owned()))
        }
        _ if !NAMES.contains(&name) => {
            let help = did_you_mean(name, NAMES).unwrap_or_else(|| format!("known facts: {}", NAMES.join(", ")));
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
