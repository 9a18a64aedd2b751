//! What a process chooses about its share of a store.

use std::time::Duration;

use crate::{
    limits::{GIVE_UP_MS, LEASE_MS, RENEW_MS, SERVER_PATIENCE_MS, SPARED_MS},
    ports::StoreError,
};

/// What a process chooses about its share of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the process is called among the owners.
    pub name: String,
    /// For how long a process that says nothing keeps its runs, by the server's clock. It renews that after a third, and
    /// stops driving them after two thirds.
    pub lease: Duration,
    /// How long a server may take for an answer.
    pub patience: Duration,
    /// How long blobs are kept that nothing names.
    pub spared: Duration,
    /// What happens when a commit fails for good.
    pub on_failure: fn(&StoreError),
    /// Writes whatever comes, though somebody else may have taken the run: only to see that tests notice.
    #[doc(hidden)]
    pub unfenced: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: format!("process {}", std::process::id()),
            lease: Duration::from_millis(LEASE_MS),
            patience: Duration::from_millis(SERVER_PATIENCE_MS),
            spared: Duration::from_millis(SPARED_MS),
            on_failure: crate::sqlite::stop_process,
            unfenced: false,
        }
    }
}

impl Options {
    /// After which time the lease is renewed.
    pub(super) fn renew(&self) -> Duration {
        self.lease.mul_f64(RENEW_MS as f64 / LEASE_MS as f64)
    }

    /// After which time without that nothing is driven any more.
    pub(super) fn give_up(&self) -> Duration {
        self.lease.mul_f64(GIVE_UP_MS as f64 / LEASE_MS as f64)
    }
}
