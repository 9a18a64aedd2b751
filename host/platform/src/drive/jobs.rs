//! Jobs: one action on all runs that a filter selects, in the background.
//!
//! A job goes through its runs by a cursor, from the latest one that began at or before the job's creation to the
//! earliest. It selects a batch of runs, stores the batch with the cursor, acts on each run, and then stores the
//! results.
//!
//! **No run is left out and none gets the action twice.** A batch is stored before the job acts on its runs. If the
//! process dies, the next process acts on the same runs again, and each action has no effect the second time. A run
//! that is cancelled or deleted stays so. The id of a repeating run follows from the job and the repeated run. An
//! answer names the question that was open when the batch was stored, so it does not answer a later one.
//!
//! **One process executes a job.** The process stores its name and a time in the document of the job, and renews them
//! with each batch. On a shared store another process takes the job over after that time. If the first process was
//! only suspended, it may then act again on the rest of its batch, which has no effect.
//!
//! **A job has the rights of its creator.** Before each batch it checks that the token of the creator is still valid
//! and the tenant enabled. Otherwise it stops, and names the reason.
//!
//! | module | contents |
//! |---|---|
//! | [`request`] | requests for jobs |
//! | [`record`] | a job with its progress |
//! | `store` | the documents of jobs |
//! | [`operation`] | the requests of operators |
//! | `act` | the actions on runs |
//! | [`checks`] | the runs that cannot move or be repeated in another version, for previews |
//! | `agenda` | the times of the next batches |
//! | [`worker`] | the execution of jobs |

mod act;
mod agenda;
pub mod checks;
pub mod operation;
pub mod record;
pub mod request;
mod store;
#[cfg(test)]
mod tests;
pub mod worker;

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    limits::MAX_COUNTED,
    ports::{Counts, Group, Runs, StoreError},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::act::RETRY_PREFIX;
pub use self::{
    checks::{CHECKED_RUNS, RunChecks},
    record::{Creator, Job, JobReason, JobState},
    request::{
        DEFAULT_MAX_RUNS, DEFAULT_RUNS_PER_SECOND, JobAction, JobFilter, JobParams, JobRequest, MAX_JOB_REQUEST_BYTES,
        MAX_JOB_RUNS, MAX_RUNS_PER_SECOND,
    },
};
use self::{record::StoredJob, store::JobStore};
use crate::{
    Host,
    operate::{
        audit::{self, AUDIT, Act, AuditEntry, Outcome},
        documents::{DocumentError, Documents, read},
        identity::Scopes,
    },
};

/// Maximum number of jobs of a tenant that have not ended.
pub const MAX_LIVE_JOBS: usize = 8;
/// The number of runs that a preview names.
pub const PREVIEWED_RUNS: usize = 20;
/// Number of entries of an audit log that are read at a time.
const AUDIT_PAGE: usize = 500;

/// An error of a request for a job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The request is not valid.
    #[error("{0}")]
    Request(String),
    /// The request is too large.
    #[error("a request for a job may have at most {} KiB of JSON text", MAX_JOB_REQUEST_BYTES >> 10)]
    TooLarge,
    /// The job does not exist.
    #[error("the job `{0}` does not exist; `flowcell jobs list` and `GET /v1/jobs` list the jobs")]
    Unknown(String),
    /// A job with the key of the request exists, and another request has created it.
    #[error("the job `{0}` has this `Idempotency-Key`, and another request has created it; use a new key")]
    OtherRequest(String),
    /// The job has ended.
    #[error("the job `{0}` has ended, so it cannot be paused, resumed or cancelled")]
    Ended(String),
    /// The tenant has too many jobs.
    #[error("the tenant has {MAX_LIVE_JOBS} jobs that have not ended, which is the limit; wait for one, or cancel one")]
    TooMany,
    /// The host has no lists of runs.
    #[error("a store in memory has no jobs")]
    NoStore,
    /// A document of a job is damaged, or the store does not answer.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> JobError {
        JobError::Document(error.into())
    }
}

