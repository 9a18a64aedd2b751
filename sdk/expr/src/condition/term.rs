//! The compiled form of a condition.

use std::{cmp::Ordering, ops::Range};

use crate::{binding::Binding, json::Json, language::Expression, path::Path, pattern::Pattern, place::Place};

/// One operator of a condition.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// `true` or `false`.
    Constant(bool),
    /// A text in the expression language, and a pointer to it.
    Expression(Expression, String),
    /// Holds if the inner one does not.
    Not(Box<Term>),
    /// Holds if all do.
    And(Vec<Term>),
    /// Holds if any does.
    Or(Vec<Term>),
    /// A question about the value behind a path.
    Test(Box<Test>),
}

/// A question about the value behind a path.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// Which value.
    pub(super) var: Path,
    /// A pointer to the path, and its bytes there.
    pub(super) place: (String, Range<usize>),
    /// What is asked.
    pub(super) question: Question,
}

/// What is asked about a value.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Whether it is neither missing nor null.
    Exists,
    /// Whether it equals another one.
    Equals(Operand),
    /// Whether it equals an item of a list.
    In(Operand),
    /// Whether it is before or after another one.
    Order(Order, Operand),
    /// Whether a pattern is found in it.
    Matches(Pattern),
}

impl Question {
    /// Its operator, as it is written.
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

    /// Whether it asks if the value is there: `exists`, or a comparison with null.
    pub(super) fn tests_missing(&self) -> bool {
        match self {
            Question::Exists => true,
            Question::Equals(operand) => operand.binding.as_literal().is_some_and(Json::is_null),
            _ => false,
        }
    }
}

/// A value that may hold `{{ }}`, and a pointer to it.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    /// The value.
    pub(super) binding: Binding,
    /// Where it stands.
    pub(super) pointer: String,
}

/// `gt`, `gte`, `lt`, `lte`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Greater.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
}

impl Order {
    /// Whether two values that compare like this are in this order.
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
