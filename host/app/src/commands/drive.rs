//! `flowcell drive`: goes on with every run that can move.
//!
//! A run that was being executed each time when a process died may be why it died, or may only have been there. So a run
//! that would be parked the next time is tried alone: until it moves on, nothing else begins.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Args;
use flowcell::{Channel, Event, FlowRunner, Host, Hub, Offer, RunId, RunOptions, RunResult};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    PackArgs, Place, StoreArgs,
    channels::{ChannelArgs, Channels},
    run::{self, interrupt::Signals, progress::Progress, screen::Screen},
    runs::{block_on, durable, listen, local, unreadable},
};
use crate::{
    problem::{Exit, Problem},
    terminal::{Terminal, inert},
};

/// Runs driven at a time.
const DRIVEN: usize = 64;
/// A driven run that only timers move on is put away if none is due within this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks for what other processes have left to do.
const LOOK: Duration = Duration::from_millis(200);
/// Others wait at most so long for a run that is tried alone.
const TRIAL: Duration = Duration::from_secs(30);

/// Arguments of `flowcell drive`.
#[derive(Args)]
pub(crate) struct DriveArgs {
    /// Return when nothing can move any more, instead of waiting for timers and for what others ask
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(crate) fn execute(args: &DriveArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let place = durable(&args.store)?;
    let host = args.packs.host_with(&args.store)?;
    let moved = Arc::new(Notify::new());
    let notify = moved.clone();
    let said = match place {
        Place::Folder(folder) => {
            listen(&host, folder, move || notify.notify_one(), terminal);
            format!("driving the runs in {}", folder.display())
        }
        _ => "driving the runs of the shared store".to_owned(),
    };
    let _serving = host.serve()?;
    terminal.say(&terminal.paint().faint(&said));
    let screen = Arc::new(Screen::new(terminal, true));
    let channels = args.channels.open(&host, run::notices(&screen))?;
    let mut drive = Drive {
        host,
        terminal,
        driving: JoinSet::new(),
        hubs: HashMap::new(),
        begun: HashSet::new(),
        held: VecDeque::new(),
        trial: None,
        moved: moved.clone(),
        channels,
        console: args.channels.shows_console().then_some(screen),
    };
    let outcome = block_on(async {
        let mut signals =
            Signals::listen().map_err(|error| Problem::internal("cannot listen to signals").because(&error))?;
        loop {
            drive.look()?;
            drive.begin();
            if args.once && drive.driving.is_empty() && drive.held.is_empty() {
                return Ok(Exit::Good);
            }
            let wait = drive.pause()?;
            tokio::select! {
                Some(result) = drive.driving.join_next() => drive.ended(result),
                () = moved.notified() => {}
                () = tokio::time::sleep(wait) => {}
                Some(_) = signals.next() => return Ok(drive.stop(&mut signals).await),
            }
        }
    })?;
    drive.channels.close();
    outcome
}

/// Drives every run that can move.
struct Drive {
    host: Host,
    terminal: Terminal,
    driving: JoinSet<RunResult>,
    hubs: HashMap<RunId, Hub>,
    /// Runs that are driven or held, and those that cannot be driven.
    begun: HashSet<RunId>,
    /// Runs that are to begin.
    held: VecDeque<Held>,
    /// The run that is tried alone.
    trial: Option<Trial>,
    moved: Arc<Notify>,
    channels: Channels,
    /// Where progress is shown, if it is.
    console: Option<Arc<Screen>>,
}

/// A run that is to begin.
struct Held {
    run: RunId,
    /// Of a shared store: the run is this process's until it is given back.
    _offer: Option<Offer>,
}

/// A run that is tried alone.
struct Trial {
    run: RunId,
    until: Instant,
    moved_on: Arc<Watch>,
}

/// Sees whether a run moves on.
struct Watch {
    moved: Arc<Notify>,
    seen: AtomicBool,
}

impl Watch {
    fn has_seen(&self) -> bool {
        self.seen.load(Ordering::Acquire)
    }
}

impl Channel for Watch {
    fn on_event(&self, event: &Event) {
        let begins =
            matches!(event.kind, "harness:resumed" | "task:start" | "task:resumed" | "call:start" | "log" | "metric");
        if !begins {
            self.seen.store(true, Ordering::Release);
            self.moved.notify_one();
        }
    }
}

impl Drive {
    /// Looks for what can move and is not driven yet.
    fn look(&mut self) -> Result<(), Problem> {
        let free = DRIVEN.saturating_sub(self.driving.len() + self.held.len());
        if let Some(store) = self.host.shared() {
            let found = store.work(&local(), self.host.now(), free).map_err(|error| unreadable(&error))?;
            for offer in found {
                self.hold(offer.run.clone(), Some(offer));
            }
            return Ok(());
        }
        let lists = self.host.runs().ok_or_else(|| Problem::internal("nothing is kept"))?;
        let runnable = lists.runnable(&local(), self.host.now(), DRIVEN + self.begun.len());
        for run in runnable.map_err(|error| unreadable(&error))?.into_iter() {
            self.hold(run, None);
        }
        Ok(())
    }

