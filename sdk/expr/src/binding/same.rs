//! Compares bindings of two versions of a flow in which nodes have different names.

use super::{
    Binding,
    node::{CapturedField, Node, Part},
};
use crate::rename::{NodeIds, same_values};

/// Performs [`Binding::is_same`].
pub(super) fn is_same(one: &Binding, ids: NodeIds<'_>, other: &Binding, other_ids: NodeIds<'_>) -> bool {
    let same = |one: &Binding, other: &Binding| is_same(one, ids, other, other_ids);
    match (&one.0, &other.0) {
        (Node::Literal(one), Node::Literal(other)) => one == other,
        (Node::Whole(one), Node::Whole(other)) => one.is_same(ids, other, other_ids),
        (Node::Text(one), Node::Text(other)) => {
            let same = |(one, other): (&Part, &Part)| match (one, other) {
                (Part::Text(one), Part::Text(other)) => one == other,
                (Part::Expression(one), Part::Expression(other)) => one.is_same(ids, other, other_ids),
                _ => false,
            };
            one.len() == other.len() && one.iter().zip(other.iter()).all(same)
        }
        (Node::Array(one, _), Node::Array(other, _)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| same(one, other))
        }
        (Node::Object(one, _), Node::Object(other, _)) => {
            let mut members = one.iter().zip(other.iter());
            one.len() == other.len() && members.all(|((key, one), (name, other))| key == name && same(one, other))
        }
        (Node::Captured(one), Node::Captured(other)) => {
            let raw = |field: &CapturedField| (field.raw.clone(), field.reads.clone());
            let ((one_raw, reads), (raw, other_reads)) = (raw(one), raw(other));
            one.tag == other.tag && same_values((&one_raw, &reads, ids), (&raw, &other_reads, other_ids))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use super::*;
    use crate::{CapturedKind, Condition, Json};

    fn plain(name: &str) -> Option<String> {
        ["a", "b", "long-id"].contains(&name).then(|| name.to_owned())
    }

    /// `x` is another name of `a`, and `a` and `b` have changed their names.
    fn swapped(name: &str) -> Option<String> {
        let id = match name {
            "a" => "b",
            "b" => "a",
            "x" => "long-id",
            _ => return None,
        };
        Some(id.to_owned())
    }

    const CASES: [(&str, &str, bool); 16] = [
        ("{{ a.b }}", "{{ b.b }}", true),
        ("{{ a.b }}", "{{ a.b }}", false),
        ("{{ nodes.a.b }}", "{{ b.b }}", true),
        ("{{ nodes['long-id'].c }}", "{{ x.c }}", true),
        ("{{ nodes['long-id'].c + 1 }}", "{{ x.c + 1 }}", true),
        ("{{ a.x | default(b.x) ~ a[b.a] }}", "{{ b.x | default(a.x) ~ b[a.a] }}", true),
        ("{{ a.x | default(b.x) }}", "{{ b.x | default(b.x) }}", false),
        ("{{ inbounds.a.a }}", "{{ inbounds.b.a }}", true),
        ("{{ inbounds['a'] }} and {{ flow.a }}", "{{ inbounds['b'] }} and {{ flow.b }}", false),
        ("{{ inbounds['a'] }} or {{ flow.a }}", "{{ inbounds.b }} or {{ flow.a }}", true),
        ("a {{ a }} 'a'", "a {{ b }} 'a'", true),
        ("a {{ a }} 'a'", "b {{ b }} 'a'", false),
        ("{{ 'a' ~ a }}", "{{ 'b' ~ b }}", false),
        ("{{ (nodes).a ~ 1 }}", "{{ (nodes).b ~ 1 }}", false),
        ("{{ flow.a }}", "{{ flow.a }}", true),
        ("a", "a", true),
    ];

    #[test]
    fn names_of_the_same_nodes_are_equal() {
        for (one, other, expected) in CASES {
            let wrap = |text: &str| Json::object([("k/~", Json::array([Json::from(text), Json::from(true)]))]);
            for wrap in [&|text: &str| Json::from(text) as Json, &wrap as &dyn Fn(&str) -> Json] {
                let (one, other) = (wrap(one), wrap(other));
                let compile = |value: &Json| Binding::compile(value).unwrap();
                assert_eq!(compile(&one).is_same(&plain, &compile(&other), &swapped), expected, "{one} {other}");
                let captured = |value: &Json| {
                    Binding::captured(CapturedKind::Template, value.clone(), &[Arc::from("item")]).unwrap()
                };
                // The text of a field that a component evaluates stays as it is written.
                let is_same = captured(&one).is_same(&plain, &captured(&other), &swapped);
                assert_eq!(is_same, expected, "{one} {other}");
            }
        }
    }

    #[test]
    fn local_names_of_a_captured_field_stand_for_themselves() {
        let locals = [Arc::from("a")];
        let field = |text: &str| Binding::captured(CapturedKind::Template, Json::from(text), &locals).unwrap();
        assert!(field("{{ a.x ~ b.y }}").is_same(&plain, &field("{{ a.x ~ nodes.b.y }}"), &plain));
        assert!(!field("{{ a.x ~ b.y }}").is_same(&plain, &field("{{ b.x ~ a.y }}"), &swapped));
    }

    #[test]
    fn conditions_are_compared_like_bindings() {
        for (one, other, expected) in [
            (r#""a.b > 1""#, r#""b.b > 1""#, true),
            (r#""a.b > 1""#, r#""b.b > 2""#, false),
            (
                r#"{ "equals": { "var": "nodes.a.x", "value": "{{ a }} a" } }"#,
                r#"{ "equals": { "var": "b.x", "value": "{{ b }} a" } }"#,
                true,
            ),
            (
                r#"{ "equals": { "var": "a.x", "value": "a" } }"#,
                r#"{ "equals": { "var": "b.x", "value": "b" } }"#,
                false,
            ),
        ] {
            let compile = |text: &str| Condition::compile(&Json::parse(text).unwrap()).unwrap();
            assert_eq!(compile(one).is_same(&plain, &compile(other), &swapped), expected, "{one} {other}");
        }
    }
}
