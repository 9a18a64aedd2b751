//! Renames nodes in expressions. Gives the places of their ids, and the texts that stand there instead.

use std::ops::Range;

use crate::{
    Json,
    error::with_token,
    path::{Path, Segment, is_identifier},
    path_use::PathUse,
    quoted::end_of_quoted,
};

/// A part of a text, and the text that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// JSON Pointer to the text.
    pub pointer: String,
    /// The replaced bytes.
    pub bytes: Range<usize>,
    /// The text in their place.
    pub text: String,
}

/// Returns the edits that give nodes other ids in the expressions of a value. `paths` are the paths that the value
/// [reads](crate::Reads), and `new_id` returns the new id of a node, or `None` for a name that stays.
///
/// The second result has the paths that name a node in a form that cannot be rewritten, such as `(nodes).a`.
pub fn rename_nodes<'p>(
    value: &Json,
    paths: &'p [PathUse],
    new_id: &dyn Fn(&str) -> Option<String>,
) -> (Vec<Edit>, Vec<&'p PathUse>) {
    let (mut edits, mut refused) = (Vec::new(), Vec::new());
    for found in paths {
        let Some((name, is_member)) = node_id(&found.path) else { continue };
        let Some(id) = new_id(name) else { continue };
        let text = value.pointer(&found.pointer).and_then(Json::as_str);
        match text.and_then(|text| edit(text, found, &id, is_member)) {
            Some(edit) => edits.push(edit),
            None => refused.push(found),
        }
    }
    // Two paths may share their beginning, as in `a.b | default(a.b)`, but each place is rewritten once.
    edits.sort_by(|a, b| (&a.pointer, a.bytes.start).cmp(&(&b.pointer, b.bytes.start)));
    edits.dedup();
    (edits, refused)
}

/// Applies the edits of one text. They are in the order of their places, which do not overlap.
pub fn apply_edits<'e>(text: &str, edits: impl IntoIterator<Item = &'e Edit>) -> String {
    let (mut written, mut copied) = (String::with_capacity(text.len()), 0);
    for edit in edits {
        written.push_str(&text[copied..edit.bytes.start]);
        written.push_str(&edit.text);
        copied = edit.bytes.end;
    }
    written + &text[copied..]
}

/// Returns the id of the node that a name stands for. `None`: the name stands for itself.
pub type NodeIds<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns true if two values with these paths are equal once each name of a node is replaced by the id that it stands
/// for.
pub(crate) fn same_values(one: (&Json, &[PathUse], NodeIds<'_>), other: (&Json, &[PathUse], NodeIds<'_>)) -> bool {
    let with_ids = |(value, paths, ids): (&Json, &[PathUse], NodeIds<'_>)| {
        let (edits, refused) = rename_nodes(value, paths, ids);
        refused.is_empty().then(|| edited(value, &mut String::new(), &edits))
    };
    let one = with_ids(one);
    one.is_some() && one == with_ids(other)
}

/// Returns a path with the id of its node in place of the name. `a` and `nodes.a` then become the same.
pub(crate) fn with_id(path: &Path, ids: NodeIds<'_>) -> Path {
    let Some((name, is_member)) = node_id(path) else { return path.clone() };
    let Some(id) = ids(name) else { return path.clone() };
    let root = if path.root() == "inbounds" { "inbounds" } else { "nodes" };
    let rest = path.segments().iter().skip(usize::from(is_member)).cloned();
    Path::new(root, std::iter::once(Segment::Key(id.into())).chain(rest))
}

/// Returns a value whose texts have these edits.
fn edited(value: &Json, pointer: &mut String, edits: &[Edit]) -> Json {
    match value {
        Json::String(text) => Json::from(apply_edits(text, edits.iter().filter(|edit| edit.pointer == *pointer))),
        Json::Array(items) => Json::array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| with_token(pointer, &index.to_string(), |pointer| edited(item, pointer, edits))),
        ),
        Json::Object(members) => Json::object(members.iter().map(|(key, member)| {
            let member = with_token(pointer, key, |pointer| edited(member, pointer, edits));
            (key.clone(), member)
        })),
        other => other.clone(),
    }
}

/// Returns the text of an expression that reads the output of a node: the id, or `nodes["the-id"]` if the id is no name.
pub fn node_path(id: &str) -> String {
    match is_identifier(id) {
        true => id.to_owned(),
        false => Path::new("nodes", [Segment::Key(id.into())]).to_string(),
    }
}

/// Returns the id that a path may name, and true if it stands behind `nodes` or `inbounds`.
fn node_id(path: &Path) -> Option<(&str, bool)> {
    match (path.root(), path.segments().first()) {
        ("nodes" | "inbounds", Some(Segment::Key(id))) => Some((id, true)),
        ("nodes" | "inbounds", _) => None,
        (root, _) => Some((root, false)),
    }
}

