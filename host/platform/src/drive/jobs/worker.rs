//! The execution of jobs: batch by batch, of one job of each tenant at a time.

use std::{collections::HashSet, sync::Arc, time::Duration};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::ports::{MaybeStoreError, RunRow, StoreError};
use futures_util::{StreamExt, stream};
use tokio::{runtime::Handle, sync::Notify, task::JoinSet, time::Instant};

use super::{
    JobError, Jobs,
    act::{Acted, act, delete, of_start, own_prefix, relabel, select},
    agenda::Agenda,
    record::{Creator, Holder, Item, Job, JobReason, JobState, MAX_SHOWN_ERRORS, RunFailure, StoredJob},
    request::JobAction,
    store::JobStore,
};
use crate::{
    Host,
    host::retention::MAX_BATCH_RUNS,
    operate::{documents::DocumentError, identity::Identify},
};

/// Maximum number of tenants whose jobs a process executes at the same time.
pub const MAX_JOBS_AT_ONCE: usize = 4;
/// Number of runs of a batch that a job acts on at the same time.
const RUNS_AT_ONCE: usize = 16;
/// The time after which a batch begins no further action. The next batch has the rest.
const MAX_BATCH_TIME: Duration = Duration::from_secs(5);
/// The time for which a process has a job, in milliseconds, unless it renews it. On a shared store another process
/// takes the job over after this time.
pub const JOB_LEASE_MS: u64 = 15_000;
/// The pause of a job whose actions are not possible at present, such as above a quota.
pub const LATER_PAUSE: Duration = Duration::from_secs(5);
/// The interval between two searches for jobs of a shared store, since other processes send no signals.
const SHARED_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two searches for jobs of a store that only this process uses.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Is called with a run that a job has cancelled and that no process drives.
type OnEnd = Arc<dyn Fn(&Tenant, RunRow) + Send + Sync>;

/// Executes jobs.
#[derive(Clone)]
pub struct JobWorker {
    host: Host,
    identity: Arc<dyn Identify>,
    /// Tells the supervisor that runs may be ready.
    ready: Option<Arc<Notify>>,
    on_end: Option<OnEnd>,
    /// The name of this worker in the documents of jobs.
    name: Arc<str>,
}

/// The rest after a batch.
enum Rest {
    /// The next batch may begin after this time.
    Pause(Duration),
    /// The job does not go on in this process, unless someone changes it.
    Over,
}

impl JobWorker {
    /// Creates a worker of the jobs in a host's store. `identity` knows whether the creator of a job still has its
    /// rights.
    pub fn new(host: Host, identity: Arc<dyn Identify>) -> JobWorker {
        let name = hex::encode(rand::random::<[u8; 8]>()).into();
        JobWorker { host, identity, ready: None, on_end: None, name }
    }

    /// Sets the signal to the supervisor that runs may be ready.
    pub fn signaling(self, ready: Arc<Notify>) -> JobWorker {
        JobWorker { ready: Some(ready), ..self }
    }

    /// Sets the function that is called with each run that a job has cancelled and that no process drives.
    pub fn reporting(self, on_end: impl Fn(&Tenant, RunRow) + Send + Sync + 'static) -> JobWorker {
        JobWorker { on_end: Some(Arc::new(on_end)), ..self }
    }

