//! Checks of requests in the dialect Anthropic Messages.

use std::collections::HashSet;

use hyper::HeaderMap;
use serde_json::{Map, Value, json};

use super::{check_tool, header_text, is_closed, non_empty_list, refuse_unknown};
use crate::{fault::ErrorReply, stream::signature};

/// The accepted versions of the interface: the documented one, and the one that the official SDK sends.
const VERSIONS: [&str; 2] = ["2023-06-01", "2026-10-21"];

const MEMBERS: [&str; 14] = [
    "model",
    "max_tokens",
    "system",
    "messages",
    "tools",
    "tool_choice",
    "output_config",
    "thinking",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "metadata",
    "stream",
];

pub(super) fn check(headers: &HeaderMap, body: &Map<String, Value>) -> Result<(), ErrorReply> {
    if !VERSIONS.contains(&header_text(headers, "anthropic-version")) {
        return Err(ErrorReply::invalid("anthropic-version: header is required"));
    }
    refuse_unknown(body, &MEMBERS, "Extra inputs are not permitted")?;
    if body.get("max_tokens").and_then(Value::as_u64).is_none_or(|limit| limit == 0) {
        return Err(ErrorReply::invalid("max_tokens: Field required"));
    }
    check_tools(body)?;
    check_output(body)?;
    check_messages(non_empty_list(body, "messages")?)
}

fn check_tools(body: &Map<String, Value>) -> Result<(), ErrorReply> {
    let tools = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for one in tools {
        check_tool(&one["name"], &one["input_schema"], 128)?;
    }
    let Some(choice) = body.get("tool_choice") else { return Ok(()) };
    let known = match choice["type"].as_str() {
        Some("auto" | "any" | "none") => true,
        Some("tool") => tools.iter().any(|one| one["name"] == choice["name"]),
        _ => false,
    };
    if known { Ok(()) } else { Err(ErrorReply::invalid("tool_choice: no such tool")) }
}

fn check_output(body: &Map<String, Value>) -> Result<(), ErrorReply> {
    let Some(config) = body.get("output_config") else { return Ok(()) };
    let format = config.get("format");
    let good = format.is_none_or(|format| format["type"] == "json_schema" && is_closed(&format["schema"], false));
    let efforts = ["low", "medium", "high", "xhigh", "max"];
    let effort = config.get("effort").is_none_or(|effort| efforts.iter().any(|one| effort == one));
    if good && effort { Ok(()) } else { Err(ErrorReply::invalid("output_config: additionalProperties must be false")) }
}

fn check_messages(messages: &[Value]) -> Result<(), ErrorReply> {
    if messages[0]["role"] != "user" {
        return Err(ErrorReply::invalid("messages: first message must use the \"user\" role"));
    }
    let mut seen = HashSet::new();
    let mut open = HashSet::new();
    for message in messages {
        let blocks = blocks(message)?;
        let mut calls = HashSet::new();
        for block in &blocks {
            check_block(block)?;
            match block["type"].as_str() {
                Some("tool_use") if !seen.insert(block["id"].clone()) => {
                    return Err(ErrorReply::invalid("messages: `tool_use` ids must be unique"));
                }
                Some("tool_use") => {
                    calls.insert(block["id"].clone());
                }
                Some("tool_result") if !open.remove(&block["tool_use_id"]) => {
                    return Err(ErrorReply::invalid("messages: unexpected `tool_use_id` in `tool_result` blocks"));
                }
                _ => {}
            }
        }
        if !open.is_empty() {
            return Err(ErrorReply::invalid("messages: `tool_use` ids were found without `tool_result` blocks after"));
        }
        open = calls;
    }
    if !open.is_empty() {
        return Err(ErrorReply::invalid("messages: the last `tool_use` has no `tool_result`"));
    }
    let last = messages.last().unwrap_or(&Value::Null);
    match last["role"] == "assistant" {
        true => Err(ErrorReply::invalid("messages: this model does not support assistant message prefill")),
        false => Ok(()),
    }
}

fn blocks(message: &Value) -> Result<Vec<Value>, ErrorReply> {
    let role = message["role"].as_str().unwrap_or_default();
    let blocks = match &message["content"] {
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        Value::Array(blocks) if !blocks.is_empty() => blocks.clone(),
        _ => return Err(ErrorReply::invalid("messages: content is required")),
    };
    let allowed: &[&str] = match role {
        "user" => &["text", "image", "tool_result", "document"],
        "assistant" => &["text", "tool_use", "thinking", "redacted_thinking"],
        _ => return Err(ErrorReply::invalid("messages: role is user or assistant")),
    };
    let other = blocks.iter().find(|block| !allowed.contains(&block["type"].as_str().unwrap_or_default()));
    match other {
        Some(block) => Err(ErrorReply::invalid(format!("messages: {} does not belong there", block["type"]))),
        None => Ok(blocks),
    }
}

fn check_block(block: &Value) -> Result<(), ErrorReply> {
    let good = match block["type"].as_str().unwrap_or_default() {
        "text" => block["text"].as_str().is_some_and(|text| !text.is_empty()),
        "tool_use" => block["input"].is_object() && block["id"].is_string() && block["name"].is_string(),
        "thinking" => block["thinking"].as_str().is_some_and(|thinking| block["signature"] == signature(thinking)),
        "image" => match block["source"]["type"].as_str() {
            Some("url") => block["source"]["url"].is_string(),
            Some("base64") => block["source"]["media_type"].is_string() && block["source"]["data"].is_string(),
            _ => false,
        },
        _ => true,
    };
    if good { Ok(()) } else { Err(ErrorReply::invalid(format!("messages: invalid block of type {}", block["type"]))) }
}
