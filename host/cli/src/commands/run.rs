//! `flowcell run`: one run of a flow, watched from a terminal.

pub(super) mod answers;
mod args;
mod ask;
pub(super) mod desk;
pub(super) mod duration;
pub(super) mod follow;
pub(super) mod inputs;
pub(super) mod interrupt;
pub(super) mod lines;
mod plan;
pub(super) mod progress;
pub(super) mod report;
mod save;
pub(super) mod screen;
mod summary;

use std::{path::Path, sync::Arc};

use flowcell::{
    Channel, Diagnostic, FlowRunner, Host, Json, LoadedFlow, OpenStoreError, PolicyOverride, RunOptions, RunResult,
    StartError,
    channels::{JsonLines, Notice, Notices},
    control::{Ask, Guests},
};

pub(crate) use self::args::RunArgs;
use self::{
    answers::{Recorded, Refusals},
    ask::Asker,
    interrupt::{Interruption, Interrupts},
    progress::Progress,
    screen::Screen,
};
use super::{
    Place,
    channels::{Attached, Channels},
    chat::Chat,
};
use crate::{
    output::{put_json, put_line},
    problem::{Exit, Problem},
    terminal::{Terminal, finding, inert},
};

pub(super) fn execute(args: RunArgs, terminal: Terminal) -> Result<Exit, Problem> {
    if args.json && args.events_to_stdout() {
        return Err(Problem::wrong("with `--json`, standard output holds the one object, and so no events")
            .hint("write the events to a file: `--events FILE`"));
    }
    if args.chat && args.input_file.as_deref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(Problem::wrong("with `--chat`, standard input is what you say, and so not the input")
            .hint("read the input from a file: `--input-file FILE`"));
    }
    if args.detach {
        return detach(&args, terminal);
    }
    let host = match (args.dry_run, args.store.place()?) {
        (true, _) => args.packs.dry_host(&args.store)?,
        (false, place) => match (args.packs.host_at(place), place) {
            (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
                return hand_over(folder, &args, &args.flow, terminal);
            }
            (host, _) => host?,
        },
    };
    let flow = load(&host, &args, terminal)?;
    let input = inputs::collect(&inputs::kept_by(&host, &args.input)?, args.input_file.as_deref())?;
    flow.check_input(&input).map_err(|error| inputs::unfit(&error))?;
    answers::check(&args.answers, flow.graph())?;
    if args.dry_run {
        plan::print(&flow, args.json)?;
        return Ok(Exit::Good);
    }
    let guests = super::runs::listen_beside(&host, &args.store, &args.packs, terminal)?;
    let _serving = host.serve()?;
    let session = Session::open(&args, &host, flow.name(), terminal)?.with_guests(guests);
    if !args.quiet {
        for (key, meant) in inputs::misspelt(&args.input, flow.graph()) {
            session.screen.warn(&format!("the flow's input has no `{key}`; did you mean `{meant}`?"));
        }
    }
    let runner = host.runner(&flow, session.options(&args, input))?;
    finish(&args, session, host, runner, terminal)
}

/// Runs a run to its end, or until it parks, and prints what came of it.
pub(super) fn finish(
    args: &RunArgs,
    session: Session,
    host: Host,
    runner: FlowRunner,
    terminal: Terminal,
) -> Result<Exit, Problem> {
    finish_as(args, session, host, runner, None, terminal)
}

/// The same, which may print something else than the outputs.
fn finish_as(
    args: &RunArgs,
    session: Session,
    host: Host,
    runner: FlowRunner,
    prints: Option<&follow::Prints>,
    terminal: Terminal,
) -> Result<Exit, Problem> {
    let graph = runner.graph().clone();
    if !runner.is_new() && !args.answers.is_empty() {
        Recorded::read(&host, runner.run_id(), &args.answers)?.check(runner.run_id(), &args.answers)?;
        answers::check_in(&host, runner.run_id(), &args.answers)?;
    }
    if let Some(asker) = session.asker.as_ref().filter(|_| !runner.is_new()) {
        // A line that is typed from now on is for this run.
        runner.start_session();
        asker.catch_up(&host, &runner.hub())?;
    }
    let (result, interrupted) = session.until_end(args, runner)?;
    args.say_unused(&host, &result.run_id, terminal)?;
    let saved = args.out.as_deref().map(|folder| save::files(&host, &result.outputs, folder)).transpose();
    host.tell_watchers(&result.run_id);
    let printed = prints.map(|prints| {
        let of = Some((prints, host.sessions()));
        report::print_as(args, &graph, &result, interrupted, of, terminal)
    });
    part(host);
    let exit = printed.unwrap_or_else(|| report::print(args, &graph, &result, interrupted, terminal))?;
    // What came of the run is told, whether its files could be written or not.
    let saved = saved?;
    if !args.quiet {
        saved.iter().flatten().for_each(|path| terminal.say(&format!("wrote {}", path.display())));
    }
    // What came of the run is told by now, however long the channels take.
    session.channels.close();
    Ok(exit)
}

