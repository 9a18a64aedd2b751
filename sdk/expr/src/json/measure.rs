//! Measures the size that values have as JSON text. In memory they may be smaller, because parts are shared.

use std::fmt;

use super::Json;
use crate::limits;

/// The reason why a value is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// The text would be longer than this number of bytes.
    Bytes(u64),
    /// The value is nested deeper than JSON text may be.
    Depth,
}

impl fmt::Display for SizeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeError::Bytes(most) if *most >= 1 << 20 => write!(formatter, "is larger than {} MiB", most >> 20),
            SizeError::Bytes(most) => write!(formatter, "is larger than {most} bytes"),
            SizeError::Depth => write!(formatter, "is nested deeper than {}", limits::JSON_DEPTH),
        }
    }
}

/// The limit that a value exceeds.
enum Excess {
    Depth,
    Bytes,
}

impl Json {
    /// Returns the approximate size in bytes of the value's JSON text; escapes and digits are estimated. Stops as soon
    /// as the size exceeds `most`. The time grows with the number of values.
    pub fn measure(&self, most: u64) -> Result<u64, SizeError> {
        let mut left = most;
        self.subtract_size(&mut left, 0).map_err(|excess| match excess {
            Excess::Depth => SizeError::Depth,
            Excess::Bytes => SizeError::Bytes(most),
        })?;
        Ok(most - left)
    }

    /// Returns the work of reading every part of this value, in units of [`limits::WORK`]. Stops as soon as the work
    /// reaches `most`.
    pub(crate) fn work(&self, most: u64) -> u64 {
        let item = limits::ITEM_WORK as u64;
        let parts = |left: u64, part: &Json| left + part.work(most.saturating_sub(left));
        match self {
            _ if most == 0 => 0,
            Json::Null | Json::Bool(_) | Json::Number(_) => item,
            Json::String(text) => (text.len() as u64).max(item),
            Json::Array(items) => items.iter().fold(item, parts),
            Json::Object(members) => members.values().fold(item * members.len().max(1) as u64, parts),
        }
    }

    /// Subtracts the size of this value from `left`, the number of bytes that are still allowed. Fails if the value is
    /// larger or nested too deeply. `depth` is the nesting depth of this value.
    fn subtract_size(&self, left: &mut u64, depth: usize) -> Result<(), Excess> {
        if depth > limits::JSON_DEPTH {
            return Err(Excess::Depth);
        }
        let own = match self {
            Json::Null | Json::Bool(_) => 4,
            Json::Number(_) => 8,
            Json::String(text) => text.len() as u64 + 2,
            Json::Array(items) => items.len() as u64 + 2,
            Json::Object(members) => members.keys().map(|key| key.len() as u64 + 4).sum::<u64>() + 2,
        };
        *left = left.checked_sub(own).ok_or(Excess::Bytes)?;
        match self {
            Json::Array(items) => items.iter().try_for_each(|item| item.subtract_size(left, depth + 1)),
            Json::Object(members) => members.values().try_for_each(|member| member.subtract_size(left, depth + 1)),
            _ => Ok(()),
        }
    }
}
