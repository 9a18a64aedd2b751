//! The admission of runs: every new run enters here as an opened runner, whatever has started it.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{Place, Room};
use flowcell_runtime::{Channel, Event, FlowRunner, OpenError, RunResult, RunStatus};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Key, WAITING};

/// New runs that are told of at a time; whoever brings more waits.
pub(super) const ARRIVALS: usize = 256;

/// A run that asks for admission.
pub(super) struct Arrival {
    pub(super) tenant: Tenant,
    pub(super) runner: FlowRunner,
    pub(super) answer: oneshot::Sender<Entered>,
}

/// The supervisor's answer to an arrival.
pub(super) enum Entered {
    /// It has begun.
    Begun,
    /// It is driven already.
    Driven,
    /// It has its place, and begins when others have ended.
    Waits(Box<FlowRunner>),
    /// Too many wait already.
    Full(Box<FlowRunner>),
}

/// The state of an admitted run. It is on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has begun, with the runner that was handed over.
    Begun,
    /// It begins when others have ended, or is driven already.
    Waits,
}

/// What happens to a run when too many others wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It is refused.
    Refuse,
    /// It is put on stable storage, and begins when the supervisor finds it there.
    Store,
}

/// Why a run is not admitted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdmitError {
    /// Too many runs wait.
    #[error("too many runs wait for their turn already")]
    Full,
    /// The supervisor has stopped.
    #[error("the process is about to end")]
    Closed,
    /// The supervisor has no front ends for the run.
    #[error("the process cannot drive the run now")]
    Undriven,
    /// The store refuses the run.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Admits runs. Cheap to clone.
#[derive(Clone)]
pub struct Entrance {
    arrivals: mpsc::Sender<Arrival>,
    moved: Arc<Notify>,
    /// Runs that were taken in and are not yet driven.
    waiting: Arc<Mutex<HashMap<Key, Place>>>,
    /// For them.
    places: Room,
}

impl Entrance {
    pub(super) fn new(arrivals: mpsc::Sender<Arrival>, moved: Arc<Notify>) -> Entrance {
        Entrance { arrivals, moved, waiting: Arc::default(), places: Room::new(WAITING as u64) }
    }

    /// How many runs wait.
    pub fn waits(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether runs wait.
    pub(super) fn is_crowded(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Whether runs of a tenant wait.
    pub(super) fn has_waiting(&self, tenant: &Tenant) -> bool {
        self.waiting.lock().keys().any(|(of, _)| of == tenant)
    }

    /// Gives a run its place among those that wait, if there is one.
    pub(super) fn wait(&self, run: Key) -> bool {
        let Some(place) = self.places.try_take(&run.0, 1) else { return false };
        self.waiting.lock().insert(run, place).is_none()
    }

    /// A run is to begin, and waits no more.
    pub(super) fn begins(&self, run: &Key) {
        self.waiting.lock().remove(run);
    }

    /// Returns the signal that a run which nobody drives may be able to move.
    pub fn moved(&self) -> &Arc<Notify> {
        &self.moved
    }

    /// Admits a run that is about to begin or to go on, and returns once it is on stable storage. The supervisor drives this
    /// runner if the run begins at once. A run that waits for its turn is opened again when that comes.
    pub async fn admit(
        &self,
        tenant: Tenant,
        mut runner: FlowRunner,
        overflow: Overflow,
    ) -> Result<Admission, AdmitError> {
        let run = (tenant.clone(), runner.run_id().clone());
        let begun = Begun::watch(&mut runner);
        let (answer, answered) = oneshot::channel();
        let arrival = Arrival { tenant, runner, answer };
        self.arrivals.send(arrival).await.map_err(|_| AdmitError::Closed)?;
        match answered.await.map_err(|_| AdmitError::Closed)? {
            Entered::Begun => {
                begun.stored().await?;
                Ok(Admission::Begun)
            }
            Entered::Full(_) if overflow == Overflow::Refuse => Err(AdmitError::Full),
            Entered::Waits(runner) | Entered::Full(runner) => {
                let accepted = runner.accept().await;
                if accepted.is_err() {
                    self.begins(&run);
                }
                // Those before it may all have ended meanwhile.
                self.moved.notify_one();
                accepted?;
                Ok(Admission::Waits)
            }
            Entered::Driven => Ok(Admission::Waits),
        }
    }
}

/// The beginning of a run that was handed to its driver.
pub(crate) struct Begun {
    run: RunId,
    told: oneshot::Receiver<bool>,
}

impl Begun {
    /// Watches a run that is about to begin.
    pub(crate) fn watch(runner: &mut FlowRunner) -> Begun {
        let (teller, told) = oneshot::channel();
        runner.attach(Arc::new(Teller(Mutex::new(Some(teller)))));
        Begun { run: runner.run_id().clone(), told }
    }

    /// Returns once the first event of the run is on stable storage.
    pub(crate) async fn stored(self) -> Result<(), AdmitError> {
        match self.told.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(OpenError::Driven(self.run).into()),
            Err(_) => Err(AdmitError::Undriven),
        }
    }
}

/// Tells whether a run has begun, or another process has taken it.
struct Teller(Mutex<Option<oneshot::Sender<bool>>>);

impl Teller {
    fn tell(&self, begun: bool) {
        let teller = self.0.lock().take();
        // The caller may be gone.
        _ = teller.map(|teller| teller.send(begun));
    }
}

impl Channel for Teller {
    fn on_event(&self, _event: &Event) {
        // An event is told once the journal holds it.
        self.tell(true);
    }

    fn on_complete(&self, result: &RunResult) {
        self.tell(result.status != RunStatus::Running);
    }
}
