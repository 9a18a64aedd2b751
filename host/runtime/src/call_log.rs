//! The calls of one task that leave the host, folded from its facts.
//!
//! After a crash the same attempt runs again from its last checkpoint. It observes the same as before, in the same
//! order: the answers of the host, the ends of calls, and the timeouts of its waits. A call with a recorded reply is
//! not made again. An attempt's observations are recorded together with its next call, because before that call
//! nothing outside the run depends on them.

use std::collections::{BTreeMap, HashMap};

use std::sync::Arc;

use flowcell_contract::{Choice, Effect, Failure, Json, Question, Value, code};
use sha2::{Digest, Sha256};

use crate::fact::{BlockReason, CallDigest, CallRecord, ForAgent, Observed};

pub(crate) type Reply = Result<Value, Box<Failure>>;

/// A call of a task: its attempt and its ordinal in this attempt.
pub(crate) type CallNumber = (u32, u32);

/// The choice that lets a call leave the host.
pub(crate) const ALLOW: &str = "allow";
pub(crate) const DENY: &str = "deny";

/// Returns the question that asks a person whether a call may leave the host, with the choices [`ALLOW`] and
/// [`DENY`].
pub(crate) fn permission(prompt: String) -> Question {
    let choice = |value: &str| Choice { value: value.into(), label: None };
    Question { prompt, choices: vec![choice(ALLOW), choice(DENY)], ..Question::default() }
}

/// The calls of one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CallLog {
    /// Number of calls begun in this attempt.
    pub(crate) begun: u32,
    /// By digest: the number of calls that this attempt had begun up to its last checkpoint.
    pub(crate) asked: HashMap<CallDigest, u32>,
    /// The steps of this attempt since its last checkpoint, in order.
    pub(crate) steps: Vec<LogStep>,
    /// The ends of calls since the last checkpoint, in order.
    pub(crate) ended: Vec<Ended>,
    /// Replies of `once` calls of all attempts, by idempotency key.
    pub(crate) once: HashMap<Arc<str>, Reply>,
    /// The calls of this attempt that no longer wait for approval, by their numbers. True: a person has answered.
    /// False: the time to answer has ended.
    pub(crate) decided: BTreeMap<u32, bool>,
    /// Calls without a final reply, by attempt and ordinal. [`OpenCallState`] has the state of each.
    open: BTreeMap<CallNumber, OpenCall>,
}

/// One recorded step of an attempt: an observation or the beginning of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LogStep {
    Observed(Observed),
    Begun { ordinal: u32, digest: CallDigest },
}

/// The end of a call, with its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) ordinal: u32,
    pub(crate) ts: u64,
    pub(crate) reply: Reply,
}

#[derive(Clone, Debug, PartialEq)]
struct OpenCall {
    effect: Effect,
    key: Arc<str>,
    digest: CallDigest,
    interface: Arc<str>,
    function: Arc<str>,
    about: Json,
    agent: Option<Box<ForAgent>>,
    /// The question that a person had to answer before the call.
    prompt: Option<Box<str>>,
    state: OpenCallState,
    /// Number of processes that ended while the call was in progress.
    lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenCallState {
    /// A person has to allow the call before this time (milliseconds since 1970).
    Asked(u64),
    /// The call has left the host, or is about to.
    Out,
    /// The call has ended, but its end is unknown.
    Ambiguous,
    /// A person has decided that the call did not happen. When the repeated attempt reaches the call, the driver makes
    /// it again.
    Again,
}

impl CallLog {
    /// Prepares the log for a new attempt, or for the end of the task. Keeps the replies of `once` calls, and the
    /// open `once` calls that do not wait for approval.
    pub(crate) fn new_attempt(&mut self) {
        self.checkpoint();
        self.begun = 0;
        self.asked.clear();
        self.decided.clear();
        self.open.retain(|_, open| open.effect == Effect::Once && !matches!(open.state, OpenCallState::Asked(_)));
    }

    /// Records a checkpoint: the attempt continues in another sandbox, and does not repeat its earlier steps.
    pub(crate) fn checkpoint(&mut self) {
        for step in self.steps.drain(..) {
            if let LogStep::Begun { digest, .. } = step {
                *self.asked.entry(digest).or_default() += 1;
            }
        }
        self.ended.clear();
    }

    /// Adds the observations that an attempt made before a recorded step.
    pub(crate) fn observe(&mut self, before: &[Observed]) {
        self.steps.extend(before.iter().cloned().map(LogStep::Observed));
    }

