//! Standard output and error: colour only where a person sees it, and text of strangers made inert.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

use flowcell::{Diagnostic, Severity};
/// What this process is connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    paint: Paint,
    /// Whether a person sees standard error.
    pub(crate) watched: bool,
    /// Whether a person can be asked.
    pub(crate) interactive: bool,
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    coloured: bool,
}

impl Terminal {
    /// Looks at the process's streams and environment (`NO_COLOR`, `TERM`).
    pub(crate) fn detect() -> Terminal {
        let watched = io::stderr().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Terminal {
            paint: Paint { coloured: watched && !refused && !dumb },
            watched: watched && !dumb,
            interactive: watched && io::stdin().is_terminal(),
        }
    }

    /// The colours of standard error.
    pub(crate) fn paint(self) -> Paint {
        self.paint
    }

    /// The colours of standard output: none if a program reads it.
    pub(crate) fn paint_of_output(self) -> Paint {
        Paint { coloured: self.paint.coloured && io::stdout().is_terminal() }
    }

    /// Writes a line to standard error. If nobody can read it, nobody is told.
    pub(crate) fn say(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// Text that came from a flow or a node, without what a terminal would obey. Further lines are indented.
pub(crate) fn inert(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.trim_end().chars() {
        match c {
            '\n' => out.push_str("\n    "),
            '\t' => out.push(c),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.into()
}

/// A finding, with its head coloured.
pub(crate) fn finding(finding: &Diagnostic, paint: Paint) -> String {
    let text = finding.to_string();
    match finding.severity {
        Severity::Error => text.strip_prefix("error").map(|rest| format!("{}{rest}", paint.bad("error"))),
        Severity::Warning => text.strip_prefix("warning").map(|rest| format!("{}{rest}", paint.odd("warning"))),
    }
    .unwrap_or(text)
}

/// `2 errors, 1 warning`.
pub(crate) fn count(findings: &[Diagnostic]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let counts = [(of(Severity::Error), "error"), (of(Severity::Warning), "warning")];
    let text: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| counted(*count, word)).collect();
    if text.is_empty() { "no findings".into() } else { text.join(", ") }
}

/// `1 node`, `2 nodes`.
pub(crate) fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Something that went wrong.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Something to look at.
    pub(crate) fn odd(self, text: &str) -> String {
        self.wrap("1;33", text)
    }

    /// Something that went well, or helps.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// A name.
    pub(crate) fn name(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Something beside the point.
    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }
}

/// Terminals obey the control characters U+0080 to U+009F too, which JSON does not escape. They can stand only in texts.
pub(crate) fn inert_json(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !text.contains(obeyed) {
        return text.into();
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, c| {
            if obeyed(c) {
                let _ = write!(out, "\\u{:04x}", c as u32);
            } else {
                out.push(c);
            }
            out
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_it_would_obey() {
        let cases = [
            ("plain", "plain"),
            ("two\nlines\n", "two\n    lines"),
            ("a\u{1b}[31mred", "a\\u{1b}[31mred"),
            ("\u{9b}2J\r", "\\u{9b}2J"),
            ("bell\u{7}!", "bell\\u{7}!"),
        ];
        for (text, expected) in cases {
            assert_eq!(inert(text), expected);
        }
        assert_eq!(inert_json("{\"a\": \"\u{9b}2J\"}"), "{\"a\": \"\\u009b2J\"}");
    }
}
