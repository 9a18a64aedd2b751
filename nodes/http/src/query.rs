//! Adds the members of an object to the query of a URL.

use flowcell_sdk::prelude::*;
use serde_json::Map;

/// Returns the URL with these members added to its query.
pub(crate) fn add(url: &str, members: &Map<String, Value>) -> Result<String> {
    let mut query = String::new();
    for (name, value) in members {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for item in items {
            let Some(text) = text(name, item)? else { continue };
            if !query.is_empty() {
                query.push('&');
            }
            encode(name, &mut query);
            query.push('=');
            encode(&text, &mut query);
        }
    }
    if query.is_empty() {
        return Ok(url.to_owned());
    }
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let joint = match url.split_once('?') {
        None => "?",
        Some((_, own)) if own.is_empty() || own.ends_with('&') => "",
        Some(_) => "&",
    };
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    Ok(format!("{url}{joint}{query}{fragment}"))
}

/// Returns a value as text for a query, or `None` for null, which is left out. Refuses lists and objects.
fn text(name: &str, value: &Value) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Bool(_) | Value::Number(_) => Ok(Some(value.to_string())),
        Value::Array(_) | Value::Object(_) => {
            let why = "must be a text, a number, a boolean, or a list of these; convert other values with \
                       `data.json.stringify`";
            Err(Failure::invalid_input(format!("input.query.{name} {why}")))
        }
    }
}

/// Percent-encodes all characters except those that are unreserved in URLs.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}
