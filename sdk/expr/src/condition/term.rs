//! The compiled form of a condition.

use std::{cmp::Ordering, ops::Range};

use crate::{binding::Binding, json::Json, language::Expression, path::Path, pattern::Pattern, place::Place};

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
    /// JSON Pointer to the path, and the path's bytes in that text.
    pub(super) place: (String, Range<usize>),
    pub(super) question: Question,
}

/// The operator of a test, with its operand.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// True if the value is neither missing nor null.
    Exists,
    /// True if the value equals the operand.
    Equals(Operand),
    /// True if the value equals an item of a list.
    In(Operand),
    /// True if the value is less or greater than the operand.
    Order(Order, Operand),
    /// True if the pattern matches a part of the value.
    Matches(Pattern),
}

impl Question {
    /// Returns the operator's name in conditions.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Question::Exists => "exists",
            Question::Equals(_) => "equals",
            Question::In(_) => "in",
            Question::Order(Order::Gt, _) => "gt",
            Question::Order(Order::Gte, _) => "gte",
            Question::Order(Order::Lt, _) => "lt",
            Question::Order(Order::Lte, _) => "lte",
            Question::Matches(_) => "matches",
        }
    }

    /// Returns true if the operator tests for missing values: `exists`, or a comparison with null.
    pub(super) fn tests_missing(&self) -> bool {
        match self {
            Question::Exists => true,
            Question::Equals(operand) => operand.binding.as_literal().is_some_and(Json::is_null),
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
    /// Returns true if the order of two values satisfies the operator.
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
    /// Appends every path that is read.
    pub(super) fn collect(&self, places: &mut Vec<Place>) {
        match self {
            Term::Constant(_) => {}
            Term::Expression(expression, pointer) => {
                places.extend(expression.reads().iter().map(|read| read.at(pointer)));
            }
            Term::Not(term) => term.collect(places),
            Term::And(terms) | Term::Or(terms) => terms.iter().for_each(|term| term.collect(places)),
            Term::Test(test) => {
                let (pointer, bytes) = test.place.clone();
                let is_tested = test.question.tests_missing();
                places.push(Place { path: test.var.clone(), pointer, bytes: Some(bytes), is_tested });
                if let Question::Equals(operand) | Question::In(operand) | Question::Order(_, operand) = &test.question
                {
                    let inner = operand.binding.paths_with_places().into_iter();
                    places.extend(inner.map(|place| place.below(&operand.pointer)));
                }
            }
        }
    }
}
