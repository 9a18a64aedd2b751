//! The progress of one attempt. A repeated attempt first has to repeat its recorded steps.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::Effect;

use crate::{
    agents::{Agents, InboxMessage},
    call_log::{CallLog, Ended, LogStep, Reply},
    fact::{CallDigest, Observed, Write},
    limits::MAX_OPEN_CALLS,
};

/// The calls, messages, observations and buffered writes of one attempt.
pub(super) struct Progress {
    pub(super) writes: Vec<Write>,
    /// Recorded steps that the attempt has to repeat.
    steps: VecDeque<LogStep>,
    /// Observations since the attempt's last recorded call.
    pub(super) since: Vec<Observed>,
    begun: u32,
    asked: HashMap<CallDigest, u32>,
    /// Ends of calls that the attempt has not received yet.
    ended: VecDeque<Ended>,
    once: HashMap<Arc<str>, Reply>,
    /// Calls whose ends the attempt receives by `next`.
    pub(super) listening: BTreeSet<u32>,
    /// Calls in progress.
    under_way: BTreeSet<u32>,
    /// The calls in progress whose effect is `once`.
    pub(super) once_under_way: BTreeSet<u32>,
    /// Calls that wait for approval.
    pub(super) asking: BTreeSet<u32>,
    /// Number of reports on the attempt's agent runs so far.
    marks: u32,
    /// Number of agent runs that the attempt has opened so far.
    pub(super) opened: u32,
    /// The open agent runs. True: the agent run accepts messages.
    pub(super) agents: Vec<(Arc<str>, bool)>,
    /// Inbox entries that the attempt has not received yet.
    pub(super) inbox: VecDeque<InboxMessage>,
    /// Deadline (milliseconds since 1970) of the wait in which the attempt was when its previous sandbox ended. `None`:
    /// the attempt was in no wait with a deadline.
    pub(super) wait_until: Option<u64>,
    /// Number of arrivals for the attempt so far: replies to calls, inbox entries, and closed questions.
    pub(super) events_arrived: u64,
    /// True if the attempt waits for an arrival.
    pub(super) blocked: bool,
    pub(super) now_ms: u64,
}

/// The result of submitting a call.
pub(super) enum Submitted {
    /// The call is already recorded, and may have ended.
    Again { ordinal: u32, occurrence: u32, ended: bool },
    /// The call is new. It is recorded with the attempt's observations before it.
    New { ordinal: u32, occurrence: u32, before: Box<[Observed]> },
    /// Too many calls are in progress.
    TooMany,
    /// The attempt took another step when it first ran.
    Diverged(&'static str),
}

impl Progress {
    pub(super) fn new(now_ms: u64, writes: Vec<Write>, log: Option<&CallLog>, agents: Option<&Agents>) -> Progress {
        let mut progress = Progress {
            writes,
            steps: VecDeque::new(),
            since: Vec::new(),
            begun: 0,
            asked: HashMap::new(),
            ended: VecDeque::new(),
            once: HashMap::new(),
            listening: BTreeSet::new(),
            under_way: BTreeSet::new(),
            once_under_way: BTreeSet::new(),
            asking: BTreeSet::new(),
            marks: 0,
            opened: 0,
            agents: Vec::new(),
            inbox: VecDeque::new(),
            wait_until: None,
            events_arrived: 0,
            blocked: false,
            now_ms,
        };
        if let Some(agents) = agents {
            let open = agents.runs.iter().filter(|run| run.was_open(agents.marks_before));
            progress.agents = open.map(|run| (run.id.clone(), run.capacity.is_some())).collect();
            progress.inbox = agents.inbox.iter().cloned().collect();
            (progress.marks, progress.opened) = (agents.marks_before, agents.opened_before);
        }
        if let Some(log) = log {
            let again = log.steps.iter().filter(|step| matches!(step, LogStep::Begun { .. })).count();
            progress.begun = log.begun - again as u32;
            progress.steps = log.steps.iter().cloned().collect();
            progress.asked.clone_from(&log.asked);
            progress.ended = log.ended.iter().cloned().collect();
            progress.once.clone_from(&log.once);
        }
        progress
    }

