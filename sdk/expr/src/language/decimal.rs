//! `round`: rounds the decimal digits of a number, not its binary value.

use minijinja::{Error, Value, value::Kwargs};

use super::operands::{argument, invalid, kind};

/// The rounding of dropped digits.
#[derive(Clone, Copy)]
enum Method {
    /// To the nearest digit; halves round away from zero.
    Common,
    /// Toward positive infinity.
    Ceil,
    /// Toward negative infinity.
    Floor,
}

/// `x | round(precision, method)`: rounds to `precision` digits after the decimal point. The default is 0; -2 rounds to
/// hundreds. Methods are `common` (default; halves round away from zero), `ceil` and `floor`. Whole numbers stay whole.
pub(super) fn round(
    value: Value,
    precision: Option<i32>,
    method: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    let precision = argument(precision, &options, "precision")?.unwrap_or(0);
    let method = argument(method, &options, "method")?.unwrap_or("common");
    options.assert_all_used()?;
    let method = match method {
        "common" => Method::Common,
        "ceil" => Method::Ceil,
        "floor" => Method::Floor,
        _ => return Err(invalid("`round` needs the method `common`, `ceil` or `floor`".to_owned())),
    };
    if !value.is_number() {
        return Err(invalid(format!("`round` needs a number, not {}", kind(&value))));
    }
    let failed = || invalid(format!("unable to round {value}"));
    let rounded =
        if value.is_integer() { whole(&value, precision, method) } else { decimal(&value, precision, method) };
    rounded.ok_or_else(failed)
}

/// Rounds a whole number. Returns it unchanged if `precision` is not negative, because it has no digits after the
/// point.
fn whole(value: &Value, precision: i32, method: Method) -> Option<Value> {
    let number = i128::try_from(value.clone()).ok()?;
    if precision >= 0 {
        return Some(value.clone());
    }
    let digits = number.unsigned_abs().to_string();
    let kept = round_digits(&digits, precision.unsigned_abs() as usize, number < 0, method).parse::<i128>().ok()?;
    let scaled = if kept == 0 { 0 } else { kept.checked_mul(10_i128.checked_pow(precision.unsigned_abs())?)? };
    Some(Value::from(if number < 0 { -scaled } else { scaled }))
}

/// Rounds a float by the digits of its shortest decimal form, such as `0.15`.
fn decimal(value: &Value, precision: i32, method: Method) -> Option<Value> {
    let number = f64::try_from(value.clone()).ok().filter(|number| number.is_finite())?;
    // `Display` writes the shortest digits that represent this number, without an exponent.
    let written = number.abs().to_string();
    let (before, behind) = written.split_once('.').unwrap_or((&written, ""));
    let gone = behind.len() as i64 - i64::from(precision);
    let Ok(gone) = usize::try_from(gone) else { return Some(value.clone()) };
    let kept = round_digits(&format!("{before}{behind}"), gone, number.is_sign_negative(), method);
    let rounded =
        format!("{kept}e{}", -i64::from(precision)).parse::<f64>().ok().filter(|number| number.is_finite())?;
    let is_negative = number.is_sign_negative() && rounded != 0.0;
    Some(Value::from(if is_negative { -rounded } else { rounded }))
}

/// Drops the last `gone` digits of a number, and rounds the number that remains by the method.
fn round_digits(digits: &str, gone: usize, is_negative: bool, method: Method) -> String {
    let length = digits.len().saturating_sub(gone);
    let (kept, lost) = digits.split_at(length);
    // Digits beyond the beginning are zeros.
    let first_lost = if gone > digits.len() { b'0' } else { lost.bytes().next().unwrap_or(b'0') };
    let is_inexact = lost.bytes().any(|digit| digit != b'0');
    let goes_up = match method {
        Method::Common => first_lost >= b'5',
        Method::Ceil => is_inexact && !is_negative,
        Method::Floor => is_inexact && is_negative,
    };
    if !goes_up {
        return if kept.is_empty() { "0".to_owned() } else { kept.to_owned() };
    }
    let nines = kept.bytes().rev().take_while(|digit| *digit == b'9').count();
    let (before, zeros) = (&kept[..kept.len() - nines], "0".repeat(nines));
    match before.bytes().next_back() {
        Some(last) => format!("{}{}{zeros}", &before[..before.len() - 1], char::from(last + 1)),
        None => format!("1{zeros}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use proptest::prelude::*;

    use super::*;

    fn rounded(value: impl Into<Value>, precision: i32, method: &str) -> String {
        let value = round(value.into(), Some(precision), Some(method), Kwargs::from_iter::<[(&str, Value); 0]>([]));
        value.map_or_else(|error| error.to_string(), |value| value.to_string())
    }

    #[test]
    fn rounds_decimal_digits() {
        let cases = [
            (2.675, 2, ["2.68", "2.68", "2.67"]),
            (-2.675, 2, ["-2.68", "-2.67", "-2.68"]),
            (1.005, 2, ["1.01", "1.01", "1.0"]),
            (0.125, 2, ["0.13", "0.13", "0.12"]),
            (2.5, 0, ["3.0", "3.0", "2.0"]),
            (-0.5, 0, ["-1.0", "0.0", "-1.0"]),
            (0.4, 0, ["0.0", "1.0", "0.0"]),
            (9.995, 2, ["10.0", "10.0", "9.99"]),
            (1.1, 1, ["1.1", "1.1", "1.1"]),
            (1.1, 300, ["1.1", "1.1", "1.1"]),
            (149.9, -2, ["100.0", "200.0", "100.0"]),
            (50.0, -2, ["100.0", "100.0", "0.0"]),
            (4.9, -1, ["0.0", "10.0", "0.0"]),
            (4.9, -2, ["0.0", "100.0", "0.0"]),
            (1e15, 2, ["1000000000000000.0", "1000000000000000.0", "1000000000000000.0"]),
            (5e-324, 2, ["0.0", "0.01", "0.0"]),
        ];
        for (value, precision, expected) in cases {
            let given = ["common", "ceil", "floor"].map(|method| rounded(value, precision, method));
            assert_eq!(given, expected, "{value} {precision}");
        }
        let whole =
            [(1250, -2, "1300"), (-1250, -2, "-1300"), (49, -2, "0"), (50, -2, "100"), (7, 3, "7"), (5, -99, "0")];
        for (value, precision, expected) in whole {
            assert_eq!(rounded(value, precision, "common"), expected, "{value} {precision}");
        }
        for (value, method) in [(Value::from(true), "common"), (Value::from("1"), "common"), (Value::from(1), "up")] {
            assert!(rounded(value, 0, method).contains("round"));
        }
        assert!(rounded(5, -99, "ceil").contains("unable to round 5"));
        assert!(rounded(5.5, i32::MIN, "ceil").contains("unable to round 5.5"));
    }

    proptest! {
        /// A float with few digits rounds as exact arithmetic with these digits does.
        #[test]
        fn agrees_with_whole_numbers(digits in -999_999_i64..1_000_000, places in 0_i32..5) {
            let value: f64 = format!("{digits}e-{places}").parse().unwrap();
            let unit = 10_i64.pow(places as u32);
            let half = digits.abs() % unit * 2 >= unit;
            let expected = digits.signum() * (digits.abs() / unit + i64::from(half));
            let given: f64 = rounded(value, 0, "common").parse().unwrap();
            prop_assert_eq!(given, expected as f64);
        }
    }
}
