//! What a run waits for: attempts, timers, child runs, calls, questions and events that have no answer yet.
//!
//! Recovery applies all facts and then calls [`outstanding`]. A property test checks after every fact that
//! the result equals what was begun and has not ended.

use std::sync::Arc;

use flowcell_contract::{Question, Value, Wake};

use crate::{
    call_log::permission,
    fact::{BlockReason, TaskKey},
    limits::CALL_GRACE_MS,
    state::{Phase, RunState},
};

/// A delay or time limit of a run, with the item that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// `timeoutMs` of a running attempt.
    Attempt {
        /// The task with the running attempt.
        task: TaskKey,
        /// The number of the attempt.
        attempt: u32,
        /// The number of resumes of the attempt.
        resumes: u32,
    },
    /// The time limit for a person to allow a call.
    Ask {
        /// The task that makes the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// The maximum time that an attempt waits for people.
    Idle {
        /// The task whose attempt waits.
        task: TaskKey,
        /// The number of the attempt.
        attempt: u32,
        /// The number of resumes of the attempt.
        resumes: u32,
    },
    /// The delay before another attempt.
    Retry {
        /// The task that failed.
        task: TaskKey,
        /// The attempt before the delay.
        attempt: u32,
    },
    /// The timer of a pause.
    After {
        /// The task that paused.
        task: TaskKey,
        /// The number of the attempt.
        attempt: u32,
        /// The number of resumes of the attempt.
        resumes: u32,
        /// The index of the wake in the pause.
        index: u32,
    },
    /// `totalTimeoutMs` of a node.
    Total {
        /// The task with the time limit.
        task: TaskKey,
    },
    /// The maximum time that a closing task waits for the ends of its calls.
    Grace {
        /// The task that is closing.
        task: TaskKey,
    },
    /// `totalTimeoutMs` of the flow.
    Flow,
    /// The renewal of a quota that is used up.
    Quota,
}

/// One item that the run waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Outstanding {
    /// The answer of a running attempt.
    Attempt {
        /// The task with the running attempt.
        task: TaskKey,
        /// The number of the attempt.
        attempt: u32,
        /// The number of resumes of the attempt.
        resumes: u32,
    },
    /// A timer, with the time at which it is due (milliseconds since 1970).
    Timer(Timer, u64),
    /// The end of a child run.
    Child {
        /// The task that called the child.
        task: TaskKey,
        /// The attempt that called the child.
        attempt: u32,
        /// The name of the flow.
        name: Arc<str>,
        /// The input of the child run.
        input: Value,
        /// True if the task is closing and no longer needs the child run.
        cancelled: bool,
    },
    /// An answer of a person.
    Question {
        /// The task that asks.
        task: TaskKey,
        /// The question that is open.
        question: Question,
    },
    /// Messages of people to an agent run.
    Messages {
        /// The task of the agent run.
        task: TaskKey,
        /// The id of the agent run.
        agent_run: Arc<str>,
    },
    /// The permission for a call to leave.
    Permission {
        /// The task that makes the call.
        task: TaskKey,
        /// The number of the call in its attempt.
        ordinal: u32,
        /// The question that is open.
        question: Question,
    },
    /// A decision of a person.
    Decision {
        /// The blocked task.
        task: TaskKey,
        /// The reason why the task cannot continue.
        reason: BlockReason,
    },
    /// The end of a call that has left the host.
    Call {
        /// The task that made the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// A named event.
    Event {
        /// The task that waits.
        task: TaskKey,
        /// The name of the event.
        name: Arc<str>,
    },
}

/// Returns the time at which a timer is due (milliseconds since 1970). `None`: the timer no longer applies.
pub fn due(state: &RunState, timer: &Timer) -> Option<u64> {
    match *timer {
        Timer::Attempt { task: key, attempt, resumes } => {
            let task = state.find(key)?;
            let meant = task.phase == Phase::Running && (task.attempt, task.resumes) == (attempt, resumes);
            let meant = meant && !task.idle;
            let left = state.graph.node(key.node).policy.timeout_ms.saturating_sub(task.ran_ms);
            meant.then(|| task.since.saturating_add(left))
        }
        Timer::Retry { task: key, attempt } => {
            let task = state.find(key)?;
            // A call that must not be made twice ends before another attempt begins.
            let meant = task.phase == Phase::Delayed && task.attempt == attempt && !task.has_calls_in_progress();
            task.details.as_ref().filter(|_| meant).map(|details| details.retry_due)
        }
        Timer::After { task: key, attempt, resumes, index } => {
            let task = state.find(key)?;
            let meant = task.phase == Phase::Paused && (task.attempt, task.resumes) == (attempt, resumes);
            let pause = task.details.as_ref().filter(|_| meant)?.pause.as_ref()?;
            match pause.until.get(index as usize)? {
                Wake::After(ms) => Some(task.since.saturating_add(*ms)),
                _ => None,
            }
        }
        Timer::Total { task } => {
            let task = state.find(task)?;
            let meant = !task.phase.is_end() && !matches!(task.phase, Phase::Waiting | Phase::Closing);
            task.deadline.filter(|_| meant)
        }
        Timer::Grace { task } => {
            let task = state.find(task)?;
            let meant = task.phase == Phase::Closing && task.has_calls_in_progress();
            meant.then(|| task.since.saturating_add(CALL_GRACE_MS))
        }
        Timer::Idle { task, attempt, resumes } => {
            let task = state.find(task)?;
            task.wait_until.filter(|_| task.idle && (task.attempt, task.resumes) == (attempt, resumes))
        }
        Timer::Ask { task, attempt, ordinal } => {
            let calls = state.find(task)?.calls.as_ref()?;
            calls
                .asked()
                .find(|(call, ..)| *call == (attempt, ordinal))
                .map(|(.., expires)| expires)
                .filter(|due| *due < u64::MAX)
        }
        Timer::Flow => {
            let applies = state.end.is_none() && state.cancel.is_none() && !state.is_undoing();
            state.deadline.filter(|_| applies)
        }
        Timer::Quota => state.held_by.as_ref().filter(|_| state.end.is_none()).map(|hold| hold.until),
    }
}

