//! The compiled form of a condition.

use std::{cmp::Ordering, ops::Range};

use crate::{
    binding::Binding,
    json::Json,
    language::Expression,
    path::Path,
    path_use::{PathUse, Reads},
    pattern::Pattern,
};

/// One operator of a condition.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// `true` or `false`.
    Constant(bool),
    /// An expression as a text, and the JSON Pointer to it.
    Expression(Expression, String),
    /// Holds if the inner term does not.
    Not(Box<Term>),
    /// Holds if all terms hold.
    And(Vec<Term>),
    /// Holds if at least one term holds.
    Or(Vec<Term>),
    Test(Box<Test>),
}

/// A test of the value at a path.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// Path of the tested value.
    pub(super) var: Path,
    /// JSON Pointer to the text that contains the path, and the path's byte range in this text.
    pub(super) place: (String, Range<usize>),
    pub(super) predicate: Predicate,
}

/// The operator of a test, with its operand.
#[derive(Clone, Debug)]
pub(super) enum Predicate {
    /// True if the value is neither missing nor null.
    Exists,
    /// True if the value equals the operand.
    Equals(Operand),
    /// True if the operand contains the value: as an item of a list, as a part of a text, or as a key of an object.
    In(Operand),
    /// True if the comparison of the value with the operand holds: for `gt`, if the value is greater than the operand.
    Order(Order, Operand),
    /// True if the pattern matches a part of the value.
    Matches(Pattern),
}

impl Predicate {
    /// Returns the operator's name in conditions.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Predicate::Exists => "exists",
            Predicate::Equals(_) => "equals",
            Predicate::In(_) => "in",
            Predicate::Order(Order::Gt, _) => "gt",
            Predicate::Order(Order::Gte, _) => "gte",
            Predicate::Order(Order::Lt, _) => "lt",
            Predicate::Order(Order::Lte, _) => "lte",
            Predicate::Matches(_) => "matches",
        }
    }

    /// Returns true for the operators that ask whether a value is missing: `exists`, and `equals` with null.
    pub(super) fn is_test_for_missing(&self) -> bool {
        match self {
            Predicate::Exists => true,
            Predicate::Equals(operand) => operand.binding.as_literal().is_some_and(Json::is_null),
            _ => false,
        }
    }
}

/// A value that may contain `{{ }}`, and the JSON Pointer to it.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) binding: Binding,
    pub(super) pointer: String,
}

/// The operators `gt`, `gte`, `lt`, `lte`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Order {
    /// Returns true if the operator holds for two values of which the first compares to the second as `ordering`.
    pub(super) fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Order::Gt => ordering.is_gt(),
            Order::Gte => ordering.is_ge(),
            Order::Lt => ordering.is_lt(),
            Order::Lte => ordering.is_le(),
        }
    }
}

impl Term {
    /// Appends every path in the condition.
    pub(super) fn collect(&self, reads: &mut Reads) {
        match self {
            Term::Constant(_) => {}
            Term::Expression(expression, pointer) => expression.collect(pointer, reads),
            Term::Not(term) => term.collect(reads),
            Term::And(terms) | Term::Or(terms) => terms.iter().for_each(|term| term.collect(reads)),
            Term::Test(test) => {
                let (pointer, bytes) = test.place.clone();
                let is_tested = test.predicate.is_test_for_missing();
                let (path, bytes) = (test.var.clone(), Some(bytes));
                reads.paths.push(PathUse { path, pointer, bytes, is_tested, is_key: false });
                if let Predicate::Equals(operand) | Predicate::In(operand) | Predicate::Order(_, operand) =
                    &test.predicate
                {
                    reads.add_below(&operand.pointer, operand.binding.reads());
                }
            }
        }
    }
}
