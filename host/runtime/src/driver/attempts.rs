//! The attempts of a run: those that run, those that wait without an instance, and what each was given.
//!
//! An attempt that waits for long is dropped. When something arrives for it, it is repeated as after a crash: it is told what
//! it was told before, and goes on from there.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
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

/// Which attempt of a task, and how often it was resumed.
pub(super) type Number = (u32, u32);

/// What came of an attempt.
pub(super) struct Answered {
    pub(super) task: TaskKey,
    pub(super) attempt: Number,
    pub(super) result: StepResult,
    pub(super) writes: Vec<Write>,
    pub(super) heard: Box<[Observed]>,
    /// What it was given, if telling that took long.
    pub(super) received: Option<Option<Received>>,
}

/// An attempt that is running.
struct Live {
    abort: AbortHandle,
    calls: Arc<AttemptCalls>,
}

/// What an attempt was given, until the digest of it stands on the record of the attempt's end.
enum Given {
    /// Its input and its config, shared with the attempt.
    Parts(Value, Value),
    /// What is to be recorded.
    Known(Option<Received>),
}

impl Given {
    fn record(self) -> Option<Received> {
        match self {
            Given::Parts(input, config) => Received::digest_of(&input, &config),
            Given::Known(received) => received,
        }
    }
}

/// The attempts of a run.
#[derive(Default)]
pub(super) struct Attempts {
    running: FuturesUnordered<BoxFuture<'static, Result<Answered, Aborted>>>,
    /// An answer, until what its attempt asked for before has been dealt with.
    answer: Option<Answered>,
    live: HashMap<TaskKey, Live>,
    /// Attempts without an instance, until something arrives.
    dropped: HashMap<TaskKey, Number>,
    /// When to look whether an attempt still waits, in order.
    looks: VecDeque<(u64, TaskKey, Number)>,
    given: HashMap<TaskKey, Given>,
}

impl Attempts {
    /// Runs an attempt. What it answers comes out of [`Attempts::poll`].
    pub(super) fn begin(
        &mut self,
        task: TaskKey,
        calls: Arc<AttemptCalls>,
        answer: impl Future<Output = Answered> + Send + 'static,
    ) {
        let (answered, abort) = abortable(answer);
        self.live.insert(task, Live { abort, calls });
        self.running.push(answered.boxed());
    }

    /// The tasks whose attempt runs, or waits without an instance.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskKey> + '_ {
        self.live.keys().chain(self.dropped.keys()).copied()
    }

    /// What the running attempt of a task calls.
    pub(super) fn calls_of(&self, task: TaskKey) -> Option<&Arc<AttemptCalls>> {
        self.live.get(&task).map(|live| &live.calls)
    }

    /// Drops an attempt; what it would answer is of no meaning any more.
    pub(super) fn withdraw(&mut self, task: TaskKey) {
        self.dropped.remove(&task);
        if let Some(live) = self.live.remove(&task) {
            live.abort.abort();
        }
    }

    /// An attempt has answered.
    pub(super) fn ended(&mut self, task: TaskKey) {
        self.live.remove(&task);
    }

    /// Everything is over.
    pub(super) fn clear(&mut self) {
        self.live.clear();
        self.dropped.clear();
        self.looks.clear();
        self.given.clear();
    }

    /// Looks at this time whether an attempt still waits.
    pub(super) fn look_at(&mut self, due: u64, task: TaskKey, attempt: Number) {
        self.looks.push_back((due, task, attempt));
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Option<u64> {
        self.looks.front().map(|(due, ..)| *due)
    }

    /// The next attempt that has waited for long at this time.
    pub(super) fn waiting(&mut self, now: u64) -> Option<(TaskKey, Number)> {
        while let Some((_, task, attempt)) = self.looks.pop_front_if(|(due, ..)| *due <= now) {
            if self.live.get(&task).is_some_and(|live| live.calls.is_blocked()) {
                return Some((task, attempt));
            }
        }
        None
    }

    /// Drops the instance of an attempt, and of what it was given all but the digest.
    pub(super) fn drop_instance(&mut self, task: TaskKey, attempt: Number) {
        self.withdraw(task);
        if let Some(given) = self.given.remove(&task) {
            self.given.insert(task, Given::Known(given.record()));
        }
        self.keep_dropped(task, attempt);
    }

    /// The attempt has no instance, until something arrives.
    pub(super) fn keep_dropped(&mut self, task: TaskKey, attempt: Number) {
        self.dropped.insert(task, attempt);
    }

    /// Something has arrived for an attempt. Answers whether it has to begin again.
    pub(super) fn rouse(&mut self, task: TaskKey) -> bool {
        self.dropped.remove(&task).is_some()
    }

    /// Remembers what an attempt is given. An attempt that cannot be rendered is given nothing that has a digest. A digest
    /// that takes long is returned as work for a thread that may block.
    pub(super) fn remember(
        &mut self,
        task: TaskKey,
        attempt: &Result<Attempt, Failure>,
        is_kept: bool,
    ) -> Option<BoxFuture<'static, Option<Received>>> {
        let long = attempt.as_ref().ok().filter(|attempt| Received::takes_long(&attempt.input, &attempt.config));
        let long = long.filter(|_| !is_kept).map(|attempt| off_thread(attempt.input.clone(), attempt.config.clone()));
        let given = match attempt {
            Ok(_) if is_kept => Given::Known(Some(Received::Nothing)),
            Ok(attempt) => Given::Parts(attempt.input.clone(), attempt.config.clone()),
            Err(_) => Given::Known(None),
        };
        self.given.insert(task, given);
        long
    }

    /// What an attempt was given is known, since it was told of elsewhere.
    pub(super) fn was_given(&mut self, task: TaskKey, received: Option<Received>) {
        self.given.insert(task, Given::Known(received));
    }

    /// Writes onto facts that end or pause an attempt what the attempt was given.
    pub(super) fn stamp(&mut self, facts: &mut [Fact]) {
        for fact in facts {
            if let Some((task, received)) = fact.end_of_attempt()
                && let Some(given) = self.given.remove(&task)
            {
                *received = given.record();
            }
        }
    }

    /// Keeps an answer until what its attempt asked for before has been dealt with.
    pub(super) fn put_back(&mut self, answered: Answered) {
        self.answer = Some(answered);
    }

    /// An answer that was kept.
    pub(super) fn take_back(&mut self) -> Option<Answered> {
        self.answer.take()
    }

    /// The next answer. Pending if nothing runs, too.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Answered> {
        while let Poll::Ready(Some(answered)) = self.running.poll_next_unpin(context) {
            if let Ok(answered) = answered {
                return Poll::Ready(answered);
            }
        }
        Poll::Pending
    }
}

/// Computes a digest where that holds nobody up.
fn off_thread(input: Value, config: Value) -> BoxFuture<'static, Option<Received>> {
    Box::pin(async move {
        let digest = tokio::task::spawn_blocking(move || Received::digest_of(&input, &config));
        digest.await.ok().flatten()
    })
}
