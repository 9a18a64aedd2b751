//! Starts flows after the end of other runs.
//!
//! A run that ends in this process is reported at once. A scan every [`SCAN_INTERVAL`] finds the ended runs of other
//! processes, and those whose process died before it reported them. The scan begins [`SCAN_OVERLAP_MS`] before the
//! trigger's mark. A driver records the time of an end by its own clock and commits it later, so an end can appear in
//! the store with a time before the mark. The delay is less than a process's lease plus the difference of the clocks,
//! and the overlap covers it. An end that is read twice leads to the same run id, and the second time starts nothing.
//!
//! In a chain of runs, the end of each run starts the next run. A chain has at most [`MAX_CHAIN_DEPTH`] runs after its
//! first run, so that flows cannot start each other forever. The id of a run contains its depth: 1 for the second run
//! of the chain, 2 for the third, and so on. From depth 2 on, the tenant's [`rate`](super::rate) limits the starts. A
//! start that exceeds the limit is made by a later scan.

use std::{collections::HashSet, time::Duration};

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::triggers::Cause;
use flowcell_runtime::{
    OpenError,
    fact::RunEnd,
    ports::{RunRow, StoreError},
};
use parking_lot::Mutex;

use super::{
    LookError, Triggers,
    live::TenantTrigger,
    record::{Mark, Records},
    start::{Outcome, Start, TriggerStartError, log_delay, run_id, short_hash, start},
};
use crate::{Host, StartError};

/// Interval between scans for runs that have ended in other processes.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// A scan begins this many milliseconds before the mark. The end of a run is committed at most this long after the time
/// that the end records.
pub const SCAN_OVERLAP_MS: u64 = 60_000;
/// Maximum number of runs in a chain after its first run. In a chain, the end of each run starts the next run.
pub const MAX_CHAIN_DEPTH: u32 = 8;
/// Maximum number of ends that one query reads.
const MAX_PAGE_ENDS: usize = 500;
/// Minimum advance of a mark in milliseconds. If the mark would advance less, it is not written.
const MIN_MARK_STEP_MS: u64 = 30_000;
/// The name of this kind of cause, the end of another run, in the ids and inputs of the runs that it starts.
const CAUSE_KIND: &str = "event";

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct EndedRun {
    /// The run's id.
    pub run: RunId,
    /// The name of its flow.
    pub flow: String,
    /// `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// The time of the end, in milliseconds since 1970.
    pub at: u64,
}

impl From<RunRow> for EndedRun {
    fn from(row: RunRow) -> EndedRun {
        EndedRun { run: row.run_id, flow: row.flow, status: row.status, at: row.updated }
    }
}

impl TenantTrigger {
    fn waits_for_ends(&self) -> bool {
        self.enabled && matches!(self.trigger.cause, Cause::Event { .. })
    }

    fn waits_for(&self, end: &EndedRun) -> bool {
        let Cause::Event { flow, status } = &self.trigger.cause else { return false };
        self.enabled && *flow == end.flow && status.iter().any(|status| status.name() == end.status)
    }
}

/// The maximum number of triggers that [`Begun`] remembers. With more of them, each look is a scan.
const MAX_BEGUN: usize = 10_000;

/// The triggers whose mark exists, as far as this process knows: the tenant, the key and the cause of each.
#[derive(Default)]
pub(super) struct Begun(Mutex<HashSet<(Tenant, String, String)>>);

impl Begun {
    fn add(&self, tenant: &Tenant, live: &TenantTrigger) {
        let mut begun = self.0.lock();
        if begun.len() >= MAX_BEGUN {
            begun.clear();
        }
        begun.insert((tenant.clone(), live.key(), live.cause()));
    }

    /// Returns true if a trigger waits for ends and is not known to have a mark.
    pub(super) fn lacks_any(&self, tenant: &Tenant, live: &[TenantTrigger]) -> bool {
        let begun = self.0.lock();
        live.iter()
            .filter(|live| live.waits_for_ends())
            .any(|live| !begun.contains(&(tenant.clone(), live.key(), live.cause())))
    }
}

