//! Writes the flow and its cases as YAML.

use std::fmt::Write as _;

use flowcell_contract::text::has_deceptive;
use serde_json::{Map, Value};

use crate::draft::{Draft, Edge, Node, On};

/// Length up to which a list or an object stands in one line.
const LINE: usize = 100;
/// Words that YAML reads as another value.
const WORDS: [&str; 12] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];

/// Writes a flow. `marks` are those of the flow itself.
pub(crate) fn flow(name: &str, draft: &Draft, marks: &[String]) -> String {
    let mut text = String::new();
    for line in &draft.comments {
        comment(&mut text, line, 0);
    }
    text.push_str("flow:\n");
    member(&mut text, "name", &name.into(), 1);
    if !marks.is_empty() {
        member(&mut text, "approximated", &marks_value(marks), 1);
    }
    for (key, value) in &draft.head {
        member(&mut text, key, value, 1);
    }
    text.push_str("nodes:\n");
    for node in &draft.nodes {
        self::node(&mut text, node);
    }
    if !draft.edges.is_empty() {
        text.push_str("edges:\n");
        for edge in &draft.edges {
            let _ = writeln!(text, "  - {}", inline(&edge_value(edge)));
        }
    }
    text
}

fn marks_value(marks: &[String]) -> Value {
    match marks {
        [mark] => mark.as_str().into(),
        marks => marks.into(),
    }
}

fn node(text: &mut String, node: &Node) {
    if let Some(line) = &node.comment {
        comment(text, line, 1);
    }
    let mut members = Map::new();
    members.insert("id".into(), node.id.as_str().into());
    members.insert("type".into(), node.kind.into());
    if !node.marks.is_empty() {
        members.insert("approximated".into(), marks_value(&node.marks));
    }
    if node.is_race {
        members.insert("join".into(), "any".into());
        members.insert("cancelRest".into(), true.into());
    }
    if !node.input.is_empty() {
        members.insert("input".into(), node.input.clone().into());
    }
    if let Some(grants) = &node.grants {
        members.insert("grants".into(), grants.clone());
    }
    if !node.policy.is_empty() {
        members.insert("policy".into(), node.policy.clone().into());
    }
    if let Some(body) = &node.body {
        members.insert("body".into(), body.as_slice().into());
    }
    if let Some(output) = &node.body_output {
        members.insert("bodyOutput".into(), output.clone());
    }
    item(text, &members.into(), 1);
}

fn edge_value(edge: &Edge) -> Value {
    let Edge { from, to, on } = edge;
    let map = |condition: &str, is_error: bool| {
        let mut members = Map::new();
        members.insert("from".into(), from.as_str().into());
        members.insert("to".into(), to.as_str().into());
        if is_error {
            members.insert("on".into(), "error".into());
        }
        members.insert("when".into(), condition.into());
        members.into()
    };
    match on {
        On::Success => format!("{from} -> {to}").into(),
        On::Route(route) => format!("{from} -> {to}: {route}").into(),
        On::Error(None) => format!("{from} -> {to}: error").into(),
        On::When(condition) => map(condition, false),
        On::Error(Some(condition)) => map(condition, true),
    }
}

/// Writes a text as one or more lines of comments, without characters that could deceive or end the comment.
pub(crate) fn comment(text: &mut String, content: &str, depth: usize) {
    for line in content.lines().filter(|line| !line.trim().is_empty()) {
        let line: String = line.chars().map(|letter| if is_plain(letter) { letter } else { '\u{fffd}' }).collect();
        let line = if has_deceptive(&line) { line.escape_unicode().to_string() } else { line };
        let _ = writeln!(text, "{}# {}", "  ".repeat(depth), line.trim());
    }
}

/// Writes a member of an object at a depth of indentation.
pub(crate) fn member(text: &mut String, key: &str, value: &Value, depth: usize) {
    let _ = write!(text, "{}{}:", "  ".repeat(depth), key_text(key));
    nested(text, value, depth);
}

/// Writes an item of a list.
pub(crate) fn item(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(members) if inline(value).chars().count() > LINE || is_long(value) => {
            for (index, (key, member)) in members.iter().enumerate() {
                let start = if index == 0 { "- " } else { "  " };
                let _ = write!(text, "{}{start}{}:", "  ".repeat(depth), key_text(key));
                nested(text, member, depth + 1);
            }
        }
        value => {
            let _ = write!(text, "{}-", "  ".repeat(depth));
            nested(text, value, depth);
        }
    }
}

