//! `flowcell serve`: runs the HTTP server.

mod check;
pub(super) mod config;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, ValueHint};
use flowcell::{
    AddressRange,
    control::QueueDriver,
    server::{Limits, ServeError, Server, Settings},
    tenants::callers::Callers,
};

use super::{
    reload::reload_at_hangup,
    secret::{warn_if_exposed, warn_of_lost_secrets},
};
use crate::{
    cli_error::{CliError, Exit},
    duration,
    log::LogFormat,
    options::{
        PackArgs, StoreArgs, StoreLocation,
        notify::NotifyArgs,
        outbound::OutboundArgs,
        retention::RetentionArgs,
        room::RoomArgs,
        server::ServerArgs,
        sign_in::SignInArgs,
        tls::{TlsArgs, warn_of_plain_network},
        watch::WatchArgs,
    },
    owner::{listen, require_durable, unreadable},
    session::interrupt::{Signal, Signals},
    terminal::Terminal,
};

/// The longest delay between a signal and the stop of the server.
const MAX_DRAIN_DELAY: Duration = Duration::from_secs(600);
/// The longest time for which an ending server waits for notifications.
const MAX_TELLING_TIME: Duration = Duration::from_secs(10);

/// Arguments of `flowcell serve`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A YAML file of options by their long names in camel case, such as `allowPrivate`; the command line and the
    /// environment take precedence; paths in it are relative to its folder
    #[arg(long, value_name = "FILE", env = "FLOWCELL_CONFIG", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Print the settings and their sources, and check them, the store and the flows, instead of serving
    #[arg(long)]
    check: bool,
    /// The address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7171", env = "FLOWCELL_LISTEN")]
    listen: SocketAddr,
    /// A host name that requests may use, besides the server's own address; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// A proxy in front of the server, such as 127.0.0.1 or 10.0.0.0/8; the server takes a caller's address from its
    /// `Forwarded` and `X-Forwarded-For` headers; may be repeated
    #[arg(long = "trusted-proxy", value_name = "ADDRESS", env = "FLOWCELL_TRUSTED_PROXY", value_delimiter = ',')]
    trusted_proxy: Vec<AddressRange>,
    /// The folder of the flows of the tenant `local`; the flows of other tenants are in `.tenants` below it
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    /// The maximum number of open connections; beyond it the server closes an idle connection for a new one, or refuses
    /// the new one
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections as u64,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_connections: u64,
    /// The time limit for the head of a request, and for idle connections, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = Limits::default().head_time.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    head_time_ms: u64,
    /// After a signal to stop, the time for which `/readyz` answers 503 while everything else goes on, such as 10s; at
    /// most 10m
    #[arg(long, value_name = "DUR", value_parser = drain_delay)]
    drain_delay: Option<Duration>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    notify: NotifyArgs,
    #[command(flatten)]
    sign_in: SignInArgs,
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

