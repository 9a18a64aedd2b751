//! Checks requests, and refuses those that the real servers refuse.

mod chat;
mod messages;
mod responses;

use hyper::HeaderMap;
use serde_json::{Map, Value, json};

use crate::{Dialect, fault::ErrorReply};

/// Refuses a bad request as the provider of its dialect would.
pub(crate) fn check_request(dialect: Dialect, key: &str, headers: &HeaderMap, body: &Value) -> Result<(), ErrorReply> {
    check_key(dialect, key, headers)?;
    let kind = header_text(headers, "content-type");
    if kind.split(';').next() != Some("application/json") {
        return Err(ErrorReply::invalid("the content type is application/json"));
    }
    let members = body.as_object().ok_or_else(|| ErrorReply::invalid("the body is a JSON object"))?;
    if body["stream"] != json!(true) {
        return Err(ErrorReply::invalid("this server only streams"));
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err(ErrorReply::invalid("model: Field required"));
    }
    let warmest = if dialect == Dialect::Messages { 1.0 } else { 2.0 };
    if body["temperature"].as_f64().is_some_and(|temperature| !(0.0..=warmest).contains(&temperature)) {
        return Err(ErrorReply::invalid(format!("temperature: range: 0..{warmest}")));
    }
    match dialect {
        Dialect::Messages => messages::check(headers, members),
        Dialect::Chat => chat::check(members),
        Dialect::Responses => responses::check(members),
    }
}

fn check_key(dialect: Dialect, key: &str, headers: &HeaderMap) -> Result<(), ErrorReply> {
    let bearer = header_text(headers, "authorization") == format!("Bearer {key}");
    // Anthropic's own SDK sends a key as a bearer token. The documentation of the interface uses `x-api-key`.
    let shown = bearer || (dialect == Dialect::Messages && header_text(headers, "x-api-key") == key);
    let code = (dialect != Dialect::Messages).then(|| "invalid_api_key".to_owned());
    // The real servers repeat parts of the key, so this server repeats all of it.
    let wrong = format!(
        "Incorrect API key provided: {}{}",
        header_text(headers, "x-api-key"),
        header_text(headers, "authorization")
    );
    if shown { Ok(()) } else { Err(ErrorReply { status: 401, kind: None, code, message: wrong }) }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the parts of a request in the form in which `matches` compares them with `expect` of a turn.
pub(crate) fn comparable_parts(dialect: Dialect, body: &Value) -> Value {
    let name = match dialect {
        Dialect::Messages => "messages",
        Dialect::Chat => "chat",
        Dialect::Responses => "responses",
    };
    let messages = body.get("messages").or(body.get("input")).and_then(Value::as_array);
    let user = messages.into_iter().flatten().rev().filter(|message| message["role"] == "user");
    let last = user.map(|message| all_text(&message["content"])).find(|text| !text.is_empty());
    let tools = body["tools"].as_array().into_iter().flatten();
    let names: Vec<&Value> = tools.map(|tool| tool.get("name").unwrap_or(&tool["function"]["name"])).collect();
    json!({ "dialect": name, "lastText": last, "tools": names, "body": body })
}

fn all_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Returns true if `found` has everything in `expected`. An object may have further members, also an object in a
/// list. A list must have the same length. Any other value must be equal, and null also stands for a missing
/// member.
pub(crate) fn matches(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().all(|(key, value)| matches(value, found.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(expected, found)| matches(expected, found))
        }
        (expected, found) => expected == found,
    }
}

/// Refuses a request with members that the interface does not have.
fn refuse_unknown(members: &Map<String, Value>, known: &[&str], sentence: &str) -> Result<(), ErrorReply> {
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(ErrorReply::invalid(format!("{sentence}: {key}"))),
        None => Ok(()),
    }
}

fn non_empty_list<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a [Value], ErrorReply> {
    let items = members.get(name).and_then(Value::as_array).filter(|items| !items.is_empty());
    items
        .map(Vec::as_slice)
        .ok_or_else(|| ErrorReply::invalid(format!("{name}: a list with at least one item is required")))
}

/// Refuses tool names that are too long or have other characters, and schemas that are not objects.
fn check_tool(name: &Value, schema: &Value, longest: usize) -> Result<(), ErrorReply> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let good = name.as_str().is_some_and(|name| (1..=longest).contains(&name.len()) && name.bytes().all(plain));
    match good && schema.is_object() {
        true => Ok(()),
        false => Err(ErrorReply::invalid(format!("tools: {name} has a bad name or no schema"))),
    }
}

/// Returns true if each object in a schema forbids undeclared members. With `all_required`, each object must also
/// require all members that it declares.
fn is_closed(schema: &Value, all_required: bool) -> bool {
    let named = schema["properties"].as_object();
    let required = |name: &String| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
    let closed = schema["type"] != "object"
        || schema["additionalProperties"] == json!(false)
            && (!all_required || named.is_none_or(|named| named.keys().all(required)));
    let inner = named.into_iter().flat_map(|named| named.values()).chain(schema.get("items"));
    closed && inner.into_iter().all(|schema| is_closed(schema, all_required))
}

/// Refuses an answer format without a valid name or without a schema, and one that claims to be strict but has an open
/// schema.
fn check_format(format: &Value) -> Result<(), ErrorReply> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let named = format["name"].as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(plain));
    let strict = format["strict"] == json!(true);
    match named && format["schema"].is_object() && (!strict || is_closed(&format["schema"], true)) {
        true => Ok(()),
        false => Err(ErrorReply::invalid("Invalid schema for response_format")),
    }
}
