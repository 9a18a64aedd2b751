//! The identity of a question. An answer that names a question counts for no other question.
//!
//! A gate's address and a call's number stay the same when an attempt is repeated, or a pass or child run begins
//! again. The attempt and the digest distinguish such questions.

use flowcell_contract::{Json, Question, Wake};
use serde::{Deserialize, Serialize};

use crate::{
    fact::{CallDigest, TaskKey},
    state::{LastQuestion, Phase, RunState, Task},
};

/// The question that an answer is meant for. A member that is missing fits every question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionRef {
    /// The attempt of the node that asked, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The digest of the question: 32 hexadecimal digits. It covers the run, the pass, the attempt and the whole
    /// question. For a call, it covers the tool with its exact arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Box<str>>,
}

/// The reason why the run did not accept an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closed {
    /// The run has no node at this address, or the pass has ended.
    NoNode,
    /// The node has not made this call.
    NoCall,
    /// The node may still ask, and has no open question.
    NotAsked,
    /// A person has already answered.
    Answered,
    /// The time for an answer has ended.
    Expired,
    /// The node has ended or was skipped.
    Ended,
    /// The answer names one attempt, and another one is current.
    OtherAttempt {
        /// The number of the attempt in the answer.
        named: u32,
        /// The current attempt of the node.
        current: u32,
    },
    /// The answer names one question, and another one is open.
    OtherQuestion {
        /// The digest in the answer.
        named: Box<str>,
        /// The digest of the open question.
        open: Box<str>,
    },
}

impl Closed {
    /// Returns a sentence that says what happened and what to do.
    pub fn message(&self) -> String {
        match self {
            Closed::NoNode => "the run has no node at this address now; check the address".into(),
            Closed::NoCall => "the node has no call with this number; check the address".into(),
            Closed::NotAsked => "the node has not asked this question yet".into(),
            Closed::Answered => "the question is already answered".into(),
            Closed::Expired => "the question has timed out".into(),
            Closed::Ended => "the node has ended or was skipped, so it asks no question now".into(),
            Closed::OtherAttempt { named, current } => format!(
                "the answer is for attempt {named}, but the node is at attempt {current}; read and answer its present \
                 question"
            ),
            Closed::OtherQuestion { named, open } => format!(
                "the answer is for the question `{named}`, but the question `{open}` is open; read and answer that one"
            ),
        }
    }
}

impl QuestionRef {
    /// Reads the members `attempt` and `digest` of a question, in the form that events and the HTTP interface show.
    pub fn of_json(question: &Json) -> QuestionRef {
        let attempt = question.get("attempt").and_then(Json::as_u64).and_then(|attempt| u32::try_from(attempt).ok());
        QuestionRef { attempt, digest: question.get("digest").and_then(Json::as_str).map(Into::into) }
    }

    /// Returns true if the reference names no question.
    pub fn is_empty(&self) -> bool {
        *self == QuestionRef::default()
    }

    /// Returns the reference to a gate's question. `resumes` distinguishes the questions of one attempt.
    pub(crate) fn of_gate(seed: u64, key: TaskKey, attempt: u32, resumes: u32, question: &Question) -> QuestionRef {
        let whole = serde_json::to_value(question).map(Json::from).unwrap_or_default();
        QuestionRef::of(seed, key, (attempt, resumes), &CallDigest::of("gate", "ask", &whole))
    }

    /// Returns the reference to the question whether a call may leave.
    pub(crate) fn of_call(seed: u64, key: TaskKey, call: (u32, u32), digest: &CallDigest) -> QuestionRef {
        QuestionRef::of(seed, key, call, digest)
    }

    fn of(seed: u64, key: TaskKey, (attempt, index): (u32, u32), content: &CallDigest) -> QuestionRef {
        let place = [seed, key.scope.0.into(), key.node.0.into(), attempt.into(), index.into()];
        let digest = CallDigest::of("question", &content.0, &Json::array(place.map(Json::from)));
        QuestionRef { attempt: Some(attempt), digest: Some(digest.0) }
    }

