//! `flowcell store`: upgrades, checks, compacts, copies and backs up whole stores.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{
    BackupError, Chosen, NewCopy, SqliteStore, choose_blobs,
    contract::host_files::is_store_file,
    open_whole_shared_store,
    rows::copy_and_check::{Amount, CopyError, CopyableStore, back_up, check, copy},
    stop_process, vault,
};
use serde::Serialize;

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
    /// Copy a store into a new folder while it is in use, and check the copy
    Backup(BackupArgs),
}

/// Arguments of `flowcell store copy`. A store is a folder, or the URL of a server.
#[derive(Args)]
pub(crate) struct CopyArgs {
    /// The store to copy
    #[arg(value_parser = named_store)]
    from: String,
    /// The empty destination store
    #[arg(value_parser = named_store)]
    to: String,
    /// Store the files of the destination that are larger than 1 MiB in this object store: `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "URL", env = "FLOWCELL_BLOBS")]
    blobs: Option<String>,
}

/// Arguments of `flowcell store backup`.
#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The folder of the copy, new or empty
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    to: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(command: &StoreCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let say = |text: &str| terminal.say(&terminal.paint().faint(text));
    match command {
        StoreCommand::Migrate(store) => {
            open(store.place()?, Chosen::Remembered)?;
            say("the tables of the store are up to date");
        }
        StoreCommand::Check(store) => {
            let checked = check(&*open_existing(store.place()?)?).map_err(|error| failed(&error))?;
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
            store.place()?.require_store()?;
            let store =
                SqliteStore::open_with(folder, stop_process, &Chosen::Remembered).map_err(flowcell::Error::Store)?;
            let compacted = store.compact().map_err(|error| {
                failed(&error).hint("a compaction needs free room of up to twice the data; nothing has changed")
            })?;
            put_json(&compacted)?;
        }
        StoreCommand::Copy(args) => {
            let from = open_existing(StoreLocation::named(&args.from))?;
            let to = open(StoreLocation::named(&args.to), choose_blobs(args.blobs.as_deref())?)?;
            put_json(&copy(&*from, &*to).map_err(copy_failed)?)?;
        }
        StoreCommand::Backup(BackupArgs { to, store }) => {
            let backed_up = match store.place()? {
                StoreLocation::Folder(folder) => back_up_folder(folder, to)?,
                StoreLocation::Server(url) => back_up_server(url, to)?,
                StoreLocation::Memory => return Err(in_memory()),
            };
            put_json(&backed_up)?;
            match &backed_up.checked {
                Some(_) => say("the copy was checked: it has no damage"),
                None => terminal.warn(UNCHECKED),
            }
            for left in &backed_up.not_copied {
                say(&format!("not copied: {} ({})", left.name, left.reason));
            }
            say("open the copy as a store with `--state DIR`");
        }
    }
    Ok(Exit::Good)
}

/// The warning of a backup whose format is older than that of this program.
const UNCHECKED: &str = "the copy was not checked, because the store has the format of an older version; `flowcell \
                         store check --state DIR` upgrades the copy and checks it";

/// The result of a backup.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BackedUp {
    /// The amounts that the check of the copy has found. `None`: the copy was not checked.
    #[serde(flatten)]
    checked: Option<Amount>,
    /// Size of the copy in bytes.
    bytes: u64,
    not_copied: Vec<NotCopied>,
}

/// Something beside the copied data.
#[derive(Serialize)]
struct NotCopied {
    name: String,
    reason: &'static str,
}

/// Backs up the store in a folder. A process may own it.
fn back_up_folder(folder: &Path, to: &Path) -> Result<BackedUp, CliError> {
    let copy = NewCopy::begin(to).map_err(backup_failed)?;
    let version = copy.copy_database(folder).map_err(backup_failed)?;
    let is_checked = NewCopy::has_present_format(version);
    let (copy, checked) =
        if is_checked { checked_copy(copy).map(|(copy, found)| (copy, Some(found)))? } else { (copy, None) };
    let bytes = copy.finish().map_err(backup_failed)?;
    Ok(BackedUp { checked, bytes, not_copied: left_in(folder) })
}

