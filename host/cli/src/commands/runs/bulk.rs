//! `flowcell runs bulk`: acts on all runs that a filter selects.

use std::io::BufRead;

use clap::{Args, Subcommand};
use flowcell::{
    FlowVersion, LabelChange,
    jobs::{
        DEFAULT_MAX_RUNS, DEFAULT_RUNS_PER_SECOND, Job, JobAction, JobParams, JobRequest, MAX_JOB_RUNS,
        MAX_RUNS_PER_SECOND, Preview, checks::RunChecks, operation::JobOperation, record::RunFailure,
    },
};

use super::{label::LabelChangeArgs, renames::RenameArgs};
use crate::{
    cli_error::{CliError, Exit},
    commands::jobs::JobClient,
    options::{TenantArgs, filter::FilterArgs},
    output::{put, put_json},
    session::answers,
    terminal::{Terminal, counted, inert},
};

/// Actions on all runs that a filter selects.
#[derive(Subcommand)]
pub(crate) enum BulkCommand {
    /// Cancel runs that have not ended
    Cancel(BulkArgs),
    /// Resume runs that are parked; `flowcell drive` or `flowcell serve` then drives them
    Resume(BulkArgs),
    /// Repeat ended runs as new runs; `flowcell drive` or `flowcell serve` then drives them
    Retry(RetryArgs),
    /// Answer the open question at a gate of each run
    Answer(AnswerArgs),
    /// Delete ended runs
    Delete(BulkArgs),
    /// Set and remove labels of runs, also of ended ones
    Label(LabelArgs),
    /// Move parked and blocked runs of a flow to another version of it; `flowcell drive` or `flowcell serve` then drives them
    Migrate(MigrateArgs),
}

/// The runs, and the limits of the job.
#[derive(Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// The maximum number of runs, the latest first
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_RUNS,
          value_parser = clap::value_parser!(u64).range(1..=MAX_JOB_RUNS))]
    max_runs: u64,
    /// The maximum number of runs per second
    #[arg(long, value_name = "N", default_value_t = DEFAULT_RUNS_PER_SECOND,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RUNS_PER_SECOND)))]
    rate: u32,
    /// Print the runs that the filter selects, and those that would not move or be repeated in another version; do nothing
    #[arg(long)]
    preview: bool,
    /// Do not ask for confirmation
    #[arg(long, conflicts_with = "preview")]
    yes: bool,
    /// Do not wait for the end of the job; needs a process that owns the store, such as `flowcell serve`
    #[arg(long, conflicts_with = "preview")]
    detach: bool,
    /// Print the preview or the job as JSON; needs `--preview` or `--yes`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell runs bulk retry`.
#[derive(Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    bulk: BulkArgs,
    /// Run only this node of the flow and the nodes after it
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Keep the answers of people instead of asking them again
    #[arg(long, requires = "from")]
    keep_answers: bool,
    /// Repeat the runs in another version of their flow: its number in the library, with `--flow`, or `latest`; a node
    /// keeps its output if it succeeded, is unchanged and comes after no node that runs
    #[arg(long, value_name = "VERSION")]
    to: Option<FlowVersion>,
    #[command(flatten)]
    rename: RenameArgs,
}

/// Arguments of `flowcell runs bulk answer`.
#[derive(Args)]
pub(crate) struct AnswerArgs {
    /// The address of the gate
    gate: String,
    /// The answer
    value: String,
    #[command(flatten)]
    bulk: BulkArgs,
}

/// Arguments of `flowcell runs bulk label`.
#[derive(Args)]
pub(crate) struct LabelArgs {
    #[command(flatten)]
    change: LabelChangeArgs,
    #[command(flatten)]
    bulk: BulkArgs,
}

/// Arguments of `flowcell runs bulk migrate`.
#[derive(Args)]
pub(crate) struct MigrateArgs {
    /// The number of the version in the library; the filter needs `--flow`
    #[arg(long, value_name = "VERSION")]
    to: u32,
    /// Let the answers of people also count for new and changed nodes after them
    #[arg(long)]
    keep_answers: bool,
    #[command(flatten)]
    rename: RenameArgs,
    #[command(flatten)]
    bulk: BulkArgs,
}

