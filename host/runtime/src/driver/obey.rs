//! Doing what attempts, children and people ask for.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Driver, each_unit, trail::Deferred};
use crate::{
    command::{HubError, RunCommand},
    decide::Input,
    hub::{Channel, Command},
    publish::Projector,
};

impl Driver {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Stop => self.stop(),
            // What begins now would only be cut off: it is asked for again when the attempt is repeated.
            Command::Call { .. } | Command::CallAgain { .. } if self.stopping.is_some() => {}
            Command::Bring(input) => _ = self.bring(*input),
            Command::Call { task, attempt, record, outgoing, reply } => {
                self.call(task, attempt, record, outgoing, reply);
            }
            Command::CallAgain { task, attempt, ordinal, outgoing } => {
                self.call_again((task, attempt, ordinal), outgoing);
            }
            Command::Waits { task, attempt, due, heard } => self.waits(task, attempt, due, heard),
            Command::Live { task, kind, members } => self.tell_live(task, kind, &members),
            Command::Run(command, answer) => self.request(command, answer),
            Command::Deliver(message, command, answer) => self.deliver(message, command, answer),
            Command::Attach { channel, to_child } => self.attach(&channel, to_child),
            Command::Unattended => self.parks = true,
            Command::Settle(answer) => {
                self.outbox.hold(Deferred::Acknowledge(answer, Ok(())));
                self.catch_up();
            }
            Command::ChildEnded { task, attempt, result } => {
                self.child_leaves(task);
                let _ = self.bring(Input::ChildEnded { task, attempt, result });
            }
            Command::ChildPlaced { task, attempt, place } => self.child_placed(task, attempt, place),
            Command::ChildRests { task, rest } => self.children.told(task, rest),
        }
    }

    /// Takes in a message of the store's inbox.
    pub(super) fn deliver(&mut self, message: u64, command: RunCommand, answer: oneshot::Sender<Result<(), HubError>>) {
        self.outbox.delivered = Some(message);
        self.request(command, answer);
        self.outbox.delivered = None;
    }

    pub(super) fn request(&mut self, command: RunCommand, answer: oneshot::Sender<Result<(), HubError>>) {
        if command.is_too_large() {
            let _ = answer.send(Err(HubError::TooLarge));
            return;
        }
        if let Some((task, inner)) = command.below() {
            return self.pass_on(&task, inner, answer);
        }
        let outcome = self.bring(Input::Command(command));
        self.outbox.acknowledge(answer, outcome);
        self.catch_up();
    }

    /// Hands a command on to the child that it is meant for.
    pub(super) fn pass_on(&mut self, task: &str, command: RunCommand, answer: oneshot::Sender<Result<(), HubError>>) {
        let child = self.state.task_at(task).and_then(|key| self.children.wake(key));
        let delivered = self.outbox.delivered;
        tokio::spawn(async move {
            let outcome = match (child, delivered) {
                (Some(child), Some(message)) => child.deliver(message, command).await,
                (Some(child), None) => child.request(command).await,
                (None, _) => Err(command.unmet()),
            };
            let _ = answer.send(outcome);
        });
    }

    /// Tells a late channel what the others were told, and from now on the same.
    pub(super) fn attach(&mut self, channel: &Arc<dyn Channel>, to_child: bool) {
        self.catch_up();
        let (tenant, run_id) = (&self.identity.tenant, &self.identity.run_id);
        if !to_child {
            channel.on_start(&self.hub);
        }
        let told = self.outbox.told();
        let mut projector = Projector::new(tenant.clone(), run_id.clone(), self.state.graph.clone());
        let read = each_unit(&*self.world.journal, tenant, run_id, |unit| {
            if unit.next_seq() <= told {
                projector.project(&unit).iter().for_each(|event| channel.on_event(event));
            }
        });
        if let Err(error) = read {
            tracing::warn!(run = %run_id, "a late channel misses what happened so far: {error}");
        }
        self.outbox.attach(channel.clone(), projector);
        for hub in self.children.hubs() {
            let (hub, channel) = (hub.clone(), channel.clone());
            tokio::spawn(async move { hub.attach_from_above(channel).await });
        }
    }
}
