//! The arguments that select the store of runs.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use flowcell::{HostBuilder, OpenStoreError, Reader, Runs, open_shared_runs};

use crate::{arguments::shell_word, cli_error::CliError};

/// The store of runs.
#[derive(Args, Clone, Default)]
pub(crate) struct StoreArgs {
    /// The folder of the store, for runs, state and events
    #[arg(long, value_name = "DIR", default_value = ".flowcell", env = "FLOWCELL_STATE", value_hint = ValueHint::DirPath)]
    pub(crate) state: PathBuf,
    /// Another store: `memory:` ends with the process; `mysql://…` and `postgres://…` name a database server that
    /// processes share, and `restate://…` a Restate cluster
    #[arg(long, value_name = "URL", env = "FLOWCELL_STORE")]
    pub(crate) store: Option<String>,
}

/// The place of a store.
#[derive(Clone, Copy)]
pub(crate) enum StoreLocation<'a> {
    /// In memory. The store ends with the process.
    Memory,
    /// In a folder, which one process owns.
    Folder(&'a Path),
    /// On a database server or a Restate cluster, by its URL.
    Server(&'a str),
}

impl<'a> StoreLocation<'a> {
    /// Sets the store of the host to be built to this place.
    pub(crate) fn set_store(self, builder: HostBuilder) -> HostBuilder {
        match self {
            StoreLocation::Folder(folder) => builder.state_dir(folder),
            StoreLocation::Server(url) => builder.server(url),
            StoreLocation::Memory => builder,
        }
    }

    /// Fails if the place is a folder without a store. Otherwise a command would create an empty one there.
    pub(crate) fn require_store(self) -> Result<(), CliError> {
        match self {
            StoreLocation::Folder(folder) => match Reader::open(folder) {
                Err(error @ OpenStoreError::Missing(_)) => Err(flowcell::Error::Store(error).into()),
                // Another error is that of the command itself.
                _ => Ok(()),
            },
            StoreLocation::Memory | StoreLocation::Server(_) => Ok(()),
        }
    }

    /// Parses an argument: `memory:`, the URL of a server, or a folder.
    pub(crate) fn named(text: &'a str) -> StoreLocation<'a> {
        let server = ["mysql://", "mariadb://", "postgres://", "postgresql://", "restate://"];
        match text {
            "memory:" => StoreLocation::Memory,
            _ if server.iter().any(|scheme| text.starts_with(scheme)) => StoreLocation::Server(text),
            _ => StoreLocation::Folder(Path::new(text)),
        }
    }
}

impl StoreArgs {
    /// Returns the arguments that select a store in memory.
    pub(crate) fn none() -> StoreArgs {
        StoreArgs { store: Some("memory:".into()), ..StoreArgs::default() }
    }

    /// Returns the options that select the same store, and the tenant unless it is `local`, in another command. Returns
    /// `None` for a store in memory.
    pub(crate) fn selection(&self, tenant: Option<&str>) -> Option<String> {
        let tenant = tenant.map(|name| format!(" --tenant {}", shell_word(name))).unwrap_or_default();
        let folder = match self.place().ok()? {
            StoreLocation::Memory => return None,
            // Do not print the URL: it may hold a password.
            StoreLocation::Server(_) => return Some(" --store URL".to_owned() + &tenant),
            StoreLocation::Folder(folder) => folder,
        };
        let is_usual = folder == Path::new(".flowcell");
        let state =
            if is_usual { String::new() } else { format!(" --state {}", shell_word(&folder.display().to_string())) };
        Some(state + &tenant)
    }

    /// Returns the place of the store. Fails if `--store` is neither `memory:` nor the URL of a server.
    pub(crate) fn place(&self) -> Result<StoreLocation<'_>, CliError> {
        match self.store.as_deref() {
            None | Some("") => Ok(StoreLocation::Folder(&self.state)),
            Some(named) => match StoreLocation::named(named) {
                StoreLocation::Folder(_) => Err(CliError::wrong(format!("`{named}` is not a store")).hint(
                    "use `--store memory:` for no storage, `--store mysql://…` or `postgres://…` for a database \
                     server, `restate://…` for a cluster, `--state DIR` for a folder",
                )),
                place => Ok(place),
            },
        }
    }

    /// Opens a store in a folder for reading, even if another process owns it. Fails if the arguments select no
    /// folder.
    pub(crate) fn folder_reader(&self) -> Result<Reader, CliError> {
        match self.place()? {
            StoreLocation::Folder(folder) => Ok(Reader::open(folder).map_err(flowcell::Error::Store)?),
            _ => Err(CliError::wrong("a store in memory has no earlier runs").hint("remove `--store memory:`")),
        }
    }

    /// Opens the store, in a folder or on a server, to read its runs. Fails for a store in memory.
    pub(crate) fn reader(&self) -> Result<Box<dyn Runs>, CliError> {
        match self.place()? {
            StoreLocation::Server(url) => Ok(open_shared_runs(url)?),
            _ => Ok(Box::new(self.folder_reader()?)),
        }
    }
}
