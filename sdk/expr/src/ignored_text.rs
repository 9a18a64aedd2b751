//! Blanks out invalid text in stored expressions. Earlier versions ignored all text from the first invalid token after
//! a quoted text. Without that text, a stored expression compiles again and keeps its former meaning.

use crate::{
    captured::CapturedKind,
    error::{ExprError, push_token},
    json::Json,
    language::{Piece, find_ignored, split, whole},
    limits,
};

/// Replaces the text that earlier versions ignored with spaces: in each expression, everything from the first invalid
/// token after a quoted text. The value then compiles to its former meaning, and the positions in it stay the same.
///
/// Returns the changed value, with one error for each changed expression; `None` if no text was ignored. Use this
/// function only for flows that an earlier version accepted: in new flows such text is an error.
pub fn without_ignored(value: &Json, kind: CapturedKind) -> Option<(Json, Vec<ExprError>)> {
    let mut blanking = TextBlanker { errors: Vec::new() };
    let value = match kind {
        CapturedKind::Expr => blanking.condition(value, "", 0),
        CapturedKind::Template => blanking.template(value, "", 0),
    };
    (!blanking.errors.is_empty()).then_some((value, blanking.errors))
}

struct TextBlanker {
    errors: Vec<ExprError>,
}

impl TextBlanker {
    fn condition(&mut self, value: &Json, pointer: &str, depth: usize) -> Json {
        match value {
            _ if depth > limits::CONDITION_DEPTH => value.clone(),
            Json::String(text) => {
                let found = whole(text).unwrap_or_default();
                let (source, at) = found.unwrap_or_else(|| (text.trim(), text.len() - text.trim_start().len()));
                self.text(text, &[(source, at)], pointer)
            }
            Json::Array(items) => {
                let items = items.iter().enumerate();
                Json::array(items.map(|(at, item)| self.condition(item, &below(pointer, &at.to_string()), depth + 1)))
            }
            Json::Object(members) => Json::object(members.iter().map(|(key, member)| {
                let pointer = below(pointer, key);
                let member = match &**key {
                    "value" | "values" => self.template(member, &pointer, depth + 1),
                    "var" | "pattern" => member.clone(),
                    _ => self.condition(member, &pointer, depth + 1),
                };
                (key.clone(), member)
            })),
            other => other.clone(),
        }
    }

    fn template(&mut self, value: &Json, pointer: &str, depth: usize) -> Json {
        match value {
            _ if depth > limits::DEPTH => value.clone(),
            Json::String(text) => {
                let pieces = split(text).unwrap_or_default().into_iter();
                let expressions: Vec<_> = pieces
                    .filter_map(|piece| match piece {
                        Piece::Expression(source, at) => Some((source, at)),
                        Piece::Text(_) => None,
                    })
                    .collect();
                self.text(text, &expressions, pointer)
            }
            Json::Array(items) => {
                let items = items.iter().enumerate();
                Json::array(items.map(|(at, item)| self.template(item, &below(pointer, &at.to_string()), depth + 1)))
            }
            Json::Object(members) => Json::object(
                members
                    .iter()
                    .map(|(key, member)| (key.clone(), self.template(member, &below(pointer, key), depth + 1))),
            ),
            other => other.clone(),
        }
    }

    /// Returns `text` with the ignored end of each expression replaced by spaces, and records an error for each such
    /// end. `expressions` lists the expressions in `text`, each with its byte offset there.
    fn text(&mut self, text: &str, expressions: &[(&str, usize)], pointer: &str) -> Json {
        let mut blanked = text.to_owned();
        for (source, at) in expressions {
            if let Some((end, error)) = find_ignored(source) {
                blanked.replace_range(at + end..at + source.len(), &" ".repeat(source.len() - end));
                self.errors.push(error.moved(*at).under(pointer));
            }
        }
        Json::from(blanked)
    }
}

fn below(pointer: &str, token: &str) -> String {
    let mut pointer = pointer.to_owned();
    push_token(&mut pointer, token);
    pointer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Binding, Condition, NoRoots};

    #[test]
    fn stored_texts_keep_their_meaning() {
        let cases = [
            (r#""{{ 'a' & 'b' }}""#, r#""a""#),
            (r#""x {{ 'é' ; ü }} {{ 1 + 1 }} {{ 'c' ? 'd' : 'e' }}""#, r#""x é 2 c""#),
            (
                r#"{ "a/b": ["{{ 'k' == 'k' && false }}", 1], "c": "plain & ; {{ 2 }}" }"#,
                r#"{"a/b":[true,1],"c":"plain & ; 2"}"#,
            ),
        ];
        for (written, meant) in cases {
            let value = Json::parse(written).unwrap();
            assert!(Binding::compile(&value).is_err(), "{written}");
            let (blanked, errors) = without_ignored(&value, CapturedKind::Template).unwrap();
            assert!(!errors.is_empty(), "{written}");
            assert_eq!(Binding::compile(&blanked).unwrap().render(&NoRoots).unwrap().to_text(), meant, "{written}");
            assert!(without_ignored(&blanked, CapturedKind::Template).is_none(), "{written}");
        }
    }

    #[test]
    fn stored_conditions_keep_their_meaning() {
        let cases = [
            (r#"" 'bug' == 'bug' && 'low' == 'high'""#, true),
            (r#""{{ 'a' == 'b' ! true }}""#, false),
            (r#"{ "and": ["1 == 1", { "not": "'a' == 'b' ; " }] }"#, true),
            (r#"{ "equals": { "var": "x", "value": "{{ '' & 'b' }}" } }"#, false),
            (r#"{ "or": [{ "matches": { "var": "x", "pattern": "'a' & b" } }, "'a' # b"] }"#, true),
        ];
        for (written, holds) in cases {
            let value = Json::parse(written).unwrap();
            assert!(Condition::compile(&value).is_err(), "{written}");
            let (blanked, _) = without_ignored(&value, CapturedKind::Expr).unwrap();
            assert_eq!(Condition::compile(&blanked).unwrap().evaluate(&NoRoots).unwrap(), holds, "{written}");
        }
    }

    /// Earlier versions also rejected these texts, so no stored flow contains one of them.
    #[test]
    fn text_that_was_always_invalid_stays_unchanged() {
        for written in ["{{ a && b }}", "{{ 'a\\n' & b }}", "{{ ['a'] & b }}", "{{ 'a'", "{{ 'a' 'b' }}", "a"] {
            assert!(without_ignored(&Json::from(written), CapturedKind::Template).is_none(), "{written}");
        }
    }
}
