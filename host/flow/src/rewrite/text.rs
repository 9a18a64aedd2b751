//! Finds the places of values in the text of a flow.

use std::{borrow::Cow, iter};

use crate::yaml::{Kind, Tree};

/// Returns an item as a document of its own. The first of several lines is indented like the others.
pub(super) fn indented(written: &str, column: usize) -> Cow<'_, str> {
    match written.contains('\n') {
        true => (" ".repeat(column.saturating_sub(1)) + written).into(),
        false => written.into(),
    }
}

/// Returns the position after a value; `None` if it cannot be told.
pub(super) fn end_of(text: &str, tree: &Tree) -> Option<usize> {
    let start = tree.span.start;
    let rest = text.get(start..)?;
    match (&tree.kind, rest.chars().next()?) {
        (Kind::Map(_) | Kind::List(_), '{' | '[') => end_of_brackets(rest).map(|end| start + end),
        (Kind::Map(entries), _) => end_of(text, &entries.last()?.value),
        (Kind::List(items), _) => end_of(text, items.last()?),
        (Kind::Scalar(_), quote @ ('"' | '\'')) => end_of_quoted(rest, quote).map(|end| start + end),
        (Kind::Scalar(_), _) => {
            let length = rest.char_indices().nth(tree.span.len.checked_sub(1)?)?;
            Some(start + length.0 + length.1.len_utf8())
        }
    }
}

/// Returns the position after the bracket that closes the first one of a text.
fn end_of_brackets(text: &str) -> Option<usize> {
    let mut depth = 0;
    outside_quotes(text).find_map(|(at, sign)| {
        match sign {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then(|| at + sign.len_utf8())
    })
}

/// Returns the signs of a text that stand outside of quoted texts, with their positions. Ends at a quote that is not
/// closed. A quote inside a plain text begins nothing.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    iter::from_fn(move || {
        loop {
            let sign = text[at..].chars().next()?;
            let before = &text[..at];
            let begins =
                matches!(sign, '"' | '\'') && (before.is_empty() || before.ends_with([' ', ',', ':', '{', '[', '\n']));
            if !begins {
                at += sign.len_utf8();
                return Some((at - sign.len_utf8(), sign));
            }
            at += end_of_quoted(&text[at..], sign)?;
        }
    })
}

/// Returns the position after the quote that closes a quoted text. In single quotes, two of them are one sign.
fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut signs = text.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        if sign == '\\' && quote == '"' {
            signs.next();
        } else if sign == quote {
            if quote == '\'' && signs.next_if(|(_, next)| *next == quote).is_some() {
                continue;
            }
            return Some(at + 1);
        }
    }
    None
}

/// Returns true if a comment stands in a part of a text.
pub(super) fn has_comment(written: &str) -> bool {
    outside_quotes(written).any(|(at, sign)| sign == '#' && written[..at].ends_with([' ', '\t', '\n']))
}

/// Returns the position after the next line break, or the end of the text.
pub(super) fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |line_break| at + line_break + 1)
}

/// Returns the position at which the line of a position begins.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |line_break| line_break + 1)
}
