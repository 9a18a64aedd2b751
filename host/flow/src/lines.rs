//! Converts between byte offsets and positions in a text.

use crate::yaml::Span;

/// Maximum number of characters of a line in a help text.
pub(crate) const MAX_LINE_CHARS: usize = 100;

/// Returns the help text "write `LINE`", in which LINE is `line`, cut after [`MAX_LINE_CHARS`] characters.
pub(crate) fn write_help(line: &str) -> String {
    format!("write `{}`", line.chars().take(MAX_LINE_CHARS).collect::<String>())
}

/// Returns the byte offset of a position.
pub(crate) fn offset(text: &str, span: Span) -> Option<usize> {
    let line = text.split_inclusive('\n').take(span.line.saturating_sub(1)).map(str::len).sum::<usize>();
    let column = text.get(line..)?.char_indices().nth(span.column.saturating_sub(1)).map(|(at, _)| at);
    Some(line + column.unwrap_or(text.len() - line))
}

/// Returns the position of the character at a byte offset.
pub(crate) fn place(text: &str, at: usize) -> Span {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    Span { line, column: before[line_start..].chars().count() + 1, len: 1, start: at, copy: 0 }
}

/// Returns the line that contains the byte `at`: the byte offset of its start, and its text.
pub(crate) fn line_at(text: &str, at: usize) -> (usize, &str) {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    (start, text[start..end].trim_end())
}
