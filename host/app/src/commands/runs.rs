//! `flowcell runs` and its kin: runs that the store keeps, seen and steered.

mod tree;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::{Args, Subcommand};
use flowcell::{Filter, Host, HubError, Json, Reader, Request, RunId, RunOptions, RunRow, StartError};

use super::{
    PackArgs, StoreArgs,
    run::{self, RunArgs, answers},
};
use crate::{
    output::{put, put_json, put_line},
    problem::{Exit, Problem},
    terminal::{Terminal, inert},
};

/// Runs driven at a time.
const DRIVEN: usize = 64;
/// A driven run that only timers move on is put away if none is due within this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// What can be done with runs.
#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the latest first
    List(ListArgs),
    /// Show what happened in a run, as a tree of its tasks
    Show(ShowArgs),
    /// Print a run's events as JSON lines
    Events(EventsArgs),
    /// Go on with a run that is parked or was interrupted
    Resume(ResumeArgs),
    /// Cancel a run; `flowcell drive` or `runs resume` then ends it
    Cancel(CancelArgs),
}

/// Arguments of `flowcell runs list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only runs of this flow
    #[arg(long, value_name = "NAME")]
    flow: Option<String>,
    /// Only runs with this status
    #[arg(long, value_parser = ["active", "parked", "succeeded", "failed", "cancelled"])]
    status: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell runs show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Arguments of `flowcell runs events`.
#[derive(Args)]
pub(crate) struct EventsArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Begin with the event of this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Arguments of `flowcell runs resume`.
#[derive(Args)]
pub(crate) struct ResumeArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Answer a gate; may be repeated
    #[arg(long = "answer", value_name = "GATE=VALUE", value_parser = answers::pair)]
    answers: Vec<(String, String)>,
    /// Print one JSON object for whatever comes of the run
    #[arg(long)]
    json: bool,
    /// Say nothing about the run's progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Arguments of `flowcell runs cancel`.
#[derive(Args)]
pub(crate) struct CancelArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell answer`.
#[derive(Args)]
pub(crate) struct AnswerArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Which gate: `approve`, `process[3].approve`, or `review/approve` in a flow that the node `review` has called
    gate: String,
    /// The answer
    value: String,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell emit`.
#[derive(Args)]
pub(crate) struct EmitArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// The event's name
    name: String,
    /// What it brings: JSON if it reads as JSON, else text
    #[arg(default_value = "null")]
    payload: String,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell send`.
#[derive(Args)]
pub(crate) struct SendArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// What to say: JSON if it reads as JSON, else text
    content: String,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell drive`.
#[derive(Args)]
pub(crate) struct DriveArgs {
    /// Return when nothing can move any more, instead of waiting for timers
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// A run's id as a person may choose it.
pub(super) fn run_id(text: &str) -> Result<RunId, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/[]".contains(&byte);
    if (1..=200).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(RunId::from(text));
    }
    Err("an id has 1 to 200 letters, digits, and any of - _ . : / [ ]".into())
}

pub(super) fn execute(command: RunsCommand, terminal: Terminal) -> Result<Exit, Problem> {
    match command {
        RunsCommand::List(args) => list(&args),
        RunsCommand::Show(args) => show(&args, terminal),
        RunsCommand::Events(args) => events(&args),
        RunsCommand::Resume(args) => resume(args, terminal),
        RunsCommand::Cancel(args) => record(&args.store, &args.run, Request::Cancel, terminal),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Problem> {
    let filter = Filter { flow: args.flow.clone(), status: args.status.clone(), limit: args.limit };
    let rows = args.store.reader()?.runs(&local(), &filter).map_err(|error| unreadable(&error))?;
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
        let ago = run::duration::show(Duration::from_millis(now.saturating_sub(row.updated)));
        let (id, flow) = (row.run_id.as_str(), inert(&row.flow));
        text.push_str(&format!("{id:width$}  {:9}  {ago:>12} ago  {flow}\n", row.status));
    }
    text
}

fn show(args: &ShowArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let host = args.packs.reading_host(&args.store)?;
    let mut tree = tree::Tree::default();
    each_event(&host, &args.run, 0, |event| tree.add(&event))?;
    put(&tree.render(terminal.paint_of_output()))?;
    Ok(Exit::Good)
}

fn events(args: &EventsArgs) -> Result<Exit, Problem> {
    let host = args.packs.reading_host(&args.store)?;
    let mut failed = None;
    each_event(&host, &args.run, args.from, |event| {
        if failed.is_none() {
            failed = serde_json::to_string(&event).map_err(|_| ()).ok().and_then(|line| put_line(&line).err());
        }
    })?;
    failed.map_or(Ok(Exit::Good), Err)
}

fn each_event(host: &Host, run: &RunId, from: u64, visit: impl FnMut(flowcell::Event)) -> Result<(), Problem> {
    host.each_event(run, from, visit).map_err(Problem::from)
}

fn resume(args: ResumeArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let host = args.packs.host_with(&args.store)?;
    let run = args.run.clone();
    let args = RunArgs::resuming(args.run, args.answers, args.json, args.quiet, args.packs, args.store);
    let session = run::Session::open(&args, run.as_str(), terminal)?;
    let options = RunOptions { by_hand: true, ..session.options(&args, Json::Null) };
    let runner = host.resume(&run, options)?;
    run::finish(&args, session, host, runner, terminal)
}

pub(super) fn answer(args: &AnswerArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let request = Request::Reply { gate: args.gate.clone(), answer: answers::answer(&args.value) };
    record(&args.store, &args.run, request, terminal)
}

pub(super) fn emit(args: &EmitArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let request = Request::Emit { name: args.name.clone(), payload: json_or_text(&args.payload).into() };
    record(&args.store, &args.run, request, terminal)
}

pub(super) fn send(args: &SendArgs, terminal: Terminal) -> Result<Exit, Problem> {
    record(&args.store, &args.run, Request::Send(json_or_text(&args.content).into()), terminal)
}

fn json_or_text(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::from(text))
}

