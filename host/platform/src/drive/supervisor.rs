//! Drives every run that is ready: interrupted, detached, answered and new runs, and runs with a due timer.
//!
//! When a process dies, any of the runs that it was driving may be the cause. A run is a suspect if its process
//! has died repeatedly without progress of the run. The supervisor tries a suspect alone: until the suspect
//! makes progress, or for at most 30 seconds, no other run begins. If the process dies repeatedly while it
//! drives only the suspect, the suspect is parked. A run was resumed in vain if its process died before the
//! resumed run made progress. Runs that were resumed in vain begin a few at a time, so that another death makes
//! only these few suspects.
//!
//! The recovery of a run after a crash, from its journal, is in the driver of the runtime (`driver.rs`, `recover`).
//!
//! A look is a search of the store for runs that are ready and not driven. A held run is one that a look has found, and
//! that has a permit but has not begun.
//!
//! | module | contents |
//! |---|---|
//! | [`admission`] | the admission of runs |
//! | driven | one run, until its driver ends |
//! | observer | the owner of a supervisor |
//! | outage | the time in which a shared store cannot be read |
//! | renewed | runs that are parked for a quota which has renewed early |
//! | spread | how many of the runs resumed in vain begin in a second |
//! | trial | the trial of a suspect run |

pub mod admission;
mod driven;
mod observer;
mod outage;
pub mod renewed;
mod spread;
#[cfg(test)]
mod tests;
mod trial;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{FairSemaphore, Permit};
use flowcell_runtime::{
    FlowRunner, Hub, OpenError, RunOptions, RunResult, RunStatus,
    ports::{MaybeStoreError, StoreError},
    shared::{Offer, SharedRuns},
};
use tokio::{
    sync::{Notify, mpsc},
    task::{JoinError, JoinSet},
};

pub(crate) use self::admission::FirstEvent;
pub use self::{
    admission::{Admission, AdmissionQueue, AdmitError, Overflow},
    observer::RunObserver,
};
use self::{
    admission::{Admitted, Arrival, MAX_ARRIVALS},
    outage::Outage,
    renewed::Renewed,
    spread::Spread,
    trial::Trial,
};
use crate::{Host, StartError};

/// Maximum number of runs that are driven at the same time. The permits are shared fairly between tenants.
pub const MAX_DRIVEN: usize = 128;
/// Maximum number of admitted runs that wait for their turn. The permits are shared fairly between tenants.
pub const MAX_WAITING: usize = 2_048;
/// A driven run that waits only for timers is parked, unless one of its timers is due within this time.
pub(crate) const MAX_TIMER_WAIT: Duration = Duration::from_secs(1);
/// Interval between searches of a shared store for ready runs, since other processes send no signals.
const SHARED_LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum interval between searches for ready runs in a store that only this process uses.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Interval between checks whether a shared store can be read again.
const OUTAGE_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// If a run of a shared store cannot be opened, it is tried again after this time, or when an outage has ended.
const REOPEN_DELAY: Duration = Duration::from_secs(60);

/// A run of a tenant.
type Key = (Tenant, RunId);

/// The receiving end of an admission queue. A supervisor empties it.
pub struct AdmissionReceiver {
    admission: AdmissionQueue,
    queue: mpsc::Receiver<Arrival>,
}

impl AdmissionReceiver {
    /// Opens an empty queue.
    pub fn open() -> AdmissionReceiver {
        let (sender, queue) = mpsc::channel(MAX_ARRIVALS);
        AdmissionReceiver { admission: AdmissionQueue::new(sender, Arc::default()), queue }
    }

    /// Returns the queue.
    pub fn admission(&self) -> AdmissionQueue {
        self.admission.clone()
    }
}

