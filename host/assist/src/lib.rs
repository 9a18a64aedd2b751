//! Assistance for editors of flows: diagnostics, completions, explanations, references, and the renaming of nodes.
//!
//! Each function takes a text, the known node types, and the names around the flow. The text may be broken at the
//! cursor. Places are byte offsets; [`positions`] converts them to those of editors. The language server of the command
//! line uses this crate, and other editors can.
//!
//! | module | content |
//! |---|---|
//! | [`positions`] | lines and UTF-16 units |
//! | reading, scalar | the tree of a broken text, and its texts |
//! | dialect | the dialect of a flow, and its schema |
//! | flow, expression, spots | nodes and edges, expressions, and the expressions of a flow |
//! | schemas, names | members by JSON Schemas, and the names that an expression may use |
//! | locate | the key or value at a place |
//! | [`complete`] | completions |
//! | [`hover`] | explanations |
//! | [`references`] | definitions, references and renaming |
//! | [`outline`] | symbols and folding |
//! | [`highlight`] | semantic tokens and hints |
//! | [`fixes`] | corrections of diagnostics |
//! | [`catalog_schema`] | the JSON Schema of flows with all node types |

pub mod catalog_schema;
pub mod complete;
mod dialect;
mod expression;
pub mod fixes;
mod flow;
pub mod highlight;
pub mod hover;
mod locate;
mod names;
pub mod outline;
pub mod positions;
mod reading;
pub mod references;
mod scalar;
mod schemas;
mod spots;

use std::ops::Range;

use flowcell_contract::Catalog;
use flowcell_flow::{CheckContext, Diagnostic, Source};

pub use expression::is_plain_name;

/// Looks up the names around a flow that its text may use. Each is looked up only where it is offered.
pub trait Surroundings {
    /// Returns the names of the flows in the folder.
    fn flows(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of the capabilities that can be granted.
    fn capabilities(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of the secrets.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of the agents that have a file.
    fn agents(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the files in and below a folder. The folder is a relative path with `/` at its end, or empty for the
    /// flow's own folder.
    fn files(&self, _folder: &str) -> Files {
        Files::default()
    }
}

/// Files beside a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The paths, relative to the flow's folder.
    pub paths: Vec<String>,
    /// True if there are more files than are listed.
    pub is_cut: bool,
}

/// Surroundings without any names.
pub struct NoSurroundings;

impl Surroundings for NoSurroundings {}

/// A flow's text with all that is known about it.
#[derive(Clone, Copy)]
pub struct Document<'a> {
    /// The text.
    pub text: &'a str,
    /// The node types that the flow may use.
    pub catalog: &'a Catalog,
    /// The names around the flow.
    pub surroundings: &'a dyn Surroundings,
}

/// A change of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that are replaced.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

/// Returns a text with edits that do not overlap.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut sorted: Vec<_> = edits.iter().collect();
    sorted.sort_by_key(|edit| edit.range.start);
    let (mut result, mut at) = (String::with_capacity(text.len()), 0);
    for edit in sorted {
        result.push_str(text.get(at..edit.range.start).unwrap_or_default());
        result.push_str(&edit.text);
        at = edit.range.end.max(at);
    }
    result.push_str(text.get(at..).unwrap_or_default());
    result
}

/// Returns the diagnostics of a flow, as `flowcell validate` has them.
pub fn diagnose(source: &Source, catalog: &Catalog, context: &dyn CheckContext) -> Vec<Diagnostic> {
    flowcell_flow::load(source, catalog, context).diagnostics
}

/// Returns true if a text is larger than a flow may be. Nothing is offered for it.
fn is_too_large(text: &str) -> bool {
    text.len() > flowcell_flow::limits::DOCUMENT_BYTES
}

#[cfg(test)]
mod kit;
