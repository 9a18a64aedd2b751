//! The driver: performs what was decided, and brings what comes of it to the deciders. It never decides.
//!
//! ```text
//!   hub, attempts' notes ──► commands ─┐                    ┌─► attempts (runner)
//!   attempts ──────────────► answers ──┼─► decide ─► facts ─┼─► timers
//!   children ──────────────► commands ─┤             │      └─► children (drivers)
//!   timers ────────────────► due ──────┘             └─► journal ─► events ─► channels
//! ```
//!
//! **Why nothing acknowledged is lost.** Facts are appended before anything is done about them, and the journal makes
//! them durable in the order of the calls, so that what is durable is a prefix of what happened. Everything that leaves
//! the run goes through the [`trail`], which holds it back until the facts that it follows from are durable: events for
//! subscribers, acknowledgements, the result, and calls that leave the host. So whatever anybody outside has seen follows
//! from a durable prefix, and a process that goes on from there contradicts nobody. What is lost with a crash are facts
//! that nobody outside knows of; the attempts behind them had no effect but through the trail, so that running them
//! again is not noticed. The journal is hurried (*forced*) only where somebody waits for the trail: when a run is
//! accepted, parks or ends, before a question or a wait is shown, before a request is acknowledged, before a call leaves.
//!
//! **Why nothing is done twice.** A call is a fact before it leaves, and its end is a fact before the attempt hears of it.
//! An attempt that is begun again is told what it was told before its last recorded call, in the same order ([`crate::call_log`]):
//! it is the same function of what it is told, so it comes to the same calls, and those that have ended are answered from
//! the record. What it was told after its last recorded call may be lost, since nothing has left that follows from it. A
//! call without an end is made again with the same key, unless its effect is `once`: then the task is blocked until a
//! person says what became of it. A component that comes to other calls is not a function of what it was told, and is
//! blocked too.

mod doze;
mod leave;
mod obey;
mod perform;
mod places;
mod received;
mod recover;
mod rest;
mod rows;
mod stop;
mod trail;
mod wait;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::{Digest, Failure, Json, Outgoing, RunId, Step, StepResult, Tenant, Value, code};
use flowcell_flow::graph::{FlowPolicy, NodeIx};
use futures_util::{
    future::{AbortHandle, Aborted, BoxFuture},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    calls::{AttemptCalls, CallSite},
    decide::{Entropy, Input, Refusal, decide},
    event::Event,
    fact::{Observed, Received, TaskKey, Write},
    hub::{Channel, Command, Hub, HubError, Request},
    limits::{COMMAND_QUEUE, MAX_RUN_BYTES, READ_UNITS},
    live::{Place, Starting},
    outstanding::Timer,
    ports::{Again, Change, Entry, Journal, Pin, Projection, Record, StageError, Staged, Standing, StoreError, Unit},
    publish::Projector,
    result::{Rest, Waiting},
    sabotage,
    state::RunState,
    timing::TimerHeap,
    world::{Pinned, World, random},
};
use doze::Dozing;
use leave::Ended;
use places::Queued;
use received::Remembered;
use trail::{CallKey, Deferred, Trail};

/// Outputs of nodes of the flow itself, which are not run.
pub(crate) type Given = HashMap<NodeIx, Value>;

/// What came of an attempt.
struct Answered {
    task: TaskKey,
    attempt: (u32, u32),
    result: StepResult,
    writes: Vec<Write>,
    heard: Box<[Observed]>,
    /// What it was given, if telling that took long.
    received: Option<Option<Received>>,
}

/// An attempt that is running.
struct Live {
    abort: AbortHandle,
    calls: Arc<AttemptCalls>,
}

struct Child {
    hub: Hub,
    /// Why it does not move by itself, if it does not.
    rest: Option<Rest>,
    driving: Option<JoinHandle<()>>,
}

impl Child {
    /// Lets the child tell the rest of what happened.
    fn leave(mut self) -> Option<JoinHandle<()>> {
        self.driving.take()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(driving) = &self.driving {
            driving.abort();
        }
    }
}

/// Who a driver drives.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: Tenant,
    pub(crate) run_id: RunId,
    /// How many runs are above this one.
    pub(crate) depth: u32,
    /// The run that called this one.
    pub(crate) parent: Option<RunId>,
    /// What the idempotency keys of its calls begin with.
    pub(crate) root: Arc<str>,
}

