//! The node `control.fail`: fails with a message of the flow.

use flowcell_sdk::prelude::*;

#[derive(Deserialize)]
pub(crate) struct Input {
    message: String,
}

/// Fails with the message.
pub(crate) fn run(input: Input) -> Result<Value> {
    Err(Failure::new("failed", input.message))
}
