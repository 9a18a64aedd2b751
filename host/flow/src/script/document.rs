//! A script in YAML or JSON, `{ name, script }`, for callers that send one document instead of a file.

use super::ENDING;
use crate::{
    Source,
    diagnostic::Diagnostics,
    fields::{check_keys, entries, flow_name, required},
    yaml::Tree,
};

const TOP_LEVEL_KEYS: [&str; 2] = ["name", "script"];

/// Returns true if a document has this form.
pub(crate) fn is_document(tree: &Tree) -> bool {
    let elsewhere = ["flow", "nodes", "steps"].iter().any(|key| tree.member(key).is_some());
    tree.member("script").is_some() && !elsewhere
}

/// Returns a script file with the same name and text; `None` if the document has errors.
pub(crate) fn read(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Source> {
    check_keys(entries(tree, "a flow", diagnostics), &TOP_LEVEL_KEYS, diagnostics);
    let name = flow_name(tree, diagnostics);
    let (text, _) = required(tree, "script", "flow", diagnostics);
    (!diagnostics.has_errors()).then(|| Source { name: format!("{name}{ENDING}"), text })
}
