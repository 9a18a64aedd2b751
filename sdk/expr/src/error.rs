//! Errors in expressions, with their positions.

use std::{error, fmt, ops::Range};

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// JSON Pointer to the text with the error inside the compiled value; `""` is the compiled value itself.
    pub pointer: String,
    /// The byte range of the error in the text at `pointer`; `None` if the error is about the whole value there.
    pub offset: Option<Range<usize>>,
    /// True if the error is about the last key of `pointer`. False if it is about the value at `pointer`.
    pub is_key: bool,
    /// Description of the error.
    pub message: String,
    /// A suggested correction.
    pub hint: Option<String>,
    /// True for an error about a missing value, which only strict flows report.
    pub is_missing: bool,
}

impl ExprError {
    /// Creates an error about the whole value.
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

    /// Creates an error about a missing value in a strict flow.
    pub(crate) fn missing(message: impl Into<String>) -> ExprError {
        ExprError { is_missing: true, ..ExprError::new(message) }
    }

    /// Creates an error about the last key of the pointer.
    pub(crate) fn for_key(message: impl Into<String>) -> ExprError {
        ExprError { is_key: true, ..ExprError::new(message) }
    }

    /// Adds a suggested correction.
    pub(crate) fn hint(self, hint: impl Into<String>) -> ExprError {
        ExprError { hint: Some(hint.into()), ..self }
    }

    /// Sets the byte range of the error, unless it is already known.
    pub(crate) fn at(self, offset: Range<usize>) -> ExprError {
        ExprError { offset: self.offset.or(Some(offset)), ..self }
    }

    /// Shifts the byte range of the error by `by` bytes: a position in an expression becomes a position in the text
    /// that contains the expression.
    pub(crate) fn moved(self, by: usize) -> ExprError {
        ExprError { offset: self.offset.map(|place| place.start + by..place.end + by), ..self }
    }

    /// Puts `prefix` before the pointer.
    pub(crate) fn under(mut self, prefix: &str) -> ExprError {
        self.pointer.insert_str(0, prefix);
        self
    }

    /// Puts the reference token `token` before the pointer.
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

/// Calls `action` with the pointer extended by one token, and then removes this token from the pointer.
pub(crate) fn with_token<T>(pointer: &mut String, token: &str, action: impl FnOnce(&mut String) -> T) -> T {
    let length = pointer.len();
    push_token(pointer, token);
    let result = action(pointer);
    pointer.truncate(length);
    result
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
