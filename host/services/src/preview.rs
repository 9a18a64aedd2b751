//! Long texts as people are shown them.

use std::borrow::Cow;

/// The first characters of a text, at most so many, with the size of the whole if something is cut.
pub(crate) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some((end, _)) => format!("{}… ⟨cut: {} bytes⟩", &text[..end], text.len()).into(),
    }
}
