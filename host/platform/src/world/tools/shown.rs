//! Formats the arguments of a call for a question to a person. Members are in a canonical order, and each long part is
//! cut by itself.

use std::fmt::Write;

use flowcell_contract::{Json, text::is_hidden};
use sha2::{Digest, Sha256};

/// Maximum number of characters of arguments that are shown without cuts.
pub(crate) const SHOWN_CHARS: usize = 2_000;
/// Maximum number of characters that are shown of a cut string.
const TEXT_CHARS: usize = 300;
/// Minimum number of characters for each part of an object or list, even if all parts together then exceed the maximum.
const PART_CHARS: usize = 48;
/// Maximum number of members of an object, or items of a list, that are shown. For the others, only their number is
/// shown.
pub(crate) const SHOWN_PARTS: usize = 128;
/// Maximum number of characters of a member's name.
const NAME_CHARS: usize = 64;

/// The formatted arguments of a call.
pub(super) struct Shown {
    /// JSON with its members sorted by name. `⟨cut: …⟩` follows a part that is cut.
    pub(super) text: String,
    /// The number of cut parts.
    pub(super) cuts: usize,
}

impl Shown {
    /// Formats arguments. Arguments of at most [`SHOWN_CHARS`] characters are not cut.
    pub(super) fn new(arguments: &Json) -> Shown {
        let mut shown = Shown { text: String::new(), cuts: 0 };
        shown.put(arguments, SHOWN_CHARS);
        shown
    }

    fn put(&mut self, json: &Json, room: usize) {
        let whole = canonical(json);
        if whole.chars().count() <= room {
            return self.text.push_str(&whole);
        }
        match json {
            Json::Object(members) => {
                let mut parts: Vec<_> = members.iter().map(|(name, value)| (Some(&**name), value)).collect();
                parts.sort_by_key(|(name, _)| *name);
                self.put_parts(('{', '}'), &parts, room, &whole);
            }
            Json::Array(items) => {
                let parts: Vec<_> = items.iter().map(|item| (None, item)).collect();
                self.put_parts(('[', ']'), &parts, room, &whole);
            }
            _ => {
                self.text.extend(whole.chars().take(room.min(TEXT_CHARS)));
                self.text.push('…');
                self.cut("", &whole);
            }
        }
    }

    /// Writes the parts of an object or a list. All parts together get `room` characters, which they share fairly.
    /// `whole` is the JSON text of the whole object or list.
    fn put_parts(&mut self, (open, close): (char, char), parts: &[(Option<&str>, &Json)], room: usize, whole: &str) {
        let shown = &parts[..parts.len().min(SHOWN_PARTS)];
        let sizes: Vec<_> = shown.iter().map(|(_, value)| canonical(value).chars().count()).collect();
        let share = fair_share(&sizes, room).max(PART_CHARS);
        self.text.push(open);
        for (index, (name, value)) in shown.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            if let Some(name) = name {
                self.put_name(name);
            }
            self.put(value, share);
        }
        if parts.len() > shown.len() {
            self.text.push_str(",…");
            self.cut(&format!("shows {} of {} parts, ", shown.len(), parts.len()), whole);
        }
        self.text.push(close);
    }

    fn put_name(&mut self, name: &str) {
        let whole = canonical(&Json::from(name));
        if whole.chars().count() <= NAME_CHARS {
            self.text.push_str(&whole);
        } else {
            self.text.extend(whole.chars().take(NAME_CHARS));
            self.text.push('…');
            self.cut("", &whole);
        }
        self.text.push(':');
    }

    /// Marks a cut: writes `what`, and the size and the digest of the JSON text `whole` of the part that is cut.
    fn cut(&mut self, what: &str, whole: &str) {
        self.cuts += 1;
        let digest = hex::encode(&Sha256::digest(whole.as_bytes())[..16]);
        // Writing to a string cannot fail.
        let _ = write!(self.text, "⟨cut: {what}{} bytes, sha256 {digest}⟩", whole.len());
    }
}

/// Returns the largest number of characters per part such that all parts, cut to this number, fit into `room`.
fn fair_share(sizes: &[usize], room: usize) -> usize {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let (mut left, mut parts) = (room, sizes.len());
    for size in sizes {
        let share = left / parts.max(1);
        if size > share {
            return share;
        }
        (left, parts) = (left - size, parts - 1);
    }
    room
}

/// Returns JSON text with its members sorted by name, and without invisible characters.
fn canonical(json: &Json) -> String {
    let mut text = String::new();
    write_canonical(json, &mut text);
    text
}

fn write_canonical(json: &Json, out: &mut String) {
    match json {
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_visible(&Json::from(&**name).to_text(), out);
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => write_visible(&scalar.to_text(), out),
    }
}

/// Writes text, and escapes invisible characters and those that change the text's direction.
fn write_visible(text: &str, out: &mut String) {
    for c in text.chars() {
        if !is_hidden(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn shown(text: &str) -> Shown {
        Shown::new(&Json::parse(text).unwrap())
    }

    #[test]
    fn short_arguments_are_whole_and_in_the_order_of_their_names() {
        let shown = shown(r#"{"to":"alice","amount":1,"more":{"z":[],"a":null}}"#);
        assert_eq!(shown.text, r#"{"amount":1,"more":{"a":null,"z":[]},"to":"alice"}"#);
        assert_eq!(shown.cuts, 0);
    }

    #[test]
    fn w3_a_long_member_hides_no_other_wherever_it_stands() {
        let long = "harmless ".repeat(10_000);
        for arguments in [
            format!(r#"{{"aaa":"{long}","to":"mallory","amount":1000000}}"#),
            format!(r#"{{"payment":{{"note":"{long}","to":"mallory"}},"amount":1000000}}"#),
            format!(r#"[{{"note":"{long}"}},{{"to":"mallory","amount":1000000}}]"#),
            format!(r#"{{"a":["{long}","{long}",["{long}"]],"b":{{"to":"mallory","c":{{"amount":1000000}}}}}}"#),
            format!(r#"{{"{long}":1,"to":"mallory","amount":1000000}}"#),
        ] {
            let shown = shown(&arguments);
            assert!(shown.text.contains("\"mallory\"") && shown.text.contains("1000000"), "{}", shown.text);
            assert!(shown.cuts > 0 && shown.text.contains("bytes, sha256 "), "{}", shown.text);
            assert!(shown.text.chars().count() < 2 * SHOWN_CHARS, "{}", shown.text.len());
        }
    }

    #[test]
    fn parts_that_are_too_many_are_counted() {
        let many: Vec<_> = (0..1_000).map(|index| format!(r#""m{index:04}":"{}""#, "x".repeat(100))).collect();
        let shown = shown(&format!("{{{}}}", many.join(",")));
        assert!(shown.text.contains("⟨cut: shows 128 of 1000 parts, "), "{}", shown.text);
        assert!(shown.text.len() < 40_000, "{}", shown.text.len());
    }

    #[test]
    fn deep_arguments_have_an_end() {
        let deep = format!("{}\"{}\"{}", "[".repeat(100), "x".repeat(100_000), "]".repeat(100));
        assert!(shown(&deep).text.len() < 2 * SHOWN_CHARS);
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(shown("\"a\u{202e}b\u{200b}c\u{e0041}\"").text, r#""a\u202eb\u200bc\udb40\udc41""#);
    }

    #[test]
    fn two_values_with_the_same_beginning_have_marks_of_their_own() {
        let long = "x".repeat(5_000);
        assert_ne!(shown(&format!("\"{long}1\"")).text, shown(&format!("\"{long}2\"")).text);
    }
}
