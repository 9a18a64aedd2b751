//! Captured fields. A component evaluates such a field itself. The host passes the field on unevaluated, together
//! with the values that the field reads.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::{
    binding::{Binding, CapturedField, Node},
    condition::Condition,
    error::ExprError,
    json::{Json, Object},
    language::RANDOM,
    limits,
    path::{Path, Segment},
    path_use::PathUse,
    roots::{Chain, Roots},
};

/// The kind of a captured field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedKind {
    /// A condition, or an expression as a text. Its key is `expr`.
    Expr,
    /// A value with `{{ }}` in its strings. Its key is `template`.
    Template,
}

impl CapturedKind {
    fn tag(self) -> &'static str {
        match self {
            CapturedKind::Expr => "expr",
            CapturedKind::Template => "template",
        }
    }

    fn path_uses(self, raw: &Json) -> Result<Vec<PathUse>, Vec<ExprError>> {
        match self {
            CapturedKind::Expr => Ok(Condition::compile(raw)?.path_uses()),
            CapturedKind::Template => Ok(Binding::compile(raw)?.path_uses()),
        }
    }
}

impl Binding {
    /// Creates a captured field, which renders to `{ "expr" | "template": raw, "vars": { path: value } }`.
    ///
    /// Strict roots add `"strict": true`. `vars` contains the values that `raw` reads, by canonical path. Missing
    /// values and the roots in `locals`, which the component defines itself, are left out.
    pub fn captured(kind: CapturedKind, raw: Json, locals: &[Arc<str>]) -> Result<Binding, Vec<ExprError>> {
        let mut reads = kind.path_uses(&raw)?;
        if let Some(read) = reads.iter().find(|read| read.path.root() == RANDOM) {
            return Err(vec![random_error(read)]);
        }
        reads.retain(|read| !locals.iter().any(|local| **local == *read.path.root()));
        let mut carried: Vec<(Arc<str>, Path)> = Vec::new();
        for read in &reads {
            let path = read.path.capturable_prefix();
            if !carried.iter().any(|(_, other)| *other == path) {
                carried.push((path.to_string().into(), path));
            }
        }
        let field = CapturedField { tag: kind.tag(), raw, reads, carried };
        Ok(Binding(Node::Captured(Arc::new(field))))
    }
}

/// Creates the error about a random value in a field that a component evaluates, perhaps many times.
fn random_error(read: &PathUse) -> ExprError {
    let error = ExprError::new("the node evaluates this field itself, and has no random values");
    let error = error.hint(
        "compute the value in the input of a node before, such as `data.set`, or for each item in the body of \
         `control.foreach`",
    );
    let error = read.bytes.iter().fold(error, |error, bytes| error.at(bytes.clone()));
    error.under(&read.pointer)
}

/// A captured field as a component receives it.
#[derive(Clone, Debug)]
pub struct Captured {
    raw: Json,
    roots: CapturedRoots,
}

/// The values that were passed on with a field.
#[derive(Clone, Debug, Default)]
struct CapturedRoots {
    values: Json,
    is_strict: bool,
}

impl Roots for CapturedRoots {
    fn root(&self, name: &str) -> Option<Json> {
        self.values.root(name)
    }

    fn is_strict(&self) -> bool {
        self.is_strict
    }
}

impl Captured {
    /// Reads `{ "expr" | "template": raw, "vars": { path: value } }`, with `"strict": true` from a strict flow. Any
    /// other value becomes `raw` without values.
    pub fn parse(field: &Json) -> Captured {
        let raw = field.get("expr").or_else(|| field.get("template"));
        let vars = field.get("vars").and_then(Json::as_object);
        let is_strict = field.get("strict").and_then(Json::as_bool) == Some(true);
        match (raw, vars, field.as_object().map(Object::len)) {
            (Some(raw), Some(vars), Some(length)) if length == 2 + usize::from(is_strict) => {
                Captured { raw: raw.clone(), roots: CapturedRoots { values: tree(vars), is_strict } }
            }
            _ => Captured { raw: field.clone(), roots: CapturedRoots::default() },
        }
    }

    /// Returns the unevaluated field, to be compiled as a [`Condition`] or a [`Binding`].
    pub fn raw(&self) -> &Json {
        &self.raw
    }

    /// Returns the values that were passed on with the field.
    pub fn roots(&self) -> &dyn Roots {
        &self.roots
    }

    /// Returns the values that were passed on with the field, and the members of `locals`, which take precedence.
    pub fn with_locals(&self, locals: Json) -> impl Roots {
        Chain(locals, self.roots.clone())
    }
}

/// Builds the object of root values from `vars`, a map from paths to values.
fn tree(vars: &Object) -> Json {
    let mut paths: Vec<(Path, &Json)> =
        vars.iter().filter_map(|(path, value)| Some((Path::parse(path).ok()?, value))).collect();
    // A shorter path comes first: its value contains the values of longer ones.
    paths.sort_by_key(|(path, _)| path.segments().len());
    let mut roots = Branch::default();
    for (path, value) in paths {
        let steps: Vec<Segment> =
            [Segment::Key(path.root().into())].into_iter().chain(path.segments().iter().cloned()).collect();
        roots.insert(&steps, value);
    }
    roots.into_json()
}

/// A value that [`tree`] is building.
#[derive(Default)]
enum Branch {
    #[default]
    Empty,
    Value(Json),
    Members(IndexMap<Arc<str>, Branch>),
    Items(Vec<Branch>),
}

impl Branch {
    /// Inserts a value at a path. Leaves out a value that conflicts with one that was inserted before;
    /// [`Binding::captured`] never creates such values.
    fn insert(&mut self, steps: &[Segment], value: &Json) {
        match (steps, &mut *self) {
            ([], Branch::Empty) => *self = Branch::Value(value.clone()),
            ([Segment::Key(key), rest @ ..], Branch::Members(members)) => {
                members.entry(key.clone()).or_default().insert(rest, value);
            }
            ([Segment::Index(index), rest @ ..], Branch::Items(items)) if *index <= limits::CAPTURED_INDEX => {
                let Ok(index) = usize::try_from(*index) else { return };
                if items.len() <= index {
                    items.resize_with(index + 1, Branch::default);
                }
                items[index].insert(rest, value);
            }
            ([step, ..], Branch::Empty) => {
                *self = match step {
                    Segment::Key(_) => Branch::Members(IndexMap::new()),
                    Segment::Index(_) => Branch::Items(Vec::new()),
                };
                self.insert(steps, value);
            }
            _ => {}
        }
    }

    fn into_json(self) -> Json {
        match self {
            Branch::Empty => Json::Null,
            Branch::Value(value) => value,
            Branch::Members(members) => {
                Json::object(members.into_iter().map(|(key, member)| (key, member.into_json())))
            }
            Branch::Items(items) => Json::array(items.into_iter().map(Branch::into_json)),
        }
    }
}
