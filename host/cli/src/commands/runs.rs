//! `flowcell runs` and its kin: runs that the store keeps, seen and steered.

mod answer;
mod export;
mod gc;
mod input;
mod list;
mod show;
mod tree;

use std::ops::ControlFlow;

use clap::{Args, Subcommand};
use flowcell::{
    Closed, FlowRunner, Host, HubError, Json, OpenStoreError, QuestionRef, Repeat, Request, Resolution, RunId,
    RunOptions, StartError,
    contract::{NodeId, Value},
    control::{Ask, AskError},
};

pub(super) use self::answer::{AnswerArgs, answer};

use crate::{
    options::{PackArgs, Place, StoreArgs, channels::ChannelArgs},
    output::Lines,
    owner::{ask_owner, block_on, durable, listen_beside, refused, run_id},
    problem::{Exit, Problem},
    session,
    session::{
        RunArgs, answers,
        follow::{self, HandOver},
    },
    terminal::Terminal,
};

/// What can be done with runs.
#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the latest first
    List(list::ListArgs),
    /// Show what happened in a run, as a tree of its tasks, or the input of one task
    Show(show::ShowArgs),
    /// Print a run's events as JSON lines
    Events(EventsArgs),
    /// Go on with a run that is parked or was interrupted
    Resume(ResumeArgs),
    /// Do again what a run did, as a new run: the same flow, as it was then, with the same input
    Retry(RetryArgs),
    /// Remove what is kept of runs that have ended, and the large values and pinned flows that nothing names any more
    Gc(gc::GcArgs),
    /// Write all that is kept of a run as one JSON document
    Export(export::ExportArgs),
    /// Decide how a task goes on that asks what became of a call, or that did not do what it did the first time
    Resolve(ResolveArgs),
    /// Cancel a run; `flowcell drive` or `runs resume` then ends it
    Cancel(CancelArgs),
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
    /// Answer a gate, or an agent's call as in assistant#3=allow; may be repeated
    #[arg(long = "answer", value_name = "GATE=VALUE", value_parser = answers::pair)]
    answers: Vec<(String, String)>,
    /// Print one JSON object for whatever comes of the run
    #[arg(long)]
    json: bool,
    /// Say nothing about the run's progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Arguments of `flowcell runs retry`.
#[derive(Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    resume: ResumeArgs,
    /// Run only this node of the flow itself and what comes after it; the others keep the outputs that they had. A gate or
    /// an agent whose answer this depends on asks again
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Keep the answers of people instead of asking again
    #[arg(long, requires = "from")]
    keep_answers: bool,
    /// The new run's id
    #[arg(long, value_name = "ID", value_parser = run_id)]
    run_id: Option<RunId>,
}

/// Arguments of `flowcell runs resolve`.
#[derive(Args)]
pub(crate) struct ResolveArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Which task: `pay`, `process[3].pay`, or `review/pay` in a flow that the node `review` has called
    task: String,
    #[command(flatten)]
    decision: Decision,
    #[command(flatten)]
    store: StoreArgs,
}

/// What was decided.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Decision {
    /// The call did not happen: make it again. A task that was not deterministic begins a new attempt
    #[arg(long)]
    repeat: bool,
    /// The call did happen, and this JSON is its reply
    #[arg(long, value_name = "JSON")]
    reply: Option<String>,
    /// The task is done, and this JSON is its output
    #[arg(long, value_name = "JSON")]
    output: Option<String>,
    /// The task fails, for this reason
    #[arg(long, value_name = "WHY")]
    fail: Option<String>,
}

