//! One part of a JSON text, read without holding the rest of it.

use std::{fmt, io::Read};

use flowcell_expr::Json;
use flowcell_sdk::prelude::*;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Which items of a list are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The first item, from 0.
    pub(crate) from: u64,
    /// How many items at most.
    pub(crate) limit: u64,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The value; null if there is none at the place.
    pub(crate) value: Value,
    /// Whether the list goes on behind the window.
    pub(crate) more: bool,
}

/// Reads the part at a JSON Pointer, of a list only the window's items. The text is checked to its end.
pub(crate) fn read(reader: &mut impl Read, pointer: &str, window: Option<Window>) -> Result<Found> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        let message = format!("input.at: `{pointer}` is not a JSON Pointer; write `/{pointer}`");
        return Err(Failure::invalid_input(message));
    }
    let steps: Vec<String> =
        pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let mut found = None;
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let wrong = |error: serde_json::Error| Failure::new("invalid_json", format!("the file is not JSON: {error}"));
    Part { steps: &steps, window, found: &mut found }.deserialize(&mut deserializer).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    found.ok_or_else(|| {
        Failure::new("path_not_found", format!("the JSON has nothing at `{pointer}`, or no list to take items of"))
    })
}

/// Walks down to the part and puts it into `found`.
struct Part<'a> {
    steps: &'a [String],
    window: Option<Window>,
    found: &'a mut Option<Found>,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match (self.steps.is_empty(), self.window) {
            (true, None) => {
                let value = kept(&Box::<RawValue>::deserialize(deserializer)?)?;
                *self.found = Some(Found { value, more: false });
                Ok(())
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.steps.is_empty() { "a list, since `from` or `limit` is given" } else { "any JSON" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("`from` and `limit` need a list, and this is an object"));
        };
        while let Some(key) = map.next_key::<String>()? {
            match key == *step {
                true => map.next_value_seed(Part { steps, window: self.window, found: &mut *self.found })?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else { return self.window_of(list) };
        let wanted = step.parse::<u64>().ok();
        for index in 0.. {
            let went_on = match wanted == Some(index) {
                true => list.next_element_seed(Part { steps, window: self.window, found: &mut *self.found })?.is_some(),
                false => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !went_on {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The value of a JSON text, unless a number in it would lose digits.
fn kept<E: serde::de::Error>(text: &RawValue) -> Result<Value, E> {
    Json::check_numbers(text.get()).map_err(E::custom)?;
    serde_json::from_str(text.get()).map_err(E::custom)
}

impl Part<'_> {
    fn window_of<'de, A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Window { from, limit } = self.window.unwrap_or(Window { from: 0, limit: u64::MAX });
        let mut items = Vec::new();
        let mut more = false;
        for index in 0u64.. {
            let inside = index >= from && (items.len() as u64) < limit;
            if inside {
                let Some(item) = list.next_element::<Box<RawValue>>()? else { break };
                items.push(kept(&item)?);
            } else {
                let Some(_) = list.next_element::<IgnoredAny>()? else { break };
                more |= index >= from;
            }
        }
        *self.found = Some(Found { value: Value::Array(items), more });
        Ok(())
    }
}
