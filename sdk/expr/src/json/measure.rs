//! How large a value is: as JSON text, not in memory, where parts are shared.

use std::fmt;

use super::Json;
use crate::limits;

/// Why a value does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Its text would be longer than so many bytes.
    Bytes(u64),
    /// It is nested deeper than JSON text may be.
    Depth,
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Bytes(most) if *most >= 1 << 20 => write!(formatter, "is larger than {} MiB", most >> 20),
            Misfit::Bytes(most) => write!(formatter, "is larger than {most} bytes"),
            Misfit::Depth => write!(formatter, "is nested deeper than {}", limits::JSON_DEPTH),
        }
    }
}

impl Json {
    /// The bytes, about, of its JSON text: signs that have to be escaped and digits are not counted exactly. Stops where
    /// it is clear that the value does not fit. Takes as long as there are values in it.
    pub fn measure(&self, most: u64) -> Result<u64, Misfit> {
        let mut left = most;
        self.take(&mut left, 0).map_err(|depth| if depth { Misfit::Depth } else { Misfit::Bytes(most) })?;
        Ok(most - left)
    }

    /// Takes the bytes of this value from what is left. An error says whether it is too deep.
    fn take(&self, left: &mut u64, depth: usize) -> Result<(), bool> {
        if depth > limits::JSON_DEPTH {
            return Err(true);
        }
        let own = match self {
            Json::Null | Json::Bool(_) => 4,
            Json::Number(_) => 8,
            Json::String(text) => text.len() as u64 + 2,
            Json::Array(items) => items.len() as u64 + 2,
            Json::Object(members) => members.keys().map(|key| key.len() as u64 + 4).sum::<u64>() + 2,
        };
        *left = left.checked_sub(own).ok_or(false)?;
        match self {
            Json::Array(items) => items.iter().try_for_each(|item| item.take(left, depth + 1)),
            Json::Object(members) => members.values().try_for_each(|member| member.take(left, depth + 1)),
            _ => Ok(()),
        }
    }
}
