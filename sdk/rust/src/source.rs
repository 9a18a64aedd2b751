//! Where a value comes from.

use serde::Serialize;
use serde_json::Value;

use crate::{failure::Result, wit::flowcell::node::types as wit};

/// A value, or a part of what was given. The host shares such a part: nothing is copied through the sandbox.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A new value.
    Value(Value),
    /// A new value as JSON text, for one that is too large for a tree of values. The host refuses a text that is not JSON.
    Text(String),
    /// The part of the input at a JSON Pointer; `""` is all of it.
    Input(String),
    /// The part of what woke the node at a JSON Pointer: `/value`, `/value/outputs`.
    Woken(String),
}

impl Source {
    /// A new value.
    pub fn value(value: impl Serialize) -> Result<Source> {
        Ok(Source::Value(serde_json::to_value(value)?))
    }

    /// The part of the input at a JSON Pointer.
    pub fn input(pointer: impl Into<String>) -> Source {
        Source::Input(pointer.into())
    }

    /// The part of what woke the node at a JSON Pointer.
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
