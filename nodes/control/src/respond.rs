//! The node `control.respond`: answers the HTTP post that started the run. Its output is the answer, and the host sends
//! it.

use std::collections::BTreeMap;

use flowcell_contract::http_answer::{check_body, check_headers, check_status};
use flowcell_sdk::prelude::*;

/// Checks the answer and gives it.
pub(crate) fn run(task: &Task) -> Result<Step> {
    let refuse = |why: String| Failure::invalid_input(why);
    // A missing value in a flow that is not strict is null.
    let status = check_status(task.input_at::<Option<u64>>("/status")?.flatten().unwrap_or(200)).map_err(refuse)?;
    let headers = task.input_at::<Option<BTreeMap<String, String>>>("/headers")?.flatten().unwrap_or_default();
    check_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))).map_err(refuse)?;
    check_body(status, body_bytes(task)?).map_err(refuse)?;
    let mut output = Output::object().with("status", Source::value(status)?);
    if !headers.is_empty() {
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        output = output.with("headers", Source::value(headers.collect::<BTreeMap<_, _>>())?);
    }
    if task.has_input("/body") {
        output = output.with("body", Source::input("/body"));
    }
    Ok(output.into())
}

/// Returns the size of the body in bytes as it is sent, or none without a body.
fn body_bytes(task: &Task) -> Result<Option<usize>> {
    if let Some(text) = task.input_text("/body") {
        return Ok(Some(text.len()));
    }
    let value = task.input_at::<Value>("/body")?;
    Ok(value.map(|value| value.to_string().len()))
}
