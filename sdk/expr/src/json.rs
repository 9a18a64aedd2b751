//! JSON values with shared parts: cloning any part only increments a reference count.

mod compact;
pub mod digits;
mod measure;

use std::{cmp::Ordering, fmt, sync::Arc};

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::limits::{CONTAINER, JSON_VALUES};
pub use serde_json::Number;

pub use measure::SizeError;

/// The members of a JSON object, in their original order.
pub type Object = IndexMap<Arc<str>, Json>;

/// An immutable JSON value. Numbers are as exact as in `serde_json`.
#[derive(Clone, Debug, Default)]
pub enum Json {
    /// The value `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A JSON number.
    Number(Number),
    /// A JSON string.
    String(Arc<str>),
    /// A JSON array.
    Array(Arc<Vec<Json>>),
    /// A JSON object.
    Object(Arc<Object>),
}

impl Json {
    /// Parses a JSON text. Returns an error if it is nested deeper than [`JSON_DEPTH`](crate::limits::JSON_DEPTH), has
    /// more than [`JSON_VALUES`] values, or contains a whole number that cannot be stored exactly (see
    /// [`digits::whole_number`]).
    pub fn parse(text: &str) -> Result<Json, serde_json::Error> {
        if Json::has_too_many_values(text.as_bytes()) {
            return Err(serde_json::Error::custom(format!("it has more than {JSON_VALUES} values")));
        }
        let value = serde_json::from_str(text)?;
        digits::check(text).map(|()| value)
    }

    /// Parses a JSON text that this program has written. The number of values is not limited: values share their parts
    /// in memory, so the text of one value may contain more values than [`Json::parse`] accepts.
    pub fn restore(text: &str) -> Result<Json, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns true if a JSON text has more than [`JSON_VALUES`] values. The result is undefined for invalid JSON.
    pub fn has_too_many_values(text: &[u8]) -> bool {
        Json::has_more_values(text, JSON_VALUES)
    }

    /// Returns true if a JSON text has more than `most` values, counted as for [`JSON_VALUES`].
    pub fn has_more_values(text: &[u8], most: usize) -> bool {
        // No byte counts more than the start of a list, which counts `CONTAINER`.
        if text.len().saturating_mul(CONTAINER) <= most {
            return false;
        }
        let (mut count, mut bytes) = (0, text.iter());
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => {
                    while let Some(inner) = bytes.next() {
                        match inner {
                            b'\\' => drop(bytes.next()),
                            b'"' => break,
                            _ => {}
                        }
                    }
                }
                b',' => count += 1,
                b'[' | b'{' => count += CONTAINER,
                _ => {}
            }
            if count > most {
                return true;
            }
        }
        false
    }

    /// Returns an error if a valid JSON text contains a whole number that cannot be stored exactly. [`Json::parse`]
    /// includes this check. Call it for text that another parser reads.
    pub fn check_numbers(text: &str) -> Result<(), serde_json::Error> {
        digits::check(text)
    }

    /// Returns a JSON text without the white space around its values; `None` if the result has more than `most` bytes.
    /// Checks the text like [`Json::parse`], with two exceptions: the number of values is not limited, and of several
    /// equal keys the last one wins.
    pub fn compact(text: &str, most: usize) -> Result<Option<String>, serde_json::Error> {
        compact::compact(text, most)
    }

    /// Creates an object with members in the given order.
    pub fn object<K: Into<Arc<str>>>(members: impl IntoIterator<Item = (K, Json)>) -> Json {
        Json::Object(Arc::new(members.into_iter().map(|(key, value)| (key.into(), value)).collect()))
    }

    /// Creates a list.
    pub fn array(items: impl IntoIterator<Item = Json>) -> Json {
        Json::Array(Arc::new(items.into_iter().collect()))
    }

    /// Returns true for `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    /// Returns true for a file value, `{ "kind": "file", "fileId": … }`, which refers to separately stored content.
    pub fn is_file(&self) -> bool {
        self.as_object().is_some_and(is_file)
    }

    /// Returns the text of a string; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a boolean; `None` for other types.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Json::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a whole number that is not negative; `None` for other values. `3.0` counts as `3`.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Json::Number(number) => number.as_u64().or_else(|| {
                let float = number.as_f64()?;
                (float >= 0.0 && float.fract() == 0.0 && float < 9_007_199_254_740_992.0).then_some(float as u64)
            }),
            _ => None,
        }
    }

    /// Returns a number as a float; `None` for other types.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// Returns the items of a list; `None` for other types.
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the members of an object; `None` for other types.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Json::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns a member of an object; `None` if the key is missing or the value is not an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.as_object()?.get(key)
    }

    /// Returns an item of a list; `None` if the index is too large or the value is not a list.
    pub fn at(&self, index: usize) -> Option<&Json> {
        self.as_array()?.get(index)
    }

    /// Returns the part at a JSON Pointer (RFC 6901); `None` if it does not exist. `""` is the whole value.
    pub fn pointer(&self, pointer: &str) -> Option<&Json> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, token| match value {
            Json::Object(members) if token.contains('~') => {
                members.get(token.replace("~1", "/").replace("~0", "~").as_str())
            }
            Json::Object(members) => members.get(token),
            Json::Array(items) => array_index(token).and_then(|index| items.get(index)),
            _ => None,
        })
    }

    /// Returns the name of the value's type for messages, such as `a list`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::String(_) => "a text",
            Json::Array(_) => "a list",
            Json::Object(_) => "an object",
        }
    }

    /// Writes this value as compact JSON text.
    pub fn to_text(&self) -> String {
        // Serializing to memory fails only for keys that are not strings, which cannot occur.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Converts to `serde_json`'s own tree, copying everything.
    pub fn to_serde(&self) -> serde_json::Value {
        match self {
            Json::Null => serde_json::Value::Null,
            Json::Bool(value) => (*value).into(),
            Json::Number(number) => serde_json::Value::Number(number.clone()),
            Json::String(text) => serde_json::Value::String(text.to_string()),
            Json::Array(items) => items.iter().map(Json::to_serde).collect(),
            Json::Object(members) => {
                let members = members.iter().map(|(key, value)| (key.to_string(), value.to_serde()));
                serde_json::Value::Object(members.collect())
            }
        }
    }
}