    pub(crate) fn begin(&mut self, attempt: u32, call: &CallRecord) {
        self.begun = call.ordinal;
        self.observe(&call.before);
        self.steps.push(LogStep::Begun { ordinal: call.ordinal, digest: call.digest.clone() });
        let open = OpenCall {
            effect: call.effect,
            key: call.key.clone(),
            digest: call.digest.clone(),
            interface: call.interface.clone(),
            function: call.function.clone(),
            about: call.about.clone(),
            agent: call.agent.clone(),
            prompt: call.ask.as_ref().map(|ask| ask.prompt.as_str().into()),
            state: call.ask.as_ref().map_or(OpenCallState::Out, |ask| OpenCallState::Asked(ask.expires)),
            lost: 0,
        };
        self.open.insert((attempt, call.ordinal), open);
    }

    /// Records the end of a call. `current` is the number of the task's present attempt; the call may belong to an
    /// earlier attempt, which then receives no reply. A `once` call with the failure `ambiguous` stays open, because it
    /// is unknown whether the call happened.
    pub(crate) fn end(&mut self, current: u32, (attempt, ordinal): CallNumber, ts: u64, reply: &Reply) {
        let Some(open) = self.open.get_mut(&(attempt, ordinal)) else { return };
        if open.effect == Effect::Once {
            if is_ambiguous(reply) {
                open.state = OpenCallState::Ambiguous;
                return;
            }
            // A failure that is not ambiguous means that nothing happened, so a retry may make the call.
            if reply.is_ok() {
                self.once.insert(open.key.clone(), reply.clone());
            }
        }
        self.open.remove(&(attempt, ordinal));
        if attempt == current {
            self.ended.push(Ended { ordinal, ts, reply: reply.clone() });
        }
    }

    /// Counts a lost process for every call in progress. Skips `once` calls, because a person is asked about them
    /// instead.
    pub(crate) fn count_lost_process(&mut self) {
        let lost =
            self.open.values_mut().filter(|open| open.state == OpenCallState::Out && open.effect != Effect::Once);
        lost.for_each(|open| open.lost += 1);
    }

    /// Returns the number of processes that ended while this open call was in progress.
    pub(crate) fn lost_processes(&self, call: CallNumber) -> u32 {
        self.open.get(&call).map_or(0, |open| open.lost)
    }

    /// Records that a call did not happen, as a person has decided. A call of the current attempt is made again. A call
    /// of an earlier attempt is forgotten.
    pub(crate) fn repeat(&mut self, current: u32, call: CallNumber) {
        if call.0 != current {
            self.open.remove(&call);
        } else if let Some(open) = self.open.get_mut(&call) {
            open.state = OpenCallState::Again;
        }
    }

    /// Marks a call as leaving the host, for the first time or again.
    pub(crate) fn mark_out(&mut self, call: CallNumber) {
        if let Some(open) = self.open.get_mut(&call) {
            open.state = OpenCallState::Out;
        }
    }

    /// Records whether a call may leave the host. `answered`: true if a person decided, false if the time to decide
    /// ended.
    pub(crate) fn decide(&mut self, call: CallNumber, allowed: bool, answered: bool) {
        self.decided.insert(call.1, answered);
        if allowed {
            self.mark_out(call);
        }
    }

    /// Returns the digest of a call without a final reply.
    pub(crate) fn digest_of(&self, call: CallNumber) -> Option<&CallDigest> {
        self.open.get(&call).map(|open| &open.digest)
    }

    /// Records the reply that a person has set for a call.
    pub(crate) fn settle(&mut self, current: u32, call: CallNumber, ts: u64, reply: Value) {
        self.end(current, call, ts, &Ok(reply));
    }

    /// Returns the calls in progress: attempt, ordinal and effect.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (CallNumber, Effect)> {
        self.open.iter().filter(|(_, open)| open.state == OpenCallState::Out).map(|(call, open)| (*call, open.effect))
    }

