//! Texts where a number is wanted, and the number to write.

/// Milliseconds of the units of time that people write behind a number.
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

/// What to write in place of a text under a key that takes a number: `10000` for `10s` where milliseconds are wanted.
pub(crate) fn meant(key: &str, text: &str) -> Option<String> {
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
    Some(format!("write `{key}: {time}`: it takes {unit}"))
}

/// Whether JSON has this number.
fn is_number(text: &str) -> bool {
    text.len() <= 32 && text.parse::<serde_json::Number>().is_ok()
}

/// The milliseconds of a time such as `10s` or `1.5 hours`, if they are whole.
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
    fn tells_the_number_that_was_meant() {
        let cases = [
            ("ms", "10s", Some("write `ms: 10000`: it takes milliseconds")),
            ("timeoutMs", "1.5 Hours", Some("write `timeoutMs: 5400000`: it takes milliseconds")),
            ("ms", "250", Some("write `ms: 250`, without quotes")),
            ("limit", "-3", Some("write `limit: -3`, without quotes")),
            ("limit", "10s", None),
            ("items", "10s", None),
            ("delay", "2 min", Some("write `delay: 120`: it takes seconds")),
            ("delay", "500ms", None),
            ("ms", "soon", None),
            ("ms", "s", None),
            ("ms", "1e400d", None),
            ("ms", "-1s", None),
            ("ms", "0.0001s", None),
            ("ms", "infs", None),
        ];
        for (key, text, expected) in cases {
            assert_eq!(meant(key, text).as_deref(), expected, "{key}: {text}");
        }
    }
}
