//! Asks the process that owns the store to drive a run, and shows the run as if this process drove it.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use flowcell::{
    BlockReason, Channel, Event, Host, Hub, HubError, Json, LiveEvent, QuestionRef, RunCommand, RunEnd, RunError,
    RunId, RunOptions, RunResult, RunStatus, Waiting,
    control::{self, Events, OwnerReply, OwnerRequest},
    waiting,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    Plan, Session,
    answers::{self, RecordedAnswers},
    finish_as,
    interrupt::{Interruption, Interrupts},
    report::{self, Prints},
    save,
};
use crate::{
    cli_error::{CliError, Exit},
    owner::{MAX_OWNER_SEARCH, OWNER_PAUSE, Owner, RunDriver, ask_present_owner, block_on, refused, unreachable},
    terminal::Terminal,
};

/// The capacity of the queue of events from the owner's socket to the front ends.
const EVENT_QUEUE_CAPACITY: usize = 1_024;

/// A run to hand over.
pub(crate) struct HandOver {
    /// Requests to send to the owner before `ask`, such as answers. If the owner refuses one, the command fails.
    pub(crate) before: Vec<OwnerRequest>,
    /// The request that starts or resumes the run.
    pub(crate) ask: OwnerRequest,
    /// The name of the flow.
    pub(crate) flow: String,
    /// Prints the result of the command. With `None`, the outputs are printed.
    pub(crate) prints: Option<Prints>,
}

