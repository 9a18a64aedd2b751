//! Looks for changes of the runs and jobs of one tenant, once a second, for all listeners of the tenant in this process.
//!
//! The rows of runs in the store tell the changes, so that all processes on a store tell the same ones. A row becomes
//! visible some time after the time that it has. So each look goes back for some seconds, and what was told before is
//! left out.
//!
//! | module | content |
//! |---|---|
//! | [`notice`] | the notices, and how they follow from the rows of runs |

pub(super) mod notice;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowcell_contract::{RunId, Tenant};
use flowcell_platform::{
    Channel, Event, Host,
    jobs::{Job, JobError, Jobs},
};
use flowcell_runtime::ports::{Changed, Filter, MaybeStoreError, RunRow, Runs, StoreError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::notice::{Known, gap, gap_in};
use super::{
    api_error::ApiError,
    broadcast::{
        Broadcasts, Frame,
        ring::{Listener, Ring},
    },
};
use crate::blocking::blocking;

/// The interval between two looks for changes.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The time by which a look goes back before the last one, in milliseconds: rows become visible late, and the clocks of
/// processes differ.
pub(crate) const OVERLAP_MS: u64 = 5_000;
/// The time by which a stream that goes on goes back before its cursor, in milliseconds.
pub(crate) const RESUME_OVERLAP_MS: u64 = 60_000;
/// The maximum number of changed runs of one look, or of a stream that goes on. Beyond this there is a `gap`.
pub(crate) const MAX_CHANGES: usize = 1_000;
/// The maximum number of runs that a feed remembers. A change of a run that it does not remember may be told with a
/// `gate:closed` that closes nothing.
pub(crate) const MAX_KNOWN: usize = 10_000;
/// The maximum number of tenants for which a process looks at the same time.
pub(crate) const MAX_LOOKS: usize = 4;

/// The feeds of all tenants with listeners.
pub(crate) struct Feeds {
    all: Mutex<HashMap<Tenant, Weak<Feed>>>,
    looks: Arc<Semaphore>,
}

impl Default for Feeds {
    fn default() -> Feeds {
        Feeds { all: Mutex::default(), looks: Arc::new(Semaphore::new(MAX_LOOKS)) }
    }
}

/// The notices of one tenant.
pub(super) struct Feed {
    ring: Arc<Ring>,
    /// The time of the last look, in milliseconds since 1970. It is the id of the notices since then.
    at: AtomicU64,
}

impl Feed {
    /// Returns a listener for all notices from now on.
    pub(super) fn listen(&self) -> Listener {
        self.ring.listen()
    }
}

impl Feeds {
    /// Returns the feed of a host's tenant, and starts it if the tenant has none.
    pub(super) fn get_or_start(&self, broadcasts: &Broadcasts, host: &Host) -> Arc<Feed> {
        let mut all = self.all.lock();
        if let Some(feed) = all.get(host.tenant()).and_then(Weak::upgrade) {
            return feed;
        }
        all.retain(|_, feed| feed.strong_count() > 0);
        let ring = broadcasts.new_ring(host.tenant());
        let feed = Arc::new(Feed { ring, at: AtomicU64::new(host.now()) });
        all.insert(host.tenant().clone(), Arc::downgrade(&feed));
        let looks = self.looks.clone();
        tokio::spawn(look_while_heard(Arc::downgrade(&feed), host.clone(), looks));
        feed
    }

    fn find(&self, tenant: &Tenant) -> Option<Arc<Feed>> {
        self.all.lock().get(tenant).and_then(Weak::upgrade)
    }
}

/// Looks for changes until nobody listens.
async fn look_while_heard(feed: Weak<Feed>, host: Host, looks: Arc<Semaphore>) {
    let mut look = Look::new(host.clone(), feed.upgrade().map_or(0, |feed| feed.at.load(Ordering::Acquire)));
    loop {
        // The semaphore is never closed.
        let permit = looks.acquire().await;
        let looked = blocking(move || {
            let frames = look.once();
            (look, frames)
        });
        let frames;
        (look, frames) = match looked.await {
            Ok(looked) => looked,
            Err(broken) => {
                tracing::error!(tenant = %host.tenant(), "a look for changes of runs has failed: {broken}");
                (Look::new(host.clone(), host.now()), vec![gap()])
            }
        };
        drop(permit);
        let Some(feed) = feed.upgrade() else { return };
        frames.into_iter().for_each(|frame| feed.ring.push(frame));
        feed.at.store(look.at, Ordering::Release);
        drop(feed);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The state of the looks of a feed.
struct Look {
    host: Host,
    /// The time from which on the feed knows of all new runs.
    began: u64,
    /// The time of the last look.
    at: u64,
    known: HashMap<RunId, Known>,
    /// The times of the last changes of jobs, by their ids.
    jobs: HashMap<String, u64>,
    /// False while the store does not answer.
    answers: bool,
}

impl Look {
    /// Begins to look for the changes since `at`, in milliseconds since 1970.
    fn new(host: Host, at: u64) -> Look {
        let began = at.saturating_sub(OVERLAP_MS);
        Look { host, began, at, known: HashMap::new(), jobs: HashMap::new(), answers: true }
    }

    /// Looks once, and returns the notices. While the store does not answer, there are none; they follow later.
    fn once(&mut self) -> Vec<Frame> {
        let now = self.host.now();
        let (changes, jobs) = match self.read() {
            Ok(found) => found,
            Err(error) => {
                if self.answers {
                    error.warn("cannot look for changes of runs; the notices follow later");
                }
                self.answers = false;
                return Vec::new();
            }
        };
        self.answers = true;
        let mut frames: Vec<_> = changes.has_gap.then(gap).into_iter().collect();
        for row in changes.rows {
            let after = Known::of(&row);
            let before = self.known.get(&row.run_id);
            if before != Some(&after) {
                frames.extend(notice::of_run(&row, before, self.began, now));
                self.known.insert(row.run_id, after);
            }
        }
        frames.extend(self.changed_jobs(jobs, now));
        self.forget(now.saturating_sub(OVERLAP_MS));
        self.at = now;
        frames
    }

    fn read(&self) -> Result<(Changes, Vec<Job>), StoreError> {
        let changes = match self.host.runs() {
            Some(runs) => self.changes(runs)?,
            // A store in memory has no lists of runs.
            None => Changes::default(),
        };
        let jobs = Jobs::of(&self.host).list().map_err(|error| match error {
            JobError::Document(error) => error.into(),
            error => StoreError::unavailable(error.to_string()),
        });
        Ok((changes, jobs?))
    }

    /// Reads the rows that have changed since the last look, or somewhat before it. If there are too many, reads the
    /// earliest ones since the last look.
    fn changes(&self, runs: &dyn Runs) -> Result<Changes, StoreError> {
        let mut rows = runs.changed(self.host.tenant(), &wanted(self.at.saturating_sub(OVERLAP_MS)))?;
        if rows.len() > MAX_CHANGES {
            rows = runs.changed(self.host.tenant(), &wanted(self.at))?;
        }
        let has_gap = rows.len() > MAX_CHANGES;
        rows.truncate(MAX_CHANGES);
        Ok(Changes { rows, has_gap })
    }

    fn changed_jobs(&mut self, jobs: Vec<Job>, now: u64) -> Vec<Frame> {
        let is_changed = |job: &Job| match self.jobs.get(&job.id) {
            Some(updated) => *updated != job.updated,
            None => job.updated >= self.began,
        };
        let frames = jobs.iter().filter(|job| is_changed(job)).map(|job| notice::of_job(job, now)).collect();
        self.jobs = jobs.into_iter().map(|job| (job.id, job.updated)).collect();
        frames
    }

    /// Forgets ended runs that no later look finds again, and all runs that have not changed since then if there are too many.
    fn forget(&mut self, before: u64) {
        self.known.retain(|_, known| known.updated >= before || !known.has_ended());
        if self.known.len() > MAX_KNOWN {
            self.known.retain(|_, known| known.updated >= before);
        }
    }
}

/// The rows that a look has found.
#[derive(Default)]
struct Changes {
    rows: Vec<RunRow>,
    /// True if there were more rows than one look reads.
    has_gap: bool,
}

fn wanted(since: u64) -> Changed {
    Changed { since, limit: MAX_CHANGES + 1, ..Changed::default() }
}

/// Returns the first notices of a stream: those that a client has missed since `from`, and `ready`. Blocks its thread.
pub(super) fn missed(host: &Host, runs: &dyn Runs, from: Option<u64>) -> Result<Vec<Frame>, ApiError> {
    let now = host.now();
    let Some(from) = from else { return Ok(vec![notice::ready(now)]) };
    let since = from.saturating_sub(RESUME_OVERLAP_MS);
    let rows = runs.changed(host.tenant(), &wanted(since))?;
    let mut frames = Vec::new();
    if rows.len() > MAX_CHANGES {
        frames.push(gap());
    } else {
        frames.extend(rows.iter().flat_map(|row| notice::of_run(row, None, since, from)));
        let jobs = Jobs::of(host).list()?;
        frames.extend(jobs.iter().filter(|job| job.updated >= since).map(|job| notice::of_job(job, from)));
        // The row of an active run does not tell which of its gates have opened and closed.
        let active = Filter { status: Some("active".to_owned()), limit: 1, ..Filter::default() };
        if !runs.runs(host.tenant(), &active)?.is_empty() {
            frames.push(gap_in(&["gates"]));
        }
    }
    frames.push(notice::ready(now));
    Ok(frames)
}

/// Watches the gates of a run that this process drives. A gate beside busy tasks is not in the row of the run.
pub(crate) struct GateWatch {
    feeds: Arc<Feeds>,
    tenant: Tenant,
    run: RunId,
    flow: Arc<str>,
}

impl GateWatch {
    pub(crate) fn new(feeds: Arc<Feeds>, tenant: Tenant, run: RunId, flow: Arc<str>) -> GateWatch {
        GateWatch { feeds, tenant, run, flow }
    }
}

impl Channel for GateWatch {
    fn on_event(&self, event: &Event) {
        // Few events are about gates, and only these look into the table of feeds.
        if let Some(kind) = notice::gate_kind(event)
            && let Some(feed) = self.feeds.find(&self.tenant)
        {
            let id = feed.at.load(Ordering::Acquire);
            feed.ring.push(notice::of_gate(kind, &self.run, &self.flow, event, id));
        }
    }
}