/// The process ends now. Taking the engine's pool apart would only take time, and the store holds all that was told; others
/// wait for what this process gives back.
pub(super) fn part(host: Host) {
    if let Some(store) = host.shared() {
        store.retire();
    }
    std::mem::forget(host);
}

/// Has a run taken in, by the process that owns the store if there is one, and leaves it to whoever drives runs.
fn detach(args: &RunArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let place = args.store.place()?;
    if matches!(place, Place::Memory) {
        return Err(Problem::wrong("a store in memory forgets the run with this process")
            .hint("with `--detach`, leave `--store memory:` away"));
    }
    let input = |members: &[(String, Json)]| inputs::collect(members, args.input_file.as_deref());
    let total_timeout_ms = args.total_timeout.map(|duration| duration.as_millis() as u64);
    let (run_id, driver) = match (args.packs.host_at(place), place) {
        (Ok(host), _) => {
            let flow = load(&host, args, terminal)?;
            let input = input(&inputs::kept_by(&host, &args.input)?)?;
            answers::check(&args.answers, flow.graph())?;
            let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
            let answers = args.early_answers();
            let options =
                RunOptions { session_id: args.run_id.clone(), input, policy, answers, ..RunOptions::default() };
            let runner = host.runner(&flow, options)?;
            let run_id = runner.run_id().clone();
            super::runs::block_on(runner.accept())?.map_err(StartError::from)?;
            (run_id, "`flowcell drive` runs it")
        }
        (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
            let run_id = super::runs::ask_owner(folder, &start(args, &args.flow, false)?)?;
            (run_id, "the process that owns the store runs it")
        }
        (Err(error), _) => return Err(error.into()),
    };
    if args.json {
        put_json(&serde_json::json!({ "runId": run_id, "status": "running" }))?;
    } else {
        put_line(run_id.as_str())?;
    }
    if !args.quiet {
        terminal.say(&terminal.paint().faint(&format!("accepted; {driver}")));
    }
    Ok(Exit::Good)
}

/// What is asked of the owner of the store to start a flow.
fn start(args: &RunArgs, flow: &Path, follow: bool) -> Result<Ask, Problem> {
    let flow = std::path::absolute(flow);
    let put = |name: &str, bytes| super::files::put(&args.store, name, bytes);
    let members = inputs::resolved(&args.input, put)?;
    Ok(Ask::Start {
        flow: flow.map_err(|error| Problem::wrong("the flow has no path").because(&error))?,
        input: inputs::collect(&members, args.input_file.as_deref())?,
        run: args.run_id.clone(),
        total_timeout_ms: args.total_timeout.map(|duration| duration.as_millis() as u64),
        answers: args.early_answers().into_iter().collect(),
        reach: args.packs.reach(),
        follow,
    })
}

/// Hands a flow over to the process that owns the store, and follows its run.
pub(super) fn hand_over(folder: &Path, args: &RunArgs, flow: &Path, terminal: Terminal) -> Result<Exit, Problem> {
    let host = args.packs.host()?;
    // What only the owner can check, such as secrets of the store, it checks.
    if let Some(flow) = host.check_flow(flow)?.flow {
        answers::check(&args.answers, flow.graph())?;
    }
    let name = flow.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let run = follow::HandOver { before: Vec::new(), ask: start(args, flow, true)?, flow: name, prints: None };
    follow::hand_over(folder, args, run, terminal)
}

fn load(host: &Host, args: &RunArgs, terminal: Terminal) -> Result<LoadedFlow, Problem> {
    let checked = host.check_flow(&args.flow)?;
    match checked.flow {
        Some(flow) => {
            say_warnings(args, &checked.diagnostics, terminal);
            Ok(flow)
        }
        None => Err(Problem::found(checked.diagnostics)),
    }
}

/// Prints the warnings about a flow, unless `--quiet` is given.
pub(super) fn say_warnings(args: &RunArgs, warnings: &[Diagnostic], terminal: Terminal) {
    if !args.quiet {
        warnings.iter().for_each(|found| terminal.say(&finding(found, terminal.paint())));
    }
}

/// The front ends of one run.
pub(super) struct Session {
    screen: Arc<Screen>,
    progress: Option<Arc<Progress>>,
    events: Option<Arc<JsonLines>>,
    asker: Option<Arc<Asker>>,
    refusals: Option<Arc<Refusals>>,
    chat: Option<Arc<Chat>>,
    channels: Channels,
    attached: Attached,
    /// Runs of other terminals, which this process drives meanwhile.
    guests: Option<Arc<Guests>>,
    /// The run outlives the process.
    durable: bool,
}

