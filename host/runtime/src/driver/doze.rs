//! Attempts that wait: what they wait for may come much later, and until then their instances are dropped.
//!
//! An attempt that is dropped is repeated when something arrives for it, as after a crash: it is told what it was told before,
//! and goes on from there.

use std::collections::{HashMap, VecDeque};

use flowcell_contract::Json;

use super::Driver;
use crate::{
    agents::Letter,
    decide::Input,
    event::LiveEvent,
    fact::{AgentFact, TaskKey},
    limits::EVICT_MS,
    publish::FLOW_STEP,
    state::Phase,
};

/// Attempts that may be dropped, and those that were.
#[derive(Default)]
pub(super) struct Dozing {
    /// When to look whether an attempt still waits, in order.
    looks: VecDeque<(u64, TaskKey, (u32, u32))>,
    /// Attempts without an instance, until something arrives.
    pub(super) dropped: HashMap<TaskKey, (u32, u32)>,
}

impl Dozing {
    /// When to look next.
    pub(super) fn due(&self) -> Option<u64> {
        self.looks.front().map(|(due, ..)| *due)
    }
}

impl Driver {
    /// Looks later whether an attempt still waits.
    pub(super) fn look_later(&mut self, task: TaskKey, attempt: (u32, u32)) {
        let due = self.world.timers.now().saturating_add(EVICT_MS);
        self.dozing.looks.push_back((due, task, attempt));
    }

    /// Drops the instances of attempts that have waited for long.
    pub(super) fn drop_waiting(&mut self) {
        let now = self.world.timers.now();
        while let Some((due, task, attempt)) = self.dozing.looks.front().copied()
            && due <= now
        {
            self.dozing.looks.pop_front();
            let waits = self.live.get(&task).is_some_and(|live| live.calls.is_blocked());
            if waits && self.state.is_running(task, attempt) {
                self.withdraw(task);
                self.condense(task);
                self.dozing.dropped.insert(task, attempt);
            }
        }
    }

    /// Something has arrived for an attempt. Begins it again if it was dropped.
    pub(super) fn rouse(&mut self, task: TaskKey) {
        if self.dozing.dropped.remove(&task).is_some() {
            self.start(task);
        }
    }

    /// An attempt says that it waits for people.
    pub(super) fn waits(&mut self, task: TaskKey, attempt: (u32, u32), due: Option<u64>, heard: u64) {
        if self.live.get(&task).is_some_and(|live| live.calls.heard() == heard) {
            let _ = self.bring(Input::Waits { task, attempt, due });
            self.look_later(task, attempt);
        }
    }

    /// Hands a letter to the attempt that it is for.
    pub(super) fn hand_letter(&mut self, task: TaskKey, told: &AgentFact) {
        let letter = match told {
            AgentFact::Written { id, message, value } => {
                Letter { run: id.clone(), id: Some(message.clone()), value: value.clone(), applied: false }
            }
            AgentFact::Closing { id } => {
                Letter { run: id.clone(), id: None, value: flowcell_contract::Value::null(), applied: false }
            }
            _ => return,
        };
        match self.live.get(&task) {
            Some(live) => live.calls.receive(letter),
            None => self.rouse(task),
        }
        self.add_timers(task);
    }

    /// A call may leave, or not: somebody has said so.
    pub(super) fn call_decided(&mut self, task: TaskKey, attempt: u32, ordinal: u32, allowed: bool) {
        let key = (task, attempt, ordinal);
        let outgoing = self.asked.remove(&key);
        if let Some(live) = self.live.get(&task) {
            live.calls.allowed(ordinal);
        }
        match outgoing {
            Some(outgoing) if allowed => self.let_leave(key, outgoing),
            _ => self.rouse(task),
        }
        self.add_timers(task);
    }

    /// Tells those who watch what is not recorded.
    pub(super) fn tell_live(&self, task: TaskKey, kind: Box<str>, members: &Json) {
        if self.channels.is_empty() || self.state.find(task).is_none_or(|task| task.phase != Phase::Running) {
            return;
        }
        let node = self.state.graph.node(task.node);
        let mut data = vec![("nodeId".into(), Json::from(node.id.0.clone()))];
        data.extend(node.labels.get(FLOW_STEP).map(|step| (FLOW_STEP.into(), step.clone())));
        data.extend(members.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        let event = LiveEvent {
            ts: self.world.timers.now(),
            tenant: self.identity.tenant.clone(),
            run_id: self.identity.run_id.clone(),
            kind,
            data: Json::object(data),
        };
        for channel in &self.channels {
            let told = std::panic::AssertUnwindSafe(|| channel.on_live(&event));
            if std::panic::catch_unwind(told).is_err() {
                tracing::warn!(run = %self.identity.run_id, "a channel panicked at {}", event.kind);
            }
        }
    }
}
