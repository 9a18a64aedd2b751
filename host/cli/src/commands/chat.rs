//! `flowcell chat`: a person talks with a run, whoever drives it.

use clap::Args;
use flowcell::{Json, OpenStoreError, RunId, RunOptions};

use crate::{
    options::{PackArgs, Place, StoreArgs, channels::ChannelArgs},
    owner::{self, durable, run_id},
    problem::{Exit, Problem},
    session::{self, RunArgs, chat::remote},
    terminal::Terminal,
};

/// Arguments of `flowcell chat`.
#[derive(Args)]
pub(crate) struct ChatArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Goes on with the run, or, if another process owns the store, talks with the run over there.
pub(super) fn execute(args: ChatArgs, terminal: Terminal) -> Result<Exit, Problem> {
    match (args.packs.host_at(durable(&args.store)?), durable(&args.store)?) {
        (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), Place::Folder(folder)) => {
            remote::talk(folder, &args.run, terminal)
        }
        (host, _) => {
            let host = host?;
            let prepared = RunArgs {
                run_id: Some(args.run.clone()),
                chat: true,
                again: true,
                channels: args.channels,
                packs: args.packs,
                store: args.store.clone(),
                ..RunArgs::default()
            };
            let guests = owner::listen_beside(&host, &prepared.store, &prepared.packs, terminal)?;
            let _serving = host.serve()?;
            let session = session::Session::open(&prepared, &host, args.run.as_str(), terminal)?;
            let session = session.with_guests(guests);
            let runner =
                host.resume(&args.run, RunOptions { by_hand: true, ..session.options(&prepared, Json::Null) })?;
            session::finish(&prepared, session, host, runner, terminal)
        }
    }
}
