//! Reads one part of a JSON text without holding the rest in memory.

use std::{
    cell::Cell,
    fmt,
    io::{self, Read},
};

use flowcell_expr::{Json, limits::JSON_VALUES};
use flowcell_sdk::prelude::*;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum size in bytes of the part that is returned, without the whitespace between its values.
const MAX_OUTPUT_BYTES: usize = (4 << 20) - 64;
/// Maximum number of values in the part. It is lower than the limit of an output, because the output has other members
/// too.
const MAX_OUTPUT_VALUES: usize = JSON_VALUES - 1_000;
/// Maximum size in bytes of the part, or of one item of a window, including the whitespace in the file.
const MAX_WRITTEN_BYTES: u64 = 16 << 20;

/// The range of list items to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The first item, from 0.
    pub(crate) from: u64,
    /// Maximum number of items.
    pub(crate) limit: u64,
}

/// The part that was read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The part as JSON text. A tree of values would take many times the memory of the text.
    pub(crate) text: String,
    /// True if the list has more items after the window.
    pub(crate) more: bool,
}

/// The memory limit for the part, and the reasons why reading stopped.
#[derive(Default)]
struct MemoryLimit {
    /// Bytes left for the value that is being read into memory. `None` while values are skipped.
    left: Cell<Option<u64>>,
    /// True if the part exceeded a limit.
    is_exceeded: Cell<bool>,
    /// True if the caller requested a window of a value that is not a list.
    is_no_list: Cell<bool>,
}

impl MemoryLimit {
    fn mark_exceeded(&self) -> &'static str {
        self.is_exceeded.set(true);
        "the part is too large"
    }
}

/// A reader that fails when it has read more than [`MAX_WRITTEN_BYTES`] of a value that is kept in memory.
struct Bounded<'a, R> {
    reader: R,
    memory: &'a MemoryLimit,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if let Some(left) = self.memory.left.get() {
            let left = left.checked_sub(count as u64);
            self.memory.left.set(Some(left.ok_or_else(|| io::Error::other(self.memory.mark_exceeded()))?));
        }
        Ok(count)
    }
}

/// Reads the part at a JSON Pointer. With a window the part must be a list, and only the items in the window are read.
/// Checks the syntax of the whole text.
pub(crate) fn read(reader: &mut impl Read, pointer: &str, window: Option<Window>) -> Result<Found> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        let steps: Vec<_> = pointer.split(['.', '[', ']']).filter(|step| !step.is_empty()).collect();
        let message = format!("input.at: `{pointer}` is not a JSON Pointer; write `/{}`", steps.join("/"));
        return Err(Failure::invalid_input(message));
    }
    let steps: Vec<String> =
        pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let (mut found, memory) = (None, MemoryLimit::default());
    let mut deserializer = serde_json::Deserializer::from_reader(Bounded { reader, memory: &memory });
    let wrong = |error: serde_json::Error| match memory.is_exceeded.get() {
        true => too_large(pointer, window),
        // The text is JSON, but has another kind of value at the path.
        false if memory.is_no_list.get() => Failure::new("path_not_found", error.to_string()),
        false => Failure::new("invalid_json", format!("the file is not JSON: {error}")),
    };
    Part { steps: &steps, window, memory: &memory, found: &mut found }.deserialize(&mut deserializer).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    let found: Found = found.ok_or_else(|| {
        Failure::new(
            "path_not_found",
            format!("the JSON has no value at `{pointer}`, or no list for `from` and `limit`"),
        )
    })?;
    match Json::has_more_values(found.text.as_bytes(), MAX_OUTPUT_VALUES) {
        true => Err(too_large(pointer, window)),
        false => Ok(found),
    }
}

fn too_large(pointer: &str, window: Option<Window>) -> Failure {
    let message = match window {
        Some(Window { from, limit }) => {
            format!(
                "the {limit} items from {from} at `{pointer}` have more than 4 MiB or {MAX_OUTPUT_VALUES} values; read \
                 fewer with `limit`"
            )
        }
        None => format!(
            "the JSON at `{pointer}` has more than 4 MiB or {MAX_OUTPUT_VALUES} values; read a part of it with `at`, or \
             items with `from` and `limit`"
        ),
    };
    Failure::new("output_too_large", message)
}

/// Follows `steps` to the part, and stores the part in `found`.
struct Part<'a> {
    steps: &'a [String],
    window: Option<Window>,
    memory: &'a MemoryLimit,
    found: &'a mut Option<Found>,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match (self.steps.is_empty(), self.window) {
            (true, None) => {
                let text = self.with_limit(|| Box::<RawValue>::deserialize(deserializer))?;
                *self.found = Some(Found { text: self.compacted(&text, MAX_OUTPUT_BYTES)?, more: false });
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
            self.memory.is_no_list.set(true);
            return Err(A::Error::custom("`from` and `limit` need a list, not an object"));
        };
        while let Some(key) = map.next_key::<String>()? {
            match key == *step {
                true => map.next_value_seed(Part {
                    steps,
                    window: self.window,
                    memory: self.memory,
                    found: &mut *self.found,
                })?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else { return self.read_window(list) };
        let wanted = step.parse::<u64>().ok();
        for index in 0.. {
            let went_on = match wanted == Some(index) {
                true => list
                    .next_element_seed(Part {
                        steps,
                        window: self.window,
                        memory: self.memory,
                        found: &mut *self.found,
                    })?
                    .is_some(),
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

impl Part<'_> {
    /// Calls `read`, which reads one value into memory. Fails if this value takes more than [`MAX_WRITTEN_BYTES`].
    fn with_limit<T>(&self, read: impl FnOnce() -> T) -> T {
        self.memory.left.set(Some(MAX_WRITTEN_BYTES));
        let value = read();
        self.memory.left.set(None);
        value
    }

    /// Removes the whitespace from a JSON text that becomes a part of the output. Fails if the result has more than
    /// `most` bytes.
    fn compacted<E: serde::de::Error>(&self, text: &RawValue, most: usize) -> Result<String, E> {
        let text = Json::compact(text.get(), most).map_err(E::custom)?;
        text.ok_or_else(|| E::custom(self.memory.mark_exceeded()))
    }

    fn read_window<'de, A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Window { from, limit } = self.window.unwrap_or(Window { from: 0, limit: u64::MAX });
        let mut found = Found { text: "[".to_owned(), more: false };
        for index in 0u64.. {
            let is_inside = index >= from && index - from < limit;
            if is_inside {
                let Some(item) = self.with_limit(|| list.next_element::<Box<RawValue>>())? else { break };
                let separator = if index > from { "," } else { "" };
                let room = MAX_OUTPUT_BYTES.saturating_sub(found.text.len());
                found.text.push_str(separator);
                found.text.push_str(&self.compacted::<A::Error>(&item, room)?);
            } else {
                let Some(_) = list.next_element::<IgnoredAny>()? else { break };
                found.more |= index >= from;
            }
        }
        found.text.push(']');
        *self.found = Some(found);
        Ok(())
    }
}
