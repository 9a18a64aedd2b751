//! The deciders: given the state and something that came in, what happens now.
//!
//! [`decide`] evaluates conditions, looks references up and picks delays; every consequence is a fact, applied at once
//! so that the next question sees it. It never awaits, reads a clock or draws a random number: time and entropy are
//! arguments. All facts of one decision are appended to the journal as one unit. A decision costs as much as the edges
//! it settles.

mod agents;
mod arrive;
mod calls;
mod close;
mod passes;
mod replies;
mod settle;

use std::collections::VecDeque;

use flowcell_contract::{Failure, Json, Question, StepResult, Value};

use crate::{
    call_log::Reply,
    command::{HubError, RunCommand},
    fact::{AgentFact, CallRecord, CancelReason, Fact, Note, Observed, ScopeId, TaskKey, Write},
    outstanding::Timer,
    state::{Phase, RunState},
};

/// Something that came in.
#[derive(Debug)]
pub enum Input {
    /// The run is to begin.
    Start {
        /// Defaults and the caller's members.
        input: Json,
        /// The seed of the run.
        seed: u64,
    },
    /// Somebody goes on driving the run.
    Resume {
        /// A person asked for it.
        by_hand: bool,
        /// Nothing else is driven in the process.
        alone: bool,
    },
    /// Other runs begin in the process.
    Accompanied,
    /// What can begin may begin, after the run was resumed.
    Proceed,
    /// Nobody drives the run any more, until something moves it on.
    Park {
        /// When its next timer is due.
        due: Option<u64>,
        /// Somebody has to decide something, in it or in a child.
        needs_attention: bool,
    },
    /// An attempt answered.
    Answered {
        /// Whose.
        task: TaskKey,
        /// Which attempt, after how many resumes: a later one is not meant.
        attempt: (u32, u32),
        /// What it answered.
        result: StepResult,
        /// If it paused: the state that it has written so far, for nobody else to see yet.
        writes: Vec<Write>,
        /// What it was told since its last recorded call.
        heard: Box<[Observed]>,
    },
    /// A timer is due.
    Due(Timer),
    /// A child run ended.
    ChildEnded {
        /// The task that called it.
        task: TaskKey,
        /// In which attempt.
        attempt: u32,
        /// Its outputs.
        result: Result<Value, Failure>,
    },
    /// A task tells something besides its outcome.
    Note {
        /// Which task.
        task: TaskKey,
        /// What.
        note: Note,
    },
    /// A running attempt tells of its agent runs.
    Told {
        /// Whose.
        task: TaskKey,
        /// Which attempt, after how many resumes.
        attempt: (u32, u32),
        /// What.
        told: AgentFact,
        /// What it was told since its last recorded call.
        before: Box<[Observed]>,
    },
    /// A running attempt waits for people alone.
    Waits {
        /// Whose.
        task: TaskKey,
        /// Which attempt, after how many resumes.
        attempt: (u32, u32),
        /// How long at most.
        due: Option<u64>,
    },
    /// It has waited as long as it wanted to.
    Waited {
        /// Whose.
        task: TaskKey,
        /// Which attempt, after how many resumes.
        attempt: (u32, u32),
    },
    /// A running attempt begins a call that leaves the host.
    Call {
        /// Whose.
        task: TaskKey,
        /// Which attempt, after how many resumes.
        attempt: (u32, u32),
        /// Which call.
        call: Box<CallRecord>,
        /// Its reply, if an earlier attempt has recorded it.
        reply: Option<Reply>,
    },
    /// A repeated attempt is back at a call that has no recorded end.
    CallAgain {
        /// Whose.
        task: TaskKey,
        /// In which attempt it was begun.
        attempt: u32,
        /// Which of its calls.
        ordinal: u32,
    },
    /// A call has ended.
    CallEnded {
        /// Whose.
        task: TaskKey,
        /// In which attempt it was begun.
        attempt: u32,
        /// Which of its calls.
        ordinal: u32,
        /// The reply.
        reply: Reply,
    },
    /// A repeated attempt asked for something else than it did the first time.
    Diverged {
        /// Whose.
        task: TaskKey,
        /// Which attempt, after how many resumes.
        attempt: (u32, u32),
        /// What is different.
        message: Box<str>,
    },
    /// A command to the run.
    Command(RunCommand),
}

/// A source of random numbers, owned by whoever calls.
pub trait Entropy {
    /// Draws a number.
    fn draw(&mut self) -> u64;
}

/// Decides what happens now, applies it to the state and returns it. Nothing happens if the input is refused.
pub fn decide(state: &mut RunState, input: Input, now: u64, entropy: &mut dyn Entropy) -> Result<Vec<Fact>, HubError> {
    let mut decider =
        Decider { state, now, entropy, facts: Vec::new(), ended: VecDeque::new(), check: VecDeque::new() };
    // Nothing begins before it is durable that the run was resumed.
    let dispatches = !matches!(input, Input::Resume { .. });
    decider.arrive(input)?;
    if decider.state.is_too_large() && decider.state.end.is_none() {
        decider.cancel(CancelReason::TooLarge);
    }
    decider.settle();
    if dispatches {
        decider.dispatch();
    }
    Ok(decider.facts)
}

struct Decider<'a> {
    state: &'a mut RunState,
    now: u64,
    entropy: &'a mut dyn Entropy,
    facts: Vec<Fact>,
    /// Tasks that ended and whose edges are not settled yet.
    ended: VecDeque<TaskKey>,
    /// Scopes that may have come to their end.
    check: VecDeque<ScopeId>,
}

impl Decider<'_> {
    fn emit(&mut self, fact: Fact) {
        self.state.apply(&fact, self.now);
        self.facts.push(fact);
    }

    /// Gives free permits to the tasks that wait longest.
    fn dispatch(&mut self) {
        if self.state.end.is_some() {
            return;
        }
        while self.state.running < self.state.policy.max_concurrency
            && let Some(task) = self.state.queue.front().copied()
        {
            self.emit(match self.state.task(task).phase {
                Phase::Woken => Fact::TaskResumed { task },
                Phase::Resolved => Fact::AttemptRepeated { task },
                _ => Fact::AttemptStarted { task },
            });
        }
    }

    fn cancel(&mut self, reason: CancelReason) {
        if self.state.cancel.is_none() {
            self.emit(Fact::CancelRequested { reason });
            self.close_scope(ScopeId::ROOT);
        }
    }
}

/// Checks an answer against its question. Answers what the node is to receive.
fn check_answer(question: &Question, answer: &Json) -> Result<Json, String> {
    let content = answer.get("content").and_then(Json::as_str);
    let choice = answer.get("choice").and_then(Json::as_str).or(content);
    if let Some(chosen) = question.choices.iter().find(|option| Some(option.value.as_str()) == choice) {
        let content = content.unwrap_or(&chosen.value);
        return Ok(Json::object([("content", Json::from(content)), ("choice", Json::from(chosen.value.as_str()))]));
    }
    let choices: Vec<_> = question.choices.iter().map(|option| option.value.as_str()).collect();
    match content {
        Some(content) if question.choices.is_empty() || question.allow_text => {
            Ok(Json::object([("content", Json::from(content))]))
        }
        Some(_) => Err(format!("the answer must be one of: {}", choices.join(", "))),
        None => Err("the answer has no `content`".into()),
    }
}
