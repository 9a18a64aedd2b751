//! The runs that the tasks of a run call, and the places in which they and the run itself are driven.

use std::collections::HashMap;

use flowcell_contract::FlowCall;
use tokio::task::JoinHandle;

use crate::{
    fact::TaskKey,
    hub::Hub,
    live::Place,
    result::{Rest, Waiting},
};

/// A run that a task has called.
struct Child {
    hub: Hub,
    /// Why it does not move by itself, if it does not.
    rest: Option<Rest>,
    driving: Option<JoinHandle<()>>,
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(driving) = &self.driving {
            driving.abort();
        }
    }
}

/// A run that a task calls and that waits for a place. Dropping it gives up.
pub(super) struct Queued {
    pub(super) attempt: u32,
    pub(super) call: FlowCall,
    pub(super) waiting: JoinHandle<()>,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

/// The children of a run.
#[derive(Default)]
pub(super) struct Children {
    driven: HashMap<TaskKey, Child>,
    queued: HashMap<TaskKey, Queued>,
    /// The run's own place among the live runs, while it is driven.
    place: Option<Place>,
}

impl Children {
    /// Takes the place in which the run itself is driven.
    pub(super) fn take(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Gives the run's place to whoever waits for one.
    pub(super) fn give_place(&mut self) {
        self.place = None;
    }

    /// Whether the run has a place.
    pub(super) fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// The run's place, entered now if it has none.
    pub(super) fn place(&mut self, enter: impl FnOnce() -> Place) -> &Place {
        self.place.get_or_insert_with(enter)
    }

    /// The run does not move by itself, or moves again.
    pub(super) fn rests(&mut self, rests: bool) {
        if let Some(place) = &mut self.place {
            place.rests(rests);
        }
    }

    /// A child is driven from now on.
    pub(super) fn add(&mut self, task: TaskKey, hub: Hub, driving: JoinHandle<()>) {
        self.driven.insert(task, Child { hub, rest: None, driving: Some(driving) });
    }

    /// The child of a task, which moves from now on, whatever it waited for.
    pub(super) fn wake(&mut self, task: TaskKey) -> Option<Hub> {
        self.driven.get_mut(&task).map(|child| {
            child.rest = None;
            child.hub.clone()
        })
    }

    /// All children, which move from now on.
    pub(super) fn wake_all(&mut self) -> Vec<Hub> {
        let tasks: Vec<TaskKey> = self.driven.keys().copied().collect();
        tasks.into_iter().filter_map(|task| self.wake(task)).collect()
    }

    /// All children.
    pub(super) fn hubs(&self) -> impl Iterator<Item = &Hub> {
        self.driven.values().map(|child| &child.hub)
    }

    /// The tasks whose child is driven.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> impl Iterator<Item = &TaskKey> {
        self.driven.keys()
    }

    /// A child says why it does not move by itself, or that it does.
    pub(super) fn told(&mut self, task: TaskKey, rest: Option<Rest>) {
        if let Some(child) = self.driven.get_mut(&task) {
            child.rest = rest;
        }
    }

    /// A child has ended. What it still has to tell goes on.
    pub(super) fn ended(&mut self, task: TaskKey) -> Option<JoinHandle<()>> {
        self.driven.remove(&task).and_then(|mut child| child.driving.take())
    }

    /// Whether no child is driven.
    pub(super) fn is_empty(&self) -> bool {
        self.driven.is_empty()
    }

    /// Whether no child moves by itself.
    pub(super) fn all_rest(&self) -> bool {
        self.driven.values().all(|child| child.rest.is_some())
    }

    /// When the first of them that rest moves by itself.
    pub(super) fn due(&self) -> Option<u64> {
        self.driven.values().filter_map(|child| child.rest.as_ref()?.due).min()
    }

    /// What they wait for, each below its task.
    pub(super) fn waiting(&self, address: impl Fn(TaskKey) -> String) -> Vec<Waiting> {
        let below = |(task, child): (&TaskKey, &Child)| {
            let prefix = address(*task);
            let inner = child.rest.iter().flat_map(|rest| &rest.waiting);
            inner.map(|waiting| waiting.within(&prefix)).collect::<Vec<_>>()
        };
        self.driven.iter().flat_map(below).collect()
    }

    /// A call waits for a place.
    pub(super) fn queue(&mut self, task: TaskKey, queued: Queued) {
        self.queued.insert(task, queued);
    }

    /// The call of a task that waited for a place, if it is that of this attempt, or of any.
    pub(super) fn leave_queue(&mut self, task: TaskKey, attempt: Option<u32>) -> Option<Queued> {
        let is_meant = |queued: &&Queued| attempt.is_none_or(|attempt| queued.attempt == attempt);
        self.queued.get(&task).filter(is_meant)?;
        self.queued.remove(&task)
    }

    /// Whether no call waits for a place.
    pub(super) fn has_empty_queue(&self) -> bool {
        self.queued.is_empty()
    }

    /// Nothing is begun any more.
    pub(super) fn clear_queue(&mut self) {
        self.queued.clear();
    }

    /// Everything is over.
    pub(super) fn clear(&mut self) {
        self.driven.clear();
        self.queued.clear();
    }
}