/// Drives runs while its owner calls [`Supervisor::refresh`] and [`Supervisor::wait`] in turn.
pub struct Supervisor {
    host: Host,
    observer: Arc<dyn RunObserver>,
    /// Permits for driven and held runs.
    permits: FairSemaphore,
    driving: JoinSet<(Key, Option<RunResult>)>,
    hubs: HashMap<Key, Hub>,
    /// Runs that are driven or held, and runs that could not be opened. A search for ready runs skips them.
    begun: HashSet<Key>,
    /// Runs that a search has found and that have a permit, in the order in which they begin.
    held: VecDeque<Held>,
    /// The trial of a suspect run. No other run begins until the trial is over.
    trial: Option<Trial>,
    /// The run whose trial began while no other run was driven. `None` after another run has begun.
    begun_alone: Option<Key>,
    /// Limits how many of the runs resumed in vain begin in a second, see [`spread`].
    spread: Spread,
    moved: Arc<Notify>,
    arrivals: mpsc::Receiver<Arrival>,
    admission: AdmissionQueue,
    /// True if runs may have become ready since the last search for ready runs.
    stale: bool,
    /// True if the last search found more ready runs than there were permits.
    found_too_many: bool,
    /// The time at which the store is searched for ready runs even without a signal, in milliseconds since 1970 by the
    /// host's timers.
    next_look: u64,
    outage: Outage,
    /// The runs of a shared store that could not be opened, each with the time at which it is tried again.
    unopened: Vec<(u64, Key)>,
    renewed: Renewed,
}

/// A ready run that a search has found. `offer` is this process's claim on the run if the store is shared, and
/// otherwise `None`.
struct Found {
    key: Key,
    offer: Option<Offer>,
    /// True if the run was found because it is parked for a quota. It does not begin if it no longer is.
    is_paused: bool,
}

impl Found {
    fn new(tenant: &Tenant, run: RunId, offer: Option<Offer>) -> Found {
        Found { key: (tenant.clone(), run), offer, is_paused: false }
    }
}

/// A run that has a permit and has not begun.
struct Held {
    key: Key,
    permit: Permit,
    is_paused: bool,
    /// This process's claim on the run, if the store is shared. Dropping it releases the claim.
    _offer: Option<Offer>,
}

impl Supervisor {
    /// Creates a supervisor of the runs in a host's store.
    pub fn new(host: Host, observer: Arc<dyn RunObserver>) -> Supervisor {
        Supervisor::with_arrivals(host, observer, AdmissionReceiver::open())
    }

    /// Creates a supervisor of the runs in a host's store and the runs in an admission queue.
    pub fn with_arrivals(host: Host, observer: Arc<dyn RunObserver>, arrivals: AdmissionReceiver) -> Supervisor {
        let AdmissionReceiver { admission, queue } = arrivals;
        Supervisor {
            host,
            observer,
            permits: FairSemaphore::new(MAX_DRIVEN as u64),
            driving: JoinSet::new(),
            hubs: HashMap::new(),
            begun: HashSet::new(),
            held: VecDeque::new(),
            trial: None,
            begun_alone: None,
            spread: Spread::default(),
            moved: admission.ready_signal().clone(),
            admission,
            arrivals: queue,
            stale: true,
            found_too_many: false,
            next_look: 0,
            outage: Outage::default(),
            unopened: Vec::new(),
            renewed: Renewed::default(),
        }
    }

    /// Returns the queue for new runs.
    pub fn admission(&self) -> AdmissionQueue {
        self.admission.clone()
    }

    /// Returns whether no run is driven or held.
    pub fn is_idle(&self) -> bool {
        self.driving.is_empty() && self.held.is_empty()
    }