    /// Executes the jobs of all tenants, until the caller drops the future.
    pub async fn attend(self) {
        let mut batches: JoinSet<(Tenant, String, Rest)> = JoinSet::new();
        let mut busy: HashSet<Tenant> = HashSet::new();
        let mut agenda = Agenda::new(Instant::now());
        let interval = if self.host.shared().is_some() { SHARED_LOOK_INTERVAL } else { LOOK_INTERVAL };
        loop {
            if agenda.is_read_due(Instant::now()) {
                match self.find_jobs().await {
                    Err(error) => {
                        error.warn("cannot read the jobs of the store");
                        agenda.read_later(Instant::now() + LATER_PAUSE);
                    }
                    Ok(found) => {
                        let now = Instant::now();
                        agenda.read(found, now, now + interval);
                    }
                }
            }
            let now = Instant::now();
            for (tenant, id) in agenda.ready(now, &busy, MAX_JOBS_AT_ONCE - busy.len()) {
                busy.insert(tenant.clone());
                let worker = self.clone();
                batches.spawn(async move {
                    let rest = worker.batch(&tenant, &id).await.unwrap_or_else(|error| {
                        error.warn(format_args!("cannot execute the job `{id}`"));
                        Rest::Pause(LATER_PAUSE)
                    });
                    (tenant, id, rest)
                });
            }
            tokio::select! {
                Some(Ok((tenant, id, rest))) = batches.join_next() => {
                    busy.remove(&tenant);
                    let (now, pause) = (Instant::now(), if let Rest::Pause(pause) = rest { Some(pause) } else { None });
                    agenda.end_batch(&id, now, pause.map(|pause| now + pause));
                }
                () = self.host.job_signals().changed().notified() => agenda.read_again(Instant::now()),
                () = tokio::time::sleep_until(agenda.next(now)) => {}
            }
        }
    }

    /// Lists the jobs that have a next batch.
    async fn find_jobs(&self) -> Result<Vec<(Tenant, String)>, StoreError> {
        let worker = self.clone();
        let found = tokio::task::spawn_blocking(move || {
            let now = worker.host.now();
            let mut live = JobStore::of(&worker.host).all_live()?;
            live.retain(|(_, stored)| {
                stored.job.state != JobState::Paused && !stored.is_held(&worker.host, &worker.name, now)
            });
            Ok::<_, DocumentError>(live.into_iter().map(|(tenant, stored)| (tenant, stored.job.id)).collect())
        });
        Ok(found.await.map_err(|error| StoreError(error.to_string().into()))??)
    }

    /// Executes one job until it has ended or is paused, or until another process executes it. Returns the job.
    pub async fn execute(&self, tenant: &Tenant, id: &str) -> Result<Job, JobError> {
        while let Rest::Pause(pause) = self.batch(tenant, id).await? {
            tokio::time::sleep(pause).await;
        }
        Jobs::of(&self.host.for_tenant(tenant.clone())).show(id)
    }

    /// Executes a batch of a job, on a thread that it may block.
    async fn batch(&self, tenant: &Tenant, id: &str) -> Result<Rest, DocumentError> {
        let (worker, tenant, id, handle) = (self.clone(), tenant.clone(), id.to_owned(), Handle::current());
        let done = tokio::task::spawn_blocking(move || handle.block_on(worker.batch_here(&tenant, &id)));
        done.await.map_err(|error| DocumentError::Store(StoreError(error.to_string().into())))?
    }

