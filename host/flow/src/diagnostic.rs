//! Diagnostics: the cause, the position and a suggested correction of each mistake in a flow.

use std::{collections::HashMap, fmt, time::Duration};

use flowcell_contract::text::judged;
pub(crate) use flowcell_expr::{did_you_mean, similar};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{copies::Copies, flow_names::FlowNames, limits, probe::Probe, yaml::Span};

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The flow cannot run.
    Error,
    /// The flow can run, but probably not as intended.
    Warning,
}

/// The set of rules that a check applies. A rule that is added in a later version must not make the flows in a library
/// invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CheckMode {
    /// All rules, for a flow that is validated or run from a file.
    #[default]
    New,
    /// All rules, and every name in a trigger must exist; for a flow that is added to a library.
    Adding,
    /// The rules of earlier versions, for a flow in a library, its triggers, and accepted runs. Violations of newer
    /// rules are warnings.
    Stored,
}

/// A position in a file. Lines and columns start at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// File name as messages show it.
    pub file: String,
    /// Line number in the file.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
    /// Number of marked characters, at least 1.
    pub len: usize,
}

/// An edit of one line of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Line number in the file, from 1.
    pub line: usize,
    /// Column of the first replaced character, from 1.
    pub column: usize,
    /// Number of replaced characters.
    pub len: usize,
    /// The text that replaces them.
    pub text: String,
}

impl Fix {
    /// Returns the edit that a help of the form "did you mean `name`?" asks for: it replaces the wrong name, which the
    /// message quotes, within the marked place. Returns `None` if the name is not there exactly once.
    fn new(line: &str, span: Span, message: &str, help: Option<&str>) -> Option<Fix> {
        let meant = help?.strip_prefix("did you mean `")?.strip_suffix("`?")?;
        let marked: String = line.chars().skip(span.column.saturating_sub(1)).take(span.len).collect();
        let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/@*".contains(c));
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let place = |name: &str| {
            let mut places = marked.match_indices(name).map(|(at, _)| at);
            let at = places.next().filter(|_| places.next().is_none())?;
            let (before, after) = (marked[..at].chars().next_back(), marked[at + name.len()..].chars().next());
            (!before.is_some_and(is_part) && !after.is_some_and(is_part)).then_some(at)
        };
        let quoted = message.split('`').skip(1).step_by(2).filter(|name| !name.is_empty());
        let (wrong, at) = quoted.filter_map(|name| Some((name, place(name)?))).next()?;
        if !is_plain(meant) || !is_plain(wrong) {
            return None;
        }
        let column = span.column + marked[..at].chars().count();
        Some(Fix { line: span.line, column, len: wrong.chars().count(), text: meant.to_owned() })
    }
}

/// A diagnostic of a flow or an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code in snake_case.
    pub code: &'static str,
    /// Severity of the diagnostic.
    pub severity: Severity,
    /// The marked position.
    pub location: Location,
    /// The line at the position. A long line is cut to 160 characters around the position.
    pub excerpt: String,
    /// One sentence about the mistake.
    pub message: String,
    /// A suggested correction.
    pub help: Option<String>,
    /// An edit that makes the correction, if it replaces one name.
    pub fix: Option<Fix>,
    /// True if the diagnostic comes from a rule that a later version added. A violation of such a rule is an error
    /// under [`CheckMode::New`] and [`CheckMode::Adding`], and a warning under [`CheckMode::Stored`].
    pub new_rule: bool,
    /// Number of characters of the excerpt that stand before the marked position.
    indent: usize,
}