    /// Returns whether the attempt repeats steps that are recorded.
    pub(super) fn is_repeating(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Removes the next recorded step, and returns its observation. `None`: no recorded step is left. An error: the
    /// step is no observation, but the beginning of a call.
    pub(super) fn next_recorded(&mut self) -> Option<Result<Observed, &'static str>> {
        match self.steps.pop_front()? {
            LogStep::Observed(observed) => Some(Ok(observed)),
            LogStep::Begun { .. } => Some(Err("began a call")),
        }
    }

    pub(super) fn submit(&mut self, digest: &CallDigest, listen: bool, effect: Effect) -> Submitted {
        let again = match self.steps.pop_front() {
            None => false,
            Some(LogStep::Begun { digest: before, .. }) if before == *digest => true,
            Some(LogStep::Begun { .. }) => return Submitted::Diverged("made another call"),
            Some(LogStep::Observed(Observed::Answered(..))) => return Submitted::Diverged("read state"),
            Some(LogStep::Observed(_)) => return Submitted::Diverged("waited"),
        };
        if !again && self.under_way.len() >= MAX_OPEN_CALLS {
            return Submitted::TooMany;
        }
        self.begun += 1;
        let ordinal = self.begun;
        let asked = self.asked.entry(digest.clone()).or_default();
        let occurrence = *asked;
        *asked += 1;
        let ended = self.ended.iter().any(|ended| ended.ordinal == ordinal);
        if listen {
            self.listening.insert(ordinal);
        }
        if !ended {
            self.under_way.insert(ordinal);
            if effect == Effect::Once {
                self.once_under_way.insert(ordinal);
            }
        }
        match again {
            true => Submitted::Again { ordinal, occurrence, ended },
            false => Submitted::New { ordinal, occurrence, before: std::mem::take(&mut self.since).into() },
        }
    }

    /// Returns the recorded reply of a `once` call of this task by its idempotency key. An earlier attempt may have
    /// made the call.
    pub(super) fn recorded(&self, key: &str) -> Option<Reply> {
        self.once.get(key).cloned()
    }

    pub(super) fn record_end(&mut self, ordinal: u32, ts: u64, reply: Reply) {
        self.count_event();
        self.ended.push_back(Ended { ordinal, ts, reply });
        self.under_way.remove(&ordinal);
        self.asking.remove(&ordinal);
        self.once_under_way.remove(&ordinal);
    }

    /// Removes and returns the reply of a call, if the call has ended. Advances the attempt's time to that of the
    /// reply.
    pub(super) fn take(&mut self, ordinal: u32) -> Option<Reply> {
        let at = self.ended.iter().position(|ended| ended.ordinal == ordinal)?;
        let ended = self.ended.remove(at)?;
        self.advance_clock(ended.ts);
        Some(ended.reply)
    }

    /// Returns true if a call has not ended.
    pub(super) fn is_under_way(&self, ordinal: u32) -> bool {
        self.under_way.contains(&ordinal)
    }

    /// Counts an arrival for the attempt. The attempt is no longer blocked.
    pub(super) fn count_event(&mut self) {
        self.events_arrived += 1;
        self.blocked = false;
    }

    /// Counts another report on the attempt's agent runs. Returns the number of this report, from 1.
    pub(super) fn mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks
    }

    /// Removes and returns the first message that meets a condition.
    pub(super) fn take_message(&mut self, meant: impl Fn(&InboxMessage) -> bool) -> Option<InboxMessage> {
        let at = self.inbox.iter().position(meant)?;
        self.inbox.remove(at)
    }

    /// Returns true if a message for an open agent run is in the inbox.
    pub(super) fn has_message(&self) -> bool {
        self.inbox.iter().any(|entry| self.is_open(&entry.run))
    }