impl JobError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            JobError::Request(_) | JobError::NoStore => "bad_request",
            JobError::TooLarge => "too_large",
            JobError::Unknown(_) => "job_not_found",
            JobError::OtherRequest(_) => "idempotency_conflict",
            JobError::Ended(_) => "job_ended",
            JobError::TooMany => "too_many_jobs",
            JobError::Document(DocumentError::Damaged(..)) => "damaged",
            JobError::Document(DocumentError::Changed(_)) => "conflict",
            JobError::Document(DocumentError::Store(_)) => "store_unavailable",
        }
    }
}

/// The runs that a job would select.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The number of runs. At most 10,000 are counted.
    pub runs: u64,
    /// True if more than 10,000 runs match.
    pub more: bool,
    /// The numbers of runs by status.
    pub by_status: std::collections::BTreeMap<String, u64>,
    /// The ids of the first runs, at most [`PREVIEWED_RUNS`].
    pub first: Vec<RunId>,
    /// For `migrate`: the runs that would not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<RunChecks>,
    /// For `retry` with `flowVersion`: the runs that would not be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RunChecks>,
}

/// A request to steer a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobCommand {
    /// Pauses the job. It acts on the runs of its present batch first.
    Pause,
    /// Resumes a paused job.
    Resume,
    /// Cancels the job. Runs that it has acted on stay as they are.
    Cancel,
}

impl JobCommand {
    /// Returns the name of the command in audit entries.
    pub fn action(self) -> &'static str {
        match self {
            JobCommand::Pause => "job.pause",
            JobCommand::Resume => "job.resume",
            JobCommand::Cancel => "job.cancel",
        }
    }
}

/// The jobs of the tenant of a host.
pub struct Jobs<'a> {
    host: &'a Host,
    store: JobStore<'a>,
}

