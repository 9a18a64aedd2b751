//! Finds `{{ expr }}` in texts.

use std::ops::Range;

use crate::{error::ExprError, path::shorten, quoted::end_of_quoted};

/// A part of a text.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    /// Text outside of `{{ }}`.
    Text(&'a str),
    /// The expression between `{{` and `}}`, without the white space around it, and its byte offset.
    Expression(&'a str, usize),
}

/// Splits a text into plain text and expressions. Returns the first error, if there are any.
pub(crate) fn split(text: &str) -> Result<Vec<Piece<'_>>, ExprError> {
    let (pieces, mut errors) = pieces(text);
    if errors.is_empty() { Ok(pieces) } else { Err(errors.remove(0)) }
}

/// Splits a text as far as possible and returns all errors.
pub(crate) fn pieces(text: &str) -> (Vec<Piece<'_>>, Vec<ExprError>) {
    let (mut pieces, mut errors) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(found) = text[at..].find("{{") {
        let open = at + found;
        if open > at {
            pieces.push(Piece::Text(&text[at..open]));
        }
        let close = match end_of_expression(text, open + 2) {
            Ok(close) => close,
            Err(quote) => {
                errors.push(unclosed(text, open, quote));
                return (pieces, errors);
            }
        };
        match expression(text, open + 2..close) {
            Ok(piece) => pieces.push(piece),
            Err(error) => errors.push(error),
        }
        at = close + 2;
    }
    if at < text.len() {
        pieces.push(Piece::Text(&text[at..]));
    }
    (pieces, errors)
}

/// Returns the expression and its byte offset if a text is a single `{{ }}`, with optional white space around it;
/// `None` for any other text.
pub(crate) fn whole(text: &str) -> Result<Option<(&str, usize)>, ExprError> {
    let start = text.len() - text.trim_start().len();
    match text[start..].starts_with("{{") {
        true => match split(text[start..].trim_end()).map_err(|error| error.moved(start))?.as_slice() {
            [Piece::Expression(source, at)] => Ok(Some((source, start + at))),
            _ => Ok(None),
        },
        false => Ok(None),
    }
}

/// Creates the error about an expression without `}}`. `open` is the byte offset of its `{{`. `quote` is the offset of
/// a quote in it that is never closed, if there is one.
fn unclosed(text: &str, open: usize, quote: Option<usize>) -> ExprError {
    if let Some(quote) = quote.filter(|quote| text[*quote..].contains("}}")) {
        let sign = &text[quote..=quote];
        let hint =
            format!("close it with `{sign}`; inside a text in `{sign}`, write `\\{sign}` for a literal `{sign}`");
        return ExprError::new("the quoted text is not closed").at(quote..text.len()).hint(hint);
    }
    let error = ExprError::new("`{{` is not closed").at(open..text.len());
    match text[open..].contains('}') {
        true => error.hint("close it with `}}`"),
        false => error.hint("close it with `}}`, or write {{ \"{{\" }} for a literal `{{`"),
    }
}

fn expression(text: &str, inside: Range<usize>) -> Result<Piece<'_>, ExprError> {
    let source = &text[inside.clone()];
    let trimmed = source.trim_start();
    let at = inside.start + (source.len() - trimmed.len());
    match trimmed.trim_end() {
        "" => Err(ExprError::new("the expression is empty").at(inside.start - 2..inside.end + 2)),
        source if text[..inside.end].ends_with('-') => {
            let error = ExprError::new("`-}}` removes no white space").at(at + source.len() - 1..inside.end + 2);
            Err(error.hint("remove the `-`"))
        }
        source if at == inside.start && is_in_braces(source) => {
            let error = ExprError::new("an expression has two braces, not three").at(inside.start - 2..inside.end + 2);
            Err(error.hint(format!("write `{{{{ {} }}}}`", shorten(source[1..source.len() - 1].trim()))))
        }
        source => Ok(Piece::Expression(source, at)),
    }
}

/// Returns true for a source in braces that is not an object, such as the one of `{{{ x }}}`.
fn is_in_braces(source: &str) -> bool {
    let inside = source.strip_prefix('{').and_then(|source| source.strip_suffix('}'));
    inside.is_some_and(|inside| !inside.trim().is_empty() && !inside.contains([':', '{', '}']))
}

/// Finds the `}}` that ends an expression; those in quoted texts and nested objects do not count. If there is none, the
/// error is the byte offset of an unclosed quote, or `None` if every quote is closed.
fn end_of_expression(text: &str, start: usize) -> Result<usize, Option<usize>> {
    let bytes = text.as_bytes();
    let mut braces = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => at = end_of_quoted(bytes, at + 1, quote).ok_or(Some(at))?,
            b'{' => braces += 1,
            b'}' if braces > 0 => braces -= 1,
            b'}' if bytes.get(at + 1) == Some(&b'}') => return Ok(at),
            _ => {}
        }
        at += 1;
    }
    Err(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn splits_texts() {
        let cases = [
            ("", "[]"),
            ("a } b {% x %} {# y #}", r#"[Text("a } b {% x %} {# y #}")]"#),
            ("{{ a }}", r#"[Expression("a", 3)]"#),
            ("x{{a}}y{{ 'q}}' }}", r#"[Text("x"), Expression("a", 3), Text("y"), Expression("'q}}'", 10)]"#),
            (r#"{{ "\"}}" }}"#, r#"[Expression("\"\\\"}}\"", 3)]"#),
            ("{{ {'a': {'b': 1}} }}", r#"[Expression("{'a': {'b': 1}}", 3)]"#),
            ("{{ {'a': {'b': 1}}}}", r#"[Expression("{'a': {'b': 1}}", 3)]"#),
            ("é{{ a }}", r#"[Text("é"), Expression("a", 5)]"#),
        ];
        for (text, expected) in cases {
            assert_eq!(format!("{:?}", split(text).unwrap()), expected);
        }
    }

    #[test]
    fn offsets_include_the_space_before_a_brace() {
        for (text, place) in [(" {{ é", 1..6), ("\t {{ 'x }}", 5..10), (" {{ }} ", 1..6)] {
            assert_eq!(whole(text).unwrap_err().offset, Some(place), "{text}");
        }
    }

    #[test]
    fn errors_have_the_position_of_an_open_brace() {
        for (text, place) in [
            ("ab {{ c", 3..7),
            ("ab {{ it's", 3..10),
            ("{{ 'x }}", 3..8),
            ("é{{ 'it's' }} b", 10..16),
            ("{{ { }}", 0..7),
            ("a {{ }}", 2..7),
            ("a {{ b -}}", 7..10),
            ("a {{{ b }}}", 2..11),
        ] {
            assert_eq!(split(text).unwrap_err().offset, Some(place), "{text}");
        }
    }
}
