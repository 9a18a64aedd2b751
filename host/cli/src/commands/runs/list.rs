//! `flowcell runs list`: lists the runs in the store.

use std::time::Duration;

use clap::Args;
use flowcell::{Counts, Group, MAX_COUNTED, RunRow, contract::Tenant, shape::time};

use crate::{
    arguments::at_least_one,
    cli_error::{CliError, Exit},
    clock::now_ms,
    duration,
    options::{PackArgs, TenantArgs, filter::FilterArgs},
    output::{put, put_json},
    owner::unreadable,
    terminal::inert,
};

/// Arguments of `flowcell runs list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Count the runs by this member instead of listing them: status, flow, version, error, node, trigger or label:NAME
    #[arg(long, value_name = "MEMBER", value_parser = group)]
    count_by: Option<Group>,
    /// The maximum number of entries
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 20)]
    limit: usize,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
}

pub(super) fn execute(args: &ListArgs) -> Result<Exit, CliError> {
    let filter = args.filter.filter(args.limit)?;
    if args.of.tenant() != Tenant::local() {
        // Fails if the tenant does not exist.
        args.of.reading_host(&PackArgs::default())?;
    }
    let (reader, tenant) = (args.of.store.reader()?, args.of.tenant());
    if let Some(group) = &args.count_by {
        let counts = reader.count(&tenant, &filter, group, usize::MAX).map_err(|error| unreadable(&error))?;
        return put_counts(&counts, args.json);
    }
    let rows = reader.runs(&tenant, &filter).map_err(|error| unreadable(&error))?;
    if args.json {
        put_json(&rows)?;
    } else {
        put(&table(&rows))?;
    }
    Ok(Exit::Good)
}

fn group(text: &str) -> Result<Group, String> {
    Group::parse(text).ok_or_else(|| "use status, flow, version, error, node, trigger or label:NAME".into())
}

fn put_counts(counts: &Counts, json: bool) -> Result<Exit, CliError> {
    if json {
        let values = counts.values.iter().map(|(value, runs)| serde_json::json!({ "value": value, "runs": runs }));
        put_json(&serde_json::json!({ "counts": values.collect::<Vec<_>>(), "more": counts.more }))?;
        return Ok(Exit::Good);
    }
    let mut text = String::new();
    for (value, runs) in &counts.values {
        text.push_str(&format!("{runs:>6}  {}\n", value.as_deref().map_or_else(|| "-".into(), inert)));
    }
    if counts.more {
        text.push_str(&format!("more than {MAX_COUNTED} runs match; the latest {MAX_COUNTED} are counted\n"));
    }
    put(&text)?;
    Ok(Exit::Good)
}

fn table(rows: &[RunRow]) -> String {
    let now = now_ms();
    let width = rows.iter().map(|row| row.run_id.as_str().len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let ago = duration::show(Duration::from_millis(now.saturating_sub(row.updated)));
        let (id, flow) = (row.run_id.as_str(), inert(&row.flow));
        let labels = row.labels.iter().map(|(name, value)| format!("  {name}={}", inert(value)));
        let error = row.error.iter().map(|code| format!("  {}", inert(code)));
        let waits = row.waits_for.iter().map(|waits| format!("  waits: {}", inert(&waits.to_string())));
        let until = row.paused_until.iter().map(|until| format!(" until {}", time(*until)));
        let more: String = error.chain(until).chain(waits).chain(labels).collect();
        text.push_str(&format!("{id:width$}  {:15}  {ago:>12} ago  {flow}{more}\n", row.status));
    }
    text
}
