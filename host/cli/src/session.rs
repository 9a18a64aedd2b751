//! Runs a flow at a terminal: its input, progress, questions, conversations and result.
//!
//! | module | content |
//! |---|---|
//! | plan | the arguments of `flowcell run`, which other commands fill, too |
//! | inputs, answers | the input, and answers given in advance |
//! | screen, progress, lines, summary | the output during a run |
//! | ask, question_queue | questions that a person answers |
//! | chat | a conversation with the run's agents |
//! | interrupt | Ctrl-C and SIGTERM |
//! | follow | a run that another process drives |
//! | report, save | the result |

pub(crate) mod answers;
mod ask;
pub(crate) mod chat;
pub(crate) mod follow;
pub(crate) mod inputs;
pub(crate) mod interrupt;
pub(crate) mod lines;
mod plan;
pub(crate) mod progress;
pub(crate) mod question_queue;
pub(crate) mod report;
mod save;
pub(crate) mod screen;
mod summary;

use std::{path::Path, sync::Arc};

use flowcell::{
    Channel, Diagnostic, FlowRunner, Host, Json, PolicyOverride, RunOptions, RunResult,
    channels::{JsonLines, Notice, Notices},
};

use self::chat::Chat;
pub(crate) use self::plan::Plan;
use self::{
    answers::{RecordedAnswers, Refusals},
    ask::Asker,
    interrupt::{Interruption, Interrupts},
    progress::Progress,
    screen::Screen,
};
use crate::{
    cli_error::{CliError, Exit},
    options::{
        StoreLocation,
        channels::{Attached, Channels},
    },
    owner::RunDriver,
    terminal::{Terminal, finding, inert},
};

/// Drives the run until it ends or parks, and prints its result. Returns the exit code.
pub(crate) fn finish(
    plan: &Plan,
    session: Session,
    host: Host,
    runner: FlowRunner,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    finish_as(plan, session, host, runner, None, terminal)
}

/// Drives the run like [`finish`]. Prints the result with `prints`. If `prints` is `None`, prints the outputs.
fn finish_as(
    plan: &Plan,
    mut session: Session,
    host: Host,
    runner: FlowRunner,
    prints: Option<&report::Prints>,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let graph = runner.graph().clone();
    if !runner.is_new() && !plan.answers.is_empty() {
        RecordedAnswers::read(&host, runner.run_id(), &plan.answers)?.check(runner.run_id(), &plan.answers)?;
        answers::check_in(&host, runner.run_id(), &plan.answers)?;
    }
    if let Some(asker) = session.asker.as_ref().filter(|_| !runner.is_new()) {
        // Let the hub accept commands from now on, since the person may answer the first question at once.
        runner.start_session();
        asker.catch_up(&host, &runner.hub())?;
    }
    let (result, interrupted) = session.until_end(plan, runner)?;
    plan.warn_of_unused_answers(&host, &result.run_id, terminal)?;
    let saved = plan.out.as_deref().map(|folder| save::files(&host, &result.outputs, folder)).transpose();
    host.wait_for_watchers(&result.run_id);
    let printed = prints.map(|prints| {
        let of = Some((prints, host.sessions()));
        report::print_as(plan, &graph, &result, interrupted, of, terminal)
    });
    release_store(host);
    let exit = printed.unwrap_or_else(|| report::print(plan, &graph, &result, interrupted, terminal))?;
    // Print the result even if its files could not be written.
    let saved = saved?;
    if !plan.quiet {
        saved.iter().flatten().for_each(|path| terminal.say(&format!("wrote {}", path.display())));
    }
    // The result is printed already, so a slow channel does not delay it.
    session.channels.close();
    Ok(exit)
}

/// Releases the store at the end of the process, without dropping the host. The store already has all results, and
/// dropping the host would only delay other processes that want to open the store.
pub(crate) fn release_store(host: Host) {
    if let Some(store) = host.shared() {
        store.retire();
    }
    std::mem::forget(host);
}

/// Prints the warnings about a flow, unless `--quiet` is given.
pub(crate) fn print_warnings(plan: &Plan, warnings: &[Diagnostic], terminal: Terminal) {
    if !plan.quiet {
        warnings.iter().for_each(|found| terminal.say(&finding(found, terminal.paint())));
    }
}

/// The front ends of one run.
pub(crate) struct Session {
    pub(crate) screen: Arc<Screen>,
    progress: Option<Arc<Progress>>,
    events: Option<Arc<JsonLines>>,
    asker: Option<Arc<Asker>>,
    refusals: Option<Arc<Refusals>>,
    chat: Option<Arc<Chat>>,
    channels: Channels,
    attached: Attached,
    /// Drives the run. `None` if this process takes no requests of other processes, or does not drive the run.
    driver: Option<RunDriver>,
    /// True if the store is not in memory, so that the run outlives the process.
    durable: bool,
}