    /// Returns whether runs may have become ready since the last search for ready runs, so that [`Supervisor::refresh`]
    /// has work to do.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Searches the store for ready runs and begins them, if anything has happened since the last call.
    ///
    /// If a shared store cannot be read, such as while its database restarts, the method succeeds, and the next search
    /// follows after [`OUTAGE_LOOK_INTERVAL`]. Until the store can be read again, [`Supervisor::unreadable`] returns
    /// the error. If any other store cannot be read, the method returns the error.
    pub fn refresh(&mut self) -> Result<(), StoreError> {
        if !self.stale {
            return Ok(());
        }
        let pause = match self.look_and_begin() {
            Err(error) if self.host.shared().is_some() => {
                self.outage.record(error);
                OUTAGE_LOOK_INTERVAL
            }
            looked => {
                let pause = looked?;
                // A failure to open runs may have been the beginning of an outage.
                match self.host.shared().and_then(SharedRuns::outage) {
                    Some(error) => {
                        self.outage.record(error);
                        pause.min(OUTAGE_LOOK_INTERVAL)
                    }
                    None if self.outage.end() => {
                        self.unopened.iter_mut().for_each(|(again, _)| *again = 0);
                        Duration::ZERO
                    }
                    None => pause,
                }
            }
        };
        self.next_look = self.host.now() + pause.as_millis() as u64;
        self.stale = false;
        Ok(())
    }

    /// Returns the error of a shared store that cannot be read at present.
    pub fn unreadable(&self) -> Option<&StoreError> {
        self.outage.error.as_ref()
    }

    /// Searches the store for ready runs and begins them. Returns the time until the next search.
    fn look_and_begin(&mut self) -> Result<Duration, StoreError> {
        self.look()?;
        self.begin();
        self.max_sleep()
    }

    /// Waits for the end of a driven run, a new run, a signal or the time of the next search, and handles it. The
    /// future is cancellation-safe.
    pub async fn wait(&mut self) {
        tokio::select! {
            Some(result) = self.driving.join_next() => self.handle_end(result),
            Some(arrival) = self.arrivals.recv() => self.handle_arrival(arrival),
            () = self.moved.notified() => self.stale = true,
            () = self.host.wait_until(self.next_look) => self.stale = true,
        }
    }

    /// Stops driving in good order: it parks every run and refuses new ones.
    pub async fn stop(&mut self) {
        self.arrivals.close();
        // Dropping the arrivals tells their callers that the supervisor has stopped.
        while self.arrivals.try_recv().is_ok() {}
        self.held.clear();
        let hubs = std::mem::take(&mut self.hubs);
        hubs.into_values().for_each(|hub| _ = tokio::spawn(async move { hub.stop().await }));
        while let Some(result) = self.driving.join_next().await {
            self.handle_end(result);
        }
        if let Some(store) = self.host.shared() {
            store.retire();
        }
    }

    /// Searches the store for ready runs that are not driven yet, and takes a permit for each of them, as long as there
    /// are permits.
    fn look(&mut self) -> Result<(), StoreError> {
        let now = self.host.now();
        for (_, key) in self.unopened.extract_if(.., |(again, _)| *again <= now) {
            self.begun.remove(&key);
            self.renewed.start_over(&key.0);
        }
        let (tenants, mut found) = (self.observer.tenants(), VecDeque::new());
        for tenant in &tenants {
            let mut runs = self.find_ready_runs(tenant)?;
            let free = usize::try_from(self.permits.available(tenant)).unwrap_or(MAX_DRIVEN).saturating_sub(runs.len());
            let paused = self.renewed.find(&self.host, tenant, free)?;
            runs.extend(paused.into_iter().map(|run| Found { is_paused: true, ..Found::new(tenant, run, None) }));
            found.push_back(runs);
        }
        // The next paused runs begin as soon as others have ended.
        self.found_too_many = self.renewed.looked(&tenants, now);
        // Takes one run of each tenant in turn.
        while let Some(mut runs) = found.pop_front() {
            let Some(run) = runs.pop_front() else { continue };
            self.hold(run);
            found.push_back(runs);
        }
        Ok(())
    }

