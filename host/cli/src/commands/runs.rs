//! `flowcell runs` and related commands: show and control the runs of the store.

mod answer;
mod bulk;
mod cancel;
mod delete;
mod events;
mod export;
mod gc;
mod input;
mod label;
mod list;
mod migrate;
mod renames;
mod resolve;
mod resume;
mod retry;
mod send;
mod show;
mod tree;
mod watch;

use std::ops::ControlFlow;

use clap::Subcommand;
use flowcell::{
    Host, RunCommand, RunId,
    contract::Tenant,
    control::{OwnerRequest, command_as_operator},
};

pub(super) use self::{
    answer::{AnswerArgs, answer},
    send::{EmitArgs, SendArgs, emit, send},
};
use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    owner::{Owner, ask_owner, block_on, refused, require_durable, unreadable, with_present_owner},
    terminal::Terminal,
};

/// Commands for runs.
#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first
    List(list::ListArgs),
    /// Show a run as a tree of its tasks, or the input of one task
    Show(show::ShowArgs),
    /// Show a run on the full screen while it goes on, and answer, cancel or repeat it there; without a terminal it
    /// prints the tree once
    Watch(watch::WatchArgs),
    /// Print a run's events as JSON lines
    Events(events::EventsArgs),
    /// Resume a run that is parked or was interrupted
    Resume(resume::ResumeArgs),
    /// Repeat a run as a new run, with the same version of the flow and the same input
    Retry(retry::RetryArgs),
    /// Move a parked run to another version of its flow, and resume it
    Migrate(migrate::MigrateArgs),
    /// Remove ended runs, and large values and pinned flows that no run uses
    Gc(gc::GcArgs),
    /// Delete ended runs with the runs that they called, and the data that no run uses
    Delete(delete::DeleteArgs),
    /// Set and remove labels of a run, also of one that has ended
    Label(label::LabelArgs),
    /// Write all records of a run as one JSON document
    Export(export::ExportArgs),
    /// Decide a blocked task: a call of unknown outcome, calls that were not repeated as recorded, or a failed undo
    Resolve(resolve::ResolveArgs),
    /// Cancel a run; `flowcell drive` or `flowcell runs resume` then ends it
    Cancel(cancel::CancelArgs),
    /// Act on all runs that a filter selects, as a job in the background
    #[command(subcommand)]
    Bulk(bulk::BulkCommand),
}

pub(super) fn execute(command: RunsCommand, terminal: Terminal) -> Result<Exit, CliError> {
    match command {
        RunsCommand::List(args) => list::execute(&args),
        RunsCommand::Show(args) => show::execute(&args, terminal),
        RunsCommand::Watch(args) => watch::execute(&args, terminal),
        RunsCommand::Events(args) => events::execute(&args),
        RunsCommand::Resume(args) => resume::execute(&args, terminal),
        RunsCommand::Retry(args) => retry::execute(args, terminal),
        RunsCommand::Migrate(args) => migrate::execute(args, terminal),
        RunsCommand::Gc(args) => gc::execute(&args, terminal),
        RunsCommand::Delete(args) => delete::execute(args, terminal),
        RunsCommand::Label(args) => label::execute(args, terminal),
        RunsCommand::Export(args) => export::execute(&args),
        RunsCommand::Resolve(args) => resolve::execute(args, terminal),
        RunsCommand::Cancel(args) => cancel::execute(args, terminal),
        RunsCommand::Bulk(command) => bulk::execute(command, terminal),
    }
}

fn each_event(
    host: &Host,
    run: &RunId,
    from: u64,
    visit: impl FnMut(flowcell::Event) -> ControlFlow<()>,
) -> Result<(), CliError> {
    host.each_event(run, from, visit).map_err(CliError::from)
}

/// Records a command for a run in the store, and says so. If another process owns the store, sends the command to that
/// process. This process does not drive the run.
fn record(of: &TenantArgs, run: RunId, command: RunCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let said = deliver(of, run, command)?;
    terminal.say(&terminal.paint().faint(&said));
    Ok(Exit::Good)
}

/// Records a command as [`record`] does. Returns the text for the person.
fn deliver(of: &TenantArgs, run: RunId, command: RunCommand) -> Result<String, CliError> {
    with_present_owner(|| deliver_once(of, run.clone(), command.clone()))
}

fn deliver_once(of: &TenantArgs, run: RunId, command: RunCommand) -> Result<String, CliError> {
    Ok(match Owner::of(require_durable(&of.store)?, &PackArgs::default())? {
        Owner::Here(host) => {
            block_on(command_as_operator(&host, &of.tenant, &run, command))?
                .map_err(|error| refused(error.code(), &error.to_string(), &run))?;
            let row = host.runs().map(|runs| runs.run(&of.tenant(), &run)).transpose();
            if row.map_err(|error| unreadable(&error))?.flatten().is_some_and(|(row, _)| row.has_ended()) {
                return Ok(format!("recorded; the run `{run}` has ended"));
            }
            match of.tenant() == Tenant::local() {
                true => format!(
                    "recorded; continue the run with `flowcell drive` or `flowcell runs resume {}`, with the options of \
                     its start",
                    shell_word(run.as_str())
                ),
                false => "recorded; `flowcell serve` continues the run".to_owned(),
            }
        }
        Owner::Other(folder) => {
            let command = OwnerRequest::Command { run, command };
            let request = match of.tenant() == Tenant::local() {
                true => command,
                false => OwnerRequest::OfTenant { tenant: of.tenant.clone(), request: Box::new(command) },
            };
            let run = ask_owner(folder, &request)?;
            format!("sent to the process that owns the store, for the run `{run}`")
        }
    })
}
