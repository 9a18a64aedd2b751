//! Conversion between JSON and the values of the interpreter.

use std::fmt::Write as _;

use flowcell_expr::{
    json::digits::{TOO_LONG, whole_number},
    limits::JSON_DEPTH,
};
use jaq_json::{Num, Rc, Val};
use serde_json::{Number, Value};

/// The limit up to which each whole number is exact as a float: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The reason why a result is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The text of the results is longer than allowed.
    TooLarge,
    /// The value cannot be written as JSON without a loss. The text is the reason.
    NotJson(String),
}

/// Converts JSON to a value. Whole numbers are exact.
pub(crate) fn from_json(json: Value) -> Val {
    match json {
        Value::Null => Val::Null,
        Value::Bool(value) => Val::Bool(value),
        Value::Number(number) => Val::Num(from_number(&number)),
        Value::String(text) => Val::from(text),
        Value::Array(items) => items.into_iter().map(from_json).collect(),
        Value::Object(members) => {
            Val::obj(members.into_iter().map(|(key, value)| (Val::from(key), from_json(value))).collect())
        }
    }
}

fn from_number(number: &Number) -> Num {
    if let Some(whole) = number.as_i64() {
        return Num::from_integral(whole);
    }
    if let Some(whole) = number.as_u64() {
        return Num::from_integral(whole);
    }
    match number.as_f64() {
        Some(float) if float.fract() != 0.0 => Num::Float(float),
        // Keeps the notation, such as 1.0, if the query does not compute with the number.
        _ => Num::Dec(Rc::new(number.to_string())),
    }
}

/// Appends a value to a JSON text, which may have at most `most` bytes.
pub(crate) fn write(value: &Val, text: &mut String, most: usize) -> Result<(), Refusal> {
    write_at(value, text, most, 0)
}

fn write_at(value: &Val, text: &mut String, most: usize, depth: usize) -> Result<(), Refusal> {
    if text.len() > most {
        return Err(Refusal::TooLarge);
    }
    if depth > JSON_DEPTH {
        return Err(Refusal::NotJson(format!("lists and objects are nested more than {JSON_DEPTH} deep")));
    }
    match value {
        Val::Null => text.push_str("null"),
        Val::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Val::Num(number) => {
            let number = to_number(number).map_err(Refusal::NotJson)?;
            // Writing to a string cannot fail.
            let _ = write!(text, "{number}");
        }
        Val::TStr(bytes) => write_text(bytes, text)?,
        Val::BStr(_) => return Err(Refusal::NotJson("it has bytes that are no text; use `@base64`".to_owned())),
        Val::Arr(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_at(item, text, most, depth + 1)?;
            }
            text.push(']');
        }
        Val::Obj(members) => {
            text.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                let Val::TStr(key) = key else {
                    let reason =
                        format!("the key {} of an object is no text; use `tostring`", truncated(&key.to_string(), 30));
                    return Err(Refusal::NotJson(reason));
                };
                write_text(key, text)?;
                text.push(':');
                write_at(value, text, most, depth + 1)?;
            }
            text.push('}');
        }
    }
    if text.len() > most { Err(Refusal::TooLarge) } else { Ok(()) }
}

fn write_text(bytes: &[u8], text: &mut String) -> Result<(), Refusal> {
    let read = str::from_utf8(bytes).map_err(|_| Refusal::NotJson("it has a text that is not UTF-8".to_owned()))?;
    text.push_str(&Value::from(read).to_string());
    Ok(())
}

/// Converts a value to text, as in `"\(.a)"`. Texts stay as they are.
pub(crate) fn to_text(value: Val) -> Val {
    match value {
        Val::TStr(bytes) | Val::BStr(bytes) => Val::TStr(bytes),
        other => whole(other).to_string().into(),
    }
}

/// Converts computed numbers that are whole to integers, also inside of lists and objects. So their text has no point.
pub(crate) fn whole(value: Val) -> Val {
    match value {
        Val::Num(Num::Float(float)) if is_whole(float) => Val::Num(Num::from_integral(float as i64)),
        Val::Arr(items) => items.iter().cloned().map(whole).collect(),
        Val::Obj(members) => Val::obj(members.iter().map(|(key, value)| (key.clone(), whole(value.clone()))).collect()),
        other => other,
    }
}

fn is_whole(float: f64) -> bool {
    float.fract() == 0.0 && float.abs() <= MAX_EXACT
}

/// Converts a number. A computed number that is whole is written without a point, such as the 3 of `6 / 2`.
fn to_number(number: &Num) -> Result<Number, String> {
    let float = match number {
        Num::Int(whole) => return Ok(Number::from(*whole as i64)),
        Num::BigInt(whole) => {
            let digits = whole.to_string();
            let number = whole_number(&digits);
            return number.ok_or_else(|| format!("the whole number {} {TOO_LONG}", truncated(&digits, 30)));
        }
        Num::Float(float) if is_whole(*float) => return Ok(Number::from(*float as i64)),
        Num::Float(float) => *float,
        Num::Dec(digits) => digits.parse().unwrap_or(f64::NAN),
    };
    Number::from_f64(float).ok_or_else(|| format!("{number} is no number of JSON"))
}

/// Returns the first characters of a text, with `…` if there are more.
pub(crate) fn truncated(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
