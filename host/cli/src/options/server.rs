//! The arguments of a process that drives the runs of a shared store.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use flowcell::HostBuilder;

/// How a process uses the database server of a shared store.
#[derive(Args, Default)]
pub(crate) struct ServerArgs {
    /// Keep the age of the shared store in this file, to recognise at the next start a database that was restored from
    /// an older copy
    #[arg(long, value_name = "FILE", env = "FLOWCELL_EPOCH_FILE", value_hint = ValueHint::FilePath)]
    epoch_file: Option<PathBuf>,
}

impl ServerArgs {
    /// Adds the arguments to a builder with a store. If `waits` is true, the server may be away for minutes.
    pub(crate) fn add_to(&self, mut builder: HostBuilder, waits: bool) -> HostBuilder {
        if waits {
            builder = builder.wait_for_server();
        }
        match &self.epoch_file {
            Some(file) => builder.epoch_file(file),
            None => builder,
        }
    }
}
