//! `flowcell store`: upgrades, checks, compacts, copies and backs up whole stores.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use flowcell::{
    SqliteStore, open_whole_shared_store,
    rows::copy_and_check::{CopyableStore, check, copy},
    stop_process,
};

use crate::{
    cli_error::{CliError, Exit},
    options::{StoreArgs, StoreLocation},
    output::put_json,
    terminal::Terminal,
};

/// Commands for a whole store.
#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Create the tables of a store, or upgrade those of an older version
    Migrate(StoreArgs),
    /// Read the whole store, and print all damage
    Check(StoreArgs),
    /// Shrink the file of a store after large removals; needs free room of up to twice its data
    Compact(StoreArgs),
    /// Copy a store to an empty one
    Copy(CopyArgs),
    /// Write a copy of a store into a new folder
    Backup(BackupArgs),
}

/// Arguments of `flowcell store copy`. A store is a folder, or the URL of a server.
#[derive(Args)]
pub(crate) struct CopyArgs {
    /// The store to copy
    from: String,
    /// The empty destination store
    to: String,
}

/// Arguments of `flowcell store backup`.
#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The folder of the copy
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    to: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(command: &StoreCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let say = |text: &str| terminal.say(&terminal.paint().faint(text));
    match command {
        StoreCommand::Migrate(store) => {
            open(store.place()?)?;
            say("the tables of the store are up to date");
        }
        StoreCommand::Check(store) => {
            let checked = check(&*open(store.place()?)?).map_err(|error| failed(&error))?;
            put_json(&checked)?;
            if !checked.damage.is_empty() {
                return Err(CliError::internal("the store is damaged"));
            }
        }
        StoreCommand::Compact(store) => {
            let StoreLocation::Folder(folder) = store.place()? else {
                return Err(CliError::wrong("only a store in a folder is compacted")
                    .hint("a database server reuses and reclaims the space of its tables by itself"));
            };
            let store = SqliteStore::open(folder, stop_process).map_err(flowcell::Error::Store)?;
            let compacted = store.compact().map_err(|error| {
                failed(&error).hint("a compaction needs free room of up to twice the data; nothing has changed")
            })?;
            put_json(&compacted)?;
        }
        StoreCommand::Copy(args) => {
            let (from, to) = (open(StoreLocation::named(&args.from))?, open(StoreLocation::named(&args.to))?);
            put_json(&copy(&*from, &*to).map_err(|error| failed(&error))?)?;
        }
        StoreCommand::Backup(BackupArgs { to, store }) => {
            match store.place()? {
                StoreLocation::Folder(folder) => {
                    let store = SqliteStore::open(folder, stop_process).map_err(flowcell::Error::Store)?;
                    store.back_up(to).map_err(|error| failed(&error))?;
                }
                place => {
                    let amount =
                        copy(&*open(place)?, &*open(StoreLocation::Folder(to))?).map_err(|error| failed(&error))?;
                    put_json(&amount)?;
                }
            }
            say("open the copy as a store with `--state DIR`");
        }
    }
    Ok(Exit::Good)
}

fn open(place: StoreLocation<'_>) -> Result<Box<dyn CopyableStore>, CliError> {
    Ok(match place {
        StoreLocation::Folder(folder) => {
            Box::new(SqliteStore::open(folder, stop_process).map_err(flowcell::Error::Store)?)
        }
        StoreLocation::Server(url) => open_whole_shared_store(url)?,
        StoreLocation::Memory => return Err(CliError::wrong("a store in memory needs no maintenance")),
    })
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::internal(format!("the store failed: {error}"))
}
