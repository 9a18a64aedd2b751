//! What operators and filters share: the kinds of values, their texts, and errors about them.

use minijinja::{Error, ErrorKind, State, Value, value::ValueKind};

use super::{
    bridge::{from_value, is_file, of_file},
    budget::charge,
    text::{TooLong, push_json, push_str},
};

/// The type of a value, as messages write it.
pub(super) fn kind(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => "null",
        ValueKind::Bool => "a boolean",
        ValueKind::Number => "a number",
        ValueKind::String => "a text",
        ValueKind::Seq | ValueKind::Iterable => "a list",
        ValueKind::Map => "an object",
        _ => "a value that is no JSON",
    }
}

/// Whether a value is null or missing, which is the same everywhere.
pub(super) fn is_null(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

/// `a ~ b`: both as text, one after the other.
pub(super) fn concat(state: &mut State<'_, '_>, left: Value, right: Value) -> Result<String, Error> {
    let mut text = String::new();
    push_value(&mut text, &left)?;
    push_value(&mut text, &right)?;
    charge(state, text.len())?;
    Ok(text)
}

pub(super) fn push_value(text: &mut String, value: &Value) -> Result<(), Error> {
    if is_file(value) {
        return Err(of_file("a text has no place for a file value".to_owned()));
    }
    match value.as_str() {
        Some(more) => push_str(text, more).map_err(too_long),
        None => push_json(text, &from_value(value).map_err(invalid)?).map_err(too_long),
    }
}

/// The error about a text that would be too long.
pub(super) fn too_long(error: TooLong) -> Error {
    invalid(error.message())
}

/// An error with a sentence.
pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// An error because of a value that is missing or null; which one it is can be told from the expression.
pub(super) fn missing(message: String) -> Error {
    Error::new(ErrorKind::UndefinedError, message)
}
