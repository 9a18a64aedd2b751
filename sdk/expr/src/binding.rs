//! Bindings: JSON values with `{{ }}` in their strings.

mod compile;
mod node;
mod render;
mod same;

use std::{collections::HashSet, sync::Arc};

use self::node::Part;
pub(crate) use self::node::{CapturedField, Node};
use crate::{
    error::{ExprError, with_token},
    json::{self, Json},
    language::Expression,
    path::Path,
    path_use::{PathUse, Reads},
    place::Place,
    rename::NodeIds,
    roots::Roots,
};

/// A compiled JSON value with `{{ }}` in its strings. Two bindings are equal if they were made from the same value.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding(pub(crate) Node);

impl Binding {
    /// Returns true if both bindings are equal once each name of a node is replaced by the id that it stands for. A
    /// form whose name cannot be replaced, such as `(nodes).a ~ 1`, makes a binding unlike any other.
    pub fn is_same(&self, ids: NodeIds<'_>, other: &Binding, other_ids: NodeIds<'_>) -> bool {
        same::is_same(self, ids, other, other_ids)
    }

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

    /// Creates a binding for the whole value of a root, which may have a name that expressions cannot use.
    pub fn root(name: &str) -> Binding {
        Binding(Node::Whole(Expression::from_root(name)))
    }

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
        self.render_at(roots, Place::at(""))
    }

    /// Computes the value of the binding, which is a part of a larger value.
    pub(crate) fn render_at(&self, roots: &dyn Roots, at: Place<'_>) -> Result<Json, ExprError> {
        render::render(self, roots, at)
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

    /// Returns every path in the value, with its position: the paths that rendering reads, and longer forms that lead
    /// into the items of lists (see [`Reads::item_paths`]).
    pub fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        self.collect(&mut String::new(), &mut reads);
        reads
    }

    /// Returns the paths in a value that does not compile. Only the parts that can be parsed have paths.
    pub fn reads_of(value: &Json) -> Reads {
        compile::reads(value)
    }

    /// Returns the value if no part of it is computed.
    pub fn as_literal(&self) -> Option<&Json> {
        match &self.0 {
            Node::Literal(value) | Node::Array(_, Some(value)) | Node::Object(_, Some(value)) => Some(value),
            _ => None,
        }
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

    /// Returns the text of a [captured field](Binding::captured), without evaluating it; `None` for any other binding.
    pub fn as_captured(&self) -> Option<&Json> {
        match &self.0 {
            Node::Captured(field) => Some(&field.raw),
            _ => None,
        }
    }

    /// Returns the members of a binding that is an object; none for any other binding.
    pub fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Binding)> {
        let members = match &self.0 {
            Node::Object(members, _) => &members[..],
            _ => &[],
        };
        members.iter().map(|(name, member)| (name, member))
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

    /// Appends every path in the value to `reads`. `pointer` is the JSON Pointer to this value.
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
                    with_token(pointer, &index.to_string(), |pointer| item.collect(pointer, reads));
                }
            }
            Node::Object(members, None) => {
                for (key, member) in members.iter() {
                    with_token(pointer, key, |pointer| member.collect(pointer, reads));
                }
            }
            Node::Captured(field) => {
                reads.paths.extend(field.reads.iter().cloned().map(|read| read.below(pointer)));
            }
        }
    }
}
