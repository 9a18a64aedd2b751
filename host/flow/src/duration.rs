//! Parses durations such as `500ms`, `30s` and `1h30m`.

use std::time::Duration;

use crate::{fields::for_message, limits};

/// The longest duration.
const MAX_DURATION: Duration = Duration::from_millis(limits::MAX_TIMEOUT_MS);

/// The shortest duration.
const MIN_DURATION: Duration = Duration::from_millis(1);

/// The reason why a text is not a permitted duration.
pub(crate) enum DurationError {
    /// The text has another form.
    Form,
    /// The duration is below [`MIN_DURATION`] or above [`MAX_DURATION`], as the sentence says.
    Range(String),
}

/// Parses numbers with the units `ms`, `s`, `m`, `min`, `h` and `d`, in any order of the units. Fails on an unknown
/// unit, below [`MIN_DURATION`], and above [`MAX_DURATION`].
pub fn parse(text: &str) -> Result<Duration, String> {
    read(text).map_err(|error| match error {
        DurationError::Form => {
            format!("`{text}` is not a duration; write for example `500ms`, `30s`, `1h30m` or `30d`")
        }
        DurationError::Range(why) => why,
    })
}

/// Performs [`parse`].
pub(crate) fn read(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError::Form;
    let too_long =
        || DurationError::Range(format!("`{}` is too long; the longest duration is 365 days", for_message(text)));
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let unit_end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(unit_end);
        let seconds = number.parse::<f64>().map_err(|_| wrong())? * seconds(unit).ok_or_else(wrong)?;
        let part = Duration::try_from_secs_f64(seconds).map_err(|_| too_long())?;
        total = total.checked_add(part).ok_or_else(too_long)?;
        rest = after;
    }
    match total {
        Duration::ZERO if text.is_empty() => Err(wrong()),
        total if total < MIN_DURATION => {
            Err(DurationError::Range(format!("`{}` is too short; the shortest duration is 1ms", for_message(text))))
        }
        total if total > MAX_DURATION => Err(too_long()),
        total => Ok(total),
    }
}

fn seconds(unit: &str) -> Option<f64> {
    match unit {
        "ms" => Some(0.001),
        "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3_600.0),
        "d" => Some(86_400.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        let cases = [("500ms", 500), ("30s", 30_000), ("1.5s", 1_500), ("2m", 120_000), ("1h30m", 5_400_000)];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "s", "30x", "-1s", "0s", "1..2s", "1e9s", "366d", "9999999999999999999999d", "5 s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["0s", "0", "0ms", "0d0h", "0.9ms"] {
            let why = parse(text).unwrap_err();
            assert_eq!(why.contains("the shortest duration is 1ms"), text != "0", "{why}");
        }
        for text in ["366d", "9999999999999999999999d", "365d1ms"] {
            assert_eq!(parse(text), Err(format!("`{text}` is too long; the longest duration is 365 days")));
        }
    }
}