/// Writes a value behind a key or a dash.
fn nested(text: &mut String, value: &Value, depth: usize) {
    let whole = inline(value);
    match value {
        Value::Object(members) if !members.is_empty() && (whole.chars().count() > LINE || is_long(value)) => {
            text.push('\n');
            members.iter().for_each(|(key, value)| member(text, key, value, depth + 1));
        }
        Value::Array(items) if !items.is_empty() && (whole.chars().count() > LINE || is_long(value)) => {
            text.push('\n');
            items.iter().for_each(|value| item(text, value, depth + 1));
        }
        Value::String(content) if is_block(content) => {
            text.push_str(if content.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in content.lines() {
                match line.is_empty() {
                    true => text.push('\n'),
                    false => _ = writeln!(text, "{}{line}", "  ".repeat(depth + 1)),
                }
            }
        }
        _ => _ = writeln!(text, " {whole}"),
    }
}

/// Returns true if a text inside the value needs several lines.
fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => is_block(text),
        Value::Array(items) => items.iter().any(is_long),
        Value::Object(members) => members.values().any(is_long),
        _ => false,
    }
}

/// Returns true if a text is written as a block of lines.
fn is_block(text: &str) -> bool {
    let content = text.strip_suffix('\n').unwrap_or(text);
    content.contains('\n')
        && !content.ends_with('\n')
        && !content.starts_with([' ', '\n'])
        && content.chars().all(|letter| letter == '\n' || is_plain(letter))
        && !has_deceptive(content)
}

/// Returns true if a character may stand in YAML as it is.
fn is_plain(letter: char) -> bool {
    !letter.is_control() && !matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns a value in one line.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(members) if members.is_empty() => "{}".into(),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{}: {}", key_text(key), inline(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// Returns a key. `on` stays as it is, as in other flows.
fn key_text(key: &str) -> String {
    if key == "on" { key.to_owned() } else { scalar(key) }
}

/// Returns a text as a YAML scalar, quoted unless every parser reads it as this text.
pub(crate) fn scalar(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.len() < 200
        && text.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"_.-/> ".contains(&letter))
        && !text.ends_with(' ')
        && !WORDS.contains(&&*text.to_ascii_lowercase());
    if plain {
        return text.to_owned();
    }
    let mut written = String::from("\"");
    let deceptive = has_deceptive(text);
    for letter in text.chars() {
        match letter {
            '"' => written.push_str("\\\""),
            '\\' => written.push_str("\\\\"),
            '\n' => written.push_str("\\n"),
            '\t' => written.push_str("\\t"),
            letter if (!is_plain(letter) || (deceptive && !letter.is_ascii())) && u32::from(letter) < 0x1_0000 => {
                let _ = write!(written, "\\u{:04x}", u32::from(letter));
            }
            letter if !is_plain(letter) || (deceptive && !letter.is_ascii()) => {
                let _ = write!(written, "\\U{:08x}", u32::from(letter));
            }
            letter => written.push(letter),
        }
    }
    written.push('"');
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_is_read_back() {
        let odd = [
            "",
            " ",
            "a",
            "yes",
            "No",
            "null",
            "~",
            "1",
            "1e3",
            "0x1f",
            "1_000",
            ".inf",
            "a: b",
            "a #b",
            "- a",
            "a -> b",
            "#",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a",
            "a\nb",
            "a\nb\n",
            "\na",
            " a\nb",
            "a\n\nb",
            "a\n b",
            "a\tb\nc",
            "\u{202e}abc",
            "\u{2028}",
            "\u{feff}",
            "\u{0}\u{7f}\u{85}",
            "{{ a }}",
            "'",
            "\"",
            "\\",
            "😀",
            "\u{e0041}",
            "2030-01-01",
            "a ",
            "?",
            "a\r\nb",
            "---\na",
            "...\nb",
        ];
        let long = "x".repeat(LINE);
        for text in odd {
            let value = json!({ "a": [text, { text: text, "n": [1, 1.5, null, true, {}, []] }], "b": { "long": long, "t": text } });
            let mut written = String::new();
            member(&mut written, "top", &value, 0);
            member(&mut written, "short", &json!({ "t": text }), 0);
            let read = crate::document::read(&written).unwrap_or_else(|error| panic!("{text:?}: {error}\n{written}"));
            assert_eq!(read, json!({ "top": value, "short": { "t": text } }), "{written}");
            assert!(!has_deceptive(&written), "{written}");
        }
    }

    #[test]
    fn a_comment_is_nothing_but_a_comment() {
        let mut written = String::new();
        comment(&mut written, "a\rflow: x\u{85}b: 1\u{2028}c: 2\n\nnodes: []\u{202e}", 1);
        written.push_str("a: 1\n");
        assert_eq!(crate::document::read(&written).unwrap(), json!({ "a": 1 }), "{written}");
        assert!(!has_deceptive(&written), "{written}");
    }
}
