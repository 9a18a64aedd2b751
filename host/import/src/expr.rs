//! Writes expressions, and values with expressions in them.

use flowcell_expr::Binding;
use flowcell_flow::escape_text;
use serde_json::{Map, Value};

/// Words that cannot follow a point in an expression.
const WORDS: [&str; 14] =
    ["true", "false", "null", "none", "not", "and", "or", "in", "is", "if", "else", "True", "False", "None"];

/// Expression of a value that is not imported. It fails, so that nobody takes it for the value.
pub(crate) const REFUSED: &str = "null | required";

/// Maximum length of an expression in bytes. The translations check it after each step, since some write a part twice.
pub(crate) const LONGEST: usize = 8_000;

/// A value whose parts may be computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    /// A value as it is.
    Literal(Value),
    /// An expression.
    Expr(String),
    /// An object.
    Object(Vec<(String, Term)>),
    /// A list.
    List(Vec<Term>),
    /// A text with `{{ }}` in it, and the expression of the same text.
    Mixed(String, String),
}

impl Term {
    /// Returns the value for a field of a node, with `{{ }}` around its expressions.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Term::Literal(value) => escaped(value),
            Term::Expr(expr) => binding(expr),
            Term::Object(members) => members.iter().map(|(key, term)| (key.clone(), term.to_value())).collect(),
            Term::List(items) => items.iter().map(Term::to_value).collect(),
            Term::Mixed(text, _) => text.as_str().into(),
        }
    }

    /// Returns true if the value is a text, or computed.
    pub(crate) fn may_be_text(&self) -> bool {
        matches!(self, Term::Literal(Value::String(_)) | Term::Expr(_) | Term::Mixed(..))
    }

    /// Returns one expression for the whole value.
    pub(crate) fn to_expr(&self) -> String {
        match self {
            Term::Literal(value) => literal(value),
            Term::Expr(expr) | Term::Mixed(_, expr) => expr.clone(),
            Term::Object(members) => {
                let members = members.iter().map(|(key, term)| format!("{}: {}", quoted(key), term.to_expr()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
            Term::List(items) => format!("[{}]", items.iter().map(Term::to_expr).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Returns the binding of an expression.
pub(crate) fn binding(expr: &str) -> Value {
    // An object at the end would close the binding too early.
    let space = if expr.ends_with('}') { "  " } else { " " };
    Value::from(format!("{{{{ {expr}{space}}}}}"))
}

/// Returns a value in which no text is a binding.
pub(crate) fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => escape_text(text).into(),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(members) => members.iter().map(|(key, member)| (key.clone(), escaped(member))).collect(),
        plain => plain.clone(),
    }
}

/// Returns a text as an expression.
pub(crate) fn quoted(text: &str) -> String {
    let mut written = String::from("'");
    for letter in text.chars() {
        match letter {
            '\'' => written.push_str("\\'"),
            '\\' => written.push_str("\\\\"),
            '\n' => written.push_str("\\n"),
            '\t' => written.push_str("\\t"),
            '\r' => written.push_str("\\r"),
            // `{{` and `}}` must not begin or end a binding.
            '{' | '}' => written.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => written.push(letter),
        }
    }
    written.push('\'');
    written
}

/// Returns a value as an expression.
pub(crate) fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members = members.iter().map(|(key, member)| format!("{}: {}", quoted(key), literal(member)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// Returns an expression if it is within the limits of expressions.
pub(crate) fn bounded(expr: String) -> Result<String, String> {
    if expr.len() > LONGEST {
        return Err(format!("the expression would have more than {LONGEST} bytes"));
    }
    match Binding::expression(&expr) {
        Ok(_) => Ok(expr),
        Err(errors) => Err(errors.first().map_or_else(|| "the expression is not valid".into(), ToString::to_string)),
    }
}

/// Returns an expression that a point, an index or a filter may follow.
pub(crate) fn atom(expr: &str) -> String {
    let mut depth = 0_i32;
    let mut in_text = false;
    let mut letters = expr.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if in_text => _ = letters.next(),
            '\'' => in_text = !in_text,
            _ if in_text => {}
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth -= 1,
            _ if depth > 0 || letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.') => {}
            _ => return format!("({expr})"),
        }
    }
    if expr.starts_with(['{', '-']) { format!("({expr})") } else { expr.to_owned() }
}

/// Returns the expression of a member.
pub(crate) fn member(expr: &str, key: &str) -> String {
    let is_plain = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        && !WORDS.contains(&key);
    match is_plain {
        true => format!("{}.{key}", atom(expr)),
        false => format!("{}[{}]", atom(expr), quoted(key)),
    }
}

/// Returns the object of an expression with one more member, which replaces an earlier one of its name.
pub(crate) fn with_member(object: &str, keys: &[String], value: &str) -> Result<String, String> {
    bounded(format!("{}{}", atom(object), added_member(keys, value)))
}

/// Returns the filters behind the expression of an object that give it one more member.
pub(crate) fn added_member(keys: &[String], value: &str) -> String {
    let nested =
        |value: &str| keys.iter().rev().fold(value.to_owned(), |inner, key| format!("{{{}: {inner}}}", quoted(key)));
    // `merge` merges objects under the same key, unless null stands there.
    format!(" | merge({}) | merge({})", nested("null"), nested(value))
}

/// Returns an object with these members.
pub(crate) fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_contract::Json;
    use flowcell_expr::limits;
    use serde_json::json;

    use super::*;

    /// Renders a value of a node that reads no names.
    fn rendered(value: &Value) -> Value {
        let binding = flowcell_expr::Binding::compile(&Json::from(value.clone())).unwrap();
        binding.render(&flowcell_expr::NoRoots).unwrap().to_serde()
    }

    #[test]
    fn values_and_expressions_keep_every_value() {
        let odd = ["", "{{ x }}", "}}", "{%", "'\"\\", "a\nb\t\u{202e}\u{0}", "{", "ä😀"];
        for text in odd {
            let value = json!({ "a b": [text, { "k": text }], "n": [1, 1.5, null, true, -2] });
            let term =
                Term::Object(vec![("x".into(), Term::Literal(value.clone())), (text.into(), Term::List(vec![]))]);
            let expected = json!({ "x": value, text: [] });
            assert_eq!(rendered(&term.to_value()), expected, "{text:?}");
            assert_eq!(rendered(&binding(&term.to_expr())), expected, "{text:?}");
        }
    }

    #[test]
    fn long_and_deep_expressions_are_refused() {
        let deep = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        for (expr, fits) in [
            ("a".repeat(LONGEST), true),
            ("a".repeat(LONGEST + 1), false),
            (deep(limits::NESTING), true),
            (deep(limits::NESTING + 1), false),
            ("a + ".repeat(limits::TOKENS / 2 - 1) + "a", true),
            ("a + ".repeat(limits::TOKENS / 2) + "a", false),
            (quoted(&"([".repeat(100)), true),
        ] {
            assert_eq!(bounded(expr.clone()).is_ok(), fits, "{expr:.40}");
        }
    }

    #[test]
    fn members_follow_any_expression() {
        let cases = [
            (member("a.b[0]", "c"), "a.b[0].c"),
            (member("a | last", "c"), "(a | last).c"),
            (member("a", "c d"), "a['c d']"),
            (member("a", "not"), "a['not']"),
            (member("a['x y - z']", "c"), "a['x y - z'].c"),
            (member("f('(', 1 + 2)", "c"), "f('(', 1 + 2).c"),
        ];
        for (given, expected) in cases {
            assert_eq!(given, expected);
        }
    }

    #[test]
    fn a_member_replaces_the_one_before() {
        let object = "{'a': {'x': 1}, 'b': 1}";
        let cases = [
            (vec!["a"], json!({ "a": { "y": 2 }, "b": 1 })),
            (vec!["b", "c"], json!({ "a": { "x": 1 }, "b": { "c": { "y": 2 } } })),
        ];
        for (keys, expected) in cases {
            let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
            assert_eq!(rendered(&binding(&with_member(object, &keys, "{'y': 2}").unwrap())), expected);
        }
    }
}
