//! Predicates of rules: comparisons such as `${args.key} == value`, joined by `&&`, `||`, `!( )` and parentheses.

mod parser;

use flowcell_contract::Json;
use flowcell_expr::Condition;

use crate::{
    agentic::placeholder::{Placeholder, PlaceholderValues, quoted},
    diagnostic::Diagnostics,
    fields::for_message,
    yaml::Tree,
};

/// The pattern of a text that is a number. It has at most 200 digits before the point and two in the exponent, so that
/// it is within the range of numbers.
const NUMBER: &str = r"^-?[0-9]{1,200}(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?$";

/// The roots of the condition of a rule with `postpone: true`.
pub(crate) const POSTPONED: PlaceholderValues<'static> =
    PlaceholderValues { args: "args", iteration: "step.iteration" };

/// A parsed predicate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Predicate {
    Compare(Comparison),
    /// Holds if all parts hold.
    All(Vec<Predicate>),
    /// Holds if one part holds.
    Any(Vec<Predicate>),
    /// Holds if its part does not hold.
    Not(Box<Predicate>),
}

/// The comparison of one argument, or of the number of the iteration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    placeholder: Placeholder,
    /// If true, the size of the argument is compared (`sizeof`): items of a list, members of an object, characters of
    /// a text.
    of_size: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// The value, as text, equals this one.
    Equals(String),
    /// The value, as text, differs from this one.
    Differs(String),
    /// The value, as text, contains a match of this pattern.
    Matches(String),
    /// The comparison of the value with a number: the operator of the expression language, and the number.
    Number(&'static str, String),
}

impl Predicate {
    /// Reads the text of `if`.
    pub(crate) fn read(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Predicate> {
        let Some(written) = tree.text() else {
            let message = format!("`if` must be a text, not {}", tree.type_name());
            let help = "write `if: ${args.key} == value`; a rule without `if` always applies";
            diagnostics.error("wrong_type", tree.span, message, Some(help.into()));
            return None;
        };
        match parser::parse(written) {
            Ok(predicate) => {
                predicate.check_limits(tree, diagnostics);
                let is_single = matches!(predicate, Predicate::Compare(_));
                for comparison in predicate.comparisons() {
                    comparison.warn(is_single, tree, diagnostics);
                }
                Some(predicate)
            }
            Err((message, help)) => {
                diagnostics.error("bad_predicate", tree.span, message, Some(help));
                None
            }
        }
    }

    /// Reports a predicate that exceeds the limits of conditions. Otherwise a postponed rule, which is compiled only when
    /// its step ends, would count as false.
    fn check_limits(&self, tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
        let Err(errors) = Condition::compile(&self.condition(POSTPONED)) else { return };
        let cause = errors.into_iter().next().map(|error| error.message).unwrap_or_default();
        let help = "shorten the predicate, or let the agent combine the values in one argument";
        diagnostics.new_rule("bad_predicate", tree.span, cause, Some(help.into()));
    }

    /// Returns the comparisons of the predicate, in the order of its text.
    fn comparisons(&self) -> Vec<&Comparison> {
        match self {
            Predicate::Compare(comparison) => vec![comparison],
            Predicate::All(parts) | Predicate::Any(parts) => parts.iter().flat_map(Predicate::comparisons).collect(),
            Predicate::Not(part) => part.comparisons(),
        }
    }

    /// Returns the placeholders that the predicate tests, in the order of its text.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.comparisons().into_iter().map(|comparison| &comparison.placeholder)
    }

    /// Returns the predicate as a condition of the graph dialect: a text, or an object with `and`, `or` or `not`.
    pub(crate) fn condition(&self, values: PlaceholderValues<'_>) -> Json {
        let all = |parts: &[Predicate]| Json::array(parts.iter().map(|part| part.condition(values)));
        match self {
            Predicate::Compare(comparison) => comparison.expression(values).into(),
            Predicate::All(parts) => Json::object([("and", all(parts))]),
            Predicate::Any(parts) => Json::object([("or", all(parts))]),
            Predicate::Not(part) => Json::object([("not", part.condition(values))]),
        }
    }
}

impl Comparison {
    /// Returns the comparison in the expression language. If the argument is missing or null, every comparison is
    /// false, even `!=`. So is a comparison with a number if the value is not a number, and one of the size if the
    /// value has no size.
    fn expression(&self, values: PlaceholderValues<'_>) -> String {
        let value = self.placeholder.expression(values);
        let (guard, compared) = match self.of_size {
            true => (
                format!("{value} != null and ({value} is sequence or {value} is mapping or {value} is string)"),
                format!("({value} | length)"),
            ),
            false => (format!("{value} != null"), value.clone()),
        };
        let test = match &self.test {
            Test::Equals(text) => format!("({compared} | string) == {}", quoted(text)),
            Test::Differs(text) => format!("({compared} | string) != {}", quoted(text)),
            Test::Matches(pattern) => format!("({compared} | string) is matches({})", quoted(pattern)),
            Test::Number(operator, number) if self.of_size => format!("{compared} {operator} {number}"),
            Test::Number(operator, number) => {
                let compared = format!("({value} if {value} is number else ({value} | float))");
                let is_number = format!("({value} is string and {value} is matches({}))", quoted(NUMBER));
                format!("({value} is number or {is_number}) and {compared} {operator} {number}")
            }
        };
        format!("({guard}) and ({test})")
    }

    /// Warns of quotes on the right side, and of `&&` and `||` in the text of a predicate with a single comparison:
    /// the right side is plain text, so they are a part of it.
    fn warn(&self, is_single: bool, tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
        let (Test::Equals(text) | Test::Differs(text)) = &self.test else { return };
        let has = |sign: &str| text.split_whitespace().any(|word| word == sign);
        if let Some(sign) = ["&&", "||"].into_iter().find(|sign| is_single && has(sign)) {
            let message = format!("`{}` is compared literally, including `{sign}`", for_message(text));
            let help = format!("write `${{args.key}} == value` after `{sign}`, or a pattern: `=~ /^…$/`");
            diagnostics.warning("joined_value", tree.span, message, Some(help));
        }
        let inside = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
        if let Some(inside) = inside {
            let message = format!("`{}` is compared literally, including the quotes", for_message(text));
            let size = if matches!(self.test, Test::Equals(_)) { "== 0" } else { "> 0" };
            let help = match (inside, &self.placeholder) {
                ("", Placeholder::Iteration) => None,
                ("", placeholder) => {
                    Some(format!("write `sizeof ${{{placeholder}}} {size}` to test for an empty text"))
                }
                (inside, _) => Some(format!("write `{}`", for_message(inside))),
            };
            diagnostics.warning("quoted_value", tree.span, message, help);
        }
    }
}

#[cfg(test)]
mod tests;
