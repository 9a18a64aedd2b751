//! The names that expressions may use after `|` and `is`.

/// Filters that keep MiniJinja's meaning.
macro_rules! builtin_filters {
    ($with:ident) => {
        $with! {
            abs attr bool capitalize chain count=length d=default default dictsort first float groupby int items last
            length lines list lower map max min reject rejectattr reverse round select selectattr sort split title trim
            unique upper zip
        }
    };
}

/// Tests that keep MiniJinja's meaning, by the name of their function.
macro_rules! builtin_tests {
    ($with:ident) => {
        $with! {
            "!=" is_ne, "<" is_lt, "<=" is_le, "==" is_eq, ">" is_gt, ">=" is_ge, "boolean" is_boolean,
            "defined" is_defined, "divisibleby" is_divisibleby, "endingwith" is_endingwith, "eq" is_eq,
            "equalto" is_eq, "even" is_even, "false" is_false, "float" is_float, "ge" is_ge, "greaterthan" is_gt,
            "gt" is_gt, "in" is_in, "int" is_integer, "integer" is_integer, "iterable" is_iterable, "le" is_le,
            "lessthan" is_lt, "lower" is_lower, "lt" is_lt, "mapping" is_mapping, "ne" is_ne, "none" is_none,
            "number" is_number, "odd" is_odd, "sameas" is_sameas, "sequence" is_sequence,
            "startingwith" is_startingwith, "string" is_string, "true" is_true, "undefined" is_undefined,
            "upper" is_upper
        }
    };
}

pub(super) use builtin_filters;
pub(super) use builtin_tests;

/// Filters written here, either new or with limits that MiniJinja's have not.
pub(super) const OWN_FILTERS: [&str; 10] =
    ["batch", "fromjson", "indent", "join", "replace", "required", "slice", "string", "sum", "tojson"];

/// Filters that only the canonical form uses: `+`, `*`, `~` and comparison with `null`.
pub(super) const ADD: &str = "_add";
/// See [`ADD`].
pub(super) const MULTIPLY: &str = "_mul";
/// See [`ADD`].
pub(super) const CONCAT: &str = "_concat";
/// See [`ADD`].
pub(super) const IS_NULL: &str = "_null";

macro_rules! filter_names {
    ($($name:ident $(= $function:ident)?)*) => { &[$(stringify!($name)),*] };
}

macro_rules! test_names {
    ($($name:literal $function:ident),*) => { &[$($name),*] };
}

const BUILTIN_FILTERS: &[&str] = builtin_filters!(filter_names);
const BUILTIN_TESTS: &[&str] = builtin_tests!(test_names);

/// Every filter that a flow may name.
pub(super) fn filters() -> impl Iterator<Item = &'static str> + Clone {
    BUILTIN_FILTERS.iter().copied().chain(OWN_FILTERS)
}

/// Every test that a flow may name.
pub(super) fn tests() -> impl Iterator<Item = &'static str> + Clone {
    BUILTIN_TESTS.iter().copied().chain(["matches"])
}
