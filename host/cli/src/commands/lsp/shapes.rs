//! Places, edits and diagnostics as the protocol writes them.

use std::{ops::Range, path::PathBuf};

use flowcell::{Diagnostic, Severity};
use flowcell_assist::{
    Edit, fixes,
    positions::{LineIndex, Position},
};
use serde_json::{Value, json};
use url::Url;

/// A text with its lines.
pub(super) struct Lines<'t> {
    pub(super) text: &'t str,
    index: LineIndex,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str) -> Lines<'t> {
        Lines { text, index: LineIndex::new(text) }
    }

    /// Reads a position; `None` if it is malformed. A number that is too large is a place beyond the end.
    pub(super) fn offset(&self, position: &Value) -> Option<usize> {
        let number = |name: &str| position.get(name)?.as_u64().map(|number| number.min(u64::from(u32::MAX)) as u32);
        let position = Position { line: number("line")?, character: number("character")? };
        Some(self.index.offset(self.text, position))
    }

    /// Reads a range; `None` if it is malformed. An end before the start counts as the start.
    pub(super) fn bytes(&self, range: &Value) -> Option<Range<usize>> {
        let (start, end) = (self.offset(range.get("start")?)?, self.offset(range.get("end")?)?);
        Some(start..end.max(start))
    }

    pub(super) fn position(&self, offset: usize) -> Position {
        self.index.position(self.text, offset)
    }

    pub(super) fn place(&self, offset: usize) -> Value {
        let Position { line, character } = self.position(offset);
        json!({ "line": line, "character": character })
    }

    pub(super) fn range(&self, range: &Range<usize>) -> Value {
        json!({ "start": self.place(range.start), "end": self.place(range.end) })
    }

    pub(super) fn edit(&self, edit: &Edit) -> Value {
        json!({ "range": self.range(&edit.range), "newText": edit.text })
    }

    pub(super) fn edits(&self, edits: &[Edit]) -> Value {
        edits.iter().map(|edit| self.edit(edit)).collect()
    }

    pub(super) fn diagnostic(&self, found: &Diagnostic) -> Value {
        let severity = match found.severity {
            Severity::Error => 1,
            Severity::Warning => 2,
        };
        let message = match &found.help {
            Some(help) => format!("{}\n{help}", found.message),
            None => found.message.clone(),
        };
        let range = fixes::marked(self.text, &self.index, found);
        json!({ "range": self.range(&range), "severity": severity, "code": found.code, "source": "flowcell", "message": message })
    }
}

/// Returns the path of a file; `None` for a text that is in no file.
pub(super) fn path_of(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok()?.to_file_path().ok()
}

/// Returns the URI of a file.
pub(super) fn uri_of(path: &std::path::Path) -> Option<String> {
    Url::from_file_path(std::path::absolute(path).ok()?).ok().map(String::from)
}
