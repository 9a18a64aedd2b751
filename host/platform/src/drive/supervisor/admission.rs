//! Admits runs to a supervisor. A caller opens the runner of a new run, and puts it into the admission queue.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{FairSemaphore, Permit};
use flowcell_runtime::{Channel, Event, FlowRunner, OpenError, RunResult, RunStatus};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Key, MAX_WAITING};

/// Maximum number of requests in the queue. Further callers of [`AdmissionQueue::admit`] wait.
pub(super) const MAX_ARRIVALS: usize = 256;

/// A request to admit a run.
pub(super) struct Arrival {
    pub(super) tenant: Tenant,
    pub(super) runner: FlowRunner,
    pub(super) answer: oneshot::Sender<Admitted>,
}

/// The supervisor's answer to a request to admit a run.
pub(super) enum Admitted {
    /// The run has begun.
    Begun,
    /// The run is already driven.
    Driven,
    /// The run has a permit to wait, and begins after other runs have ended.
    Waits(Box<FlowRunner>),
    /// Too many runs wait already.
    Full(Box<FlowRunner>),
}

/// The state of an admitted run. The run is on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The run has begun with the caller's runner.
    Begun,
    /// The run begins after others have ended, or is already driven.
    Waits,
}

/// The handling of a run when too many others wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The run is refused.
    Refuse,
    /// The run is stored, and begins when the supervisor finds it in the store.
    Store,
}

/// An error of admission.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdmitError {
    /// Too many runs wait.
    #[error("too many runs wait for their turn")]
    Full,
    /// The supervisor has stopped.
    #[error("the process is stopping")]
    Closed,
    /// No front end has taken the run to drive it.
    #[error("the process cannot drive the run now")]
    Undriven,
    /// The store refuses the run.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Admits runs. Cloning is cheap.
#[derive(Clone)]
pub struct AdmissionQueue {
    arrivals: mpsc::Sender<Arrival>,
    moved: Arc<Notify>,
    /// Runs that were admitted and are not driven yet.
    waiting: Arc<Mutex<HashMap<Key, Permit>>>,
    /// The permits of waiting runs.
    permits: FairSemaphore,
}

impl AdmissionQueue {
    pub(super) fn new(arrivals: mpsc::Sender<Arrival>, moved: Arc<Notify>) -> AdmissionQueue {
        AdmissionQueue { arrivals, moved, waiting: Arc::default(), permits: FairSemaphore::new(MAX_WAITING as u64) }
    }

    /// Returns the number of waiting runs.
    pub fn waiting_count(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Returns whether any run waits.
    pub(super) fn has_waiting_runs(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Returns whether runs of a tenant wait.
    pub(super) fn has_waiting_runs_of(&self, tenant: &Tenant) -> bool {
        self.waiting.lock().keys().any(|(of, _)| of == tenant)
    }

    /// Adds a run to the waiting runs. Returns `false` if no permit to wait is left for the tenant, or if the run waits
    /// already.
    pub(super) fn enqueue(&self, run: Key) -> bool {
        let Some(permit) = self.permits.try_take(&run.0, 1) else { return false };
        self.waiting.lock().insert(run, permit).is_none()
    }

    /// Releases the permit of a waiting run that begins now.
    pub(super) fn release(&self, run: &Key) {
        self.waiting.lock().remove(run);
    }

    /// Returns the signal that makes the supervisor search for ready runs. Callers send it when they may have made a
    /// run ready.
    pub fn ready_signal(&self) -> &Arc<Notify> {
        &self.moved
    }

    /// Admits a run that starts or continues, and returns once the run is on stable storage. If the run begins at once,
    /// the supervisor drives it with this runner. Otherwise the supervisor opens the run again when its turn comes.
    /// `overflow` decides about the run if too many others wait already.
    pub async fn admit(
        &self,
        tenant: Tenant,
        mut runner: FlowRunner,
        overflow: Overflow,
    ) -> Result<Admission, AdmitError> {
        let run = (tenant.clone(), runner.run_id().clone());
        let begun = FirstEvent::watch(&mut runner);
        let (answer, answered) = oneshot::channel();
        let arrival = Arrival { tenant, runner, answer };
        self.arrivals.send(arrival).await.map_err(|_| AdmitError::Closed)?;
        match answered.await.map_err(|_| AdmitError::Closed)? {
            Admitted::Begun => {
                begun.wait_until_stored().await?;
                Ok(Admission::Begun)
            }
            Admitted::Full(_) if overflow == Overflow::Refuse => Err(AdmitError::Full),
            Admitted::Waits(runner) | Admitted::Full(runner) => {
                let accepted = runner.accept().await;
                if accepted.is_err() {
                    self.release(&run);
                }
                // The runs before it may all have ended meanwhile.
                self.moved.notify_one();
                accepted?;
                Ok(Admission::Waits)
            }
            Admitted::Driven => Ok(Admission::Waits),
        }
    }
}

/// The first event of a run that was handed to a driver. It shows that the driver has begun the run.
pub(crate) struct FirstEvent {
    run: RunId,
    begun: oneshot::Receiver<bool>,
}

impl FirstEvent {
    /// Attaches a channel to a run. The channel waits for the run's first event.
    pub(crate) fn watch(runner: &mut FlowRunner) -> FirstEvent {
        let (sender, begun) = oneshot::channel();
        runner.attach(Arc::new(FirstEventChannel(Mutex::new(Some(sender)))));
        FirstEvent { run: runner.run_id().clone(), begun }
    }

    /// Waits until the first event of the run is on stable storage. Fails if another process drives the run, or if no
    /// driver has taken it.
    pub(crate) async fn wait_until_stored(self) -> Result<(), AdmitError> {
        match self.begun.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(OpenError::Driven(self.run).into()),
            Err(_) => Err(AdmitError::Undriven),
        }
    }
}

/// A channel that reports once whether its run has begun (`true`) or another process drives the run (`false`).
struct FirstEventChannel(Mutex<Option<oneshot::Sender<bool>>>);

impl FirstEventChannel {
    fn report(&self, begun: bool) {
        let sender = self.0.lock().take();
        // The caller may have gone.
        _ = sender.map(|sender| sender.send(begun));
    }
}

impl Channel for FirstEventChannel {
    fn on_event(&self, _event: &Event) {
        // A channel receives an event once the journal holds it.
        self.report(true);
    }

    fn on_complete(&self, result: &RunResult) {
        self.report(result.status != RunStatus::Running);
    }
}
