//! Texts and numbers at the edges of what programs expect, and JSON that a terminal shows as it is.

use std::fmt::Write as _;

use serde_json::Value;

/// Texts that programs often handle wrongly.
pub(super) const TEXTS: [&str; 26] = [
    "",
    " ",
    "\t\r\n",
    "\0",
    "\u{7f}\u{1b}[2J",
    "é",
    "e\u{301}",
    "ß",
    "İ",
    "日本語",
    "😀",
    "👩‍👩‍👧‍👦",
    "\u{202e}abc\u{202c}",
    "\u{2066}abc\u{2069}",
    "مرحبا",
    "\u{feff}",
    "\u{fffd}",
    "\u{10ffff}",
    "\u{2028}",
    "null",
    "-1",
    "1e999",
    "../../etc/passwd",
    "{{ flow.input }}",
    "<b>&amp;\"'</b>",
    "%s%n\\",
];

/// Keys that programs often handle wrongly.
pub(super) const KEYS: [&str; 8] = ["", "__proto__", "constructor", "toString", "é", "\u{202e}key", "a.b[0]", "$ref"];

/// Whole numbers at the edges of common types.
pub(super) const WHOLE: [i64; 16] = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    2_147_483_647,
    -2_147_483_648,
    4_294_967_296,
    9_007_199_254_740_991,
    -9_007_199_254_740_992,
    i64::MAX,
    i64::MIN,
];

/// Numbers with a fraction or a large exponent.
pub(super) const FRACTIONS: [f64; 8] = [0.1, -0.5, 1e-7, 5e-324, 1e15, 1e21, 1.797e308, -1.797e308];

/// Returns a value as JSON in ASCII.
pub(super) fn ascii_json(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        if letter.is_ascii() && letter != '\u{7f}' {
            text.push(letter);
            continue;
        }
        let mut units = [0; 2];
        for unit in letter.encode_utf16(&mut units) {
            // Writing to a string does not fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_in_ascii_has_the_same_value() {
        let value = json!({ "a\u{202e}": ["😀", "\u{7f}", "é\n\"'"] });
        let text = ascii_json(&value);
        assert!(text.is_ascii() && !text.contains('\u{7f}') && text.contains("\\ud83d\\ude00"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap_or_default(), value);
    }
}
