//! Test runs of flows. Some nodes get fixtures, no call leaves the host, and time jumps to the next timer.

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
    Admission, Arrival, Attempt, BlobRef, BlobWriter, BuiltIn, Call, Caller, Calls, Capability, Digest, Failure, Json,
    NodeRunner, Outgoing, Step, StepResult, Tenant, Value, shell::shell_word,
};
use flowcell_runtime::{
    MemoryBudget,
    ports::{Blobs, Timers},
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::world::{measure::Probe, simulate::Simulate};

/// The fixture of a node. The node itself does not run.
#[derive(Clone, Debug)]
pub enum NodeFixture {
    /// The output of the node.
    Output(Json),
    /// The failure of every attempt of the node.
    Failure(Failure),
}

/// The scripted reply of a call, which does not leave the host. An omitted member matches every call.
#[derive(Clone, Debug)]
pub struct CallFixture {
    /// The capability, such as `http`.
    pub interface: Option<String>,
    /// The id of the calling node.
    pub node: Option<String>,
    /// Members that the public description of the call must have, such as `method`, or `url` without its query.
    pub about: Vec<(String, Json)>,
    /// The reply, or a failure.
    pub reply: Result<Json, Failure>,
    /// The number of calls that may still get this reply. `None` means no limit.
    pub times: Option<u32>,
}

/// The fixtures and settings of a test run.
#[derive(Debug, Default)]
pub struct Fixtures {
    /// The fixtures of nodes. The key is the address of a node, such as `each[2].pay`, or its id, which means the node
    /// in every pass.
    pub nodes: HashMap<String, NodeFixture>,
    /// The replies of calls. The first match applies, and a call without a match fails.
    pub calls: Mutex<Vec<CallFixture>>,
    /// True to stop time from jumping, for a test that sends messages to the run.
    pub still: bool,
    /// The start time of the run, in milliseconds since 1970. Default: 1 January 2030.
    pub begin: Option<u64>,
    /// The seed of the random values of the runs. Default: 0.
    pub seed: u64,
    /// Maximum size in bytes of events and files in memory. Default: the limit of a run.
    pub most_bytes: Option<u64>,
    /// Receives the measurements of attempts. `None`: attempts are not measured.
    pub probe: Option<Arc<Probe>>,
}

/// Files in memory, within a budget. The run ends when the budget is used up.
pub(crate) struct BudgetedBlobs {
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) budget: Arc<MemoryBudget>,
}

impl Blobs for BudgetedBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        self.budget.take(bytes.len() as u64);
        self.blobs.put(tenant, bytes, mime)
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        self.blobs.get(tenant, blob)
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        self.blobs.size(tenant, blob)
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.blobs.read_part(tenant, blob, offset, length)
    }
}

impl Fixtures {
    /// Returns the number of calls that the replies with a limit (`times`) can still answer.
    pub fn unused_replies(&self) -> usize {
        let calls = self.calls.lock();
        calls.iter().filter_map(|call| call.times).map(|times| times as usize).sum()
    }

    /// Returns the scripted reply of a call, if one matches.
    fn reply(&self, outgoing: &Outgoing, about: &Json) -> Option<Result<Value, Failure>> {
        let mut calls = self.calls.lock();
        let fits = |given: &&mut CallFixture| {
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

/// Wraps a capability in a test run. It admits calls as usual. The fixtures and the simulation answer them, so that
/// no call leaves the host.
pub(crate) struct Stub {
    pub(crate) real: Arc<dyn Capability>,
    pub(crate) script: Arc<Fixtures>,
    /// The simulation, which answers calls without a scripted reply.
    pub(crate) simulate: Arc<Simulate>,
}

impl Capability for Stub {
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
            None => Box::pin(ready(Err(missing_reply(&outgoing, &about, &self.simulate)))),
        }
    }
}

/// Returns the failure of a call that has no reply. Its message suggests the fixture to write, and the simulation to
/// enable.
fn missing_reply(outgoing: &Outgoing, about: &Json, simulate: &Simulate) -> Failure {
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
    let more = name.map(|name| {
        let names = shell_word(&simulate.names_with(name));
        format!(", or simulate it: `--simulate {names}` or `--simulate all`")
    });
    let message = format!(
        "the case has no reply for this call of `{node}`: {} {}; add one under `calls`, such as `{case}`{}",
        call.interface,
        about.to_text(),
        more.unwrap_or_default()
    );
    Failure::new("no_reply_given", message)
}

/// Wraps `http` and answers every request with status 200 and a text that contains the request's method and URL.
pub(crate) struct SimulatedHttp(pub(crate) Arc<dyn Capability>);

impl Capability for SimulatedHttp {
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

/// Runs nodes, except those with fixtures.
pub(crate) struct FixtureRunner {
    runner: Arc<dyn NodeRunner>,
    script: Arc<Fixtures>,
    clock: Arc<Clock>,
}

impl FixtureRunner {
    pub(crate) fn new(runner: Arc<dyn NodeRunner>, script: Arc<Fixtures>, clock: Arc<Clock>) -> FixtureRunner {
        FixtureRunner { runner, script, clock }
    }

