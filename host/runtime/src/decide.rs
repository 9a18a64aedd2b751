//! The deciders. From the state and an input they determine the next facts.
//!
//! [`decide`] evaluates conditions, resolves references and chooses delays. Every consequence is a fact. [`decide`]
//! applies each fact at once so that later decisions see it. `decide` never awaits, reads a clock or draws a random
//! number: time and entropy are arguments.
//!
//! All facts of one decision are appended to the journal as one unit. The cost of a decision is proportional to the
//! number of edges that it settles.
//!
//! A module uses only modules that stand below it in this table:
//!
//! | module | contents |
//! |---|---|
//! | `arrive` | inputs: starts, answers of attempts, due timers, commands, ends of child runs |
//! | `migrate` | moves to other versions of the flow |
//! | `settle` | the ends of tasks, of scopes and of the run |
//! | `cycles` | passes of cycles of edges |
//! | `edges` | edges and joins |
//! | `calls` | starts of calls that leave the host, and blocked tasks |
//! | `undo` | undos of succeeded tasks |
//! | `passes` | passes of bodies |
//! | `close` | ends of tasks in cancelled scopes or after timeouts |
//! | `ready` | opens, skips or fails a task |
//! | `call_ends` | ends of calls that leave the host |
//! | `agents` | agent runs and their messages |
//! | `replies` | checks the replies that people give for calls |
//! | `quotas` | holds attempts and calls while a quota is used up |

mod agents;
mod arrive;
mod call_ends;
mod calls;
mod close;
mod cycles;
mod edges;
mod migrate;
mod passes;
mod quotas;
mod race;
mod ready;
mod replies;
mod settle;
mod undo;

use std::collections::{BTreeSet, VecDeque};

use flowcell_contract::{Failure, Json, Question, StepResult, Value};
use flowcell_flow::graph::CycleIx;

use crate::{
    call_log::Reply,
    command::{HubError, RunCommand},
    fact::{
        AboutRun, AgentFact, CallRecord, CancelReason, Fact, Migrated, Note, Observed, ScopeId, TaskKey, WaitsFor,
        Write,
    },
    outstanding::Timer,
    quota::QuotaHold,
    result::{Idle, Waiting},
    state::{Phase, RunState},
};