    async fn batch_here(&self, tenant: &Tenant, id: &str) -> Result<Rest, DocumentError> {
        let began = Instant::now();
        let Ok(policy) = self.identity.policy(tenant) else { return Ok(Rest::Pause(LATER_PAUSE)) };
        let host = self.host.for_tenant(tenant.clone()).with_policy(Arc::new(policy));
        let store = JobStore::of(&host);
        let Some((mut stored, version)) = store.live(tenant, id)? else { return Ok(Rest::Over) };
        let now = host.now();
        if stored.is_held(&host, &self.name, now) {
            return Ok(Rest::Over);
        }
        if stored.job.state.has_ended() {
            Jobs::of(&host).settle(&stored)?;
            return Ok(Rest::Over);
        }
        if stored.job.state == JobState::Paused {
            return Ok(Rest::Over);
        }
        // Only a job that no process has executed yet may be a repeated one.
        if stored.holder.is_none() && store.remove_repeated(tenant, &stored)? {
            return Ok(Rest::Over);
        }
        let refused = match &stored.creator {
            Creator::Operator => Ok(None),
            _ => self.identity.refusal(&stored.caller(tenant)),
        };
        let Ok(refused) = refused else { return Ok(Rest::Pause(LATER_PAUSE)) };
        if let Some(refusal) = refused {
            return self.end(&host, id, JobState::Stopped, Some(JobReason::new(refusal.code(), refusal)));
        }
        let is_repeated = !stored.batch.is_empty();
        let before = stored.job.matched;
        let is_last = !is_repeated && self.select_batch(&host, &mut stored)?;
        // The selection may take long, so the lease begins after it.
        stored.holder = Some(self.holder(host.now()));
        if !store.put(tenant, &stored, version)? {
            // A caller has changed the job.
            return Ok(Rest::Pause(Duration::ZERO));
        }
        let acted = self.act_on_batch(&host, &stored, is_repeated, began + MAX_BATCH_TIME).await;
        let acted_on = acted.len();
        let rest = self.record(&host, id, acted)?;
        if is_last && acted_on == stored.batch.len() && matches!(rest, Rest::Pause(pause) if pause.is_zero()) {
            return self.end(&host, id, JobState::Done, None);
        }
        Ok(match rest {
            Rest::Pause(pause) if pause.is_zero() => {
                let each = Duration::from_secs(1) / stored.job.request.rate_per_second;
                // Skipped runs count, too, since the store has been read for them.
                let runs = acted_on.max(usize::try_from(stored.job.matched - before).unwrap_or(usize::MAX));
                let due = began + each * u32::try_from(runs).unwrap_or(u32::MAX);
                Rest::Pause(due.saturating_duration_since(Instant::now()))
            }
            rest => rest,
        })
    }

    /// Selects the next batch of a job and moves its cursor. Returns true if no further batch follows.
    fn select_batch(&self, host: &Host, stored: &mut StoredJob) -> Result<bool, DocumentError> {
        let StoredJob { job, cursor, batch, .. } = stored;
        let Some(runs) = host.runs() else { return Ok(true) };
        let left = job.request.max_runs.saturating_sub(job.matched);
        let most = MAX_BATCH_RUNS.min(usize::try_from(left).unwrap_or(MAX_BATCH_RUNS));
        // One more than the batch, which shows whether there is another batch.
        let filter = job.request.filter.of_store(job.created, cursor.clone(), most + 1);
        let mut rows = runs.runs(host.tenant(), &filter)?;
        let more = rows.len() > most;
        rows.truncate(most);
        let own = own_prefix(&job.id);
        for row in &rows {
            match select(host, &job.request, &own, row) {
                Ok(Ok(item)) => batch.push(item),
                Ok(Err(code)) => *job.skipped.entry(code.to_owned()).or_default() += 1,
                // The action finds the same error again, and reports it.
                Err(error) => match of_start(host, &error) {
                    Acted::Failed(reason) => fail(job, row.run_id.clone(), reason),
                    Acted::Skipped(code) => *job.skipped.entry(code.to_owned()).or_default() += 1,
                    _ => return Err(DocumentError::Store(error.to_store_error())),
                },
            }
        }
        job.matched += rows.len() as u64;
        *cursor = rows.last().map(|row| row.run_id.clone()).or(cursor.take());
        job.more = more && job.matched >= job.request.max_runs;
        Ok(!more || job.more)
    }

    /// Acts on the runs of a batch, until `until` at most. Returns the results of the runs that were acted on.
    async fn act_on_batch(
        &self,
        host: &Host,
        stored: &StoredJob,
        is_repeated: bool,
        until: Instant,
    ) -> Vec<(RunId, Acted)> {
        let (request, id) = (&stored.job.request, &*stored.job.id);
        match request.action {
            JobAction::Delete => return delete(host, &stored.batch, is_repeated),
            JobAction::Label => return relabel(host, &stored.batch, &request.params.label_change()),
            _ => {}
        }
        let one = |item: &Item| {
            let item = item.clone();
            async move {
                if Instant::now() >= until {
                    return None;
                }
                let acted = act(host, id, request, &item, is_repeated).await;
                Some((item.run, acted))
            }
        };
        let futures: Vec<_> = stored.batch.iter().map(one).collect();
        let acted: Vec<_> = stream::iter(futures).buffer_unordered(RUNS_AT_ONCE).collect().await;
        let acted: Vec<_> = acted.into_iter().flatten().collect();
        if let Some(ready) = &self.ready {
            ready.notify_one();
        }
        if let (Some(on_end), JobAction::Cancel, Some(runs)) = (&self.on_end, request.action, host.runs()) {
            for (run, _) in acted.iter().filter(|(_, acted)| matches!(acted, Acted::Done)) {
                if let Ok(Some((row, _))) = runs.run(host.tenant(), run)
                    && row.status == "cancelled"
                {
                    on_end(host.tenant(), row);
                }
            }
        }
        acted
    }

