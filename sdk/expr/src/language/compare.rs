//! `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`, as filters, tests and chains.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Rest, ValueKind},
};

use super::{
    budget::{charge, cost},
    names,
    operands::{invalid, is_null, kind, missing},
    values::{file_misuse, from_value, is_file},
};
use crate::{allowance, file::not_usable_message, json::Json, order::order};

/// The comparison operators, each with the names of its tests.
const TESTS: [(&str, &[&str]); 7] = [
    ("==", &["==", "eq", "equalto", "sameas"]),
    ("!=", &["!=", "ne"]),
    ("<", &["<", "lt", "lessthan"]),
    ("<=", &["<=", "le"]),
    (">", &[">", "gt", "greaterthan"]),
    (">=", &[">=", "ge"]),
    ("in", &["in"]),
];

/// Adds the comparison tests, and the filter that represents comparisons in the canonical form.
pub(super) fn add(environment: &mut Environment<'static>) {
    for (sign, tests) in TESTS {
        for name in tests {
            let test = move |state: &mut State<'_, '_>, left: Value, right: Value| holds(state, sign, &left, &right);
            environment.add_test(*name, test);
        }
    }
    environment.add_filter(names::COMPARE, chain);
}

/// Evaluates a chain such as `a < b <= c`. `first` is its first value; `rest` has the operators and the other values
/// alternately. The result is true if each pair satisfies its operator.
fn chain(state: &mut State<'_, '_>, first: Value, rest: Rest<Value>) -> Result<bool, Error> {
    let mut left = &first;
    for pair in rest.chunks(2) {
        let [sign, right] = pair else { break };
        if !holds(state, sign.as_str().unwrap_or_default(), left, right)? {
            return Ok(false);
        }
        left = right;
    }
    Ok(true)
}

fn holds(state: &mut State<'_, '_>, sign: &str, left: &Value, right: &Value) -> Result<bool, Error> {
    let (one, other) = (cost(std::slice::from_ref(left)), cost(std::slice::from_ref(right)));
    let is_search = matches!(sign, "in" | "not in");
    charge(state, if is_search { one.saturating_add(other) } else { one.min(other) })?;
    if is_file(left) && !is_null(right) || is_file(right) && !is_null(left) {
        return Err(file_misuse(not_usable_message(sign)));
    }
    match sign {
        "==" => equal(left, right),
        "!=" => equal(left, right).map(|equal| !equal),
        "in" => contains(right, left),
        "not in" => contains(right, left).map(|contains| !contains),
        sign => {
            let ordering = order(&json(left)?, &json(right)?);
            let refuse = |message| if is_null(left) || is_null(right) { missing(message) } else { invalid(message) };
            let ordering = ordering.map_err(refuse)?;
            Ok(match sign {
                "<" => ordering.is_lt(),
                "<=" => ordering.is_le(),
                ">" => ordering.is_gt(),
                _ => ordering.is_ge(),
            })
        }
    }
}

fn equal(left: &Value, right: &Value) -> Result<bool, Error> {
    match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => Ok(left == right),
        _ => {
            let (left, right) = (json(left)?, json(right)?);
            spend_on(&left)?;
            spend_on(&right)?;
            Ok(left == right)
        }
    }
}

/// Counts the work of reading every part of a value. Returns an error if the limit of [`allowance`] is exceeded.
pub(super) fn spend_on(value: &Json) -> Result<(), Error> {
    match allowance::spend_reading(value) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::OutOfFuel, allowance::EXHAUSTED)),
    }
}

fn contains(container: &Value, item: &Value) -> Result<bool, Error> {
    let text =
        || item.as_str().ok_or_else(|| invalid(format!("`in` searches a text for a text, not for {}", kind(item))));
    match container.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(false),
        ValueKind::String => Ok(container.as_str().unwrap_or_default().contains(text()?)),
        ValueKind::Map => Ok(!container.get_attr(text()?)?.is_undefined()),
        ValueKind::Seq | ValueKind::Iterable => {
            let wanted = json(item)?;
            for other in container.try_iter()?.checked() {
                let other = other?;
                if is_file(&other) && !is_null(item) {
                    return Err(file_misuse(not_usable_message("in")));
                }
                let found = match (item.as_str(), other.as_str()) {
                    (Some(item), Some(other)) => item == other,
                    _ => {
                        let other = json(&other)?;
                        spend_on(&other)?;
                        other == wanted
                    }
                };
                if found {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(invalid(format!("`in` searches a list, a text or an object, not {}", kind(container)))),
    }
}

fn json(value: &Value) -> Result<Json, Error> {
    from_value(value).map_err(invalid)
}
