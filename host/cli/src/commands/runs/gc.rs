//! `flowcell runs gc`: deletes old runs and the data that no run refers to.

use std::time::Duration;

use clap::Args;
use flowcell::{
    Json,
    tenants::operation::{CollectedRuns, Operation},
};

use crate::{
    cli_error::{CliError, Exit},
    duration,
    options::{TenantArgs, room::release},
    output::{put_json, put_line},
    owner::operate,
    terminal::{Terminal, counted},
};

/// Arguments of `flowcell runs gc`.
#[derive(Args)]
#[group(required = true, multiple = true, args = ["older_than", "keep"])]
pub(crate) struct GcArgs {
    /// Remove runs that ended longer ago than this, such as 12h or 30d
    #[arg(long, value_name = "DUR", value_parser = age)]
    older_than: Option<Duration>,
    /// Remove all ended runs except the N that ended last; with `--older-than`, old runs among these N are removed, too
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Print the result as JSON: { "runs": [...], "blobs": N, "bytes": N, "fileBytes": N }; `held` has the runs that
    /// another process held, and `filesLeft` says which files stay although nothing refers to them, and why
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
}

/// Parses the value of `--older-than`.
fn age(text: &str) -> Result<Duration, String> {
    let is_none = text.chars().all(|letter| matches!(letter, '0' | '.') || letter.is_ascii_alphabetic());
    duration::parse(text).map_err(|why| match is_none && text.contains('0') {
        true => format!("{why}; to remove all ended runs, use `--keep 0`"),
        false => why,
    })
}

pub(super) fn execute(args: &GcArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let collect = Operation::CollectRuns {
        tenant: args.of.tenant.clone(),
        older_than_ms: args.older_than.map(|age| age.as_millis() as u64),
        keep: args.keep,
    };
    release(&args.of.store, terminal)?;
    let removed = operate(collect, &args.of.store)?;
    put_removed(&removed, args.json, &args.of.tenant, terminal)
}

/// Prints the ids of removed runs, and a summary for people. With `json`, prints everything as JSON.
pub(super) fn put_removed(removed: &Json, json: bool, tenant: &str, terminal: Terminal) -> Result<Exit, CliError> {
    if json {
        put_json(removed)?;
        return Ok(Exit::Good);
    }
    let unexpected = |error| CliError::internal("the owner of the store sent an unexpected reply").because(&error);
    let removed: CollectedRuns = serde_json::from_str(&removed.to_text()).map_err(unexpected)?;
    removed.runs.iter().try_for_each(|run| put_line(run.as_str()))?;
    terminal.say(&terminal.paint().faint(&summary(&removed, tenant)));
    if !removed.held.is_empty() {
        let held = counted(removed.held.len(), "run");
        terminal
            .say(&format!("another process of the store still holds {held}; run this command again to remove them"));
    }
    if let Some(left) = &removed.swept.files_left {
        terminal.warn(left);
    }
    Ok(Exit::Good)
}

fn summary(removed: &CollectedRuns, tenant: &str) -> String {
    let runs = counted(removed.runs.len(), "run");
    let blobs = counted(usize::try_from(removed.swept.blobs).unwrap_or(usize::MAX), "blob");
    let freed = removed.swept.bytes;
    let file = match removed.swept.file_bytes {
        0 => "the store keeps its size and reuses the space".to_owned(),
        bytes => format!("the file of the store is {bytes} bytes smaller"),
    };
    format!("removed {runs} and {blobs} of the tenant `{tenant}`, which frees {freed} bytes; {file}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_of_nothing_names_the_option_that_removes_all_runs() {
        assert_eq!(age("12h"), Ok(Duration::from_secs(12 * 3_600)));
        for text in ["0s", "0d", "0.0h"] {
            let why = age(text).unwrap_err();
            assert!(why.contains("shortest duration is 1ms; to remove all ended runs, use `--keep 0`"), "{why}");
        }
        assert!(!age("30x").unwrap_err().contains("--keep"));
    }
}