/// Hands a run to the process that owns the store in a folder, and follows it. If the owner ends first, the run
/// continues in this process, or in the next owner. If no owner takes the run, the error says that the owner is gone.
pub(crate) fn hand_over(folder: &Path, plan: &Plan, run: HandOver, terminal: Terminal) -> Result<Exit, CliError> {
    let HandOver { before, ask, flow, prints } = run;
    let host = plan.packs.host()?;
    let session = Session::open(plan, &host, &flow, terminal)?;
    if let Some(run) = ask.run().filter(|_| !plan.answers.is_empty()) {
        refuse_late(plan, run)?;
    }
    // Read the past events of an existing run before it continues, so that they are not shown as new.
    let known = ask.run().map(|run| watch(folder, run)).transpose()?.flatten();
    let known = known.map(|watched| Watched { known: true, ..watched });
    for ask in &before {
        done(folder, ask)?;
    }
    let of_ask = || ask.run().cloned().unwrap_or_else(|| RunId::from(""));
    let run = match begin(folder, &ask) {
        Ok(run) => run.unwrap_or_else(of_ask),
        // An owner that has ended took the answers. Another process resumes the run with them.
        Err(error) if error.is_owner_gone() && !before.is_empty() => of_ask(),
        Err(error) => {
            session.close();
            return Err(error);
        }
    };
    if plan.chat {
        return super::chat::remote::talk(folder, &run, terminal);
    }
    session.screen.note("the process that owns the store drives the run");
    if known.is_some() {
        report::print_open_questions(plan, &plan.packs.reading_host(&plan.store)?, &run, terminal)?;
    }
    let mut follower = Follower::new(folder, &run, plan, &session, prints.as_ref());
    let mut events = known;
    // The time until which this process looks for the next owner.
    let mut until = None;
    loop {
        match events.take().map_or_else(|| watch(folder, &run), |events| Ok(Some(events))) {
            Ok(Some(watched)) => match follower.follow(watched)? {
                Followed::Over(result, interrupted) => return follower.end(&result, interrupted, terminal),
                Followed::Gone => {}
            },
            Ok(None) => {}
            Err(error) if error.is_owner_gone() => {}
            Err(error) => return Err(error),
        }
        if let Owner::Here(host) = Owner::of(plan.store.place()?, &plan.packs)? {
            return resume_here(host, &run, plan, session, prints.as_ref(), terminal);
        }
        // Another process owns the store by now, or the owner is about to end.
        match begin(folder, &OwnerRequest::Resume { run: run.clone(), reach: plan.packs.reach() }) {
            Ok(_) => until = None,
            Err(error) if error.is_owner_gone() => {
                if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + MAX_OWNER_SEARCH) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        thread::sleep(OWNER_PAUSE);
    }
}

/// Fails if the run exists and its recorded answers differ from those in `plan`. Does nothing for a new run.
fn refuse_late(plan: &Plan, run: &RunId) -> Result<(), CliError> {
    let host = plan.packs.reading_host(&plan.store)?;
    if host.graph_of_run(run).is_err() {
        return Ok(());
    }
    answers::check_in(&host, run, &plan.answers)?;
    RecordedAnswers::read(&host, run, &plan.answers)?.check(run, &plan.answers)
}

/// The past events of a run, and the stream of its later events.
struct Watched {
    before: Vec<Json>,
    events: Events,
    /// True for a run that existed before this command. Its past events are not shown.
    known: bool,
}

/// Subscribes to the events of a run at the store's owner. Returns `None` if the store has no such run.
fn watch(folder: &Path, run: &RunId) -> Result<Option<Watched>, CliError> {
    let (told, mut events) = control::watch_owner(folder, run).map_err(|error| unreachable(&error))?;
    match told {
        OwnerReply::Done { .. } | OwnerReply::Operated { .. } => {
            let is_now = |event: &Json| event.get("type").and_then(Json::as_str) == Some("watch:now");
            let before = events.by_ref().take_while(|event| !is_now(event)).collect();
            Ok(Some(Watched { before, events, known: false }))
        }
        OwnerReply::Refused { code, .. } if code == "run_not_found" => Ok(None),
        OwnerReply::Refused { code, message } => Err(refused(&code, &message, run)),
    }
}

fn done(folder: &Path, ask: &OwnerRequest) -> Result<RunId, CliError> {
    crate::owner::ask_owner(folder, ask)
}

/// Asks the owner to start, resume or repeat a run. Returns `None` if the owner already drives the run.
fn begin(folder: &Path, ask: &OwnerRequest) -> Result<Option<RunId>, CliError> {
    match control::ask_owner(folder, ask).map_err(|error| unreachable(&error))? {
        OwnerReply::Done { run } => Ok(Some(run)),
        OwnerReply::Operated { .. } => Ok(None),
        OwnerReply::Refused { code, .. } if code == "run_driven" && ask.run().is_some() => Ok(None),
        OwnerReply::Refused { code, message } if code == "option_lacking" => {
            Err(CliError::wrong(message).hint("start that process with the same options, or omit them here"))
        }
        OwnerReply::Refused { code, message } => Err(refused(&code, &message, ask.run().unwrap_or(&RunId::from("")))),
    }
}

/// Resumes a run in this process after the process that drove it has ended.
fn resume_here(
    host: Host,
    run: &RunId,
    plan: &Plan,
    session: Session,
    prints: Option<&Prints>,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    session.screen.note("the process that owned the store has ended; this process continues the run");
    let session = session.driven_by(RunDriver::listen(&host, &plan.store, &plan.packs, terminal)?);
    let _serving = host.serve()?;
    let options = RunOptions { by_hand: true, ..session.options(plan, Json::Null) };
    let runner = host.resume(run, options)?;
    finish_as(plan, session, host, runner, prints, terminal)
}

/// The outcome of following a run.
enum Followed {
    /// The run has ended or is parked, or the user has interrupted the command.
    Over(Box<RunResult>, Interruption),
    /// The process that drove the run has ended.
    Gone,
}

/// Forwards the events of a run that another process drives to the front ends of this process.
struct Follower<'a> {
    folder: &'a Path,
    run: RunId,
    plan: &'a Plan,
    session: &'a Session,
    prints: Option<&'a Prints>,
    channels: Vec<Arc<dyn Channel>>,
    /// The times of the run's first and last event, in milliseconds since 1970.
    times: Option<(u64, u64)>,
    /// The sequence number of the run's next event.
    next: u64,
}