/// An input of the deciders.
#[derive(Debug)]
pub enum Input {
    /// Begins the run.
    Start {
        /// The input of the flow: the members that the caller of the run set, and defaults for missing ones.
        input: Json,
        /// The seed of the run's random numbers.
        seed: u64,
        /// The facts about the run that expressions can read.
        about: Option<Box<AboutRun>>,
    },
    /// Continues the run with a new driver.
    Resume {
        /// True if a person requested the resumption.
        by_hand: bool,
        /// True if the process drives no other run.
        alone: bool,
    },
    /// The process has begun to drive other runs besides this one.
    Accompanied,
    /// The resumption of the run is durable, so its tasks may begin.
    Proceed,
    /// Parks the run until an event wakes it.
    Park {
        /// The time at which the run's next timer is due (milliseconds since 1970).
        due: Option<u64>,
        /// True if a person has to decide something, in the run or in a child run.
        needs_attention: bool,
        /// The first item that the run waits for. `None`: only a timer.
        waits_for: Option<Box<WaitsFor>>,
        /// The quota because of which tasks of the run or of a child run wait.
        quota: Option<Box<QuotaHold>>,
    },
    /// An attempt has answered.
    Answered {
        /// The task that the attempt belongs to.
        task: TaskKey,
        /// The attempt and its number of resumes. The deciders ignore an answer of another attempt.
        attempt: (u32, u32),
        /// The answer of the attempt.
        result: StepResult,
        /// If the attempt paused: the state that it has written so far, which other runs do not see yet.
        writes: Vec<Write>,
        /// The attempt's observations since its last recorded call.
        heard: Box<[Observed]>,
    },
    /// A timer is due.
    Due(Timer),
    /// A child run ended.
    ChildEnded {
        /// The task that called the child.
        task: TaskKey,
        /// The attempt that called the child.
        attempt: u32,
        /// The outputs of the child, or its failure.
        result: Result<Value, Failure>,
    },
    /// A task writes a line to the log, or records a measurement.
    Note {
        /// The task that reports.
        task: TaskKey,
        /// The report of the task.
        note: Note,
    },
    /// A running attempt reports on its agent runs.
    AgentReport {
        /// The task that the attempt belongs to.
        task: TaskKey,
        /// The attempt and its number of resumes.
        attempt: (u32, u32),
        /// The report on an agent run.
        report: AgentFact,
        /// The attempt's observations since its last recorded call.
        before: Box<[Observed]>,
    },
    /// A running attempt waits only for people.
    AttemptIdle {
        /// The task that the attempt belongs to.
        task: TaskKey,
        /// The attempt and its number of resumes.
        attempt: (u32, u32),
        /// The time at which the wait ends at the latest (milliseconds since 1970). `None`: no limit.
        due: Option<u64>,
    },
    /// The time limit of an attempt's wait has passed, so the attempt continues.
    AttemptBusy {
        /// The task that the attempt belongs to.
        task: TaskKey,
        /// The attempt and its number of resumes.
        attempt: (u32, u32),
    },
    /// A running attempt begins a call that leaves the host.
    Call {
        /// The task that makes the call.
        task: TaskKey,
        /// The attempt and its number of resumes.
        attempt: (u32, u32),
        /// The call to record.
        call: Box<CallRecord>,
        /// The reply to the call, if an earlier attempt has recorded it.
        reply: Option<Reply>,
    },
    /// A repeated attempt is back at a call that has no recorded end.
    CallAgain {
        /// The task that made the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// A call has not left, because a quota is used up.
    CallHeld {
        /// The task that makes the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
        /// The quota that is used up.
        hold: QuotaHold,
    },
    /// A call has ended.
    CallEnded {
        /// The task that made the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
        /// The reply to the call.
        reply: Reply,
    },
    /// A repeated attempt took another step than when it first ran.
    Diverged {
        /// The task that the attempt belongs to.
        task: TaskKey,
        /// The attempt and its number of resumes.
        attempt: (u32, u32),
        /// The difference between the two attempts.
        message: Box<str>,
    },
    /// Moves the run to another version of its flow, whose graph [`RunState`] already has, and parks it.
    Migrate(Box<Migrated>),
    /// A command to the run.
    Command(RunCommand),
}

impl Input {
    /// Returns the input that parks an idle run.
    pub(crate) fn park(idle: Idle) -> Input {
        let needs_attention = idle.waiting.iter().any(Waiting::needs_attention);
        Input::Park {
            due: idle.due,
            needs_attention,
            waits_for: idle.first_wait().map(Box::new),
            quota: idle.quota.map(Box::new),
        }
    }
}

/// A source of random numbers, owned by the caller.
pub trait Entropy {
    /// Draws a random number.
    fn draw(&mut self) -> u64;
}

/// Decides about an input, applies the facts to the state and returns them. A refused input changes nothing.
pub fn decide(state: &mut RunState, input: Input, now: u64, entropy: &mut dyn Entropy) -> Result<Vec<Fact>, HubError> {
    let (ended, rounds, stopped, check) = Default::default();
    let mut decider = Decider { state, now, entropy, facts: Vec::new(), ended, rounds, stopped, check };
    // No attempt begins before the resumption of the run is durable, and none begins when the run parks.
    let dispatches = !matches!(input, Input::Resume { .. } | Input::Park { .. } | Input::Migrate(_));
    arrive::handle_input(&mut decider, input)?;
    if decider.state.is_too_large() && decider.state.end.is_none() {
        decider.cancel(CancelReason::TooLarge);
    }
    settle::settle(&mut decider);
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
    /// Cycles whose pass may have ended.
    rounds: VecDeque<(ScopeId, CycleIx)>,
    /// Cycles that this decision has ended, because their passes followed each other without a pause.
    stopped: BTreeSet<(ScopeId, CycleIx)>,
    /// Scopes that may have ended.
    check: VecDeque<ScopeId>,
}

impl Decider<'_> {
    fn emit(&mut self, fact: Fact) {
        self.state.apply(&fact, self.now);
        self.facts.push(fact);
    }

    fn wake(&mut self, task: TaskKey, index: u32, outcome: Result<Value, Failure>) {
        self.emit(Fact::TaskWoken { task, index, outcome: outcome.map_err(Box::new) });
    }

    /// Starts queued tasks, the longest waiting first, until the run has the maximum number of running attempts. While a
    /// quota is used up, starts none.
    fn dispatch(&mut self) {
        if self.state.end.is_some() {
            return;
        }
        while self.state.running < self.state.policy.max_concurrency
            && let Some(task) = self.state.queue.front().copied()
            && !quotas::is_held(self)
        {
            self.emit(match self.state.task(task).phase {
                Phase::Woken => Fact::TaskResumed { task },
                Phase::Resolved => Fact::AttemptRepeated { task },
                _ => Fact::AttemptStarted { task },
            });
        }
    }

    fn cancel(&mut self, reason: CancelReason) {
        // A run that undoes its tasks has ended but for that, and undoes all of them.
        if self.state.cancel.is_none() && !self.state.is_undoing() {
            self.emit(Fact::CancelRequested { reason });
            close::scope(self, ScopeId::ROOT);
        }
    }
}

/// Checks an answer against its question, and returns the value for the node.
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
