//! Evaluates conditions.

use std::cell::Cell;

use super::term::{Operand, Predicate, Term, Test};
use crate::{
    allowance,
    error::ExprError,
    file::{misuse_error, not_usable_message},
    json::Json,
    limits,
    order::order,
    path::{Path, shorten},
    pattern::Pattern,
    place::Place,
    roots::Roots,
};

/// One evaluation of a condition.
pub(super) struct Evaluation<'a> {
    roots: &'a dyn Roots,
    /// Cost of the evaluation's searches so far, in units of [`limits::SEARCH_WORK`].
    search_cost: Cell<usize>,
}

impl<'a> Evaluation<'a> {
    /// Prepares an evaluation.
    pub(super) fn new(roots: &'a dyn Roots) -> Evaluation<'a> {
        Evaluation { roots, search_cost: Cell::new(0) }
    }

    /// Returns true if a condition holds. `and` stops at the first false term, `or` at the first true term.
    pub(super) fn holds(&self, term: &Term) -> Result<bool, ExprError> {
        match term {
            Term::Constant(value) => Ok(*value),
            Term::Expression(expression, pointer) => {
                expression.holds(self.roots, Place::at(pointer)).map_err(|error| error.under(pointer))
            }
            Term::Not(term) => self.holds(term).map(|held| !held),
            Term::And(terms) => self.evaluate_until(terms, false),
            Term::Or(terms) => self.evaluate_until(terms, true),
            Term::Test(test) => self.evaluate_test(test),
        }
    }

    /// Evaluates terms in order and stops at the first one whose result is `deciding`. Returns `deciding` if there is
    /// such a term, otherwise the opposite of `deciding`.
    fn evaluate_until(&self, terms: &[Term], deciding: bool) -> Result<bool, ExprError> {
        for term in terms {
            if self.holds(term)? == deciding {
                return Ok(deciding);
            }
        }
        Ok(!deciding)
    }

    fn evaluate_test(&self, test: &Test) -> Result<bool, ExprError> {
        let (pointer, place) = &test.place;
        let placed = |error: ExprError| error.at(place.clone()).under(pointer);
        if !allowance::spend(limits::EVALUATION_WORK) {
            return Err(placed(ExprError::new(allowance::EXHAUSTED)));
        }
        let value = match test.var.read(self.roots).map_err(placed)? {
            Some(value) => value,
            None if self.roots.is_strict() && !test.predicate.is_test_for_missing() => {
                let hint =
                    format!("the flow is strict: test it first with `exists: {}`", shorten(&test.var.to_string()));
                return Err(placed(test.var.missing(self.roots).hint(hint)));
            }
            None => Json::Null,
        };
        match &test.predicate {
            Predicate::Exists => Ok(!value.is_null()),
            Predicate::Equals(operand) => with(operand, self.roots, |other| {
                self.check_comparable(test, operand, &value, other)?;
                spend_on(&value).and_then(|()| spend_on(other)).map_err(placed)?;
                Ok(value == *other)
            }),
            Predicate::In(operand) => with(operand, self.roots, |list| {
                self.check_comparable(test, operand, &value, list)?;
                spend_on(list).map_err(placed)?;
                if let Json::Array(items) = list {
                    for item in items.iter() {
                        self.check_comparable(test, operand, &value, item)?;
                        if *item == value {
                            return Ok(true);
                        }
                    }
                }
                contains(list, &value).map_err(|message| {
                    let other = operand.binding.as_path().map(|path| (path, list));
                    ExprError::new(message + &describe_types([Some((&test.var, &value)), other]))
                        .under(&operand.pointer)
                })
            }),
            Predicate::Order(accepted, operand) => with(operand, self.roots, |other| {
                self.check_comparable(test, operand, &value, other)?;
                let ordering = order(&value, other).map_err(|message| {
                    let other = operand.binding.as_path().map(|path| (path, other));
                    placed(ExprError::new(message + &describe_types([Some((&test.var, &value)), other])))
                });
                ordering.map(|ordering| accepted.accepts(ordering))
            }),
            Predicate::Matches(_) if value.is_file() => {
                Err(placed(misuse_error(not_usable_message(test.predicate.name()), [&test.var])))
            }
            Predicate::Matches(pattern) => self
                .matches(pattern, &value)
                .map_err(|message| placed(ExprError::new(message + &describe_types([Some((&test.var, &value))])))),
        }
    }

    /// Returns an error if a file value is compared with any value except null.
    fn check_comparable(&self, test: &Test, operand: &Operand, value: &Json, other: &Json) -> Result<(), ExprError> {
        let is_misused = |one: &Json, with: &Json| one.is_file() && !with.is_null();
        if !is_misused(value, other) && !is_misused(other, value) {
            return Ok(());
        }
        let named = [Some(&test.var), operand.binding.as_path()].into_iter().flatten();
        let files = named.filter(|path| path.resolve(self.roots).is_some_and(|value| value.is_file()));
        let (pointer, place) = &test.place;
        Err(misuse_error(not_usable_message(test.predicate.name()), files).at(place.clone()).under(pointer))
    }

    fn matches(&self, pattern: &Pattern, value: &Json) -> Result<bool, String> {
        let text = match value {
            Json::Null => return Ok(false),
            Json::String(text) => text,
            other => return Err(format!("`matches` searches texts, not {}", other.type_name())),
        };
        self.search_cost.set(self.search_cost.get().saturating_add(pattern.cost(text)));
        if self.search_cost.get() > limits::SEARCHES * limits::SEARCH_WORK {
            return Err("the condition searches too much text".to_owned());
        }
        if !allowance::spend((pattern.cost(text) / limits::SEARCH_PER_WORK) as u64) {
            return Err(allowance::EXHAUSTED.to_owned());
        }
        pattern.search(text)
    }
}

/// Counts the work of comparing every part of a value. Returns an error if the evaluations on this thread have thereby
/// exceeded the limit of [`allowance`].
fn spend_on(value: &Json) -> Result<(), ExprError> {
    if allowance::spend_reading(value) { Ok(()) } else { Err(ExprError::new(allowance::EXHAUSTED)) }
}

/// Returns true if `container` is a text that contains the text `item`, or an object that has the key `item`. Returns
/// false for null, and for a list, whose items the caller has already searched.
fn contains(container: &Json, item: &Json) -> Result<bool, String> {
    let text = || item.as_str().ok_or_else(|| format!("`in` searches a text for a text, not for {}", item.type_name()));
    match container {
        Json::Array(_) | Json::Null => Ok(false),
        Json::String(whole) => Ok(whole.contains(text()?)),
        Json::Object(members) => Ok(members.contains_key(text()?)),
        other => Err(format!("`in` searches a list, a text or an object, not {}", other.type_name())),
    }
}

/// Returns the end of a message about incompatible values: their paths and types.
fn describe_types<'a>(read: impl IntoIterator<Item = Option<(&'a Path, &'a Json)>>) -> String {
    let what = |value: &Json| if value.is_null() { "missing or null" } else { value.type_name() };
    let named = read.into_iter().flatten();
    named.map(|(path, value)| format!("; `{}` is {}", shorten(&path.to_string()), what(value))).collect()
}

/// Calls `look` with the value of an operand. A literal value is passed by reference; any other is rendered first.
fn with<T>(
    operand: &Operand,
    roots: &dyn Roots,
    look: impl FnOnce(&Json) -> Result<T, ExprError>,
) -> Result<T, ExprError> {
    match operand.binding.as_literal() {
        Some(value) => look(value),
        None => {
            let rendered = operand.binding.render_at(roots, Place::at(&operand.pointer));
            look(&rendered.map_err(|error| error.under(&operand.pointer))?)
        }
    }
}
