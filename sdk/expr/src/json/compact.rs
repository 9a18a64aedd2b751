//! Compacts JSON texts without a tree of values. The tree would need many times the memory of the text.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Error;

use super::digits;

/// Performs [`Json::compact`](super::Json::compact).
pub(super) fn compact(text: &str, most: usize) -> Result<Option<String>, Error> {
    let mut out = String::new();
    if !push_compact(&mut out, text, most) {
        return Ok(None);
    }
    let Checked { has_key_twice } = serde_json::from_str(text)?;
    digits::check(text)?;
    match has_key_twice {
        true => serde_json::from_str::<serde_json::Value>(text).map(|value| Some(value.to_string())),
        false => Ok(Some(out)),
    }
}

/// Appends a text without the white space outside of quotes. Returns false if the result has more than `most` bytes.
fn push_compact(out: &mut String, text: &str, most: usize) -> bool {
    let (mut is_quoted, mut is_escaped, mut start) = (false, false, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b' ' | b'\t' | b'\n' | b'\r' if !is_quoted => {
                out.push_str(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if out.len() + at > most.saturating_add(start) {
            return false;
        }
    }
    out.push_str(&text[start..]);
    out.len() <= most
}

/// The result of reading a JSON text to its end. Reading also finds syntax errors.
#[derive(Default)]
struct Checked {
    has_key_twice: bool,
}

impl Checked {
    fn and(self, other: Checked) -> Checked {
        Checked { has_key_twice: self.has_key_twice || other.has_key_twice }
    }
}

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Checked, D::Error> {
        deserializer.deserialize_any(CheckedVisitor)
    }
}

struct CheckedVisitor;

impl<'de> Visitor<'de> for CheckedVisitor {
    type Value = Checked;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Checked, A::Error> {
        let mut checked = Checked::default();
        while let Some(item) = list.next_element()? {
            checked = checked.and(item);
        }
        Ok(checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Checked, A::Error> {
        let (mut checked, mut keys) = (Checked::default(), HashSet::new());
        while let Some((Key(key), member)) = map.next_entry()? {
            checked = checked.and(member).and(Checked { has_key_twice: !keys.insert(key) });
        }
        Ok(checked)
    }
}

/// A key, borrowed from the text unless it contains escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<'de>, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::Json;

    #[test]
    fn compact_checks_a_text_and_removes_white_space() {
        let compact = [
            (" [ 1 , 2.50,\n\t-0 ] ", "[1,2.50,-0]"),
            (r#"{ "a b" : " \" \\", "c" : [ true , null ] }"#, r#"{"a b":" \" \\","c":[true,null]}"#),
            (r#"{"a": 1, "b": 2, "\u0061": 3}"#, r#"{"a":3,"b":2}"#),
            ("\"\\u00e9 \"", "\"\\u00e9 \""),
        ];
        for (text, expected) in compact {
            let out = Json::compact(text, 100).unwrap().unwrap();
            assert_eq!(out, expected);
            let value = serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(Json::parse(&out).unwrap(), Json::from(value), "{text}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        for text in ["", "{", "1 2", "tr ue", "[1,]", "\"\\ud800\"", "99999999999999999999", "[1e999]", &deep] {
            assert!(Json::compact(text, 1_000).is_err(), "{text}");
        }
        for (most, fits) in [(7, true), (6, false)] {
            assert_eq!(Json::compact(" [ 1, 2, 3 ] ", most).unwrap().is_some(), fits, "{most}");
        }
    }
}
