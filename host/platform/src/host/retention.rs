//! Removes old runs and unreferenced blobs, deletes single runs, and exports runs as documents.

use std::{collections::HashSet, io::Write, time::Duration};

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    export::{ExportError, export},
    fact::Fact,
    limits::MAX_READ_UNITS,
    ports::{Filter, LabelChange, MaybeStoreError, RelabelError, Removable, Runs, StoreError, Swept},
};
use serde::{Deserialize, Serialize};

use super::{Host, called::CallableFlows, homes};
use crate::{host::error::StartError, operate::documents::Documents};

/// The statuses of runs that have ended.
pub(crate) const ENDED: [&str; 3] = ["succeeded", "failed", "cancelled"];
/// The status of a removed run, whose id stays reserved.
const REMOVED: &str = "removed";
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

/// The reason why a run cannot be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undeletable {
    /// The run does not exist, or was removed.
    #[error("the run `{0}` does not exist")]
    Unknown(RunId),
    /// The run has not ended.
    #[error("the run `{run}` has not ended; its status is `{status}`")]
    NotEnded {
        /// The run.
        run: RunId,
        /// Its status: `running`, `parked` or `needs_attention`.
        status: String,
    },
    /// The run has ended, and a run below it is about to end.
    #[error("a run that the run `{0}` has called is about to end; try again in a moment")]
    EndsBelow(RunId),
    /// Another run has called the run. It is deleted together with that one.
    #[error("the run `{run}` was called by the run `{parent}`; delete that one")]
    Called {
        /// The run.
        run: RunId,
        /// The run that has called it.
        parent: RunId,
    },
    /// A run that has not ended repeats the run, and still needs its outputs.
    #[error("the run `{run}` is still needed, because the run `{by}` repeats it and has not ended")]
    Repeated {
        /// The run.
        run: RunId,
        /// The run that repeats it.
        by: RunId,
    },
}

impl Undeletable {
    fn code(&self) -> &'static str {
        match self {
            Undeletable::Unknown(_) => "run_not_found",
            Undeletable::NotEnded { .. } | Undeletable::EndsBelow(_) => "run_not_ended",
            Undeletable::Called { .. } => "called_run",
            Undeletable::Repeated { .. } => "run_repeated",
        }
    }
}

/// A failed deletion of runs.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// Some of the runs cannot be deleted. No run was deleted.
    #[error("{}", refusal(.0))]
    Refused(Vec<Undeletable>),
    /// Another process held these runs at the time of the deletion, so they are still there.
    #[error("another process still holds {}, so it was not deleted; the others were; try again with it", names(.0))]
    Held(Vec<RunId>),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DeleteError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            DeleteError::Refused(all) => all.first().map_or("internal", Undeletable::code),
            DeleteError::Held(_) => "run_driven",
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

fn names(runs: &[RunId]) -> String {
    let names: Vec<_> = runs.iter().map(|run| format!("`{run}`")).collect();
    names.join(", ")
}

/// Performs [`Host::called_by`].
pub(crate) fn called_by(host: &Host, run: &RunId) -> Result<Vec<RunId>, StartError> {
    Ok(host.shared.journal.children_of(&host.tenant, run).map_err(OpenError::Store)?)
}

/// Performs [`Host::delete_runs`].
pub(crate) fn delete_runs(host: &Host, runs: &[RunId]) -> Result<(), DeleteError> {
    let refused: Vec<_> = runs.iter().map(|run| undeletable(host, run)).collect::<Result<_, StoreError>>()?;
    let mut refused: Vec<_> = refused.into_iter().flatten().collect();
    if refused.is_empty() {
        for run in runs {
            let by = repeated_by_live_run(host, run)?;
            refused.extend(by.map(|by| Undeletable::Repeated { run: run.clone(), by }));
        }
    }
    if !refused.is_empty() {
        return Err(DeleteError::Refused(refused));
    }
    let Removal { held, .. } = remove(host, runs)?;
    if held.is_empty() { Ok(()) } else { Err(DeleteError::Held(held)) }
}

