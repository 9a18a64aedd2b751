//! Runs in which some nodes are not run but given, nothing leaves the host, and time does not pass but jumps: for tests of
//! flows.

use std::{
    collections::{BTreeSet, HashMap},
    future::{poll_fn, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use flowcell_contract::{
    Admission, Arrival, Attempt, BlobRef, BuiltIn, Call, Caller, Calls, Capability, Digest, Failure, Json, NodeRunner,
    Outgoing, Step, StepResult, Tenant, Value,
};
use flowcell_runtime::{
    MemoryBudget,
    ports::{Blobs, Timers},
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::world::simulate::Simulate;

/// What a node gives without being run.
#[derive(Clone, Debug)]
pub enum Given {
    /// An output.
    Output(Json),
    /// A failure, of every attempt.
    Failure(Failure),
}

/// A reply that a call gets without leaving the host. What is left out fits every call.
#[derive(Clone, Debug)]
pub struct GivenCall {
    /// The capability: `http`.
    pub interface: Option<String>,
    /// The id of the node that calls.
    pub node: Option<String>,
    /// What people are shown of the call has these members: `method`, `url` without its query.
    pub about: Vec<(String, Json)>,
    /// The reply.
    pub reply: Result<Json, Failure>,
    /// How many calls get it; none: as many as there are.
    pub times: Option<u32>,
}

/// What is given in a rehearsal.
#[derive(Debug, Default)]
pub struct Script {
    /// Results of nodes, which are not run then: by address, or by id for every pass.
    pub nodes: HashMap<String, Given>,
    /// Replies of calls, the first that fits; a call that none fits fails.
    pub calls: Mutex<Vec<GivenCall>>,
    /// Time does not jump: somebody writes to the run meanwhile, for whom it would be too fast.
    pub still: bool,
    /// The time at which the run begins, in milliseconds since 1970; none: the first of January 2030.
    pub begin: Option<u64>,
    /// Bytes of events and files that are kept in memory at most; `None`: as many as a run may have.
    pub most_bytes: Option<u64>,
}

/// Files in memory, within a budget: the run ends when it is used up.
pub(crate) struct Budgeted {
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) budget: Arc<MemoryBudget>,
}

impl Blobs for Budgeted {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        self.budget.take(bytes.len() as u64);
        self.blobs.put(tenant, bytes, mime)
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        self.blobs.get(tenant, blob)
    }
}

impl Script {
    /// How many replies are left that were given for a certain number of calls.
    pub fn left(&self) -> usize {
        let calls = self.calls.lock();
        calls.iter().filter_map(|call| call.times).map(|times| times as usize).sum()
    }

    /// What is given for a call, if anything.
    fn reply(&self, outgoing: &Outgoing, about: &Json) -> Option<Result<Value, Failure>> {
        let mut calls = self.calls.lock();
        let fits = |given: &&mut GivenCall| {
            given.times != Some(0)
                && given.interface.as_deref().is_none_or(|interface| interface == &*outgoing.call.interface)
                && given.node.as_deref().is_none_or(|node| node == outgoing.caller.node_id.as_str())
                && given.about.iter().all(|(key, value)| about.get(key) == Some(value))
        };
        let given = calls.iter_mut().find(fits)?;
        given.times = given.times.map(|times| times - 1);
        Some(given.reply.clone().map(Value::from))
    }
}

/// Stands in front of a capability: calls are admitted as ever, and none leaves.
pub(crate) struct StandIn {
    pub(crate) real: Arc<dyn Capability>,
    pub(crate) script: Arc<Script>,
    /// What gets the answer of a simulation where the script has none.
    pub(crate) simulate: Arc<Simulate>,
}

impl Capability for StandIn {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        self.real.admit(call, caller)
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let about = match self.real.admit(&outgoing.call, &outgoing.caller) {
            Ok(admission) => admission.about,
            Err(failure) => return Box::pin(ready(Err(failure))),
        };
        match self.script.reply(&outgoing, &about) {
            Some(reply) => Box::pin(ready(reply)),
            None if self.simulate.answers(&outgoing.call) => self.real.perform(outgoing),
            None => Box::pin(ready(Err(not_given(&outgoing, &about, &self.simulate)))),
        }
    }
}

/// The failure of a call without a reply: says what to write, and what else to simulate.
fn not_given(outgoing: &Outgoing, about: &Json, simulate: &Simulate) -> Failure {
    let (node, call) = (&outgoing.caller.node_id, &outgoing.call);
    let service = about.get("service").and_then(Json::as_str);
    let built_in = BuiltIn::named(&call.interface);
    let simulated = built_in.filter(|capability| capability.has_stand_in()).map(BuiltIn::name);
    let (case, name) = match (built_in, service) {
        (Some(BuiltIn::Http), _) => (format!("{{ node: {node}, reply: {{ status: 200 }} }}"), simulated),
        (Some(BuiltIn::Services), service) => {
            let service = service.unwrap_or("NAME");
            (format!("{{ node: {node}, service: {service}, result: … }}"), Some(service))
        }
        _ => (format!("{{ capability: {}, node: {node}, reply: … }}", call.interface), simulated),
    };
    let more = name.map(|name| format!(", or simulate it: `--simulate {}` or `--simulate all`", simulate.with(name)));
    let message = format!(
        "no reply is given for this call of `{node}`: {} {}; give one under `calls` of the case, such as `{case}`{}",
        call.interface,
        about.to_text(),
        more.unwrap_or_default()
    );
    Failure::new("no_reply_given", message)
}