pub(crate) struct Driver {
    pub(crate) state: RunState,
    identity: Identity,
    pin: Pin,
    world: Arc<World>,
    site: Arc<CallSite>,
    hub: Hub,
    commands: mpsc::Receiver<Command>,
    /// What the driver tells itself; taken before anything else.
    notes_to_self: VecDeque<Command>,
    attempts: FuturesUnordered<BoxFuture<'static, Result<Answered, Aborted>>>,
    /// An answer, until what its attempt asked for before has been dealt with.
    answer: Option<Answered>,
    live: HashMap<TaskKey, Live>,
    /// What the attempts were given that have not ended.
    received: HashMap<TaskKey, Remembered>,
    /// Calls that have left, and those that wait for the journal.
    leaving: HashMap<CallKey, Option<AbortHandle>>,
    calls: FuturesUnordered<BoxFuture<'static, Result<Ended, Aborted>>>,
    /// Calls that somebody has to allow.
    asked: HashMap<CallKey, Box<Outgoing>>,
    dozing: Dozing,
    timers: TimerHeap,
    sleeping: Option<(u64, BoxFuture<'static, ()>)>,
    children: HashMap<TaskKey, Child>,
    /// Runs that tasks call and that wait for a place.
    queued: HashMap<TaskKey, Queued>,
    /// Its own place among the live runs, while it is driven.
    place: Option<Place>,
    /// Counts the run until the store shows it.
    starting: Option<Starting>,
    /// The run that this one repeats.
    repeats: Option<RunId>,
    /// It has called something, or somebody has driven it before.
    has_called: bool,
    /// Nothing else is driven in the process when it begins.
    alone: bool,
    entropy: SplitMix,
    next_seq: u64,
    /// Written with the first unit.
    record: Option<Record>,
    /// State that the next unit makes durable.
    staged: Option<Staged>,
    /// Says which rows beside the journal change with which facts, if the flow has such.
    projection: Option<Box<dyn Projection>>,
    /// Rows that the next unit changes.
    rows: Vec<Change>,
    /// The message of the store's inbox that the next unit takes in.
    delivered: Option<u64>,
    trail: Trail,
    /// Somebody waits for the journal, which is not forced yet.
    hurried: bool,
    /// The store has the run as parked.
    parked: bool,
    channels: Vec<Arc<dyn Channel>>,
    /// Nobody is there to answer: the run is parked once only people can move it on.
    parks: bool,
    projector: Projector,
    /// Answers that were given before the questions were asked.
    pub(crate) answers: HashMap<String, Json>,
    /// Outputs of nodes that are not run.
    pub(crate) given: Given,
    /// Who called this run, if it is a child.
    parent: Option<(mpsc::Sender<Command>, TaskKey)>,
    /// What the parent was told.
    told: Option<Rest>,
    /// How long the run is kept when only timers will move it on; none: as long as they take.
    pub(crate) patience_ms: Option<u64>,
    /// The process is to end.
    stopping: Option<stop::Stopping>,
}

/// How a drive begins.
pub(crate) enum Begin {
    /// A new run, with its whole input.
    New(Json),
    /// A run that the journal knows.
    Again {
        /// A person asked for it.
        by_hand: bool,
    },
}

enum Incoming {
    /// More of the journal is durable.
    Durable,
    Command(Command),
    Answered(Answered),
    CallEnded(Ended),
    Due(Timer),
}

impl Driver {
    /// A driver for a run of which nothing has happened yet, and the hub that commands it.
    pub(crate) fn new(world: &Arc<World>, identity: Identity, flow: Pinned, policy: FlowPolicy) -> (Driver, Hub) {
        let (sender, commands) = mpsc::channel::<Command>(COMMAND_QUEUE);
        let hub = Hub::new(identity.run_id.clone(), sender.clone());
        let record = Record {
            flow: flow.graph.name.clone(),
            pin: flow.pin.clone(),
            policy: policy.clone(),
            depth: identity.depth,
            parent: identity.parent.clone(),
            root: identity.root.clone(),
            again: None,
            called: None,
            repeats: None,
            answers: BTreeMap::new(),
            request: None,
        };
        let projection = world.projections.of(&flow.graph);
        let state = RunState::new(flow.graph, policy);
        let site = CallSite {
            tenant: identity.tenant.clone(),
            run_id: identity.run_id.clone(),
            root: identity.root.clone(),
            graph: state.graph.clone(),
            pin: flow.pin.clone(),
            state: world.state.clone(),
            cache: world.cache.clone(),
            blobs: world.blobs.clone(),
            timers: world.timers.clone(),
            capabilities: world.capabilities.clone(),
            commands: sender,
        };
        let projector = Projector::new(identity.tenant.clone(), identity.run_id.clone(), state.graph.clone());
        let driver = Driver {
            state,
            identity,
            pin: flow.pin,
            world: world.clone(),
            site: Arc::new(site),
            hub: hub.clone(),
            commands,
            notes_to_self: VecDeque::new(),
            attempts: FuturesUnordered::new(),
            answer: None,
            live: HashMap::new(),
            received: HashMap::new(),
            leaving: HashMap::new(),
            calls: FuturesUnordered::new(),
            asked: HashMap::new(),
            dozing: Dozing::default(),
            timers: TimerHeap::default(),
            sleeping: None,
            children: HashMap::new(),
            queued: HashMap::new(),
            place: None,
            starting: None,
            repeats: None,
            has_called: false,
            alone: false,
            entropy: SplitMix(random()),
            next_seq: 0,
            record: Some(record),
            staged: None,
            projection,
            rows: Vec::new(),
            delivered: None,
            trail: Trail::default(),
            hurried: false,
            parked: false,
            channels: Vec::new(),
            parks: false,
            projector,
            answers: HashMap::new(),
            given: Given::new(),
            parent: None,
            told: None,
            patience_ms: None,
            stopping: None,
        };
        (driver, hub)
    }

    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What a new run was asked for with, by its digest.
    pub(crate) fn asked_by(&mut self, request: Option<Box<str>>) {
        if let Some(record) = &mut self.record {
            record.request = request;
        }
    }

