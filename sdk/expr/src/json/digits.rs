//! Parses whole numbers without losing digits. A number that cannot be stored exactly is an error.

use std::ops::Range;

use serde::de::Error as _;
use serde_json::{Error, Number};

use crate::quoted::end_of_quoted;

/// End of the message about a whole number that cannot be stored exactly.
pub const TOO_LONG: &str = "has more digits than can be kept exactly: write it as a text";

/// Minimum number of digits of a whole number that may not fit into 64 bits. Shorter numbers always fit.
const MIN_LOSSY_DIGITS: usize = 19;

/// Parses a whole number: digits with an optional `-` before them. Returns `None` if the number cannot be stored
/// exactly, that is, if no 64-bit integer has this value and a float would print different digits.
pub fn whole_number(digits: &str) -> Option<Number> {
    if let Ok(number) = digits.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = digits.parse::<u64>() {
        return Some(number.into());
    }
    let float = digits.parse::<f64>().ok().filter(|float| float.to_string() == digits)?;
    Number::from_f64(float)
}

/// Returns an error if a valid JSON text contains a whole number that cannot be stored exactly.
pub(super) fn check(text: &str) -> Result<(), Error> {
    let place = if has_long_digit_run(text.as_bytes()) { first_lossy(text) } else { None };
    let Some(place) = place else { return Ok(()) };
    let before = &text[..place.start];
    let line = before.matches('\n').count() + 1;
    let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1) + 1;
    // `serde_json` reads the position from the end of the message.
    Err(Error::custom(format!("the whole number {} {TOO_LONG} at line {line} column {column}", &text[place])))
}

/// Returns true if a text contains at least [`MIN_LOSSY_DIGITS`] consecutive digits, inside or outside of quotes. Reads
/// only every [`MIN_LOSSY_DIGITS`]th byte and the digits around it, because so many digits cannot lie between two such
/// bytes.
fn has_long_digit_run(bytes: &[u8]) -> bool {
    let mut at = MIN_LOSSY_DIGITS - 1;
    while at < bytes.len() {
        if bytes[at].is_ascii_digit() {
            let before = bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            let behind = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if before + behind >= MIN_LOSSY_DIGITS {
                return true;
            }
            at += behind;
        }
        at += MIN_LOSSY_DIGITS;
    }
    false
}

/// Finds the first whole number of a valid JSON text that cannot be stored exactly.
fn first_lossy(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_quoted(bytes, at + 1, b'"').unwrap_or(bytes.len()),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let end = at + bytes[at..].iter().take_while(is_part).count();
                let number = &text[at..end];
                if !number.contains(['.', 'e', 'E']) && whole_number(number).is_none() {
                    return Some(at..end);
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use crate::Json;

    #[test]
    fn digits_are_kept_or_reported() {
        let kept = [
            "18446744073709551615",
            "-9223372036854775808",
            "[9007199254740993]",
            r#"{"18446744073709551616":"18446744073709551616"}"#,
            r#"["\\\"", "-99999999999999999999 \" 99999999999999999999"]"#,
            "1.8446744073709551616e19",
            "0.12345678901234567890",
            "123456789012345678901234567890.5",
            "1e300",
        ];
        for text in kept {
            assert!(Json::parse(text).is_ok(), "{text}");
        }
        // A float holds these numbers and prints the same digits.
        assert_eq!(Json::parse("100000000000000000000").unwrap().to_text(), "1e+20");
        assert!(Json::parse("[123456789012345680000]").is_ok());
        let refused = [
            ("18446744073709551616", 1, 1),
            ("[1,\n -9223372036854775809]", 2, 2),
            (r#"{"a":"1","b":[2,99999999999999999999]}"#, 1, 17),
            ("123456789012345678901234567890", 1, 1),
            ("[\"\",9999999999999999999999]", 1, 5),
        ];
        for (text, line, column) in refused {
            let error = Json::parse(text).unwrap_err();
            assert!(error.to_string().contains("more digits than can be kept"), "{text}: {error}");
            assert_eq!((error.line(), error.column()), (line, column), "{text}: {error}");
        }
    }

    #[test]
    fn long_numbers_are_found_at_every_offset() {
        for before in 0..60 {
            let text = format!("[{}99999999999999999999]", " ".repeat(before));
            assert!(Json::parse(&text).is_err(), "{text}");
            let text = format!("[{}9999999999999999999]", " ".repeat(before));
            assert!(Json::parse(&text).is_ok(), "{text}");
        }
    }
}