impl Session {
    pub(super) fn open(args: &RunArgs, host: &Host, flow: &str, terminal: Terminal) -> Result<Session, Problem> {
        let quiet = args.quiet && !args.channels.shows_console();
        let screen = Arc::new(Screen::new(terminal, quiet));
        let notices = notices(&screen);
        let events = args.events.as_deref().map(|path| recorded(path, &notices)).transpose()?;
        let channels = args.channels.open(host, notices)?;
        let attached = channels.of_a_run()?;
        // Whoever pipes the input in cannot be asked.
        let answered = args.input_file.as_deref().is_some_and(|path| path.as_os_str() == "-");
        let chat = args.chat.then(|| Arc::new(Chat::new(terminal)));
        let asks = terminal.interactive && !answered && chat.is_none();
        let asker = asks.then(|| Arc::new(Asker::new(screen.clone(), &args.answers)));
        let progress = (!quiet && (chat.is_none() || args.channels.shows_console())).then(|| {
            let progress = Progress::new(screen.clone(), flow);
            Arc::new(if asker.is_some() { progress.without_questions() } else { progress })
        });
        let durable = !matches!(args.store.place()?, Place::Memory);
        let refusals = (!args.answers.is_empty()).then(|| Arc::new(Refusals::new(screen.clone(), &args.answers)));
        Ok(Session { screen, progress, events, asker, refusals, chat, channels, attached, guests: None, durable })
    }

    /// The same, for a process that drives runs of other terminals meanwhile.
    pub(super) fn with_guests(self, guests: Option<Arc<Guests>>) -> Session {
        Session { guests, ..self }
    }

    /// Those who are told of the run.
    fn front_ends(&self, args: &RunArgs) -> Vec<Arc<dyn Channel>> {
        let mut channels: Vec<Arc<dyn Channel>> = Vec::new();
        channels.extend(self.events.iter().map(|events| events.clone() as Arc<dyn Channel>));
        channels.extend(self.progress.iter().map(|progress| progress.clone() as Arc<dyn Channel>));
        channels.extend(self.asker.iter().map(|asker| asker.clone() as Arc<dyn Channel>));
        // A run that exists is told to it from its first event, once it goes on.
        let chat = self.chat.iter().filter(|_| !args.again);
        channels.extend(chat.map(|chat| chat.clone() as Arc<dyn Channel>));
        channels.extend(self.attached.channels.iter().cloned());
        channels.extend(self.refusals.iter().map(|refusals| refusals.clone() as Arc<dyn Channel>));
        channels
    }

    pub(super) fn options(&self, args: &RunArgs, input: Json) -> RunOptions {
        let channels = self.front_ends(args);
        let total_timeout_ms = args.total_timeout.map(|duration| duration.as_millis() as u64);
        RunOptions {
            session_id: args.run_id.clone(),
            input,
            channels,
            policy: PolicyOverride { total_timeout_ms, ..PolicyOverride::default() },
            answers: args.early_answers(),
            wait_for_answers: self.asker.is_some() || self.chat.is_some() || self.attached.can_answer(),
            without_events: true,
            ..RunOptions::default()
        }
    }

    /// Runs to the end, or until nobody is there to answer. The second value says who interrupted it.
    fn run(&self, args: &RunArgs, runner: FlowRunner, flow: &str) -> Result<(RunResult, Interruption), Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Problem::internal("cannot start the runtime").because(&error))?;
        runner.start_session();
        let interrupts = Interrupts::watch(runner.hub(), self.screen.clone(), self.durable)?;
        let result = runtime.block_on(async {
            match (&self.asker, &self.chat) {
                (_, Some(chat)) => chat.with_runner(runner, args.again).await,
                (None, None) => Ok(self.attached.until_deserted(runner).await),
                (Some(asker), None) => Ok(asker.until_deserted(runner, flow).await),
            }
        })?;
        // Attempts that were abandoned are not waited for.
        runtime.shutdown_background();
        Ok((result, interrupts.which()))
    }

    /// Runs to the end, and takes the screen away.
    pub(super) fn until_end(&self, args: &RunArgs, runner: FlowRunner) -> Result<(RunResult, Interruption), Problem> {
        let flow = runner.flow().to_owned();
        let ended = self.run(args, runner, &flow);
        // The process is about to end.
        self.guests.iter().for_each(|guests| guests.stop());
        let ended = ended?;
        self.screen.close();
        Ok(ended)
    }

    /// Takes the front ends away.
    pub(super) fn close(&self) {
        self.screen.close();
        self.channels.close();
    }
}

/// `--events`: what the journal holds, as lines of JSON.
fn recorded(path: &Path, notices: &Notices) -> Result<Arc<JsonLines>, Problem> {
    let opened = JsonLines::open(path, notices.clone());
    let lines = opened.map_err(|error| Problem::wrong(format!("cannot write {}", path.display())).because(&error))?;
    Ok(Arc::new(lines.recorded_only()))
}

/// What channels have to say is said on the screen.
pub(super) fn notices(screen: &Arc<Screen>) -> Notices {
    let screen = screen.clone();
    Arc::new(move |notice| match notice {
        Notice::Trouble(why) => screen.warn(&why),
        Notice::Said { program, line } => {
            screen.line(&format!("  {} {}", screen.paint().faint(&program), inert(&line)))
        }
    })
}
