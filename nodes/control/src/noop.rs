//! The node `control.noop`: passes its value on.

use flowcell_sdk::prelude::*;

/// Passes its value on, if it has one.
pub(crate) fn run(task: &Task) -> Result<Step> {
    let value = task.has_input("/value").then(|| Source::input("/value"));
    Ok(value.into_iter().fold(Output::object(), |output, value| output.with("value", value)).into())
}
