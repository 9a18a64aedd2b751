//! The lines of a screen as data, and texts of flows that are cut to the width of a terminal.

use unicode_width::UnicodeWidthChar;

use crate::terminal::inert;

/// Maximum number of characters of one column, so that a text of characters without a width is cut, too.
const MAX_CHARS_PER_COLUMN: usize = 4;
/// Maximum number of characters of a part of a line. A longer text is cut, and ends with `…`.
const MAX_PART_CHARS: usize = 1_000;

/// The look of a part of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    #[default]
    Plain,
    Name,
    Good,
    Bad,
    Attention,
    Faint,
}

/// One line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) parts: Vec<(Style, String)>,
    /// True for the line under the cursor.
    pub(super) is_selected: bool,
}

impl Line {
    /// Returns a line of one part. Its text is escaped.
    pub(super) fn of(style: Style, text: &str) -> Line {
        Line::default().with(style, text)
    }

    /// Adds a part. Its text is escaped. An empty text adds nothing.
    pub(super) fn with(mut self, style: Style, text: &str) -> Line {
        let (start, rest) = match text.char_indices().nth(MAX_PART_CHARS) {
            Some((end, _)) => (&text[..end], "…"),
            None => (text, ""),
        };
        if !text.is_empty() {
            self.parts.push((style, one_line(start) + rest));
        }
        self
    }

    /// Adds a part, two spaces after the part before.
    pub(super) fn apart(self, style: Style, text: &str) -> Line {
        let gap = if text.is_empty() || self.parts.is_empty() { "" } else { "  " };
        self.with(Style::Plain, gap).with(style, text)
    }

    /// Returns the text without its looks.
    pub(super) fn text(&self) -> String {
        self.parts.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Cuts the line to this number of columns. A cut line ends with `…`.
    pub(super) fn cut(mut self, width: usize) -> Line {
        let mut left = width;
        for at in 0..self.parts.len() {
            let text = &self.parts[at].1;
            let is_last = at + 1 == self.parts.len();
            match fitting(text, left) {
                (end, columns) if end == text.len() && (is_last || columns < left) => left -= columns,
                // No part stands behind a part that fills the line.
                _ => {
                    let (end, _) = fitting(text, left.saturating_sub(1));
                    self.parts[at].1.truncate(end);
                    self.parts[at].1.extend((left > 0).then_some('…'));
                    self.parts.truncate(at + 1);
                    break;
                }
            }
        }
        self
    }
}

/// Escapes a text of a flow or a node, and puts it on one line.
pub(super) fn one_line(text: &str) -> String {
    let spaced: String = text.trim_end().chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c }).collect();
    // The escaping removes spaces at the end, which separate parts of a line.
    let end = if text.ends_with(' ') { text.len() - text.trim_end_matches(' ').len() } else { 0 };
    format!("{}{}", inert(&spaced), " ".repeat(end))
}

/// Escapes a text, and cuts it to this number of columns. A cut text ends with `…`.
pub(super) fn shortened(text: &str, width: usize) -> String {
    Line::of(Style::Plain, text).cut(width).text()
}

/// Escapes a text, and returns the end of it that fits into this number of columns. A cut text begins with `…`.
pub(super) fn ending(text: &str, width: usize) -> String {
    let text = one_line(text);
    if fitting(&text, width).0 == text.len() {
        return text;
    }
    let (mut columns, mut start) = (1, text.len());
    let most = width.saturating_mul(MAX_CHARS_PER_COLUMN);
    for (at, letter) in text.char_indices().rev().take(most) {
        columns += letter.width().unwrap_or(0);
        if columns > width {
            break;
        }
        start = at;
    }
    format!("{}{}", if width > 0 { "…" } else { "" }, &text[start..])
}

/// Escapes a text, and breaks it into at most `most` lines. A cut text ends with `…`.
pub(super) fn folded(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = wrapped(text, width, most + 1);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = format!("{}…", &last[..fitting(last, width.saturating_sub(1)).0]);
        }
    }
    lines
}

/// Returns the hints that fit into this number of columns. `hints` has each with its rank: the hint with the highest
/// rank is left out first.
pub(super) fn hints(hints: &[(u8, &str)], width: usize) -> String {
    let mut shown = hints.to_vec();
    loop {
        let line = shown.iter().map(|(_, hint)| *hint).collect::<Vec<_>>().join("  ");
        let last = shown.iter().enumerate().max_by_key(|(_, (rank, _))| *rank).map(|(at, _)| at);
        match last {
            Some(last) if shown.len() > 1 && fitting(&line, width).0 < line.len() => _ = shown.remove(last),
            _ => return line,
        }
    }
}

/// Returns the number of columns of a text that is escaped already.
pub(super) fn columns(text: &str) -> usize {
    fitting(text, usize::MAX).1
}

