//! The node `control.subflow`: runs another flow as a child.

use flowcell_sdk::prelude::*;

/// Runs another flow and passes its outputs on.
pub(crate) fn run(task: &Task) -> Result<Step> {
    if let Some(woken) = task.woken_by()? {
        return match woken.error {
            Some(error) => Err(error.into_failure()),
            None => Ok(Output::object().with("outputs", Source::woken("/value/outputs")).into()),
        };
    }
    let name = task.input_text("/name").ok_or_else(|| Failure::invalid_input("input at `/name`: must be a text"))?;
    let input = if task.has_input("/input") { Source::input("/input") } else { Source::value(json!({}))? };
    Ok(Pause::flow(name, input).into())
}
