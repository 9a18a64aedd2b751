//! Places for the run itself and for the runs that its tasks call.

use flowcell_contract::{Failure, FlowCall, code};
use futures_util::FutureExt;
use tokio::task::JoinHandle;

use super::Driver;
use crate::{
    fact::TaskKey,
    hub::Command,
    limits::MAX_DEPTH,
    live::{Place, Starting},
};

/// A run that a task calls and that waits for a place. Dropping it gives up.
pub(super) struct Queued {
    attempt: u32,
    call: FlowCall,
    waiting: JoinHandle<()>,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

impl Driver {
    /// Counts a new run until the store shows it.
    pub(crate) fn count_as(&mut self, starting: Starting) {
        self.starting = Some(starting);
    }

    /// Takes the place in which the run is driven.
    pub(crate) fn take(&mut self, place: Place) {
        self.place = Some(place);
    }

    pub(crate) fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// Starts the run that a task calls, now or as soon as there is a place for it.
    pub(super) fn place_child(&mut self, key: TaskKey, call: &FlowCall) {
        if self.stopping.is_some() {
            return;
        }
        let attempt = self.state.task(key).attempt;
        if self.identity.depth >= MAX_DEPTH {
            let message = format!("flows may call flows at most {MAX_DEPTH} deep");
            return self.child_refused(key, attempt, Failure::new(code::TOO_DEEP, message));
        }
        let run = self.child_id(key, attempt);
        let (live, identity) = (&self.world.live, &self.identity);
        let place = self.place.get_or_insert_with(|| live.enter(&identity.tenant, &identity.run_id));
        let mut waiting = place.below(&run);
        if let Some(place) = (&mut waiting).now_or_never() {
            return self.place_found(key, attempt, call, place);
        }
        let commands = self.site.commands.clone();
        let waiting = tokio::spawn(async move {
            let place = waiting.await;
            // A run that is over needs no place.
            let _ = commands.send(Command::ChildPlaced { task: key, attempt, place }).await;
        });
        self.queued.insert(key, Queued { attempt, call: call.clone(), waiting });
    }

    /// A run that waited has a place, or will get none.
    pub(super) fn child_placed(&mut self, key: TaskKey, attempt: u32, place: Result<Place, Failure>) {
        if self.queued.get(&key).is_some_and(|queued| queued.attempt == attempt)
            && let Some(queued) = self.queued.remove(&key)
        {
            self.place_found(key, attempt, &queued.call, place);
        }
    }

    fn place_found(&mut self, key: TaskKey, attempt: u32, call: &FlowCall, place: Result<Place, Failure>) {
        match place {
            Ok(place) => self.start_child(key, call, place),
            Err(failure) => self.child_refused(key, attempt, failure),
        }
    }

    fn child_refused(&mut self, task: TaskKey, attempt: u32, failure: Failure) {
        self.notes_to_self.push_back(Command::ChildEnded { task, attempt, result: Err(failure) });
    }

    /// A run that waits for a place is not wanted any more.
    pub(super) fn cancel_queued(&mut self, key: TaskKey) {
        if let Some(queued) = self.queued.remove(&key) {
            let failure = Failure::new(code::CANCELLED, "the child run was cancelled before it began");
            self.child_refused(key, queued.attempt, failure);
        }
    }

    /// The run does not move by itself.
    pub(super) fn rests(&mut self) {
        if let Some(place) = &mut self.place {
            place.rests(true);
        }
    }

    /// Something has arrived: the run may move.
    pub(super) fn moves(&mut self) {
        self.told = None;
        if let Some(place) = &mut self.place {
            place.rests(false);
        }
    }
}
