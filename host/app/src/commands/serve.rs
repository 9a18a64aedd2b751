//! `flowcell serve`: the HTTP server.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::{Args, ValueHint};
use flowcell::{
    Host,
    server::{
        Limits, ServeError, Server, Settings,
        identity::{Identify, Local},
    },
    tenants::Tenants,
};

use super::{
    PackArgs, Place, StoreArgs,
    run::interrupt::{Signal, Signals},
    runs::{durable, listen, unreadable},
};
use crate::{
    problem::{Exit, Problem},
    terminal::Terminal,
};

/// Arguments of `flowcell serve`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7171", env = "FLOWCELL_LISTEN")]
    listen: SocketAddr,
    /// A name under which the server may be asked, beside its own address; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// The folder with the flows of the tenant `local`; those of others are in `.tenants` below it
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(crate) fn execute(args: &ServeArgs, terminal: Terminal) -> Result<Exit, Problem> {
    let place = durable(&args.store)?;
    let host = args.packs.host_with(&args.store)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Problem::internal("cannot start the runtime").because(&error))?;
    let exit = runtime.block_on(async {
        let settings = Settings {
            listen: args.listen,
            identity: identity(&host)?,
            flows: args.flows.clone(),
            names: args.names.clone(),
            limits: Limits::default(),
        };
        let mut signals =
            Signals::listen().map_err(|error| Problem::internal("cannot listen to signals").because(&error))?;
        let server = Server::bind(host.clone(), settings).await.map_err(refused)?;
        if let Place::Folder(folder) = place {
            let moved = server.moved();
            listen(&host, folder, move || moved.notify_one(), terminal);
        }
        terminal.say(&format!("listening on http://{}", server.address()));
        until_stopped(server, &mut signals, terminal).await
    });
    // Attempts that were abandoned are not waited for.
    runtime.shutdown_background();
    exit
}

/// Where tenants are registered callers show their tokens; else everybody on this machine is `local`.
fn identity(host: &Host) -> Result<Arc<dyn Identify>, Problem> {
    let tenants = Tenants::of(host);
    let listed = tenants.list().map_err(|error| unreadable(&error))?;
    Ok(if listed.is_empty() { Arc::new(Local) } else { Arc::new(tenants) })
}

/// Serves until a signal comes, and then until everything is put down; a second signal waits for nothing.
async fn until_stopped(server: Server, signals: &mut Signals, terminal: Terminal) -> Result<Exit, Problem> {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(server.run(async move { _ = stopped.await }));
    tokio::select! {
        served = &mut serving => return served.map(|()| Exit::Good).map_err(|error| unreadable(&error)),
        Some(_) = signals.next() => {}
    }
    terminal.say(&terminal.paint().faint("stopping; a second signal quits at once"));
    // The server may have ended by itself.
    let _ = stop.send(());
    tokio::select! {
        served = &mut serving => served.map(|()| Exit::Good).map_err(|error| unreadable(&error)),
        Some(signal) = signals.next() => Ok(Signal::exit(signal)),
    }
}

fn refused(error: ServeError) -> Problem {
    let problem = Problem::wrong(error.to_string());
    match error {
        ServeError::Unguarded(_) => {
            problem.hint("`flowcell tenant create NAME` and `flowcell token create NAME` make who may call")
        }
        ServeError::Listen { source, .. } => problem.because(&source).hint("`--listen 127.0.0.1:0` takes a free port"),
        ServeError::Start(_) => problem,
    }
}
