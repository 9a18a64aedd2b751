//! `flowcell runs export`: exports a whole run as one document.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use flowcell::{ExportError, RunId};

use crate::{
    options::{PackArgs, StoreArgs},
    output::put,
    owner::run_id,
    problem::{Exit, Problem},
    terminal::inert_json,
};

/// Arguments of `flowcell runs export`.
#[derive(Args)]
#[command(after_help = "\
The document is { \"v\": 1, \"run\", \"record\", \"units\", \"events\", \"inputs\", \"children\" }:
  run       the run as `runs list --json` has it
  record    what it was begun with: its flow, what it has pinned, its policy, its parent
  units     the journal: units of facts, each written at once
  events    what `runs events` prints; if the flow cannot be loaded any more, `eventsMissing` says why
  inputs    the inputs of tasks, up to 16 MiB; `inputsLeftOut` counts the others
  children  a document for each run that it has called
Values are whole, however large they are. Nothing is changed, and another process may own the store.")]
pub(crate) struct ExportArgs {
    /// Which run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    /// Write it to this file, whole or not at all, instead of to standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &ExportArgs) -> Result<Exit, Problem> {
    match &args.out {
        Some(file) => to_file(args, file)?,
        None => {
            let mut text = Vec::new();
            export(args, &mut text)?;
            put(&inert_json(&String::from_utf8_lossy(&text)))?;
        }
    }
    Ok(Exit::Good)
}

fn export(args: &ExportArgs, out: &mut dyn Write) -> Result<(), Problem> {
    let host = args.packs.reading_host(&args.store)?;
    Ok(host.export(&*args.store.reader()?, &args.run, out)?)
}

/// Writes a temporary file next to the target, and renames it once it is complete.
fn to_file(args: &ExportArgs, file: &Path) -> Result<(), Problem> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".part");
    let unwritable = |error: std::io::Error| Problem::wrong(format!("cannot write {}", file.display())).because(&error);
    let mut out = BufWriter::new(File::create(&beside).map_err(unwritable)?);
    let written = export(args, &mut out).and_then(|()| out.flush().map_err(unwritable));
    drop(out);
    let placed = written.and_then(|()| fs::rename(&beside, file).map_err(unwritable));
    placed.inspect_err(|_| _ = fs::remove_file(&beside))
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Problem {
        match &error {
            ExportError::Unknown(_) => {
                Problem::wrong(error.to_string()).hint("`flowcell runs list` shows those that the store keeps")
            }
            ExportError::Store(_) | ExportError::Write(_) => Problem::internal(error.to_string()),
        }
    }
}
