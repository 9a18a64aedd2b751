//! The options by which a process opens a shared store.

use std::{path::PathBuf, time::Duration};

use super::{indexed::Journals, presence};
use crate::{
    limits::{GIVE_UP_MS, LEASE_MS, RENEW_MS, SERVER_PATIENCE_MS, SPARED_MS},
    objects::Chosen,
    ports::StoreError,
};

/// How this process uses a shared store: its name, its lease and its limits of time.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the process in the table of owners.
    pub name: String,
    /// The time for which a silent process keeps its runs, by the server's clock. The process renews the lease after a
    /// third of that time, and stops its drivers after two thirds without a renewal.
    pub lease: Duration,
    /// The maximum time for an answer of the server.
    pub patience: Duration,
    /// The maximum time to wait at the start for a server that does not answer.
    pub start_patience: Duration,
    /// The file with the epoch that this process has seen last. `None`: only the memory of the process has it.
    pub epoch_file: Option<PathBuf>,
    /// The folder for the locked files by which processes of this machine notice at once that one of them has died.
    /// `None`: they wait for the end of its lease. Default: `flowcell-UID` in the system's folder of temporary files, and
    /// `None` on systems other than Linux.
    pub presence_folder: Option<PathBuf>,
    /// The time for which a sweep spares a new blob.
    pub spared: Duration,
    /// The object store that has the large files of the store. Default: none.
    pub objects: Chosen,
    /// The place of the journals of the runs. Default: in the database.
    pub journals: Journals,
    /// The reaction to a commit that has failed and is not repeated.
    pub on_failure: fn(&StoreError),
    /// True if the process writes to runs that another process may have taken. Only for tests, which must detect it.
    #[doc(hidden)]
    pub unfenced: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: format!("process {}", std::process::id()),
            lease: Duration::from_millis(LEASE_MS),
            patience: Duration::from_millis(SERVER_PATIENCE_MS),
            start_patience: Duration::from_millis(SERVER_PATIENCE_MS),
            epoch_file: None,
            presence_folder: presence::default_folder(),
            spared: Duration::from_millis(SPARED_MS),
            objects: Chosen::Exactly(None),
            journals: Journals::Here,
            on_failure: crate::sqlite::stop_process,
            unfenced: false,
        }
    }
}

impl Options {
    /// Returns the time after which the process renews its lease.
    pub(super) fn renew(&self) -> Duration {
        self.lease.mul_f64(RENEW_MS as f64 / LEASE_MS as f64)
    }

    /// Returns the length of an outage after which all drivers stop.
    pub(super) fn outage_patience(&self) -> Duration {
        self.patience.max(self.give_up())
    }

    /// Returns the time without a renewal after which all drivers stop.
    pub(super) fn give_up(&self) -> Duration {
        self.lease.mul_f64(GIVE_UP_MS as f64 / LEASE_MS as f64)
    }
}
