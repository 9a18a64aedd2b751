//! Streams of the dialect Chat Completions.

use serde_json::{Value, json};

use super::pieces;
use crate::{Tokens, Turn};

fn chunk(choices: &Value, usage: &Value) -> String {
    let data = json!({ "id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": "fake-1",
        "choices": choices, "usage": usage });
    format!("data: {data}\n\n")
}

fn delta(delta: &Value) -> String {
    chunk(&json!([{ "index": 0, "delta": delta, "finish_reason": null }]), &Value::Null)
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let reply = &turn.reply;
    let mut events = vec![delta(&json!({ "role": "assistant", "content": "", "refusal": null }))];
    let thinking = reply.thinking.as_deref().unwrap_or_default();
    events.extend(pieces(thinking).iter().map(|piece| delta(&json!({ "reasoning_content": piece }))));
    let text = reply.whole_text().unwrap_or_default();
    events.extend(pieces(&text).iter().map(|piece| delta(&json!({ "content": piece }))));
    let refusal = reply.refusal.as_deref().unwrap_or_default();
    events.extend(pieces(refusal).iter().map(|piece| delta(&json!({ "refusal": piece }))));
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let function = json!({ "name": call.name, "arguments": "" });
        let head = json!({ "index": index, "id": call.id(index), "type": "function", "function": function });
        events.push(delta(&json!({ "tool_calls": [head] })));
        let more = |piece: &String| json!([{ "index": index, "function": { "arguments": piece } }]);
        events.extend(pieces(&call.text()).iter().map(|piece| delta(&json!({ "tool_calls": more(piece) }))));
    }
    let usual = if reply.tool_calls.is_empty() { "stop" } else { "tool_calls" };
    let stop = reply.stop.as_deref().unwrap_or(usual);
    events.push(chunk(&json!([{ "index": 0, "delta": {}, "finish_reason": stop }]), &Value::Null));
    if !turn.usage.missing {
        events.push(chunk(&json!([]), &usage(turn.usage)));
    }
    events.push("data: [DONE]\n\n".into());
    events
}

fn usage(tokens: Tokens) -> Value {
    let read = tokens.fresh + tokens.cache_read;
    let mut usage = json!({ "prompt_tokens": read, "completion_tokens": tokens.output,
        "total_tokens": read + tokens.output, "prompt_tokens_details": { "cached_tokens": tokens.cache_read },
        "completion_tokens_details": { "reasoning_tokens": tokens.reasoning } });
    if let Some(cost) = tokens.cost {
        usage["cost"] = json!(cost);
    }
    usage
}
