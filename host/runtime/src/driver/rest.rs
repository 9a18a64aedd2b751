//! Whether the run moves by itself, what it waits for if not, and how it is put down.
//!
//! A process that is to end stops in good order. Nothing begins any more. Calls that have left are waited for, for a while, so
//! that nobody has to ask what became of them; attempts are dropped, and repeated as after a crash. The run is then parked,
//! and due at once, and another process goes on with it.

use super::{Driver, Parent};
use crate::{
    decide::Input,
    fact::TaskKey,
    hub::Command,
    limits::CALL_GRACE_MS,
    outstanding::{Outstanding, Timer},
    result::{Rest, Waiting},
};

/// How far a driver has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    /// Ends of calls, and children, are waited for until this time.
    Until(u64),
    /// They have been waited for long enough.
    Now,
}

impl Driver {
    /// Whether nothing moves the run on but people, events from outside, or timers that take longer than its patience.
    pub(super) fn rest(&mut self) -> Option<Rest> {
        let idle = |task: TaskKey| self.state.find(task).is_some_and(|task| task.idle);
        let busy = !self.attempts.tasks().all(idle)
            || !self.calls.is_quiet()
            || !self.children.has_empty_queue()
            || !self.notes_to_self.is_empty()
            || !self.commands.is_empty();
        if busy || !self.children.all_rest() {
            return None;
        }
        let mut due = self.children.due();
        let now = self.clock.now();
        for (timer, at) in self.clock.live(&self.state) {
            // The end of a run's time ends it, and moves nothing on; nor is it an answer that nobody answers in time.
            let soon = self.patience_ms.is_none_or(|patience| at <= now.saturating_add(patience));
            let ends = matches!(timer, Timer::Flow | Timer::Ask { .. });
            if at <= now || soon && !(ends && self.patience_ms.is_none()) {
                return None;
            }
            due = due.into_iter().chain([at]).min();
        }
        Some(Rest { waiting: self.waiting(), due })
    }

    /// What the run and its children wait for.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for outstanding in self.state.outstanding() {
            match outstanding {
                Outstanding::Question { task, question } => {
                    let asked = self.state.gate(task).map(|(_, _, asked)| asked).unwrap_or_default();
                    waiting.push(Waiting::answer(self.state.address(task), question, asked));
                }
                Outstanding::Permission { task, ordinal, question } => {
                    let asked = self.state.permission(task, ordinal).map(|(_, asked)| asked).unwrap_or_default();
                    let address = format!("{}#{ordinal}", self.state.address(task));
                    waiting.push(Waiting::answer(address, question, asked));
                }
                Outstanding::Messages { task, agent_run } => {
                    waiting.push(Waiting::Message { address: self.state.address(task), agent_run });
                }
                Outstanding::Decision { task, reason } => {
                    waiting.push(Waiting::Decision { address: self.state.address(task), reason: Box::new(reason) });
                }
                Outstanding::Event { task, name } => {
                    waiting.push(Waiting::Event { address: self.state.address(task), name: name.to_string() });
                }
                _ => {}
            }
        }
        waiting.extend(self.children.waiting(|task| self.state.address(task)));
        waiting.sort_by(|a, b| a.address().cmp(b.address()));
        waiting
    }

    /// The process is to end. Whoever says so again, after the time is over, waits no longer.
    pub(super) fn stop(&mut self) {
        let now = self.clock.now();
        match self.stopping {
            Some(Stopping::Until(until)) if until <= now => self.stopping = Some(Stopping::Now),
            Some(_) => {}
            None => {
                let until = now.saturating_add(CALL_GRACE_MS);
                self.stopping = Some(Stopping::Until(until));
                self.stand_still();
                self.children.clear_queue();
                let (wait, commands) = (self.clock.wait(until), self.site.commands.clone());
                tokio::spawn(async move {
                    wait.await;
                    // The run may have stopped meanwhile.
                    let _ = commands.send(Command::Stop).await;
                });
                for hub in self.children.wake_all() {
                    tokio::spawn(async move { hub.stop().await });
                }
            }
        }
    }

    /// Whether nothing is waited for any more before the run is put down.
    pub(super) fn has_stopped(&self) -> bool {
        match self.stopping {
            None => false,
            Some(Stopping::Now) => true,
            Some(Stopping::Until(_)) => self.calls.is_quiet() && self.children.all_rest(),
        }
    }

    /// Records that the run was put down: whoever looks for work finds it.
    pub(super) async fn put_down(&mut self) {
        let _ = self.bring(Input::Park { due: Some(self.clock.now()), needs_attention: false });
        self.leave().await;
        if let Some(Parent { commands, task, .. }) = &self.parent {
            let rest = Some(Rest { waiting: Vec::new(), due: None });
            let _ = commands.send(Command::ChildRests { task: *task, rest }).await;
        }
    }
}
