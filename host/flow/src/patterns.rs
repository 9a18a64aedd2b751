//! Explains invalid regular expressions in schemas. Patterns run in linear time, so some features of other engines are
//! missing.

use serde_json::{Value, json};

use crate::fields::for_message;

/// An invalid pattern in a schema.
pub(crate) struct PatternError {
    /// JSON Pointer to the pattern in the schema.
    pub(crate) pointer: String,
    /// True if the pattern is the last key of `pointer`. False if it is the value at `pointer`.
    pub(crate) is_key: bool,
    /// One sentence about the error.
    pub(crate) message: String,
    /// A suggested correction.
    pub(crate) help: String,
}

/// Keywords whose values are data, not schemas.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords whose values are objects with a schema under each name.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Maximum number of patterns that are checked per schema.
const MAX_PATTERNS: usize = 100;

/// Returns the invalid patterns of a schema. `compiles` returns true if a schema can be compiled.
pub(crate) fn pattern_errors(schema: &Value, compiles: impl Fn(&Value) -> bool) -> Vec<PatternError> {
    let mut patterns = Vec::new();
    collect(schema, &mut String::new(), &mut patterns);
    let usable = |pattern: &str| compiles(&json!({ "pattern": pattern }));
    patterns.into_iter().filter_map(|pattern| pattern_error(pattern, &usable)).collect()
}

/// A pattern in a schema, the JSON Pointer to it, and true if it is the last key of this pointer and not the value
/// there.
type Pattern<'s> = (&'s str, String, bool);

fn collect<'s>(schema: &'s Value, pointer: &mut String, found: &mut Vec<Pattern<'s>>) {
    match schema {
        Value::Object(members) => {
            for (key, member) in members.iter().filter(|(key, _)| !DATA.contains(&key.as_str())) {
                with_token(pointer, key, |pointer| collect_from_member(key, member, pointer, found));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                with_token(pointer, &index.to_string(), |pointer| collect(item, pointer, found));
            }
        }
        _ => {}
    }
}

fn collect_from_member<'s>(key: &str, member: &'s Value, pointer: &mut String, found: &mut Vec<Pattern<'s>>) {
    if found.len() >= MAX_PATTERNS {
        return;
    }
    match member {
        Value::String(pattern) if key == "pattern" => found.push((pattern, pointer.clone(), false)),
        Value::Object(schemas) if NAMED.contains(&key) => {
            for (name, schema) in schemas {
                with_token(pointer, name, |pointer| {
                    if key == "patternProperties" {
                        found.push((name, pointer.clone(), true));
                    }
                    collect(schema, pointer, found);
                });
            }
        }
        _ => collect(member, pointer, found),
    }
}

/// Appends a token to the pointer, calls `action` with it, and then removes the token.
fn with_token<T>(pointer: &mut String, token: &str, action: impl FnOnce(&mut String) -> T) -> T {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&token.replace('~', "~0").replace('/', "~1"));
    let result = action(pointer);
    pointer.truncate(length);
    result
}

fn pattern_error((pattern, pointer, is_key): Pattern<'_>, usable: &impl Fn(&str) -> bool) -> Option<PatternError> {
    if usable(pattern) {
        return None;
    }
    let (cause, help) = cause(pattern, usable);
    let message = format!("the pattern `{}` cannot be used: {cause}", for_message(pattern));
    Some(PatternError { pointer, is_key, message, help: help.to_owned() })
}

/// Returns the reason why a pattern is invalid, and a suggested correction.
fn cause(pattern: &str, usable: &impl Fn(&str) -> bool) -> (&'static str, &'static str) {
    match nonlinear_feature(pattern) {
        Some(NonlinearFeature::Not) => (
            "patterns run in linear time, so they support no look-ahead or look-behind",
            "exclude texts with a separate pattern: `not: { pattern: … }`",
        ),
        Some(NonlinearFeature::Around) => (
            "patterns run in linear time, so they support no look-ahead or look-behind",
            "write one pattern for each condition: `allOf: [{ pattern: … }, { pattern: … }]`",
        ),
        Some(NonlinearFeature::Back) => (
            "patterns run in linear time, so they support no back-references",
            "list the texts that may match, with `|` or as `enum`",
        ),
        Some(NonlinearFeature::Atomic) => {
            ("patterns run in linear time, so they support no atomic groups", "write `(?:` for `(?>`")
        }
        None if usable(&without_counted_repetitions(pattern)) => {
            ("it takes more than 1 MiB when compiled", "use fewer repetitions, and limit the length with `maxLength`")
        }
        None => ("it is not a regular expression", "check its brackets and the text before `*`, `+`, `?` and `{`"),
    }
}

/// A feature that cannot run in linear time.
#[derive(Clone, Copy)]
enum NonlinearFeature {
    /// A negative lookaround: `(?!`, `(?<!`.
    Not,
    /// A positive lookaround: `(?=`, `(?<=`.
    Around,
    /// A back reference: `\1`, `\k<name>`.
    Back,
    /// An atomic group: `(?>`.
    Atomic,
}

/// Returns the first feature of a pattern that cannot run in linear time. Ignores character classes such as `[…]`.
fn nonlinear_feature(pattern: &str) -> Option<NonlinearFeature> {
    let mut in_class = false;
    let mut rest = pattern.chars();
    while let Some(sign) = rest.next() {
        match sign {
            '\\' => match rest.next() {
                Some('1'..='9' | 'k') if !in_class => return Some(NonlinearFeature::Back),
                _ => {}
            },
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let group = rest.as_str();
                let begins = |signs: [&str; 2]| signs.iter().any(|sign| group.starts_with(sign));
                if begins(["?!", "?<!"]) {
                    return Some(NonlinearFeature::Not);
                } else if begins(["?=", "?<="]) {
                    return Some(NonlinearFeature::Around);
                } else if group.starts_with("?>") {
                    return Some(NonlinearFeature::Atomic);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the pattern with `*` in place of counted repetitions.
fn without_counted_repetitions(pattern: &str) -> String {
    let mut short = String::new();
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let count = rest[open + 1..].split_once('}').map(|(count, _)| count);
        let counted = count.filter(|count| {
            count.starts_with(|sign: char| sign.is_ascii_digit())
                && count.chars().all(|sign| sign.is_ascii_digit() || sign == ',')
        });
        short.push_str(&rest[..open]);
        short.push(if counted.is_some() { '*' } else { '{' });
        rest = &rest[open + 1 + counted.map_or(0, |count| count.len() + 1)..];
    }
    short + rest
}
