//! Shortened texts for people.

use std::borrow::Cow;

/// Returns the first `most` characters of a text, with the total size if the text was cut.
pub(crate) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some((end, _)) => format!("{}… ⟨cut: {} bytes⟩", &text[..end], text.len()).into(),
    }
}
