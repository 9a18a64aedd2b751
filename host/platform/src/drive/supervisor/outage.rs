//! Records the time in which a shared store cannot be read, and logs its errors.

use std::time::{Duration, Instant};

use flowcell_runtime::ports::StoreError;

/// Interval between two log lines about the same outage.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The current outage of a shared store, if there is one.
#[derive(Default)]
pub(super) struct Outage {
    /// The last error.
    pub(super) error: Option<StoreError>,
    logged: Option<Instant>,
}

impl Outage {
    /// Records an error. The first error is logged, and then at most one in each [`LOG_INTERVAL`]. Errors of an outage
    /// that the store has noticed itself are in the log already.
    pub(super) fn record(&mut self, error: StoreError) {
        if !error.is_outage() && self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            tracing::warn!("the store cannot be read, so its runs wait; it is tried again each second: {error}");
            self.logged = Some(Instant::now());
        }
        self.error = Some(error);
    }

    /// Ends the outage. Returns whether there was one.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(self).error.is_some()
    }
}
