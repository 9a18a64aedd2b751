//! The runs that the tasks of a run call, and the live permits of the run and its children.

use std::collections::HashMap;

use flowcell_contract::{Failure, FlowCall, RunId};
use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    command::{HubError, RunCommand},
    fact::TaskKey,
    hub::{Command, Hub},
    live::LivePermit,
    quota::QuotaHold,
    result::{Idle, Waiting},
};

/// A run that a task has called.
struct Child {
    hub: Hub,
    /// What the child waits for. `None`: the child is not idle.
    idle: Option<Idle>,
    /// The number of commands for the child.
    commands: u64,
    driving: Option<JoinHandle<()>>,
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(driving) = &self.driving {
            driving.abort();
        }
    }
}

/// A child that gets a command. It counts as idle again when it reports so after [`Hub::confirm_command`].
pub(super) struct Woken(Hub);

impl Woken {
    /// Passes a command to the child. `delivered` is the number of the message in the store's inbox, if the command came
    /// from there.
    async fn request(&self, command: RunCommand, delivered: Option<u64>) -> Result<(), HubError> {
        let outcome = match delivered {
            Some(message) => self.0.deliver(message, command).await,
            None => self.0.request(command).await,
        };
        self.0.confirm_command().await;
        outcome
    }

    /// Cancels the child.
    pub(super) async fn cancel(self) {
        // A child that has ended needs no cancellation.
        let _ = self.request(RunCommand::Cancel, None).await;
    }

    /// Stops the child before its process ends.
    pub(super) async fn stop(self) {
        self.0.stop().await;
        self.0.confirm_command().await;
    }
}

/// A child run that waits for a live permit. Dropping this ends the wait.
pub(super) struct Queued {
    pub(super) attempt: u32,
    pub(super) call: FlowCall,
    waiting: JoinHandle<()>,
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
    /// The run's own live permit, while it is driven.
    permit: Option<LivePermit>,
}

impl Children {
    /// Stores the live permit of the run itself.
    pub(super) fn set_permit(&mut self, permit: LivePermit) {
        self.permit = Some(permit);
    }

    /// Releases the run's live permit.
    pub(super) fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Returns whether the run has a live permit.
    pub(super) fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    /// Records in the run's live permit whether the run itself is idle. An idle run does not end by work of this
    /// process, so other runs cannot count on getting its permit; see [`crate::live`].
    pub(super) fn set_idle(&mut self, is_idle: bool) {
        if let Some(permit) = &mut self.permit {
            permit.set_idle(is_idle);
        }
    }

    /// Adds a child that is now driven.
    pub(super) fn add(&mut self, task: TaskKey, hub: Hub, driving: JoinHandle<()>) {
        self.driven.insert(task, Child { hub, idle: None, commands: 0, driving: Some(driving) });
    }

    /// Returns the child of a task for a command, and marks it as not idle.
    pub(super) fn wake(&mut self, task: TaskKey) -> Option<Woken> {
        self.driven.get_mut(&task).map(|child| {
            child.idle = None;
            child.commands += 1;
            Woken(child.hub.clone())
        })
    }

    /// Returns all children for a command, and marks them as not idle.
    pub(super) fn wake_all(&mut self) -> Vec<Woken> {
        let tasks: Vec<TaskKey> = self.driven.keys().copied().collect();
        tasks.into_iter().filter_map(|task| self.wake(task)).collect()
    }

    /// Passes a command to the child of a task. `delivered` is the number of the message in the store's inbox, if the
    /// command came from there.
    pub(super) fn pass_on(
        &mut self,
        task: Option<TaskKey>,
        command: RunCommand,
        delivered: Option<u64>,
        answer: oneshot::Sender<Result<(), HubError>>,
    ) {
        let child = task.and_then(|task| self.wake(task));
        tokio::spawn(async move {
            let outcome = match child {
                Some(child) => child.request(command, delivered).await,
                None => Err(command.no_child_error()),
            };
            // The caller may have disconnected.
            let _ = answer.send(outcome);
        });
    }

    /// Returns the hubs of all children.
    pub(super) fn hubs(&self) -> impl Iterator<Item = &Hub> {
        self.driven.values().map(|child| &child.hub)
    }