/// Stands in front of `http`, and answers every request with what it was.
pub(crate) struct Simulated(pub(crate) Arc<dyn Capability>);

impl Capability for Simulated {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        self.0.admit(call, caller)
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let member = |name: &str| outgoing.call.args.json().get(name).cloned().unwrap_or_default();
        let told = [("simulated", Json::from(true)), ("method", member("method")), ("url", member("url"))];
        let header = Json::array([Json::from("content-type"), Json::from("application/json")]);
        let reply = Json::object([
            ("status", Json::from(200u32)),
            ("headers", Json::array([header])),
            ("body", Json::object([("text", Json::from(Json::object(told).to_text()))])),
        ]);
        Box::pin(ready(Ok(Value::from(reply))))
    }
}

/// Runs nodes, but those that are given.
pub(crate) struct Rehearsal {
    runner: Arc<dyn NodeRunner>,
    script: Arc<Script>,
    clock: Arc<Clock>,
}

impl Rehearsal {
    pub(crate) fn new(runner: Arc<dyn NodeRunner>, script: Arc<Script>, clock: Arc<Clock>) -> Rehearsal {
        Rehearsal { runner, script, clock }
    }

    /// By address, or by id for every pass.
    fn given(&self, attempt: &Attempt) -> Option<StepResult> {
        let address = attempt.scope.address(&attempt.node_id);
        let given = self.script.nodes.get(&address).or_else(|| self.script.nodes.get(attempt.node_id.as_str()))?;
        Some(match given {
            Given::Output(output) => Ok(Step::Done(Value::from(output.clone()))),
            Given::Failure(failure) => Err(failure.clone()),
        })
    }
}

impl NodeRunner for Rehearsal {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        if let Some(given) = self.given(&attempt) {
            return Box::pin(ready(given));
        }
        let busy = Busy::new(&self.clock);
        let calls = Idling { calls, clock: self.clock.clone(), started: AtomicUsize::new(0) };
        let answer = self.runner.run(attempt, Arc::new(calls));
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

impl Clock {
    /// The clock of a script.
    pub(crate) fn new(script: &Script) -> Clock {
        let now = script.begin.unwrap_or(BEGIN_MS);
        let state = Waiting { now, due: BTreeSet::new(), wakers: HashMap::new(), next: 0, stirs: 0 };
        Clock { running: AtomicUsize::new(usize::from(script.still)), state: Mutex::new(state) }
    }

    /// Something has changed: whoever waits looks again.
    fn stir(&self) {
        let mut state = self.state.lock();
        state.stirs += 1;
        let wakers: Vec<_> = state.wakers.values().cloned().collect();
        drop(state);
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

/// The calls of a node that does not run while it waits and none of its calls is under way.
struct Idling {
    calls: Arc<dyn Calls>,
    clock: Arc<Clock>,
    /// Calls under way.
    started: AtomicUsize,
}

impl Calls for Idling {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        self.calls.call(call)
    }

    fn start(&self, call: Call) -> BoxFuture<'_, Result<u32, Failure>> {
        Box::pin(async move {
            let started = self.calls.start(call).await?;
            self.started.fetch_add(1, Ordering::SeqCst);
            Ok(started)
        })
    }

    fn next(&self, timeout_ms: Option<u32>) -> BoxFuture<'_, Option<Arrival>> {
        Box::pin(async move {
            let mut next = self.calls.next(timeout_ms);
            // Its own timer is set before time may jump.
            let arrived = match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
                Poll::Ready(arrived) => arrived,
                Poll::Pending => {
                    let waits = self.started.load(Ordering::SeqCst) == 0;
                    let _idle = waits.then(|| Idle::new(&self.clock));
                    next.await
                }
            };
            if arrived.is_some() {
                self.started.fetch_sub(1, Ordering::SeqCst);
            }
            arrived
        })
    }

    fn now_ms(&self) -> Option<u64> {
        self.calls.now_ms()
    }

    fn keep(&self, bytes: Arc<[u8]>, mime: &str) -> Result<BlobRef, Failure> {
        self.calls.keep(bytes, mime)
    }

    fn bytes(&self, file: &BlobRef) -> Result<Arc<[u8]>, Failure> {
        self.calls.bytes(file)
    }
}

/// Counts a node that waits as one that does not run.
struct Idle(Arc<Clock>);

impl Idle {
    fn new(clock: &Arc<Clock>) -> Idle {
        clock.running.fetch_sub(1, Ordering::SeqCst);
        clock.stir();
        Idle(clock.clone())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.running.fetch_add(1, Ordering::SeqCst);
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
        self.0.state.lock().now
    }

    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        let mut state = self.0.state.lock();
        let number = state.next;
        state.next += 1;
        state.due.insert((due, number));
        drop(state);
        let sleep = Sleep { clock: self.0.clone(), due, number };
        Box::pin(async move {
            loop {
                let seen = sleep.clock.state.lock().stirs;
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
        let mut state = self.clock.state.lock();
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
            let mut state = self.clock.state.lock();
            state.wakers.insert(self.number, context.waker().clone());
            if state.stirs == seen { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut state = self.clock.state.lock();
        state.due.remove(&(self.due, self.number));
        state.wakers.remove(&self.number);
        drop(state);
        self.clock.stir();
    }
}