impl Jobs<'_> {
    /// Returns the jobs of the tenant of a host.
    pub fn of(host: &Host) -> Jobs<'_> {
        Jobs { host, store: JobStore::of(host) }
    }

    /// Counts the jobs of the tenant.
    pub(crate) fn number(&self) -> Result<u64, DocumentError> {
        Ok(self.store.all_of(self.tenant())?.len() as u64)
    }

    /// Removes all jobs of the tenant, which was removed.
    pub(crate) fn remove_all(&self) -> Result<(), DocumentError> {
        self.store.remove_all(self.tenant())
    }

    fn tenant(&self) -> &Tenant {
        self.host.tenant()
    }

    fn runs(&self) -> Result<&dyn Runs, JobError> {
        self.host.runs().ok_or(JobError::NoStore)
    }

    /// Checks a request, and returns the runs that its job would select. Changes nothing. For `migrate`, and
    /// for `retry` in another version, it also returns which of the first runs would not move or be repeated, and why.
    pub fn preview(&self, request: &JobRequest) -> Result<Preview, JobError> {
        let counts = self.count(request)?;
        let limit = if request.changes_version() { CHECKED_RUNS.max(PREVIEWED_RUNS) } else { PREVIEWED_RUNS };
        let rows = self.runs()?.runs(self.tenant(), &request.filter.of_store(self.host.now(), None, limit))?;
        let shown = |status: Option<String>| match status.as_deref() {
            Some("active") | None => "running".to_owned(),
            Some(other) => other.to_owned(),
        };
        let runs = sum(&counts);
        let checks = request.changes_version().then(|| RunChecks::of(self.host, request, &rows, runs));
        let (moves, retries) = match request.action {
            JobAction::Retry => (None, checks),
            _ => (checks, None),
        };
        Ok(Preview {
            runs,
            more: counts.more,
            moves,
            retries,
            by_status: counts.values.into_iter().map(|(status, runs)| (shown(status), runs)).collect(),
            first: rows.into_iter().map(|row| row.run_id).take(PREVIEWED_RUNS).collect(),
        })
    }

    /// Checks a request, and counts the runs that its job would select, by their statuses.
    fn count(&self, request: &JobRequest) -> Result<Counts, JobError> {
        if request.is_too_large() {
            return Err(JobError::TooLarge);
        }
        request.check().map_err(JobError::Request)?;
        let filter = request.filter.of_store(self.host.now(), None, PREVIEWED_RUNS);
        // A preview leaves no run of the job out.
        Ok(self.runs()?.count(self.tenant(), &filter, &Group::Status, usize::MAX)?)
    }

    /// Creates a job with the rights of its creator, and writes it to the audit log. Returns when the job is on stable
    /// storage. A worker of any process on the store then executes it.
    pub fn create(&self, request: JobRequest, creator: &Creator, scopes: Scopes) -> Result<Job, JobError> {
        self.create_once(None, request, creator, scopes)
    }

    /// Creates a job as [`Jobs::create`] does. If a listed job has the idempotency `key`, returns that job if the same
    /// request has created it, and [`JobError::OtherRequest`] if another one has.
    pub fn create_once(
        &self,
        key: Option<&[u8]>,
        request: JobRequest,
        creator: &Creator,
        scopes: Scopes,
    ) -> Result<Job, JobError> {
        let key = key.map(|key| hex::encode(&Sha256::digest(key)[..16]));
        let _creating = self.host.job_signals().lock_creation();
        let mut jobs = self.store.all_of(self.tenant())?;
        if let Some(index) = jobs.iter().position(|stored| key.is_some() && stored.key == key) {
            return of_request(jobs.swap_remove(index).job, &request);
        }
        let counts = self.count(&request)?;
        if jobs.iter().filter(|stored| !stored.job.state.has_ended()).count() >= MAX_LIVE_JOBS {
            return Err(JobError::TooMany);
        }
        let created = self.host.now();
        // Ids are in the order of their creation.
        let mut id = format!("{created:012x}{}", hex::encode(rand::random::<[u8; 6]>()));
        if let Some(digest) = &key {
            id = self.store.claim_key(self.tenant(), digest, &id)?;
        }
        let created_by = match creator {
            Creator::Local => "local",
            other => other.actor().unwrap_or_default(),
        };
        let job = Job {
            id,
            created_by: created_by.to_owned(),
            created,
            updated: created,
            state: JobState::Running,
            reason: None,
            expected: sum(&counts),
            expected_more: counts.more,
            matched: 0,
            done: 0,
            skipped: Default::default(),
            failed: 0,
            failures: Default::default(),
            errors: Vec::new(),
            more: false,
            request,
        };
        let named = scopes.names();
        let stored = StoredJob {
            job,
            creator: creator.clone(),
            scopes: named,
            key,
            cursor: None,
            batch: Vec::new(),
            holder: None,
            audit_after: None,
        };
        // The entry comes first, so that no job acts without one.
        self.note(creator, "job.create", format!("{} {}", stored.job.id, stored.job.request.audit_text()))?;
        let job = self.write_new(stored)?;
        self.host.job_signals().changed().notify_one();
        Ok(job)
    }

    /// Writes a new job. If another process has written the job of the same idempotency key meanwhile, returns that one
    /// if the same request has created it.
    fn write_new(&self, stored: StoredJob) -> Result<Job, JobError> {
        let is_written = self.store.put(self.tenant(), &stored, 0)?;
        if is_written && !self.store.remove_repeated(self.tenant(), &stored)? {
            return Ok(stored.job);
        }
        match self.show(&stored.job.id) {
            Ok(known) => of_request(known, &stored.job.request),
            Err(JobError::Unknown(id)) => Err(DocumentError::Changed(id).into()),
            Err(error) => Err(error),
        }
    }

    /// Lists the jobs of the tenant, the latest first.
    pub fn list(&self) -> Result<Vec<Job>, JobError> {
        let mut jobs: Vec<_> = self.store.all_of(self.tenant())?.into_iter().map(|stored| stored.job).collect();
        jobs.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        Ok(jobs)
    }

    /// Returns a job of the tenant.
    pub fn show(&self, id: &str) -> Result<Job, JobError> {
        let unknown = || JobError::Unknown(id.to_owned());
        // Another text is no id. A part of a key must not select the job of another tenant.
        if id.len() != 24 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        // A job moves from the live ones to the ended ones, so this order finds it.
        if let Some((live, _)) = self.store.live(self.tenant(), id)? {
            return Ok(live.job);
        }
        Ok(self.store.ended(self.tenant(), id)?.ok_or_else(unknown)?.job)
    }

    /// Pauses, resumes or cancels a job. `actor` is the caller in the audit log. Returns the job as it is then.
    pub fn steer(&self, id: &str, command: JobCommand, actor: &Creator) -> Result<Job, JobError> {
        if self.show(id)?.state.has_ended() {
            return Err(JobError::Ended(id.to_owned()));
        }
        let (mut had_ended, mut is_held) = (false, false);
        let now = self.host.now();
        let last = self.last_entry()?;
        let changed = self.store.update(self.tenant(), id, |stored| {
            had_ended = stored.job.state.has_ended();
            // A worker that has the job stores the results of its batch, and then completes the end.
            is_held = stored.holder.as_ref().is_some_and(|holder| now < holder.until);
            let state = match command {
                JobCommand::Pause => JobState::Paused,
                JobCommand::Resume => JobState::Running,
                JobCommand::Cancel => JobState::Cancelled,
            };
            if had_ended || stored.job.state == state {
                return false;
            }
            stored.job.state = state;
            stored.job.reason = None;
            stored.job.updated = now;
            stored.audit_after = state.has_ended().then_some(last);
            true
        })?;
        let Some(stored) = changed.filter(|_| !had_ended) else { return Err(JobError::Ended(id.to_owned())) };
        self.note(actor, command.action(), id.to_owned())?;
        if stored.job.state.has_ended() && !is_held {
            self.settle(&stored)?;
        }
        self.host.job_signals().changed().notify_one();
        Ok(stored.job)
    }

    /// Completes the end of a job: writes its amounts to the audit log, once, and moves it to the ended jobs.
    fn settle(&self, stored: &StoredJob) -> Result<(), DocumentError> {
        let amounts = stored.job.amounts();
        if let Some(after) = stored.audit_after
            && !self.is_noted_after(after, &stored.job.id)?
        {
            self.note(&stored.creator, "job.end", amounts)?;
        }
        self.store.move_to_ended(self.tenant(), stored)
    }

    fn documents(&self) -> Documents<'_> {
        Documents { store: self.host.documents(), tenant: self.tenant() }
    }

    /// Returns the number of the last audit entry of the tenant, or 0.
    fn last_entry(&self) -> Result<u64, DocumentError> {
        Ok(self.documents().last::<AuditEntry>(AUDIT)?.map_or(0, |last| last.seq))
    }

    /// Returns whether an entry after the one with the number `after` has the amounts of a job.
    fn is_noted_after(&self, mut after: u64, id: &str) -> Result<bool, DocumentError> {
        loop {
            let page = self.host.documents().list(self.tenant(), AUDIT, &audit::key(after), AUDIT_PAGE)?;
            let Some(last) = page.last() else { return Ok(false) };
            after = read::<AuditEntry>(last)?.seq;
            for entry in &page {
                let entry: AuditEntry = read(entry)?;
                if entry.action == "job.end" && entry.subject.starts_with(id) {
                    return Ok(true);
                }
            }
        }
    }

    /// Writes an entry to the audit log of the tenant, unless the actor is not logged.
    fn note(&self, actor: &Creator, action: &str, subject: String) -> Result<(), DocumentError> {
        let Some(actor) = actor.actor() else { return Ok(()) };
        let act = Act { actor: actor.to_owned(), action: action.to_owned(), subject, outcome: Outcome::Done };
        audit::append(self.host.documents(), self.tenant(), self.host.now(), &act)
    }
}

/// Returns a job if the request has created it.
fn of_request(job: Job, request: &JobRequest) -> Result<Job, JobError> {
    if job.request == *request { Ok(job) } else { Err(JobError::OtherRequest(job.id)) }
}

fn sum(counts: &Counts) -> u64 {
    counts.values.iter().map(|(_, runs)| runs).sum()
}

const _: () = assert!(MAX_COUNTED == 10_000, "the documentation of jobs names the limit");