    /// Stores the results of a batch. Returns a pause of zero if the job goes on at once.
    fn record(&self, host: &Host, id: &str, acted: Vec<(RunId, Acted)>) -> Result<Rest, DocumentError> {
        let (now, mut stop, mut waits) = (host.now(), None, None);
        let mut is_mine = true;
        let changed = JobStore::of(host).update(host.tenant(), id, |stored| {
            is_mine = stored.holder.as_ref().is_some_and(|holder| *holder.worker == *self.name);
            if !is_mine {
                return false;
            }
            let StoredJob { job, batch, holder, .. } = stored;
            for (run, acted) in &acted {
                // Another process that had the job meanwhile may have stored the result.
                let Some(index) = batch.iter().position(|item| item.run == *run) else { continue };
                match acted {
                    Acted::Done => job.done += 1,
                    Acted::Skipped(code) => *job.skipped.entry((*code).to_owned()).or_default() += 1,
                    Acted::Failed(reason) => fail(job, run.clone(), reason.clone()),
                    Acted::Later(reason) => {
                        waits = Some(reason.clone());
                        continue;
                    }
                    Acted::Stop(reason) => {
                        stop = Some(reason.clone());
                        continue;
                    }
                }
                batch.remove(index);
            }
            job.updated = now;
            if job.state == JobState::Running {
                job.reason.clone_from(&waits);
            }
            // The process that has the job of a caller who has cancelled it completes the end.
            *holder = (job.state != JobState::Paused).then(|| self.holder(now));
            true
        })?;
        let Some(stored) = changed.filter(|_| is_mine) else { return Ok(Rest::Over) };
        if let Some(reason) = stop {
            return self.end(host, id, JobState::Stopped, Some(reason));
        }
        Ok(match stored.job.state {
            JobState::Running if waits.is_some() => Rest::Pause(LATER_PAUSE),
            JobState::Paused => Rest::Over,
            // A cancelled job is settled by the next call.
            JobState::Cancelled => Rest::Pause(Duration::from_nanos(1)),
            _ => Rest::Pause(Duration::ZERO),
        })
    }

    /// Returns this process as the holder of a job from `now` on.
    fn holder(&self, now: u64) -> Holder {
        Holder { worker: self.name.to_string(), until: now + JOB_LEASE_MS }
    }

    /// Ends a job that goes on.
    fn end(&self, host: &Host, id: &str, state: JobState, reason: Option<JobReason>) -> Result<Rest, DocumentError> {
        let (jobs, now) = (Jobs::of(host), host.now());
        let last = jobs.last_entry()?;
        let ended = JobStore::of(host).update(host.tenant(), id, |stored| {
            // A caller may have ended the job meanwhile.
            if !stored.job.state.has_ended() {
                stored.job.state = state;
                stored.job.reason.clone_from(&reason);
                stored.audit_after = Some(last);
            }
            stored.job.updated = now;
            // Another process must not complete the end at the same time, which would note it twice.
            stored.holder = Some(self.holder(now));
            true
        })?;
        ended.map_or(Ok(()), |stored| jobs.settle(&stored))?;
        Ok(Rest::Over)
    }
}

fn fail(job: &mut Job, run: RunId, reason: JobReason) {
    job.failed += 1;
    *job.failures.entry(reason.code.clone()).or_default() += 1;
    if job.errors.len() < MAX_SHOWN_ERRORS {
        job.errors.push(RunFailure { run, reason });
    }
}
