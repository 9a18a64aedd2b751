//! Whether there may be another run.

use flowcell_runtime::{ports::StoreError, rows::Filter};

use crate::Host;

/// Why a run does not begin.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// There are too many.
    #[error("the tenant has {0} runs that are not over, which is as many as it may have; cancel some, or wait")]
    LiveRuns(u32),
    /// Nobody can say how many there are.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Host {
    /// Whether there may be another run.
    pub fn check_quota(&self) -> Result<(), QuotaError> {
        let (Some(most), Some(runs)) = (self.policy().max_live_runs, self.runs()) else { return Ok(()) };
        let mut live = 0;
        for status in ["active", "parked", "needs_attention"] {
            let filter = Filter { status: Some(status.into()), limit: most as usize, ..Filter::default() };
            live += runs.runs(self.tenant(), &filter)?.len();
        }
        if live >= most as usize { Err(QuotaError::LiveRuns(most)) } else { Ok(()) }
    }
}