    fn find_ready_runs(&self, tenant: &Tenant) -> Result<VecDeque<Found>, StoreError> {
        if let Some(store) = self.host.shared() {
            let free = usize::try_from(self.permits.available(tenant)).unwrap_or(MAX_DRIVEN);
            let offers = store.work(tenant, self.host.now(), free)?;
            let found = |offer: Offer| Found::new(tenant, offer.run.clone(), Some(offer));
            return Ok(offers.into_iter().map(found).collect());
        }
        let Some(lists) = self.host.runs() else { return Ok(VecDeque::new()) };
        let runs = lists.runnable(tenant, self.host.now(), MAX_DRIVEN + self.begun.len())?;
        Ok(runs.into_iter().map(|run| Found::new(tenant, run, None)).collect())
    }

    fn hold(&mut self, Found { key, offer, is_paused }: Found) {
        if self.begun.contains(&key) {
            return;
        }
        match self.permits.try_take(&key.0, 1) {
            Some(permit) => {
                self.begun.insert(key.clone());
                self.held.push_back(Held { key, permit, is_paused, _offer: offer });
            }
            None => {
                self.found_too_many = true;
                if is_paused {
                    self.renewed.put_back(key);
                }
            }
        }
    }

    /// Begins the held runs. If any of them is a suspect, begins only one suspect. Otherwise begins all of them, except
    /// those that were resumed in vain and that the pace of [`Spread`] delays. Does nothing while a trial lasts.
    fn begin(&mut self) {
        if self.trial.as_ref().is_some_and(|trial| !trial.is_over()) {
            return;
        }
        self.trial = None;
        let mut ready = Vec::new();
        while let Some(held) = self.held.pop_front() {
            let unopened = self.unopened.len();
            match self.open_runner(&held.key) {
                // Another process has resumed it meanwhile.
                Some(runner) if held.is_paused && runner.paused_by().is_none() => _ = self.begun.remove(&held.key),
                Some(runner) => ready.push((held, runner)),
                // If the database cannot be reached, opening each further run would block. The next look finds these
                // runs again.
                None if self.unopened.len() > unopened => {
                    self.held.drain(..).for_each(|held| _ = self.begun.remove(&held.key));
                }
                None if held.is_paused => self.renewed.put_back(held.key),
                None => {}
            }
        }
        let suspects = ready.iter().enumerate().filter(|(_, (_, runner))| runner.is_suspect());
        let Some((suspect, _)) = suspects.min_by_key(|(_, (_, runner))| runner.suspect_order()) else {
            for (held, runner) in ready {
                match !runner.was_resumed_in_vain() || self.spread.try_take() {
                    true => self.drive(held.key, held.permit, runner),
                    false => self.held.push_back(held),
                }
            }
            return;
        };
        let (held, mut runner) = ready.remove(suspect);
        // The other held runs begin when this run has made progress, or when its trial is over.
        self.held.extend(ready.into_iter().map(|(held, _)| held));
        // A run that is driven already may also be the cause of the crashes.
        let alone = self.driving.is_empty();
        if alone {
            runner.try_alone();
        }
        self.trial = Some(Trial::begin(held.key.clone(), &mut runner, &self.moved));
        let key = held.key.clone();
        self.drive(held.key, held.permit, runner);
        self.begun_alone = alone.then_some(key);
    }

    fn open_runner(&mut self, key: &Key) -> Option<FlowRunner> {
        self.admission.release(key);
        let options = RunOptions { patience: Some(MAX_TIMER_WAIT), without_events: true, ..RunOptions::default() };
        let Some(host) = self.observer.host(&self.host, &key.0) else {
            // A later look finds the run again.
            self.begun.remove(key);
            return None;
        };
        match host.resume(&key.1, options) {
            Ok(runner) => Some(runner),
            // Another caller has the run open at this moment. It is looked at again.
            Err(StartError::Open(OpenError::Driven(_))) => {
                self.begun.remove(key);
                self.moved.notify_one();
                None
            }
            Err(error) => {
                // The database cannot be reached, or the run is damaged.
                if self.host.shared().is_some() && matches!(error, StartError::Open(OpenError::Store(_))) {
                    let again = self.host.now() + REOPEN_DELAY.as_millis() as u64;
                    self.unopened.push((again, key.clone()));
                }
                // The store itself logs its outages.
                if !error.is_from_outage() {
                    self.observer.refused(error);
                }
                None
            }
        }
    }

