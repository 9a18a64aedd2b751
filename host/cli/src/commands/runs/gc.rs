//! `flowcell runs gc`: deletes old runs and the data that no run refers to.

use std::time::Duration;

use clap::Args;
use flowcell::{RunId, Swept};
use serde::Serialize;

use crate::{
    cli_error::{CliError, Exit},
    duration,
    options::{PackArgs, StoreArgs},
    output::{put_json, put_line},
    owner::require_durable,
    terminal::{Terminal, counted},
};

/// Arguments of `flowcell runs gc`.
#[derive(Args)]
#[group(required = true, multiple = true, args = ["older_than", "keep"])]
pub(crate) struct GcArgs {
    /// Remove runs that ended longer ago than this, such as 12h or 30d
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    older_than: Option<Duration>,
    /// Keep only this many of the runs that ended last, regardless of their age
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Print the result as JSON: { "runs": [...], "blobs": N, "bytes": N }
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

/// The deleted data.
#[derive(Serialize)]
struct Removed {
    runs: Vec<RunId>,
    #[serde(flatten)]
    swept: Swept,
}

pub(super) fn execute(args: &GcArgs, terminal: Terminal) -> Result<Exit, CliError> {
    require_durable(&args.store)?;
    let host = PackArgs::default().host_with(&args.store)?;
    let runs = host.collect(args.older_than, args.keep)?;
    let removed = Removed { runs, swept: host.sweep()? };
    if args.json {
        put_json(&removed)?;
        return Ok(Exit::Good);
    }
    removed.runs.iter().try_for_each(|run| put_line(run.as_str()))?;
    terminal.say(&terminal.paint().faint(&removed.line()));
    Ok(Exit::Good)
}

impl Removed {
    fn line(&self) -> String {
        let runs = counted(self.runs.len(), "run");
        let blobs = counted(usize::try_from(self.swept.blobs).unwrap_or(usize::MAX), "blob");
        let freed = self.swept.bytes;
        format!("removed {runs} and {blobs}, which frees {freed} bytes; the store keeps its size and reuses the space")
    }
}
