//! A script that is written in YAML or JSON, `{ name, script }`: for whoever has no file to hand over.

use super::ENDING;
use crate::{
    Source,
    diagnostic::Findings,
    fields::{entries, flow_name, known, required},
    yaml::Tree,
};

const TOP: [&str; 2] = ["name", "script"];

/// Whether a text is written so.
pub(crate) fn is_written(tree: &Tree) -> bool {
    let elsewhere = ["flow", "nodes", "steps"].iter().any(|key| tree.member(key).is_some());
    tree.member("script").is_some() && !elsewhere
}

/// The file that it stands for; none: something is wrong about it.
pub(crate) fn read(tree: &Tree, findings: &mut Findings<'_>) -> Option<Source> {
    known(entries(tree, "a flow", findings), &TOP, findings);
    let name = flow_name(tree, findings);
    let (text, _) = required(tree, "script", "flow", findings);
    (!findings.has_errors()).then(|| Source { name: format!("{name}{ENDING}"), text })
}
