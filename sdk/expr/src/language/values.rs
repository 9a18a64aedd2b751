//! Converts between [`Json`] and MiniJinja's values. Objects and lists are passed by reference and come back as the
//! same references.

use std::{error, fmt, sync::Arc};

use minijinja::{
    Error, ErrorKind, Value,
    value::{Enumerator, Object, ObjectExt, ObjectRepr, ValueKind},
};

use crate::{
    file::{self, Rank},
    json::{
        self, Json, Number,
        digits::{TOO_LONG, whole_number},
    },
    limits,
    path::shorten,
};

/// An object whose members are converted to MiniJinja's values when they are read.
#[derive(Debug)]
struct Members(Arc<json::Object>, Rank);

impl Members {
    /// Returns an error value if this is a file value that can never have the key, otherwise `None`.
    fn missing_member(&self, key: &Value) -> Option<Value> {
        let is_misused = file::lacks(&self.0, key.as_str(), self.1);
        is_misused.then(|| Value::from(file_misuse(file::no_part_message(shorten(&key.to_string())))))
    }
}

impl Object for Members {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some(key) => self.get_value_by_str(key),
            None => self.missing_member(key),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match self.0.get(key) {
            Some(member) => Some(ranked(member, self.1.part_rank())),
            None => self.missing_member(&Value::from(key)),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|this| Box::new(this.0.keys().map(|key| Value::from(key.clone()))))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// A list whose items are converted to MiniJinja's values when they are read.
#[derive(Debug)]
struct Items(Arc<Vec<Json>>);

impl Object for Items {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).map(to_value)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// The roots of an evaluation: their names and values.
#[derive(Debug)]
pub(super) struct Scope(pub(super) Vec<(Arc<str>, Value)>);

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.iter().find(|(name, _)| &**name == key).map(|(_, value)| value.clone())
    }
}

/// Converts a value to MiniJinja's form. The value counts as a part of another value (see [`Rank`]).
pub(super) fn to_value(json: &Json) -> Value {
    ranked(json, Rank::Part)
}

/// Converts the value of the root `name` to MiniJinja's form.
pub(super) fn root_to_value(name: &str, json: &Json) -> Value {
    ranked(json, Rank::from_root(name))
}

fn ranked(json: &Json, rank: Rank) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => number_to_value(number),
        Json::String(text) => Value::from(text.clone()),
        Json::Array(items) => Value::from_object(Items(items.clone())),
        Json::Object(members) => Value::from_object(Members(members.clone(), rank)),
    }
}

fn number_to_value(number: &Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Value::from(number),
        (None, Some(number)) => Value::from(number),
        (None, None) => Value::from(number.as_f64()),
    }
}

/// Returns true for the output that the host records for a skipped node.
pub(super) fn is_skipped(value: &Value) -> bool {
    value.downcast_object_ref::<Members>().is_some_and(|members| json::is_skipped(&members.0))
}

/// Returns true for a file value.
pub(super) fn is_file(value: &Value) -> bool {
    value.downcast_object_ref::<Members>().is_some_and(|members| json::is_file(&members.0))
}

/// Returns an error if the value is a file value and no file value can have this key.
pub(super) fn check_part(value: &Value, key: &Value) -> Result<(), Error> {
    let members = value.downcast_object_ref::<Members>();
    match members.is_some_and(|members| file::lacks(&members.0, key.as_str(), members.1)) {
        true => Err(file_misuse(file::no_part_message(shorten(&key.to_string())))),
        false => Ok(()),
    }
}

/// The source of an error about a file value used as if it were its content.
#[derive(Debug)]
pub(super) struct FileMisuse;

impl fmt::Display for FileMisuse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a file value is used like its content")
    }
}

impl error::Error for FileMisuse {}

/// Creates an error about a file value used as if it were its content.
pub(super) fn file_misuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message).with_source(FileMisuse)
}

/// Converts a result back to JSON; the error is a sentence. A missing value becomes `null`.
pub(super) fn from_value(value: &Value) -> Result<Json, String> {
    Reader { values: 0 }.read(value, 0)
}

/// Converts a result to JSON. It counts the values, because lists from filters may have any length.
struct Reader {
    values: usize,
}

impl Reader {
    fn read(&mut self, value: &Value, depth: usize) -> Result<Json, String> {
        self.values += 1;
        if self.values > limits::VALUES {
            return Err(format!("the result has more than {} values", limits::VALUES));
        }
        if depth > limits::DEPTH {
            return Err(format!("the result is nested deeper than {}", limits::DEPTH));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => Ok(Json::Null),
            ValueKind::Bool => Ok(Json::Bool(value.is_true())),
            ValueKind::Number => number_from_value(value).map(Json::Number),
            ValueKind::String => Ok(value.to_str().map_or(Json::Null, Json::String)),
            ValueKind::Seq | ValueKind::Iterable => match value.downcast_object_ref::<Items>() {
                Some(items) => Ok(Json::Array(items.0.clone())),
                None => self.list(value, depth),
            },
            ValueKind::Map => match value.downcast_object_ref::<Members>() {
                Some(members) => Ok(Json::Object(members.0.clone())),
                None => self.object(value, depth),
            },
            other => Err(format!("the result contains a {other}, which JSON cannot represent")),
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<Json, String> {
        let mut items = Vec::new();
        for item in value.try_iter().map_err(|error| error.to_string())? {
            items.push(self.read(&item, depth + 1)?);
        }
        Ok(Json::Array(Arc::new(items)))
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<Json, String> {
        let mut members = json::Object::default();
        for key in value.try_iter().map_err(|error| error.to_string())? {
            let member = value.get_item(&key).map_err(|error| error.to_string())?;
            let name = match key.to_str() {
                Some(name) => name,
                None if key.is_number() || key.kind() == ValueKind::Bool => self.read(&key, depth)?.to_text().into(),
                None => return Err(format!("a {} cannot be the key of an object", key.kind())),
            };
            members.insert(name, self.read(&member, depth + 1)?);
        }
        Ok(Json::Object(Arc::new(members)))
    }
}

/// Converts a number. A whole number that cannot be stored exactly is an error.
fn number_from_value(value: &Value) -> Result<Number, String> {
    if value.is_integer() {
        if let Ok(number) = i64::try_from(value.clone()) {
            return Ok(number.into());
        }
        let digits = value.to_string();
        return whole_number(&digits).ok_or_else(|| format!("the whole number {digits} {TOO_LONG}"));
    }
    let float = f64::try_from(value.clone()).map_err(|error| error.to_string())?;
    Number::from_f64(float).ok_or_else(|| "the result is not a finite number".to_owned())
}