/// Starts the flows that wait for the end of this run, which this process has driven. If a start fails, a later scan
/// tries the start again.
pub(super) async fn start_waiting_flows(triggers: &Triggers, tenant: &Tenant, end: &EndedRun) {
    let known = triggers.triggers_at_last_look(tenant);
    // The tenant's policy is in the store, and most ends start nothing. So the triggers are checked first.
    if !known.iter().any(|live| live.waits_for(end)) {
        return;
    }
    let Some(host) = triggers.owners.host(tenant) else { return };
    for live in known.iter().filter(|live| live.waits_for(end)) {
        let mark = Records(&host).read_or_create_mark(&live.key(), &live.cause(), end.at);
        match mark {
            Ok((mark, _)) => _ = start_after(triggers, &host, live, &mark, end, host.now()).await,
            Err(error) => log_delay(live, tenant, &error.into()),
        }
    }
}

/// Starts the flows that wait for runs that have ended since the last scan.
pub(super) async fn look_for_ends(
    triggers: &Triggers,
    host: &Host,
    live: &[TenantTrigger],
    now: u64,
) -> Result<Vec<RunId>, LookError> {
    let mut waiting = Vec::new();
    for live in live.iter().filter(|live| live.waits_for_ends()) {
        let (mark, version) = Records(host).read_or_create_mark(&live.key(), &live.cause(), now)?;
        triggers.waiting_for_ends.add(host.tenant(), live);
        waiting.push(WaitingTrigger { live, mark, version, stuck: None });
    }
    let Some(from) = waiting.iter().map(|waiting| waiting.scan_start(now)).min() else { return Ok(Vec::new()) };
    let (mut started, mut last, mut after) = (Vec::new(), None, None);
    while let Some(runs) = host.runs() {
        if waiting.iter().all(|waiting| waiting.stuck.is_some()) {
            break;
        }
        let page = runs.ended(host.tenant(), from, after.as_ref(), MAX_PAGE_ENDS)?;
        let Some(row) = page.last() else { break };
        (after, last) = (Some(row.run_id.clone()), Some(row.updated));
        for end in page.into_iter().map(EndedRun::from) {
            for waiting in waiting.iter_mut().filter(|waiting| waiting.stuck.is_none() && waiting.live.waits_for(&end))
            {
                match start_after(triggers, host, waiting.live, &waiting.mark, &end, now).await {
                    Some(Outcome::Started(run)) => started.push(run),
                    Some(Outcome::Later(_)) => waiting.stuck = Some(end.at),
                    _ => {}
                }
            }
        }
    }
    for waiting in waiting {
        waiting.advance_mark(host, last, now)?;
    }
    Ok(started)
}

/// Starts the flow of the trigger `live` after the end of a run, unless this start was made before. Returns `None` if
/// the run ended before the trigger existed, or if the chain would have more than [`MAX_CHAIN_DEPTH`] runs after its
/// first run.
async fn start_after(
    triggers: &Triggers,
    host: &Host,
    live: &TenantTrigger,
    mark: &Mark,
    end: &EndedRun,
    now: u64,
) -> Option<Outcome> {
    if end.at < mark.since {
        return None;
    }
    let depth = chain_depth(&end.run) + 1;
    if depth > MAX_CHAIN_DEPTH {
        tracing::warn!(
            "the trigger `{}` does not start after `{}`: {MAX_CHAIN_DEPTH} flows have started each other",
            live.key(),
            end.run
        );
        return None;
    }
    let run = run_id(CAUSE_KIND, live, &format!("{depth}.{}", short_hash(end.run.as_str())));
    match host.knows(&run) {
        Ok(true) => return Some(Outcome::Known(run)),
        Ok(false) => {}
        Err(error) => return Some(did_not_start(host, live, end, Outcome::Later(error.into()))),
    }
    if depth > 1 && !triggers.rate.try_take(host.tenant(), now) {
        if triggers.rate.take_warning(host.tenant(), now) {
            log_delay(live, host.tenant(), &TriggerStartError::Rate);
        }
        return Some(Outcome::Later(TriggerStartError::Rate));
    }
    let outputs = match read_outputs(host, &end.run) {
        Ok(outputs) => outputs,
        Err(error) => {
            let why = format!("cannot read the outputs of `{}`: {error}", end.run);
            let outcome = Outcome::Later(StoreError::unavailable(why).into());
            return Some(did_not_start(host, live, end, outcome));
        }
    };
    let about = vec![
        ("kind", Json::from(CAUSE_KIND)),
        ("run", Json::from(end.run.as_str())),
        ("flow", Json::from(end.flow.as_str())),
        ("status", Json::from(end.status.as_str())),
        ("outputs", outputs),
    ];
    let outcome = start(&*triggers.owners, host, live, Start { run, about, request: None }).await;
    Some(did_not_start(host, live, end, outcome))
}

