//! The runs of a job that would not move to another version of their flow, or would not be repeated in one, for the
//! preview of the job.

use std::collections::BTreeMap;

use flowcell_contract::RunId;
use flowcell_runtime::ports::RunRow;
use serde::{Deserialize, Serialize};

use super::{
    PREVIEWED_RUNS,
    act::{Acted, not_moved, not_repeated, own_prefix, repeat_of, select},
    record::{JobReason, RunFailure},
    request::{JobAction, JobRequest},
};
use crate::{
    Host,
    library::versions::{self, FlowVersion, MoveError},
};

/// Maximum number of runs that a preview checks. A check reads the whole journal of the run.
pub const CHECKED_RUNS: usize = 50;
/// Time after which a preview checks no further run, in milliseconds.
pub const MAX_CHECK_MS: u64 = 5_000;

/// The refused runs among the first ones of a job that moves runs to another version, or repeats them in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunChecks {
    /// The number of checked runs, the latest first. At most [`CHECKED_RUNS`], and those of [`MAX_CHECK_MS`].
    pub checked: u64,
    /// The number of runs of the job that were not checked.
    pub unchecked: u64,
    /// The numbers of checked runs that would not move or be repeated, by the code of the reason.
    pub refused: BTreeMap<String, u64>,
    /// The first runs that would not move or be repeated, at most [`PREVIEWED_RUNS`], each with its first reason.
    pub first: Vec<RunFailure>,
}

impl RunChecks {
    /// Checks the first runs of a job. `runs`: the number of runs that its filter selects.
    pub(super) fn of(host: &Host, request: &JobRequest, rows: &[RunRow], runs: u64) -> RunChecks {
        let until = host.now().saturating_add(MAX_CHECK_MS);
        let checks = rows.iter().map(|row| (row.run_id.clone(), refusal(host, request, row)));
        RunChecks::collect(checks, runs.min(request.max_runs), || host.now() >= until)
    }

    /// Performs checks until `is_late`. `of_job`: the number of runs of the job.
    fn collect(
        mut checks: impl Iterator<Item = (RunId, Option<JobReason>)>,
        of_job: u64,
        mut is_late: impl FnMut() -> bool,
    ) -> RunChecks {
        let mut preview = RunChecks::default();
        let most = of_job.min(CHECKED_RUNS as u64);
        while preview.checked < most
            && !is_late()
            && let Some((run, reason)) = checks.next()
        {
            preview.checked += 1;
            reason.into_iter().for_each(|reason| preview.add(RunFailure { run: run.clone(), reason }));
        }
        preview.unchecked = of_job.saturating_sub(preview.checked);
        preview
    }

    /// Returns the number of checked runs that would not move or be repeated.
    pub fn refused_runs(&self) -> u64 {
        self.refused.values().sum()
    }

    fn add(&mut self, refused: RunFailure) {
        *self.refused.entry(refused.reason.code.clone()).or_default() += 1;
        if self.first.len() < PREVIEWED_RUNS {
            self.first.push(refused);
        }
    }
}

/// Returns the reason why a job would not move or repeat a run. `None`: it would.
fn refusal(host: &Host, request: &JobRequest, row: &RunRow) -> Option<JobReason> {
    match select(host, request, &own_prefix(""), row) {
        Ok(Ok(_)) => {}
        Ok(Err(code)) => return Some(JobReason::new(code, unfit_text(code))),
        Err(error) => return Some(JobReason::new("store_unavailable", error)),
    }
    match (request.action, request.params.flow_version) {
        (JobAction::Retry, Some(version)) => refused_retry(host, request, row, version),
        _ => refused_move(host, request, row),
    }
}

/// Returns the reason why a run would not be repeated in another version of its flow.
fn refused_retry(host: &Host, request: &JobRequest, row: &RunRow, version: FlowVersion) -> Option<JobReason> {
    let error = versions::plan_retry(host, &row.run_id, version, &repeat_of(request)).err()?;
    let text = error.to_string();
    reason_of(not_repeated(host, error), text)
}

/// Returns the reason why a run would not move to another version of its flow.
fn refused_move(host: &Host, request: &JobRequest, row: &RunRow) -> Option<JobReason> {
    let to = FlowVersion::Number(request.params.to.unwrap_or_default());
    let error = match versions::migration(host, &row.run_id, to, &request.params.move_options()) {
        Ok(migration) if migration.plan().refused.is_empty() => return None,
        Ok(migration) => MoveError::Refused(Box::new(migration.plan().clone())),
        Err(error) => MoveError::from(error),
    };
    let text = error.to_string();
    reason_of(not_moved(host, &row.run_id, error), text)
}

/// Returns the reason of an action that would have no effect. `text`: the sentence about a run that it would skip.
fn reason_of(acted: Acted, text: String) -> Option<JobReason> {
    match acted {
        Acted::Skipped(code) => Some(JobReason::new(code, text)),
        Acted::Failed(reason) | Acted::Later(reason) | Acted::Stop(reason) => Some(reason),
        Acted::Done => None,
    }
}

/// Returns the sentence about a run whose status does not fit the action.
fn unfit_text(code: &str) -> &'static str {
    match code {
        "run_not_active" => "the run has ended",
        "run_not_ended" => "the run has not ended; a job repeats ended runs only",
        _ => "a process drives the run; it can move when it is parked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns checks of runs. `refuses` selects the runs that would not move.
    fn checks(runs: u64, refuses: fn(u64) -> bool) -> impl Iterator<Item = (RunId, Option<JobReason>)> {
        (0..runs).map(move |run| {
            let reason = refuses(run).then(|| JobReason::new("answered", "a person decided"));
            (RunId::from(format!("r{run}")), reason)
        })
    }

    #[test]
    fn a_preview_is_bounded_and_counts_what_it_leaves_out() {
        for (runs, of_job, late_after, checked, unchecked, named) in [
            (0, 0, u64::MAX, 0, 0, 0),
            (1, 1, u64::MAX, 1, 0, 1),
            (50, 50, u64::MAX, 50, 0, 20),
            (51, 51, u64::MAX, 50, 1, 20),
            (60, 10_000, u64::MAX, 50, 9_950, 20),
            // `maxRuns` is smaller than the number of runs.
            (50, 2, u64::MAX, 2, 0, 2),
            // The store has removed runs since it counted them.
            (3, 5, u64::MAX, 3, 2, 3),
            // The time is over.
            (50, 50, 4, 4, 46, 4),
            (50, 50, 0, 0, 50, 0),
        ] {
            let mut left = late_after;
            let is_late = || match left.checked_sub(1) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            };
            let checked_runs = RunChecks::collect(checks(runs, |_| true), of_job, is_late);
            let shown =
                (checked_runs.checked, checked_runs.unchecked, checked_runs.first.len(), checked_runs.refused_runs());
            assert_eq!(shown, (checked, unchecked, named, checked), "{runs} runs, {of_job} of the job");
        }
    }

    #[test]
    fn runs_that_would_move_are_not_named() {
        let checked_runs = RunChecks::collect(checks(3, |run| run == 1), 3, || false);
        let named: Vec<_> = checked_runs.first.iter().map(|refused| refused.run.as_str()).collect();
        assert_eq!((named, checked_runs.refused), (vec!["r1"], BTreeMap::from([("answered".to_owned(), 1)])));
    }
}
