//! Lists of runs.

use flowcell_contract::{RunId, Tenant};
use serde::Serialize;

use super::{Journal, StoreError};

/// One run in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRow {
    /// The id of the run.
    pub run_id: RunId,
    /// The name of the run's flow.
    pub flow: String,
    /// The status: `active`, `parked`, `needs_attention`, `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// The time of the run's start, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change of the run's status, in milliseconds since 1970.
    pub updated: u64,
    /// The time of the run's next timer, if the run is parked and has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// The selection of runs for a list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Selects the runs of this flow.
    pub flow: Option<String>,
    /// Selects the runs with this status.
    pub status: Option<String>,
    /// Selects the runs that follow this one in the list.
    pub after: Option<RunId>,
    /// The maximum number of runs. The latest come first.
    pub limit: usize,
}

/// Lists of the runs in a store. They show only durable facts. A method fails if the store does not answer.
pub trait Runs: Journal {
    /// Returns the row of a run, and the number of its next event.
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError>;

    /// Returns the runs that a run has called, in the order of their start.
    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Lists top runs (runs without a parent), the latest first.
    fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, StoreError>;

    /// Counts the top runs that have not ended, up to `most`.
    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError>;

    /// Lists at most `limit` top runs that have ended at `since` or later, in the order of their ends. With `after`,
    /// the last run of the previous page, the list begins after that run.
    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError>;

    /// Lists the top runs that ended before a time, or that are not among the `keep_latest` that ended last. With
    /// `None`, a limit does not apply.
    fn removable(
        &self,
        tenant: &Tenant,
        ended_before: Option<u64>,
        keep_latest: Option<u64>,
    ) -> Result<Vec<RunId>, StoreError>;

    /// Lists at most `limit` top runs that a process should drive. These are active ones without a driver, and parked
    /// ones with a timer that is due at `now`.
    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// Returns the time of the first timer of all parked top runs. `None`: no such timer.
    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError>;
}
