//! Finds missing values in strict flows. In the canonical form of an expression, the filter [`read`] follows each
//! lookup. [`check_attribute`] checks the attributes that filters read from list items.

use std::{error, fmt};

use minijinja::{Error, ErrorKind, State, Value, value::ValueKind};

use super::{
    names,
    values::{check_part, file_misuse, is_file, is_skipped},
};
use crate::file::not_usable_message;

/// The source of an error about a missing value. The number is the index of the lookup that failed; `None` if the error
/// does not come from a lookup.
#[derive(Debug)]
pub(super) struct Missing(pub(super) Option<usize>);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value is missing")
    }
}

impl error::Error for Missing {}

/// Returns the value of a lookup. In a strict flow, a missing value is an error if `number` is given: it is the index
/// of this lookup in the list of lookups. With `None` the expression only tests whether the value exists. If
/// `is_output` is true, a strict flow treats the output of a skipped node as missing.
pub(super) fn read(
    state: &mut State<'_, '_>,
    value: Value,
    number: Option<usize>,
    is_output: Option<bool>,
) -> Result<Value, Error> {
    let is_skipped = is_output == Some(true) && is_skipped(&value);
    if !(value.is_undefined() || is_skipped) || !is_strict(state) {
        return Ok(value);
    }
    match number {
        Some(_) => Err(missing("a value is missing".to_owned(), number)),
        None => Ok(Value::UNDEFINED),
    }
}

/// Returns a computed key or index. A boolean is neither, so it becomes null, and the lookup returns null.
pub(super) fn key(value: Value) -> Value {
    if value.kind() == ValueKind::Bool { Value::from(()) } else { value }
}

/// Checks the attribute that a filter reads from the items of a list. In a strict flow, an item that lacks the
/// attribute is an error, unless the filter has a `default` or tests for missing values. In every flow, it is an error
/// to read an attribute that a file value never has, and to compare a file value.
pub(super) fn check_attribute(state: &State<'_, '_>, filter: &str, arguments: &[Value]) -> Result<(), Error> {
    let options = arguments.last().filter(|last| last.is_kwargs());
    let option = |key: &str| options?.get_attr(key).ok().filter(|value| !value.is_undefined());
    let second = || arguments.get(1).filter(|argument| !argument.is_kwargs()).cloned();
    let compares = matches!(filter, "groupby" | "max" | "min" | "sort" | "unique");
    let attribute = match filter {
        "join" | "map" | "max" | "min" | "sort" | "sum" | "unique" => option("attribute"),
        "groupby" => second().or_else(|| option("attribute")),
        "rejectattr" | "selectattr" => second(),
        _ => None,
    };
    if attribute.is_none() && !compares {
        return Ok(());
    }
    let admits_missing = option("default").is_some()
        || filter.ends_with("attr") && is_test_for_missing(arguments.get(2..).unwrap_or_default());
    let is_needed = !admits_missing && is_strict(state);
    let keys: Vec<Value> = match attribute.as_ref().and_then(Value::as_str) {
        Some(written) if filter == "sort" => written.split(',').map(str::trim).map(Value::from).collect(),
        _ => attribute.iter().cloned().collect(),
    };
    for (at, item) in arguments[0].try_iter().into_iter().flatten().enumerate() {
        if keys.is_empty() {
            check_compared(filter, &item)?;
        }
        for key in &keys {
            match read_attribute(&item, key)? {
                None if is_needed => {
                    return Err(missing(format!("`{key}` is missing in item {at} of the list of `{filter}`"), None));
                }
                Some(part) if compares => check_compared(filter, &part)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns an error for a file value that a filter would compare.
fn check_compared(filter: &str, value: &Value) -> Result<(), Error> {
    if is_file(value) { Err(file_misuse(not_usable_message(filter))) } else { Ok(()) }
}

/// Returns true if `selectattr` or `rejectattr` asks whether a value is missing: by a test such as `defined`, or by a
/// comparison with null. `test` has the arguments that follow the name of the attribute.
fn is_test_for_missing(test: &[Value]) -> bool {
    let name = test.first().and_then(Value::as_str).unwrap_or_default();
    names::TESTS_OF_MISSING.contains(&name)
        || names::EQUALITY_TESTS.contains(&name) && test.get(1).is_some_and(Value::is_none)
}

/// Returns the part of a list item that the attribute of a filter names: a dotted path, or an index. `None` if it is
/// missing, or if a part that leads to it is.
pub(super) fn read_attribute(item: &Value, attribute: &Value) -> Result<Option<Value>, Error> {
    if let Some(path) = attribute.as_str() {
        return part(item, path);
    }
    check_part(item, attribute)?;
    Ok(item.get_item(attribute).ok().filter(|part| !part.is_undefined()))
}

/// Returns the part of a value at a dotted path; `None` if it is missing. A path into a file value is an error.
pub(super) fn part(value: &Value, path: &str) -> Result<Option<Value>, Error> {
    let mut value = value.clone();
    for name in path.split('.') {
        let key = name.parse::<usize>().map_or_else(|_| Value::from(name), Value::from);
        check_part(&value, &key)?;
        match value.get_item(&key).ok().filter(|part| !part.is_undefined()) {
            Some(part) => value = part,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn is_strict(state: &State<'_, '_>) -> bool {
    state.lookup(names::STRICT).is_some_and(|strict| strict.is_true())
}

fn missing(message: String, lookup: Option<usize>) -> Error {
    Error::new(ErrorKind::UndefinedError, message).with_source(Missing(lookup))
}
