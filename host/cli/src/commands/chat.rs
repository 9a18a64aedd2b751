//! `flowcell chat`: a person talks with a run of this process or of another one.

use clap::Args;
use flowcell::{Json, RunId, RunOptions};

use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreArgs, channels::ChannelArgs},
    owner::{Owner, RunDriver, require_durable, with_present_owner},
    session::{self, Plan, chat::remote},
    terminal::Terminal,
};

/// Arguments of `flowcell chat`.
#[derive(Args)]
pub(crate) struct ChatArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    channels: ChannelArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Resumes the run here, or talks with it through the process that owns the store.
pub(super) fn execute(args: ChatArgs, terminal: Terminal) -> Result<Exit, CliError> {
    with_present_owner(|| match Owner::of(require_durable(&args.store)?, &args.packs)? {
        Owner::Other(folder) => remote::talk(folder, &args.run, terminal),
        Owner::Here(host) => {
            let plan = Plan {
                run_id: Some(args.run.clone()),
                chat: true,
                again: true,
                channels: args.channels.clone(),
                packs: args.packs.clone(),
                store: args.store.clone(),
                ..Plan::default()
            };
            let driver = RunDriver::listen(&host, &plan.store, &plan.packs, terminal)?;
            let _serving = host.serve()?;
            let session = session::Session::open(&plan, &host, args.run.as_str(), terminal)?;
            let session = session.driven_by(driver);
            let runner = host.resume(&args.run, RunOptions { by_hand: true, ..session.options(&plan, Json::Null) })?;
            session::finish(&plan, session, host, runner, terminal)
        }
    })
}