impl Diagnostic {
    /// Creates an error that the caller has found itself, without a check of the text. The excerpt is taken from
    /// `text`.
    pub fn error(code: &'static str, text: &str, location: Location, message: &str, help: Option<&str>) -> Diagnostic {
        let line = text.lines().nth(location.line.saturating_sub(1)).unwrap_or_default();
        let (excerpt, indent) = excerpt(line, location.column.saturating_sub(1));
        let (message, help) = (sanitized(message), help.map(sanitized));
        let severity = Severity::Error;
        Diagnostic { code, severity, location, excerpt, message, help, fix: None, new_rule: false, indent }
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Diagnostic", 7)?;
        object.serialize_field("code", self.code)?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("file", &self.location.file)?;
        object.serialize_field("line", &self.location.line)?;
        object.serialize_field("column", &self.location.column)?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("help", &self.help)?;
        object.end()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic { code, severity, location, excerpt, message, help, indent, .. } = self;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let margin = " ".repeat(location.line.to_string().len());
        writeln!(formatter, "{severity}[{code}]: {message}")?;
        writeln!(formatter, "{margin}--> {}:{}:{}", sanitized(&location.file), location.line, location.column)?;
        writeln!(formatter, "{margin} |")?;
        writeln!(formatter, "{} | {excerpt}", location.line)?;
        let room = excerpt.chars().count().saturating_sub(*indent).max(1);
        write!(formatter, "{margin} | {}{}", " ".repeat(*indent), "^".repeat(location.len.min(room)))?;
        match help {
            Some(help) => write!(formatter, "\n{margin} = help: {help}"),
            None => Ok(()),
        }
    }
}

/// Collects the diagnostics of one text.
pub(crate) struct Diagnostics<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    mode: CheckMode,
    found: Vec<Diagnostic>,
    errors: usize,
    /// Number of diagnostics that were reported after [`limits::DIAGNOSTICS`] others. They are counted but not kept.
    more: usize,
    /// The copies of fragments in the text.
    pub(crate) copies: Copies,
    /// The names of flows that an unknown name may mean.
    pub(crate) flow_names: FlowNames,
    /// The diagnostics about fragments, by code, place and message: their indices in `found`, and the copies that have them.
    in_copies: HashMap<(&'static str, usize, String), (usize, Vec<u32>)>,
    /// Time spent compiling and applying schemas.
    pub(crate) schema_time: Duration,
    /// The expression that stands in the flow of this check.
    pub(crate) probe: Option<&'a Probe>,
    /// The diagnostics of that expression, once it has been compiled.
    pub(crate) probed: Option<Vec<Diagnostic>>,
}

/// The name of the file in the diagnostics of a probe.
const PROBE_FILE: &str = "expression";
/// Maximum number of characters in an excerpt.
const MAX_EXCERPT_CHARS: usize = 160;
/// Number of characters that an excerpt of a long line shows before the position.
const CHARS_BEFORE_POSITION: usize = 40;

