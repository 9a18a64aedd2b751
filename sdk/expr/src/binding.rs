//! Bindings: JSON values in which strings may hold `{{ }}`.

mod compile;
mod node;
mod render;

use std::collections::HashSet;

pub use self::node::Binding;
pub(crate) use self::node::{CapturedField, Node};
use crate::{error::ExprError, json::Json, path::Path, place::Place, roots::Roots};

impl Binding {
    /// Compiles a value; every string in it, at any depth, may hold `{{ }}`. Reports all errors at once.
    pub fn compile(value: &Json) -> Result<Binding, Vec<ExprError>> {
        compile::compile(value)
    }

    /// Compiles one expression of the expression language, with or without `{{ }}` around it.
    pub fn expression(source: &str) -> Result<Binding, Vec<ExprError>> {
        compile::expression(source)
    }

    /// Computes the value.
    pub fn render(&self, roots: &dyn Roots) -> Result<Json, ExprError> {
        render::render(self, roots)
    }

    /// Computes the members that can be computed, if the value is written as an object: the others are left out.
    pub fn render_members(&self, roots: &dyn Roots) -> Json {
        Json::Object(render::render_members(self, roots).into())
    }

    /// The longest static paths that rendering reads, without repetition; a computed subscript ends a path.
    pub fn paths(&self) -> Vec<Path> {
        let mut seen = HashSet::new();
        let places = self.paths_with_places().into_iter();
        places.map(|place| place.path).filter(|path| seen.insert(path.clone())).collect()
    }

    /// Every path that rendering reads, with its place.
    pub fn paths_with_places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        self.collect(&mut String::new(), &mut places);
        places
    }

    /// Whether nothing in it is computed.
    pub fn is_literal(&self) -> bool {
        self.as_literal().is_some()
    }

    /// The path that the whole value is, if it is written `{{ path }}`.
    pub fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            Node::Whole(expression) => expression.as_path(),
            _ => None,
        }
    }

    /// A member, if the value is written as an object.
    pub fn member(&self, key: &str) -> Option<&Binding> {
        match &self.0 {
            Node::Object(members, _) => members.iter().find(|(name, _)| &**name == key).map(|(_, member)| member),
            _ => None,
        }
    }

    /// An item, if the value is written as a list.
    pub fn item(&self, index: usize) -> Option<&Binding> {
        match &self.0 {
            Node::Array(items, _) => items.get(index),
            _ => None,
        }
    }
}
