//! Lists of runs.

use std::collections::{BTreeMap, HashMap};

use flowcell_contract::{RunId, Tenant, code};
use serde::Serialize;

use super::{Counts, Filter, Group, Journal, ListPlace, ParkedRuns, StoreError};
use crate::{
    RunStatus,
    fact::WaitsFor,
    limits::{MAX_COUNTED, MAX_READ_REPEATS, MAX_READ_RUNS},
    quota::window_end,
};

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
    /// The first item that a parked run waits for. `None`: only a timer, or an older version parked the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// The version of the flow, if the run was started from a library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The labels of the flow, of the trigger and of the start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The trigger that started the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// The run that this one repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// The code of the error of a failed run, or `quota_exceeded` for a run that is parked for a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The time at which the quota renews for which the run is parked, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_until: Option<u64>,
    /// The node that failed, with the path of its owners and without passes, such as `each.fetch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A group of ended runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunGroup {
    /// The flow of the runs. `None` fits all flows.
    pub flow: Option<String>,
    /// The final status of the runs. `None` fits every final status.
    pub status: Option<RunStatus>,
}

/// The selection of runs to remove: those that are too old and those that are too many. Without either limit it selects
/// none.
#[derive(Clone, Debug, Default)]
pub struct Removable {
    /// Selects the runs of this group.
    pub of: RunGroup,
    /// Leaves out the runs of these groups.
    pub except: Vec<RunGroup>,
    /// Selects the runs that ended before this time, in milliseconds since 1970.
    pub ended_before: Option<u64>,
    /// Selects the runs that are not among this many that ended last.
    pub keep_latest: Option<u64>,
    /// Spares the runs of each of these groups that ended at the time of the group or later. Spared runs count for
    /// `keep_latest`.
    pub spared: Vec<(RunGroup, u64)>,
    /// The maximum number of runs. `None`: no limit.
    pub limit: Option<u64>,
}

/// The selection of top runs by the last change of their status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Selects the runs whose status changed at this time or later, in milliseconds since 1970.
    pub since: u64,
    /// Leaves out the runs whose status changed at `since` and that come up to this run in the order of the list. Does not
    /// apply if the store does not have the run.
    pub after: Option<RunId>,
    /// Leaves out the runs that have ended.
    pub live: bool,
    /// The maximum number of runs.
    pub limit: usize,
}

impl Changed {
    /// Merges lists of runs with their row numbers, each in the order of the last changes, to one list of at most `limit`
    /// runs.
    pub(crate) fn merge(&self, lists: Vec<Vec<(i64, RunRow)>>) -> Vec<RunRow> {
        let mut all: Vec<_> = lists.into_iter().flatten().collect();
        all.sort_by_key(|(id, row)| (row.updated, *id));
        all.into_iter().take(self.limit).map(|(_, row)| row).collect()
    }
}

impl RunRow {
    /// Returns whether the run has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// Adds the time until which the run is paused, if it is parked for a quota.
    pub(crate) fn with_pause(self) -> RunRow {
        let is_parked = ["parked", "needs_attention"].contains(&self.status.as_str());
        let is_paused = is_parked && self.error.as_deref() == Some(code::QUOTA_EXCEEDED);
        RunRow { paused_until: is_paused.then(|| window_end(self.updated)), ..self }
    }

    /// Returns the run's value of a member. `None`: the run has no such value.
    fn value(&self, member: &Group) -> Option<String> {
        match member {
            Group::Flow => Some(self.flow.clone()),
            Group::Version => self.version.map(|version| version.to_string()),
            Group::Status => Some(self.status.clone()),
            Group::Error => self.error.clone(),
            Group::Node => self.node.clone(),
            Group::Trigger => self.trigger.clone(),
            Group::Label(name) => self.labels.get(name).cloned(),
        }
    }
}

/// The runs that a search has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchPage {
    /// The runs, the latest first.
    pub rows: Vec<RunRow>,
    /// The place where the search ended, if it has read as many runs as it may. `None`: the page has as many runs as
    /// the filter's limit, or the last ones.
    pub searched_to: Option<ListPlace>,
}