    /// Returns the result that the fixture of a node gives, or `None` if the node has no fixture. A fixture for the
    /// node's address comes before one for its id.
    fn find_fixture(&self, attempt: &Attempt) -> Option<StepResult> {
        let address = attempt.scope.address(&attempt.node_id);
        let given = self.script.nodes.get(&address).or_else(|| self.script.nodes.get(attempt.node_id.as_str()))?;
        Some(match given {
            NodeFixture::Output(output) => Ok(Step::Done(Value::from(output.clone()))),
            NodeFixture::Failure(failure) => Err(failure.clone()),
        })
    }
}

impl NodeRunner for FixtureRunner {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        // The node counts as running until the run has taken its answer.
        let busy = BusyGuard::new(&self.clock);
        if let Some(given) = self.find_fixture(&attempt) {
            return Box::pin(async move {
                drop(busy);
                given
            });
        }
        let calls = IdlingCalls { calls, clock: self.clock.clone(), started: AtomicUsize::new(0) };
        let answer = self.runner.run(attempt, Arc::new(calls));
        Box::pin(async move {
            let answer = answer.await;
            drop(busy);
            answer
        })
    }

    fn prepare(&self, tenant: &Tenant, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        self.runner.prepare(tenant, packs)
    }
}

/// A clock that jumps to the next timer when no node runs.
pub(crate) struct Clock {
    running: AtomicUsize,
    state: Mutex<Waiting>,
}

struct Waiting {
    now: u64,
    /// The due times of the timers that wait, each with a number that makes the pair unique.
    due: BTreeSet<(u64, u64)>,
    wakers: HashMap<u64, Waker>,
    next: u64,
    /// The number of calls of [`Clock::notify_timers`] so far.
    notices: u64,
}

/// 1 January 2030, so that tests do not depend on the current date.
const BEGIN_MS: u64 = 1_893_456_000_000;
/// Number of times that a timer yields to other tokio tasks before it may let time jump.
const YIELDS_BEFORE_JUMP: u32 = 16;

impl Clock {
    /// Creates the clock of a test run with these fixtures.
    pub(crate) fn new(script: &Fixtures) -> Clock {
        let now = script.begin.unwrap_or(BEGIN_MS);
        let state = Waiting { now, due: BTreeSet::new(), wakers: HashMap::new(), next: 0, notices: 0 };
        Clock { running: AtomicUsize::new(usize::from(script.still)), state: Mutex::new(state) }
    }

    /// Counts a change of the nodes or timers, and wakes all timers that wait, so that they check whether time may
    /// jump.
    fn notify_timers(&self) {
        let mut state = self.state.lock();
        state.notices += 1;
        let wakers: Vec<_> = state.wakers.values().cloned().collect();
        drop(state);
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}

/// The calls of a node. A node that waits for a message or a timer, without a call in progress, counts as idle.
struct IdlingCalls {
    calls: Arc<dyn Calls>,
    clock: Arc<Clock>,
    /// The number of calls in progress.
    started: AtomicUsize,
}

impl Calls for IdlingCalls {
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
            // The node's own timer must be set before time may jump.
            let arrived = match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
                Poll::Ready(arrived) => arrived,
                Poll::Pending => {
                    let waits = self.started.load(Ordering::SeqCst) == 0;
                    let _idle = waits.then(|| IdleGuard::new(&self.clock));
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

    fn read_part(&self, file: &BlobRef, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        self.calls.read_part(file, offset, length)
    }

    fn file_writer(&self) -> Result<Box<dyn BlobWriter>, Failure> {
        self.calls.file_writer()
    }
}

/// Counts a waiting node as idle until the guard is dropped.
struct IdleGuard(Arc<Clock>);

impl IdleGuard {
    fn new(clock: &Arc<Clock>) -> IdleGuard {
        clock.running.fetch_sub(1, Ordering::SeqCst);
        clock.notify_timers();
        IdleGuard(clock.clone())
    }
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.0.running.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts a running node until the guard is dropped.
struct BusyGuard(Arc<Clock>);

impl BusyGuard {
    fn new(clock: &Arc<Clock>) -> BusyGuard {
        clock.running.fetch_add(1, Ordering::SeqCst);
        BusyGuard(clock.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.notify_timers();
    }
}

/// Timers that use a [`Clock`].
pub(crate) struct VirtualTimers(pub(crate) Arc<Clock>);

impl Timers for VirtualTimers {
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
                let seen = sleep.clock.state.lock().notices;
                for _ in 0..YIELDS_BEFORE_JUMP {
                    tokio::task::yield_now().await;
                }
                if sleep.try_jump() {
                    return;
                }
                sleep.wait_for_notice(seen).await;
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
    /// If this timer is due, returns true. If it is the first timer that waits and no node runs, advances the clock to
    /// its due time and returns true. Otherwise returns false.
    fn try_jump(&self) -> bool {
        let mut state = self.clock.state.lock();
        let first = state.due.first() == Some(&(self.due, self.number));
        let may = state.now >= self.due || (first && self.clock.running.load(Ordering::SeqCst) == 0);
        if may {
            state.now = state.now.max(self.due);
        }
        may
    }

    /// Waits until [`Clock::notify_timers`] has been called more than `seen` times.
    async fn wait_for_notice(&self, seen: u64) {
        poll_fn(|context| {
            let mut state = self.clock.state.lock();
            state.wakers.insert(self.number, context.waker().clone());
            if state.notices == seen { Poll::Pending } else { Poll::Ready(()) }
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
        self.clock.notify_timers();
    }
}
