//! The end of a run: its outputs, or its error with the task that failed.

use flowcell::{RunEnd, RunId};

use super::frame::{Line, Style, folded, wrapped};
use crate::arguments::{quote, shell_word};

/// Maximum number of lines of the outputs below the head. All of them are on a page of their own.
const MAX_OUTPUT_LINES: usize = 3;
/// Maximum number of lines of an error below the head.
const MAX_ERROR_LINES: usize = 2;
/// Maximum number of bytes of outputs that the screen keeps as JSON text.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// Maximum number of bytes of outputs below the head.
const MAX_BRIEF_BYTES: usize = 4 * 1024;
/// Maximum number of columns of a line below the head.
const MAX_COLUMNS: usize = 500;

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    error: Option<RunFault>,
    /// The outputs as JSON text for people, or the beginning of them. Empty if the run has none.
    outputs: String,
    /// The beginning of the outputs as JSON text on one line.
    brief: String,
    /// The size in bytes of the outputs as JSON text.
    bytes: usize,
    /// The reason for which the end is unknown, such as damage of the store.
    unknown: Option<String>,
}

/// The error of a failed run.
#[derive(Clone, Debug, PartialEq)]
struct RunFault {
    code: String,
    message: String,
    /// The address of the failed task.
    task: Option<String>,
}

impl Outcome {
    pub(super) fn of(end: &RunEnd) -> Outcome {
        let (outputs, error) = match end {
            RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs } => (outputs, None),
            RunEnd::Failed { outputs, failure, task } => {
                let (code, message) = (failure.code.to_string(), failure.message.to_string());
                (outputs, Some(RunFault { code, message, task: task.clone() }))
            }
        };
        let is_empty = outputs.as_object().is_none_or(|members| members.is_empty());
        if is_empty {
            return Outcome { error, ..Outcome::default() };
        }
        let text = outputs.to_string();
        let whole = (text.len() <= MAX_OUTPUT_BYTES).then(|| serde_json::to_string_pretty(outputs).ok()).flatten();
        let beginning = |most| text[..text.floor_char_boundary(most)].to_owned();
        let brief = beginning(MAX_BRIEF_BYTES);
        let outputs = whole.unwrap_or_else(|| beginning(MAX_OUTPUT_BYTES));
        Outcome { error, outputs, brief, bytes: text.len(), unknown: None }
    }

    pub(super) fn unknown(why: String) -> Outcome {
        Outcome { unknown: Some(why), ..Outcome::default() }
    }

    /// Returns the lines below the head, at most `most`. The last one names the command for the rest. `of`: the run, and the
    /// options that select its tenant and its store.
    pub(super) fn lines(&self, of: (&RunId, &str), width: usize, most: usize) -> Vec<Line> {
        let (width, mut lines) = (width.min(MAX_COLUMNS), Vec::new());
        if let Some(why) = &self.unknown {
            lines
                .extend(styled(Style::Bad, folded(&format!("the outputs are unknown: {why}"), width, MAX_ERROR_LINES)));
        }
        if let Some(RunFault { code, message, task }) = &self.error {
            let at = task.as_ref().map(|task| format!(" at `{task}`")).unwrap_or_default();
            // The code and the task stand before the message, which may be long.
            lines.extend(styled(Style::Bad, folded(&format!("{code}{at}: {message}"), width, MAX_ERROR_LINES)));
        }
        if !self.brief.is_empty() {
            let shown = wrapped(&format!("outputs: {}", self.brief), width, MAX_OUTPUT_LINES + 1);
            let is_cut = shown.len() > MAX_OUTPUT_LINES || self.brief.len() < self.bytes;
            let kept = if is_cut { MAX_OUTPUT_LINES - 1 } else { MAX_OUTPUT_LINES };
            lines.extend(styled(Style::Plain, shown.into_iter().take(kept)));
            let cut = format!("… cut: the outputs have {} bytes", self.bytes);
            lines.extend(is_cut.then(|| Line::of(Style::Attention, &cut)));
        }
        if lines.is_empty() {
            return lines;
        }
        lines.truncate(most.saturating_sub(1).max(1));
        lines.push(Line::of(Style::Faint, &self.command(of.0, of.1)));
        lines.truncate(most);
        lines
    }

    /// Returns the error and the outputs as text, and the commands that print all of it.
    pub(super) fn text(&self, run: &RunId, selection: &str) -> String {
        let mut parts = Vec::new();
        parts.extend(self.unknown.as_ref().map(|why| format!("the outputs are unknown: {why}")));
        if let Some(RunFault { code, message, task }) = &self.error {
            parts.push(format!("error {code}: {message}"));
            parts.extend(task.as_ref().map(|task| format!("at the task `{task}`")));
        }
        if self.outputs.is_empty() {
            parts.push("the run has no outputs".to_owned());
        } else {
            let cut =
                if self.is_cut() { format!("\n… cut: the outputs have {} bytes", self.bytes) } else { String::new() };
            parts.push(format!("outputs:\n{}{cut}", self.outputs));
        }
        parts.push(self.command(run, selection));
        parts.join("\n\n")
    }

    /// Returns the command that prints the outputs, and for a failed task the one that shows its attempts. `selection`: the
    /// options that select the tenant and the store.
    pub(super) fn command(&self, run: &RunId, selection: &str) -> String {
        let run = shell_word(run.as_str());
        match self.error.as_ref().and_then(|error| error.task.as_deref()) {
            Some(task) => format!("`flowcell runs show {run} {}{selection}` shows the task that failed", quote(task)),
            None if self.error.is_some() || self.unknown.is_some() => {
                format!("`flowcell runs show {run}{selection}` shows the run")
            }
            None => format!("`flowcell runs resume {run}{selection}` prints the outputs, and repeats nothing"),
        }
    }

    fn is_cut(&self) -> bool {
        self.bytes > MAX_OUTPUT_BYTES
    }
}

fn styled(style: Style, lines: impl IntoIterator<Item = String>) -> impl Iterator<Item = Line> {
    lines.into_iter().map(move |line| Line::of(style, &line))
}
