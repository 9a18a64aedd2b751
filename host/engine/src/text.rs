//! Text that guests write for people, made harmless.

use flowcell_contract::text::{has_deceptive, judged};

/// Replaces control characters, which could drive a terminal, and characters that deceive a reader. Line breaks and tabs stay.
pub(crate) fn printable(text: String) -> String {
    if !text.contains(is_harmful) && !has_deceptive(&text) {
        return text;
    }
    judged(&text).map(|(c, deceptive)| if deceptive || is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

fn is_harmful(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// The text without control characters and line breaks.
pub(crate) fn single_line(text: &str) -> String {
    let spaced: String = judged(text).map(|(c, deceptive)| if deceptive || c.is_control() { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of a text, cut between characters.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}
