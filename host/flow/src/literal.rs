//! Escapes texts and values, so that `{{` in them stays literal. Also detects texts that are a single binding.

use flowcell_contract::Json;

use crate::yaml::{Entry, Kind, Span, Tree};

/// Maximum number of braces that one expression escapes. More consecutive braces are split into several expressions.
const MAX_BRACES: usize = 1_000;

/// Escapes a text so that it renders as itself, even if the caller appends an expression to it.
pub fn escaped(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        let row = from.bytes().take_while(|byte| *byte == b'{').take(MAX_BRACES).count();
        let after = &from[row..];
        written.push_str(before);
        match row > 1 || after.is_empty() || after.starts_with(['%', '#', '{']) {
            true => written.push_str(&format!("{{{{ \"{}\" }}}}", &from[..row])),
            false => written.push('{'),
        }
        rest = after;
    }
    written + rest
}

/// Returns true if a text is a single `{{ }}`, whose value keeps its type. If there is other text beside the `{{ }}`,
/// the result is always a text.
pub fn is_one_binding(text: &str) -> bool {
    let inside = text.trim().strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
    inside.is_some_and(|inside| !inside.split_once("}}").is_some_and(|(_, rest)| rest.contains("{{")))
}

/// Converts a value to a tree at a position, with its texts escaped.
pub(crate) fn tree(value: &Json, span: Span) -> Tree {
    converted(value, span, &|text| escaped(text).into())
}

/// Converts a value to a tree at a position. Its texts stay as they are, so that expressions in them are evaluated.
pub(crate) fn unescaped(value: &Json, span: Span) -> Tree {
    converted(value, span, &|text| text.into())
}

fn converted(value: &Json, span: Span, text_of: &dyn Fn(&str) -> Json) -> Tree {
    let kind = match value {
        Json::String(text) => Kind::Scalar(text_of(text)),
        Json::Array(items) => Kind::List(items.iter().map(|item| converted(item, span, text_of)).collect()),
        Json::Object(members) => {
            return map(span, members.iter().map(|(key, member)| (&**key, converted(member, span, text_of))));
        }
        plain => Kind::Scalar(plain.clone()),
    };
    Tree { span, kind }
}

/// Converts a text to a tree without escaping, so that its expressions are evaluated.
pub(crate) fn text(text: String, span: Span) -> Tree {
    Tree { span, kind: Kind::Scalar(text.into()) }
}

/// Creates a map.
pub(crate) fn map<'k>(span: Span, members: impl IntoIterator<Item = (&'k str, Tree)>) -> Tree {
    let entry = |(key, value): (&str, Tree)| Entry { key: key.into(), key_span: span, value };
    Tree { span, kind: Kind::Map(members.into_iter().map(entry).collect()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_expr::{Binding, NoRoots};

    use super::*;

    #[test]
    fn escaped_texts_render_as_themselves() {
        let long = "{".repeat(2_500);
        for text in ["", "{", "{{", "{{{ a }}}", "{% if %}", "{# b #}", "a { b } {", "}} {{ 'x' }}", "{\n{", &long] {
            for suffix in ["", "{{ 1 }}"] {
                let written = Json::from(escaped(text) + suffix);
                let given = Binding::compile(&written).unwrap().render(&NoRoots).unwrap();
                let expected = format!("{text}{}", if suffix.is_empty() { "" } else { "1" });
                // A single expression keeps the type of its value.
                let given = given.as_str().map_or_else(|| given.to_text(), str::to_owned);
                assert_eq!(given, expected, "{written}");
            }
        }
    }
}