pub(crate) fn execute(args: &ServeArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let place = require_durable(&args.store)?;
    args.retention.check()?;
    if args.check {
        // `commands::parse` has printed the settings.
        return check::check(args, place, terminal);
    }
    args.packs.check_keys(place)?;
    let tls = args.tls.files()?;
    let has_tls = tls.is_some();
    let notify = args.notify.file()?;
    let sign_in = args.sign_in.file()?;
    raise_descriptors();
    let host = args.packs.watched_host(&args.store, &args.server, &args.watch, true)?;
    args.room.watch(&host);
    args.outbound.limit(&host);
    warn_if_exposed(&args.store, terminal)?;
    warn_of_lost_secrets(&host, terminal);
    check::warn_of_misplaced(&args.flows, terminal);
    let retention = args.retention.of(&host, Some(&args.flows))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::internal("cannot start the runtime").because(&error))?;
    let exit = runtime.block_on(async {
        let identity = Arc::new(Callers::of(&host).map_err(|error| unreadable(&error))?);
        let notifier = args.notify.open(notify, &host, identity.clone()).await?;
        let sign_ins = args.sign_in.open(sign_in, &host, identity.clone()).await?;
        let settings = Settings {
            listen: args.listen,
            identity,
            flows: args.flows.clone(),
            names: args.names.clone(),
            proxies: args.trusted_proxy.clone(),
            tls,
            limits: args.limits(),
            pages: Some(flowcell_console::router),
            notifications: args.notify.control(notifier.as_ref()),
            sign_ins,
            drain_delay: args.drain_delay.unwrap_or_default(),
        };
        let mut signals =
            Signals::listen().map_err(|error| CliError::internal("cannot listen for signals").because(&error))?;
        let server = Server::bind(host.clone(), settings).await.map_err(start_error)?;
        let mut listening = None;
        if let StoreLocation::Folder(folder) = place {
            let origin = Some(server.console_origin().to_owned());
            let owner = QueueDriver { admission: server.admission(), reloader: server.reloader(), origin };
            let owner = Arc::new(owner);
            listening = listen(&host, folder, owner, args.packs.reach(), terminal);
        }
        reload_at_hangup(server.reloader(), terminal)?;
        tokio::spawn(retention.attend());
        let (stop_telling, stopped) = tokio::sync::oneshot::channel::<()>();
        let telling = notifier.map(|notifier| tokio::spawn(notifier.attend(async move { _ = stopped.await })));
        warn_of_plain_network(server.address(), has_tls, !args.trusted_proxy.is_empty(), terminal);
        terminal.say(&format!("listening on {}", server.url()));
        let exit = serve_until_stopped(server, &mut signals, args.drain_delay, terminal).await;
        if let (Some(listening), Ok(Exit::Good)) = (listening, &exit) {
            listening.end();
        }
        drop(stop_telling);
        // After a second signal, the process ends at once.
        if let (Some(telling), Ok(Exit::Good)) = (telling, &exit) {
            // It ends after a short time, unless the store is away. If it has panicked, the log has the reason.
            let _ = tokio::time::timeout(MAX_TELLING_TIME, telling).await;
        }
        exit
    });
    match &exit {
        Ok(Exit::Good) => flowcell::end_runtime(runtime),
        // Runs may still be driven. If the runtime dropped their connections one by one, a run on another thread could
        // record that a call broke. The process ends with the runtime, as if it was killed.
        _ => std::mem::forget(runtime),
    }
    exit
}

impl ServeArgs {
    pub(super) fn log_format(&self) -> Option<LogFormat> {
        self.watch.log_format()
    }

    fn limits(&self) -> Limits {
        let connections = usize::try_from(self.max_connections).unwrap_or(usize::MAX);
        let head_time = Duration::from_millis(self.head_time_ms);
        Limits { connections, head_time, ..Limits::default() }
    }
}

/// Parses the value of `--drain-delay`.
fn drain_delay(text: &str) -> Result<Duration, String> {
    let delay = duration::parse(text).map_err(|why| format!("{why}; without a delay, leave `--drain-delay` out"))?;
    if delay > MAX_DRAIN_DELAY { Err("the longest delay is 10m".to_owned()) } else { Ok(delay) }
}

/// Raises the limit of open file descriptors to the system's maximum. The default is often 1,024.
fn raise_descriptors() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        raised.unwrap_or_else(|error| tracing::warn!("cannot raise the limit of open connections: {error}"));
    }
}

/// Serves until a signal arrives, and then waits until the server has parked its runs. A second signal ends the
/// process at once.
async fn serve_until_stopped(
    server: Server,
    signals: &mut Signals,
    drain_delay: Option<Duration>,
    terminal: Terminal,
) -> Result<Exit, CliError> {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(server.run(async move { _ = stopped.await }));
    tokio::select! {
        served = &mut serving => return served.map(|()| Exit::Good).map_err(|error| unreadable(&error)),
        Some(_) = signals.next() => {}
    }
    let when = drain_delay.map(|delay| format!(" in {}", duration::show(delay))).unwrap_or_default();
    terminal.say(&terminal.paint().faint(&format!("stopping{when}; a second signal quits immediately")));
    // Sending fails only if the server has already ended.
    let _ = stop.send(());
    tokio::select! {
        served = &mut serving => served.map(|()| Exit::Good).map_err(|error| unreadable(&error)),
        Some(signal) = signals.next() => Ok(Signal::exit(signal)),
    }
}

fn start_error(error: ServeError) -> CliError {
    let problem = CliError::wrong(error.to_string());
    match error {
        ServeError::Unguarded(_) | ServeError::UnguardedProxy(_) => problem
            .hint("create a tenant and a token with `flowcell tenant create NAME` and `flowcell token create NAME`"),
        ServeError::Listen { source, .. } => {
            problem.because(&source).hint("use a free port with `--listen 127.0.0.1:0`")
        }
        ServeError::Telemetry(error) => error.into(),
        ServeError::Tls(error) => error.into(),
        ServeError::Start(_) => problem,
    }
}