    /// The run does again what another did, but for what is given.
    pub(crate) fn do_again(&mut self, again: Again, given: Given) {
        if let Some(record) = &mut self.record {
            record.again = Some(again);
            self.given = given;
        }
    }

    /// Takes answers to questions that are still to be asked. A new run records them.
    pub(crate) fn answer_with(&mut self, answers: HashMap<String, Json>) {
        if let Some(record) = &mut self.record {
            record.answers.extend(answers.clone());
        }
        self.answers.extend(answers);
    }

    /// Whether a question may still be asked at an address: its task, or the one that it is below, has not ended.
    pub(crate) fn may_ask(&self, address: &str) -> bool {
        let here = address.split(['/', '#']).next().unwrap_or(address);
        let mut path = Some(here);
        // A pass that has not begun is inside of a task that has.
        while let Some(task) = path {
            if let Some(key) = self.state.task_at(task) {
                return !self.state.task(key).phase.is_end();
            }
            path = task.rsplit_once('.').map(|(owner, _)| owner.rsplit_once('[').map_or(owner, |(owner, _)| owner));
        }
        // It is meant for the node of this id in every pass.
        true
    }

    /// The run was called by this name, and repeats this run.
    fn called_as(&mut self, name: &Arc<str>, repeats: Option<RunId>) {
        if let Some(record) = &mut self.record {
            record.called = Some(name.clone());
        }
        self.repeat(repeats);
    }

    /// The run repeats another one.
    pub(crate) fn repeat(&mut self, repeats: Option<RunId>) {
        if let Some(record) = &mut self.record {
            record.repeats.clone_from(&repeats);
        }
        self.repeats = repeats;
    }

