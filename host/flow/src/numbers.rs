//! Suggests a number in place of a text where a number is required.

/// Common names of units of time, in milliseconds.
const UNITS: [(&str, f64); 16] = [
    ("ms", 1.0),
    ("milliseconds", 1.0),
    ("s", 1_000.0),
    ("sec", 1_000.0),
    ("second", 1_000.0),
    ("seconds", 1_000.0),
    ("m", 60_000.0),
    ("min", 60_000.0),
    ("minute", 60_000.0),
    ("minutes", 60_000.0),
    ("h", 3_600_000.0),
    ("hour", 3_600_000.0),
    ("hours", 3_600_000.0),
    ("d", 86_400_000.0),
    ("day", 86_400_000.0),
    ("days", 86_400_000.0),
];

/// Suggests a number for a text under a key that requires a number. If the key is in milliseconds, `10s` becomes
/// `10000`.
pub(crate) fn suggest(key: &str, text: &str) -> Option<String> {
    let text = text.trim();
    if is_number(text) {
        return Some(format!("write `{key}: {text}`, without quotes"));
    }
    let (each, unit) = match key {
        "delay" => (1_000, "seconds"),
        key if key == "ms" || key.ends_with("Ms") => (1, "milliseconds"),
        _ => return None,
    };
    let time = milliseconds(text).filter(|time| time % each == 0)? / each;
    Some(format!("write `{key}: {time}`; the unit is {unit}"))
}

/// Returns true if the text is a JSON number.
fn is_number(text: &str) -> bool {
    text.len() <= 32 && text.parse::<serde_json::Number>().is_ok()
}

/// Parses a time such as `10s` or `1.5 hours`; returns `None` unless it is a whole number of milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let unit = text.find(|sign: char| sign.is_ascii_alphabetic())?;
    let (count, unit) = (text[..unit].trim(), text[unit..].to_lowercase());
    let (_, each) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let time = count.parse::<f64>().ok().filter(|_| is_number(count))? * each;
    let exact = (0.0..=9e15).contains(&time) && time.fract() == 0.0;
    exact.then_some(time as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_a_number_in_the_units_of_the_key() {
        let cases = [
            ("ms", "10s", Some("write `ms: 10000`; the unit is milliseconds")),
            ("timeoutMs", "1.5 Hours", Some("write `timeoutMs: 5400000`; the unit is milliseconds")),
            ("ms", "250", Some("write `ms: 250`, without quotes")),
            ("limit", "-3", Some("write `limit: -3`, without quotes")),
            ("limit", "10s", None),
            ("items", "10s", None),
            ("delay", "2 min", Some("write `delay: 120`; the unit is seconds")),
            ("delay", "500ms", None),
            ("ms", "soon", None),
            ("ms", "s", None),
            ("ms", "1e400d", None),
            ("ms", "-1s", None),
            ("ms", "0.0001s", None),
            ("ms", "infs", None),
        ];
        for (key, text, expected) in cases {
            assert_eq!(suggest(key, text).as_deref(), expected, "{key}: {text}");
        }
    }
}