/// Logs why the trigger `live` has started nothing after the end of a run, if it has not. Returns the outcome.
fn did_not_start(host: &Host, live: &TenantTrigger, end: &EndedRun, outcome: Outcome) -> Outcome {
    if let Outcome::Later(why) | Outcome::Never(why) = &outcome {
        tracing::warn!("the trigger `{}` of `{}` did not start after `{}`: {why}", live.key(), host.tenant(), end.run);
    }
    outcome
}

/// A trigger that waits for the ends of runs, with its progress.
struct WaitingTrigger<'a> {
    live: &'a TenantTrigger,
    mark: Mark,
    version: u64,
    /// The time of the first end after which the start of a flow has to wait. The mark does not pass this time, so the
    /// next scan reads that end again. `None` if no start has to wait.
    stuck: Option<u64>,
}

impl WaitingTrigger<'_> {
    /// Returns the time from which the trigger's scan reads ends, in milliseconds since 1970. The time is never after
    /// `now`, even if the clock was set back.
    fn scan_start(&self, now: u64) -> u64 {
        self.mark.up_to.min(now).saturating_sub(SCAN_OVERLAP_MS).max(self.mark.since.min(now))
    }

    /// Moves the mark to `last`, the time of the last end that the scan has read. If the start after an earlier end has
    /// to wait, moves the mark only to that end, so that the next scan reads that end again.
    fn advance_mark(self, host: &Host, last: Option<u64>, now: u64) -> Result<(), LookError> {
        let Some(last) = self.stuck.or(last).map(|last| last.min(now)) else { return Ok(()) };
        if last >= self.mark.up_to + MIN_MARK_STEP_MS {
            let mark = Mark { up_to: last, ..self.mark };
            Records(host).move_mark(&self.live.key(), &mark, self.version)?;
        }
        Ok(())
    }
}

/// Returns the outputs of an ended run.
fn read_outputs(host: &Host, run: &RunId) -> Result<Json, StartError> {
    let Some(runs) = host.runs() else { return Ok(Json::Null) };
    let found = runs.run(host.tenant(), run).map_err(OpenError::Store)?;
    let Some((_, next)) = found else { return Ok(Json::Null) };
    Ok(match host.end_of(run, next)? {
        Some(RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs } | RunEnd::Failed { outputs, .. }) => outputs,
        None => Json::Null,
    })
}

/// Returns the depth of a run in its chain of triggered runs. The depth is 0 if no end of another run has started this
/// run.
fn chain_depth(run: &RunId) -> u32 {
    let mut parts = run.as_str().split('.');
    let kind = parts.next();
    parts.nth(2).filter(|_| kind == Some(CAUSE_KIND)).and_then(|depth| depth.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_a_run_in_its_chain_is_in_its_id() {
        for (run, deep) in [("event.f.t.3.abc", 3), ("cron.f.t.20260101T000000Z", 0), ("event", 0), ("abc", 0)] {
            assert_eq!(chain_depth(&RunId::from(run)), deep, "{run}");
        }
    }
}
