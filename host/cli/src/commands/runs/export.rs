//! `flowcell runs export`: exports a whole run as one document.

use std::{io::Write, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::{ExportError, RunId};

use crate::{
    arguments::run_id,
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    output::{put, replace_file},
    terminal::inert_json,
};

/// Arguments of `flowcell runs export`.
#[derive(Args)]
#[command(after_help = "\
The document is { \"v\": 1, \"run\", \"record\", \"units\", \"events\", \"inputs\", \"children\" }:
  run       the run as `runs list --json` has it
  record    the start of the run: its flow, pinned files, policy and parent
  units     the journal in units; the store writes the facts of a unit together
  events    the events as in `runs events`; if the flow no longer loads, `eventsMissing` gives the reason
  inputs    the inputs of tasks, up to 16 MiB; `inputsLeftOut` counts the omitted ones
  children  a document for each run that this run called
Values are complete, however large. The command changes nothing, and another process may own the store.")]
pub(crate) struct ExportArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Write to this file, completely or not at all, instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    of: TenantArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &ExportArgs) -> Result<Exit, CliError> {
    match &args.out {
        Some(file) => replace_file(file, |out| export(args, out))?,
        None => {
            let mut text = Vec::new();
            export(args, &mut text)?;
            put(&inert_json(&String::from_utf8_lossy(&text)))?;
        }
    }
    Ok(Exit::Good)
}

fn export(args: &ExportArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let host = args.of.reading_host(&args.packs)?;
    Ok(host.export(&*args.of.store.reader()?, &args.run, out)?)
}

impl From<ExportError> for CliError {
    fn from(error: ExportError) -> CliError {
        match &error {
            ExportError::Unknown(_) => {
                CliError::wrong(error.to_string()).hint("`flowcell runs list` lists the runs in the store")
            }
            ExportError::Store(_) | ExportError::Write(_) => CliError::internal(error.to_string()),
        }
    }
}
