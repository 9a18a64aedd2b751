//! `int` and `float`: numbers from other values.

use minijinja::{Error, Value, value::Kwargs};

use super::operands::{argument, invalid, is_null, kind, missing};
use crate::json::digits::TOO_LONG;

/// The size from which on a float has no whole number of 128 bits.
const MAX_WHOLE: f64 = 1e38;

/// `x | int(default, base)`: a number, or the number in a text, without the digits after the point. Gives `default` in
/// place of an error.
pub(super) fn int(value: &Value, default: Option<Value>, base: Option<u32>, options: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &options, "default")?;
    let base = argument(base, &options, "base")?.unwrap_or(10);
    options.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(invalid("`int` needs a base from 2 to 36".to_owned()));
    }
    let whole = match value.as_str() {
        Some(text) => whole_in(text, base),
        None if value.is_integer() && value.is_number() => Ok(value.clone()),
        None => number("int", value).and_then(|number| truncated(number, &format!("{number:e}"))),
    };
    whole.or_else(|error| default.ok_or(error))
}

/// `x | float(default)`: a number, or the number in a text, as a decimal number. Gives `default` in place of an error.
pub(super) fn float(value: &Value, default: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &options, "default")?;
    options.assert_all_used()?;
    let float = match value.as_str() {
        Some(text) => number_in("float", text),
        None => number("float", value),
    };
    float.map(Value::from).or_else(|error| default.ok_or(error))
}

/// Returns a number as a float. A boolean is 0 or 1.
fn number(name: &str, value: &Value) -> Result<f64, Error> {
    match kind(value) {
        "a number" => f64::try_from(value.clone()),
        "a boolean" => Ok(if value.is_true() { 1.0 } else { 0.0 }),
        _ if is_null(value) => Err(missing(format!("`{name}` does not work on null"))),
        other => Err(invalid(format!("`{name}` needs a number or a text, not {other}"))),
    }
}

fn number_in(name: &str, text: &str) -> Result<f64, Error> {
    // Rust reads the texts `inf` and `nan`, too.
    let is_digits = text.bytes().all(|sign| sign.is_ascii_digit() || b"+-.eE".contains(&sign));
    let number = text.parse::<f64>().ok().filter(|number| is_digits && number.is_finite());
    let advice = format!("write `{name}(0)` to get 0 in its place");
    number.ok_or_else(|| invalid(format!("`{name}`: the text is not a number such as `-12` or `1.5`: {advice}")))
}

fn whole_in(text: &str, base: u32) -> Result<Value, Error> {
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let has_prefix = digits.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let digits = if has_prefix { &digits[prefix.len()..] } else { digits };
    let is_plain = !digits.starts_with(['+', '-']);
    match i128::from_str_radix(digits, base).ok().filter(|_| is_plain) {
        Some(number) => Ok(Value::from(sign * number)),
        None if base == 10 => number_in("int", text).and_then(|number| truncated(number, "in the text")),
        None => Err(invalid(format!("`int`: the text is not a number of at most 38 digits to the base {base}"))),
    }
}

/// Returns the whole part of a number. `shown` stands for the number in an error.
fn truncated(number: f64, shown: &str) -> Result<Value, Error> {
    match number.abs() < MAX_WHOLE {
        true => Ok(Value::from(number as i128)),
        false => Err(invalid(format!("`int`: the number {shown} {TOO_LONG}"))),
    }
}
