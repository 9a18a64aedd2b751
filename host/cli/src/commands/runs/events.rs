//! `flowcell runs events`: prints the events of a run as JSON lines.

use clap::Args;
use flowcell::RunId;

use super::each_event;
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    output::JsonLines,
};

/// Arguments of `flowcell runs events`.
#[derive(Args)]
pub(crate) struct EventsArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// The number of the first event
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    of: TenantArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &EventsArgs) -> Result<Exit, CliError> {
    let host = args.of.reading_host(&args.packs)?;
    let mut lines = JsonLines::default();
    each_event(&host, &args.run, args.from, |event| lines.put(&event))?;
    lines.end()?;
    Ok(Exit::Good)
}
