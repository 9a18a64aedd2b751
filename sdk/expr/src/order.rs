//! The order of values, for `<`, `<=`, `>` and `>=`. Expressions and conditions share this rule.

use std::cmp::Ordering;

use crate::json::{Json, compare_numbers};

/// Orders two numbers, or two texts by code points. Other pairs have no order; the error is a sentence.
pub(crate) fn order(a: &Json, b: &Json) -> Result<Ordering, String> {
    let ordering = match (a, b) {
        (Json::Number(a), Json::Number(b)) => compare_numbers(a, b),
        (Json::String(a), Json::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let refusal = || {
        let (a, b) = (a.type_name(), b.type_name());
        format!("{a} and {b} have no order: `<`, `<=`, `>` and `>=` compare two numbers or two texts")
    };
    ordering.ok_or_else(refusal)
}
