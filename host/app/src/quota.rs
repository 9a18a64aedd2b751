//! Whether there may be another run.

use flowcell_contract::RunId;

use crate::{Host, error::QuotaError};

impl Host {
    /// Whether there may be another run.
    pub fn check_quota(&self) -> Result<(), QuotaError> {
        self.usage().check(self.tenant(), &self.policy().per_day)?;
        let (Some(most), Some(runs)) = (self.policy().max_live_runs, self.runs()) else { return Ok(()) };
        let live = runs.live(self.tenant(), u64::from(most))?;
        if live >= u64::from(most) { Err(QuotaError::LiveRuns(most)) } else { Ok(()) }
    }

    /// Whether a run may begin, or go on: one that is there already may.
    pub(crate) fn check_quota_for(&self, run: Option<&RunId>) -> Result<(), QuotaError> {
        match run {
            // Only whoever is over a limit has to be asked whether the run is new.
            Some(run) => self.check_quota().or_else(|error| if self.knows(run)? { Ok(()) } else { Err(error) }),
            None => self.check_quota(),
        }
    }
}
