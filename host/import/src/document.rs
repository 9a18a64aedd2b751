//! Reads a foreign file, JSON or YAML, to a value. The limits are those of flows.

use std::fmt;

use flowcell_flow::limits;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_yaml::{DuplicateKeyPolicy, MergeKeyPolicy, Options};

use crate::{DEPTH, ImportError};

/// A value in which no object has the same key twice.
struct Unique(Value);

/// Reads a text as JSON, or as YAML if it does not begin with `{`.
pub(crate) fn read(text: &str) -> Result<Value, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > limits::DOCUMENT_BYTES {
        let message = format!("the file has {} bytes; the limit is {}", text.len(), limits::DOCUMENT_BYTES);
        return Err(ImportError::new(message, "export a part of it"));
    }
    let read = match text.trim_start().starts_with('{') {
        true => serde_json::from_str::<Unique>(text).map_err(|error| error.to_string()),
        false => serde_yaml::from_str_with_options(text, options()).map_err(|error| first_line(&error.to_string())),
    };
    let Unique(value) = read
        .map_err(|cause| ImportError::new(format!("the file is neither JSON nor YAML: {cause}"), "export it again"))?;
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

fn options() -> Options {
    serde_yaml::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        emit_comments: false,
        budget: serde_yaml::budget! {
            max_depth: limits::DOCUMENT_DEPTH,
            flow_nesting_limit: limits::DOCUMENT_DEPTH,
            max_nodes: limits::DOCUMENT_NODES,
            max_events: limits::DOCUMENT_NODES * 2,
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
        },
    }
}

fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or(message).trim_start_matches("error: ");
    match line.contains("Anchors") || line.contains("Aliases") {
        true => "anchors and aliases are not allowed".into(),
        false => line.split(", set ").next().unwrap_or(line).to_owned(),
    }
}

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Unique::deserialize(deserializer).map(|value| value.0)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // A whole number beyond 64 bits arrives as a float, and would lose digits.
        let exact = value.is_finite() && (value.fract() != 0.0 || value.abs() < 9_007_199_254_740_992.0);
        match exact {
            true => Ok(value.into()),
            false => Err(E::custom("a number has more digits than 64 bits hold")),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let Unique(value) = map.next_value()?;
            if members.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {} stands twice", Value::from(key))));
            }
            members.insert(key, value);
        }
        Ok(members.into())
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
            ("{\"a\":1,\"a\":2}", "stands twice"),
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
