//! Filters that write numbers for people.

use minijinja::{Error, Value, value::Kwargs};

use super::{
    decimals::{Decimal, Rounding, scale, too_many_digits},
    operands::{argument, invalid, too_long},
    text::push_str,
};
use crate::{path::shorten, suggest::did_you_mean};

/// The codes of the active currencies that have digits behind the point, by the number of these digits (ISO 4217).
const CURRENCIES: [(i64, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW \
         CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF \
         IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK \
         MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP \
         SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG \
         YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
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
    let digits = currency_digits(currency).map_err(invalid)?;
    let amount = write("money", &value, Some(digits), point, group)?;
    Ok(format!("{amount} {currency}"))
}

/// Returns the digits behind the point of a currency. The error is a sentence.
pub(super) fn currency_digits(currency: &str) -> Result<i64, String> {
    let codes = || CURRENCIES.iter().flat_map(|(digits, codes)| codes.split(' ').map(move |code| (code, *digits)));
    if let Some((_, digits)) = codes().find(|(code, _)| *code == currency) {
        return Ok(digits);
    }
    // The codes with X in front are unlike each other: those of metals and of tests have no digits at all.
    let names = codes().map(|(code, _)| code).filter(|_| !currency.starts_with('X'));
    let hint = did_you_mean(currency, names)
        .unwrap_or_else(|| "write the code of an active currency (ISO 4217), such as `EUR`".to_owned());
    Err(format!("`money` does not know the currency `{}`: {hint}", shorten(currency)))
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
