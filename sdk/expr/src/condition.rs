//! Conditions: the values of `when` and `while`.

mod compile;
mod evaluate;
mod term;

use std::{collections::HashSet, sync::Arc};

use self::{evaluate::Evaluation, term::Term};
use crate::{
    error::ExprError,
    json::Json,
    path::Path,
    path_use::{PathUse, Reads},
    rename::{NodeIds, same_values},
    roots::Roots,
};

/// A compiled condition: an operator object, an expression as a text (with or without `{{ }}`), `true` or `false`.
///
/// An operator object has one member: `equals: { var, value }`, `in: { var, values }`, `gt`, `gte`, `lt`, `lte` (`{
/// var, value }`), `matches: { var, pattern }`, `exists: path`, `not: condition`, `and: [condition]`, `or:
/// [condition]`. `var` is a path; `value` and `values` may contain `{{ }}`.
///
/// Two conditions are equal if they were compiled from the same value.
#[derive(Clone, Debug)]
pub struct Condition {
    term: Arc<Term>,
    source: Json,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.source == other.source
    }
}

impl Condition {
    /// Compiles a condition. Reports all errors at once.
    pub fn compile(value: &Json) -> Result<Condition, Vec<ExprError>> {
        let term = compile::compile(value)?;
        Ok(Condition { term: Arc::new(term), source: value.clone() })
    }

    /// Returns true if the condition holds.
    pub fn evaluate(&self, roots: &dyn Roots) -> Result<bool, ExprError> {
        Evaluation::new(roots).holds(&self.term)
    }

    /// Returns true if both conditions are equal once each name of a node is replaced by the id that it stands for.
    pub fn is_same(&self, ids: NodeIds<'_>, other: &Condition, other_ids: NodeIds<'_>) -> bool {
        same_values((&self.source, &self.path_uses(), ids), (&other.source, &other.path_uses(), other_ids))
    }

    /// Returns the paths that the condition reads, each only once. A path ends before its first computed subscript,
    /// because the rest is not known before the evaluation.
    pub fn paths(&self) -> Vec<Path> {
        let mut seen = HashSet::new();
        let places = self.path_uses().into_iter();
        places.map(|place| place.path).filter(|path| seen.insert(path.clone())).collect()
    }

    /// Returns every path that the condition reads, with its position.
    pub fn path_uses(&self) -> Vec<PathUse> {
        self.reads().paths
    }

    /// Returns every path in the condition, with its position: the paths that the evaluation reads, and longer forms
    /// that lead into the items of lists (see [`Reads::item_paths`]).
    pub fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        self.term.collect(&mut reads);
        reads
    }

    /// Returns the paths in a condition that does not compile. Only the parts that can be parsed have paths.
    pub fn reads_of(value: &Json) -> Reads {
        compile::reads(value)
    }
}
