//! Removes old runs and unreferenced blobs, deletes single runs, and exports runs as documents.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    time::Duration,
};

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    export::{ExportError, export},
    fact::Fact,
    limits::MAX_READ_UNITS,
    ports::{Filter, Removable, Runs, StoreError, Swept},
};
use serde::{Deserialize, Serialize};

use super::{Host, called::CallableFlows, homes};
use crate::{host::error::StartError, operate::documents::Documents};

/// The statuses of runs that have ended.
const ENDED: [&str; 3] = ["succeeded", "failed", "cancelled"];
/// The statuses of runs that have not ended.
const LIVE: [&str; 3] = ["active", "parked", "needs_attention"];
/// The status of a removed run, whose id stays reserved.
const REMOVED: &str = "removed";
/// Number of live runs that one query reads.
const PAGE: usize = 500;
/// Number of runs that are removed in one commit.
pub const BATCH: usize = 50;
/// The time between the first removal of runs and the sweep of their blobs, in milliseconds.
pub const SWEEP_MS: u64 = 24 * 3_600 * 1_000;
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
            Undeletable::NotEnded { .. } => "run_not_ended",
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

/// Performs [`Host::delete_runs`].
pub(crate) fn delete_runs(host: &Host, runs: &[RunId]) -> Result<(), DeleteError> {
    let refused: Vec<_> = runs.iter().map(|run| undeletable(host, run)).collect::<Result<_, StoreError>>()?;
    let mut refused: Vec<_> = refused.into_iter().flatten().collect();
    if refused.is_empty() {
        let needed = needed_by_live_runs(host)?;
        let by = |run: &RunId| Some(Undeletable::Repeated { run: run.clone(), by: needed.get(run)?.clone() });
        refused.extend(runs.iter().filter_map(by));
    }
    if !refused.is_empty() {
        return Err(DeleteError::Refused(refused));
    }
    runs.iter().for_each(|run| host.shared.sweep.forget(&host.tenant, run));
    host.settle()?;
    let mut held = Vec::new();
    if let Some(lists) = host.runs() {
        for run in runs {
            let row = lists.run(&host.tenant, run)?;
            held.extend(row.filter(|(row, _)| row.status != REMOVED).map(|_| run.clone()));
        }
    }
    host.shared.metrics.count_removed(&host.tenant, (runs.len() - held.len()) as u64);
    if held.is_empty() { Ok(()) } else { Err(DeleteError::Held(held)) }
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
    let has_ended = ENDED.contains(&&*status);
    Ok((!has_ended).then(|| Undeletable::NotEnded { run: run.clone(), status }))
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

/// Returns the runs that runs without an end repeat, directly or in several steps, each with the run that needs it.
/// A run reads the kept outputs and the flows of these runs when it goes on.
fn needed_by_live_runs(host: &Host) -> Result<HashMap<RunId, RunId>, StoreError> {
    let (mut needed, Some(lists)) = (HashMap::new(), host.runs()) else { return Ok(HashMap::new()) };
    for status in LIVE {
        let mut after = None;
        loop {
            let filter = Filter { status: Some(status.to_owned()), after, limit: PAGE, ..Filter::default() };
            let page = lists.runs(&host.tenant, &filter)?;
            let Some(last) = page.last() else { break };
            after = Some(last.run_id.clone());
            for row in &page {
                add_needed(host, lists, &row.run_id, &mut needed)?;
            }
        }
    }
    Ok(needed)
}

/// Adds the runs that a live run repeats, up to the first one that was removed.
fn add_needed(
    host: &Host,
    lists: &dyn Runs,
    live: &RunId,
    needed: &mut HashMap<RunId, RunId>,
) -> Result<(), StoreError> {
    let mut seen = HashSet::from([live.clone()]);
    let mut next = host.record(live)?.and_then(|record| record.repeats);
    while let Some(run) = next.take().filter(|run| seen.insert(run.clone())) {
        let row = lists.run(&host.tenant, &run)?.filter(|(row, _)| row.status != REMOVED);
        if row.is_some() {
            next = host.record(&run)?.and_then(|record| record.repeats);
            needed.insert(run, live.clone());
        }
    }
    Ok(())
}

/// Performs [`Host::collect`].
pub(crate) fn collect(host: &Host, age: Option<Duration>, keep: Option<u64>) -> Result<Vec<RunId>, StartError> {
    let tenant = &host.tenant;
    let ended_before = age.map(|age| host.now().saturating_sub(age.as_millis() as u64));
    let wanted = Removable { ended_before, keep_latest: keep, ..Removable::default() };
    let runs = removable(host, &wanted).map_err(OpenError::Store)?;
    for run in &runs {
        host.shared.sweep.forget(tenant, run);
    }
    host.shared.metrics.count_removed(tenant, runs.len() as u64);
    Ok(runs)
}

/// Lists ended runs to remove, except those that a run without an end repeats.
pub(crate) fn removable(host: &Host, wanted: &Removable) -> Result<Vec<RunId>, StoreError> {
    let Some(lists) = host.runs() else { return Ok(Vec::new()) };
    let mut runs = lists.removable(&host.tenant, wanted)?;
    if !runs.is_empty() {
        let needed = needed_by_live_runs(host)?;
        runs.retain(|run| !needed.contains_key(run));
    }
    Ok(runs)
}

/// Removes ended runs in batches, so that other writes wait only for one batch. Returns the number of removed runs
/// when the removal is on stable storage.
pub(crate) fn remove_in_batches(host: &Host, runs: &[RunId]) -> Result<u64, StoreError> {
    for batch in runs.chunks(BATCH) {
        batch.iter().for_each(|run| host.shared.sweep.forget(&host.tenant, run));
        host.settle()?;
        host.shared.metrics.count_removed(&host.tenant, batch.len() as u64);
    }
    Ok(runs.len() as u64)
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

/// Sweeps the tenant's blobs if runs were removed longer ago than [`SWEEP_MS`] and no sweep came since.
pub(crate) fn sweep_if_due(host: &Host, now: u64) -> Result<(), StoreError> {
    match unswept(host)? {
        Some((At { at }, _)) if now.saturating_sub(at) >= SWEEP_MS => {
            sweep(host).map(drop).map_err(|error| StoreError(error.to_string().into()))
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
    let swept = host.shared.sweep.sweep(&host.tenant).map_err(OpenError::Store)?;
    if let Some((_, version)) = unswept {
        let done = retention_documents(host).put::<At>(RETENTION, UNSWEPT, None, version);
        done.map_err(|error| OpenError::Store(error.into()))?;
    }
    // The sweep may have removed packs that no run had pinned.
    let mut packs = host.shared.packs.lock();
    packs.values_mut().for_each(|pack| _ = pack.kept.remove(&host.tenant));
    Ok(swept)
}

/// Performs [`Host::export`].
pub(crate) fn export_run(host: &Host, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
    let library = CallableFlows::new(host.clone(), homes::unpinned(host));
    export(reader, &library, &host.tenant, run, out)
}