    /// Returns an error if this reference names another attempt or another question than the open one.
    pub fn check(&self, open: &QuestionRef) -> Result<(), Closed> {
        if let (Some(named), Some(current)) = (self.attempt, open.attempt)
            && named != current
        {
            return Err(Closed::OtherAttempt { named, current });
        }
        match (&self.digest, &open.digest) {
            (Some(named), Some(open)) if named != open => {
                Err(Closed::OtherQuestion { named: named.clone(), open: open.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Returns true if a question may still open at an address: its task has not ended. If the task has not begun,
/// the innermost task around it that has begun must not have ended.
pub(crate) fn may_ask(state: &RunState, address: &str) -> bool {
    let here = address.split(['/', '#']).next().unwrap_or(address);
    let mut path = Some(here);
    // A pass that has not begun is inside a task that has begun.
    while let Some(task) = path {
        if let Some(key) = state.task_at(task) {
            return !state.task(key).phase.is_end();
        }
        path = task.rsplit_once('.').map(|(owner, _)| owner.rsplit_once('[').map_or(owner, |(owner, _)| owner));
    }
    // The address is the id of a node, and stands for the node in every pass.
    true
}

/// Returns the open question of a paused task, with the index of its wake.
pub(crate) fn gate(state: &RunState, key: TaskKey) -> Option<(usize, &Question, QuestionRef)> {
    let task = state.find(key).filter(|task| task.phase == Phase::Paused)?;
    let until = &task.details.as_ref()?.pause.as_ref()?.until;
    until.iter().enumerate().find_map(|(index, wake)| match wake {
        Wake::Answer(question) => {
            let asked = QuestionRef::of_gate(state.seed, key, task.attempt, task.resumes, question);
            Some((index, question, asked))
        }
        _ => None,
    })
}

/// Returns the open question whether a call of a task may leave: the attempt and ordinal of the call, and the
/// reference to the question. `None`: no such question is open.
pub(crate) fn permission(state: &RunState, key: TaskKey, ordinal: u32) -> Option<((u32, u32), QuestionRef)> {
    let calls = state.find(key)?.calls.as_ref()?;
    let (call, ..) = calls.asked().find(|(call, ..)| call.1 == ordinal)?;
    Some((call, QuestionRef::of_call(state.seed, key, call, calls.digest_of(call)?)))
}

/// Returns the reason why a task has no open question for an answer. `ordinal` is the number of the call that the
/// answer is about; `None`: the answer is about a gate. `named` is the question that the answer refers to.
pub(crate) fn why_closed(state: &RunState, key: TaskKey, ordinal: Option<u32>, named: &QuestionRef) -> Closed {
    let Some(task) = state.find(key) else { return Closed::NoNode };
    match named.attempt {
        Some(named) if named != task.attempt => Closed::OtherAttempt { named, current: task.attempt },
        _ => ordinal.map_or_else(|| closed_gate(task), |ordinal| closed_call(task, ordinal)),
    }
}

fn closed_gate(task: &Task) -> Closed {
    match task.last_question {
        Some(LastQuestion::Answered) => Closed::Answered,
        Some(LastQuestion::OtherWake) => Closed::Expired,
        None if task.phase.is_end() => Closed::Ended,
        None => Closed::NotAsked,
    }
}

fn closed_call(task: &Task, ordinal: u32) -> Closed {
    if task.phase.is_end() {
        return Closed::Ended;
    }
    let calls = task.calls.as_ref();
    match calls.and_then(|calls| calls.decided.get(&ordinal)) {
        Some(true) => Closed::Answered,
        Some(false) => Closed::Expired,
        None if calls.is_some_and(|calls| (1..=calls.begun).contains(&ordinal)) => Closed::NotAsked,
        None => Closed::NoCall,
    }
}
