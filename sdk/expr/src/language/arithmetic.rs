//! `+`, `-`, `*`, `/`, `//`, `%`, `**` and unary minus. Whole numbers are exact; booleans are not numbers.

use minijinja::{Error, State, Value, value::ValueKind};

use super::{
    budget::charge,
    operands::{concat, invalid, is_null, kind, missing, too_long},
    text::TextTooLong,
};
use crate::limits;

/// Adds numbers, or concatenates texts or lists.
pub(super) fn add(state: &mut State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    let both = |kinds: &[ValueKind]| kinds.contains(&left.kind()) && kinds.contains(&right.kind());
    if both(&[ValueKind::String]) {
        return concat(state, left, right).map(Value::from);
    }
    if both(&[ValueKind::Seq, ValueKind::Iterable]) {
        let items = left.try_iter()?.checked().chain(right.try_iter()?.checked());
        let items = items.take(limits::VALUES).collect::<Result<Vec<Value>, Error>>()?;
        charge(state, items.len().saturating_mul(limits::ITEM_WORK))?;
        return Ok(Value::from(items));
    }
    sum(&left, &right).ok_or_else(|| operand_error("+", &left, &right))
}

/// Returns the sum of two numbers; `None` if an operand is not a number or a whole sum exceeds 128 bits.
pub(super) fn sum(left: &Value, right: &Value) -> Option<Value> {
    combine(left, right, i128::checked_add, |a, b| a + b)
}

/// Subtracts the right number from the left one.
pub(super) fn subtract(left: Value, right: Value) -> Result<Value, Error> {
    combine(&left, &right, i128::checked_sub, |a, b| a - b).ok_or_else(|| operand_error("-", &left, &right))
}

/// Multiplies numbers, or repeats a text.
pub(super) fn multiply(state: &mut State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    let repeated = match (left.as_str(), right.as_str()) {
        (Some(text), None) => Some((text, &right)),
        (None, Some(text)) => Some((text, &left)),
        _ => None,
    };
    if let Some((text, times)) = repeated.and_then(|(text, times)| Some((text, times.as_usize()?))) {
        let length = text.len().checked_mul(times).filter(|length| *length <= limits::TEXT_BYTES);
        charge(state, length.ok_or_else(|| too_long(TextTooLong))?)?;
        return Ok(Value::from(text.repeat(times)));
    }
    combine(&left, &right, i128::checked_mul, |a, b| a * b).ok_or_else(|| operand_error("*", &left, &right))
}

/// Divides numbers. The result of two whole numbers is whole if there is no remainder. Division by 0 is an error.
pub(super) fn divide(left: Value, right: Value) -> Result<Value, Error> {
    let whole = |a: i128, b: i128| if a.checked_rem(b)? == 0 { a.checked_div(b) } else { None };
    let (Some(a), Some(b)) = (float(&left), float(&right)) else { return Err(operand_error("/", &left, &right)) };
    if b == 0.0 {
        return Err(calculation_error("/", &left, &right));
    }
    let exact = integers(&left, &right).and_then(|(a, b)| whole(a, b));
    Ok(exact.map_or_else(|| Value::from(a / b), integer))
}

/// Divides numbers and rounds down.
pub(super) fn floor_divide(left: Value, right: Value) -> Result<Value, Error> {
    compute_floored("//", left, right, |a, b| floor_parts(a, b).map(|(quotient, _)| quotient), |a, b| (a / b).floor())
}

/// Returns the remainder of the division that `//` rounds down. It has the sign of the right operand.
pub(super) fn remainder(left: Value, right: Value) -> Result<Value, Error> {
    let float = |a: f64, b: f64| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    };
    compute_floored("%", left, right, |a, b| floor_parts(a, b).map(|(_, rest)| rest), float)
}

fn compute_floored(
    sign: &str,
    left: Value,
    right: Value,
    whole: fn(i128, i128) -> Option<i128>,
    decimal: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    match float(&right) {
        Some(0.0) if left.is_number() => Err(calculation_error(sign, &left, &right)),
        _ => combine(&left, &right, whole, decimal).ok_or_else(|| operand_error(sign, &left, &right)),
    }
}

/// Returns the quotient rounded down, and the remainder; `None` if `b` is 0 or the quotient exceeds 128 bits.
fn floor_parts(a: i128, b: i128) -> Option<(i128, i128)> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    match rest != 0 && (rest < 0) != (b < 0) {
        true => Some((quotient.checked_sub(1)?, rest.checked_add(b)?)),
        false => Some((quotient, rest)),
    }
}

/// Raises a number to a power.
pub(super) fn power(left: Value, right: Value) -> Result<Value, Error> {
    let (Some(base), Some(exponent)) = (float(&left), float(&right)) else {
        return Err(operand_error("**", &left, &right));
    };
    if base == 0.0 && exponent < 0.0 {
        return Err(calculation_error("**", &left, &right));
    }
    match integers(&left, &right) {
        Some((base, exponent)) if exponent >= 0 => {
            let exponent = u32::try_from(exponent).ok();
            let power = exponent.and_then(|exponent| base.checked_pow(exponent));
            power.map(integer).ok_or_else(|| calculation_error("**", &left, &right))
        }
        _ => Ok(Value::from(base.powf(exponent))),
    }
}

/// Negates a number.
pub(super) fn negate(value: Value) -> Result<Value, Error> {
    let zero = Value::from(0);
    match value.is_number() && !value.is_integer() {
        true => Ok(Value::from(-float(&value).unwrap_or_default())),
        false => combine(&zero, &value, i128::checked_sub, |a, b| a - b).ok_or_else(|| {
            let message = format!("`-` does not work on {}", kind(&value));
            if is_null(&value) { missing(message) } else { invalid(message) }
        }),
    }
}

/// Applies `whole` to two whole numbers, which is exact, and `decimal` to other numbers as 64-bit floats. Returns
/// `None` if an operand is not a number, or if the whole result exceeds 128 bits.
fn combine(
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    decimal: fn(f64, f64) -> f64,
) -> Option<Value> {
    match integers(left, right) {
        Some((left, right)) => whole(left, right).map(integer),
        None if left.is_integer() && right.is_integer() => None,
        None => Some(Value::from(decimal(float(left)?, float(right)?))),
    }
}

fn integers(left: &Value, right: &Value) -> Option<(i128, i128)> {
    if !left.is_integer() || !right.is_integer() {
        return None;
    }
    Some((i128::try_from(left.clone()).ok()?, i128::try_from(right.clone()).ok()?))
}

fn float(value: &Value) -> Option<f64> {
    if value.is_number() { f64::try_from(value.clone()).ok() } else { None }
}

fn integer(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| Value::from(value), Value::from)
}

fn operand_error(sign: &str, left: &Value, right: &Value) -> Error {
    if left.is_integer() && right.is_integer() {
        return invalid(format!("`{sign}` does not work on whole numbers this large: {left} {sign} {right}"));
    }
    let message = format!("`{sign}` does not work on {} and {}", kind(left), kind(right));
    if is_null(left) || is_null(right) { missing(message) } else { invalid(message) }
}

fn calculation_error(sign: &str, left: &Value, right: &Value) -> Error {
    invalid(format!("unable to calculate {left} {sign} {right}"))
}
