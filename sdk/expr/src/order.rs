//! The orders of values: the one of `<`, `<=`, `>` and `>=`, which expressions and conditions share, and the one of all
//! types, for sorting and for finding equal values.

use std::{cmp::Ordering, sync::Arc};

use crate::json::{Json, Object, compare_numbers};

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

/// A value with a total order: null, false, true, numbers, texts by code point, lists item by item, then objects by
/// their sorted keys and then by the values. It agrees with `==`: 1 equals 1.0, and the order of keys does not matter.
#[derive(Debug)]
pub struct Ordered(pub Json);

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Ordered) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

fn compare(a: &Json, b: &Json) -> Ordering {
    match (a, b) {
        (Json::Bool(a), Json::Bool(b)) => a.cmp(b),
        // JSON has no NaN, so two numbers always have an order.
        (Json::Number(a), Json::Number(b)) => compare_numbers(a, b).unwrap_or(Ordering::Equal),
        (Json::String(a), Json::String(b)) => a.cmp(b),
        // Values share their parts, so that the same part may occur very often.
        (Json::Array(a), Json::Array(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
        (Json::Object(a), Json::Object(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
        (Json::Array(a), Json::Array(b)) => compare_all(a.iter(), b.iter()),
        (Json::Object(a), Json::Object(b)) => {
            let (a, b) = (sorted(a), sorted(b));
            let keys = a.iter().map(|member| member.0).cmp(b.iter().map(|member| member.0));
            keys.then_with(|| compare_all(a.iter().map(|member| member.1), b.iter().map(|member| member.1)))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn compare_all<'a>(a: impl Iterator<Item = &'a Json>, mut b: impl Iterator<Item = &'a Json>) -> Ordering {
    for left in a {
        let Some(right) = b.next() else { return Ordering::Greater };
        let ordering = compare(left, right);
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    b.next().map_or(Ordering::Equal, |_| Ordering::Less)
}

fn sorted(members: &Object) -> Vec<(&str, &Json)> {
    let mut sorted: Vec<_> = members.iter().map(|(key, value)| (&**key, value)).collect();
    // Keys are distinct, so the order of equal ones does not matter, and this sort takes less code.
    sorted.sort_unstable_by_key(|member| member.0);
    sorted
}

fn rank(value: &Json) -> u8 {
    match value {
        Json::Null => 0,
        Json::Bool(_) => 1,
        Json::Number(_) => 2,
        Json::String(_) => 3,
        Json::Array(_) => 4,
        Json::Object(_) => 5,
    }
}
