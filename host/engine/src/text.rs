//! Removes harmful characters from texts that guests write for people.

use flowcell_contract::text::{has_deceptive, judged};

/// Replaces control characters, which could drive a terminal, and deceptive characters. Line breaks and tabs stay.
pub(crate) fn printable(text: String) -> String {
    if !text.contains(is_harmful) && !has_deceptive(&text) {
        return text;
    }
    judged(&text).map(|(c, deceptive)| if deceptive || is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

fn is_harmful(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Returns the text on one line, without control characters and deceptive characters.
pub(crate) fn single_line(text: &str) -> String {
    let spaced: String = judged(text).map(|(c, deceptive)| if deceptive || c.is_control() { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cuts a text to at most this many bytes, between characters.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}
