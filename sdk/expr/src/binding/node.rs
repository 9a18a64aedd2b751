//! The parts of a compiled binding.

use std::sync::Arc;

use super::Binding;
use crate::{json::Json, language::Expression, path::Path, path_use::PathUse};

/// A part of a compiled value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// A literal value.
    Literal(Json),
    /// A text that is a single `{{ }}`; the result keeps its type.
    Whole(Expression),
    /// Any other text with `{{ }}` in it; the result is a text.
    Text(Arc<[Part]>),
    /// A list, with its value if all items are literal.
    Array(Arc<[Binding]>, Option<Json>),
    /// An object, with its value if all members are literal.
    Object(Arc<[(Arc<str>, Binding)]>, Option<Json>),
    /// A captured field: a component evaluates it (see `captured.rs`).
    Captured(Arc<CapturedField>),
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Text outside of `{{ }}`.
    Text(Arc<str>),
    /// An expression in `{{ }}`.
    Expression(Expression),
}

/// A field that is passed to a component unevaluated, with the values that it reads.
#[derive(Debug)]
pub(crate) struct CapturedField {
    /// The key of the unevaluated field in its captured form: `expr` or `template`.
    pub(crate) tag: &'static str,
    /// The field as the flow defines it.
    pub(crate) raw: Json,
    /// The paths that the field reads, except those that start with a local name.
    pub(crate) reads: Vec<PathUse>,
    /// The paths of the values that are passed on with the field, each with its canonical text.
    pub(crate) carried: Vec<(Arc<str>, Path)>,
}

/// Two captured fields are equal if they have the same kind and the same unevaluated value. The rest follows from these.
impl PartialEq for CapturedField {
    fn eq(&self, other: &CapturedField) -> bool {
        self.tag == other.tag && self.raw == other.raw
    }
}