/// The result of a removal of runs.
#[derive(Debug, Default)]
pub struct Removal {
    /// The removed runs.
    pub runs: Vec<RunId>,
    /// The runs that another process of a shared store held. They are still there.
    pub held: Vec<RunId>,
}

/// Removes ended runs in one commit, and waits until it is on stable storage.
fn remove(host: &Host, runs: &[RunId]) -> Result<Removal, StoreError> {
    runs.iter().for_each(|run| host.shared.sweep.forget(&host.tenant, run));
    host.settle()?;
    let mut removal = Removal::default();
    for run in runs {
        let row = host.runs().map_or(Ok(None), |lists| lists.run(&host.tenant, run))?;
        let is_held = row.is_some_and(|(row, _)| row.status != REMOVED);
        if is_held { &mut removal.held } else { &mut removal.runs }.push(run.clone());
    }
    host.shared.metrics.count_removed(&host.tenant, removal.runs.len() as u64);
    Ok(removal)
}

/// Deletes those of the runs that can be deleted, in one commit. Returns each run with the code of the reason if it was
/// not deleted.
pub(crate) fn delete_deletable(host: &Host, runs: &[RunId]) -> Result<Vec<(RunId, Option<&'static str>)>, StoreError> {
    let (mut refused, mut free) = (Vec::new(), Vec::new());
    for run in runs {
        let why = match undeletable(host, run)? {
            Some(why) => Some(why),
            None => repeated_by_live_run(host, run)?.map(|by| Undeletable::Repeated { run: run.clone(), by }),
        };
        match why {
            Some(why) => refused.push((run.clone(), Some(why.code()))),
            None => free.push(run.clone()),
        }
    }
    let Removal { runs: deleted, held } = remove(host, &free)?;
    let deleted = deleted.into_iter().map(|run| (run, None));
    let held = held.into_iter().map(|run| (run, Some("run_driven")));
    Ok(deleted.chain(held).chain(refused).collect())
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

/// Returns the reason why a run itself cannot be deleted, if there is one.
fn undeletable(host: &Host, run: &RunId) -> Result<Option<Undeletable>, StoreError> {
    let status = match host.runs() {
        Some(lists) => lists.run(&host.tenant, run)?.map(|(row, _)| row.status).filter(|status| status != REMOVED),
        None => status_in_memory(host, run)?,
    };
    let Some(status) = status else { return Ok(Some(Undeletable::Unknown(run.clone()))) };
    if let Some(parent) = host.record(run)?.and_then(|record| record.parent) {
        return Ok(Some(Undeletable::Called { run: run.clone(), parent }));
    }
    let status = if status == "active" { "running".to_owned() } else { status };
    if !ENDED.contains(&&*status) {
        return Ok(Some(Undeletable::NotEnded { run: run.clone(), status }));
    }
    Ok(lives_below(host, run)?.then(|| Undeletable::EndsBelow(run.clone())))
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

/// Returns the status of a run of a store in memory, which has no lists: `running` until the run has ended.
fn status_in_memory(host: &Host, run: &RunId) -> Result<Option<String>, StoreError> {
    // An error means that the run was removed, because a store in memory always answers.
    let Ok(Some(_)) = host.record(run) else { return Ok(None) };
    let (mut from, mut status) = (0, "running");
    loop {
        let units = host.shared.journal.read(&host.tenant, run, from, MAX_READ_UNITS)?;
        let Some(last) = units.last() else { return Ok(Some(status.to_owned())) };
        from = last.next_seq();
        if units.iter().flat_map(|unit| &unit.facts).any(|fact| matches!(fact, Fact::RunEnded { .. })) {
            status = "ended";
        }
    }
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

/// Lists ended runs to remove, except those that a run without an end repeats.
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
        let Removal { runs, held } = remove(host, batch)?;
        all.runs.extend(runs);
        all.held.extend(held);
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