/// Returns true for the output that the host records for a skipped node: `{ "skipped": true }`.
pub(crate) fn is_skipped(members: &Object) -> bool {
    members.len() == 1 && members.get("skipped").and_then(Json::as_bool) == Some(true)
}

/// Returns true for the members of a file value, `{ "kind": "file", "fileId": … }`.
pub(crate) fn is_file(members: &Object) -> bool {
    let text = |key: &str| members.get(key).and_then(Json::as_str);
    text("kind") == Some("file") && text("fileId").is_some()
}

/// Parses an array index. RFC 6901 allows no leading zeros and no signs.
fn array_index(token: &str) -> Option<usize> {
    let plain = token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    if plain { token.parse().ok() } else { None }
}

/// Deep equality. Key order does not matter, and numbers compare by value (`1` equals `1.0`).
impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Null, Json::Null) => true,
            (Json::Bool(a), Json::Bool(b)) => a == b,
            (Json::Number(a), Json::Number(b)) => compare_numbers(a, b) == Some(Ordering::Equal),
            (Json::String(a), Json::String(b)) => a == b,
            (Json::Array(a), Json::Array(b)) => Arc::ptr_eq(a, b) || a == b,
            (Json::Object(a), Json::Object(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

/// Compares two numbers by value, without rounding either of them.
pub fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => compare_whole(a, b.as_f64()?),
        (None, Some(b)) => compare_whole(b, a.as_f64()?).map(Ordering::reverse),
        (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

/// Compares a whole number of 64 bits with a float; `None` if the float is not a number.
fn compare_whole(whole: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // The conversion saturates far beyond 64 bits.
    let ordering = whole.cmp(&(float.trunc() as i128));
    Some(ordering.then_with(|| 0.0_f64.total_cmp(&(float.fract() + 0.0))))
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => number.serialize(serializer),
            Json::String(text) => serializer.serialize_str(text),
            Json::Array(items) => serializer.collect_seq(items.iter()),
            Json::Object(members) => serializer.collect_map(members.iter().map(|(key, value)| (&**key, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        Json::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(Arc::new(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Object::default();
        while let Some((key, value)) = map.next_entry::<String, Json>()? {
            if members.insert(key.as_str().into(), value).is_some() {
                return Err(A::Error::custom(format_args!("the key `{key}` occurs twice")));
            }
        }
        Ok(Json::Object(Arc::new(members)))
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::String(text.into())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::String(text.into())
    }
}

impl From<Arc<str>> for Json {
    fn from(text: Arc<str>) -> Json {
        Json::String(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::Number(value.into())
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Json {
        Json::Number(value.into())
    }
}

impl From<i64> for Json {
    fn from(value: i64) -> Json {
        Json::Number(value.into())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Json {
        match value {
            serde_json::Value::Null => Json::Null,
            serde_json::Value::Bool(value) => Json::Bool(value),
            serde_json::Value::Number(number) => Json::Number(number),
            serde_json::Value::String(text) => Json::String(text.into()),
            serde_json::Value::Array(items) => Json::array(items.into_iter().map(Json::from)),
            serde_json::Value::Object(members) => {
                Json::object(members.into_iter().map(|(key, value)| (key, Json::from(value))))
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        let many = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        for (item, fits, exceeds) in
            [("1", 900_000, 1_000_000), ("[]", 160_000, 170_000), (r#"{"a":1}"#, 160_000, 170_000)]
        {
            assert!(Json::parse(&many(item, fits)).is_ok(), "{item}");
            let error = Json::parse(&many(item, exceeds)).unwrap_err();
            assert!(error.to_string().contains("more than 1000000 values"), "{error}");
        }
        assert!(Json::parse(&many(r#""[,]{\\\"[,""#, 300_000)).is_ok());
        assert!(Json::has_too_many_values(&b"[".repeat(2 << 20)));
        let own = many("1", 1_000_001);
        assert_eq!(Json::restore(&own).unwrap().to_text(), own);
    }
}
