//! The JSON forms of runs and nodes, as the command line and the server show them.

use flowcell_contract::{Json, NodeType, functions::Function, text::revealed};
use flowcell_flow::{Diagnostic, graph::Graph, script::script_label};
use flowcell_runtime::{RunError, RunResult, Waiting};
use serde_json::{Value, json};

/// Returns a node type as JSON.
pub fn node_type(node: &NodeType) -> Value {
    let mut object = json!({
        "type": node.name,
        "version": node.version,
        "title": node.title,
        "description": node.description,
        "input": node.input,
        "config": node.config,
        "output": node.output,
        "traits": node.traits,
        "effect": node.effect,
        "capabilities": node.capabilities,
    });
    if !node.credentials.is_empty() {
        object["credentials"] = json!(node.credentials);
    }
    if !node.limits.is_empty() {
        object["limits"] = json!(node.limits);
    }
    if !node.about.is_empty() {
        object["about"] = json!(*node.about);
    }
    object
}

/// Returns a node type with what it may reach, as JSON.
pub fn reach_of_type(node: &NodeType) -> Value {
    let mut object = json!({
        "type": node.name,
        "title": node.title,
        "effect": node.effect,
        "capabilities": node.capabilities,
    });
    if !node.credentials.is_empty() {
        object["credentials"] = json!(node.credentials);
    }
    if !node.limits.is_empty() {
        object["limits"] = json!(node.limits);
    }
    object
}

/// Returns a function of expressions as JSON.
pub fn function(function: &Function) -> Value {
    json!({
        "name": function.name(),
        "otherNames": function.names.iter().skip(1).collect::<Vec<_>>(),
        "kind": function.kind.word(),
        "signature": function.signature,
        "summary": function.summary,
        "example": function.example,
        "result": serde_json::from_str::<Value>(function.result).unwrap_or_default(),
    })
}

/// Returns a function of expressions as a row of a list.
pub fn function_row(function: &Function) -> Value {
    json!({ "name": function.name(), "kind": function.kind.word(), "summary": function.summary })
}

/// Returns a diagnostic as JSON, with the length of its place for editors, an excerpt for readers without the file, and
/// the edit that corrects the mistake if there is one.
pub fn finding(finding: &Diagnostic) -> Value {
    let mut object = json!(finding);
    object["len"] = json!(finding.location.len);
    object["excerpt"] = json!(finding.excerpt);
    if let Some(fix) = &finding.fix {
        object["fix"] = json!(fix);
    }
    object
}

/// Formats a time as RFC 3339, in UTC with milliseconds. It is empty after the year 9999.
pub fn timestamp(ms: u64) -> String {
    to_timestamp(ms).map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// Formats a time as RFC 3339, in UTC with seconds. It is empty after the year 9999.
pub fn time(ms: u64) -> String {
    to_timestamp(ms).map(|time| format!("{time:.0}")).unwrap_or_default()
}

fn to_timestamp(ms: u64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()
}

/// Returns the error of a failed run as JSON.
pub fn run_error(error: &RunError) -> Value {
    let mut object = error.failure.to_json().to_serde();
    if let Some(task) = &error.task {
        object["task"] = json!(task);
    }
    object
}

/// Returns the results of a run as members of an object: its `outputs`, and for a script its `result`.
pub fn results<'o>(graph: &Graph, outputs: &'o Json) -> Vec<(&'static str, &'o Json)> {
    match (script_label(graph), outputs.get("result"), outputs.get("outputs")) {
        (Some(_), Some(result), Some(outputs)) => vec![("result", result), ("outputs", outputs)],
        _ => vec![("outputs", outputs)],
    }
}

/// Returns the outcome of a test run: `{ status, outputs, error?, waiting? }`, and the `result` of a script.
pub fn outcome(graph: &Graph, result: &RunResult) -> Value {
    let mut object = json!({ "status": result.status });
    for (key, value) in results(graph, &result.outputs) {
        object[key] = json!(value);
    }
    if let Some(error) = &result.error {
        object["error"] = run_error(error);
    }
    if !result.waiting.is_empty() {
        object["waiting"] = result.waiting.iter().map(waiting).collect();
    }
    object
}

/// Returns a wait of a run, such as an open question, as JSON.
pub fn waiting(waiting: &Waiting) -> Value {
    match waiting {
        Waiting::Answer { address, question, asked } => {
            let mut object = json!({
                "address": address,
                "prompt": revealed(&question.prompt),
                "choices": question.choices,
                "allowText": question.allow_text,
            });
            if let Some(attempt) = asked.attempt {
                object["attempt"] = attempt.into();
            }
            if let Some(digest) = &asked.digest {
                object["digest"] = digest.to_string().into();
            }
            object
        }
        Waiting::Decision { address, reason } => {
            json!({ "address": address, "reason": reason.name(), "message": reason.to_string() })
        }
        Waiting::Message { address, agent_run } => json!({ "address": address, "agentRunId": agent_run }),
        Waiting::Event { address, name } => json!({ "address": address, "event": name }),
    }
}
