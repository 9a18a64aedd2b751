//! Reads a foreign file, JSON or YAML, to a value. The limits are those of flows.

use flowcell_contract::Json;
use flowcell_flow::{limits, read_value};
use serde_json::Value;

use crate::ImportError;

/// Maximum nesting of lists and objects in an imported file.
const DEPTH: usize = 48;

/// Reads a text as JSON, or as YAML if it does not begin with `{`.
pub(crate) fn read(text: &str) -> Result<Value, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > limits::DOCUMENT_BYTES {
        let message = format!("the file has {} bytes; the limit is {}", text.len(), limits::DOCUMENT_BYTES);
        return Err(ImportError::new(message, "export a part of it"));
    }
    let read = match text.trim_start().starts_with('{') {
        true => Json::parse(text).map_err(|error| error.to_string()),
        false => read_value(text),
    };
    let value = read
        .map_err(|cause| ImportError::new(format!("the file is neither JSON nor YAML: {cause}"), "export it again"))?
        .to_serde();
    let mut left = limits::DOCUMENT_NODES;
    check(&value, DEPTH, &mut left)?;
    Ok(value)
}

/// Checks the depth and the number of values.
fn check(value: &Value, depth: usize, left: &mut usize) -> Result<(), ImportError> {
    if depth == 0 {
        let message = format!("lists and objects are more than {DEPTH} levels deep");
        return Err(ImportError::new(message, "split the inner parts off"));
    }
    *left = left.checked_sub(1).ok_or_else(|| {
        let message = format!("the file has more than {} values", limits::DOCUMENT_NODES);
        ImportError::new(message, "export a part of it")
    })?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check(item, depth - 1, left)),
        Value::Object(members) => members.values().try_for_each(|member| check(member, depth - 1, left)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn hostile_texts_are_refused_with_a_reason() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(DEPTH), "]".repeat(DEPTH));
        let very_deep = format!("{{\"a\":{}", "[".repeat(100_000));
        let long = " ".repeat(limits::DOCUMENT_BYTES + 1);
        let many = format!("{{\"a\":[{}0]}}", "0,".repeat(limits::DOCUMENT_NODES));
        let cases = [
            ("{\"a\":1,\"a\":2}", "occurs twice"),
            ("a: 1\na: 2", "duplicate"),
            ("a: &x [1]\nb: *x", "anchors and aliases are not allowed"),
            ("a: !!python/object 1", "tag"),
            ("{\"a\":123456789012345678901234567890}", "more digits"),
            ("{\"a\":1e999}", "number"),
            ("{", "neither JSON nor YAML"),
            (&deep, "levels deep"),
            (&very_deep, "recursion limit"),
            (&long, "bytes"),
            (&many, "values"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err();
            let start: String = text.chars().take(30).collect();
            assert!(error.message.to_lowercase().contains(&expected.to_lowercase()), "{start}: {}", error.message);
        }
    }

    #[test]
    fn json_texts_keep_their_values() {
        let value = read("\u{feff}\t{\"a\":\t\"\\ud83d\\ude00\\/\",\"n\":[1,1.5,-2]}").unwrap();
        assert_eq!(value, serde_json::json!({ "a": "😀/", "n": [1, 1.5, -2] }));
    }
}
