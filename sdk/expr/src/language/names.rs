//! The names of the filters and tests in expressions.

/// Filters with MiniJinja's behavior.
macro_rules! builtin_filters {
    ($with:ident) => {
        $with! {
            abs attr bool capitalize chain count=length dictsort first float int items last length lines list lower map max
            min reject rejectattr reverse select selectattr sort split title trim unique upper zip
        }
    };
}

/// Tests with MiniJinja's behavior, by the name of their function.
macro_rules! builtin_tests {
    ($with:ident) => {
        $with! {
            "boolean" is_boolean, "endingwith" is_endingwith, "false" is_false, "float" is_float, "int" is_integer,
            "integer" is_integer, "iterable" is_iterable, "lower" is_lower, "mapping" is_mapping, "sameas" is_sameas,
            "sequence" is_sequence, "startingwith" is_startingwith, "string" is_string, "true" is_true, "upper" is_upper
        }
    };
}

pub(super) use builtin_filters;
pub(super) use builtin_tests;

/// Filters of this crate: new ones, and those of MiniJinja with limits or a different behavior.
pub(super) const OWN_FILTERS: [&str; 14] = [
    "batch", "d", "default", "fromjson", "groupby", "indent", "join", "replace", "required", "round", "slice",
    "string", "sum", "tojson",
];

/// Tests of this crate.
pub(super) const OWN_TESTS: [&str; 24] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "even",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "le",
    "lessthan",
    "lt",
    "matches",
    "ne",
    "none",
    "number",
    "odd",
    "undefined",
];

/// Tests for missing values.
pub(super) const TESTS_OF_MISSING: [&str; 3] = ["defined", "none", "undefined"];

/// Tests that compare with a value. If this value is null, they test for missing values.
pub(super) const EQUALITY_TESTS: [&str; 6] = ["!=", "==", "eq", "equalto", "ne", "sameas"];

/// Filters that look up a part of a value.
pub(super) const LOOKUPS: [&str; 5] = ["attr", "first", "last", "max", "min"];

/// Filters that accept a file value, because they only test whether it exists.
pub(super) const FILTERS_OF_FILES: [&str; 3] = ["d", "default", "required"];

/// Tests on the content of a text, which do not accept a file value.
pub(super) const TESTS_OF_TEXTS: [&str; 5] = ["endingwith", "lower", "matches", "startingwith", "upper"];

/// The hidden variable that marks a strict evaluation. Expressions cannot use this name.
pub(super) const STRICT: &str = " strict";

// Filters of the canonical form.
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

macro_rules! filter_names {
    ($($name:ident $(= $function:ident)?)*) => { &[$(stringify!($name)),*] };
}

macro_rules! test_names {
    ($($name:literal $function:ident),*) => { &[$($name),*] };
}

const BUILTIN_FILTERS: &[&str] = builtin_filters!(filter_names);
const BUILTIN_TESTS: &[&str] = builtin_tests!(test_names);

/// Names of functions, methods and filters in other languages, with the equivalent filters.
const FOREIGN_NAMES: [(&str, &str); 22] = [
    ("len", "length"),
    ("size", "length"),
    ("str", "string"),
    ("tostring", "string"),
    ("number", "float"),
    ("tonumber", "float"),
    ("parsefloat", "float"),
    ("parseint", "int"),
    ("integer", "int"),
    ("boolean", "bool"),
    ("uppercase", "upper"),
    ("touppercase", "upper"),
    ("toupper", "upper"),
    ("lowercase", "lower"),
    ("tolowercase", "lower"),
    ("tolower", "lower"),
    ("strip", "trim"),
    ("json", "tojson"),
    ("stringify", "tojson"),
    ("parsejson", "fromjson"),
    ("parse", "fromjson"),
    ("sorted", "sort"),
];

/// Returns the filter with this name, or the equivalent of a function with this name in another language.
pub(super) fn find_filter(name: &str) -> Option<&'static str> {
    let plain = name.replace('_', "").to_ascii_lowercase();
    let elsewhere = || FOREIGN_NAMES.into_iter().find(|(other, _)| *other == plain).map(|(_, filter)| filter);
    filters().find(|filter| *filter == name).or_else(elsewhere)
}

/// Returns the filters that a flow may use.
pub(super) fn filters() -> impl Iterator<Item = &'static str> + Clone {
    BUILTIN_FILTERS.iter().copied().chain(OWN_FILTERS)
}

/// Returns the tests that a flow may use.
pub(super) fn tests() -> impl Iterator<Item = &'static str> + Clone {
    BUILTIN_TESTS.iter().copied().chain(OWN_TESTS)
}

#[cfg(test)]
mod manual_tests {
    use crate::{Binding, Json};

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/server/manual/expressions.md");

    /// Returns the rows of the table below a heading, each as a list of cells.
    fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
        let (_, section) = page.split_once(heading).unwrap();
        let section = section.split("\n## ").next().unwrap().replace("\\|", "\u{0}");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let cells = |row: &str| row.split(" | ").map(|cell| cell.replace('\u{0}', "|")).collect();
        rows.skip(1).map(cells).collect()
    }

    /// Returns the names in a cell: its spans of code, without arguments.
    fn names_in_cell(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2).map(|name| name.split('(').next().unwrap_or_default())
    }

    #[test]
    fn manual_has_every_filter_and_test() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        for (heading, known) in
            [("\n## Filters\n", super::filters().collect::<Vec<_>>()), ("\n## Tests\n", super::tests().collect())]
        {
            let rows = rows(&page, heading);
            let named: Vec<&str> = rows.iter().flat_map(|row| names_in_cell(&row[0])).collect();
            for name in &known {
                assert!(named.contains(name), "expressions.md has no entry for `{name}` under{heading}");
            }
            for name in named {
                assert!(known.contains(&name), "expressions.md explains `{name}`, which does not exist");
            }
        }
    }

    #[test]
    fn examples_of_filters_in_the_manual_give_the_printed_results() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let mut count = 0;
        for row in rows(&page, "\n## Filters\n") {
            let literal = row[1].trim_matches('`').starts_with(['[', '{', '\'', '-', '0', '1', '2', '3', '4']);
            let Some(result) = row[2].strip_prefix('`').and_then(|result| result.strip_suffix('`')) else { continue };
            if !literal {
                continue;
            }
            let value = Binding::expression(row[1].trim_matches('`')).unwrap().render(&Json::Null).unwrap();
            let wanted = Json::parse(&result.replace('\'', "\"")).unwrap_or_else(|_| Json::from(result));
            assert_eq!(value.to_text(), wanted.to_text(), "{}", row[1]);
            count += 1;
        }
        assert!(count > 15, "only {count} examples were evaluated");
    }
}
