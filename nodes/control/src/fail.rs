//! The node `control.fail`: fails with a code, a message and details of the flow.

use flowcell_sdk::prelude::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    message: String,
    code: Option<String>,
    details: Option<Value>,
    #[serde(default)]
    retryable: bool,
    retry_after_ms: Option<u32>,
}

/// Fails with the message.
pub(crate) fn run(input: Input) -> Result<Value> {
    let code = input.code.unwrap_or_else(|| "failed".to_owned());
    // A wait is a wish for another attempt.
    let retryable = input.retryable || input.retry_after_ms.is_some();
    Err(Failure {
        retryable,
        retry_after_ms: input.retry_after_ms,
        details: input.details,
        ..Failure::new(code, input.message)
    })
}
