//! The limit of a tenant's live runs (`maxLiveRuns`).
//!
//! A new run counts as live before the store shows it, so that runs that start at the same time cannot exceed the
//! limit together. Each process counts by itself. So several processes on one store may each admit a run before the
//! store shows the runs of the others. Child runs that other processes drive are not counted.

use std::collections::HashSet;

use flowcell_contract::RunId;
use flowcell_runtime::{FlowRunner, OpenError, live::Starting, ports::StoreError};

use crate::{
    Host,
    host::error::StartError,
    operate::{quota::QuotaError, record},
};

impl Host {
    /// Checks whether the tenant may start another run now. Counts no run as started; [`Host::runner`] does.
    pub fn check_quota(&self) -> Result<(), QuotaError> {
        self.usage().check(self.tenant(), &self.policy().per_day)?;
        let (Some(most), Some(runs)) = (self.policy().max_live_runs, self.runs()) else { return Ok(()) };
        let live = runs.live(self.tenant(), u64::from(most))? + self.live().children(self.tenant());
        if live >= u64::from(most) { Err(QuotaError::LiveRuns(most)) } else { Ok(()) }
    }

    /// Checks whether a run may start or continue. A run that the store already has may always continue.
    pub fn check_quota_for(&self, run: Option<&RunId>) -> Result<(), QuotaError> {
        match run {
            // The store is only queried for a caller over the limit.
            Some(run) => self.check_quota().or_else(|error| if self.knows(run)? { Ok(()) } else { Err(error) }),
            None => self.check_quota(),
        }
    }

    /// Refuses the runs of a disabled tenant. Child runs of a driven run may still finish.
    pub(crate) fn check_enabled(&self, runner: &FlowRunner) -> Result<(), StartError> {
        if !runner.is_below() && record::is_disabled(self.documents(), self.tenant()).map_err(OpenError::Store)? {
            return Err(StartError::TenantDisabled(self.tenant().clone()));
        }
        Ok(())
    }

    /// Checks the quotas of a new run, and counts it as started. A child run is not counted, since it needs a live
    /// permit when it starts.
    pub(crate) fn admitted(&self, mut runner: FlowRunner) -> Result<FlowRunner, StartError> {
        self.check_enabled(&runner)?;
        if !runner.is_new() {
            return Ok(runner);
        }
        self.usage().check(self.tenant(), &self.policy().per_day)?;
        if !runner.is_below()
            && let Some(starting) = self.take_live_run(runner.run_id())?
        {
            runner.count_as(starting);
        }
        Ok(runner)
    }

    /// Counts a run as started if the tenant is below the limit. The limit applies to the runs of the store, the runs
    /// that just started, and the child runs of driven runs. Returns `None` if the tenant has no limit.
    fn take_live_run(&self, run: &RunId) -> Result<Option<Starting>, QuotaError> {
        let (Some(most), Some(runs)) = (self.policy().max_live_runs, self.runs()) else { return Ok(None) };
        let starting = self.live().start(self.tenant(), run);
        let most_live = u64::from(most);
        let live = |before: usize| -> Result<u64, StoreError> {
            Ok(before as u64 + runs.live(self.tenant(), most_live)? + self.live().children(self.tenant()))
        };
        let before = starting.before();
        if live(before.len())? < most_live {
            return Ok(Some(starting));
        }
        // Close to the limit, a run must not count twice: as a run that just started and as a run in the store.
        let mut hidden = self.not_in_store(before)?;
        loop {
            if live(hidden.len())? < most_live {
                return Ok(Some(starting));
            }
            let still_hidden = self.not_in_store(starting.before())?;
            if still_hidden == hidden {
                return Err(QuotaError::LiveRuns(most));
            }
            hidden = still_hidden;
        }
    }

    fn not_in_store(&self, runs: HashSet<RunId>) -> Result<HashSet<RunId>, StoreError> {
        let hidden = runs.into_iter().map(|run| self.knows(&run).map(|known| (!known).then_some(run)));
        hidden.filter_map(Result::transpose).collect()
    }
}
