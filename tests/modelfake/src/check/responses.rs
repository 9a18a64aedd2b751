//! Checks of requests in the dialect Responses.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{check_format, check_tool, non_empty_list, refuse_unknown};
use crate::{fault::ErrorReply, stream::signature};

const MEMBERS: [&str; 16] = [
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "store",
    "include",
    "metadata",
    "stream",
];

pub(super) fn check(body: &Map<String, Value>) -> Result<(), ErrorReply> {
    refuse_unknown(body, &MEMBERS, "Unknown parameter")?;
    let tools = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for one in tools {
        if one["type"] != "function" || one.get("function").is_some() {
            return Err(ErrorReply::invalid("Missing required parameter: 'tools[0].name'."));
        }
        check_tool(&one["name"], &one["parameters"], 64)?;
    }
    let known = match body.get("tool_choice") {
        None => true,
        Some(Value::String(choice)) => matches!(choice.as_str(), "auto" | "none" | "required"),
        Some(choice) => tools.iter().any(|one| one["name"] == choice["name"]),
    };
    if !known {
        return Err(ErrorReply::invalid("Invalid value for 'tool_choice'"));
    }
    if let Some(wanted) = body.get("text").and_then(|text| text.get("format")) {
        check_format(wanted)?;
    }
    check_items(non_empty_list(body, "input")?)
}

fn check_items(items: &[Value]) -> Result<(), ErrorReply> {
    let mut open = HashSet::new();
    for item in items {
        match item["type"].as_str().unwrap_or("message") {
            "message" => check_message(item)?,
            "function_call" => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
                if !object || !item["name"].is_string() || !open.insert(item["call_id"].clone()) {
                    return Err(ErrorReply::invalid("Invalid function_call"));
                }
            }
            "function_call_output" if !open.remove(&item["call_id"]) => {
                return Err(ErrorReply::invalid("No tool call found for function call output"));
            }
            "function_call_output" => {}
            "reasoning" => {
                let thinking = item["summary"][0]["text"].as_str().unwrap_or_default();
                if item["encrypted_content"] != signature(thinking) {
                    return Err(ErrorReply::invalid("The encrypted content could not be verified."));
                }
            }
            other => return Err(ErrorReply::invalid(format!("Invalid value: '{other}'"))),
        }
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(ErrorReply::invalid("No tool output found for function call")),
    }
}

fn check_message(item: &Value) -> Result<(), ErrorReply> {
    let allowed: &[&str] = match item["role"].as_str() {
        Some("user" | "system" | "developer") => &["input_text", "input_image"],
        Some("assistant") => &["output_text", "refusal"],
        _ => return Err(ErrorReply::invalid("Invalid value: 'role'")),
    };
    let good = match &item["content"] {
        Value::String(_) => true,
        Value::Array(parts) => parts.iter().all(|part| allowed.iter().any(|kind| part["type"] == json!(kind))),
        _ => false,
    };
    if good { Ok(()) } else { Err(ErrorReply::invalid("Invalid value for 'content'")) }
}