/// Returns the length in bytes of the longest beginning of a text that fits into this number of columns, and its
/// columns.
fn fitting(text: &str, width: usize) -> (usize, usize) {
    let (mut columns, most) = (0, width.saturating_mul(MAX_CHARS_PER_COLUMN));
    for (count, (at, letter)) in text.char_indices().enumerate() {
        let wide = letter.width().unwrap_or(0);
        if columns + wide > width || count >= most {
            return (at, columns);
        }
        columns += wide;
    }
    (text.len(), columns)
}

/// Escapes a text, and breaks its lines at this number of columns. Returns at most `most` lines.
pub(super) fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.trim_end().split('\n') {
        let escaped = one_line(line.trim_end());
        let mut rest = escaped.as_str();
        loop {
            if lines.len() == most {
                return lines;
            }
            let (fits, _) = fitting(rest, width.max(2));
            // A line ends at a space if one is in its second half.
            let space = rest[..fits].rfind(' ').filter(|at| fits < rest.len() && *at > fits / 2);
            let end = space.map_or(fits, |at| at + 1);
            lines.push(rest[..end].trim_end().to_owned());
            rest = &rest[end..];
            if rest.is_empty() || end == 0 {
                break;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_flows_are_escaped_and_stay_on_one_line() {
        for (text, shown) in [
            ("plain", "plain"),
            ("two\nlines\tand a tab", "two lines and a tab"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{9b}31mred\r", "\\u{9b}31mred"),
            ("pay \u{202e}001", "pay \\u{202e}001"),
            ("a\u{200b}b", "a\\u{200b}b"),
        ] {
            assert_eq!(Line::of(Style::Plain, text).text(), shown);
        }
    }

    #[test]
    fn lines_are_cut_at_columns_and_not_at_characters() {
        let line = |parts: &[&str]| parts.iter().fold(Line::default(), |line, part| line.with(Style::Plain, part));
        let marks = "e".to_owned() + &"\u{301}".repeat(500);
        for (parts, width, shown) in [
            (&["abc", "def"][..], 6, "abcdef"),
            (&["abc", "def"], 5, "abcd…"),
            (&["abc", "def"], 3, "ab…"),
            (&["abc"], 3, "abc"),
            (&["数据库"], 6, "数据库"),
            (&["数据库"], 5, "数据…"),
            (&["数据库"], 4, "数…"),
            (&["abc"], 1, "…"),
            (&["abc"], 0, ""),
            (&[], 0, ""),
        ] {
            assert_eq!(line(parts).cut(width).text(), shown, "{parts:?} {width}");
        }
        let long = Line::of(Style::Plain, &"x".repeat(MAX_PART_CHARS + 1)).text();
        assert_eq!(long, "x".repeat(MAX_PART_CHARS) + "…");
        assert!(line(&[&marks]).cut(20).text().chars().count() <= 20 * MAX_CHARS_PER_COLUMN + 1);
    }

    #[test]
    fn cut_texts_have_a_mark_and_their_columns() {
        for (text, width, start, end) in [
            ("abcdef", 6, "abcdef", "abcdef"),
            ("abcdef", 4, "abc…", "…def"),
            ("数据库", 5, "数据…", "…据库"),
            ("数据库", 4, "数…", "…库"),
            ("a\u{1b}b", 8, "a\\u{1b}b", "a\\u{1b}b"),
            ("a\u{1b}b", 4, "a\\u…", "…b}b"),
            ("ab", 1, "…", "…"),
            ("ab", 0, "", ""),
        ] {
            assert_eq!((&*shortened(text, width), &*ending(text, width)), (start, end), "{text:?} {width}");
        }
        assert_eq!(folded("one two three four", 9, 2), ["one two", "three…"]);
        assert_eq!(folded("one two", 9, 2), ["one two"]);
        let all = [(1, "? help"), (0, "q quit"), (2, "a answer")];
        let shown = |width| hints(&all, width);
        assert_eq!([shown(24), shown(23), shown(13)], ["? help  q quit  a answer", "? help  q quit", "q quit"]);
    }

    #[test]
    fn long_texts_are_wrapped_and_bounded() {
        for (text, width, most, lines) in [
            ("abcdef", 4, 9, &["abcd", "ef"][..]),
            ("ab\n\ncd\n", 4, 9, &["ab", "", "cd"]),
            ("one two three", 9, 9, &["one two", "three"]),
            ("a bcdefghij", 8, 9, &["a bcdefg", "hij"]),
            ("  indented", 6, 9, &["  inde", "nted"]),
            ("数据库", 4, 9, &["数据", "库"]),
            ("abcdef", 2, 2, &["ab", "cd"]),
            ("数据", 0, 9, &["数", "据"]),
            ("", 4, 9, &[""]),
        ] {
            assert_eq!(wrapped(text, width, most), lines, "{text:?} {width}");
        }
    }
}
