//! Shortened texts for people.

use std::borrow::Cow;

/// Cuts a text to its first `most` characters. A cut text ends with a note of the original size in bytes.
pub(crate) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some((end, _)) => format!("{}… ⟨cut: {} bytes⟩", &text[..end], text.len()).into(),
    }
}
