//! Streams of the dialect Responses.

use serde_json::{Value, json};

use super::pieces;
use crate::{Tokens, Turn};

/// The events of an answer, numbered in their order.
#[derive(Default)]
struct Events {
    sent: Vec<String>,
    items: Vec<Value>,
}

impl Events {
    fn send(&mut self, kind: &str, mut data: Value) {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.sent.len());
        self.sent.push(format!("event: {kind}\ndata: {data}\n\n"));
    }

    /// Adds the events of one output item: its start without content, the deltas of its text, and its final form. If
    /// the item is a message, it has exactly one part.
    fn item(&mut self, begun: &Value, whole: Value, kind: &str, text: &str) {
        let index = self.items.len();
        self.send("response.output_item.added", json!({ "output_index": index, "item": begun }));
        let part = whole["content"].get(0).cloned();
        if let Some(mut part) = part.clone() {
            let name = if part["type"] == "refusal" { "refusal" } else { "text" };
            part[name] = json!("");
            let begun = json!({ "output_index": index, "content_index": 0, "part": part });
            self.send("response.content_part.added", begun);
        }
        for piece in pieces(text) {
            self.send(&format!("{kind}.delta"), json!({ "output_index": index, "content_index": 0, "delta": piece }));
        }
        self.send(&format!("{kind}.done"), json!({ "output_index": index, "content_index": 0, "text": text }));
        if let Some(part) = part {
            self.send("response.content_part.done", json!({ "output_index": index, "content_index": 0, "part": part }));
        }
        self.send("response.output_item.done", json!({ "output_index": index, "item": whole }));
        self.items.push(whole);
    }

    fn message(&mut self, part: &Value, kind: &str, text: &str) {
        let id = format!("msg_{}", self.items.len());
        let item = |content: Value| json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content });
        self.item(&item(json!([])), item(json!([part])), kind, text);
    }
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let reply = &turn.reply;
    let mut events = Events::default();
    events.send("response.created", json!({ "response": response("in_progress", &[], None) }));
    events.send("response.in_progress", json!({ "response": response("in_progress", &[], None) }));
    if let Some(thinking) = &reply.thinking {
        let item = json!({ "type": "reasoning", "id": "rs_0", "summary": [{ "type": "summary_text", "text": thinking }],
            "encrypted_content": super::signature(thinking) });
        events.item(&json!({ "type": "reasoning", "id": "rs_0" }), item, "response.reasoning_summary_text", thinking);
    }
    if let Some(text) = reply.whole_text() {
        let part = json!({ "type": "output_text", "text": text, "annotations": [] });
        events.message(&part, "response.output_text", &text);
    }
    if let Some(refusal) = &reply.refusal {
        events.message(&json!({ "type": "refusal", "refusal": refusal }), "response.refusal", refusal);
    }
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let item = |arguments: &str| {
            json!({ "type": "function_call", "id": format!("fc_{index}"), "call_id": call.id(index), "name": call.name,
                "arguments": arguments, "status": "completed" })
        };
        events.item(&item(""), item(&call.text()), "response.function_call_arguments", &call.text());
    }
    let usage = (!turn.usage.missing).then_some(turn.usage);
    let items = events.items.clone();
    match reply.stop.as_deref() {
        None => events.send("response.completed", json!({ "response": response("completed", &items, usage) })),
        Some("failed") => {
            let mut failed = response("failed", &items, usage);
            failed["error"] = json!({ "code": "server_error", "message": "it failed" });
            events.send("response.failed", json!({ "response": failed }));
        }
        Some(reason) => {
            let mut incomplete = response("incomplete", &items, usage);
            incomplete["incomplete_details"] = json!({ "reason": reason });
            events.send("response.incomplete", json!({ "response": incomplete }));
        }
    }
    events.sent
}

fn response(status: &str, items: &[Value], tokens: Option<Tokens>) -> Value {
    let usage = tokens.map(|tokens| {
        let read = tokens.fresh + tokens.cache_read;
        json!({ "input_tokens": read, "input_tokens_details": { "cached_tokens": tokens.cache_read },
            "output_tokens": tokens.output, "output_tokens_details": { "reasoning_tokens": tokens.reasoning },
            "total_tokens": read + tokens.output })
    });
    json!({ "id": "resp_fake", "object": "response", "model": "fake-1", "status": status, "output": items,
        "error": null, "incomplete_details": null, "usage": usage })
}
