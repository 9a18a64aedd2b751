//! `flowcell drive`: every run that can move goes on.

use std::{collections::HashSet, sync::Arc, time::Duration};

use clap::Args;
use flowcell::{Host, RunId, RunOptions, RunResult};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinSet},
};

use super::{
    PackArgs, Place, StoreArgs,
    channels::{ChannelArgs, Channels},
    run::{self, progress::Progress, screen::Screen},
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

pub(super) fn execute(args: &DriveArgs, terminal: Terminal) -> Result<Exit, Problem> {
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
    let console = args.channels.shows_console().then_some(screen);
    let mut drive = Drive { host, terminal, driving: JoinSet::new(), begun: HashSet::new(), channels, console };
    let outcome = block_on(async {
        loop {
            drive.begin()?;
            if args.once && drive.driving.is_empty() {
                return Ok(Exit::Good);
            }
            let wait = drive.pause()?;
            tokio::select! {
                Some(result) = drive.driving.join_next() => drive.ended(result),
                () = moved.notified() => {}
                () = tokio::time::sleep(wait) => {}
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
    /// Runs that are driven, and those that cannot be.
    begun: HashSet<RunId>,
    channels: Channels,
    /// Where progress is shown, if it is.
    console: Option<Arc<Screen>>,
}

impl Drive {
    /// Begins with what can move and is not driven yet.
    fn begin(&mut self) -> Result<(), Problem> {
        if let Some(store) = self.host.shared() {
            let free = DRIVEN.saturating_sub(self.driving.len());
            let found = store.work(&local(), self.host.now(), free).map_err(|error| unreadable(&error))?;
            // Each is given back once it is driven, or cannot be.
            for offer in found {
                self.begin_with(offer.run.clone());
            }
            return Ok(());
        }
        let lists = self.host.runs().ok_or_else(|| Problem::internal("nothing is kept"))?;
        let runnable = lists.runnable(&local(), self.host.now(), DRIVEN + self.begun.len());
        for run in runnable.map_err(|error| unreadable(&error))? {
            self.begin_with(run);
        }
        Ok(())
    }

    fn begin_with(&mut self, run: RunId) {
        if self.driving.len() >= DRIVEN || !self.begun.insert(run.clone()) {
            return;
        }
        if let Err(problem) = self.drive(&run) {
            self.terminal.say(&problem.render(self.terminal.paint()));
        }
    }

    fn drive(&mut self, run: &RunId) -> Result<(), Problem> {
        let options = RunOptions { patience: Some(PATIENCE), without_events: true, ..RunOptions::default() };
        let mut runner = self.host.resume(run, options)?;
        if let Some(screen) = &self.console {
            runner.attach(Arc::new(Progress::new(screen.clone(), runner.flow())));
        }
        // A program is started only for a run that can be driven.
        let attached = self.channels.of_a_run()?;
        attached.channels.iter().for_each(|channel| _ = runner.attach(channel.clone()));
        runner.wait_for_answers(attached.can_answer()).start_session();
        self.driving.spawn(async move { attached.until_deserted(runner).await });
        Ok(())
    }

    /// How long to wait until something may be there to drive.
    fn pause(&self) -> Result<Duration, Problem> {
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
        let status = serde_json::to_value(result.status).unwrap_or_default();
        let status = status.as_str().unwrap_or_default().to_owned();
        self.terminal.say(&format!("{}  {status}  {}", result.run_id, inert(&result.flow)));
    }
}
