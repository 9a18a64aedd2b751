//! Starts runs at due times, and runs that users start by hand.

use std::{collections::HashMap, time::Duration};

use flowcell_contract::{Json, RunId};
use flowcell_flow::triggers::{Cause, Missed};
use flowcell_runtime::ports::StoreError;

use super::{
    LookError, TriggerTenants,
    live::TenantTrigger,
    record::{Mark, Records},
    start::{Outcome, Start, log_delay, run_id, start},
};
use crate::{Host, observe::metrics::LateTriggers, schedule};

/// A trigger is late if its due time was this many milliseconds ago.
pub const LATE_MS: u64 = 60_000;

/// Starts the runs whose scheduled times have come at the time `now`, and moves the marks of their triggers.
pub(super) async fn start_due(
    owners: &dyn TriggerTenants,
    host: &Host,
    live: &[TenantTrigger],
    now: u64,
) -> Result<Vec<RunId>, LookError> {
    let mut started = Vec::new();
    for trigger in live.iter().filter(|live| live.enabled) {
        started.extend(start_due_times(owners, host, trigger, now).await?);
    }
    Ok(started)
}

async fn start_due_times(
    owners: &dyn TriggerTenants,
    host: &Host,
    live: &TenantTrigger,
    now: u64,
) -> Result<Vec<RunId>, LookError> {
    let mut started = Vec::new();
    let (Cause::Time { missed, .. }, Some(schedule)) = (&live.trigger.cause, live.schedule()) else {
        return Ok(started);
    };
    let (mark, version) = Records(host).read_or_create_mark(&live.key(), &live.cause(), now)?;
    let mut done = mark.up_to;
    for slot in schedule.due(mark.up_to, now, *missed) {
        let about = vec![("kind", Json::from("cron")), ("time", Json::from(schedule::format_for_text(slot)))];
        let run = run_id("cron", live, &schedule::format_for_id(slot));
        match start(owners, host, live, Start { run, about, request: None }).await {
            Outcome::Started(run) => started.push(run),
            Outcome::Known(_) => {}
            Outcome::Later(why) => {
                log_delay(live, host.tenant(), &why);
                break;
            }
            Outcome::Never(why) => {
                tracing::warn!("the trigger `{}` of `{}` starts no run: {why}", live.key(), host.tenant());
            }
        }
        done = slot;
    }
    if done > mark.up_to {
        Records(host).move_mark(&live.key(), &Mark { up_to: done, ..mark }, version)?;
    }
    Ok(started)
}

/// Counts the triggers that are late: see [`Triggers::late`](super::Triggers::late).
pub(super) fn find_late(host: &Host, live: &[TenantTrigger], began: u64, now: u64) -> Result<LateTriggers, StoreError> {
    let mut found = LateTriggers::default();
    let marks: HashMap<String, Mark> = Records(host).marks()?.into_iter().collect();
    for live in live.iter().filter(|live| live.enabled) {
        let (Cause::Time { missed, .. }, Some(schedule)) = (&live.trigger.cause, live.schedule()) else { continue };
        found.timed += 1;
        // A trigger without a mark is new.
        let Some(mark) = marks.get(&live.key()).filter(|mark| mark.cause == live.cause()) else { continue };
        let from = match missed {
            // The due times while no process ran are given up on purpose.
            Missed::Skip => mark.up_to.max(began),
            Missed::Latest | Missed::All => mark.up_to,
        };
        let Some(due) = schedule.next(from) else { continue };
        let late = now.saturating_sub(due);
        if late >= LATE_MS {
            found.late += 1;
            found.longest = found.longest.max(late);
        }
    }
    Ok(found)
}

/// Starts the runs that users have requested by hand, and removes the requests that are done.
pub(super) async fn start_requested(
    owners: &dyn TriggerTenants,
    host: &Host,
    live: &[TenantTrigger],
) -> Result<Vec<RunId>, LookError> {
    let mut started = Vec::new();
    for live in live {
        for asked in &live.asked {
            started.extend(start_manual_run(owners, host, live, *asked).await?);
        }
    }
    Ok(started)
}

async fn start_manual_run(
    owners: &dyn TriggerTenants,
    host: &Host,
    live: &TenantTrigger,
    asked: u64,
) -> Result<Option<RunId>, LookError> {
    let about = vec![("kind", Json::from("manual")), ("time", Json::from(schedule::format_for_text(asked)))];
    let run = manual_run_id(live, asked);
    let started = match start(owners, host, live, Start { run, about, request: None }).await {
        Outcome::Started(run) => Some(run),
        Outcome::Known(_) => None,
        Outcome::Later(why) => {
            log_delay(live, host.tenant(), &why);
            return Ok(None);
        }
        Outcome::Never(why) => {
            tracing::warn!("the trigger `{}` of `{}` starts no run: {why}", live.key(), host.tenant());
            None
        }
    };
    Records(host).change_settings(&live.key(), |settings| {
        let mut settings = settings?;
        settings.asked.retain(|other| *other != asked);
        Some(Some(settings))
    })?;
    Ok(started)
}

/// Returns the id of the run that a user requested by hand at the time `asked`, in milliseconds since 1970.
pub(super) fn manual_run_id(live: &TenantTrigger, asked: u64) -> RunId {
    run_id("manual", live, &asked.to_string())
}

/// Returns the time from `now` until the next due time of any enabled trigger, or `None` if no trigger has a due time.
pub(super) fn time_until_next(live: &[TenantTrigger], now: u64) -> Option<Duration> {
    let next = live.iter().filter(|live| live.enabled).filter_map(|live| live.schedule()?.next(now));
    next.min().map(|next| Duration::from_millis(next.saturating_sub(now)))
}
