//! Calls that leave the host: recorded first, then performed.

use std::panic::AssertUnwindSafe;

use flowcell_contract::{Effect, Failure, Outgoing, code};
use futures_util::{FutureExt, future::abortable};

use super::{
    Driver,
    trail::{CallKey, Deferred},
};
use crate::{
    call_log::Reply,
    decide::Input,
    fact::{CallRecord, TaskKey},
    state::{Phase, Task},
};

/// A call has ended.
pub(super) struct Ended {
    call: CallKey,
    reply: Reply,
}

impl Driver {
    /// Records a call and lets it leave once the record is durable, unless it has a reply already.
    pub(super) fn call(
        &mut self,
        task: TaskKey,
        attempt: (u32, u32),
        call: Box<CallRecord>,
        outgoing: Box<Outgoing>,
        reply: Option<Reply>,
    ) {
        let key = (task, attempt.0, call.ordinal);
        let leaves = reply.is_none();
        let asks = call.ask.is_some();
        // Refused is what an attempt asks for that is over.
        if self.bring(Input::Call { task, attempt, call, reply }).is_ok() && leaves {
            match asks {
                true => {
                    self.asked.insert(key, outgoing);
                    self.add_timers(task);
                    self.allow_early(task, key.2);
                }
                false => self.let_leave(key, outgoing),
            }
            self.look_later(task, attempt);
        }
    }

    /// A repeated attempt is back at a call that has no recorded end: it is made again, unless it is still under way.
    pub(super) fn call_again(&mut self, key: CallKey, outgoing: Box<Outgoing>) {
        if !self.leaving.contains_key(&key) {
            let (task, attempt, ordinal) = key;
            let _ = self.bring(Input::CallAgain { task, attempt, ordinal });
            // What an attempt asks for that was withdrawn meanwhile does not leave.
            let running = |task: &&Task| task.phase == Phase::Running && task.attempt == attempt;
            let Some(found) = self.state.find(task).filter(running) else { return };
            if under_way(found, key) {
                self.let_leave(key, outgoing);
            } else if found.calls.iter().any(|calls| calls.asked().any(|(call, ..)| call == (attempt, ordinal))) {
                self.asked.insert(key, outgoing);
            }
        }
    }

    pub(super) fn let_leave(&mut self, key: CallKey, outgoing: Box<Outgoing>) {
        self.leaving.insert(key, None);
        self.trail.add(self.next_seq, Deferred::Leave(key, outgoing));
        self.hurried = true;
        self.catch_up();
    }

    /// The record is durable: the call is made, if somebody still wants its end.
    pub(super) fn leaves(&mut self, key: CallKey, outgoing: Outgoing) {
        let wanted = self.state.find(key.0).is_some_and(|task| under_way(task, key));
        let capability = self.world.capabilities.get(&outgoing.call.interface);
        let Some(capability) = capability.filter(|_| wanted) else {
            self.leaving.remove(&key);
            return;
        };
        let effect = outgoing.effect;
        self.has_called = true;
        // A panic in a capability is one call's.
        let performed = AssertUnwindSafe(capability.perform(outgoing)).catch_unwind();
        let ended = performed.map(move |reply| {
            let reply = reply.unwrap_or_else(|_| Err(broken(effect)));
            Ended { call: key, reply: reply.map_err(Box::new) }
        });
        let (ended, abort) = abortable(ended);
        self.leaving.insert(key, Some(abort));
        self.calls.push(ended.boxed());
    }

    pub(super) fn call_ended(&mut self, ended: Ended) {
        let (task, attempt, ordinal) = ended.call;
        self.leaving.remove(&ended.call);
        let _ = self.bring(Input::CallEnded { task, attempt, ordinal, reply: ended.reply });
    }

    /// What the journal now knows of a call's end is told to its attempt. If the end came otherwise than by itself, the
    /// call is given up.
    pub(super) fn tell_end(&mut self, key: CallKey, ts: u64, reply: &Reply) {
        let (task, attempt, ordinal) = key;
        if let Some(Some(abort)) = self.leaving.remove(&key) {
            abort.abort();
        }
        let meant = self.state.find(task).is_some_and(|task| task.attempt == attempt);
        self.asked.remove(&key);
        match self.live.get(&task).filter(|_| meant) {
            Some(live) => live.calls.arrive(ordinal, ts, reply.clone()),
            None if meant => self.rouse(task),
            None => {}
        }
        self.add_timers(task);
    }
}

fn under_way(task: &Task, (_, attempt, ordinal): CallKey) -> bool {
    task.calls.as_ref().is_some_and(|calls| calls.is_under_way((attempt, ordinal)))
}

fn broken(effect: Effect) -> Failure {
    let message = "the capability panicked";
    match effect {
        Effect::Once => Failure::new(code::AMBIGUOUS, message),
        _ => Failure::retryable(code::LOST_WORKER, message),
    }
}
