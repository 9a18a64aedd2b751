//! Runs that have ended, and what that starts.
//!
//! A run that ends in this process is told of at once. All others, those of other processes and those whose process has died
//! before it could tell, are found by looking: every [`SCAN`], at the runs that have ended since the mark of the trigger less
//! [`OVERLAP`]. When a run has ended is written with its end, by the clock of whoever drove it, and so is in the past by the
//! time that it is committed: by less than the lease of a process, after which nothing of it is taken any more, and by what
//! clocks differ. That is what the overlap is for. What is seen twice leads to the id of the same run, and starts nothing.
//!
//! So that flows do not start each other for ever, a run that was started by the end of one that was started by the end of
//! one … is the [`DEPTH`]th at most. How deep a run is, is in its id. From the second on they start at the tenant's
//! [`rate`](super::rate); those that have to wait are found again.

use std::time::Duration;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::triggers::Cause;
use flowcell_runtime::{OpenError, fact::RunEnd, ports::RunRow};

use super::{
    LookError, Triggers,
    live::Live,
    record::{Mark, Records},
    start::{Outcome, Problem, Start, run_id, short, start},
};
use crate::{Host, StartError};

/// Time between two looks for runs that have ended elsewhere.
pub const SCAN: Duration = Duration::from_secs(10);
/// By how much an end may be told late, in milliseconds.
pub const OVERLAP: u64 = 60_000;
/// Runs in a chain, of which each was started by the end of the one before.
pub const DEPTH: u32 = 8;
/// Ends that are read at a time.
const PAGE: usize = 500;
/// A mark is not moved for less, in milliseconds.
const STEP: u64 = 30_000;
/// What the ids of runs begin with that the end of another has started.
const KIND: &str = "event";

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Which run.
    pub run: RunId,
    /// Of which flow.
    pub flow: String,
    /// `succeeded`, `failed` or `cancelled`.
    pub status: String,
    /// When, in milliseconds since 1970.
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

impl Triggers {
    /// Starts what waits for the end of a run of this process. What cannot be started now is found again.
    pub(super) async fn has_ended(&self, tenant: &Tenant, end: &Ended) {
        let known = self.known(tenant);
        // What a tenant may is read from the store, and most ends start nothing.
        if !known.iter().any(|live| live.waits_for(end)) {
            return;
        }
        let Some(host) = self.owners.host(tenant) else { return };
        for live in known.iter().filter(|live| live.waits_for(end)) {
            let mark = Records(&host).mark(&live.key(), &live.cause(), end.at);
            match mark {
                Ok((mark, _)) => _ = self.start_after(&host, live, &mark, end, host.now()).await,
                Err(error) => tracing::warn!("the trigger `{}` of `{tenant}` has to wait: {error}", live.key()),
            }
        }
    }

    /// Starts what waits for runs that have ended since the last look.
    pub(super) async fn look_for_ends(&self, host: &Host, live: &[Live], now: u64) -> Result<Vec<RunId>, LookError> {
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
                for waiting in
                    waiting.iter_mut().filter(|waiting| waiting.stuck.is_none() && waiting.live.waits_for(&end))
                {
                    match self.start_after(host, waiting.live, &waiting.mark, &end, now).await {
                        Some(Outcome::Started(run)) => started.push(run),
                        Some(Outcome::Later(_)) => waiting.stuck = Some(end.at),
                        _ => {}
                    }
                }
            }
        }
        for waiting in waiting {
            waiting.come(host, last, now)?;
        }
        Ok(started)
    }

    /// Starts what waits for the end of a run; nothing if it was before the trigger was there.
    async fn start_after(&self, host: &Host, live: &Live, mark: &Mark, end: &Ended, now: u64) -> Option<Outcome> {
        if end.at < mark.since {
            return None;
        }
        let depth = depth(&end.run) + 1;
        if depth > DEPTH {
            tracing::warn!(
                "the trigger `{}` starts nothing after `{}`: {DEPTH} flows have started each other",
                live.key(),
                end.run
            );
            return None;
        }
        let run = run_id(KIND, live, &format!("{depth}.{}", short(end.run.as_str())));
        if host.knows(&run).unwrap_or_default() {
            return Some(Outcome::Known(run));
        }
        if depth > 1 && !self.rate.take(host.tenant(), now) {
            if self.rate.warns(host.tenant(), now) {
                tracing::warn!("the trigger `{}` of `{}` has to wait: {}", live.key(), host.tenant(), Problem::Rate);
            }
            return Some(Outcome::Later(Problem::Rate));
        }
        let Ok(outputs) = outputs(host, &end.run) else {
            return Some(Outcome::Later(Problem::Store(format!("the outputs of `{}` cannot be read", end.run))));
        };
        let about = vec![
            ("kind", Json::from(KIND)),
            ("run", Json::from(end.run.as_str())),
            ("flow", Json::from(end.flow.as_str())),
            ("status", Json::from(end.status.as_str())),
            ("outputs", outputs),
        ];
        let outcome = start(&*self.owners, host, live, Start { run, about, request: None }).await;
        if let Outcome::Later(why) | Outcome::Never(why) = &outcome {
            tracing::warn!(
                "the trigger `{}` of `{}` did not start after `{}`: {why}",
                live.key(),
                host.tenant(),
                end.run
            );
        }
        Some(outcome)
    }
}

/// A trigger that waits for ends, and how far it has come.
struct Waiting<'a> {
    live: &'a Live,
    mark: Mark,
    version: u64,
    /// When the first run ended after which nothing could be started yet: it is to be seen again.
    stuck: Option<u64>,
}

impl Waiting<'_> {
    /// From when on it looks. A clock that has gone back is followed.
    fn from(&self, now: u64) -> u64 {
        self.mark.up_to.min(now).saturating_sub(OVERLAP).max(self.mark.since.min(now))
    }

    /// All up to the last end that was seen is dealt with, or all before the first that has to wait.
    fn come(self, host: &Host, last: Option<u64>, now: u64) -> Result<(), LookError> {
        let Some(last) = self.stuck.or(last).map(|last| last.min(now)) else { return Ok(()) };
        if last >= self.mark.up_to + STEP {
            let mark = Mark { up_to: last, ..self.mark };
            Records(host).move_mark(&self.live.key(), &mark, self.version)?;
        }
        Ok(())
    }
}

/// What a run that has ended gave.
fn outputs(host: &Host, run: &RunId) -> Result<Json, StartError> {
    let Some(runs) = host.runs() else { return Ok(Json::Null) };
    let found = runs.run(host.tenant(), run).map_err(OpenError::Store)?;
    let Some((_, next)) = found else { return Ok(Json::Null) };
    Ok(match host.end_of(run, next)? {
        Some(RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs } | RunEnd::Failed { outputs, .. }) => outputs,
        None => Json::Null,
    })
}

/// How many ends have led to a run.
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
