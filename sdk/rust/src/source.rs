//! The source of a value that a node hands to the host: a new value, or a part of the input or of the wake.

use serde::Serialize;
use serde_json::Value;

use crate::{failure::Result, wit::flowcell::node::types as wit};

/// The source of a value that a node hands to the host, for example as a member of its output. It is either a new
/// value, or a reference to a part of the input or of the wake that ended the pause. The host looks up a referenced
/// part itself, so the sandbox needs no copy of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A new value.
    Value(Value),
    /// A new value as JSON text, for values that are too large for a [`Value`] in the sandbox. The host refuses text
    /// that is not JSON.
    Text(String),
    /// The part of the input at a JSON Pointer; `""` is all of it.
    Input(String),
    /// The part of the wake at a JSON Pointer: `/value` for the wake's value, `/value/outputs` for a member of it.
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