pub(super) fn execute(command: BulkCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let none = JobParams::default();
    match command {
        BulkCommand::Cancel(bulk) => perform(&bulk, JobAction::Cancel, none, terminal),
        BulkCommand::Resume(bulk) => perform(&bulk, JobAction::Resume, none, terminal),
        BulkCommand::Delete(bulk) => perform(&bulk, JobAction::Delete, none, terminal),
        BulkCommand::Retry(RetryArgs { bulk, from, keep_answers, to, rename }) => {
            if to.is_none() && !rename.is_empty() {
                let why = "`--rename` needs `--to`: nodes have other names only in another version of the flow";
                return Err(CliError::wrong(why).hint("add `--to latest`"));
            }
            let params = JobParams { from, keep_answers, flow_version: to, rename: rename.renames()?, ..none };
            perform(&bulk, JobAction::Retry, params, terminal)
        }
        BulkCommand::Answer(AnswerArgs { gate, value, bulk }) => {
            let params = JobParams { gate: Some(gate), answer: Some(answers::answer(&value)), ..none };
            perform(&bulk, JobAction::Answer, params, terminal)
        }
        BulkCommand::Label(LabelArgs { change, bulk }) => {
            let LabelChange { set, remove } = change.change()?;
            let params = JobParams { set, remove, ..none };
            perform(&bulk, JobAction::Label, params, terminal)
        }
        BulkCommand::Migrate(MigrateArgs { to, keep_answers, rename, bulk }) => {
            let params = JobParams { to: Some(to), keep_answers, rename: rename.renames()?, ..none };
            perform(&bulk, JobAction::Migrate, params, terminal)
        }
    }
}

fn perform(args: &BulkArgs, action: JobAction, params: JobParams, terminal: Terminal) -> Result<Exit, CliError> {
    let request = JobRequest {
        action,
        filter: args.filter.of_job()?,
        params,
        max_runs: args.max_runs,
        rate_per_second: args.rate,
    };
    if args.json && !args.preview && !args.yes {
        return Err(CliError::wrong("`--json` needs `--preview` or `--yes`"));
    }
    let client = JobClient::open(&args.of)?;
    if args.detach && client.executes() {
        return Err(CliError::wrong("no other process owns the store, so none would execute the job")
            .hint("leave out `--detach`, or start `flowcell serve` or `flowcell drive` first"));
    }
    if !args.yes {
        let preview: Preview = client.ask(JobOperation::Preview { request: Box::new(request.clone()) })?;
        if args.preview && args.json {
            put_json(&preview)?;
            return Ok(Exit::Good);
        }
        put(&preview_text(&preview, &request))?;
    }
    if args.preview {
        return Ok(Exit::Good);
    }
    if !args.yes && !confirm(action, terminal)? {
        terminal.say("nothing was done");
        return Ok(Exit::Good);
    }
    let job: Job = client.ask(JobOperation::Create { request: Box::new(request) })?;
    if args.detach {
        match args.json {
            true => put_json(&job)?,
            false => put(&format!("{}\n", job.id))?,
        }
        return Ok(Exit::Good);
    }
    terminal.say(&terminal.paint().faint(&format!("job {}", job.id)));
    client.follow(job, args.json, terminal)
}

/// Asks the person at the terminal. Fails if there is none.
fn confirm(action: JobAction, terminal: Terminal) -> Result<bool, CliError> {
    if !terminal.interactive {
        return Err(CliError::wrong(format!("`{}` of these runs needs a confirmation", action.name()))
            .hint("add `--yes` to do it, or `--preview` only to see the runs"));
    }
    terminal.say(&format!("{} these runs? [y/N]", action.name()));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| CliError::internal("cannot read the confirmation").because(&error))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn preview_text(preview: &Preview, request: &JobRequest) -> String {
    let more = if preview.more { " or more" } else { "" };
    let mut text = format!("{}{more} runs match\n", preview.runs);
    for (status, runs) in &preview.by_status {
        text.push_str(&format!("{runs:>8}  {status}\n"));
    }
    for run in &preview.first {
        text.push_str(&format!("  {}\n", inert(run.as_str())));
    }
    let left = preview.runs.saturating_sub(preview.first.len() as u64);
    if left > 0 {
        text.push_str(&format!("  and {left}{more} others\n"));
    }
    if preview.more || preview.runs > request.max_runs {
        text.push_str(&format!("the job takes the latest {} of them at most (`--max-runs`)\n", request.max_runs));
    }
    for (checks, what) in [(&preview.moves, "move"), (&preview.retries, "be repeated")] {
        checks.iter().for_each(|checks| text.push_str(&checks_text(checks, what, preview.more)));
    }
    text
}

/// Returns the lines about the runs that would not move or be repeated. `what`: the action. `more`: the job may have
/// more runs than were counted.
fn checks_text(checks: &RunChecks, what: &str, more: bool) -> String {
    let refused = checks.refused_runs();
    let mut text = format!("{refused} of {} would not {what}\n", counted(checks.checked as usize, "checked run"));
    for (code, runs) in &checks.refused {
        text.push_str(&format!("{runs:>8}  {}\n", inert(code)));
    }
    for RunFailure { run, reason } in &checks.first {
        text.push_str(&format!("  {}: {}\n", inert(run.as_str()), inert(&reason.message)));
    }
    let left = refused.saturating_sub(checks.first.len() as u64);
    if left > 0 {
        text.push_str(&format!("  and {left} others\n"));
    }
    if checks.unchecked > 0 {
        let more = if more { " or more" } else { "" };
        text.push_str(&format!("{}{more} others were not checked\n", checks.unchecked));
    }
    text
}
