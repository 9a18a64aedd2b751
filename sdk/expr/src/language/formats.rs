//! Filters that write numbers for people.

use minijinja::{Error, Value, value::Kwargs};

use super::{
    decimals::{Decimal, Rounding, scale, too_many_digits},
    operands::{argument, invalid, too_long},
    text::push_str,
};

/// Digits behind the point of the currencies that do not have 2 (ISO 4217).
const CURRENCY_DIGITS: [(i64, &[&str]); 3] = [
    (
        0,
        &[
            "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF",
            "XOF", "XPF",
        ],
    ),
    (3, &["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"]),
    (4, &["CLF", "UYW"]),
];

/// `x | numberformat(digits, point, group)`: a number with a fixed number of decimal digits, rounded like `round`, and
/// with a sign between groups of thousands.
pub(super) fn number_format(
    value: Value,
    digits: Option<i64>,
    point: Option<&str>,
    group: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    let digits = argument(digits, &options, "digits")?;
    let point = argument(point, &options, "point")?.unwrap_or(".");
    let group = argument(group, &options, "group")?.unwrap_or("");
    options.assert_all_used()?;
    write("numberformat", &value, digits, point, group)
}

/// `x | money(currency, point, group)`: an amount with the digits of its currency and the currency's code.
pub(super) fn money(
    value: Value,
    currency: &str,
    point: Option<&str>,
    group: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    let point = argument(point, &options, "point")?.unwrap_or(".");
    let group = argument(group, &options, "group")?.unwrap_or(",");
    options.assert_all_used()?;
    if currency.len() != 3 || !currency.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return Err(invalid("`money` needs the code of a currency (ISO 4217), such as `EUR`".to_owned()));
    }
    let known = CURRENCY_DIGITS.iter().find(|(_, codes)| codes.contains(&currency));
    let amount = write("money", &value, Some(known.map_or(2, |(digits, _)| *digits)), point, group)?;
    Ok(format!("{amount} {currency}"))
}

fn write(name: &str, value: &Value, digits: Option<i64>, point: &str, group: &str) -> Result<String, Error> {
    let number = Decimal::read(name, value)?;
    let rounded = match digits {
        Some(digits) => number.rounded(scale(name, digits)?, Rounding::Common).ok_or_else(|| too_many_digits(name))?,
        None => number,
    };
    let (sign, whole, behind) = rounded.parts();
    let mut text = sign.to_owned();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            push_str(&mut text, group).map_err(too_long)?;
        }
        text.push(digit);
    }
    if !behind.is_empty() {
        push_str(&mut text, point).and_then(|()| push_str(&mut text, &behind)).map_err(too_long)?;
    }
    Ok(text)
}
