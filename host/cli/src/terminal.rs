//! Writes to the terminal. Colours appear only on a terminal, and untrusted text is escaped: terminal commands, and
//! deceptive characters, which are invisible or change the order of the text.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

use crate::log;
use flowcell::{
    Diagnostic, Severity,
    contract::text::{has_deceptive, judged},
};

/// The codes that start the colours of [`Paint`], and `0`, which ends a colour.
const COLOURS: [&str; 6] = ["1;31", "1;33", "32", "1", "2", "0"];

/// The properties of the process's standard streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    paint: Paint,
    /// True if standard error is a terminal that can show a status line.
    pub(crate) watched: bool,
    /// True if a person can be asked, because standard input and standard error are terminals.
    pub(crate) interactive: bool,
}

/// Adds colours to texts, or returns them unchanged if colours are off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    coloured: bool,
}

impl Terminal {
    /// Inspects the process's streams and environment (`NO_COLOR`, `TERM`).
    pub(crate) fn detect() -> Terminal {
        let watched = io::stderr().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = is_dumb();
        Terminal {
            paint: Paint { coloured: watched && !refused && !dumb },
            watched: watched && !dumb,
            interactive: watched && io::stdin().is_terminal(),
        }
    }

    /// Returns the colours of standard error.
    pub(crate) fn paint(self) -> Paint {
        Paint { coloured: self.paint.coloured && !log::is_json() }
    }

    /// Returns the colours of standard output. They are off if standard output is not a terminal.
    pub(crate) fn paint_of_output(self) -> Paint {
        Paint { coloured: self.paint.coloured && io::stdout().is_terminal() }
    }

    /// Returns whether standard output is a terminal.
    pub(crate) fn shows_output(self) -> bool {
        io::stdout().is_terminal()
    }

    /// Returns whether a person at a terminal can use a full screen: standard input and standard output are terminals that
    /// can move the cursor.
    pub(crate) fn has_full_screen(self) -> bool {
        !is_dumb() && self.shows_output() && io::stdin().is_terminal()
    }

    /// Writes a line to standard error, with terminal commands escaped. Write errors are ignored. If the log has the
    /// format JSON, the line becomes a line of the log.
    pub(crate) fn say(self, text: &str) {
        self.write("info", text);
    }

    /// Writes a warning to standard error.
    pub(crate) fn warn(self, text: &str) {
        if log::is_json() {
            log::put_json("warn", &guarded(text));
        } else {
            self.write("warn", &format!("{}: {text}", self.paint().warning("warning")));
        }
    }

    /// Writes an error to standard error.
    pub(crate) fn fail(self, text: &str) {
        self.write("error", text);
    }

    fn write(self, level: &str, text: &str) {
        if log::is_json() {
            log::put_json(level, &guarded(text));
        } else {
            let _ = writeln!(io::stderr().lock(), "{}", guarded(text));
        }
    }
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Escapes the terminal commands and deceptive characters in a text of a flow or a node. Lines after the first are
/// indented.
pub(crate) fn inert(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) && !has_deceptive(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (c, deceptive) in judged(text.trim_end()) {
        match c {
            '\n' => out.push_str("\n    "),
            '\t' => out.push(c),
            c if deceptive || c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.into()
}

/// Escapes terminal commands and deceptive characters as the last step before the terminal. Line breaks, tabs and the
/// colours of [`Paint`] remain.
pub(crate) fn guarded(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) && !has_deceptive(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut pieces = text.split("\u{1b}[");
    guard_piece(&mut out, pieces.next().unwrap_or_default());
    for piece in pieces {
        let colour = piece.split_once('m').filter(|(colour, _)| COLOURS.contains(colour));
        match colour {
            Some((colour, rest)) => {
                let _ = write!(out, "\u{1b}[{colour}m");
                guard_piece(&mut out, rest);
            }
            None => {
                out.push_str("\\u{1b}[");
                guard_piece(&mut out, piece);
            }
        }
    }
    out.into()
}

fn is_obeyed(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

fn guard_piece(out: &mut String, piece: &str) {
    for (c, deceptive) in judged(piece) {
        if deceptive || is_obeyed(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
}

/// Formats a diagnostic with a coloured severity.
pub(crate) fn finding(finding: &Diagnostic, paint: Paint) -> String {
    let text = finding.to_string();
    match finding.severity {
        Severity::Error => text.strip_prefix("error").map(|rest| format!("{}{rest}", paint.error("error"))),
        Severity::Warning => text.strip_prefix("warning").map(|rest| format!("{}{rest}", paint.warning("warning"))),
    }
    .unwrap_or(text)
}

/// Returns the numbers of errors and warnings as text: `2 errors, 1 warning`.
pub(crate) fn count(findings: &[Diagnostic]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let counts = [(of(Severity::Error), "error"), (of(Severity::Warning), "warning")];
    let text: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| counted(*count, word)).collect();
    if text.is_empty() { "no findings".into() } else { text.join(", ") }
}

/// Returns a count with its word in the singular or the plural: `1 node`, `2 nodes`.
pub(crate) fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

impl Paint {
    /// Returns a paint without colours.
    pub(crate) fn plain() -> Paint {
        Paint { coloured: false }
    }

    /// Returns whether texts get colours.
    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Colours an error.
    pub(crate) fn error(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Colours a warning.
    pub(crate) fn warning(self, text: &str) -> String {
        self.wrap("1;33", text)
    }

    /// Colours a success or a hint.
    pub(crate) fn success(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Emphasizes a name.
    pub(crate) fn name(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Dims less important text.
    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }
}

/// Escapes deceptive characters, and the control characters U+007F to U+009F, in a JSON text, where they occur only
/// inside strings. JSON need not escape them, but terminals obey the control characters.
pub(crate) fn inert_json(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !text.contains(obeyed) && !has_deceptive(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for (c, deceptive) in judged(text) {
        if deceptive || obeyed(c) {
            let _ = c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_commands_in_texts_are_escaped() {
        let cases = [
            ("plain", "plain"),
            ("two\nlines\n", "two\n    lines"),
            ("a\u{1b}[31mred", "a\\u{1b}[31mred"),
            ("\u{9b}2J\r", "\\u{9b}2J"),
            ("bell\u{7}!", "bell\\u{7}!"),
            ("pay \u{202e}001", "pay \\u{202e}001"),
            ("a\u{200b}b", "a\\u{200b}b"),
        ];
        for (text, expected) in cases {
            assert_eq!(inert(text), expected);
        }
        assert_eq!(inert_json("{\"a\": \"\u{9b}2J\"}"), "{\"a\": \"\\u009b2J\"}");
        assert_eq!(inert_json("\"\u{202e}\u{e0041}\""), "\"\\u202e\\udb40\\udc41\"");
    }

    #[test]
    fn the_last_guard_escapes_everything_but_colours() {
        let paint = Paint { coloured: true };
        let painted = format!("{}\n\t{} {}", paint.error("error"), paint.name("a"), paint.faint("b"));
        assert_eq!(guarded(&painted), painted);
        for (text, shown) in [
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{1b}[8mhidden\u{1b}[0m", "\\u{1b}[8mhidden\u{1b}[0m"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{1b}", "\\u{1b}"),
            ("a\rb\u{202e}c", "a\\u{d}b\\u{202e}c"),
            ("\u{1b}[1;31", "\\u{1b}[1;31"),
        ] {
            assert_eq!(guarded(text), shown);
        }
    }
}
