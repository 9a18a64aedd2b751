//! Starts flows after the end of other runs.
//!
//! A run that ends in this process is reported at once. A scan every [`SCAN`] finds the ended runs of other processes,
//! and those whose process died before it reported them. The scan reads the ends since the trigger's mark, less
//! [`OVERLAP`]. The driver records the time of an end by its own clock, so an end may be committed with a past time.
//! The delay is less than a process's lease plus the difference of the clocks, and the overlap covers it. An end that
//! is seen twice leads to the same run id, and starts nothing.
//!
//! A chain of runs that start each other has at most [`DEPTH`] runs, so that flows cannot start each other forever.
//! The run's id contains its depth. From the second step on, runs start at the tenant's [`rate`](super::rate). Later
//! scans find the runs that have to wait.

use std::time::Duration;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::triggers::Cause;
use flowcell_runtime::{OpenError, fact::RunEnd, ports::RunRow};

use super::{
    LookError, Triggers,
    live::Live,
    record::{Mark, Records},
    start::{Outcome, Start, TriggerStartError, run_id, short, start},
};
use crate::{Host, StartError};

/// Interval between scans for runs that have ended elsewhere.
pub const SCAN: Duration = Duration::from_secs(10);
/// Maximum delay of a recorded end, in milliseconds.
pub const OVERLAP: u64 = 60_000;
/// Maximum number of triggered runs in a chain, each started by the end of the run before.
pub const DEPTH: u32 = 8;
/// Maximum number of ends that one query reads.
const PAGE: usize = 500;
/// Minimum advance of a mark that is written to the store, in milliseconds.
const STEP: u64 = 30_000;
/// The prefix of the ids of runs that another run's end has started.
const KIND: &str = "event";

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The run's id.
    pub run: RunId,
    /// The name of its flow.
    pub flow: String,
    /// `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// The time of the end, in milliseconds since 1970.
    pub at: u64,
}

impl From<RunRow> for Ended {
    fn from(row: RunRow) -> Ended {
        Ended { run: row.run_id, flow: row.flow, status: row.status, at: row.updated }
    }
}

impl Live {
    fn waits_for(&self, end: &Ended) -> bool {
        let Cause::Event { flow, status } = &self.trigger.cause else { return false };
        self.enabled && *flow == end.flow && status.iter().any(|status| status.name() == end.status)
    }
}

/// Starts the flows that wait for the end of a run of this process. If a start fails, a later scan tries it
/// again.
pub(super) async fn has_ended(triggers: &Triggers, tenant: &Tenant, end: &Ended) {
    let known = triggers.known(tenant);
    // The tenant's policy is in the store, and most ends start nothing. So the triggers are checked first.
    if !known.iter().any(|live| live.waits_for(end)) {
        return;
    }
    let Some(host) = triggers.owners.host(tenant) else { return };
    for live in known.iter().filter(|live| live.waits_for(end)) {
        let mark = Records(&host).mark(&live.key(), &live.cause(), end.at);
        match mark {
            Ok((mark, _)) => _ = start_after(triggers, &host, live, &mark, end, host.now()).await,
            Err(error) => tracing::warn!("the trigger `{}` of `{tenant}` waits: {error}", live.key()),
        }
    }
}