    pub(super) fn is_open(&self, run: &str) -> bool {
        self.agents.iter().any(|(open, _)| **open == *run)
    }

    /// If the attempt has no recorded steps left and waits only for people, returns the number of arrivals so far.
    ///
    /// Returns `None` if a call is in progress that does not wait for approval, or if an inbox entry waits. Also
    /// returns `None` if `ready` returns true, because the awaited reply or message has arrived. The caller holds the
    /// lock of the progress during all checks. Otherwise something could arrive between two checks, and the attempt
    /// would wait forever.
    pub(super) fn waits_for_people(&self, ready: impl Fn(&Progress) -> bool) -> Option<u64> {
        let people = !self.asking.is_empty() || self.agents.iter().any(|(_, inbox)| *inbox);
        let nothing_else = self.under_way.iter().all(|ordinal| self.asking.contains(ordinal));
        let waits = people && nothing_else && !self.has_message() && self.steps.is_empty() && !ready(self);
        waits.then_some(self.events_arrived)
    }

    /// Returns the first ended call whose end the attempt receives by `next`.
    pub(super) fn next_ended_call(&self) -> Option<u32> {
        self.ended.iter().map(|ended| ended.ordinal).find(|ordinal| self.listening.contains(ordinal))
    }

    /// Returns true if `next` may still receive something: the end of a call that the attempt listens to, or a message.
    pub(super) fn may_arrive(&self) -> bool {
        !self.listening.is_empty() || self.agents.iter().any(|(_, inbox)| *inbox)
    }

    pub(super) fn time_out(&mut self, now: u64) {
        self.advance_clock(now);
        self.since.push(Observed::TimedOut(self.now_ms));
    }

    /// Advances the time that the attempt sees to `now`. This time never goes back.
    pub(super) fn advance_clock(&mut self, now: u64) {
        self.now_ms = self.now_ms.max(now);
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::{Json, Value};

    use super::*;

    fn asks_a_model(progress: &mut Progress, listen: bool) -> u32 {
        let digest = CallDigest::of("model", "generate", &Json::from("a prompt"));
        match progress.submit(&digest, listen, Effect::Idempotent) {
            Submitted::New { ordinal, .. } => ordinal,
            _ => panic!("a first call is new"),
        }
    }

    #[test]
    fn an_attempt_repeats_until_no_recorded_step_is_left() {
        let mut progress = Progress::new(0, Vec::new(), None, None);
        assert!(!progress.is_repeating(), "a first attempt");
        let digest = CallDigest::of("state", "get", &Json::from("a key"));
        progress.steps.push_back(LogStep::Observed(Observed::Answered(digest, Ok(Value::null()))));
        assert!(progress.is_repeating());
        assert!(progress.next_recorded().is_some());
        assert!(!progress.is_repeating(), "it goes on where it was interrupted");
    }

    /// An attempt with an agent run that accepts messages waits for a model's reply. While the call is in progress, and
    /// also when the reply has just arrived, the attempt does not wait only for people. So its run must not count as
    /// idle.
    #[test]
    fn an_attempt_whose_reply_is_there_does_not_wait_for_people() {
        for listen in [true, false] {
            let mut progress = Progress::new(0, Vec::new(), None, None);
            progress.agents.push(("agent-1".into(), true));
            let call = asks_a_model(&mut progress, listen);
            let ready = move |progress: &Progress| match listen {
                true => progress.next_ended_call().is_some(),
                false => !progress.is_under_way(call),
            };
            assert_eq!(progress.waits_for_people(ready), None, "its call is under way");
            progress.record_end(call, 1, Ok(Value::null()));
            assert_eq!(progress.waits_for_people(ready), None, "the reply is there");
            progress.listening.remove(&call);
            assert!(progress.take(call).is_some());
            assert_eq!(progress.waits_for_people(|progress| progress.next_ended_call().is_some()), Some(1));
        }
    }
}
