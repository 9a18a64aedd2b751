//! Retention that runs by itself: a process that drives a store removes old runs by the rules of their tenants.
//!
//! A pass comes every [`PASS_INTERVAL`]. Of the processes that share a store, one does it: the first that takes the
//! pass in the document store. A pass removes runs in small batches, so that other writes wait only for one batch.
//!
//! A run that has not ended stays. So does a run that a run without an end repeats, and a run that has ended a short
//! time ago: [`MIN_AGE_MS`], or [`MIN_WAITED_AGE_MS`] if a trigger of the tenant waits for ends like its own. A trigger
//! reads the run when it starts, and quotas may delay the start until the next day.
//!
//! The removed runs may have been the last to refer to large values. A sweep removes these values, at most once in
//! [`SWEEP_DELAY_MS`](crate::host::retention::SWEEP_DELAY_MS) for a tenant, since it reads all texts of the tenant. A
//! document records that the sweep is due, so that it is not forgotten if the process ends.

use std::{path::PathBuf, sync::Arc, time::Duration};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{MaybeStoreError, Removable, RunGroup};

use super::{TenantError, Tenants, audit::Outcome, deletion};
use crate::{
    FlowLibrary, Host,
    drive::triggers::{operation::TriggerError, waited_ends},
    host::retention::{self, At, RETENTION},
    operate::{
        policy::Policy,
        retention::{MIN_AGE_MS, RetentionRule},
    },
};

/// The mean time between two passes. Each one comes up to a half earlier or later, so that processes that share a store
/// do not all work at once.
pub const PASS_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum time between the start of a process and its first pass.
pub const MAX_FIRST_DELAY: Duration = Duration::from_secs(60);
/// Maximum number of runs that one pass removes for each rule. The next pass continues.
pub const MAX_PASS_RUNS: u64 = 10_000;
/// The minimum age in milliseconds at which a run is removed if a trigger waits for the ends of such runs.
pub const MIN_WAITED_AGE_MS: u64 = 24 * 3_600 * 1_000;
/// The variable of a test mode with the time between two passes, in milliseconds.
const TEST_INTERVAL: &str = "FLOWCELL_TEST_RETENTION_MS";
/// The key of the document with the time of the last pass.
const LAST_PASS: &str = "pass";
/// The actor in audit entries of retention.
const ACTOR: &str = "retention";

/// Removes old runs by rules.
pub struct Retention {
    tenants: Tenants,
    host: Host,
    /// The rules of tenants whose policy has no rules.
    rules: Arc<[RetentionRule]>,
    /// The folder with the flows of all tenants. Without it, each run counts as one that a trigger waits for.
    flows: Option<PathBuf>,
}

impl Retention {
    /// Creates the retention of a host's store. `rules` apply to tenants whose policy has none. `flows` is the folder
    /// with the flows of all tenants, if this process starts their triggers.
    pub fn new(host: &Host, rules: Vec<RetentionRule>, flows: Option<PathBuf>) -> Retention {
        Retention { tenants: Tenants::of(host), host: host.clone(), rules: rules.into(), flows }
    }

    /// Does a pass in each interval, until the caller drops the future.
    pub async fn attend(self) {
        let test = std::env::var(TEST_INTERVAL).ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
        let (mut rest, interval) = match test {
            Some(each) => (each, each),
            None => (MAX_FIRST_DELAY.mul_f64(rand::random()), PASS_INTERVAL),
        };
        let this = Arc::new(self);
        loop {
            tokio::time::sleep(rest).await;
            let (passing, least) = (this.clone(), interval / 2);
            let passed = tokio::task::spawn_blocking(move || passing.pass_in_turn(least)).await;
            if let Ok(Err(error)) = passed {
                error.warn("cannot remove old runs");
            }
            rest = interval.mul_f64(0.5 + rand::random::<f64>());
        }
    }

    /// Does a pass, unless there was one less than `least` ago.
    fn pass_in_turn(&self, least: Duration) -> Result<(), TenantError> {
        let now = self.host.now();
        let last = self.tenants.get::<At>(RETENTION, LAST_PASS)?;
        let is_early = last.is_some_and(|(At { at }, _)| at <= now && now - at < least.as_millis() as u64);
        let seen = last.map_or(0, |(_, version)| version);
        if is_early || !self.tenants.put(RETENTION, LAST_PASS, Some(&At { at: now }), seen)? {
            return Ok(());
        }
        self.pass(now)
    }

    /// Removes the runs of all tenants that are due at `now`, in milliseconds since 1970. An error of one tenant is
    /// logged, and the others are done. In a shared store, also removes rows that were written for removed tenants
    /// after their removal.
    pub fn pass(&self, now: u64) -> Result<(), TenantError> {
        for tenant in self.tenants.all_tenants()? {
            if let Err(error) = self.pass_of(&tenant, now) {
                tracing::warn!("cannot remove old runs of the tenant `{tenant}`: {error}");
            }
        }
        deletion::remove_strays(&self.tenants)
    }

    fn pass_of(&self, tenant: &Tenant, now: u64) -> Result<(), TenantError> {
        let host = self.host.for_tenant(tenant.clone());
        let policy = Policy::read(self.tenants.document_store(), tenant)?;
        let rules = policy.retention.as_deref().unwrap_or(&self.rules);
        let mut removed = 0;
        if !rules.is_empty() {
            let spared = self.spared_groups(&host, now)?;
            for (index, rule) in rules.iter().enumerate() {
                let age = rule.age_ms().map_err(TenantError::Policy)?;
                let wanted = Removable {
                    of: rule.group(),
                    except: rules[..index].iter().map(RetentionRule::group).collect(),
                    ended_before: age.map(|age| now.saturating_sub(age)),
                    keep_latest: rule.keep_latest,
                    spared: spared.clone(),
                    limit: Some(MAX_PASS_RUNS),
                };
                let due = retention::removable(&host, &wanted)?;
                if !due.is_empty() {
                    host.mark_unswept(now)?;
                    removed += retention::remove_in_batches(&host, &due)?.runs.len();
                }
            }
        }
        if removed > 0 {
            tracing::info!(target: "flowcell::runs", %tenant, runs = removed, "removed old runs");
            let count = removed.to_string();
            self.tenants.note_by(ACTOR, tenant.as_str(), "runs.collect", &count, Outcome::Done)?;
        }
        Ok(retention::sweep_if_due(&host, now)?)
    }

    /// Returns the runs that stay because they have ended a short time ago: groups of runs, each with a time.
    fn spared_groups(&self, host: &Host, now: u64) -> Result<Vec<(RunGroup, u64)>, TenantError> {
        let Some(flows) = &self.flows else {
            return Ok(vec![(RunGroup::default(), now.saturating_sub(MIN_WAITED_AGE_MS))]);
        };
        let mut spared = vec![(RunGroup::default(), now.saturating_sub(MIN_AGE_MS))];
        let library = FlowLibrary::of_host(flows, host);
        let waited = waited_ends(host, &library).map_err(TriggerError::from)?;
        spared.extend(waited.into_iter().map(|group| (group, now.saturating_sub(MIN_WAITED_AGE_MS))));
        Ok(spared)
    }
}
