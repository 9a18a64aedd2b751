//! Where new runs come in while others are driven.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_engine::{Place, Room};
use flowcell_runtime::{FlowRunner, OpenError};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Key, WAITING};

/// New runs that are told of at a time; whoever brings more waits.
pub(super) const ARRIVALS: usize = 256;

/// A new run.
pub(super) struct Arrival {
    pub(super) tenant: Tenant,
    pub(super) runner: FlowRunner,
    pub(super) answer: oneshot::Sender<Entered>,
}

/// What has become of a new run.
pub enum Entered {
    /// It has begun.
    Begun,
    /// It has its place, and begins when others have ended, once it is [accepted](Entrance::enter).
    Waits(Box<FlowRunner>),
    /// It is driven already.
    Driven,
    /// Too many wait already.
    Full,
    /// Nothing is driven any more.
    Closed,
}

/// Brings new runs in. Cheap to clone.
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

    /// Brings a run in. One that has to wait for its turn is accepted by then, and so on stable storage; one that has begun
    /// is when its first event is told.
    pub async fn enter(&self, tenant: Tenant, runner: FlowRunner) -> Result<Entered, OpenError> {
        let (answer, answered) = oneshot::channel();
        let run = (tenant.clone(), runner.run_id().clone());
        if self.arrivals.send(Arrival { tenant, runner, answer }).await.is_err() {
            return Ok(Entered::Closed);
        }
        match answered.await.unwrap_or(Entered::Closed) {
            Entered::Waits(runner) => {
                let accepted = runner.accept().await;
                if accepted.is_err() {
                    self.begins(&run);
                }
                // Those before it may all have ended meanwhile.
                self.moved.notify_one();
                accepted.map(|()| Entered::Driven)
            }
            entered => Ok(entered),
        }
    }
}
