//! Helpers that read and check the fields of a flow.

use crate::{
    diagnostic::{Diagnostics, did_you_mean, sanitized},
    numbers,
    yaml::{Entry, Kind, Span, Tree},
};

/// Prepares a text from the flow for a message: cuts it to 64 characters, and replaces the characters that
/// [`sanitized`] replaces.
pub(crate) fn for_message(text: &str) -> String {
    shortened(text, 64)
}

/// Prepares a text like [`for_message`], but cuts it to `most` characters. A text that is cut ends with `…`.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut short = sanitized(&text.chars().take(most).collect::<String>());
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// Returns the members of a map. Reports any other type, and returns no members for it.
pub(crate) fn entries<'t>(tree: &'t Tree, what: &str, diagnostics: &mut Diagnostics<'_>) -> &'t [Entry] {
    match &tree.kind {
        Kind::Map(entries) => entries,
        _ => {
            not_a_map(tree, what, diagnostics);
            &[]
        }
    }
}

/// Reports a value that should be a map.
pub(crate) fn not_a_map(tree: &Tree, what: &str, diagnostics: &mut Diagnostics<'_>) {
    let help = match is_null(tree) {
        true => "indent its members deeper than its key",
        false => "write its members as `key: value`, one per line and indented",
    };
    let message = format!("{what} must be a map, not {}", tree.type_name());
    diagnostics.error("wrong_type", tree.span, message, Some(help.into()));
}

fn is_null(tree: &Tree) -> bool {
    matches!(&tree.kind, Kind::Scalar(json) if json.is_null())
}

/// Reports unknown keys.
pub(crate) fn check_keys(entries: &[Entry], allowed: &[&str], diagnostics: &mut Diagnostics<'_>) {
    check_keys_or(entries, allowed, |_| None, diagnostics);
}

/// Reports unknown keys. `meant` returns the help text for an unknown key; if it returns `None`, a general help text is
/// used.
pub(crate) fn check_keys_or(
    entries: &[Entry],
    allowed: &[&str],
    meant: impl Fn(&Entry) -> Option<String>,
    diagnostics: &mut Diagnostics<'_>,
) {
    let mut empty = None;
    for entry in entries {
        if allowed.contains(&&*entry.key) {
            empty = is_null(&entry.value).then_some(&entry.key).or(empty);
            continue;
        }
        let help = meant(entry)
            .or_else(|| did_you_mean(&entry.key, allowed.iter().copied()))
            .or_else(|| empty.map(|above| format!("indent it deeper if it belongs to `{above}`")))
            .unwrap_or_else(|| format!("known keys: {}", allowed.join(", ")));
        diagnostics.error(
            "unknown_key",
            entry.key_span,
            format!("unknown key `{}`", for_message(&entry.key)),
            Some(help),
        );
    }
}

/// Returns true for a valid flow name: 1 to 64 ASCII letters, digits, `_` and `-`.
pub fn is_flow_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// The rule for ids, as a help text.
pub const ID_HELP: &str = "start with a letter or `_`, then use letters, digits, `_` and `-`, at most 64 characters";