/// Records what somebody asks of a run. Nothing of it runs here.
fn record(store: &StoreArgs, run: &RunId, request: Request, terminal: Terminal) -> Result<Exit, Problem> {
    let host = PackArgs::default().host_with(store)?;
    let runner = host.resume(run, RunOptions::default())?;
    block_on(runner.ask(request))?.map_err(|error| refused(&error, run))?;
    let hint = format!("recorded; `flowcell drive` or `flowcell runs resume {run}` goes on with the run");
    terminal.say(&terminal.paint().faint(&hint));
    Ok(Exit::Good)
}

fn refused(error: &HubError, run: &RunId) -> Problem {
    let problem = Problem::wrong(format!("the run `{run}` refuses: {error}"));
    match error {
        HubError::GateClosed => problem.hint(format!("`flowcell runs show {run}` tells what it waits for")),
        _ => problem,
    }
}

pub(super) fn drive(args: &DriveArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let host = Arc::new(args.packs.host_with(&args.store)?);
    let Some(folder) = args.store.folder()? else {
        return Err(Problem::wrong("a store in memory has nothing to drive").hint("leave `--store memory:` away"));
    };
    let reader = Reader::open(folder).map_err(flowcell::Error::Store)?;
    block_on(async {
        loop {
            let mut driving = tokio::task::JoinSet::new();
            for run in reader.runnable(&local(), host.now(), DRIVEN).map_err(|error| unreadable(&error))? {
                let options = RunOptions { patience: Some(PATIENCE), without_events: true, ..RunOptions::default() };
                match host.resume(&run, options) {
                    Ok(runner) => {
                        runner.start_session();
                        driving.spawn(runner.run());
                    }
                    Err(error) => terminal.say(&Problem::from(error).render(terminal.paint())),
                }
            }
            if !driving.is_empty() {
                while let Some(result) = driving.join_next().await {
                    let Ok(result) = result else { continue };
                    let status = serde_json::to_value(result.status).unwrap_or_default();
                    let status = status.as_str().unwrap_or_default();
                    terminal.say(&format!("{}  {status}  {}", result.run_id, inert(&result.flow)));
                }
                continue;
            }
            let due = reader.next_due(&local()).map_err(|error| unreadable(&error))?;
            match due.filter(|_| !args.once) {
                Some(due) => tokio::time::sleep(Duration::from_millis(due.saturating_sub(host.now()))).await,
                None => return Ok(Exit::Good),
            }
        }
    })?
}

pub(super) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| Problem::internal("cannot start the runtime").because(&error))?;
    let result = runtime.block_on(work);
    // Attempts that were abandoned are not waited for.
    runtime.shutdown_background();
    Ok(result)
}

fn local() -> flowcell::contract::Tenant {
    flowcell::contract::Tenant::local()
}

fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    Problem::internal(format!("the store cannot be read: {error}"))
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Problem {
        use flowcell::OpenError;
        match &error {
            StartError::Input(input) => run::inputs::unfit(input),
            StartError::Open(OpenError::Store(_)) => Problem::internal(error.to_string()),
            StartError::Open(OpenError::Unknown(_)) => {
                Problem::wrong(error.to_string()).hint("`flowcell runs list` shows those that the store keeps")
            }
            StartError::Open(OpenError::OtherInput(_) | OpenError::OtherFlow(..)) => {
                Problem::wrong(error.to_string()).hint("give the new run another `--run-id`, or none")
            }
            StartError::Open(OpenError::Pin(_)) => Problem::wrong(error.to_string()),
        }
    }
}