    /// Returns the tasks whose child is driven.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> impl Iterator<Item = &TaskKey> {
        self.driven.keys()
    }

    /// Records what the idle child of a task waits for. `confirmed` is the number of commands that the child had got when
    /// it became idle. A child that has not got all commands continues, so its report counts for nothing.
    pub(super) fn set_child_idle(&mut self, task: TaskKey, idle: Idle, confirmed: u64) {
        if let Some(child) = self.driven.get_mut(&task).filter(|child| confirmed >= child.commands) {
            child.idle = Some(idle);
        }
    }

    /// Removes a child that has ended. The returned tokio task ends when the child has sent all its events.
    pub(super) fn remove(&mut self, task: TaskKey) -> Option<JoinHandle<()>> {
        self.driven.remove(&task).and_then(|mut child| child.driving.take())
    }

    /// Returns whether no child is driven.
    pub(super) fn is_empty(&self) -> bool {
        self.driven.is_empty()
    }

    /// Returns whether every child is idle.
    pub(super) fn all_idle(&self) -> bool {
        self.driven.values().all(|child| child.idle.is_some())
    }

    /// Returns whether every child is idle at this time (milliseconds since 1970). A child with a timer that is due has
    /// continued, or is about to: it reports its next idle state later.
    pub(super) fn are_idle_at(&self, now: u64) -> bool {
        self.all_idle() && self.due().is_none_or(|due| due > now)
    }

    /// Returns the time of the first timer of the idle children.
    pub(super) fn due(&self) -> Option<u64> {
        self.driven.values().filter_map(|child| child.idle.as_ref()?.due).min()
    }

    /// Returns the quota because of which tasks of an idle child wait.
    pub(super) fn quota(&self) -> Option<&QuotaHold> {
        self.driven.values().find_map(|child| child.idle.as_ref()?.quota.as_ref())
    }

    /// Returns the people and events that the children wait for. Each address has the address of the calling task in
    /// front: `review/approve`.
    pub(super) fn waiting(&self, address: impl Fn(TaskKey) -> String) -> Vec<Waiting> {
        let below = |(task, child): (&TaskKey, &Child)| {
            let prefix = address(*task);
            let inner = child.idle.iter().flat_map(|idle| &idle.waiting);
            inner.map(|waiting| waiting.within(&prefix)).collect::<Vec<_>>()
        };
        self.driven.iter().flat_map(below).collect()
    }

    /// Returns true if no child run is busy.
    pub(super) fn are_idle(&self) -> bool {
        self.driven.values().all(|child| child.idle.is_some())
    }

    /// Requests a live permit for the run that a task calls, and returns the permit if one is free.
    ///
    /// Otherwise the call is queued, and `commands` receives [`Command::ChildPermit`] later. If the calling run itself
    /// has no permit, it first gets the one that `enter` returns.
    pub(super) fn request_permit(
        &mut self,
        (task, attempt): (TaskKey, u32),
        call: &FlowCall,
        run: &RunId,
        enter: impl FnOnce() -> LivePermit,
        commands: &mpsc::Sender<Command>,
    ) -> Option<Result<LivePermit, Failure>> {
        let mut waiting = self.permit.get_or_insert_with(enter).request_below(run);
        if let Some(permit) = (&mut waiting).now_or_never() {
            return Some(permit);
        }
        let commands = commands.clone();
        let waiting = tokio::spawn(async move {
            let permit = waiting.await;
            // A run that has ended needs no permit.
            let _ = commands.send(Command::ChildPermit { task, attempt, permit }).await;
        });
        self.queued.insert(task, Queued { attempt, call: call.clone(), waiting });
        None
    }

    /// Removes and returns the queued call of a task, if this attempt made it. With `attempt: None`, any attempt may
    /// have made it.
    pub(super) fn take_queued(&mut self, task: TaskKey, attempt: Option<u32>) -> Option<Queued> {
        let is_meant = |queued: &&Queued| attempt.is_none_or(|attempt| queued.attempt == attempt);
        self.queued.get(&task).filter(is_meant)?;
        self.queued.remove(&task)
    }

    /// Returns whether no call waits for a live permit.
    pub(super) fn has_empty_queue(&self) -> bool {
        self.queued.is_empty()
    }

    /// Drops the calls that wait for a live permit.
    pub(super) fn clear_queue(&mut self) {
        self.queued.clear();
    }

    /// Drops all children, since the run has ended.
    pub(super) fn clear(&mut self) {
        self.driven.clear();
        self.queued.clear();
    }
}

#[cfg(test)]
mod tests;