impl<'a> Diagnostics<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str, mode: CheckMode) -> Diagnostics<'a> {
        Diagnostics {
            file,
            lines: text.lines().collect(),
            mode,
            found: Vec::new(),
            errors: 0,
            more: 0,
            copies: Copies::default(),
            flow_names: FlowNames::default(),
            in_copies: HashMap::new(),
            schema_time: Duration::ZERO,
            probe: None,
            probed: None,
        }
    }

    /// Compiles the probe of this check if it stands at this node, or for `None` in the outputs. The probe has diagnostics
    /// of its own.
    pub(crate) fn compile_probe<T>(
        &mut self,
        node: Option<&str>,
        compile: impl FnOnce(&str, &mut Diagnostics<'_>) -> T,
    ) -> Option<T> {
        let probe = self.probe.filter(|probe| probe.node.as_deref() == node)?;
        let mut diagnostics = Diagnostics::new(PROBE_FILE, &probe.expression, CheckMode::New);
        let compiled = compile(&probe.expression, &mut diagnostics);
        self.probed = Some(diagnostics.finish());
        Some(compiled)
    }

    /// Returns the mode of this check.
    pub(crate) fn mode(&self) -> CheckMode {
        self.mode
    }

    /// Reports a violation of a rule that a later version added. The violation is an error in a new flow, and a warning
    /// in a flow that a library already has.
    pub(crate) fn new_rule(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        let (severity, message) = match self.mode {
            CheckMode::New | CheckMode::Adding => (Severity::Error, message.into()),
            CheckMode::Stored => {
                (Severity::Warning, format!("{}; a new version of this flow will be refused", message.into()))
            }
        };
        self.errors += usize::from(severity == Severity::Error);
        if self.add(severity, code, span, message, help)
            && let Some(added) = self.found.last_mut()
        {
            added.new_rule = true;
        }
    }

    pub(crate) fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.errors += 1;
        self.add(Severity::Error, code, span, message.into(), help);
    }

    pub(crate) fn warning(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.add(Severity::Warning, code, span, message.into(), help);
    }

    /// Adds a diagnostic and returns true. If [`limits::DIAGNOSTICS`] diagnostics were added before, only counts it and
    /// returns false. If another copy of the same fragment has the diagnostic already, only notes the use and returns false.
    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        span: Span,
        message: String,
        help: Option<String>,
    ) -> bool {
        let (message, help) = (sanitized(&message), help.map(|help| sanitized(&help)));
        let message = self.copies.restore(span.copy, message);
        let help = help.map(|help| self.copies.restore(span.copy, help));
        if span.copy > 0 {
            let index = self.found.len();
            let same = self.in_copies.entry((code, span.start, message.clone())).or_insert((index, Vec::new()));
            let is_new = same.1.is_empty();
            if same.1.last() != Some(&span.copy) {
                same.1.push(span.copy);
            }
            if !is_new {
                return false;
            }
        }
        if self.is_full() {
            self.more += 1;
            return false;
        }
        let line = self.lines.get(span.line.saturating_sub(1)).copied().unwrap_or_default();
        let (excerpt, indent) = excerpt(line, span.column.saturating_sub(1));
        let left = line.chars().skip(span.column.saturating_sub(1)).take(MAX_EXCERPT_CHARS).count();
        let location = Location {
            file: self.file.to_owned(),
            line: span.line,
            column: span.column,
            len: span.len.clamp(1, left.max(1)),
        };
        let fix = Fix::new(line, span, &message, help.as_deref());
        self.found.push(Diagnostic { code, severity, location, excerpt, message, help, fix, new_rule: false, indent });
        true
    }

    /// Returns true if [`limits::DIAGNOSTICS`] diagnostics were added. Further ones are only counted, so callers need
    /// not compute their texts.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= limits::DIAGNOSTICS
    }

    /// Returns true if an error was reported.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns the number of errors that were reported.
    pub(crate) fn error_count(&self) -> usize {
        self.errors
    }

    /// Returns the diagnostics in the order of the text. If some were only counted, adds a last diagnostic with their
    /// number.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        for (index, copies) in self.in_copies.values() {
            if let Some(diagnostic) = self.found.get_mut(*index) {
                diagnostic.message.push_str(&self.copies.named(copies));
            }
        }
        self.found.sort_by_key(|diagnostic| (diagnostic.location.line, diagnostic.location.column));
        self.found.dedup();
        if self.more > 0 {
            let location = Location { file: self.file.to_owned(), line: 1, column: 1, len: 1 };
            let (excerpt, indent) = excerpt(self.lines.first().copied().unwrap_or_default(), 0);
            self.found.push(Diagnostic {
                code: "too_many_findings",
                severity: Severity::Error,
                location,
                excerpt,
                message: format!("{} more diagnostics are not shown", self.more),
                help: Some("fix the ones above, then check again".into()),
                fix: None,
                new_rule: false,
                indent,
            });
        }
        self.found
    }
}

/// Returns a part of a line around the column `at`, and the number of characters in this part before that column. A
/// short line is returned completely.
fn excerpt(line: &str, at: usize) -> (String, usize) {
    let length = line.chars().take(at + MAX_EXCERPT_CHARS + 1).count();
    let from = if length <= MAX_EXCERPT_CHARS { 0 } else { at.saturating_sub(CHARS_BEFORE_POSITION) };
    let cut = sanitized(&line.chars().skip(from).take(MAX_EXCERPT_CHARS).collect::<String>());
    let start = if from > 0 { "… " } else { "" };
    (format!("{start}{cut}"), at.min(length) - from + start.chars().count())
}

/// Replaces line breaks and tabs with spaces. Replaces other control characters, and characters that make a text look
/// like another one, with U+FFFD.
pub(crate) fn sanitized(text: &str) -> String {
    let replace = |(c, deceptive): (char, bool)| match c {
        '\n' | '\r' | '\t' => ' ',
        c if deceptive || c.is_control() => '\u{fffd}',
        c => c,
    };
    judged(text).map(replace).collect()
}
