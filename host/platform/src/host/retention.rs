//! Removes old runs and unreferenced blobs, deletes single runs, and exports runs as documents.

use std::{collections::HashSet, io::Write, time::Duration};

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    export::{ExportError, export},
    ports::{
        Filter, LabelChange, MaybeStoreError, RelabelError, Removable, Removed, Removing, Runs, StoreError, Swept,
        Undeletable,
    },
};
use serde::{Deserialize, Serialize};

use super::{Host, called::CallableFlows, homes};
use crate::{host::error::StartError, operate::documents::Documents};

/// The statuses of runs that have ended.
pub(crate) const ENDED: [&str; 3] = ["succeeded", "failed", "cancelled"];
/// Number of repeating runs that one query reads.
const PAGE_RUNS: usize = 500;
/// Maximum number of runs that are removed in one commit.
pub const MAX_BATCH_RUNS: usize = 50;
/// The time between the first removal of runs and the sweep of their blobs, in milliseconds.
pub const SWEEP_DELAY_MS: u64 = 24 * 3_600 * 1_000;
/// The document kind of the progress of retention.
pub(crate) const RETENTION: &str = "retention";
/// The key of a tenant's document with the time of the first removal since the last sweep.
const UNSWEPT: &str = "unswept";

/// A point in time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) at: u64,
}

/// A failed deletion of runs.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// Some of the runs cannot be deleted. No run was deleted.
    #[error("{}", refusal(.0))]
    Refused(Vec<Undeletable>),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DeleteError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            DeleteError::Refused(all) => all.first().map_or("internal", Undeletable::code),
            DeleteError::Store(_) => "store_unavailable",
        }
    }
}

/// Returns the sentence about runs that cannot be deleted. It says that nothing was deleted if there are several.
fn refusal(all: &[Undeletable]) -> String {
    let reasons: Vec<_> = all.iter().map(Undeletable::to_string).collect();
    match &reasons[..] {
        [one] => one.clone(),
        several => format!("nothing was deleted: {}", several.join("; ")),
    }
}

/// Performs [`Host::called_by`].
pub(crate) fn called_by(host: &Host, run: &RunId) -> Result<Vec<RunId>, StartError> {
    Ok(host.shared.journal.children_of(&host.tenant, run).map_err(OpenError::Store)?)
}

/// Performs [`Host::delete_runs`].
pub(crate) fn delete_runs(host: &Host, runs: &[RunId]) -> Result<(), DeleteError> {
    let kept = remove(host, runs, Removing::AllOrNone)?.kept;
    if kept.is_empty() { Ok(()) } else { Err(DeleteError::Refused(kept)) }
}

/// The result of a removal of runs.
#[derive(Debug, Default)]
pub struct Removal {
    /// The removed runs.
    pub runs: Vec<RunId>,
    /// The runs that the store still has, because a process held them, or another run began to repeat them meanwhile.
    pub held: Vec<RunId>,
}

/// Removes ended runs in one transaction. In it, the store decides which of them may go.
fn remove(host: &Host, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError> {
    if runs.is_empty() {
        return Ok(Removed::default());
    }
    let removed = host.shared.sweep.remove(&host.tenant, runs, removing)?;
    host.shared.metrics.count_removed(&host.tenant, removed.runs.len() as u64);
    Ok(removed)
}

/// Deletes those of the runs that can be deleted, in one transaction. Returns each run with the code of the reason if it
/// was not deleted.
pub(crate) fn delete_deletable(host: &Host, runs: &[RunId]) -> Result<Vec<(RunId, Option<&'static str>)>, StoreError> {
    let Removed { runs, kept } = remove(host, runs, Removing::Each)?;
    let deleted = runs.into_iter().map(|run| (run, None));
    Ok(deleted.chain(kept.into_iter().map(|why| (why.run().clone(), Some(why.code())))).collect())
}

/// Performs [`Host::label_run`].
pub(crate) fn label_run(host: &Host, run: &RunId, change: &LabelChange) -> Result<(), LabelRunError> {
    change.check().map_err(LabelRunError::Change)?;
    relabel(host, std::slice::from_ref(run), change)?.into_iter().try_for_each(|result| result.map_err(Into::into))
}

/// The reason why a run keeps the labels that it has.
#[derive(Debug, thiserror::Error)]
pub enum LabelRunError {
    /// The change is not valid by itself.
    #[error("{0}")]
    Change(String),
    /// The run does not exist, or cannot have these labels.
    #[error(transparent)]
    Refused(#[from] RelabelError),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LabelRunError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            LabelRunError::Change(_) => "bad_request",
            LabelRunError::Refused(error) => error.code(),
            LabelRunError::Store(_) => "store_unavailable",
        }
    }
}

/// Changes the labels of runs in one commit, and waits until it is on stable storage. Returns the result for each run.
pub(crate) fn relabel(
    host: &Host,
    runs: &[RunId],
    change: &LabelChange,
) -> Result<Vec<Result<(), RelabelError>>, StoreError> {
    match (host.store(), host.shared()) {
        (Some(store), _) => store.relabel(host.tenant(), runs, change),
        (_, Some(shared)) => shared.relabel(host.tenant(), runs, change),
        _ => Err(StoreError("a store in memory has no labels".into())),
    }
}

