//! The names of the filters and tests in expressions.

use crate::functions::{self, FunctionKind};

/// Filters with MiniJinja's behavior.
macro_rules! builtin_filters {
    ($with:ident) => {
        $with! {
            abs attr bool capitalize chain count=length dictsort first items last length lines list lower max min
            reject reverse select sort split title trim upper zip
        }
    };
}

/// Tests with MiniJinja's behavior, by the name of their function.
macro_rules! builtin_tests {
    ($with:ident) => {
        $with! {
            "boolean" is_boolean, "endingwith" is_endingwith, "false" is_false, "float" is_float, "int" is_integer,
            "integer" is_integer, "iterable" is_iterable, "lower" is_lower, "mapping" is_mapping, "sequence" is_sequence, "startingwith" is_startingwith, "string" is_string, "true" is_true, "upper" is_upper
        }
    };
}

pub(super) use builtin_filters;
pub(super) use builtin_tests;

/// Tests for missing values.
pub(super) const TESTS_OF_MISSING: [&str; 3] = ["defined", "none", "undefined"];

/// Tests that compare with a value. If this value is null, they test for missing values.
pub(super) const EQUALITY_TESTS: [&str; 6] = ["!=", "==", "eq", "equalto", "ne", "sameas"];

/// Filters that look up a part of a value.
pub(super) const LOOKUPS: [&str; 8] = ["attr", "first", "last", "max", "min", "pointer", "regexcaptures", "regexfind"];

/// Filters that accept a file value, because they only test whether it exists.
pub(super) const FILTERS_OF_FILES: [&str; 3] = ["d", "default", "required"];

/// Tests on the content of a text, which do not accept a file value.
pub(super) const TESTS_OF_TEXTS: [&str; 5] = ["endingwith", "lower", "matches", "startingwith", "upper"];

/// The hidden variable that marks a strict evaluation. Expressions cannot use this name.
pub(super) const STRICT: &str = " strict";

/// The functions that expressions call, with the filters of the canonical form that stand for them. The filter's operand
/// is the first argument.
pub(super) const CALLS: [(&str, &str); 1] = [("range", RANGE)];

/// The functions for random values that expressions call, each with its number of arguments and with the filter of the
/// canonical form that stands for it.
pub(super) const RANDOM_CALLS: [(&str, usize, &str); 4] =
    [("random", 0, FRACTION), ("random", 1, BELOW), ("shuffle", 1, SHUFFLE), ("uuid", 0, UUID)];

/// The root whose value is the seed of random values. Expressions cannot use this name. An expression that calls a function
/// for random values reads it.
pub const RANDOM: &str = " random";

// Filters of the canonical form.
/// The function `random` without an argument.
pub(super) const FRACTION: &str = "_fraction";
/// The function `random` with an argument.
pub(super) const BELOW: &str = "_below";
/// The function `shuffle`.
pub(super) const SHUFFLE: &str = "_shuffle";
/// The function `uuid`.
pub(super) const UUID: &str = "_uuid";
/// The function `range`.
pub(super) const RANGE: &str = "_range";
/// The filter `lookup::read`, which follows a lookup and fails in a strict flow if the value is missing.
pub(super) const READ: &str = "_read";
/// `a + b`.
pub(super) const ADD: &str = "_add";
/// `a - b`.
pub(super) const SUBTRACT: &str = "_sub";
/// `a * b`.
pub(super) const MULTIPLY: &str = "_mul";
/// `a / b`.
pub(super) const DIVIDE: &str = "_div";
/// `a // b`.
pub(super) const FLOOR_DIVIDE: &str = "_floor";
/// `a % b`.
pub(super) const REMAINDER: &str = "_rem";
/// `a ** b`.
pub(super) const POWER: &str = "_pow";
/// The negation `-a`.
pub(super) const NEGATE: &str = "_neg";
/// `a ~ b`.
pub(super) const CONCAT: &str = "_concat";
/// The filters that represent operators, with the operators.
pub(super) const OPERATORS: [(&str, &str); 9] = [
    (ADD, "+"),
    (SUBTRACT, "-"),
    (MULTIPLY, "*"),
    (DIVIDE, "/"),
    (FLOOR_DIVIDE, "//"),
    (REMAINDER, "%"),
    (POWER, "**"),
    (NEGATE, "-"),
    (CONCAT, "~"),
];
/// The filter that stands for every comparison, and for every chain of comparisons such as `a < b <= c`.
pub(super) const COMPARE: &str = "_cmp";
/// The filter `lookup::key`, which replaces a computed key or index with null if it is a boolean.
pub(super) const KEY: &str = "_key";
/// The filter `filters::sliced`, which fails if the operand of a slice is a file value.
pub(super) const SLICED: &str = "_sliced";
/// The filter that follows the slice `a[b:c]` and makes a list of it.
pub(super) const LIST: &str = "_list";

/// Returns the name by which a flow uses a filter of the canonical form.
pub(super) fn shown(filter: &'static str) -> &'static str {
    let random = RANDOM_CALLS.iter().map(|(function, _, filter)| (*function, *filter));
    let call = CALLS.iter().copied().chain(random).find(|(_, name)| *name == filter);
    call.map_or(filter, |(function, _)| function)
}

/// Returns the filters that a flow may use.
pub(super) fn filters() -> impl Iterator<Item = &'static str> + Clone {
    functions::names(FunctionKind::Filter)
}

/// Returns the tests that a flow may use.
pub(super) fn tests() -> impl Iterator<Item = &'static str> + Clone {
    functions::names(FunctionKind::Test)
}
