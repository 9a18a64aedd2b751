//! The node `control.if`: evaluates a condition, so that edges can follow its result.

use flowcell_expr::Json;
use flowcell_sdk::prelude::*;

#[derive(Deserialize)]
pub(crate) struct Input {
    condition: Json,
}

/// Evaluates the condition.
pub(crate) fn run(input: Input) -> Result<Value> {
    let condition = crate::condition::holds(&input.condition, Json::Null)?;
    Ok(json!({ "condition": condition }))
}
