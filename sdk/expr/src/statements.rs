//! Finds Jinja statements, comments, and paths in braces. They are plain text in this language, so a checker warns of
//! them.

use std::ops::Range;

use crate::{
    language::{Piece, split},
    path::Path,
};

/// The keywords of Jinja statements.
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

/// A part of a text that Jinja would evaluate, but this language does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'t> {
    /// The keyword, such as `if`; `None` for a comment.
    pub word: Option<&'t str>,
    /// The statement's bytes in the text.
    pub offset: Range<usize>,
}

/// Finds `{% if … %}`, other Jinja statements, and `{# … #}` outside of `{{ }}`. They are plain text in bindings and
/// templates.
pub fn statements(text: &str) -> Vec<Statement<'_>> {
    if !text.contains("{%") && !text.contains("{#") {
        return Vec::new();
    }
    plain_parts(text).into_iter().flat_map(|(start, plain)| find_statements(plain, start)).collect()
}

/// Finds `${flow.input.name}` and `{ flow.input.name }` outside of `{{ }}`: paths with at least one segment, and their
/// bytes with the braces. They are plain text, although other languages evaluate them.
pub fn paths_in_braces(text: &str) -> Vec<(Path, Range<usize>)> {
    let mut found = Vec::new();
    if !text.contains('{') {
        return found;
    }
    for (start, plain) in plain_parts(text) {
        for (open, _) in plain.match_indices('{') {
            let inside = &plain[open + 1..];
            let Some(close) = inside.find(['{', '}']).filter(|close| inside[*close..].starts_with('}')) else {
                continue;
            };
            let path = Path::parse(inside[..close].trim()).ok().filter(|path| !path.segments().is_empty());
            let begin = if plain[..open].ends_with('$') { open - 1 } else { open };
            found.extend(path.map(|path| (path, start + begin..start + open + close + 2)));
        }
    }
    found
}

/// Returns true if a text is a single `{{ }}` without any other text.
pub fn is_one_expression(text: &str) -> bool {
    matches!(split(text).as_deref(), Ok([Piece::Expression(..)]))
}

/// Returns the parts of a text outside of `{{ }}`, each with its byte offset. A text that cannot be split has no
/// parts.
fn plain_parts(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut end = 0;
    // A text that cannot be split is reported elsewhere, with its own error.
    for piece in split(text).unwrap_or_default() {
        match piece {
            Piece::Text(plain) => {
                found.push((end, plain));
                end += plain.len();
            }
            // Only white space and `}}` follow an expression.
            Piece::Expression(source, at) => {
                let rest = &text[at + source.len()..];
                end = text.len() - rest.trim_start().len() + 2;
            }
        }
    }
    found
}

/// Returns the statements in a part of a text; `start` is the part's offset.
fn find_statements(plain: &str, start: usize) -> Vec<Statement<'_>> {
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

/// Returns the keyword and the length in bytes of the statement or comment at the beginning of a text; `None` if
/// there is none.
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
    fn finds_paths_in_braces() {
        for (text, expected) in [
            ("é${flow.input.a} and { b.c[0] }", &["${flow.input.a}", "{ b.c[0] }"][..]),
            ("{{ {'a': b.c} }} ${a} { } {a b} { \"a\": 1 } {a: b.c} ${HOME:-x.y}", &[]),
            ("{{ a }}{b.c}{{ d }}", &["{b.c}"]),
            ("{a.b {c.d} {e.f", &["{c.d}"]),
        ] {
            let found: Vec<_> = paths_in_braces(text).into_iter().map(|(_, place)| &text[place]).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn finds_statements_and_comments() {
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