    /// Returns the calls that wait for approval, with the question and its expiry.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (CallNumber, &str, u64)> {
        self.open.iter().filter_map(|(call, open)| match open.state {
            OpenCallState::Asked(expires) => Some((*call, open.prompt.as_deref().unwrap_or_default(), expires)),
            _ => None,
        })
    }

    /// Returns the agent run that made an open call, and the capability of the call.
    pub(crate) fn agent_of(&self, call: CallNumber) -> Option<(&ForAgent, &str)> {
        let open = self.open.get(&call)?;
        Some((open.agent.as_deref()?, &open.interface))
    }

    /// Returns true if this call is in progress.
    pub(crate) fn is_under_way(&self, call: CallNumber) -> bool {
        self.open.get(&call).is_some_and(|open| open.state == OpenCallState::Out)
    }

    /// Returns true if the attempt has to make this call again.
    pub(crate) fn is_to_repeat(&self, call: CallNumber) -> bool {
        self.open.get(&call).is_some_and(|open| open.state == OpenCallState::Again)
    }

    /// Returns the first call with an unknown end. A person has to decide whether this call happened.
    pub(crate) fn ambiguous(&self) -> Option<BlockReason> {
        let ((attempt, ordinal), open) = self.open.iter().find(|(_, open)| open.state == OpenCallState::Ambiguous)?;
        Some(BlockReason::Ambiguous {
            attempt: *attempt,
            ordinal: *ordinal,
            interface: open.interface.clone(),
            function: open.function.clone(),
            about: open.about.clone(),
        })
    }
}

/// Returns true if the reply is the failure `ambiguous`: it is unknown whether the call happened.
pub(crate) fn is_ambiguous(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(|failure| failure.code == code::AMBIGUOUS)
}

impl CallDigest {
    /// Returns the digest of a call. The order of an object's members does not matter.
    pub(crate) fn of(interface: &str, function: &str, args: &Json) -> CallDigest {
        let mut hasher = Sha256::new();
        hash_text(interface, &mut hasher);
        hash_text(function, &mut hasher);
        hash(args, &mut hasher);
        CallDigest(hex(hasher).into())
    }
}

/// Returns the idempotency key of a call. `occurrence` is the number of earlier calls with the same digest in the
/// attempt. A call that is made again in another attempt, resume or retry of its task has the same key.
pub(crate) fn key(root: &str, task: &str, digest: &CallDigest, occurrence: u32) -> Arc<str> {
    let mut hasher = Sha256::new();
    for text in ["flowcell call 1", root, task, &digest.0] {
        hash_text(text, &mut hasher);
    }
    hasher.update(occurrence.to_le_bytes());
    hex(hasher).into()
}

/// Returns the first 128 bits of the hash in hexadecimal.
fn hex(hasher: Sha256) -> String {
    hex::encode(&hasher.finalize()[..16])
}

fn hash_text(text: &str, hasher: &mut Sha256) {
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text);
}

fn hash(json: &Json, hasher: &mut Sha256) {
    match json {
        Json::Null => hasher.update(b"n"),
        Json::Bool(value) => hasher.update(if *value { b"t" } else { b"f" }),
        Json::Number(number) => {
            hasher.update(b"#");
            hash_text(&number.to_string(), hasher);
        }
        Json::String(text) => {
            hasher.update(b"s");
            hash_text(text, hasher);
        }
        Json::Array(items) => {
            hasher.update(b"[");
            hasher.update((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| hash(item, hasher));
        }
        Json::Object(members) => {
            hasher.update(b"{");
            hasher.update((members.len() as u64).to_le_bytes());
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            for (name, value) in members {
                hash_text(name, hasher);
                hash(value, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn digest(args: &str) -> CallDigest {
        CallDigest::of("http", "send", &Json::parse(args).unwrap())
    }

    #[test]
    fn a_digest_is_of_the_content() {
        assert_eq!(digest(r#"{"a":[1,"x"],"b":null}"#), digest(r#"{ "b": null, "a": [1, "x"] }"#));
        let different = ["{}", "[]", "null", "\"\"", "[[]]", r#"{"a":1}"#, r#"{"a":"1"}"#, r#"["a",1]"#, r#"["a1"]"#];
        for (index, one) in different.iter().enumerate() {
            assert!(different[..index].iter().all(|other| digest(one) != digest(other)), "{one}");
        }
    }

    #[test]
    fn a_key_tells_runs_tasks_and_repetitions_apart() {
        let one = digest("{}");
        let keys = [key("r", "t", &one, 0), key("r", "t", &one, 1), key("r2", "t", &one, 0), key("r", "t2", &one, 0)];
        assert!((0..keys.len()).all(|index| !keys[..index].contains(&keys[index])));
        assert_eq!(keys[0], key("r", "t", &one, 0));
    }
}
