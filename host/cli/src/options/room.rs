//! The argument for the free room of the disk.

use std::path::Path;

use clap::Args;
use flowcell::{Host, release_reserve};

use super::{StoreArgs, StoreLocation};
use crate::{cli_error::CliError, terminal::Terminal};

/// The room that new runs need.
#[derive(Args, Default)]
pub(crate) struct RoomArgs {
    /// Refuse new runs while the disk of the store has less free room than this, in MiB; runs that have begun go on
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    min_free: u64,
}

impl RoomArgs {
    /// Watches the free room of the disk with a host's store, if the store is in a folder.
    pub(crate) fn watch(&self, host: &Host) {
        if let Some(store) = host.store() {
            store.watch_room(self.min_free << 20);
        }
    }
}

/// Frees the reserve of a store on a full disk, so that runs can be removed. Fails if the folder has no store.
pub(crate) fn release(store: &StoreArgs, terminal: Terminal) -> Result<(), CliError> {
    let place = store.place()?;
    place.require_store()?;
    if let StoreLocation::Folder(folder) = place {
        release_in(folder, terminal);
    }
    Ok(())
}

fn release_in(folder: &Path, terminal: Terminal) {
    if release_reserve(folder) {
        terminal.warn("the disk is nearly full, so the reserve of the store was used");
    }
}
