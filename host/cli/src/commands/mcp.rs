//! `flowcell mcp`: offers flows as tools to the program that started this one.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueHint};
use flowcell::{
    control::QueueDriver,
    reload::Reloader,
    server::mcp::{self, PipeError},
};

use crate::{
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreArgs, StoreLocation},
    owner::{listen, require_durable, unreadable},
    session::interrupt::Signals,
    terminal::Terminal,
};

/// Arguments of `flowcell mcp`.
#[derive(Args)]
pub(crate) struct McpArgs {
    /// The folder of the flows
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(crate) fn execute(args: &McpArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let place = require_durable(&args.store)?;
    let host = args.packs.host_with(&args.store)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::internal("cannot start the runtime").because(&error))?;
    let served = runtime.block_on(async {
        let mut signals =
            Signals::listen().map_err(|error| CliError::internal("cannot listen for signals").because(&error))?;
        let stop = async move { _ = signals.next().await };
        let own = host.clone();
        let reach = args.packs.reach();
        let begun = move |admission| {
            if let StoreLocation::Folder(folder) = place {
                let reloader = Arc::new(Reloader::new(own.clone()));
                listen(&own, folder, Arc::new(QueueDriver { admission, reloader, origin: None }), reach, terminal);
            }
        };
        Ok::<_, CliError>(mcp::serve(host, args.flows.clone(), begun, stop).await)
    })?;
    flowcell::end_runtime(runtime);
    match served {
        Ok(()) => Ok(Exit::Good),
        Err(PipeError::Client(why)) => {
            Err(CliError::wrong(format!("the client on standard input does not speak MCP: {why}"))
                .hint("start this command from an MCP client; `flowcell help mcp` shows the settings of clients"))
        }
        Err(error) => Err(unreadable(&error)),
    }
}
