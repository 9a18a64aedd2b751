//! Converts the outcome of a tool call, or the state of its run, to the result that the client gets.

use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, JsonObject, MetaObject},
};
use serde_json::{Value, json};

use crate::http::api_error::ApiError;

/// Keys of the result's metadata, for the id and the status of the run.
const RUN_ID: &str = "flowcell/runId";
const STATUS: &str = "flowcell/status";

/// Converts an error outside of any tool, such as an unknown tool, to the protocol error `invalid_params`.
pub(super) fn protocol_error(error: &ApiError) -> ErrorData {
    ErrorData::invalid_params(error.message().to_owned(), Some(serde_json::json!({ "code": error.code() })))
}

/// Returns the result of a successful tool call, with this value as its structured content.
pub(super) fn of_value(value: Value) -> CallToolResult {
    CallToolResult::structured(value)
}

/// Returns the result of a tool call that has failed.
pub(super) fn of_error(error: &ApiError) -> CallToolResult {
    let mut members = json!({ "code": error.code(), "message": error.message() });
    if let Some(details) = error.details() {
        members["details"] = details.clone();
    }
    failure_result(members)
}

/// Returns the result for a run that has ended or is parked. `run` has the format of the HTTP API, and `waiting` lists
/// its open waits.
pub(super) fn of_run(run: &Value, waiting: Vec<Value>) -> CallToolResult {
    let status = run["status"].as_str().unwrap_or_default();
    let result = match status {
        "succeeded" => success_result(&run["outputs"]),
        "failed" => failure_result(run["error"].clone()),
        "cancelled" => failure_result(json!({ "code": "cancelled", "message": "the run was cancelled" })),
        _ => unfinished_result(run, status, waiting),
    };
    let meta = [(RUN_ID, run["runId"].clone()), (STATUS, status.into())];
    let meta: JsonObject = meta.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    result.with_meta(Some(MetaObject(meta)))
}

/// Returns the outputs both as structured content and as text. Outputs that are a string become text without quotes.
fn success_result(outputs: &Value) -> CallToolResult {
    let text = outputs.as_str().map_or_else(|| outputs.to_string(), str::to_owned);
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let structured = if outputs.is_object() { outputs.clone() } else { json!({ "output": outputs }) };
    result.structured_content = Some(structured);
    result
}

fn failure_result(error: Value) -> CallToolResult {
    let part = |key: &str| error[key].as_str();
    let node = part("task").map(|node| format!(" (node `{node}`)")).unwrap_or_default();
    let text = format!("{}: {}{node}", part("code").unwrap_or("failed"), part("message").unwrap_or_default());
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "error": error }));
    result
}

/// Returns the result for a run that has not ended: its open waits, and the tool to call next.
fn unfinished_result(run: &Value, status: &str, waiting: Vec<Value>) -> CallToolResult {
    let id = run["runId"].as_str().unwrap_or_default();
    let gates: Vec<_> = waiting.iter().filter(|waits| waits["kind"] == "gate").collect();
    let next = match gates.first() {
        Some(gate) => format!(
            "The run `{id}` waits for an answer at the gate `{}`: {} Answer with `flowcell_answer_gate`.",
            gate["address"].as_str().unwrap_or_default(),
            gate["prompt"].as_str().unwrap_or_default(),
        ),
        None => format!("The run `{id}` is {status} and has not ended; `flowcell_get_run` shows its status."),
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(next)]);
    result.structured_content = Some(json!({ "runId": id, "status": status, "waiting": waiting }));
    result
}