    fn hold(&mut self, run: RunId, offer: Option<Offer>) {
        if self.driving.len() + self.held.len() < DRIVEN && self.begun.insert(run.clone()) {
            self.held.push_back(Held { run, _offer: offer });
        }
    }

    /// Begins with what is held: one that is to be tried alone, or all.
    fn begin(&mut self) {
        if let Some(trial) = &self.trial {
            if Instant::now() < trial.until && !trial.moved_on.has_seen() {
                return;
            }
            self.trial = None;
        }
        let mut ready = Vec::new();
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else { break };
            let Some(mut runner) = self.runner(&held.run) else { continue };
            if runner.is_suspect() {
                let moved_on = Arc::new(Watch { moved: self.moved.clone(), seen: AtomicBool::new(false) });
                runner.attach(moved_on.clone());
                self.trial = Some(Trial { run: held.run, until: Instant::now() + TRIAL, moved_on });
                self.drive(runner);
                // The others are looked at again when this one has moved on.
                self.held.extend(ready.into_iter().map(|(held, _)| held));
                return;
            }
            ready.push((held, runner));
        }
        ready.into_iter().for_each(|(_, runner)| self.drive(runner));
    }

    fn runner(&self, run: &RunId) -> Option<FlowRunner> {
        let options = RunOptions { patience: Some(PATIENCE), without_events: true, ..RunOptions::default() };
        match self.host.resume(run, options) {
            Ok(runner) => Some(runner),
            Err(error) => {
                self.terminal.say(&Problem::from(error).render(self.terminal.paint()));
                None
            }
        }
    }

    fn drive(&mut self, mut runner: FlowRunner) {
        if let Some(screen) = &self.console {
            runner.attach(Arc::new(Progress::new(screen.clone(), runner.flow())));
        }
        // A program is started only for a run that can be driven.
        let attached = match self.channels.of_a_run() {
            Ok(attached) => attached,
            Err(problem) => return self.terminal.say(&problem.render(self.terminal.paint())),
        };
        attached.channels.iter().for_each(|channel| _ = runner.attach(channel.clone()));
        runner.wait_for_answers(attached.can_answer()).start_session();
        self.hubs.insert(runner.run_id().clone(), runner.hub());
        self.driving.spawn(async move { attached.until_deserted(runner).await });
    }

    /// Stops driving in good order: every run is put down where it is. A second signal waits for none.
    async fn stop(&mut self, signals: &mut Signals) -> Exit {
        self.terminal.say(&self.terminal.paint().faint("stopping; a second signal quits at once"));
        self.held.clear();
        let hubs = std::mem::take(&mut self.hubs);
        hubs.into_values().for_each(|hub| _ = tokio::spawn(async move { hub.stop().await }));
        while !self.driving.is_empty() {
            tokio::select! {
                Some(result) = self.driving.join_next() => self.ended(result),
                Some(signal) = signals.next() => return signal.exit(),
            }
        }
        if let Some(store) = self.host.shared() {
            store.retire();
        }
        Exit::Good
    }

    /// How long to wait until something may be there to drive.
    fn pause(&self) -> Result<Duration, Problem> {
        if let Some(trial) = &self.trial {
            return Ok(trial.until.saturating_duration_since(Instant::now()));
        }
        let lists = self.host.runs().ok_or_else(|| Problem::internal("nothing is kept"))?;
        let due = lists.next_due(&local()).map_err(|error| unreadable(&error))?;
        // Without a timer it is the others that move a run; of another process one hears only by looking.
        let longest = if self.host.shared().is_some() { LOOK } else { Duration::from_secs(3_600) };
        Ok(due.map_or(longest, |due| self.until(due).min(longest)))
    }

    fn until(&self, due: u64) -> Duration {
        // A run that is due and cannot be driven must not make this a loop without a rest.
        Duration::from_millis(due.saturating_sub(self.host.now()).max(100))
    }

    fn ended(&mut self, result: Result<RunResult, JoinError>) {
        let Ok(result) = result else { return };
        self.begun.remove(&result.run_id);
        self.hubs.remove(&result.run_id);
        if self.trial.as_ref().is_some_and(|trial| trial.run == result.run_id) {
            self.trial = None;
        }
        let status = serde_json::to_value(result.status).unwrap_or_default();
        let status = status.as_str().unwrap_or_default().to_owned();
        self.terminal.say(&format!("{}  {status}  {}", result.run_id, inert(&result.flow)));
    }
}
