//! Finds forms of other languages that compile here with another meaning, so that a checker can report them.

use std::ops::Range;

use crate::{
    captured::CapturedKind,
    error::ExprError,
    language::{Piece, constant_operand_of, split, whole},
    quoted::end_of_quoted,
};

/// Finds forms of other languages in a text: `{{- x }}`, which removes white space in Jinja and negates here, and
/// `'it''s'`, in which SQL and YAML read a quote and this language two texts. A text of the kind [`CapturedKind::Expr`]
/// may be an expression without braces.
pub fn misread(text: &str, kind: CapturedKind) -> Vec<ExprError> {
    let mut found = Vec::new();
    if !text.contains("{{-") && !text.contains("''") && !text.contains("\"\"") {
        return found;
    }
    for (source, at) in expressions(text, kind) {
        if source.starts_with('-') && text[..at].ends_with("{{") {
            let error = ExprError::new("`{{-` removes no white space; it negates the value");
            found.push(error.at(at - 2..at + 1).hint("remove the `-`; a negative number is written `{{ -5 }}`"));
        }
        if let Some(place) = doubled_quote(source) {
            let sign = &source[place.start..=place.start];
            let error = ExprError::new(format!("`{sign}{sign}` ends a text and begins another one"));
            found.push(error.at(at + place.start..at + place.end).hint(format!(
                "write `\\{sign}` for a quote inside of the text, and `~` between two texts that are joined"
            )));
        }
    }
    found
}

/// Returns the bytes of an operand of `and` or `or` in a condition that is a text or a number, as in `a == 'x' or 'y'`.
pub fn constant_operand(text: &str) -> Option<Range<usize>> {
    if !text.contains("or") && !text.contains("and") {
        return None;
    }
    let (source, at) = expressions(text, CapturedKind::Expr).into_iter().next()?;
    let place = constant_operand_of(source)?;
    Some(at + place.start..at + place.end)
}

/// Returns the expressions in a text, each with its byte offset.
fn expressions(text: &str, kind: CapturedKind) -> Vec<(&str, usize)> {
    if kind == CapturedKind::Expr {
        let trimmed = (text.trim(), text.len() - text.trim_start().len());
        // A text that cannot be split is reported elsewhere, with its own error.
        return whole(text).map_or_else(|_| Vec::new(), |inside| vec![inside.unwrap_or(trimmed)]);
    }
    let pieces = split(text).unwrap_or_default().into_iter();
    let expressions = pieces.filter_map(|piece| match piece {
        Piece::Expression(source, at) => Some((source, at)),
        Piece::Text(_) => None,
    });
    expressions.collect()
}

/// Returns the bytes of the first two equal quotes of which one ends a text and the next begins another one.
fn doubled_quote(source: &str) -> Option<Range<usize>> {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let quote @ (b'"' | b'\'') = bytes[at] else {
            at += 1;
            continue;
        };
        let end = end_of_quoted(bytes, at + 1, quote)?;
        if bytes.get(end + 1) == Some(&quote) {
            return Some(end..end + 2);
        }
        at = end + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn finds_forms_of_other_languages() {
        for (text, kind, expected) in [
            ("a {{- b }}", CapturedKind::Template, &["{{-"][..]),
            ("{{ -b }} {{ - b }} {{ a -b }} {{ '{{-' }}", CapturedKind::Template, &[]),
            ("{{-b }}", CapturedKind::Expr, &["{{-"]),
            ("a == 'it''s'", CapturedKind::Expr, &["''"]),
            ("{{ 'it''s' }} it''s {{ \"a\"\"b\" }}", CapturedKind::Template, &["''", "\"\""]),
            ("{{ '' }} {{ [\"\", ''] }} {{ '\\'' }} {{ \"''\" }} {{ 'a' 'b' }}", CapturedKind::Template, &[]),
        ] {
            let found = misread(text, kind).into_iter().map(|error| &text[error.offset.unwrap()]);
            assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn finds_constant_operands() {
        for (text, expected) in [
            ("a == '3' or '4'", Some("'4'")),
            ("{{ a == 1 and not (b or 2) }}", Some("2")),
            ("a == '3' or a == '4'", None),
            ("a or true", None),
            ("a in ['x' or 'y']", None),
            ("(a or 'x') == 'x'", None),
            ("a or", None),
        ] {
            assert_eq!(constant_operand(text).map(|place| &text[place]), expected, "{text}");
        }
    }
}