/// Returns true for a text of the form of an id: `[A-Za-z_][A-Za-z0-9_-]{0,63}`. A reserved word has this form, too.
pub fn is_id(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Names that cannot be ids, because they have another meaning in expressions.
pub const RESERVED: [&str; 15] = [
    "flow", "nodes", "inbound", "inbounds", "true", "false", "null", "none", "not", "and", "or", "in", "is", "if",
    "else",
];

/// Checks the id of a node. The error is a message about a text without the form of an id ([`is_id`]), or that is a
/// reserved word.
pub fn check_id(text: &str) -> Result<(), String> {
    match is_id(text) {
        false => Err(format!("`{}` is not a valid id", for_message(text))),
        true if RESERVED.contains(&text) => Err(format!("`{text}` is a reserved word in expressions")),
        true => Ok(()),
    }
}

/// Returns true if an expression can use the text as a root name. Reserved words are not allowed.
pub(crate) fn is_name(text: &str) -> bool {
    is_id(text) && !text.contains('-') && !RESERVED.contains(&text)
}

/// Returns a text member and its position; `None` if it is missing. Reports any other type.
pub(crate) fn text(tree: &Tree, key: &str, diagnostics: &mut Diagnostics<'_>) -> Option<(String, Span)> {
    let value = tree.member(key)?;
    match value.text() {
        Some(text) => Some((text.to_owned(), value.span)),
        None => {
            let message = format!("`{key}` must be a text, not {}", value.type_name());
            diagnostics.error("wrong_type", value.span, message, Some(text_help(key, value)));
            None
        }
    }
}

/// Returns the help for a value that must be a text: the only text of a list, or the value in quotes.
pub(crate) fn text_help(key: &str, value: &Tree) -> String {
    match &value.kind {
        Kind::List(items) => match items.as_slice() {
            [only] if only.text().is_some_and(is_id) => {
                format!("write it without the list: `{}: {}`", for_message(key), only.text().unwrap_or_default())
            }
            _ => "write one text".to_owned(),
        },
        Kind::Map(_) => "write one text".to_owned(),
        Kind::Scalar(value) if value.is_null() => "add a value, or remove the key".to_owned(),
        Kind::Scalar(_) => "write it in quotes".to_owned(),
    }
}

/// Returns the text of a required member. Reports a member that is missing or empty, and returns an empty text for it.
pub(crate) fn required(tree: &Tree, key: &str, what: &str, diagnostics: &mut Diagnostics<'_>) -> (String, Span) {
    let (text, span) = required_or_empty(tree, key, what, diagnostics);
    if tree.member(key).is_some_and(|value| value.text() == Some("")) {
        diagnostics.error("empty_value", span, format!("the `{key}` of the {what} is empty"), None);
    }
    (text, span)
}

/// Returns the text of a member that must exist but may be empty. Reports a missing member, and returns an empty text
/// for it.
pub(crate) fn required_or_empty(
    tree: &Tree,
    key: &str,
    what: &str,
    diagnostics: &mut Diagnostics<'_>,
) -> (String, Span) {
    if tree.member(key).is_none() {
        diagnostics.error(
            "missing_key",
            tree.span,
            format!("the {what} has no `{key}`"),
            Some(format!("add `{key}: …`")),
        );
    }
    text(tree, key, diagnostics).unwrap_or((String::new(), tree.span))
}

/// Returns the top-level `name` of a flow. Reports a missing name and returns an empty text. Reports an invalid name
/// and returns it unchanged.
pub(crate) fn flow_name(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> String {
    let (name, span) = required(tree, "name", "flow", diagnostics);
    if !name.is_empty() && !is_flow_name(&name) {
        let help = Some("use letters, digits, `_` and `-`, at most 64 characters".into());
        diagnostics.error("bad_name", span, format!("`{}` is not a valid flow name", for_message(&name)), help);
    }
    name
}

/// Returns a map member; `None` if it is missing. Reports any other type.
pub(crate) fn map<'t>(tree: &'t Tree, key: &str, diagnostics: &mut Diagnostics<'_>) -> Option<&'t Tree> {
    let value = tree.member(key)?;
    if !matches!(value.kind, Kind::Map(_)) {
        not_a_map(value, &format!("`{key}`"), diagnostics);
        return None;
    }
    Some(value)
}

/// Returns the items of a list member; no items if it is missing or null. Reports any other type.
pub(crate) fn list<'t>(tree: &'t Tree, key: &str, diagnostics: &mut Diagnostics<'_>) -> &'t [Tree] {
    match tree.member(key).map(|value| (&value.kind, value)) {
        Some((Kind::List(items), _)) => items,
        Some((Kind::Scalar(json), _)) if json.is_null() => &[],
        Some((_, value)) => {
            let message = format!("`{key}` must be a list, not {}", value.type_name());
            diagnostics.error("wrong_type", value.span, message, Some("write one `- …` per line".into()));
            &[]
        }
        None => &[],
    }
}

/// Returns the whole number of a member; `None` if the member is missing. Reports any other value, and a number outside
/// of the bounds, which are themselves allowed.
pub(crate) fn whole_number(
    tree: &Tree,
    key: &str,
    (least, most): (u64, u64),
    diagnostics: &mut Diagnostics<'_>,
) -> Option<u64> {
    let value = tree.member(key)?;
    let number = value.json().as_u64().filter(|number| (least..=most).contains(number));
    if number.is_none() {
        let message = format!("`{key}` must be a whole number from {least} to {most}");
        let help = value.text().and_then(|text| numbers::suggest(key, text));
        let help = help.unwrap_or_else(|| format!("remove `{key}` to use its default"));
        diagnostics.error("bad_policy", value.span, message, Some(help));
    }
    number
}

/// Returns a Boolean member; `None` if it is missing. Reports any other type.
pub(crate) fn flag(tree: &Tree, key: &str, diagnostics: &mut Diagnostics<'_>) -> Option<bool> {
    let value = tree.member(key)?;
    let flag = value.json().as_bool();
    if flag.is_none() {
        let message = format!("`{key}` must be true or false, not {}", value.type_name());
        diagnostics.error("wrong_type", value.span, message, Some(format!("write `{key}: true` or `{key}: false`")));
    }
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_end_with_an_ellipsis() {
        for (text, expected) in [("", ""), ("éab", "éab"), ("éabc", "éab…"), ("\u{7}\nabc", "\u{fffd} a…")] {
            assert_eq!(shortened(text, 3), expected);
        }
    }

    #[test]
    fn ids_have_a_form_and_are_no_reserved_words() {
        let long = "a".repeat(64);
        for id in ["a", "_", "A-1_b", "flows", &long] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
        let too_long = "a".repeat(65);
        for id in ["", "1a", "-a", "a b", "é", "a.b", &too_long] {
            assert!(!is_id(id), "{id}");
            assert!(check_id(id).is_err_and(|message| message.ends_with("` is not a valid id")), "{id}");
        }
        for id in RESERVED {
            assert!(is_id(id), "{id}");
            assert_eq!(check_id(id), Err(format!("`{id}` is a reserved word in expressions")));
        }
    }
}
