//! Statements and comments of Jinja, which are plain text here: found so that a checker can tell.

use std::ops::Range;

use crate::language::{Piece, split};

/// The words that statements of Jinja begin with.
const WORDS: [&str; 27] = [
    "autoescape",
    "block",
    "break",
    "call",
    "continue",
    "do",
    "elif",
    "else",
    "endblock",
    "endcall",
    "endfilter",
    "endfor",
    "endif",
    "endmacro",
    "endraw",
    "endset",
    "endwith",
    "extends",
    "filter",
    "for",
    "from",
    "if",
    "import",
    "include",
    "macro",
    "raw",
    "set",
];

/// What a text holds that another engine would evaluate, and this one does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'t> {
    /// The word that it begins with, such as `if`; none for a comment.
    pub word: Option<&'t str>,
    /// Its bytes in the text.
    pub offset: Range<usize>,
}

/// Finds `{% if … %}`, other statements of Jinja, and `{# … #}` outside of `{{ }}`. In bindings and in templates they
/// stand for themselves: only `{{ }}` is evaluated.
pub fn statements(text: &str) -> Vec<Statement<'_>> {
    if !text.contains("{%") && !text.contains("{#") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut end = 0;
    // A text that cannot be split has an error of its own.
    for piece in split(text).unwrap_or_default() {
        match piece {
            Piece::Text(plain) => {
                found.extend(in_plain(plain, end));
                end += plain.len();
            }
            // Behind an expression stand spaces at most, and its `}}`.
            Piece::Expression(source, at) => {
                let rest = &text[at + source.len()..];
                end = text.len() - rest.trim_start().len() + 2;
            }
        }
    }
    found
}

/// The statements of a part of a text that begins at a byte of it.
fn in_plain(plain: &str, start: usize) -> Vec<Statement<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = plain[at..].find('{').map(|open| at + open) {
        match statement(&plain[open..]) {
            Some((word, length)) => {
                found.push(Statement { word, offset: start + open..start + open + length });
                at = open + length;
            }
            None => at = open + 1,
        }
    }
    found
}

/// The word and the length of the statement or comment that a text begins with.
fn statement(text: &str) -> Option<(Option<&str>, usize)> {
    if let Some(inside) = text.strip_prefix("{#") {
        return Some((None, inside.find("#}")? + 4));
    }
    let inside = text.strip_prefix("{%")?;
    let length = inside.find("%}")? + 4;
    let inside = inside.trim_start_matches(['-', '+']).trim_start();
    let word = &inside[..inside.find(|sign: char| !sign.is_ascii_alphabetic())?];
    WORDS.contains(&word).then_some((Some(word), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_not_evaluated() {
        type Found = &'static [(Option<&'static str>, &'static str)];
        let cases: [(&str, Found); 8] = [
            ("plain {{ a }} } %} #}", &[]),
            ("é{% if a %}x{%- endif -%}", &[(Some("if"), "{% if a %}"), (Some("endif"), "{%- endif -%}")]),
            ("{{ a }}{# note #}{{ b }}", &[(None, "{# note #}")]),
            ("{{ '{% if a %}' }} {{ \"{# b #}\" }}", &[]),
            ("{% 20 %} {% discount %} {% if", &[]),
            ("{# a {% for b in c %}", &[(Some("for"), "{% for b in c %}")]),
            ("{{{% raw %}", &[]),
            ("{{ a }}}}{%else%}", &[(Some("else"), "{%else%}")]),
        ];
        for (text, expected) in cases {
            let found: Vec<_> = statements(text).into_iter().map(|found| (found.word, &text[found.offset])).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
