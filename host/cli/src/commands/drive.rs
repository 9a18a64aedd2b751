//! `flowcell drive`: drives every run that is ready.

use std::sync::Arc;

use clap::Args;
use flowcell::{
    FlowRunner, Host, RunResult, StartError,
    contract::Tenant,
    control::QueueDriver,
    jobs::worker::JobWorker,
    reload::Reloader,
    supervisor::{RunObserver, Supervisor},
    tenants::callers::Callers,
};
use futures_util::future::BoxFuture;

use super::{
    reload::reload_at_hangup,
    secret::{warn_if_exposed, warn_of_lost_secrets},
};
use crate::{
    cli_error::{CliError, Exit},
    log::LogFormat,
    options::{
        PackArgs, StoreArgs, StoreLocation,
        channels::{ChannelArgs, Channels},
        outbound::OutboundArgs,
        retention::RetentionArgs,
        room::RoomArgs,
        server::ServerArgs,
        watch::WatchArgs,
    },
    owner::{block_on, listen, require_durable, unreadable},
    session,
    session::{
        interrupt::{Signal, Signals},
        progress::Progress,
        screen::Screen,
    },
    terminal::{Terminal, inert},
};

/// Arguments of `flowcell drive`.
#[derive(Args)]
pub(crate) struct DriveArgs {
    /// Exit when no run is ready, instead of waiting for timers and for requests of other processes
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    retention: RetentionArgs,
    #[command(flatten)]
    room: RoomArgs,
    #[command(flatten)]
    outbound: OutboundArgs,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

impl DriveArgs {
    pub(super) fn log_format(&self) -> Option<LogFormat> {
        self.watch.log_format()
    }
}

pub(crate) fn execute(args: &DriveArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let place = require_durable(&args.store)?;
    args.packs.check_keys(place)?;
    let host = args.packs.watched_host(&args.store, &args.server, &args.watch, !args.once)?;
    args.room.watch(&host);
    args.outbound.limit(&host);
    warn_if_exposed(&args.store, terminal)?;
    warn_of_lost_secrets(&host, terminal);
    let screen = Arc::new(Screen::new(terminal, true));
    let channels = Arc::new(args.channels.open(&host, session::notices(&screen))?);
    let console = args.channels.shows_progress().then_some(screen);
    let mut drive = Supervisor::new(
        host.clone(),
        Arc::new(Watcher { host: host.clone(), terminal, channels: channels.clone(), console }),
    );
    let reloader = Arc::new(Reloader::new(host.clone()));
    let mut listening = None;
    let said = match place {
        StoreLocation::Folder(folder) => {
            let owner =
                Arc::new(QueueDriver { admission: drive.admission(), reloader: reloader.clone(), origin: None });
            listening = listen(&host, folder, owner, args.packs.reach(), terminal);
            format!("driving the runs in {}", folder.display())
        }
        _ => "driving the runs of the shared store".to_owned(),
    };
    let _serving = host.serve()?;
    terminal.say(&terminal.paint().faint(&said));
    let retention = args.retention.of(&host, None)?;
    let callers = Callers::of(&host).map_err(|error| unreadable(&error))?;
    let jobs = JobWorker::new(host.clone(), Arc::new(callers)).signaling(drive.admission().ready_signal().clone());
    let outcome = block_on(async {
        if !args.once {
            reload_at_hangup(reloader.clone(), terminal)?;
            tokio::spawn(async move { reloader.follow_shared_packs().await });
            tokio::spawn(retention.attend());
            tokio::spawn(jobs.attend());
        }
        host.start_telemetry()?;
        let outcome = drive_until_done(args, &mut drive, terminal).await;
        host.stop_telemetry().await;
        outcome
    })?;
    if let Some(listening) = listening {
        listening.end();
    }
    channels.close();
    outcome
}

/// Drives runs until a signal arrives or, with `--once`, until no run is ready. A second signal ends the process at
/// once.
async fn drive_until_done(args: &DriveArgs, drive: &mut Supervisor, terminal: Terminal) -> Result<Exit, CliError> {
    let mut signals =
        Signals::listen().map_err(|error| CliError::internal("cannot listen for signals").because(&error))?;
    loop {
        drive.refresh().map_err(|error| unreadable(&error))?;
        if args.once && drive.is_idle() {
            return match drive.unreadable() {
                Some(error) => Err(unreadable(error)),
                None => Ok(Exit::Good),
            };
        }
        tokio::select! {
            () = drive.wait() => {}
            Some(_) = signals.next() => break,
        }
    }
    terminal.say(&terminal.paint().faint("stopping; a second signal quits immediately"));
    tokio::select! {
        () = drive.stop() => Ok(Exit::Good),
        Some(signal) = signals.next() => Ok(Signal::exit(signal)),
    }
}

/// Shows the progress of the driven runs.
struct Watcher {
    host: Host,
    terminal: Terminal,
    channels: Arc<Channels>,
    /// The screen that shows progress. `None` shows none.
    console: Option<Arc<Screen>>,
}

impl RunObserver for Watcher {
    fn attend(&self, _tenant: &Tenant, mut runner: FlowRunner) -> Option<BoxFuture<'static, RunResult>> {
        self.host.watch(&mut runner);
        if let Some(screen) = &self.console {
            runner.attach(Arc::new(Progress::new(screen.clone(), runner.flow())));
        }
        // Start the programs of channels only for a run that can be driven.
        let attached = match self.channels.open_for_run() {
            Ok(attached) => attached,
            Err(problem) => {
                problem.print(self.terminal);
                return None;
            }
        };
        attached.channels.iter().for_each(|channel| _ = runner.attach(channel.clone()));
        runner.wait_for_answers(attached.can_answer());
        Some(Box::pin(async move { attached.drive_run(runner).await }))
    }

    fn ended(&self, result: &RunResult) {
        let status = serde_json::to_value(result.status).unwrap_or_default();
        let status = status.as_str().unwrap_or_default().to_owned();
        self.terminal.say(&format!("{}  {status}  {}", result.run_id, inert(&result.flow)));
    }

    fn refused(&self, error: StartError) {
        CliError::from(error).print(self.terminal);
    }
}
