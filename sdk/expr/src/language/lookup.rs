//! Missing values of strict flows: the filter that guards what an expression looks up, and the check of attributes.

use std::{error, fmt};

use minijinja::{Error, ErrorKind, State, Value};

use super::{bridge::is_skipped, names};

/// The source of an error about a missing value: which lookup of the expression found nothing, if it was one.
#[derive(Debug)]
pub(super) struct Missing(pub(super) Option<usize>);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value is missing")
    }
}

impl error::Error for Missing {}

/// Guards a lookup: in a strict flow a missing value is an error, unless the lookup has no number, which means that it is
/// tested. A node's whole output counts as missing if the node was skipped.
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

/// Refuses a list with items that lack the attribute which a filter names, in a strict flow. A `default` and the tests for
/// what is missing admit them.
pub(super) fn check_attribute(state: &State<'_, '_>, filter: &str, arguments: &[Value]) -> Result<(), Error> {
    let options = arguments.last().filter(|last| last.is_kwargs());
    let option = |key: &str| options?.get_attr(key).ok().filter(|value| !value.is_undefined());
    let second = || arguments.get(1).filter(|argument| !argument.is_kwargs()).cloned();
    let attribute = match filter {
        "join" | "map" | "max" | "min" | "sort" | "sum" | "unique" => option("attribute"),
        "groupby" => second().or_else(|| option("attribute")),
        "rejectattr" | "selectattr" => second().filter(|_| !tests_missing(&arguments[2..])),
        _ => None,
    };
    let Some(attribute) = attribute.filter(|_| option("default").is_none() && is_strict(state)) else { return Ok(()) };
    let written = attribute.to_string();
    for (at, item) in arguments[0].try_iter().into_iter().flatten().enumerate() {
        let mut names = written.split(',').map(str::trim);
        if let Some(name) = names.find(|name| !has(&item, name)) {
            return Err(missing(format!("`{name}` is missing in item {at} of the list of `{filter}`"), None));
        }
    }
    Ok(())
}

/// Whether the arguments of `selectattr` behind the attribute name a test for what is missing.
fn tests_missing(test: &[Value]) -> bool {
    let name = test.first().and_then(Value::as_str).unwrap_or_default();
    names::TESTS_OF_MISSING.contains(&name)
        || names::EQUALITY_TESTS.contains(&name) && test.get(1).is_some_and(Value::is_none)
}

/// Whether a dotted path leads to a part of a value.
fn has(value: &Value, path: &str) -> bool {
    let step = |value: Value, name: &str| {
        let part = match name.parse::<usize>() {
            Ok(index) => value.get_item(&Value::from(index)),
            Err(_) => value.get_attr(name),
        };
        part.ok().filter(|part| !part.is_undefined())
    };
    path.split('.').try_fold(value.clone(), step).is_some()
}

fn is_strict(state: &State<'_, '_>) -> bool {
    state.lookup(names::STRICT).is_some_and(|strict| strict.is_true())
}

fn missing(message: String, lookup: Option<usize>) -> Error {
    Error::new(ErrorKind::UndefinedError, message).with_source(Missing(lookup))
}