/// Lists of the runs in a store. They show only durable facts. A method fails if the store does not answer.
pub trait Runs: Journal {
    /// Returns the row of a run, and the number of its next event.
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError>;

    /// Returns the runs that a run has called, in the order of their start.
    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Returns the runs that repeat a run or a part of it, up to [`MAX_READ_REPEATS`], the latest first.
    fn repeats(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let filter = Filter { retry_of: Some(run.clone()), limit: MAX_READ_REPEATS, ..Filter::default() };
        Ok(self.runs(tenant, &filter)?.into_iter().map(|row| row.run_id).collect())
    }

    /// Lists the runs that a filter selects, the latest first, but reads at most about `reads` runs. So the page may have
    /// fewer runs than the filter's limit, and then has the place where it ended.
    fn search(&self, tenant: &Tenant, filter: &Filter, reads: usize) -> Result<SearchPage, StoreError>;

    /// Lists the runs that a filter selects, the latest first. Others who read the store wait for at most
    /// [`MAX_READ_RUNS`] of the runs that are read.
    fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, StoreError> {
        self.search_through(tenant, filter, usize::MAX).map(|page| page.rows)
    }

    /// Lists the runs of a filter as [`Runs::search`] does, in parts of at most [`MAX_READ_RUNS`] reads.
    fn search_through(&self, tenant: &Tenant, filter: &Filter, reads: usize) -> Result<SearchPage, StoreError> {
        let (mut rows, mut rest, mut reads_left) = (Vec::new(), filter.clone(), reads);
        loop {
            let page = self.search(tenant, &rest, reads_left.min(MAX_READ_RUNS))?;
            reads_left = reads_left.saturating_sub(MAX_READ_RUNS);
            rest.limit -= page.rows.len();
            rows.extend(page.rows);
            match page.searched_to {
                Some(to) if reads_left > 0 => rest.after_place = Some(to),
                searched_to => return Ok(SearchPage { rows, searched_to }),
            }
        }
    }

    /// Counts the runs that a filter selects, by the values of a member. Counts at most [`MAX_COUNTED`] runs, the
    /// latest ones, and reads at most about `reads`. The member `limit` of the filter does not apply.
    fn count(&self, tenant: &Tenant, filter: &Filter, by: &Group, reads: usize) -> Result<Counts, StoreError> {
        let filter = Filter { limit: MAX_COUNTED + 1, ..filter.clone() };
        let SearchPage { rows, searched_to } = self.search_through(tenant, &filter, reads)?;
        let mut numbers: HashMap<Option<String>, u64> = HashMap::new();
        rows.iter().take(MAX_COUNTED).for_each(|row| *numbers.entry(row.value(by)).or_default() += 1);
        let mut values: Vec<_> = numbers.into_iter().collect();
        values.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(Counts { values, more: rows.len() > MAX_COUNTED || searched_to.is_some() })
    }

    /// Counts the top runs that have not ended, up to `most`.
    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError>;

    /// Counts the parked top runs by flow and reason. Looks at no more than `most` runs that need a person's decision, and
    /// at no more than `most` others.
    fn parked(&self, tenant: &Tenant, most: u64) -> Result<ParkedRuns, StoreError>;

    /// Lists at most `limit` top runs that have ended at `since` or later, in the order of their ends. With `after`,
    /// the last run of the previous page, the list begins after that run.
    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError>;

    /// Lists top runs in the order of the last changes of their statuses, the earliest first.
    fn changed(&self, tenant: &Tenant, wanted: &Changed) -> Result<Vec<RunRow>, StoreError>;

    /// Lists the ended top runs to remove, those that ended first first.
    fn removable(&self, tenant: &Tenant, wanted: &Removable) -> Result<Vec<RunId>, StoreError>;

    /// Lists at most `limit` top runs that a process should drive: active runs without a driver, and parked runs with a
    /// timer that is due at `now`.
    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// Returns the time of the first timer of all parked top runs. `None`: no such timer.
    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError>;
}