impl Decision {
    fn resolution(&self) -> Result<Resolution, Problem> {
        let value = |text: &String| {
            let json = Json::parse(text);
            json.map(Value::from).map_err(|error| Problem::wrong(format!("`{text}` is not JSON: {error}")))
        };
        Ok(match (&self.reply, &self.output, &self.fail) {
            (Some(reply), ..) => Resolution::Reply(value(reply)?),
            (_, Some(output), _) => Resolution::Output(value(output)?),
            (.., Some(why)) => Resolution::Fail(why.as_str().into()),
            _ => Resolution::Repeat,
        })
    }
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
    /// What to say: JSON if it reads as JSON, else text; not given with `--close`
    #[arg(required_unless_present = "close")]
    content: Option<String>,
    /// To an agent run: its id, or the address of its node
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,
    /// What the message to an agent run is recognised by: one that is sent twice is taken once
    #[arg(long, value_name = "ID", requires = "to")]
    id: Option<String>,
    /// Ask the agent run to finish
    #[arg(long, requires = "to", conflicts_with_all = ["content", "id"])]
    close: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(command: RunsCommand, terminal: Terminal) -> Result<Exit, Problem> {
    match command {
        RunsCommand::List(args) => list::execute(&args),
        RunsCommand::Show(args) => show::execute(&args, terminal),
        RunsCommand::Events(args) => events(&args),
        RunsCommand::Resume(args) => resume(args, terminal),
        RunsCommand::Retry(args) => retry(args, terminal),
        RunsCommand::Gc(args) => gc::execute(&args, terminal),
        RunsCommand::Export(args) => export::execute(&args),
        RunsCommand::Resolve(args) => {
            let resolution = args.decision.resolution()?;
            record(&args.store, Ask::Resolve { run: args.run, task: args.task, resolution }, terminal)
        }
        RunsCommand::Cancel(args) => record(&args.store, Ask::Cancel { run: args.run }, terminal),
    }
}

fn events(args: &EventsArgs) -> Result<Exit, Problem> {
    let host = args.packs.reading_host(&args.store)?;
    let mut lines = Lines::default();
    each_event(&host, &args.run, args.from, |event| lines.put(&event))?;
    lines.end()?;
    Ok(Exit::Good)
}

fn each_event(
    host: &Host,
    run: &RunId,
    from: u64,
    visit: impl FnMut(flowcell::Event) -> ControlFlow<()>,
) -> Result<(), Problem> {
    host.each_event(run, from, visit).map_err(Problem::from)
}

fn resume(args: ResumeArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let place = args.store.place()?;
    let host = match (args.packs.host_at(place), place) {
        (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
            let (folder, run, reach) = (folder.to_owned(), args.run.clone(), args.packs.reach());
            // All of them are looked at before one is given.
            let reading = args.packs.reading_host(&args.store)?;
            answers::check_in(&reading, &run, &args.answers)?;
            let recorded = answers::Recorded::read(&reading, &run, &args.answers)?;
            recorded.check_open(&run, &args.answers)?;
            recorded.check(&run, &args.answers)?;
            let flow = reading.graph_of_run(&run)?.name.to_string();
            let reply = |(gate, value): &(String, String)| Ask::Reply {
                run: run.clone(),
                gate: gate.clone(),
                answer: answers::answer(value),
                question: QuestionRef::default(),
            };
            let before = args.answers.iter().map(reply).collect();
            let handed = HandOver { before, ask: Ask::Resume { run, reach }, flow, prints: None };
            let args = ResumeArgs { answers: Vec::new(), ..args };
            return follow::hand_over(&folder, &args.into_run(), handed, terminal);
        }
        (host, _) => host?,
    };
    let run = args.run.clone();
    answers::check_in(&host, &run, &args.answers)?;
    let later = answer_open(&host, &args, terminal)?;
    let args = ResumeArgs { answers: later, ..args };
    go_on(host, args, terminal, |host, options| host.resume(&run, RunOptions { by_hand: true, ..options }))
}

/// Answers the questions that are open, and returns the answers to those that are not asked yet.
fn answer_open(host: &Host, args: &ResumeArgs, terminal: Terminal) -> Result<Vec<(String, String)>, Problem> {
    let mut later = Vec::new();
    for (gate, value) in &args.answers {
        let (answer, question) = (answers::answer(value), QuestionRef::default());
        let request = Request::Reply { gate: gate.clone(), answer, question };
        match block_on(host.ask(&args.run, request))? {
            Ok(()) if args.quiet => {}
            Ok(()) => terminal.say(&terminal.paint().faint(&format!("answered `{gate}`"))),
            Err(AskError::Refused(
                HubError::GateClosed | HubError::NotOpen(Closed::NoNode | Closed::NoCall | Closed::NotAsked),
            )) => later.push((gate.clone(), value.clone())),
            Err(AskError::Refused(HubError::AnswerRefused(why))) => {
                return Err(Problem::wrong(format!("`{gate}` did not take the answer `{value}`: {why}")));
            }
            Err(AskError::Refused(HubError::RunEnded)) => return Err(answers::over(&args.run, gate)),
            Err(AskError::Start(error)) => return Err(error.into()),
            Err(error) => return Err(refused(error.code(), &error.to_string(), &args.run)),
        }
    }
    Ok(later)
}

fn retry(args: RetryArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let (run, session_id) = (args.resume.run.clone(), args.run_id);
    let repeat = Repeat { from: args.from.as_deref().map(NodeId::from), keep_answers: args.keep_answers };
    let place = args.resume.store.place()?;
    let host = match (args.resume.packs.host_at(place), place) {
        (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
            let folder = folder.to_owned();
            let answers = args.resume.answers.iter();
            let answers = answers.map(|(gate, value)| (gate.clone(), answers::answer(value)));
            let ask = Ask::Retry {
                run: run.clone(),
                from: args.from.clone(),
                keep_answers: args.keep_answers,
                new: session_id,
                answers: answers.collect(),
                reach: args.resume.packs.reach(),
            };
            let flow = args.resume.packs.reading_host(&args.resume.store)?.graph_of_run(&run)?.name.to_string();
            let handed = HandOver { before: Vec::new(), ask, flow, prints: None };
            return follow::hand_over(&folder, &args.resume.into_run(), handed, terminal);
        }
        (host, _) => host?,
    };
    go_on(host, args.resume, terminal, |host, options| host.again(&run, repeat, RunOptions { session_id, ..options }))
}

impl ResumeArgs {
    /// The same, as `flowcell run` has them.
    fn into_run(self) -> RunArgs {
        let ResumeArgs { run, answers, json, quiet, channels, store, packs } = self;
        RunArgs { run_id: Some(run), answers, json, quiet, channels, packs, store, ..RunArgs::default() }
    }
}

/// Runs what is prepared, watched as `flowcell run` is.
fn go_on(
    host: Host,
    args: ResumeArgs,
    terminal: Terminal,
    prepare: impl FnOnce(&Host, RunOptions) -> Result<FlowRunner, StartError>,
) -> Result<Exit, Problem> {
    let guests = listen_beside(&host, &args.store, &args.packs, terminal)?;
    let _serving = host.serve()?;
    let name = args.run.clone();
    let args = args.into_run();
    let flow = host.graph_of_run(&name)?.name.clone();
    let session = session::Session::open(&args, &host, &flow, terminal)?.with_guests(guests);
    let runner = prepare(&host, session.options(&args, Json::Null))?;
    answers::check(&args.answers, runner.graph())?;
    if let Some((gate, _)) = args.answers.iter().find(|(gate, _)| !runner.may_ask(gate)) {
        return Err(Problem::wrong(format!(
            "nothing asks at `{gate}` any more: it was answered, or its time was over"
        ))
        .hint(format!("`flowcell runs show {name}` tells how the run stands and what it waits for")));
    }
    session::say_warnings(&args, &host.warnings_of(&name), terminal);
    if let Some(simulate) = host.simulated_of(&name).filter(|_| !args.quiet) {
        terminal.say(&format!("the run was begun with `--simulate {simulate}`, and simulates that to its end"));
    }
    session::report::say_open(&args, &host, &name, terminal)?;
    session::finish(&args, session, host, runner, terminal)
}

pub(super) fn emit(args: &EmitArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let (run, name) = (args.run.clone(), args.name.clone());
    record(&args.store, Ask::Emit { run, name, payload: json_or_text(&args.payload) }, terminal)
}

pub(super) fn send(args: &SendArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let run = args.run.clone();
    let content = json_or_text(args.content.as_deref().unwrap_or_default());
    let ask = match &args.to {
        Some(to) if args.close => Ask::CloseAgent { run, to: to.clone() },
        Some(to) => Ask::Write { run, to: to.clone(), id: args.id.clone(), content },
        None => Ask::Send { run, content },
    };
    record(&args.store, ask, terminal)
}

fn json_or_text(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::from(text))
}

/// Tells a run what somebody asks of it. Nothing of it runs here.
fn record(store: &StoreArgs, ask: Ask, terminal: Terminal) -> Result<Exit, Problem> {
    let place = durable(store)?;
    let said = match (PackArgs::default().host_at(place), place) {
        (Ok(host), _) => {
            let Ok((run, request)) = ask.request() else { return Err(Problem::internal("this is no question")) };
            block_on(host.ask(&run, request))?.map_err(|error| refused(error.code(), &error.to_string(), &run))?;
            format!(
                "recorded; `flowcell drive` or `flowcell runs resume {run}`, with the options that the run was begun with, goes \
                 on with it"
            )
        }
        (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
            let run = ask_owner(folder, &ask)?;
            format!("told to the process that owns the store, which has the run `{run}`")
        }
        (Err(error), _) => return Err(error.into()),
    };
    terminal.say(&terminal.paint().faint(&said));
    Ok(Exit::Good)
}