fn edit(text: &str, found: &PathUse, id: &str, is_member: bool) -> Option<Edit> {
    let bytes = found.bytes.clone()?;
    let source = text.get(bytes.clone())?;
    let root = found.path.root();
    let start = source.len() - source.trim_start().len();
    let behind_root = source.trim_start().strip_prefix(root)?;
    let at = start + root.len();
    let end = if is_member { at + length_of_key(behind_root)? } else { at };
    let text = match root {
        "inbounds" => Path::new(root, [Segment::Key(id.into())]).to_string(),
        _ => node_path(id),
    };
    Some(Edit { pointer: found.pointer.clone(), bytes: bytes.start + start..bytes.start + end, text })
}

/// Returns the length of the key at the beginning of a text: `.key` or `["key"]`, with the spaces between.
fn length_of_key(text: &str) -> Option<usize> {
    let space = |at: usize| at + (text[at..].len() - text[at..].trim_start().len());
    let open = space(0);
    let key = space(open + 1).min(text.len());
    match text.as_bytes().get(open)? {
        b'.' => {
            let length = text[key..].find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
            Some(key + length.unwrap_or(text.len() - key))
        }
        b'[' => {
            let quote = *text.as_bytes().get(key).filter(|sign| matches!(sign, b'"' | b'\''))?;
            let close = space(end_of_quoted(text.as_bytes(), key + 1, quote)? + 1);
            (text.as_bytes().get(close) == Some(&b']')).then_some(close + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Binding, Condition};

    fn new_id(id: &str) -> Option<String> {
        match id {
            "a" => Some("x-a".to_owned()),
            "long-id" => Some("short".to_owned()),
            "b" => Some("c".to_owned()),
            _ => None,
        }
    }

    fn renamed(value: &Json, paths: &[PathUse]) -> Json {
        let (edits, refused) = rename_nodes(value, paths, &new_id);
        assert!(refused.is_empty(), "{value}");
        edited(value, &mut String::new(), &edits)
    }

    #[test]
    fn names_of_nodes_change_and_nothing_else_does() {
        for (written, expected) in [
            ("{{ a.b.c }}", r#"{{ nodes["x-a"].b.c }}"#),
            ("é {{ b }} b {{ b . b ['b'] }}", "é {{ c }} b {{ c . b ['b'] }}"),
            ("{{ nodes.a.a }} {{ nodes[ 'long-id' ].a }}", r#"{{ nodes["x-a"].a }} {{ short.a }}"#),
            ("{{ nodes [\"b\"] [b.a] }}", "{{ c [c.a] }}"),
            ("{{ inbounds.b | default(inbounds['a'].b) }}", r#"{{ inbounds.c | default(inbounds["x-a"].b) }}"#),
            ("{{ [b, 'b', {'b': b}] | map(attribute='b') }}", "{{ [c, 'b', {'b': c}] | map(attribute='b') }}"),
            ("{{ (b).b if b is defined and not b else flow.b }}", "{{ (c).b if c is defined and not c else flow.b }}"),
            ("{{ b.x | default(b.x) ~ b[b][-1] }}", "{{ c.x | default(c.x) ~ c[c][-1] }}"),
            ("{{ bb.b ~ run.b }} ${b.c} {{ '{{ b }}' }}", "{{ bb.b ~ run.b }} ${b.c} {{ '{{ b }}' }}"),
            ("{{ nodes[b.x].a ~ nodes | length }}", "{{ nodes[c.x].a ~ nodes | length }}"),
            // Parts that do not compile keep their text.
            ("{{ b c }} {{ b }}", "{{ b c }} {{ c }}"),
        ] {
            let value = Json::from(written);
            assert_eq!(renamed(&value, &Binding::reads_of(&value).paths).as_str().unwrap(), expected);
        }
    }

    #[test]
    fn conditions_change_like_expressions() {
        for (written, expected) in [
            (r#""b.b > 1""#, r#""c.b > 1""#),
            (
                r#"{ "and": [{ "equals": { "var": " b.b", "value": "{{ b }} b" } }, { "not": "{{ a }}" }] }"#,
                r#"{"and":[{"equals":{"var":" c.b","value":"{{ c }} b"}},{"not":"{{ nodes[\"x-a\"] }}"}]}"#,
            ),
            (
                r#"{ "or": [{ "exists": "{{ nodes.b }}" }, { "matches": { "var": "a", "pattern": "b" } }] }"#,
                r#"{"or":[{"exists":"{{ c }}"},{"matches":{"var":"nodes[\"x-a\"]","pattern":"b"}}]}"#,
            ),
            (
                r#"{ "in": { "var": "b", "values": ["{{ b.b }}", "b"] } }"#,
                r#"{"in":{"var":"c","values":["{{ c.b }}","b"]}}"#,
            ),
        ] {
            let value = Json::parse(written).unwrap();
            let after = renamed(&value, &Condition::reads_of(&value).paths);
            assert_eq!(after.to_text(), expected);
            assert!(Condition::compile(&after).is_ok(), "{expected}");
        }
    }

    #[test]
    fn a_form_that_cannot_be_rewritten_is_named() {
        let value = Json::from("{{ (nodes).a }} {{ (nodes)['b'] }}");
        let reads = Binding::reads_of(&value);
        let (edits, refused) = rename_nodes(&value, &reads.paths, &new_id);
        assert!(edits.is_empty());
        assert_eq!(refused.len(), 2);
    }
}