impl<'a> Follower<'a> {
    fn new(
        folder: &'a Path,
        run: &RunId,
        plan: &'a Plan,
        session: &'a Session,
        prints: Option<&'a Prints>,
    ) -> Follower<'a> {
        let (run, channels) = (run.clone(), session.front_ends(plan));
        Follower { folder, run, plan, session, prints, channels, times: None, next: 0 }
    }

    fn follow(&mut self, watched: Watched) -> Result<Followed, CliError> {
        let Watched { before, mut events, known } = watched;
        let (sender, mut queue) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let listen = move || {
            for event in events.by_ref() {
                if sender.blocking_send(event).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("events".into()).spawn(listen);
        started.map_err(|error| CliError::internal("cannot read the events").because(&error))?;
        let folder = self.folder.to_owned();
        let of = self.run.clone();
        let ask = move |command: RunCommand| {
            let (folder, asked) = (folder.clone(), OwnerRequest::Command { run: of.clone(), command });
            async move {
                let told = tokio::task::spawn_blocking(move || ask_present_owner(&folder, &asked)).await;
                match told {
                    Ok(Ok(OwnerReply::Refused { code, message })) => Err(HubError::parse(&code, &message)),
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(_)) | Err(_) => Err(HubError::RunEnded),
                }
            }
        };
        let (hub, forward) = Hub::remote(self.run.clone(), ask);
        let interrupts = Interrupts::watch(hub.clone(), self.session.screen.clone(), true)?;
        self.channels.iter().for_each(|channel| channel.on_start(&hub));
        let input_ended = self.session.asker.as_ref().map(|asker| asker.input_ended());
        block_on(async {
            let channels = if known { std::mem::take(&mut self.channels) } else { Vec::new() };
            let over = before.iter().fold(None, |over, event| match self.process(event) {
                None if event.get("type").and_then(Json::as_str) != Some("harness:resumed") => over,
                rested => rested,
            });
            self.channels.extend(channels);
            // A known run that was parked is resumed by the owner now, so it is not over.
            let goes_on = |status| known && matches!(status, RunStatus::Parked | RunStatus::NeedsAttention);
            if let Some((status, due)) = over
                && !goes_on(status)
                && self.is_over(status, due)
            {
                return Ok(Followed::Over(Box::new(self.result(status)?), interrupts.first()));
            }
            if let Some(asker) = self.session.asker.as_ref().filter(|_| known) {
                asker.catch_up(&self.plan.packs.reading_host(&self.plan.store)?, &hub)?;
            }
            let mut forward = std::pin::pin!(forward);
            let mut input_ended = std::pin::pin!(async {
                match &input_ended {
                    Some(input_ended) => input_ended.notified().await,
                    None => std::future::pending().await,
                }
            });
            let status = loop {
                tokio::select! {
                    biased;
                    event = queue.recv() => match event {
                        None => return Ok(Followed::Gone),
                        Some(event) => match self.process(&event) {
                            Some((status, due)) if self.is_over(status, due) => break status,
                            _ => {}
                        },
                    },
                    () = &mut forward => break RunStatus::Parked,
                    () = &mut input_ended => break RunStatus::Parked,
                }
            };
            Ok(Followed::Over(Box::new(self.result(status)?), interrupts.first()))
        })?
    }

    /// Returns true if a person or a channel of this process can answer questions.
    fn answers(&self) -> bool {
        self.session.asker.is_some() || self.session.attached.can_answer()
    }

    /// Returns true if this process stops following a run with this status. It follows a parked run further if it can
    /// answer questions, if a timer resumes the run at the time `due`, or if the run has gone on since then.
    fn is_over(&self, status: RunStatus, due: Option<u64>) -> bool {
        let goes_on =
            || self.answers() || due.is_some_and(|due| self.is_resumed_at(due)) || self.is_woken().unwrap_or(false);
        status != RunStatus::Parked || !goes_on()
    }

    /// Returns true if something has woken the run after the last event that arrived here, such as an answer that the
    /// owner took before this process has seen that the run parked.
    fn is_woken(&self) -> Result<bool, CliError> {
        let mut is_woken = false;
        self.plan.packs.reading_host(&self.plan.store)?.each_event(&self.run, self.next, |event| {
            is_woken = matches!(event.kind, "session:reply" | "task:woken" | "harness:resumed");
            if is_woken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_woken)
    }

    /// Returns true if a timer resumes the run at the time `due`. Returns false if an agent's question expires at that
    /// time: the timer then only denies the question.
    fn is_resumed_at(&self, due: u64) -> bool {
        let is_denied = |waits: &Value| waits["expires"].as_u64() == Some(due);
        self.waits().is_ok_and(|waits| !waits.iter().any(is_denied))
    }

    /// Reads from the store which answers, events, messages and decisions the run waits for.
    fn waits(&self) -> Result<Vec<Value>, CliError> {
        Ok(waiting::list(&self.plan.packs.reading_host(&self.plan.store)?, &self.run)?)
    }

    /// Forwards an event to the front ends. If the event reports that the run has ended or is parked, returns the
    /// status and the time of the next timer. Returns `None` for all other events.
    fn process(&mut self, json: &Json) -> Option<(RunStatus, Option<u64>)> {
        let Some(event) = event_of(json) else {
            if let Some(live) = live_of(json) {
                self.channels.iter().for_each(|channel| channel.on_live(&live));
            }
            return None;
        };
        let own = event.run_id == self.run;
        if own && event.seq < self.next {
            return None;
        }
        self.channels.iter().for_each(|channel| channel.on_event(&event));
        if !own {
            return None;
        }
        self.next = event.seq + 1;
        self.times = Some((self.times.map_or(event.ts, |(began, _)| began), event.ts));
        let text = |name: &str| event.data.get(name).and_then(Json::as_str).unwrap_or_default();
        let status = match (event.kind, text("reason"), text("status")) {
            ("harness:complete", _, "succeeded") => RunStatus::Succeeded,
            ("harness:complete", _, "failed") => RunStatus::Failed,
            ("harness:complete", ..) => RunStatus::Cancelled,
            ("harness:parked", "waiting" | "quota_exceeded", _) => RunStatus::Parked,
            ("harness:parked", ..) => RunStatus::NeedsAttention,
            _ => return None,
        };
        Some((status, event.data.get("due").and_then(Json::as_u64)))
    }

    /// Reads the result of the run from the store.
    fn result(&self, status: RunStatus) -> Result<RunResult, CliError> {
        let host = self.plan.packs.reading_host(&self.plan.store)?;
        let flow = host.graph_of_run(&self.run)?.name.clone();
        let (outputs, error) = match host.end_of(&self.run, self.next)? {
            Some(RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs }) => (outputs, None),
            Some(RunEnd::Failed { outputs, failure, task }) => (outputs, Some(RunError { failure, task })),
            None => (Json::Null, None),
        };
        Ok(RunResult {
            run_id: self.run.clone(),
            flow,
            status,
            outputs,
            events: Vec::new(),
            duration: self
                .times
                .map_or(Duration::ZERO, |(began, last)| Duration::from_millis(last.saturating_sub(began))),
            error,
            waiting: self.waits()?.iter().filter_map(waiting_of).collect(),
            quota: None,
        })
    }

    /// Prints the result of the run, and closes the front ends. Returns the exit code.
    fn end(&self, result: &RunResult, interrupted: Interruption, terminal: Terminal) -> Result<Exit, CliError> {
        self.channels.iter().for_each(|channel| channel.on_complete(result));
        self.session.screen.close();
        let host = self.plan.packs.reading_host(&self.plan.store)?;
        self.plan.warn_of_unused_answers(&host, &self.run, terminal)?;
        let graph = host.graph_of_run(&self.run)?;
        let saved = self.plan.out.as_deref().map(|folder| save::files(&host, &result.outputs, folder)).transpose();
        let exit = report::print_as(
            self.plan,
            &graph,
            result,
            interrupted,
            self.prints.map(|prints| (prints, host.sessions())),
            terminal,
        )?;
        let saved = saved?;
        if !self.plan.quiet {
            saved.iter().flatten().for_each(|path| terminal.say(&format!("wrote {}", path.display())));
        }
        self.session.channels.close();
        Ok(exit)
    }
}

