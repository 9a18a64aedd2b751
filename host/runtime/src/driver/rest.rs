//! Whether the run moves by itself, and what it waits for if not.

use super::Driver;
use crate::{
    fact::TaskKey,
    outstanding::{Outstanding, Timer},
    result::{Rest, Waiting},
};

impl Driver {
    /// Whether nothing moves the run on but people, events from outside, or timers that take longer than its patience.
    pub(super) fn rest(&mut self) -> Option<Rest> {
        let idle = |task: &TaskKey| self.state.find(*task).is_some_and(|task| task.idle);
        let busy = !self.live.keys().chain(self.dozing.dropped.keys()).all(idle)
            || !self.leaving.is_empty()
            || !self.queued.is_empty()
            || !self.notes_to_self.is_empty()
            || !self.commands.is_empty();
        if busy || self.children.values().any(|child| child.rest.is_none()) {
            return None;
        }
        let mut due = self.children.values().filter_map(|child| child.rest.as_ref()?.due).min();
        let now = self.world.timers.now();
        for (timer, at) in self.timers.live(&self.state) {
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
        for (task, child) in &self.children {
            let prefix = self.state.address(*task);
            let inner = child.rest.iter().flat_map(|rest| &rest.waiting);
            waiting.extend(inner.map(|waiting| waiting.within(&prefix)));
        }
        waiting.sort_by(|a, b| a.address().cmp(b.address()));
        waiting
    }
}
