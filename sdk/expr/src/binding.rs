//! Bindings: JSON values with `{{ }}` in their strings.

mod compile;
mod node;
mod render;

use std::collections::HashSet;

pub use self::node::Binding;
pub(crate) use self::node::{CapturedField, Node};
use crate::{
    error::ExprError,
    json::Json,
    path::Path,
    path_use::{PathUse, Reads},
    roots::Roots,
};

impl Binding {
    /// Compiles a value; every string in it, at any depth, may contain `{{ }}`. Reports all errors at once.
    pub fn compile(value: &Json) -> Result<Binding, Vec<ExprError>> {
        compile::compile(value)
    }

    /// Compiles one expression of the expression language, with or without `{{ }}` around it.
    pub fn expression(source: &str) -> Result<Binding, Vec<ExprError>> {
        compile::expression(source)
    }

    /// Computes the value of the binding, with the values of `roots`.
    pub fn render(&self, roots: &dyn Roots) -> Result<Json, ExprError> {
        render::render(self, roots)
    }

    /// Computes the members of a binding that is an object. Members that fail are left out. Any other binding becomes
    /// an empty object.
    pub fn render_members(&self, roots: &dyn Roots) -> Json {
        Json::Object(render::render_members(self, roots).into())
    }

    /// Returns the paths that rendering reads, each only once. A path ends before its first computed subscript,
    /// because the rest is not known before rendering.
    pub fn paths(&self) -> Vec<Path> {
        let mut seen = HashSet::new();
        let places = self.path_uses().into_iter();
        places.map(|place| place.path).filter(|path| seen.insert(path.clone())).collect()
    }

    /// Returns every path that rendering reads, with its position.
    pub fn path_uses(&self) -> Vec<PathUse> {
        self.reads().paths
    }

    /// Returns every path in the value, with its position: those that rendering reads, and those that lead into the
    /// items of lists.
    pub fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        self.collect(&mut String::new(), &mut reads);
        reads
    }

    /// Returns the paths in a value that does not compile, from the parts that can be parsed.
    pub fn reads_of(value: &Json) -> Reads {
        compile::reads(value)
    }

    /// Returns true if no part of the value is computed.
    pub fn is_literal(&self) -> bool {
        self.as_literal().is_some()
    }

    /// Returns the path of a binding that is a single `{{ path }}`; `None` for any other binding.
    pub fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            Node::Whole(expression) => expression.as_path(),
            _ => None,
        }
    }

    /// Returns a member of a binding that is an object; `None` if the member is missing or the binding is not an
    /// object.
    pub fn member(&self, key: &str) -> Option<&Binding> {
        match &self.0 {
            Node::Object(members, _) => members.iter().find(|(name, _)| &**name == key).map(|(_, member)| member),
            _ => None,
        }
    }

    /// Returns an item of a binding that is a list; `None` if the item is missing or the binding is not a list.
    pub fn item(&self, index: usize) -> Option<&Binding> {
        match &self.0 {
            Node::Array(items, _) => items.get(index),
            _ => None,
        }
    }
}
