//! `flowcell runs cancel`: cancels a run.

use clap::Args;
use flowcell::{RunCommand, RunId};

use super::record;
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::TenantArgs,
    terminal::Terminal,
};

/// Arguments of `flowcell runs cancel`.
#[derive(Args)]
pub(crate) struct CancelArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    of: TenantArgs,
}

pub(super) fn execute(args: CancelArgs, terminal: Terminal) -> Result<Exit, CliError> {
    record(&args.of, args.run, RunCommand::Cancel, terminal)
}
