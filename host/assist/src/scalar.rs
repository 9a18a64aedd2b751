//! The texts of a tree as a flow sees them: without quotes, escapes and indentation, and with the place of each part in
//! the file.

use std::ops::Range;

use crate::reading::{Kind, Style, Value, inner};

/// The text of a scalar, and the places of its parts in the file.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) style: Style,
    /// Offsets in `text` with their offsets in the file. Between two of them the text stands in the file as it is.
    places: Vec<(usize, usize)>,
    end: usize,
}

impl Scalar {
    /// Reads the text of a value; `None` if the value is no scalar.
    pub(crate) fn new(file: &str, value: &Value) -> Option<Scalar> {
        let Kind::Scalar(style) = value.kind else { return None };
        let range = inner(file, value);
        let mut scalar = Scalar { text: String::with_capacity(range.len()), style, places: Vec::new(), end: range.end };
        let raw = &file[range.clone()];
        match style {
            Style::Double => scalar.unescape(raw, range.start),
            Style::Single => scalar.undouble(raw, range.start),
            Style::Plain => scalar.lines(raw, range.start, " "),
            Style::Block => scalar.lines(raw, range.start, "\n"),
        }
        Some(scalar)
    }

    fn push(&mut self, part: &str, at: usize) {
        if !part.is_empty() {
            self.places.push((self.text.len(), at));
            self.text.push_str(part);
        }
    }

    /// Adds lines without their indentation.
    fn lines(&mut self, raw: &str, start: usize, separator: &str) {
        let mut at = start;
        for (index, line) in raw.split('\n').enumerate() {
            if index > 0 {
                self.push(separator, at - 1);
            }
            let content = line.trim_start_matches([' ', '\t']);
            self.push(content.trim_end_matches('\r'), at + (line.len() - content.len()));
            at += line.len() + 1;
        }
    }

    fn undouble(&mut self, raw: &str, start: usize) {
        let mut at = start;
        for (index, part) in raw.split("''").enumerate() {
            if index > 0 {
                self.push("'", at - 2);
            }
            self.push(part, at);
            at += part.len() + 2;
        }
    }

    fn unescape(&mut self, raw: &str, start: usize) {
        let mut rest = 0;
        while let Some(found) = raw[rest..].find('\\') {
            let slash = rest + found;
            self.push(&raw[rest..slash], start + rest);
            let mut signs = raw[slash + 1..].chars();
            let Some(sign) = signs.next() else { return };
            let digits = match sign {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            let code = raw.get(slash + 2..slash + 2 + digits).filter(|_| digits > 0);
            let decoded = match sign {
                'n' => Some('\n'),
                't' => Some('\t'),
                'r' => Some('\r'),
                _ if digits > 0 => code.and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?)),
                other => Some(other),
            };
            if let Some(decoded) = decoded {
                self.push(decoded.encode_utf8(&mut [0; 4]), start + slash);
            }
            rest = slash + 1 + sign.len_utf8() + code.map_or(0, str::len);
        }
        self.push(&raw[rest..], start + rest);
    }

    /// Returns the place of a byte of the text in the file.
    pub(crate) fn to_file(&self, at: usize) -> usize {
        let next = self.places.partition_point(|(text, _)| *text <= at);
        match next.checked_sub(1).and_then(|index| self.places.get(index)) {
            Some((text, file)) => (file + (at - text)).min(self.end),
            None => self.places.first().map_or(self.end, |(_, file)| *file),
        }
    }

    /// Returns the place of a part of the text in the file.
    pub(crate) fn range_to_file(&self, range: &Range<usize>) -> Range<usize> {
        let range = self.text.floor_char_boundary(range.start)..self.text.floor_char_boundary(range.end);
        if range.is_empty() {
            let at = self.to_file(range.start);
            return at..at;
        }
        let last = self.text[..range.end].char_indices().next_back().map_or(range.start, |(at, _)| at);
        let length = range.end - last;
        self.to_file(range.start)..(self.to_file(last) + length).min(self.end).max(self.to_file(range.start))
    }

    /// Returns the byte of the text that stands at a place of the file.
    pub(crate) fn offset_of(&self, at: usize) -> usize {
        let next = self.places.partition_point(|(_, file)| *file <= at);
        let Some((text, file)) = next.checked_sub(1).and_then(|index| self.places.get(index)) else { return 0 };
        let end = self.places.get(next).map_or(self.text.len(), |(text, _)| *text);
        (text + (at - file)).min(end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::reading::read;

    fn scalar(file: &str) -> Scalar {
        let tree = read(file);
        Scalar::new(file, tree.member("a").unwrap()).unwrap()
    }

    #[test]
    fn texts_of_all_styles_have_the_places_of_their_parts() {
        let cases = [
            ("a: x {{ w }} z\n", "x {{ w }} z", "{{ w }}"),
            ("a: \"x \\\"q\\\" \\u00e9 {{ w }}\"\n", "x \"q\" é {{ w }}", "{{ w }}"),
            ("a: 'it''s {{ w }}'\n", "it's {{ w }}", "{{ w }}"),
            ("a: |\n    one\n    {{ w }}\nb: c\n", "one\n{{ w }}", "{{ w }}"),
            ("a: one\n  {{ w }}\n", "one {{ w }}", "{{ w }}"),
        ];
        for (file, text, part) in cases {
            let scalar = scalar(file);
            assert_eq!(scalar.text, text);
            let at = scalar.text.find(part).unwrap();
            let range = scalar.range_to_file(&(at..at + part.len()));
            assert_eq!(&file[range.clone()], part, "{file}");
            assert_eq!(scalar.offset_of(range.start), at);
        }
    }

    #[test]
    fn unfinished_escapes_and_quotes_end_with_the_text() {
        for (file, text) in [("a: \"x\\", "x"), ("a: \"x\\u12", "x12"), ("a: '", ""), ("a: \"\\ud800b\"", "b")] {
            let scalar = scalar(file);
            assert_eq!(scalar.text, text, "{file}");
            assert!(scalar.to_file(99) <= file.len() && scalar.offset_of(99) <= text.len());
        }
    }
}
