//! Runs in which some nodes are not run but given, and time does not pass but jumps: for tests of flows.

use std::{
    collections::{BTreeSet, HashMap},
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use flowcell_contract::{Attempt, Calls, Digest, Failure, Json, NodeRunner, Step, StepResult, Value};
use flowcell_runtime::ports::Timers;
use futures_util::future::BoxFuture;

/// What a node gives without being run.
#[derive(Clone, Debug)]
pub enum Given {
    /// An output.
    Output(Json),
    /// A failure, of every attempt.
    Failure(Failure),
}

/// Runs nodes, but those that are given.
pub(crate) struct Rehearsal {
    runner: Arc<dyn NodeRunner>,
    given: HashMap<String, Given>,
    clock: Arc<Clock>,
}

impl Rehearsal {
    pub(crate) fn new(runner: Arc<dyn NodeRunner>, given: HashMap<String, Given>, clock: Arc<Clock>) -> Rehearsal {
        Rehearsal { runner, given, clock }
    }

    /// By address, or by id for every pass.
    fn given(&self, attempt: &Attempt) -> Option<StepResult> {
        let address = attempt.scope.address(&attempt.node_id);
        let given = self.given.get(&address).or_else(|| self.given.get(attempt.node_id.as_str()))?;
        Some(match given {
            Given::Output(output) => Ok(Step::Done(Value::from(output.clone()))),
            Given::Failure(failure) => Err(failure.clone()),
        })
    }
}

impl NodeRunner for Rehearsal {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        if let Some(given) = self.given(&attempt) {
            return Box::pin(std::future::ready(given));
        }
        let busy = Busy::new(&self.clock);
        let answer = self.runner.run(attempt, calls);
        Box::pin(async move {
            let answer = answer.await;
            drop(busy);
            answer
        })
    }

    fn prepare(&self, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        self.runner.prepare(packs)
    }
}

/// Time that jumps to the next timer when no node runs.
pub(crate) struct Clock {
    running: AtomicUsize,
    state: Mutex<Waiting>,
}

struct Waiting {
    now: u64,
    /// When somebody wants to be woken, and a number to tell them apart.
    due: BTreeSet<(u64, u64)>,
    wakers: HashMap<u64, Waker>,
    next: u64,
    /// How often something has changed.
    stirs: u64,
}

/// The first of January 2030, so that a test that depends on the time of day is the same every day.
const BEGIN_MS: u64 = 1_893_456_000_000;
/// How often everybody else may go on before time jumps.
const TURNS: u32 = 16;

impl Default for Clock {
    fn default() -> Clock {
        let state = Waiting { now: BEGIN_MS, due: BTreeSet::new(), wakers: HashMap::new(), next: 0, stirs: 0 };
        Clock { running: AtomicUsize::new(0), state: Mutex::new(state) }
    }
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has changed: whoever waits looks again.
    fn stir(&self) {
        let mut state = self.lock();
        state.stirs += 1;
        let wakers: Vec<_> = state.wakers.values().cloned().collect();
        drop(state);
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

/// Counts a node that runs.
struct Busy(Arc<Clock>);

impl Busy {
    fn new(clock: &Arc<Clock>) -> Busy {
        clock.running.fetch_add(1, Ordering::SeqCst);
        Busy(clock.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.stir();
    }
}

/// Timers on a [`Clock`].
pub(crate) struct Jumps(pub(crate) Arc<Clock>);

impl Timers for Jumps {
    fn now(&self) -> u64 {
        self.0.lock().now
    }

    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.due.insert((due, number));
        drop(state);
        let sleep = Sleep { clock: self.0.clone(), due, number };
        Box::pin(async move {
            loop {
                let seen = sleep.clock.lock().stirs;
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                if sleep.jumps() {
                    return;
                }
                sleep.stirred(seen).await;
            }
        })
    }
}

struct Sleep {
    clock: Arc<Clock>,
    due: u64,
    number: u64,
}

impl Sleep {
    /// Moves time on, if nobody runs and nobody is due before.
    fn jumps(&self) -> bool {
        let mut state = self.clock.lock();
        let first = state.due.first() == Some(&(self.due, self.number));
        let may = state.now >= self.due || (first && self.clock.running.load(Ordering::SeqCst) == 0);
        if may {
            state.now = state.now.max(self.due);
        }
        may
    }

    /// Waits until something has changed since.
    async fn stirred(&self, seen: u64) {
        poll_fn(|context| {
            let mut state = self.clock.lock();
            state.wakers.insert(self.number, context.waker().clone());
            if state.stirs == seen { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        state.due.remove(&(self.due, self.number));
        state.wakers.remove(&self.number);
        drop(state);
        self.clock.stir();
    }
}
