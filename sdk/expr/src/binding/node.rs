//! The compiled form of a binding.

use std::sync::Arc;

use crate::{
    error::push_token,
    json::{self, Json},
    language::Expression,
    path::Path,
    path_use::{PathUse, Reads},
};

/// A compiled JSON value with `{{ }}` in its strings.
#[derive(Clone, Debug)]
pub struct Binding(pub(crate) Node);

/// A part of a compiled value.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A literal value.
    Literal(Json),
    /// A text that is a single `{{ }}`; the result keeps its type.
    Whole(Expression),
    /// A text that contains `{{ }}`.
    Text(Arc<[Part]>),
    /// A list, with its value if all items are literal.
    Array(Arc<[Binding]>, Option<Json>),
    /// An object, with its value if all members are literal.
    Object(Arc<[(Arc<str>, Binding)]>, Option<Json>),
    /// A captured field: a component evaluates it (see `captured.rs`).
    Captured(Arc<CapturedField>),
}

/// A part of a text.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Text outside of `{{ }}`.
    Text(Arc<str>),
    /// An expression in `{{ }}`.
    Expression(Expression),
}

/// A field that is passed to a component unevaluated, with the values that it reads.
#[derive(Debug)]
pub(crate) struct CapturedField {
    /// The key of the field in its captured form.
    pub(crate) tag: &'static str,
    /// The field as the flow defines it.
    pub(crate) raw: Json,
    /// The paths that the field reads, except those that start with a local name.
    pub(crate) reads: Vec<PathUse>,
    /// The paths of the values that are passed on with the field, each with its canonical text.
    pub(crate) carried: Vec<(Arc<str>, Path)>,
}

impl Binding {
    /// Creates a binding for a literal value; `{{` in it is not evaluated.
    pub fn literal(value: Json) -> Binding {
        match &value {
            Json::Array(items) => {
                let items = items.iter().cloned().map(Binding::literal).collect();
                Binding(Node::Array(items, Some(value)))
            }
            Json::Object(members) => {
                let members = members.iter().map(|(key, member)| (key.clone(), Binding::literal(member.clone())));
                Binding(Node::Object(members.collect(), Some(value)))
            }
            _ => Binding(Node::Literal(value)),
        }
    }

    /// Creates an object from compiled members. The last member with a key wins.
    pub fn object(members: Vec<(Arc<str>, Binding)>) -> Binding {
        let literals = members.iter().map(|(key, member)| Some((key.clone(), member.as_literal()?.clone())));
        let literal = literals.collect::<Option<json::Object>>().map(|members| Json::Object(Arc::new(members)));
        Binding(Node::Object(members.into(), literal))
    }

    /// Creates a list from compiled items.
    pub fn array(items: Vec<Binding>) -> Binding {
        let literals = items.iter().map(|item| item.as_literal().cloned());
        let literal = literals.collect::<Option<Vec<Json>>>().map(|items| Json::Array(Arc::new(items)));
        Binding(Node::Array(items.into(), literal))
    }

    /// Returns the value if no part of it is computed.
    pub fn as_literal(&self) -> Option<&Json> {
        match &self.0 {
            Node::Literal(value) | Node::Array(_, Some(value)) | Node::Object(_, Some(value)) => Some(value),
            _ => None,
        }
    }

    /// Appends every path in the value. `pointer` is the JSON Pointer to this value.
    pub(crate) fn collect(&self, pointer: &mut String, reads: &mut Reads) {
        match &self.0 {
            Node::Literal(_) | Node::Array(_, Some(_)) | Node::Object(_, Some(_)) => {}
            Node::Whole(expression) => expression.collect(pointer, reads),
            Node::Text(parts) => {
                for part in parts.iter() {
                    if let Part::Expression(expression) = part {
                        expression.collect(pointer, reads);
                    }
                }
            }
            Node::Array(items, None) => {
                for (index, item) in items.iter().enumerate() {
                    within(pointer, &index.to_string(), |pointer| item.collect(pointer, reads));
                }
            }
            Node::Object(members, None) => {
                for (key, member) in members.iter() {
                    within(pointer, key, |pointer| member.collect(pointer, reads));
                }
            }
            Node::Captured(field) => {
                reads.paths.extend(field.reads.iter().cloned().map(|read| read.below(pointer)));
            }
        }
    }
}

/// Calls `action` with the pointer extended by one token.
pub(crate) fn within<T>(pointer: &mut String, token: &str, action: impl FnOnce(&mut String) -> T) -> T {
    let length = pointer.len();
    push_token(pointer, token);
    let result = action(pointer);
    pointer.truncate(length);
    result
}