    fn drive(&mut self, key: Key, permit: Permit, runner: FlowRunner) {
        let hub = runner.hub();
        let Some(running) = self.observer.attend(&key.0, runner) else { return };
        // From now on, either run may be the cause of a crash.
        if let Some(hub) = self.begun_alone.take().and_then(|alone| self.hubs.get(&alone)).cloned() {
            tokio::spawn(async move { hub.accompany().await });
        }
        hub.start_session();
        self.hubs.insert(key.clone(), hub);
        self.driving.spawn(driven::drive(key, permit, running));
    }

    /// Handles a request to admit a run: the run begins now, waits until other runs have ended, or finds no permit to
    /// wait.
    fn handle_arrival(&mut self, arrival: Arrival) {
        let Arrival { tenant, runner, answer } = arrival;
        let key = (tenant, runner.run_id().clone());
        let first = self.trial.is_none() && !self.admission.has_waiting_runs_of(&key.0);
        let admitted = if self.begun.contains(&key) {
            Admitted::Driven
        } else if let Some(permit) = first.then(|| self.permits.try_take(&key.0, 1)).flatten() {
            self.begun.insert(key.clone());
            self.drive(key, permit, runner);
            Admitted::Begun
        } else if self.admission.enqueue(key) {
            Admitted::Waits(Box::new(runner))
        } else {
            Admitted::Full(Box::new(runner))
        };
        // The caller may have gone.
        let _ = answer.send(admitted);
    }

    /// Returns the maximum time to sleep before the next search for ready runs. During a trial, this is the rest of the
    /// trial. Otherwise, if runs are held, it is the time until the next of them may begin. Otherwise it is the time
    /// until a timer is due, but at most the interval between searches.
    fn max_sleep(&self) -> Result<Duration, StoreError> {
        if let Some(trial) = &self.trial {
            return Ok(trial.remaining_time());
        }
        if !self.held.is_empty() {
            return Ok(self.spread.time_to_next_step());
        }
        // A run without a due timer becomes ready only by an action, such as an answer. Other processes send no
        // signal about their actions, so the supervisor of a shared store must look often.
        let longest = if self.host.shared().is_some() { SHARED_LOOK_INTERVAL } else { MAX_LOOK_INTERVAL };
        let longest = self.renewed.max_sleep(&self.host).map_or(longest, |quotas| longest.min(quotas));
        let Some(lists) = self.host.runs() else { return Ok(longest) };
        let mut due = None;
        for tenant in self.observer.tenants() {
            due = due.into_iter().chain(lists.next_due(&tenant)?).min();
        }
        Ok(due.map_or(longest, |due| self.time_until(due).min(longest)))
    }

    fn time_until(&self, due: u64) -> Duration {
        // The minimum prevents a busy loop over a due run that cannot be driven.
        Duration::from_millis(due.saturating_sub(self.host.now()).max(100))
    }

    fn handle_end(&mut self, result: Result<(Key, Option<RunResult>), JoinError>) {
        let Ok((key, result)) = result else { return };
        self.hubs.remove(&key);
        if self.trial.as_ref().is_some_and(|trial| trial.is_of(&key)) {
            self.trial = None;
            self.stale = true;
        }
        // A run whose driver has panicked stays in `begun`, so it does not panic again.
        let Some(result) = result else { return };
        let over = matches!(result.status, RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled);
        self.begun.remove(&key);
        // The end of a run makes no other run ready. But a run that waits for a permit may begin now.
        self.stale |= !over || self.found_too_many || !self.held.is_empty() || self.admission.has_waiting_runs();
        self.renewed.note_end(&result);
        self.observer.ended(&result);
    }
}