/// Reads a [`Waiting`] from its JSON.
fn waiting_of(waits: &Value) -> Option<Waiting> {
    let text = |name: &str| waits[name].as_str().unwrap_or_default();
    let address = text("address").to_owned();
    Some(match text("kind") {
        "gate" => {
            let json = Json::from(waits.clone());
            let (question, asked) = (Box::new(answers::read_question(&json)), QuestionRef::of_json(&json));
            Waiting::Answer { address, question, asked }
        }
        "decision" => Waiting::Decision { address, reason: Box::new(block_reason(text("reason"), text("message"))) },
        "message" => Waiting::Message { address, agent_run: text("agentRunId").into() },
        "event" => Waiting::Event { address, name: text("event").to_owned() },
        _ => return None,
    })
}

/// Reconstructs the reason of a blocked task from the `reason` and the `message` in the list of open waits.
fn block_reason(name: &str, message: &str) -> BlockReason {
    let called = message.split('`').nth(1).and_then(|called| called.split_once('.'));
    match (name, called) {
        ("ambiguous", Some((interface, function))) => BlockReason::Ambiguous {
            attempt: 1,
            ordinal: 0,
            interface: interface.into(),
            function: function.into(),
            about: message.split_once("happened: ").map_or(Json::Null, |(_, about)| Json::from(about)),
        },
        ("undo_failed", _) => {
            let (_, failure) = message.split_once(": ").unwrap_or(("", message));
            let (code, message) = failure.split_once(": ").unwrap_or(("", failure));
            BlockReason::UndoFailed { code: code.into(), message: message.into() }
        }
        _ => {
            let what = message.split_once(": ").map_or(message, |(_, what)| what);
            BlockReason::Nondeterministic { message: what.into() }
        }
    }
}

