//! What came of a call, as the result of a tool.

use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, JsonObject, MetaObject},
};
use serde_json::{Value, json};

use crate::http::fault::Fault;

/// What a result says of its run beside its content.
const RUN_ID: &str = "flowcell/runId";
const STATUS: &str = "flowcell/status";

/// A failure that is no tool's.
pub(super) fn error(fault: &Fault) -> ErrorData {
    ErrorData::invalid_params(fault.message().to_owned(), Some(serde_json::json!({ "code": fault.code() })))
}

/// A plain answer.
pub(super) fn of_value(value: Value) -> CallToolResult {
    CallToolResult::structured(value)
}

/// A call that was not done.
pub(super) fn of_fault(fault: &Fault) -> CallToolResult {
    let mut error = json!({ "code": fault.code(), "message": fault.message() });
    if let Some(details) = fault.details() {
        error["details"] = details.clone();
    }
    failed(error)
}

/// A run that has ended or rests: `run` as the interface over HTTP shows it, and what it waits for.
pub(super) fn of_run(run: &Value, waiting: Vec<Value>) -> CallToolResult {
    let status = run["status"].as_str().unwrap_or_default();
    let result = match status {
        "succeeded" => succeeded(&run["outputs"]),
        "failed" => failed(run["error"].clone()),
        "cancelled" => failed(json!({ "code": "cancelled", "message": "the run was cancelled" })),
        _ => resting(run, status, waiting),
    };
    let meta = [(RUN_ID, run["runId"].clone()), (STATUS, status.into())];
    let meta: JsonObject = meta.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    result.with_meta(Some(MetaObject(meta)))
}

/// Outputs as structure and as text; one that is a text is that text.
fn succeeded(outputs: &Value) -> CallToolResult {
    let text = outputs.as_str().map_or_else(|| outputs.to_string(), str::to_owned);
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let structured = if outputs.is_object() { outputs.clone() } else { json!({ "output": outputs }) };
    result.structured_content = Some(structured);
    result
}

fn failed(error: Value) -> CallToolResult {
    let part = |key: &str| error[key].as_str();
    let node = part("task").map(|node| format!(" (node `{node}`)")).unwrap_or_default();
    let text = format!("{}: {}{node}", part("code").unwrap_or("failed"), part("message").unwrap_or_default());
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "error": error }));
    result
}

/// A run that is not over: what it waits for, and what to do about it.
fn resting(run: &Value, status: &str, waiting: Vec<Value>) -> CallToolResult {
    let id = run["runId"].as_str().unwrap_or_default();
    let gates: Vec<_> = waiting.iter().filter(|waits| waits["kind"] == "gate").collect();
    let next = match gates.first() {
        Some(gate) => format!(
            "The run `{id}` waits for an answer at the gate `{}`: {} Answer it with `flowcell_answer_gate`.",
            gate["address"].as_str().unwrap_or_default(),
            gate["prompt"].as_str().unwrap_or_default(),
        ),
        None => format!("The run `{id}` is {status} and not over; `flowcell_get_run` tells how it stands."),
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(next)]);
    result.structured_content = Some(json!({ "runId": id, "status": status, "waiting": waiting }));
    result
}
