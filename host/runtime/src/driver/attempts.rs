//! The running and the evicted attempts of a run, and the inputs of both.
//!
//! An attempt that waits for long is evicted: see `evict.rs`.

mod evict;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    task::{Context, Poll},
};

use flowcell_contract::{Attempt, Failure, StepResult, Value};
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Aborted, BoxFuture, abortable},
    stream::FuturesUnordered,
};

use crate::{
    calls::AttemptCalls,
    fact::{Fact, Observed, Received, TaskKey, Write},
};

/// The number of an attempt of a task, and its number of resumes.
pub(super) type AttemptNumber = (u32, u32);

/// The answer of an attempt, with its writes and observations.
pub(super) struct Answered {
    pub(super) task: TaskKey,
    pub(super) attempt: AttemptNumber,
    pub(super) result: StepResult,
    pub(super) writes: Vec<Write>,
    pub(super) heard: Box<[Observed]>,
    /// The recorded form of the attempt's input, if another thread has computed it. `None`: no other thread has.
    /// `Some(None)`: the input is too large for a digest.
    pub(super) received: Option<Option<Received>>,
}

/// An attempt that is running.
struct Live {
    abort: AbortHandle,
    calls: Arc<AttemptCalls>,
}

/// The input and config of an attempt, until the record of the attempt's end has the digest of both.
enum PendingInput {
    /// The values, shared with the attempt.
    Parts(Value, Value),
    /// The recorded form of the values.
    Known(Option<Received>),
}

impl PendingInput {
    fn record(self) -> Option<Received> {
        match self {
            PendingInput::Parts(input, config) => Received::digest_of(&input, &config),
            PendingInput::Known(received) => received,
        }
    }
}

/// The attempts of a run.
#[derive(Default)]
pub(super) struct Attempts {
    running: FuturesUnordered<BoxFuture<'static, Result<Answered, Aborted>>>,
    /// An answer that waits until the driver has handled the earlier requests of its attempt.
    answer: Option<Answered>,
    live: HashMap<TaskKey, Live>,
    /// Attempts without a sandbox. Each begins again when something arrives for it.
    evicted: HashMap<TaskKey, AttemptNumber>,
    /// The times of the checks whether an attempt still waits, in order.
    checks: VecDeque<(u64, TaskKey, AttemptNumber)>,
    given: HashMap<TaskKey, PendingInput>,
}

impl Attempts {
    /// Runs an attempt. [`Attempts::poll`] returns its answer. If `received` is given, the attempt first waits for it:
    /// the recorded form of its input.
    pub(super) fn begin(
        &mut self,
        (task, attempt): (TaskKey, AttemptNumber),
        calls: Arc<AttemptCalls>,
        received: Option<BoxFuture<'static, Option<Received>>>,
        result: BoxFuture<'static, StepResult>,
    ) {
        let done = calls.clone();
        let answer = async move {
            // The digest is ready before the node runs, because the virtual time of a test stands still only while a
            // node runs.
            let received = match received {
                Some(received) => Some(received.await),
                None => None,
            };
            let result = result.await;
            done.finish(&result).await;
            let (writes, heard) = (done.take_writes(), done.take_observations());
            Answered { task, attempt, result, writes, heard, received }
        };
        let (answered, abort) = abortable(answer);
        self.live.insert(task, Live { abort, calls });
        self.running.push(answered.boxed());
    }

    /// Returns the tasks whose attempt runs or is evicted.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskKey> + '_ {
        self.live.keys().chain(self.evicted.keys()).copied()
    }

    /// Returns whether no attempt is in progress. Evicted attempts are not.
    pub(super) fn are_none_live(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns the calls of the running attempt of a task.
    pub(super) fn calls_of(&self, task: TaskKey) -> Option<&Arc<AttemptCalls>> {
        self.live.get(&task).map(|live| &live.calls)
    }

    /// Drops an attempt, which then sends no answer.
    pub(super) fn withdraw(&mut self, task: TaskKey) {
        self.evicted.remove(&task);
        if let Some(live) = self.live.remove(&task) {
            live.abort.abort();
        }
    }

    /// Removes an attempt that has answered.
    pub(super) fn remove(&mut self, task: TaskKey) {
        self.live.remove(&task);
    }

    /// Drops all attempts, since the run has ended.
    pub(super) fn clear(&mut self) {
        self.live.clear();
        self.evicted.clear();
        self.checks.clear();
        self.given.clear();
    }

    /// Stores the input of an attempt until the fact that ends or pauses the attempt is recorded with the digest. An
    /// input that cannot be rendered has no digest. `is_kept`: the node does not run, because its output comes from an
    /// earlier run. If computing the digest takes long, returns a future that computes it on a blocking thread.
    pub(super) fn remember(
        &mut self,
        task: TaskKey,
        attempt: &Result<Attempt, Failure>,
        is_kept: bool,
    ) -> Option<BoxFuture<'static, Option<Received>>> {
        let long = attempt.as_ref().ok().filter(|attempt| Received::takes_long(&attempt.input, &attempt.config));
        let long =
            long.filter(|_| !is_kept).map(|attempt| digest_off_thread(attempt.input.clone(), attempt.config.clone()));
        let given = match attempt {
            Ok(_) if is_kept => PendingInput::Known(Some(Received::Nothing)),
            Ok(attempt) => PendingInput::Parts(attempt.input.clone(), attempt.config.clone()),
            Err(_) => PendingInput::Known(None),
        };
        self.given.insert(task, given);
        long
    }

    /// Replaces the input of an attempt by its recorded form.
    pub(super) fn set_received(&mut self, task: TaskKey, received: Option<Received>) {
        self.given.insert(task, PendingInput::Known(received));
    }

    /// Writes the recorded input of an attempt into the fact that ends or pauses the attempt.
    pub(super) fn record_inputs(&mut self, facts: &mut [Fact]) {
        for fact in facts {
            if let Some((task, received)) = fact.end_of_attempt()
                && let Some(given) = self.given.remove(&task)
            {
                *received = given.record();
            }
        }
    }

    /// Stores an answer until the driver has handled the earlier requests of its attempt.
    pub(super) fn put_back(&mut self, answered: Answered) {
        self.answer = Some(answered);
    }

    /// Removes and returns the answer that [`Attempts::put_back`] stored.
    pub(super) fn take_back(&mut self) -> Option<Answered> {
        self.answer.take()
    }

    /// Returns the next answer of an attempt. The result is pending until an attempt answers, also if no attempt runs.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Answered> {
        while let Poll::Ready(Some(answered)) = self.running.poll_next_unpin(context) {
            if let Ok(answered) = answered {
                return Poll::Ready(answered);
            }
        }
        Poll::Pending
    }
}

/// Computes a digest on a blocking thread.
fn digest_off_thread(input: Value, config: Value) -> BoxFuture<'static, Option<Received>> {
    Box::pin(async move {
        let digest = tokio::task::spawn_blocking(move || Received::digest_of(&input, &config));
        digest.await.ok().flatten()
    })
}

#[cfg(test)]
mod tests;
