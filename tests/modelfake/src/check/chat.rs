//! Checks of requests in the dialect Chat Completions.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{check_format, check_tool, non_empty_list, refuse_unknown};
use crate::fault::ErrorReply;

const MEMBERS: [&str; 17] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "reasoning_effort",
    "stream",
    "stream_options",
    "metadata",
    "user",
];

pub(super) fn check(body: &Map<String, Value>) -> Result<(), ErrorReply> {
    refuse_unknown(body, &MEMBERS, "Unrecognized request argument supplied")?;
    if body.contains_key("max_tokens") && body.contains_key("max_completion_tokens") {
        return Err(ErrorReply::invalid(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        ));
    }
    if body.get("stop").and_then(Value::as_array).is_some_and(|stop| stop.len() > 4) {
        return Err(ErrorReply::invalid("stop: at most 4"));
    }
    check_tools(body)?;
    if let Some(wanted) = body.get("response_format") {
        match wanted["type"].as_str() {
            Some("json_object" | "text") => {}
            Some("json_schema") => check_format(&wanted["json_schema"])?,
            _ => return Err(ErrorReply::invalid("Invalid value: 'response_format.type'")),
        }
    }
    check_messages(non_empty_list(body, "messages")?)
}

fn check_tools(body: &Map<String, Value>) -> Result<(), ErrorReply> {
    let tools = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for one in tools {
        if one["type"] != "function" {
            return Err(ErrorReply::invalid("tools: the type is function"));
        }
        check_tool(&one["function"]["name"], &one["function"]["parameters"], 64)?;
    }
    let known = match body.get("tool_choice") {
        None => true,
        Some(_) if tools.is_empty() => false,
        Some(Value::String(choice)) => matches!(choice.as_str(), "auto" | "none" | "required"),
        Some(choice) => tools.iter().any(|one| one["function"]["name"] == choice["function"]["name"]),
    };
    if known { Ok(()) } else { Err(ErrorReply::invalid("Invalid value for 'tool_choice'")) }
}

fn check_messages(messages: &[Value]) -> Result<(), ErrorReply> {
    let mut open: HashSet<Value> = HashSet::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            if !open.remove(&message["tool_call_id"]) {
                return Err(ErrorReply::invalid(
                    "messages with role 'tool' must be a response to a preceding 'tool_calls'",
                ));
            }
            if !message["content"].is_string() {
                return Err(ErrorReply::invalid("the content of a tool message is a text"));
            }
            continue;
        }
        if !open.is_empty() {
            return Err(ErrorReply::invalid("'tool_calls' must be followed by tool messages responding to each id"));
        }
        match role {
            "system" | "developer" | "user" => check_content(&message["content"])?,
            "assistant" => open = call_ids(message)?,
            _ => return Err(ErrorReply::invalid("Invalid value: 'messages.role'")),
        }
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(ErrorReply::invalid("'tool_calls' must be followed by tool messages responding to each id")),
    }
}

fn check_content(content: &Value) -> Result<(), ErrorReply> {
    let part = |part: &Value| match part["type"].as_str() {
        Some("text") => part["text"].is_string(),
        Some("image_url") => part["image_url"]["url"].is_string(),
        _ => false,
    };
    let good = match content {
        Value::String(_) => true,
        Value::Array(parts) => !parts.is_empty() && parts.iter().all(part),
        _ => false,
    };
    if good { Ok(()) } else { Err(ErrorReply::invalid("Invalid value for 'content'")) }
}

/// Returns the ids of the calls of a message.
fn call_ids(message: &Value) -> Result<HashSet<Value>, ErrorReply> {
    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    if calls.is_empty() && !message["content"].is_string() {
        return Err(ErrorReply::invalid("Invalid value for 'content': expected a string, got null."));
    }
    let mut ids = HashSet::new();
    for call in calls {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let good = call["type"] == json!("function")
            && call["function"]["name"].is_string()
            && serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
        if !good || !call["id"].is_string() || !ids.insert(call["id"].clone()) {
            return Err(ErrorReply::invalid("Invalid value for 'tool_calls'"));
        }
    }
    Ok(ids)
}
