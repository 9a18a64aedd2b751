//! `flowcell runs label`: sets and removes labels of one run.

use std::collections::BTreeMap;

use clap::Args;
use flowcell::{LabelChange, RunId, tenants::operation::Operation};

use crate::{
    arguments::{label, run_id},
    cli_error::{CliError, Exit},
    options::TenantArgs,
    owner::operate,
    terminal::{Terminal, counted},
};

/// Arguments of `flowcell runs label`.
#[derive(Args)]
pub(crate) struct LabelArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    change: LabelChangeArgs,
    #[command(flatten)]
    of: TenantArgs,
}

/// The labels to set and to remove.
#[derive(Args)]
pub(super) struct LabelChangeArgs {
    /// Set this label, also if the run has one of this name; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = label, required_unless_present = "remove")]
    set: Vec<(String, String)>,
    /// Remove the label with this name; may be repeated
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
}

impl LabelChangeArgs {
    pub(super) fn change(self) -> Result<LabelChange, CliError> {
        let set: BTreeMap<_, _> = self.set.iter().cloned().collect();
        if set.len() < self.set.len() {
            return Err(CliError::wrong("a label is set twice; give each name once"));
        }
        Ok(LabelChange { set, remove: self.remove.into_iter().collect() })
    }
}

pub(super) fn execute(args: LabelArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let (tenant, change) = (args.of.tenant.clone(), args.change.change()?);
    let counts = (change.set.len(), change.remove.len());
    operate(Operation::LabelRun { tenant, run: args.run.clone(), change }, &args.of.store)?;
    let (set, removed) = (counted(counts.0, "label"), counted(counts.1, "label"));
    terminal.say(&format!("set {set} and removed {removed} of the run `{}`", args.run));
    Ok(Exit::Good)
}
