//! The lines of a text, and the places of its bytes.

use crate::yaml::Span;

/// Characters of a line that a help repeats.
pub(crate) const LINE: usize = 100;

/// "write `…`" with a line in it.
pub(crate) fn write(line: &str) -> String {
    format!("write `{}`", line.chars().take(LINE).collect::<String>())
}

/// The byte at which a place begins.
pub(crate) fn offset(text: &str, span: Span) -> Option<usize> {
    let line = text.split_inclusive('\n').take(span.line.saturating_sub(1)).map(str::len).sum::<usize>();
    let column = text.get(line..)?.char_indices().nth(span.column.saturating_sub(1)).map(|(at, _)| at);
    Some(line + column.unwrap_or(text.len() - line))
}

/// The place of a byte.
pub(crate) fn place(text: &str, at: usize) -> Span {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    Span { line, column: before[line_start..].chars().count() + 1, len: 1, start: at }
}

/// The line that a byte is in, and where it begins.
pub(crate) fn line_at(text: &str, at: usize) -> (usize, &str) {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    (start, text[start..end].trim_end())
}
