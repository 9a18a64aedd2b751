//! `flowcell runs delete`: deletes single runs.

use clap::Args;
use flowcell::{RunId, tenants::operation::Operation};

use super::gc::put_removed;
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::{TenantArgs, room::release},
    owner::operate,
    terminal::Terminal,
};

/// Arguments of `flowcell runs delete`.
#[derive(Args)]
pub(crate) struct DeleteArgs {
    /// The ids of the runs; if one of them cannot be deleted, none is
    #[arg(value_name = "RUN", required = true, value_parser = run_id)]
    runs: Vec<RunId>,
    /// Print the result as JSON: { "runs": [...], "blobs": N, "bytes": N, "fileBytes": N }
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
}

pub(super) fn execute(args: DeleteArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let delete = Operation::DeleteRuns { tenant: args.of.tenant.clone(), runs: args.runs };
    release(&args.of.store, terminal)?;
    let removed = operate(delete, &args.of.store)?;
    put_removed(&removed, args.json, &args.of.tenant, terminal)
}