    pub(crate) fn channels(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    pub(crate) fn set_alone(&mut self) {
        self.alone = true;
    }

    pub(crate) fn set_channels(&mut self, channels: Vec<Arc<dyn Channel>>) {
        self.channels = channels;
    }

    /// Drives the run to its end, or, if `park`, until only people and events from outside can move it on.
    pub(crate) async fn drive(&mut self, begin: Begin, park: bool) {
        self.parks = park;
        if self.state.end().is_none() {
            self.world.runner.prepare(self.packs()).await;
        }
        match begin {
            Begin::New(input) => {
                let seed = self.entropy.draw();
                // Accepting a start cannot be refused: the run is new.
                let _ = self.bring(Input::Start { input, seed });
            }
            Begin::Again { by_hand } => self.go_on(by_hand).await,
        }
        while self.state.end().is_none() && self.state.held().is_none() && !self.trail.is_refused() {
            if self.has_stopped() {
                return self.put_down().await;
            }
            if let Some(rest) = self.rest() {
                if self.parks {
                    let needs_attention = rest.waiting.iter().any(Waiting::needs_attention);
                    let _ = self.bring(Input::Park { due: rest.due, needs_attention });
                    break;
                }
                self.tell_parent(rest).await;
            }
            let incoming = self.next().await;
            if !matches!(incoming, Incoming::Durable) {
                // Whatever it is, the run may move now.
                self.moves();
            }
            match incoming {
                Incoming::Durable => self.catch_up(),
                Incoming::Command(command) => self.obey(command),
                Incoming::Answered(answered) => self.answered(answered),
                Incoming::CallEnded(ended) => self.call_ended(ended),
                Incoming::Due(timer) => {
                    let _ = self.bring(Input::Due(timer));
                }
            }
            #[cfg(test)]
            self.check_live();
        }
    }

    /// The packs that the flow's nodes come from.
    fn packs(&self) -> Vec<Digest> {
        let packs: BTreeSet<_> = self.state.graph.nodes.iter().filter_map(|node| node.node_type.pack.clone()).collect();
        packs.into_iter().collect()
    }

    /// Takes the run in without running anything of it.
    pub(crate) async fn accept(&mut self, begin: Begin) {
        self.stand_still();
        if let Begin::New(input) = begin {
            let seed = self.entropy.draw();
            let _ = self.bring(Input::Start { input, seed });
        }
        self.leave().await;
    }

    /// Records what somebody outside asks for, without running anything.
    pub(crate) async fn note(&mut self, request: Request, delivered: Option<u64>) -> Result<(), HubError> {
        self.stand_still();
        let (answer, answered) = oneshot::channel();
        self.delivered = delivered;
        self.request(request, answer);
        self.delivered = None;
        self.leave().await;
        if self.is_refused() {
            return Err(HubError::RunEnded);
        }
        answered.await.unwrap_or(Err(HubError::RunEnded))
    }

    /// Something below the run has happened: whoever looks for work finds it.
    pub(crate) async fn call_attention(&mut self) {
        self.stand_still();
        let _ = self.bring(Input::Park { due: Some(self.world.timers.now()), needs_attention: false });
        self.leave().await;
    }

    /// Gives no attempt a permit any more.
    fn stand_still(&mut self) {
        self.state.policy.max_concurrency = 0;
    }

    /// Whether the store takes nothing more from this driver.
    pub(crate) fn is_refused(&self) -> bool {
        self.trail.is_refused()
    }

    /// Whether there may be runs below this one: it has called something, or somebody has driven it before.
    pub(crate) fn has_called(&self) -> bool {
        self.has_called
    }

    /// The run that a task has called.
    pub(crate) fn child_of(&self, task: &str) -> Option<RunId> {
        let key = self.state.task_at(task)?;
        self.state.waits_for_child(key).then(|| self.child_id(key, self.state.task(key).attempt))
    }

    /// Waits until everything that happened is durable and told, in this run and in its children.
    pub(crate) async fn leave(&mut self) {
        while !self.trail.is_empty() && !self.trail.is_refused() {
            self.hurry();
            std::future::poll_fn(|context| self.trail.poll(context)).await;
            self.catch_up();
        }
        for child in self.children.values() {
            let (answer, answered) = oneshot::channel();
            if child.hub.settle(answer).await {
                let _ = answered.await;
            }
        }
    }

    /// Decides, records, performs.
    fn bring(&mut self, input: Input) -> Result<(), Refusal> {
        let now = self.world.timers.now();
        if let Some(budget) = &self.world.budget {
            self.state.max_bytes = MAX_RUN_BYTES.min(self.state.bytes.saturating_add(budget.left()));
            self.state.shares_budget = true;
        }
        let mut facts = decide(&mut self.state, input, now, &mut self.entropy)?;
        if !facts.is_empty() {
            self.stamp(&mut facts);
            self.record(Unit { first_seq: self.next_seq, ts: now, facts });
        }
        Ok(())
    }

    fn record(&mut self, unit: Unit) {
        let unit = Arc::new(unit);
        if let Some(budget) = &self.world.budget {
            budget.take(unit.size());
        }
        self.next_seq = unit.next_seq();
        // Of a run that another driver drives along nobody else waits for the end.
        let top = self.parent.is_none();
        // Whatever happens to a parked run makes it one that somebody should drive.
        let standing = unit.facts.iter().rev().find_map(trail::standing);
        let standing = standing.or(self.parked.then_some(Standing::Active));
        self.parked = matches!(standing, Some(Standing::Parked { .. }));
        let rows = self.rows_of(&unit);
        let force = unit.facts.iter().any(|fact| trail::is_waited_for(fact, top));
        self.hurried |= force;
        self.world.journal.append(Entry {
            tenant: self.identity.tenant.clone(),
            run: self.identity.run_id.clone(),
            unit: unit.clone(),
            record: self.record.take(),
            writes: self.staged.take(),
            rows,
            standing,
            force,
            durable: self.trail.durable(),
            delivered: self.delivered.take(),
        });
        self.trail.add(unit.next_seq(), Deferred::Tell(unit.clone()));
        self.perform(&unit);
        self.catch_up();
    }

    /// There is nothing else to do: if somebody waits for the journal, it is forced now. What one poll of the driver has
    /// brought is forced together.
    fn hurry(&mut self) {
        if !std::mem::take(&mut self.hurried) || sabotage::forcing_is_off() {
            return;
        }
        match self.identity.depth == 0 && self.children.is_empty() && self.world.hubs.is_lonely() {
            true => self.world.journal.force_here(),
            false => self.world.journal.force(),
        }
    }

    /// Lets go of what the journal holds by now.
    fn catch_up(&mut self) {
        while let Some(deferred) = self.trail.next() {
            match deferred {
                Deferred::Tell(unit) => {
                    self.starting = None;
                    self.tell(&unit);
                }
                Deferred::Follow(_) => {}
                Deferred::Leave(call, outgoing) => self.leaves(call, *outgoing),
                // Whoever asked may be gone.
                Deferred::Acknowledge(answer, outcome) => _ = answer.send(outcome),
            }
        }
    }

    fn tell(&mut self, unit: &Unit) {
        if self.channels.is_empty() {
            return;
        }
        for event in self.projector.project(unit) {
            self.publish(&event);
        }
    }

    /// What the driver keeps is what the state says to be outstanding.
    #[cfg(test)]
    fn check_live(&self) {
        use std::collections::HashSet;

        use crate::outstanding::Outstanding;

        let mut attempts = HashSet::new();
        let mut timers = HashSet::new();
        let mut children = HashSet::new();
        let mut calls = HashSet::new();
        for outstanding in self.state.outstanding() {
            match outstanding {
                Outstanding::Attempt { task, .. } => _ = attempts.insert(task),
                Outstanding::Timer(timer, due) => _ = timers.insert((timer, due)),
                Outstanding::Child { task, .. } => _ = children.insert(task),
                Outstanding::Call { task, attempt, ordinal } => _ = calls.insert((task, attempt, ordinal)),
                _ => {}
            }
        }
        assert_eq!(attempts, self.live.keys().chain(self.dozing.dropped.keys()).copied().collect());
        assert!(self.leaving.keys().all(|call| calls.contains(call)), "a call that nobody waits for");
        assert_eq!(timers, self.timers.live(&self.state));
        assert!(self.children.keys().all(|task| children.contains(task)), "a child that nobody waits for");
    }

    fn publish(&self, event: &Event) {
        for channel in &self.channels {
            let told = std::panic::AssertUnwindSafe(|| channel.on_event(event));
            if std::panic::catch_unwind(told).is_err() {
                tracing::warn!(run = %self.identity.run_id, "a channel panicked at {}", event.kind);
            }
        }
    }

    fn answered(&mut self, answered: Answered) {
        let Answered { task, attempt, result, writes, heard, received } = answered;
        self.live.remove(&task);
        if !self.state.is_running(task, attempt) {
            return;
        }
        if let Some(received) = received {
            self.received.insert(task, Remembered::Known(received));
        }
        let (result, writes) = match result {
            Ok(Step::Done(output)) => (self.stage(writes).map(|()| Step::Done(output)), Vec::new()),
            other => (other, writes),
        };
        let _ = self.bring(Input::Answered { task, attempt, result, writes, heard });
    }

    /// Makes an attempt's state writes visible together with its outcome.
    fn stage(&mut self, writes: Vec<Write>) -> Result<(), Failure> {
        if writes.is_empty() {
            return Ok(());
        }
        let staged = self.world.state.stage(&self.identity.tenant, &self.state.graph.name, writes);
        self.staged = Some(staged.map_err(|error| match error {
            StageError::Conflict(key) => {
                let message = format!("somebody else has written the state `{key}` meanwhile");
                Failure::retryable(code::STATE_CONFLICT, message)
            }
            StageError::Store(error) => error.into(),
        })?);
        Ok(())
    }
}

/// A small generator of random numbers (SplitMix64): a run's seed is all that it needs.
struct SplitMix(u64);

impl Entropy for SplitMix {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

pub(crate) fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Defaults, with the caller's members over them.
pub(crate) fn merge(defaults: &Json, given: &Json) -> Json {
    let members = |json: &Json| json.as_object().cloned().unwrap_or_default();
    let mut merged = members(defaults);
    merged.extend(members(given));
    Json::Object(Arc::new(merged))
}

/// Reads all durable units of a run, a page at a time.
pub fn each_unit(
    journal: &dyn Journal,
    tenant: &Tenant,
    run: &RunId,
    mut visit: impl FnMut(Arc<Unit>),
) -> Result<(), StoreError> {
    let mut from = 0;
    loop {
        let page = journal.read(tenant, run, from, READ_UNITS)?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.next_seq();
        page.into_iter().for_each(&mut visit);
    }
}