/// Backs up the store on a server. Other processes may use it.
fn back_up_server(url: &str, to: &Path) -> Result<BackedUp, CliError> {
    let from = open_whole_shared_store(url, Chosen::Remembered)?;
    let copy = NewCopy::begin(to).map_err(backup_failed)?;
    let amount = {
        let into = SqliteStore::open(copy.folder(), stop_process).map_err(flowcell::Error::Store)?;
        back_up(&*from, &into).map_err(|error| failed(&error))?
    };
    let (copy, checked) = checked_copy(copy)?;
    // The copy may have more blobs: large values that the server keeps in their rows.
    if (Amount { blobs: amount.blobs, ..checked }) != amount {
        return Err(CliError::internal(format!("the copy is incomplete: it has {checked:?} of {amount:?}")));
    }
    let bytes = copy.finish().map_err(backup_failed)?;
    let left = [
        ("the key of the secrets", KEY_LEFT),
        ("the cache", "its values are computed again"),
        ("messages that no run has received", "their senders have no confirmation"),
    ];
    let not_copied = left.map(|(name, reason)| NotCopied { name: name.to_owned(), reason }).into();
    Ok(BackedUp { checked: Some(checked), bytes, not_copied })
}

/// Checks a copy. A damaged one stays in its folder, and is an error.
fn checked_copy(copy: NewCopy) -> Result<(NewCopy, Amount), CliError> {
    let checked = copy.check().map_err(backup_failed)?;
    if checked.damage.is_empty() {
        return Ok((copy, checked.amount));
    }
    let place = copy.leave();
    let problem = CliError::internal(format!("the copy is damaged; it stays in {}", place.display()));
    let problem = checked.damage.iter().take(MAX_SHOWN_DAMAGE).fold(problem, |problem, damage| problem.cause(damage));
    Err(match checked.damage.len().checked_sub(MAX_SHOWN_DAMAGE + 1) {
        None => problem,
        Some(more) => problem.note(format!("and {} more", more + 1)),
    }
    .hint("`flowcell store check` shows whether the store itself is damaged"))
}

/// The maximum number of damages in the message about a copy.
const MAX_SHOWN_DAMAGE: usize = 10;

/// The reason why a backup has no key.
const KEY_LEFT: &str = "keep a copy of it elsewhere; without it the secrets of the copy cannot be opened";

/// Returns the files of a store in a folder that are not in its database, except those of a running process.
fn left_in(folder: &Path) -> Vec<NotCopied> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    let left = names.into_iter().filter_map(|name| {
        let reason = match &*name {
            name if name.starts_with(vault::KEY_FILE) => KEY_LEFT,
            "epoch" => "it stays with the store, which recognises an older copy by it",
            name if is_store_file(name) => return None,
            _ => "it is not a file of the store",
        };
        Some(NotCopied { name, reason })
    });
    left.collect()
}

fn backup_failed(error: BackupError) -> CliError {
    match error {
        BackupError::Source(error) => flowcell::Error::Store(error).into(),
        BackupError::NotEmpty(_) | BackupError::Unfinished(_) => CliError::wrong(error.to_string()),
        BackupError::Unwritable { .. } | BackupError::Database { .. } => CliError::internal(error.to_string()),
    }
}

fn in_memory() -> CliError {
    CliError::wrong("a store in memory needs no maintenance")
}

fn open(place: StoreLocation<'_>, blobs: Chosen) -> Result<Box<dyn CopyableStore>, CliError> {
    Ok(match place {
        StoreLocation::Folder(folder) => {
            Box::new(SqliteStore::open_with(folder, stop_process, &blobs).map_err(flowcell::Error::Store)?)
        }
        StoreLocation::Server(url) => open_whole_shared_store(url, blobs)?,
        StoreLocation::Memory => return Err(in_memory()),
    })
}

/// Opens a store. Fails if the folder has none.
fn open_existing(place: StoreLocation<'_>) -> Result<Box<dyn CopyableStore>, CliError> {
    place.require_store()?;
    open(place, Chosen::Remembered)
}

/// Parses the name of a store: a folder, or the URL of a database server.
fn named_store(text: &str) -> Result<String, String> {
    match StoreLocation::named(text) {
        StoreLocation::Folder(_) if text.contains("://") => {
            Err("this is not the URL of a store: use `mysql://…`, `mariadb://…` or `postgres://…`, or name a folder"
                .into())
        }
        _ => Ok(text.to_owned()),
    }
}

fn copy_failed(error: CopyError) -> CliError {
    match error {
        CopyError::InUse(_) => CliError::wrong(error.to_string()),
        CopyError::NotEmpty => {
            CliError::wrong(error.to_string()).hint("copy into a new folder, or into an empty database")
        }
        CopyError::Store(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::ending(Exit::Unreadable, format!("the store failed: {error}"))
}
