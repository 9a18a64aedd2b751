//! Helpers of operators and filters: types of values, their texts, and errors about them.

use std::{any::type_name, borrow::Cow, error, fmt};

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{ArgType, Kwargs, ValueKind},
};

use super::{
    budget::charge,
    text::{TextTooLong, push_json, push_str},
    values::{file_misuse, from_value, is_file},
};
use crate::functions::Function;

/// Returns the type of a value for messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => "null",
        ValueKind::Bool => "a boolean",
        ValueKind::Number => "a number",
        ValueKind::String => "a text",
        ValueKind::Seq | ValueKind::Iterable => "a list",
        ValueKind::Map => "an object",
        _ => "a value that JSON cannot represent",
    }
}

/// Returns true for null and missing values, which behave the same everywhere.
pub(super) fn is_null(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

/// Returns the argument of a filter that is written by position, or else by name; `None` if it is neither or null.
pub(super) fn argument<'a, T: ArgType<'a, Output = T>>(
    positional: Option<T>,
    options: &'a Kwargs,
    name: &'a str,
) -> Result<Option<T>, Error> {
    match positional {
        Some(value) => Ok(Some(value)),
        None => options.get::<Option<T>>(name).map_err(|_| {
            let value = options.peek::<Value>(name).unwrap_or_default();
            WrongArgument::error(Err(name.to_owned()), type_name::<T>(), Some(&value))
        }),
    }
}

/// Maximum length of a number in a message about an argument.
const MAX_SHOWN_DIGITS: usize = 24;

/// The source of an error about an argument whose value has a wrong type, or that is missing.
#[derive(Debug)]
pub(super) struct WrongArgument {
    /// The position behind the operand, from 1 on, or the name.
    which: Result<usize, String>,
    wanted: &'static str,
    /// The number, or the type of another value; `None` without a value.
    found: Option<Cow<'static, str>>,
}

impl WrongArgument {
    /// Creates the error about an argument. `wanted` is the name of the type in Rust.
    pub(super) fn error(which: Result<usize, String>, wanted: &str, value: Option<&Value>) -> Error {
        const TYPES: [(&str, &str); 6] = [
            ("str", "a text"),
            ("bool", "a boolean"),
            ("f64", "a number"),
            ("i64", "a whole number"),
            ("usize", "a whole number of at least 0"),
            ("u64", "a whole number of at least 0"),
        ];
        let wanted = TYPES.iter().find(|(of_rust, _)| wanted.contains(of_rust)).map_or("a value", |(_, plain)| plain);
        invalid(String::new()).with_source(WrongArgument {
            which,
            wanted,
            found: value.map(|value| shown(value, wanted)),
        })
    }

    /// Describes the error for a function of the table.
    pub(super) fn describe(&self, name: &str, function: Option<&Function>) -> Error {
        let argument = match &self.which {
            Ok(at) => function.and_then(|function| function.argument(*at)).unwrap_or("argument"),
            Err(name) => name,
        };
        let message = format!("`{name}` needs {} as `{argument}`", self.wanted);
        match (self.found.as_deref(), function) {
            (Some("null"), _) => missing(format!("{message}, not null")),
            (Some(found), _) => invalid(format!("{message}, not {found}")),
            (None, Some(function)) => invalid(format!("{message}: write `{}`", function.signature)),
            (None, None) => invalid(message),
        }
    }
}

/// Returns the type of a value; in place of a number that is not of the wanted kind the number, unless it is very long.
fn shown(value: &Value, wanted: &str) -> Cow<'static, str> {
    let number = Some(value).filter(|value| value.is_number() && wanted.contains("number")).map(ToString::to_string);
    number.filter(|number| number.len() <= MAX_SHOWN_DIGITS).map_or_else(|| kind(value).into(), Cow::from)
}

impl fmt::Display for WrongArgument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an argument has a wrong type")
    }
}

impl error::Error for WrongArgument {}

/// `a ~ b`: joins two values as texts.
pub(super) fn concat(state: &mut State<'_, '_>, left: Value, right: Value) -> Result<String, Error> {
    let mut text = String::new();
    push_value(&mut text, &left)?;
    push_value(&mut text, &right)?;
    charge(state, text.len())?;
    Ok(text)
}

pub(super) fn push_value(text: &mut String, value: &Value) -> Result<(), Error> {
    if is_file(value) {
        return Err(file_misuse("a text cannot contain a file value".to_owned()));
    }
    match value.as_str() {
        Some(more) => push_str(text, more).map_err(too_long),
        None => push_json(text, &from_value(value).map_err(invalid)?).map_err(too_long),
    }
}

/// Creates the error about a text above the limit.
pub(super) fn too_long(error: TextTooLong) -> Error {
    invalid(error.message())
}

/// Creates an error with a message.
pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Creates an error about a missing or null operand. The caller adds the path of the value.
pub(super) fn missing(message: String) -> Error {
    Error::new(ErrorKind::UndefinedError, message)
}
