//! Regular expressions in schemas that cannot be used, and why: they take linear time, so some signs mean nothing here.

use serde_json::{Value, json};

use crate::fields::shown;

/// A pattern that cannot be used.
pub(crate) struct Trouble {
    /// Where in the schema it stands, as a JSON Pointer.
    pub(crate) pointer: String,
    /// Whether it is the last key of the pointer, not what stands there.
    pub(crate) is_key: bool,
    /// A sentence.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) help: String,
}

/// Members of schemas that hold any data, not schemas.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Members of schemas that hold schemas by names of any kind.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Patterns of a schema that are looked at.
const LOOKED_AT: usize = 100;

/// The patterns of a schema that cannot be used; `compiles` tells whether a schema can.
pub(crate) fn troubles(schema: &Value, compiles: impl Fn(&Value) -> bool) -> Vec<Trouble> {
    let mut patterns = Vec::new();
    collect(schema, &mut String::new(), &mut patterns);
    let usable = |pattern: &str| compiles(&json!({ "pattern": pattern }));
    patterns.into_iter().filter_map(|pattern| trouble(pattern, &usable)).collect()
}

/// A pattern in a schema, the pointer to it, and whether it is a key.
type Pattern<'s> = (&'s str, String, bool);

fn collect<'s>(schema: &'s Value, pointer: &mut String, found: &mut Vec<Pattern<'s>>) {
    match schema {
        Value::Object(members) => {
            for (key, member) in members.iter().filter(|(key, _)| !DATA.contains(&key.as_str())) {
                within(pointer, key, |pointer| of_member(key, member, pointer, found));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                within(pointer, &index.to_string(), |pointer| collect(item, pointer, found));
            }
        }
        _ => {}
    }
}

fn of_member<'s>(key: &str, member: &'s Value, pointer: &mut String, found: &mut Vec<Pattern<'s>>) {
    if found.len() >= LOOKED_AT {
        return;
    }
    match member {
        Value::String(pattern) if key == "pattern" => found.push((pattern, pointer.clone(), false)),
        Value::Object(schemas) if NAMED.contains(&key) => {
            for (name, schema) in schemas {
                within(pointer, name, |pointer| {
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

/// Does something with a pointer that leads one step further.
fn within<T>(pointer: &mut String, token: &str, action: impl FnOnce(&mut String) -> T) -> T {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&token.replace('~', "~0").replace('/', "~1"));
    let result = action(pointer);
    pointer.truncate(length);
    result
}

fn trouble((pattern, pointer, is_key): Pattern<'_>, usable: &impl Fn(&str) -> bool) -> Option<Trouble> {
    if usable(pattern) {
        return None;
    }
    let (cause, help) = cause(pattern, usable);
    let message = format!("the pattern `{}` cannot be used: {cause}", shown(pattern));
    Some(Trouble { pointer, is_key, message, help: help.to_owned() })
}

/// Why a pattern cannot be used, and what to write instead.
fn cause(pattern: &str, usable: &impl Fn(&str) -> bool) -> (&'static str, &'static str) {
    match signs(pattern) {
        Some(Sign::Not) => (
            "patterns take linear time, so they do not look ahead or behind",
            "write what it must not match beside it: `not: { pattern: … }`",
        ),
        Some(Sign::Around) => (
            "patterns take linear time, so they do not look ahead or behind",
            "write one pattern for each condition: `allOf: [{ pattern: … }, { pattern: … }]`",
        ),
        Some(Sign::Back) => (
            "patterns take linear time, so they do not refer back to a group",
            "write out the texts that it may match, with `|` or as `enum`",
        ),
        Some(Sign::Atomic) => ("patterns take linear time, so they have no atomic groups", "write `(?:` for `(?>`"),
        None if usable(&uncounted(pattern)) => {
            ("it is larger than 1 MiB when it is compiled", "repeat less in it, and limit the length with `maxLength`")
        }
        None => ("it is not a regular expression", "look at its brackets and at what stands before `*`, `+`, `?`, `{`"),
    }
}

/// What a pattern needs that cannot be done in linear time.
#[derive(Clone, Copy)]
enum Sign {
    /// `(?!`, `(?<!`.
    Not,
    /// `(?=`, `(?<=`.
    Around,
    /// `\1`, `\k<name>`.
    Back,
    /// `(?>`.
    Atomic,
}

/// The first such sign, outside of classes.
fn signs(pattern: &str) -> Option<Sign> {
    let mut in_class = false;
    let mut rest = pattern.chars();
    while let Some(sign) = rest.next() {
        match sign {
            '\\' => match rest.next() {
                Some('1'..='9' | 'k') if !in_class => return Some(Sign::Back),
                _ => {}
            },
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let group = rest.as_str();
                let begins = |signs: [&str; 2]| signs.iter().any(|sign| group.starts_with(sign));
                if begins(["?!", "?<!"]) {
                    return Some(Sign::Not);
                } else if begins(["?=", "?<="]) {
                    return Some(Sign::Around);
                } else if group.starts_with("?>") {
                    return Some(Sign::Atomic);
                }
            }
            _ => {}
        }
    }
    None
}

/// The pattern with `*` in place of counted repetitions.
fn uncounted(pattern: &str) -> String {
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
