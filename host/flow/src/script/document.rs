//! A script in YAML or JSON, `{ name, script }`, for callers that send one document instead of a file.

use super::ENDING;
use crate::{
    Source,
    diagnostic::Findings,
    fields::{entries, flow_name, known, required},
    yaml::Tree,
};

const TOP: [&str; 2] = ["name", "script"];

/// Returns true if a document has this form.
pub(crate) fn is_written(tree: &Tree) -> bool {
    let elsewhere = ["flow", "nodes", "steps"].iter().any(|key| tree.member(key).is_some());
    tree.member("script").is_some() && !elsewhere
}

/// Returns the equivalent script file; `None` if the document has errors.
pub(crate) fn read(tree: &Tree, findings: &mut Findings<'_>) -> Option<Source> {
    known(entries(tree, "a flow", findings), &TOP, findings);
    let name = flow_name(tree, findings);
    let (text, _) = required(tree, "script", "flow", findings);
    (!findings.has_errors()).then(|| Source { name: format!("{name}{ENDING}"), text })
}
