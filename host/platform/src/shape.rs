//! Things as JSON, as the command line and the server show them.

use flowcell_contract::{Json, NodeType, text::revealed};
use flowcell_flow::{Diagnostic, graph::Graph, script::script_label};
use flowcell_runtime::{RunError, RunResult, Waiting};
use serde_json::{Value, json};

/// A node type.
pub fn node_type(node: &NodeType) -> Value {
    json!({
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
    })
}

/// A finding with what an editor needs to underline it, and a reader without the file to see it.
pub fn finding(finding: &Diagnostic) -> Value {
    let mut object = json!(finding);
    object["len"] = json!(finding.location.len);
    object["excerpt"] = json!(finding.excerpt);
    object
}

/// Why a run failed.
pub fn run_error(error: &RunError) -> Value {
    let mut object = error.failure.to_json().to_serde();
    if let Some(task) = &error.task {
        object["task"] = json!(task);
    }
    object
}

/// What a run of a flow gave, as members of an object: its `outputs`, and beside them the `result` of a script.
pub fn results<'o>(graph: &Graph, outputs: &'o Json) -> Vec<(&'static str, &'o Json)> {
    match (script_label(graph), outputs.get("result"), outputs.get("outputs")) {
        (Some(_), Some(result), Some(outputs)) => vec![("result", result), ("outputs", outputs)],
        _ => vec![("outputs", outputs)],
    }
}

/// What came of a run of a flow that was only tried: `{ status, outputs, error?, waiting? }`, and the `result` of a script.
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

/// What a run waits for.
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
