//! The nodes that have another name in another version of a flow: the option, and the names in plans.

use clap::Args;
use flowcell::{Renamed, Renames, contract::NodeId};

use crate::cli_error::CliError;

/// The option `--rename`.
#[derive(Args)]
pub(super) struct RenameArgs {
    /// A node that has another name in the version, with the new name; it counts as the same node. May be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = renamed)]
    rename: Vec<(NodeId, NodeId)>,
}

impl RenameArgs {
    /// Returns true if no node has another name.
    pub(super) fn is_empty(&self) -> bool {
        self.rename.is_empty()
    }

    /// Returns the names. Fails if a node has two new names.
    pub(super) fn renames(&self) -> Result<Renames, CliError> {
        let mut renames = Renames::new();
        for (old, new) in &self.rename {
            if renames.insert(old.clone(), new.clone()).is_some_and(|other| other != *new) {
                return Err(CliError::wrong(format!("`--rename` gives `{old}` two names; give it one")));
            }
        }
        Ok(renames)
    }
}

fn renamed(text: &str) -> Result<(NodeId, NodeId), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("write `OLD=NEW`, such as `pay=charge`".into()),
    }
}

/// Returns the nodes that have another name in the version, for people.
pub(super) fn names_of(renamed: &[Renamed]) -> String {
    renamed.iter().map(|node| format!("{} ({})", node.node, node.name)).collect::<Vec<_>>().join(", ")
}

/// Returns the options for nodes that may have other names in the version.
pub(super) fn suggestion(similar: &[Renamed]) -> Option<String> {
    let option = |node: &Renamed| format!("--rename {}={}", node.node, node.name);
    let options: Vec<_> = similar.iter().map(option).collect();
    (!options.is_empty()).then(|| format!("if a node only has another name, add `{}`", options.join(" ")))
}