/// Reads a recorded event from its JSON. Returns `None` for live deltas, which have no `seq`, and for any other JSON.
fn event_of(json: &Json) -> Option<Event> {
    let text = |name: &str| json.get(name).and_then(Json::as_str);
    Some(Event {
        seq: json.get("seq")?.as_u64()?,
        ts: json.get("ts")?.as_u64()?,
        tenant: text("tenant")?.into(),
        run_id: RunId::from(text("runId")?),
        kind: intern(text("type")?),
        data: members(json),
    })
}

fn live_of(json: &Json) -> Option<LiveEvent> {
    let text = |name: &str| json.get(name).and_then(Json::as_str);
    Some(LiveEvent {
        ts: json.get("ts")?.as_u64()?,
        tenant: text("tenant")?.into(),
        run_id: RunId::from(text("runId")?),
        kind: text("type")?.into(),
        data: members(json),
    })
}

/// Returns the members of an event, without those that all events have.
fn members(json: &Json) -> Json {
    let common = ["v", "seq", "ts", "tenant", "runId", "type"];
    let members = json.as_object().into_iter().flatten().filter(|(key, _)| !common.contains(&&***key));
    Json::object(members.map(|(key, value)| (key.clone(), value.clone())))
}

/// Returns the kind of an event as a static string. The memory of each kind is never freed, but there are few kinds.
fn intern(kind: &str) -> &'static str {
    static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kinds = KINDS.lock();
    match kinds.get(kind) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(kind.to_owned().into_boxed_str());
            kinds.insert(kept);
            kept
        }
    }
}