/// Starts the flows that wait for runs that have ended since the last scan.
pub(super) async fn look_for_ends(
    triggers: &Triggers,
    host: &Host,
    live: &[Live],
    now: u64,
) -> Result<Vec<RunId>, LookError> {
    let mut waiting = Vec::new();
    for live in live.iter().filter(|live| live.enabled && matches!(live.trigger.cause, Cause::Event { .. })) {
        let (mark, version) = Records(host).mark(&live.key(), &live.cause(), now)?;
        waiting.push(Waiting { live, mark, version, stuck: None });
    }
    let Some(from) = waiting.iter().map(|waiting| waiting.from(now)).min() else { return Ok(Vec::new()) };
    let (mut started, mut last, mut after) = (Vec::new(), None, None);
    while let Some(runs) = host.runs() {
        if waiting.iter().all(|waiting| waiting.stuck.is_some()) {
            break;
        }
        let page = runs.ended(host.tenant(), from, after.as_ref(), PAGE)?;
        let Some(row) = page.last() else { break };
        (after, last) = (Some(row.run_id.clone()), Some(row.updated));
        for end in page.into_iter().map(Ended::from) {
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

/// Starts the flow that waits for the end of a run. Returns `None` if the end was before the trigger existed, or if
/// the chain has [`DEPTH`] runs.
async fn start_after(
    triggers: &Triggers,
    host: &Host,
    live: &Live,
    mark: &Mark,
    end: &Ended,
    now: u64,
) -> Option<Outcome> {
    if end.at < mark.since {
        return None;
    }
    let depth = depth(&end.run) + 1;
    if depth > DEPTH {
        tracing::warn!(
            "the trigger `{}` does not start after `{}`: {DEPTH} flows have started each other",
            live.key(),
            end.run
        );
        return None;
    }
    let run = run_id(KIND, live, &format!("{depth}.{}", short(end.run.as_str())));
    if host.knows(&run).unwrap_or_default() {
        return Some(Outcome::Known(run));
    }
    if depth > 1 && !triggers.rate.take(host.tenant(), now) {
        if triggers.rate.warns(host.tenant(), now) {
            tracing::warn!("the trigger `{}` of `{}` waits: {}", live.key(), host.tenant(), TriggerStartError::Rate);
        }
        return Some(Outcome::Later(TriggerStartError::Rate));
    }
    let Ok(outputs) = outputs(host, &end.run) else {
        return Some(Outcome::Later(TriggerStartError::Store(format!("cannot read the outputs of `{}`", end.run))));
    };
    let about = vec![
        ("kind", Json::from(KIND)),
        ("run", Json::from(end.run.as_str())),
        ("flow", Json::from(end.flow.as_str())),
        ("status", Json::from(end.status.as_str())),
        ("outputs", outputs),
    ];
    let outcome = start(&*triggers.owners, host, live, Start { run, about, request: None }).await;
    if let Outcome::Later(why) | Outcome::Never(why) = &outcome {
        tracing::warn!("the trigger `{}` of `{}` did not start after `{}`: {why}", live.key(), host.tenant(), end.run);
    }
    Some(outcome)
}

/// A trigger that waits for the ends of runs, with its progress.
struct Waiting<'a> {
    live: &'a Live,
    mark: Mark,
    version: u64,
    /// The end time of the first run whose start has to wait. The next scan reads it again.
    stuck: Option<u64>,
}

impl Waiting<'_> {
    /// Returns the time from which the trigger's scan reads ends, in milliseconds since 1970. The time is never after
    /// `now`, even if the clock was set back.
    fn from(&self, now: u64) -> u64 {
        self.mark.up_to.min(now).saturating_sub(OVERLAP).max(self.mark.since.min(now))
    }

    /// Moves the mark to the last end that was read. If a start has to wait, moves it only to that run's end, so that
    /// the next scan reads the end again.
    fn advance_mark(self, host: &Host, last: Option<u64>, now: u64) -> Result<(), LookError> {
        let Some(last) = self.stuck.or(last).map(|last| last.min(now)) else { return Ok(()) };
        if last >= self.mark.up_to + STEP {
            let mark = Mark { up_to: last, ..self.mark };
            Records(host).move_mark(&self.live.key(), &mark, self.version)?;
        }
        Ok(())
    }
}

/// Returns the outputs of an ended run.
fn outputs(host: &Host, run: &RunId) -> Result<Json, StartError> {
    let Some(runs) = host.runs() else { return Ok(Json::Null) };
    let found = runs.run(host.tenant(), run).map_err(OpenError::Store)?;
    let Some((_, next)) = found else { return Ok(Json::Null) };
    Ok(match host.end_of(run, next)? {
        Some(RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs } | RunEnd::Failed { outputs, .. }) => outputs,
        None => Json::Null,
    })
}

/// Returns the depth of a run in its chain of triggered runs.
fn depth(run: &RunId) -> u32 {
    let mut parts = run.as_str().split('.');
    let kind = parts.next();
    parts.nth(2).filter(|_| kind == Some(KIND)).and_then(|depth| depth.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_deep_a_run_is_is_in_its_id() {
        for (run, deep) in [("event.f.t.3.abc", 3), ("cron.f.t.20260101T000000Z", 0), ("event", 0), ("abc", 0)] {
            assert_eq!(depth(&RunId::from(run)), deep, "{run}");
        }
    }
}