/// Returns whether any run below this run has not ended. A driver that has ended cancels the runs that it has left
/// below.
fn lives_below(host: &Host, run: &RunId) -> Result<bool, StoreError> {
    let (journal, mut open) = (&host.shared.journal, vec![run.clone()]);
    while let Some(run) = open.pop() {
        if !journal.left_below(&host.tenant, &run)?.is_empty() {
            return Ok(true);
        }
        open.extend(journal.children_of(&host.tenant, &run)?);
    }
    Ok(false)
}

/// Returns a run that has not ended and that repeats this run, directly or through other repetitions. Such a run still
/// reads the kept outputs and the flows of the runs that it repeats. The search does not go beyond a removed run.
fn repeated_by_live_run(host: &Host, run: &RunId) -> Result<Option<RunId>, StoreError> {
    let Some(lists) = host.runs() else { return Ok(None) };
    let (mut open, mut seen) = (vec![run.clone()], HashSet::from([run.clone()]));
    while let Some(run) = open.pop() {
        let mut filter = Filter { retry_of: Some(run), limit: PAGE_RUNS, ..Filter::default() };
        loop {
            let page = lists.runs(&host.tenant, &filter)?;
            let Some(last) = page.last() else { break };
            filter.after = Some(last.run_id.clone());
            if let Some(live) = page.iter().find(|row| !ENDED.contains(&&*row.status)) {
                return Ok(Some(live.run_id.clone()));
            }
            open.extend(page.into_iter().map(|row| row.run_id).filter(|run| seen.insert(run.clone())));
        }
    }
    Ok(None)
}

/// Performs [`Host::collect`].
pub(crate) fn collect(host: &Host, age: Option<Duration>, keep: Option<u64>) -> Result<Removal, StartError> {
    let ended_before = age.map(|age| host.now().saturating_sub(age.as_millis() as u64));
    let wanted = Removable { ended_before, keep_latest: keep, ..Removable::default() };
    let runs = removable(host, &wanted).map_err(OpenError::Store)?;
    Ok(remove_in_batches(host, &runs).map_err(OpenError::Store)?)
}

/// Lists ended runs to remove, except those that a run without an end repeats. The store checks the same again when it
/// removes them.
pub(crate) fn removable(host: &Host, wanted: &Removable) -> Result<Vec<RunId>, StoreError> {
    let Some(lists) = host.runs() else { return Ok(Vec::new()) };
    let mut free = Vec::new();
    for run in lists.removable(&host.tenant, wanted)? {
        if repeated_by_live_run(host, &run)?.is_none() && !lives_below(host, &run)? {
            free.push(run);
        }
    }
    Ok(free)
}

/// Removes ended runs in batches, so that other writes wait only for one batch. Returns when the removal is on stable
/// storage.
pub(crate) fn remove_in_batches(host: &Host, runs: &[RunId]) -> Result<Removal, StoreError> {
    let mut all = Removal::default();
    for batch in runs.chunks(MAX_BATCH_RUNS) {
        let Removed { runs, kept } = remove(host, batch, Removing::Each)?;
        all.runs.extend(runs);
        // Another process may have removed a run meanwhile.
        let held = kept.iter().filter(|why| !matches!(why, Undeletable::Unknown(_)));
        all.held.extend(held.map(|why| why.run().clone()));
    }
    Ok(all)
}

/// Performs [`Host::mark_unswept`].
pub(crate) fn mark_unswept(host: &Host, now: u64) -> Result<(), StoreError> {
    // A new version of the mark tells a sweep that may be under way that another one is needed.
    loop {
        let (mark, seen) = unswept(host)?.unwrap_or((At { at: now }, 0));
        if retention_documents(host).put(RETENTION, UNSWEPT, Some(&mark), seen)? {
            return Ok(());
        }
    }
}

/// Sweeps the tenant's blobs if runs were removed longer ago than [`SWEEP_DELAY_MS`] and no sweep came since. In a
/// shared store a sweep reads each run by itself and holds up all writes of the process, so there only operators
/// request one.
pub(crate) fn sweep_if_due(host: &Host, now: u64) -> Result<(), StoreError> {
    match unswept(host)?.filter(|_| host.shared().is_none()) {
        Some((At { at }, _)) if now.saturating_sub(at) >= SWEEP_DELAY_MS => {
            sweep(host).map(drop).map_err(|error| error.to_store_error())
        }
        _ => Ok(()),
    }
}

fn unswept(host: &Host) -> Result<Option<(At, u64)>, StoreError> {
    Ok(retention_documents(host).get(RETENTION, UNSWEPT)?)
}

fn retention_documents(host: &Host) -> Documents<'_> {
    Documents { store: host.documents(), tenant: &host.tenant }
}

/// Performs [`Host::sweep`].
pub(crate) fn sweep(host: &Host) -> Result<Swept, StartError> {
    let unswept = unswept(host).map_err(OpenError::Store)?;
    // The sweep may remove packs that no run has pinned. A run that pins one from now on stores it again.
    host.shared.packs.lock().values_mut().for_each(|pack| pack.forget(&host.tenant));
    let swept = host.shared.sweep.sweep(&host.tenant).map_err(OpenError::Store)?;
    if let Some((_, version)) = unswept {
        let done = retention_documents(host).put::<At>(RETENTION, UNSWEPT, None, version);
        done.map_err(|error| OpenError::Store(error.into()))?;
    }
    Ok(swept)
}

/// Performs [`Host::export`].
pub(crate) fn export_run(host: &Host, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
    let library = CallableFlows::new(host.clone(), homes::unpinned(host));
    export(reader, &library, &host.tenant, run, out)
}
