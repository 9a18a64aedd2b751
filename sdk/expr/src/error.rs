//! What is wrong with an expression, and where.

use std::{error, fmt, ops::Range};

/// One finding about an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// Where the text stands: a JSON Pointer inside the compiled value; `""` is the value itself.
    pub pointer: String,
    /// Which bytes of that text are meant.
    pub offset: Option<Range<usize>>,
    /// Whether the key is meant under which the text stands, not the text.
    pub is_key: bool,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
    /// Whether it is about a missing value, which is an error in strict flows only.
    pub is_missing: bool,
}

impl ExprError {
    /// A finding about the whole value.
    pub(crate) fn new(message: impl Into<String>) -> ExprError {
        ExprError {
            pointer: String::new(),
            offset: None,
            is_key: false,
            message: message.into(),
            hint: None,
            is_missing: false,
        }
    }

    /// An error about a value that a strict flow needs and that is missing.
    pub(crate) fn missing(message: impl Into<String>) -> ExprError {
        ExprError { is_missing: true, ..ExprError::new(message) }
    }

    /// A finding about the key that the pointer ends with.
    pub(crate) fn of_key(message: impl Into<String>) -> ExprError {
        ExprError { is_key: true, ..ExprError::new(message) }
    }

    /// The same finding, with something to write instead.
    pub(crate) fn hint(self, hint: impl Into<String>) -> ExprError {
        ExprError { hint: Some(hint.into()), ..self }
    }

    /// The same finding, about these bytes; a closer place that is already known stays.
    pub(crate) fn at(self, offset: Range<usize>) -> ExprError {
        ExprError { offset: self.offset.or(Some(offset)), ..self }
    }

    /// The same finding, about bytes that lie further back in a longer text.
    pub(crate) fn moved(self, by: usize) -> ExprError {
        ExprError { offset: self.offset.map(|place| place.start + by..place.end + by), ..self }
    }

    /// The same finding, seen from a value that holds the place under `prefix`.
    pub(crate) fn under(mut self, prefix: &str) -> ExprError {
        self.pointer.insert_str(0, prefix);
        self
    }

    /// The same finding, seen from the object or list that holds the place under `token`.
    pub(crate) fn inside(self, token: &str) -> ExprError {
        let mut prefix = String::new();
        push_token(&mut prefix, token);
        self.under(&prefix)
    }
}

/// Appends one reference token to a JSON Pointer.
pub(crate) fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for character in token.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(formatter, "{}: ", self.pointer)?;
        }
        formatter.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(formatter, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl error::Error for ExprError {}
