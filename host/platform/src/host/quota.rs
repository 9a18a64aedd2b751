//! The limit of a tenant's live runs (`maxLiveRuns`).
//!
//! A new run counts as live before the store shows it, so that runs that start at the same time cannot exceed the
//! limit together. Each process counts by itself. So several processes on one store may each admit a run before the
//! store shows the runs of the others. Child runs that other processes drive are not counted.

use std::collections::HashSet;

use flowcell_contract::RunId;
use flowcell_runtime::{FlowRunner, OpenError, Quotas as _, live::Starting, ports::StoreError};

use crate::{
    Host,
    host::error::StartError,
    operate::{policy::OnExhausted, quota::QuotaError, record},
};

/// Performs [`Host::check_quota`].
pub(crate) fn check(host: &Host) -> Result<(), QuotaError> {
    check_room(host)?;
    host.usage().check(host.tenant(), &host.policy().per_day)?;
    let (Some(most), Some(runs)) = (host.policy().max_live_runs, host.runs()) else { return Ok(()) };
    let live = runs.live(host.tenant(), u64::from(most))? + host.live().children(host.tenant());
    if live >= u64::from(most) { Err(QuotaError::LiveRuns(most)) } else { Ok(()) }
}

/// Performs [`Host::check_quota_for`].
pub(crate) fn check_for(host: &Host, run: Option<&RunId>) -> Result<(), QuotaError> {
    match run {
        // The store is only queried for a caller over the limit.
        Some(run) => check(host).or_else(|error| if host.knows(run)? { Ok(()) } else { Err(error) }),
        None => check(host),
    }
}

/// Refuses new runs while the disk of the store has too little free room, if this process watches it. Runs that the
/// store already has go on, with the runs that they call.
fn check_room(host: &Host) -> Result<(), QuotaError> {
    match host.store().and_then(|store| store.room()) {
        Some(room) if room.is_low() => Err(QuotaError::StoreFull { free: room.free, least: room.least }),
        _ => Ok(()),
    }
}

/// Refuses the runs of a disabled tenant. Child runs of a driven run may still finish.
pub(crate) fn check_enabled(host: &Host, runner: &FlowRunner) -> Result<(), StartError> {
    if runner.is_below() { Ok(()) } else { check_tenant_enabled(host) }
}

/// Fails if the tenant is disabled.
pub(crate) fn check_tenant_enabled(host: &Host) -> Result<(), StartError> {
    match record::is_disabled(host.documents(), host.tenant()).map_err(OpenError::Store)? {
        true => Err(StartError::TenantDisabled(host.tenant().clone())),
        false => Ok(()),
    }
}

/// Checks the quotas of a new run, and counts it as started. A child run is not counted, since it needs a live
/// permit when it starts.
pub(crate) fn admitted(host: &Host, mut runner: FlowRunner) -> Result<FlowRunner, StartError> {
    check_enabled(host, &runner)?;
    if !runner.is_new() {
        return Ok(runner);
    }
    if !runner.is_below() {
        check_room(host)?;
    }
    // The attempts of a called run wait for a quota that pauses runs.
    if !runner.is_below() || host.policy().per_day.on_exhausted == OnExhausted::Fail {
        host.usage().check(host.tenant(), &host.policy().per_day)?;
    }
    if !runner.is_below()
        && let Some(starting) = take_live_run(host, runner.run_id())?
    {
        runner.count_as(starting);
    }
    Ok(runner)
}

/// Reads the quotas of a run that is parked for one, so that its driver knows whether the quota is still used up. A resume
/// `by_hand` is then refused.
pub(crate) fn check_pause(host: &Host, runner: &FlowRunner, by_hand: bool) -> Result<(), StartError> {
    let Some(hold) = runner.paused_by().filter(|_| host.usage().counts()) else { return Ok(()) };
    host.usage().load(host.tenant()).map_err(OpenError::Store)?;
    match host.usage().hold(host.tenant(), hold.usd) {
        Some(hold) if by_hand => {
            let seconds = hold.until.saturating_sub(host.now()).div_ceil(1_000).max(1);
            Err(QuotaError::Paused { hold, seconds }.into())
        }
        _ => Ok(()),
    }
}

/// Counts a run as started if the tenant is below the limit. The limit applies to the runs of the store, the runs
/// that just started, and the child runs of driven runs. Returns `None` if the tenant has no limit.
fn take_live_run(host: &Host, run: &RunId) -> Result<Option<Starting>, QuotaError> {
    let (Some(most), Some(runs)) = (host.policy().max_live_runs, host.runs()) else { return Ok(None) };
    let starting = host.live().start(host.tenant(), run);
    let most_live = u64::from(most);
    let live = |before: usize| -> Result<u64, StoreError> {
        Ok(before as u64 + runs.live(host.tenant(), most_live)? + host.live().children(host.tenant()))
    };
    let before = starting.before();
    if live(before.len())? < most_live {
        return Ok(Some(starting));
    }
    // Close to the limit, a run must not count twice: as a run that just started and as a run in the store.
    let mut hidden = not_in_store(host, before)?;
    loop {
        if live(hidden.len())? < most_live {
            return Ok(Some(starting));
        }
        let still_hidden = not_in_store(host, starting.before())?;
        if still_hidden == hidden {
            return Err(QuotaError::LiveRuns(most));
        }
        hidden = still_hidden;
    }
}

fn not_in_store(host: &Host, runs: HashSet<RunId>) -> Result<HashSet<RunId>, StoreError> {
    let hidden = runs.into_iter().map(|run| host.knows(&run).map(|known| (!known).then_some(run)));
    hidden.filter_map(Result::transpose).collect()
}
