//! How far an attempt has come, and how far it is only repeating what it did before.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::Effect;

use crate::{
    call_log::{CallLog, Ended, LogStep, Reply},
    fact::{CallDigest, Observed, Write},
    limits::MAX_OPEN_CALLS,
};

/// How far an attempt has come.
pub(super) struct Progress {
    pub(super) writes: Vec<Write>,
    /// What it did before and is still to do again.
    steps: VecDeque<LogStep>,
    /// What it was told since its last recorded call.
    pub(super) since: Vec<Observed>,
    begun: u32,
    asked: HashMap<CallDigest, u32>,
    /// Ends that were not handed over.
    ended: VecDeque<Ended>,
    once: HashMap<Arc<str>, Reply>,
    /// Calls whose ends the attempt waits for by `next`.
    pub(super) listening: BTreeSet<u32>,
    /// Calls under way.
    under_way: BTreeSet<u32>,
    /// Those of them that must not be made twice.
    pub(super) once_under_way: BTreeSet<u32>,
    pub(super) now_ms: u64,
}

/// What becomes of a call.
pub(super) enum Submitted {
    /// It is recorded, and may have ended.
    Again { ordinal: u32, occurrence: u32, ended: bool },
    /// It is to be recorded, with what the attempt was told before.
    New { ordinal: u32, occurrence: u32, before: Box<[Observed]> },
    /// Too many are under way.
    TooMany,
    /// The attempt did something else the first time.
    Diverged(&'static str),
}

impl Progress {
    pub(super) fn new(now_ms: u64, writes: Vec<Write>, log: Option<&CallLog>) -> Progress {
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
            now_ms,
        };
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

    /// What the attempt was told here the first time; none if it is further than that. An error says what it did instead.
    pub(super) fn told(&mut self) -> Option<Result<Observed, &'static str>> {
        match self.steps.pop_front()? {
            LogStep::Observed(observed) => Some(Ok(observed)),
            LogStep::Begun { .. } => Some(Err("begun a call")),
        }
    }

    pub(super) fn submit(&mut self, digest: &CallDigest, listen: bool, effect: Effect) -> Submitted {
        let again = match self.steps.pop_front() {
            None => false,
            Some(LogStep::Begun { digest: before, .. }) if before == *digest => true,
            Some(LogStep::Begun { .. }) => return Submitted::Diverged("asked for something else"),
            Some(LogStep::Observed(Observed::Answered(..))) => return Submitted::Diverged("asked for state"),
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

    /// The reply that an earlier attempt has recorded for a call that must not be made twice.
    pub(super) fn recorded(&self, key: &str) -> Option<Reply> {
        self.once.get(key).cloned()
    }

    pub(super) fn arrive(&mut self, ordinal: u32, ts: u64, reply: Reply) {
        self.ended.push_back(Ended { ordinal, ts, reply });
        self.under_way.remove(&ordinal);
        self.once_under_way.remove(&ordinal);
    }

    /// Hands the end of a call over.
    pub(super) fn take(&mut self, ordinal: u32) -> Option<Reply> {
        let at = self.ended.iter().position(|ended| ended.ordinal == ordinal)?;
        let ended = self.ended.remove(at)?;
        self.pass(ended.ts);
        Some(ended.reply)
    }

    /// The first call that has ended and that the attempt waits for.
    pub(super) fn next_ended(&self) -> Option<u32> {
        self.ended.iter().map(|ended| ended.ordinal).find(|ordinal| self.listening.contains(ordinal))
    }

    /// Whether a call that the attempt waits for may still end.
    pub(super) fn may_end(&self) -> bool {
        !self.listening.is_empty()
    }

    pub(super) fn time_out(&mut self, now: u64) {
        self.pass(now);
        self.since.push(Observed::TimedOut(self.now_ms));
    }

    /// The attempt sees a later time.
    pub(super) fn pass(&mut self, now: u64) {
        self.now_ms = self.now_ms.max(now);
    }
}
