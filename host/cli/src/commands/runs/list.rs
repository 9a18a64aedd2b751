//! `flowcell runs list`: lists the runs in the store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use flowcell::{Filter, RunRow, contract::Tenant};

use crate::{
    cli_error::{CliError, Exit},
    duration,
    options::{PackArgs, TenantArgs},
    output::{put, put_json},
    owner::unreadable,
    terminal::inert,
};

/// Arguments of `flowcell runs list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// List only runs of this flow
    #[arg(long, value_name = "NAME")]
    flow: Option<String>,
    /// List only runs with this status
    #[arg(long, value_parser = ["active", "parked", "needs_attention", "succeeded", "failed", "cancelled"])]
    status: Option<String>,
    /// The maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
}

pub(super) fn execute(args: &ListArgs) -> Result<Exit, CliError> {
    let filter = Filter { flow: args.flow.clone(), status: args.status.clone(), limit: args.limit, after: None };
    if args.of.tenant() != Tenant::local() {
        // Fails if the tenant does not exist.
        args.of.reading_host(&PackArgs::default())?;
    }
    let rows = args.of.store.reader()?.runs(&args.of.tenant(), &filter).map_err(|error| unreadable(&error))?;
    if args.json {
        put_json(&rows)?;
    } else {
        put(&table(&rows))?;
    }
    Ok(Exit::Good)
}

fn table(rows: &[RunRow]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let width = rows.iter().map(|row| row.run_id.as_str().len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let ago = duration::show(Duration::from_millis(now.saturating_sub(row.updated)));
        let (id, flow) = (row.run_id.as_str(), inert(&row.flow));
        text.push_str(&format!("{id:width$}  {:15}  {ago:>12} ago  {flow}\n", row.status));
    }
    text
}
