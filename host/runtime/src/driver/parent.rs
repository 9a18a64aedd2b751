//! The connection of a child run to the run that called it.

use tokio::sync::mpsc;

use crate::{fact::TaskKey, hub::Command, result::Idle};

/// The run that called this one.
pub(super) struct Parent {
    commands: mpsc::Sender<Command>,
    /// The task that called this run.
    task: TaskKey,
    /// The last idle state that the parent knows.
    reported: Option<Idle>,
    /// The number of commands that the parent has confirmed.
    confirmed: u64,
}

impl Parent {
    pub(super) fn new(commands: mpsc::Sender<Command>, task: TaskKey) -> Parent {
        Parent { commands, task, reported: None, confirmed: 0 }
    }

    /// Reports to the parent, once for each change, that this run is idle.
    pub(super) async fn report_idle(&mut self, idle: Idle) {
        if self.reported.as_ref() != Some(&idle) {
            self.reported = Some(idle.clone());
            self.send(idle, self.confirmed).await;
        }
    }

    /// Reports to the parent that this run is parked, and due at once. It takes no further commands.
    pub(super) async fn report_parked(&self) {
        self.send(Idle::default(), u64::MAX).await;
    }

    async fn send(&self, idle: Idle, confirmed: u64) {
        // A parent that has ended needs no report.
        let _ = self.commands.send(Command::ChildIdle { task: self.task, idle, confirmed }).await;
    }

    /// Counts a command that the parent has confirmed.
    pub(super) fn confirm_command(&mut self) {
        self.confirmed += 1;
    }

    /// Forgets the reported idle state, because this run may continue. The next idle state is reported again.
    pub(super) fn clear_reported(&mut self) {
        self.reported = None;
    }
}

#[cfg(test)]
mod tests {
    use flowcell_flow::graph::NodeIx;
    use futures_util::FutureExt;
    use tokio::sync::mpsc;

    use super::Parent;
    use crate::{
        fact::{ScopeId, TaskKey},
        hub::Command,
        result::Idle,
    };

    #[test]
    fn an_idle_state_is_reported_once_until_the_run_continues() {
        let (sender, mut commands) = mpsc::channel(8);
        let task = TaskKey { scope: ScopeId::ROOT, node: NodeIx(3) };
        let mut parent = Parent::new(sender, task);
        let mut tell = |parent: &mut Parent, due| {
            parent.report_idle(Idle { waiting: Vec::new(), due, quota: None }).now_or_never().unwrap();
            match commands.try_recv() {
                Ok(Command::ChildIdle { task: told, idle, confirmed: 0 }) if told == task => Some(idle.due),
                _ => None,
            }
        };
        assert_eq!(tell(&mut parent, Some(1)), Some(Some(1)));
        assert_eq!(tell(&mut parent, Some(1)), None, "the parent knows it");
        assert_eq!(tell(&mut parent, Some(2)), Some(Some(2)), "it is due at another time");
        parent.clear_reported();
        assert_eq!(tell(&mut parent, Some(2)), Some(Some(2)));
    }
}
