//! Builds texts of limited length.

use std::io;

use crate::{json::Json, limits};

/// The error of a text that would be longer than [`limits::TEXT_BYTES`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextTooLong;

impl TextTooLong {
    /// Returns the message of the error.
    pub(crate) fn message(self) -> String {
        format!("the text would be longer than {} bytes", limits::TEXT_BYTES)
    }
}

/// Appends a text. Fails if the result would be longer than [`limits::TEXT_BYTES`].
pub(crate) fn push_str(text: &mut String, more: &str) -> Result<(), TextTooLong> {
    if text.len() + more.len() > limits::TEXT_BYTES {
        return Err(TextTooLong);
    }
    text.push_str(more);
    Ok(())
}

/// Appends a value as in mixed text: texts unchanged, `null` as nothing, other values as compact JSON.
pub(crate) fn push_json(text: &mut String, value: &Json) -> Result<(), TextTooLong> {
    match value {
        Json::Null => Ok(()),
        Json::String(more) => push_str(text, more),
        Json::Bool(true) => push_str(text, "true"),
        Json::Bool(false) => push_str(text, "false"),
        other => push_compact(text, other),
    }
}

/// Appends a value as compact JSON.
pub(crate) fn push_compact(text: &mut String, value: &Json) -> Result<(), TextTooLong> {
    serde_json::to_writer(Bounded(text), value).map_err(|_| TextTooLong)
}

/// A writer that appends to a text and fails above [`limits::TEXT_BYTES`].
struct Bounded<'a>(&'a mut String);

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `serde_json` writes only whole characters.
        let more = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        push_str(self.0, more).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
