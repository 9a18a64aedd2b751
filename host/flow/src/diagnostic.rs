//! Findings: what is wrong, where, why, and what to write instead.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::yaml::Span;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The flow does not run.
    Error,
    /// The flow runs, but probably not as meant.
    Warning,
}

/// Where something stands, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as messages show it.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
    /// How many characters are meant, at least one.
    pub len: usize,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable, snake_case.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// The line that it is in.
    pub excerpt: String,
    /// A sentence.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Diagnostic", 7)?;
        object.serialize_field("code", self.code)?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("file", &self.place.file)?;
        object.serialize_field("line", &self.place.line)?;
        object.serialize_field("column", &self.place.column)?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("help", &self.help)?;
        object.end()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic { code, severity, place, excerpt, message, help } = self;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let margin = " ".repeat(place.line.to_string().len());
        writeln!(formatter, "{severity}[{code}]: {message}")?;
        writeln!(formatter, "{margin}--> {}:{}:{}", place.file, place.line, place.column)?;
        writeln!(formatter, "{margin} |")?;
        writeln!(formatter, "{} | {excerpt}", place.line)?;
        let indent = " ".repeat(place.column.saturating_sub(1));
        write!(formatter, "{margin} | {indent}{}", "^".repeat(place.len))?;
        match help {
            Some(help) => write!(formatter, "\n{margin} = help: {help}"),
            None => Ok(()),
        }
    }
}

/// Collects findings about one text.
pub(crate) struct Findings<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    found: Vec<Diagnostic>,
}

/// Characters of an excerpt.
const EXCERPT: usize = 160;

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Findings<'a> {
        Findings { file, lines: text.lines().collect(), found: Vec::new() }
    }

    pub(crate) fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.add(Severity::Error, code, span, message.into(), help);
    }

    pub(crate) fn warning(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.add(Severity::Warning, code, span, message.into(), help);
    }

    fn add(&mut self, severity: Severity, code: &'static str, span: Span, message: String, help: Option<String>) {
        let line = self.lines.get(span.line.saturating_sub(1)).copied().unwrap_or_default();
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let excerpt: String = line.chars().take(EXCERPT).map(shown).collect();
        let left = excerpt.chars().count().saturating_sub(span.column.saturating_sub(1));
        let len = span.len.clamp(1, left.max(1));
        let place = Place { file: self.file.to_owned(), line: span.line, column: span.column, len };
        self.found.push(Diagnostic { code, severity, place, excerpt, message, help });
    }

    /// Whether anything found keeps the flow from running.
    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// All findings, in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|finding| (finding.place.line, finding.place.column));
        self.found.dedup();
        self.found
    }
}

/// The name that was probably meant.
pub fn similar<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    let scored = names.into_iter().map(|name| (distance(wanted, name), name));
    scored.filter(|(distance, _)| *distance <= allowed).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// "did you mean …?", if something is similar.
pub(crate) fn did_you_mean<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    similar(wanted, names).map(|name| format!("did you mean `{name}`?"))
}

/// Edits from one word to another: insertions, deletions, replacements, swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    if a.len().abs_diff(b.len()) > 3 || a.len().max(b.len()) > 128 {
        return usize::MAX;
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