impl Session {
    pub(crate) fn open(plan: &Plan, host: &Host, flow: &str, terminal: Terminal) -> Result<Session, CliError> {
        let quiet = plan.quiet && !plan.channels.shows_progress();
        let screen = Arc::new(Screen::new(terminal, quiet));
        let notices = notices(&screen);
        let events = plan.events.as_deref().map(|path| open_events_file(path, &notices)).transpose()?;
        let channels = plan.channels.open(host, notices)?;
        let attached = channels.open_for_run()?;
        // A person cannot answer if standard input is the run's input.
        let answered = plan.input_file.as_deref().is_some_and(|path| path.as_os_str() == "-");
        let chat = plan.chat.then(|| Arc::new(Chat::new(terminal)));
        let asks = terminal.interactive && !answered && chat.is_none();
        let asker = asks.then(|| Arc::new(Asker::new(screen.clone(), &plan.answers)));
        let progress = (!quiet && (chat.is_none() || plan.channels.shows_progress())).then(|| {
            let progress = Progress::new(screen.clone(), flow);
            Arc::new(if asker.is_some() { progress.without_questions() } else { progress })
        });
        let durable = !matches!(plan.store.place()?, StoreLocation::Memory);
        let refusals = (!plan.answers.is_empty()).then(|| Arc::new(Refusals::new(screen.clone(), &plan.answers)));
        Ok(Session { screen, progress, events, asker, refusals, chat, channels, attached, driver: None, durable })
    }

    /// Adds the driver of the run.
    pub(crate) fn driven_by(self, driver: RunDriver) -> Session {
        Session { driver: Some(driver), ..self }
    }

    /// Returns the channels to attach to the run when it starts or is resumed.
    fn front_ends(&self, plan: &Plan) -> Vec<Arc<dyn Channel>> {
        let mut channels: Vec<Arc<dyn Channel>> = Vec::new();
        channels.extend(self.events.iter().map(|events| events.clone() as Arc<dyn Channel>));
        channels.extend(self.progress.iter().map(|progress| progress.clone() as Arc<dyn Channel>));
        channels.extend(self.asker.iter().map(|asker| asker.clone() as Arc<dyn Channel>));
        // The conversation with a resumed run is attached later, by `Chat::drive_run`, and then gets the run's past
        // events, too.
        let chat = self.chat.iter().filter(|_| !plan.again);
        channels.extend(chat.map(|chat| chat.clone() as Arc<dyn Channel>));
        channels.extend(self.attached.channels.iter().cloned());
        channels.extend(self.refusals.iter().map(|refusals| refusals.clone() as Arc<dyn Channel>));
        channels
    }

    pub(crate) fn options(&self, plan: &Plan, input: Json) -> RunOptions {
        let channels = self.front_ends(plan);
        let total_timeout_ms = plan.total_timeout.map(|duration| duration.as_millis() as u64);
        RunOptions {
            run_id: plan.run_id.clone(),
            input,
            channels,
            policy: PolicyOverride { total_timeout_ms, ..PolicyOverride::default() },
            answers: plan.early_answers(),
            labels: plan.run_labels(),
            wait_for_answers: self.asker.is_some() || self.chat.is_some() || self.attached.can_answer(),
            without_events: true,
            ..RunOptions::default()
        }
    }

    /// Drives the run to its end, or until it needs an answer that no channel can give, and then parks the runs that other
    /// processes have handed over. Also returns whether a signal has interrupted the run.
    fn run(&mut self, plan: &Plan, runner: FlowRunner, flow: &str) -> Result<(RunResult, Interruption), CliError> {
        let driver = match self.driver.take() {
            Some(driver) => driver,
            None => RunDriver::alone()?,
        };
        runner.start_session();
        let interrupts = Interrupts::watch(runner.hub(), self.screen.clone(), self.durable)?;
        let result = driver.drive(async {
            match (&self.asker, &self.chat) {
                (_, Some(chat)) => chat.drive_run(runner, plan.again).await,
                (None, None) => Ok(self.attached.drive_run(runner).await),
                (Some(asker), None) => Ok(asker.drive_run(runner, flow).await),
            }
        })?;
        Ok((result, interrupts.first()))
    }

    /// Drives the run until it ends or parks, and closes the screen.
    pub(crate) fn until_end(&mut self, plan: &Plan, runner: FlowRunner) -> Result<(RunResult, Interruption), CliError> {
        let flow = runner.flow().to_owned();
        let ended = self.run(plan, runner, &flow)?;
        self.screen.close();
        Ok(ended)
    }

    /// Closes the front ends.
    pub(crate) fn close(&self) {
        self.screen.close();
        self.channels.close();
    }
}

/// Opens the file of `--events`, which receives the recorded events as lines of JSON.
fn open_events_file(path: &Path, notices: &Notices) -> Result<Arc<JsonLines>, CliError> {
    let opened = JsonLines::open(path, notices.clone());
    let lines = opened.map_err(|error| CliError::wrong(format!("cannot write {}", path.display())).because(&error))?;
    Ok(Arc::new(lines.recorded_only()))
}

/// Returns a callback that prints the channels' notices on the screen.
pub(crate) fn notices(screen: &Arc<Screen>) -> Notices {
    let screen = screen.clone();
    Arc::new(move |notice| match notice {
        Notice::Trouble(why) => screen.warn(&why),
        Notice::Said { program, line } => {
            screen.line(&format!("  {} {}", screen.paint().faint(&program), inert(&line)))
        }
    })
}
