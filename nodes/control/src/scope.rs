//! The node `control.scope`: runs its body once, as one node.

use flowcell_sdk::prelude::*;

/// Runs the body once, and passes its output or its failure on.
pub(crate) fn run(task: &Task) -> Result<Step> {
    if !task.info()?.has_body {
        return Err(Failure::new("missing_body", "a scope needs a body: the nodes that it runs as one"));
    }
    match task.woken_by()? {
        // The variables of the body are the members of the input, so the host shares them with it.
        None => Ok(Pause::body(Source::input("")).into()),
        Some(woken) => match woken.error {
            Some(error) => Err(error.into_failure()),
            None => Ok(Output::woken("/value").into()),
        },
    }
}
