//! Checks arguments that an expression has as constants, so that a wrong one is an error before the first run.

use minijinja::{Error, Value};

use super::{
    dates, decimals, digests, formats,
    operands::{invalid, is_null, kind},
};

/// Checks a text that is the argument of a function, whose name the first parameter is.
type Check = fn(&str, &str) -> Result<(), Error>;

/// The checked arguments: the function, the argument, and the check.
const CHECKS: [(&str, &str, Check); 18] = [
    ("dateadd", "duration", dates::check_duration),
    ("dateadd", "zone", dates::check_zone),
    ("datediff", "unit", dates::check_unit),
    ("datediff", "zone", dates::check_zone),
    ("dateformat", "format", dates::check_written_format),
    ("dateformat", "zone", dates::check_zone),
    ("dateparse", "format", dates::check_read_format),
    ("dateparse", "zone", dates::check_zone),
    ("datestart", "unit", dates::check_unit),
    ("datestart", "zone", dates::check_zone),
    ("decdiv", "method", decimals::check_method),
    ("decround", "method", decimals::check_method),
    ("duration", "unit", dates::check_unit),
    ("hmac", "algorithm", digests::check_algorithm),
    ("hmac", "encoding", digests::check_encoding),
    ("money", "currency", check_currency),
    ("sha256", "encoding", digests::check_encoding),
    ("sha512", "encoding", digests::check_encoding),
];

/// Checks a constant argument. The error is a sentence.
pub(super) fn check(function: &str, argument: &str, value: &Value) -> Result<(), String> {
    let Some((.., check)) = CHECKS.iter().find(|(known, of, _)| (*known, *of) == (function, argument)) else {
        return Ok(());
    };
    match value.as_str() {
        _ if is_null(value) => Ok(()),
        Some(text) => check(function, text).map_err(|error| error.detail().unwrap_or_default().to_owned()),
        None => Err(format!("`{function}` needs a text as `{argument}`, not {}", kind(value))),
    }
}

fn check_currency(_: &str, currency: &str) -> Result<(), Error> {
    formats::currency_digits(currency).map(|_| ()).map_err(invalid)
}