/// Returns the timers that a task may have in its present phase.
pub(crate) fn timers_of(state: &RunState, key: TaskKey) -> Vec<Timer> {
    let Some(task) = state.find(key) else { return Vec::new() };
    let (attempt, resumes) = (task.attempt, task.resumes);
    let mut timers = vec![Timer::Total { task: key }];
    match task.phase {
        Phase::Running => {
            timers.push(Timer::Attempt { task: key, attempt, resumes });
            timers.push(Timer::Idle { task: key, attempt, resumes });
            let asked = task.calls.iter().flat_map(|calls| calls.asked());
            timers.extend(asked.map(|((attempt, ordinal), ..)| Timer::Ask { task: key, attempt, ordinal }));
        }
        Phase::Closing => timers.push(Timer::Grace { task: key }),
        Phase::Delayed => timers.push(Timer::Retry { task: key, attempt }),
        Phase::Paused => {
            let wakes =
                task.details.as_ref().and_then(|details| details.pause.as_ref()).map_or(0, |pause| pause.until.len());
            timers.extend((0..wakes as u32).map(|index| Timer::After { task: key, attempt, resumes, index }));
        }
        _ => {}
    }
    timers
}

/// Returns all outstanding items of a run, in no particular order.
pub fn outstanding(state: &RunState) -> Vec<Outstanding> {
    let mut found = Vec::new();
    for timer in [Timer::Flow, Timer::Quota] {
        found.extend(due(state, &timer).map(|due| Outstanding::Timer(timer, due)));
    }
    for (id, scope) in &state.scopes {
        for (node, task) in scope.nodes(&state.graph).iter().zip(&scope.tasks) {
            if !task.phase.is_end() && task.phase != Phase::Waiting {
                add_outstanding_of(state, TaskKey { scope: *id, node: *node }, &mut found);
            }
        }
    }
    found
}

/// Returns true if work of the run is in progress or due: attempts, calls, child runs or due timers. Returns
/// false if the run only waits for people, events or later timers.
pub(crate) fn is_busy(state: &RunState, now: u64) -> bool {
    let due = |owed: &Outstanding| match owed {
        Outstanding::Timer(_, due) => *due <= now,
        Outstanding::Call { .. } | Outstanding::Child { .. } => true,
        _ => false,
    };
    state.running > 0 || !state.queue.is_empty() || outstanding(state).iter().any(due)
}

fn add_outstanding_of(state: &RunState, key: TaskKey, found: &mut Vec<Outstanding>) {
    let task = state.task(key);
    for timer in timers_of(state, key) {
        found.extend(due(state, &timer).map(|due| Outstanding::Timer(timer, due)));
    }
    if task.phase == Phase::Running {
        found.push(Outstanding::Attempt { task: key, attempt: task.attempt, resumes: task.resumes });
    }
    let under_way = task.calls.iter().flat_map(|calls| calls.under_way());
    found.extend(under_way.map(|((attempt, ordinal), _)| Outstanding::Call { task: key, attempt, ordinal }));
    for (call, prompt, _) in task.calls.iter().flat_map(|calls| calls.asked()) {
        let question = permission(prompt.to_owned());
        found.push(Outstanding::Permission { task: key, ordinal: call.1, question });
    }
    let agents = task.agents.iter().filter(|_| task.idle).flat_map(|agents| &agents.runs);
    let open = agents.filter(|run| run.is_open() && run.capacity.is_some());
    found.extend(open.map(|run| Outstanding::Messages { task: key, agent_run: run.id.clone() }));
    if let Some(blocked) = task.blocked.as_ref().filter(|_| task.phase == Phase::Blocked) {
        found.push(Outstanding::Decision { task: key, reason: blocked.0.clone() });
    }
    let pause = task.details.as_ref().and_then(|details| details.pause.as_ref());
    let closing = task.phase == Phase::Closing;
    for wake in pause.iter().flat_map(|pause| &pause.until) {
        match wake {
            Wake::Flow(call) => found.push(Outstanding::Child {
                task: key,
                attempt: task.attempt,
                name: call.name.clone(),
                input: call.input.clone(),
                cancelled: closing,
            }),
            Wake::Answer(question) if !closing => {
                found.push(Outstanding::Question { task: key, question: question.clone() });
            }
            Wake::Event(name) if !closing => found.push(Outstanding::Event { task: key, name: name.clone() }),
            _ => {}
        }
    }
}
