//! Flows that many tests run.

use serde_json::{Value, json};

/// Returns a flow with one node.
pub(crate) fn hello() -> Value {
    json!({
        "flow": { "name": "hello", "input": { "who": "world" } },
        "nodes": [{ "id": "say", "type": "data.template", "input": { "template": "Hello {{ flow.input.who }}" } }],
    })
}

/// Returns a flow that asks a question.
pub(crate) fn asks() -> Value {
    let choices = json!(["yes", "no"]);
    json!({
        "flow": { "name": "asks", "outputs": { "said": "{{ ok.response.content }}" } },
        "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": choices } }],
    })
}
