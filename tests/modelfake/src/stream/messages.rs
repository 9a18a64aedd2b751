//! Streams of the dialect Anthropic Messages.

use serde_json::{Value, json};

use super::{pieces, signature};
use crate::Turn;

struct Events {
    sent: Vec<String>,
    index: usize,
}

impl Events {
    fn send(&mut self, data: &Value) {
        self.sent.push(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default()));
    }

    fn block(&mut self, start: &Value, deltas: impl IntoIterator<Item = Value>) {
        self.send(&json!({ "type": "content_block_start", "index": self.index, "content_block": start }));
        self.send(&json!({ "type": "ping" }));
        for delta in deltas {
            self.send(&json!({ "type": "content_block_delta", "index": self.index, "delta": delta }));
        }
        self.send(&json!({ "type": "content_block_stop", "index": self.index }));
        self.index += 1;
    }
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let (reply, tokens) = (&turn.reply, turn.usage);
    let mut events = Events { sent: Vec::new(), index: 0 };
    let mut message = json!({ "id": "msg_fake", "type": "message", "role": "assistant", "model": "fake-1", "content": [],
        "stop_reason": null, "stop_sequence": null });
    if !tokens.missing {
        message["usage"] = json!({ "input_tokens": tokens.fresh, "output_tokens": 1,
            "cache_read_input_tokens": tokens.cache_read, "cache_creation_input_tokens": tokens.cache_write });
    }
    events.send(&json!({ "type": "message_start", "message": message }));
    if let Some(thinking) = &reply.thinking {
        let deltas = pieces(thinking).into_iter().map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
        let signed = json!({ "type": "signature_delta", "signature": signature(thinking) });
        events.block(&json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas.chain([signed]));
    }
    if let Some(text) = reply.whole_text().or(reply.refusal.clone()) {
        let deltas = pieces(&text).into_iter().map(|piece| json!({ "type": "text_delta", "text": piece }));
        events.block(&json!({ "type": "text", "text": "" }), deltas);
    }
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let start = json!({ "type": "tool_use", "id": call.id(index), "name": call.name, "input": {} });
        let empty = json!({ "type": "input_json_delta", "partial_json": "" });
        let text = if call.text() == "{}" { String::new() } else { call.text() };
        let deltas =
            pieces(&text).into_iter().map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
        events.block(&start, [empty].into_iter().chain(deltas));
    }
    let usual = match (reply.refusal.is_some(), reply.tool_calls.is_empty()) {
        (true, _) => "refusal",
        (_, false) => "tool_use",
        _ => "end_turn",
    };
    let stop = reply.stop.as_deref().unwrap_or(usual);
    let mut delta = json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null } });
    if !tokens.missing {
        // The numbers are cumulative, and null means unchanged.
        delta["usage"] = json!({ "input_tokens": null, "output_tokens": tokens.output });
    }
    events.send(&delta);
    events.send(&json!({ "type": "message_stop" }));
    events.sent
}
