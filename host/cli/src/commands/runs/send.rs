//! `flowcell send` and `flowcell emit`: sends messages and events to a run.

use clap::Args;
use flowcell::{Json, RunCommand, RunId};

use super::record;
use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::TenantArgs,
    terminal::Terminal,
};

/// Arguments of `flowcell emit`.
#[derive(Args)]
pub(crate) struct EmitArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// The name of the event
    name: String,
    /// The payload: JSON if it parses as JSON, otherwise text
    #[arg(default_value = "null")]
    payload: String,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell send`.
#[derive(Args)]
pub(crate) struct SendArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// The message: JSON if it parses as JSON, otherwise text; not allowed with `--close`
    #[arg(required_unless_present = "close")]
    content: Option<String>,
    /// Send to this agent run: its id, or the address of its node
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,
    /// The id of the message; an agent run accepts messages with the same id once
    #[arg(long, value_name = "ID", requires = "to")]
    id: Option<String>,
    /// Ask the agent run to finish
    #[arg(long, requires = "to", conflicts_with_all = ["content", "id"])]
    close: bool,
    #[command(flatten)]
    of: TenantArgs,
}

pub(crate) fn emit(args: &EmitArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let emit = RunCommand::Emit { name: args.name.clone(), payload: json_or_text(&args.payload).into() };
    record(&args.of, args.run.clone(), emit, terminal)
}

pub(crate) fn send(args: &SendArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let content = json_or_text(args.content.as_deref().unwrap_or_default()).into();
    let command = match &args.to {
        Some(to) if args.close => RunCommand::CloseAgent { to: to.clone() },
        Some(to) => RunCommand::Write { to: to.clone(), message: args.id.clone(), value: content },
        None => RunCommand::Send { content },
    };
    record(&args.of, args.run.clone(), command, terminal)
}

fn json_or_text(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::from(text))
}
