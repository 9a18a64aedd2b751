//! Where a value of an output comes from: it is new, or a part of the input or of the wake.

use serde::Serialize;
use serde_json::Value;

use crate::{failure::Result, wit::flowcell::node::types as wit};

/// A new value, or a reference to a part of the input or of the wake. The host looks up such a part itself, so it is
/// not copied through the sandbox.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A new value.
    Value(Value),
    /// A new value as JSON text, for values that are too large for a [`Value`] in the sandbox. The host refuses text
    /// that is not JSON.
    Text(String),
    /// The part of the input at a JSON Pointer; `""` is all of it.
    Input(String),
    /// The part of the wake at a JSON Pointer: `/value`, `/value/outputs`.
    Woken(String),
}

impl Source {
    /// Creates a source from a new value.
    pub fn value(value: impl Serialize) -> Result<Source> {
        Ok(Source::Value(serde_json::to_value(value)?))
    }

    /// Creates a reference to the part of the input at a JSON Pointer.
    pub fn input(pointer: impl Into<String>) -> Source {
        Source::Input(pointer.into())
    }

    /// Creates a reference to the part of the wake at a JSON Pointer.
    pub fn woken(pointer: impl Into<String>) -> Source {
        Source::Woken(pointer.into())
    }

    pub(crate) fn into_wit(self) -> wit::Source {
        match self {
            Source::Value(value) => wit::Source::Json(value.to_string()),
            Source::Text(text) => wit::Source::Json(text),
            Source::Input(pointer) => wit::Source::Input(pointer),
            Source::Woken(pointer) => wit::Source::Woken(pointer),
        }
    }
}
