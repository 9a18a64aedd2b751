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

mod attempts;
mod below;
mod calls;
mod children;
mod clock;
mod entropy;
mod obey;
mod outbox;
mod perform;
mod prepare;
mod recover;
mod rest;
mod trail;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    task::{Context, Poll},
};

use flowcell_contract::{Digest, Json, RunId, Tenant, Value};
use flowcell_flow::graph::{FlowPolicy, NodeIx};
use tokio::sync::{mpsc, oneshot};

use crate::{
    calls::CallSite,
    command::{HubError, RunCommand},
    decide::{Entropy as _, Input, decide},
    fact::{TaskKey, Write},
    hub::{Channel, Command, Hub},
    limits::{COMMAND_QUEUE, MAX_RUN_BYTES, READ_UNITS},
    outstanding::Timer,
    ports::{Entry, Journal, Pin, Record, StageError, Staged, StoreError, Unit},
    publish::Projector,
    result::{Rest, Waiting},
    sabotage,
    state::RunState,
    world::{Pinned, World, random},
};
use attempts::{Answered, Attempts};
use calls::{Calls, Ended};
use children::Children;
use clock::Clock;
use entropy::SplitMix;
pub(crate) use entropy::mix;
use outbox::{Beside, Outbox};
use trail::Deferred;

/// Outputs of nodes of the flow itself, which are not run.
pub(crate) type Given = HashMap<NodeIx, Value>;

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

/// Who called a run.
struct Parent {
    commands: mpsc::Sender<Command>,
    task: TaskKey,
    /// What it was told last of why this run does not move by itself.
    told: Option<Rest>,
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
    attempts: Attempts,
    calls: Calls,
    children: Children,
    clock: Clock,
    outbox: Outbox,
    /// Who called this run, if it is a child.
    parent: Option<Parent>,
    /// The run that this one repeats.
    repeats: Option<RunId>,
    /// It has called something, or somebody has driven it before.
    has_called: bool,
    /// Nothing else is driven in the process when it begins.
    alone: bool,
    entropy: SplitMix,
    /// Nobody is there to answer: the run is parked once only people can move it on.
    parks: bool,
    /// Answers that were given before the questions were asked.
    pub(crate) answers: HashMap<String, Json>,
    /// Outputs of nodes that are not run.
    pub(crate) given: Given,
    /// How long the run is kept when only timers will move it on; none: as long as they take.
    pub(crate) patience_ms: Option<u64>,
    /// The process is to end.
    stopping: Option<rest::Stopping>,
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
            attempts: Attempts::default(),
            calls: Calls::default(),
            children: Children::default(),
            clock: Clock::new(world.timers.clone()),
            outbox: Outbox::new(hub.run_id().clone(), record, projection, projector),
            parent: None,
            repeats: None,
            has_called: false,
            alone: false,
            entropy: SplitMix(random()),
            parks: false,
            answers: HashMap::new(),
            given: Given::new(),
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

    pub(crate) fn channels(&self) -> &[Arc<dyn Channel>] {
        self.outbox.channels()
    }

    /// Drives the run to its end, or, if `park`, until only people and events from outside can move it on.
    pub(crate) async fn drive(&mut self, begin: Begin, park: bool) {
        self.parks = park;
        if self.state.end().is_none() {
            self.world.runner.prepare(&self.identity.tenant, self.packs()).await;
        }
        match begin {
            Begin::New(input) => {
                let seed = self.entropy.draw();
                // Accepting a start cannot be refused: the run is new.
                let _ = self.bring(Input::Start { input, seed });
            }
            Begin::Again { by_hand } => self.go_on(by_hand).await,
        }
        while self.state.end().is_none() && self.state.held().is_none() && !self.is_refused() {
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
    pub(crate) async fn note(&mut self, command: RunCommand, delivered: Option<u64>) -> Result<(), HubError> {
        self.stand_still();
        let (answer, answered) = oneshot::channel();
        self.outbox.delivered = delivered;
        self.request(command, answer);
        self.outbox.delivered = None;
        self.leave().await;
        if self.is_refused() {
            return Err(HubError::RunEnded);
        }
        answered.await.unwrap_or(Err(HubError::RunEnded))
    }

    /// Something below the run has happened: whoever looks for work finds it.
    pub(crate) async fn call_attention(&mut self) {
        self.stand_still();
        let _ = self.bring(Input::Park { due: Some(self.clock.now()), needs_attention: false });
        self.leave().await;
    }

    /// Gives no attempt a permit any more.
    fn stand_still(&mut self) {
        self.state.policy.max_concurrency = 0;
    }

    /// Whether the store takes nothing more from this driver.
    pub(crate) fn is_refused(&self) -> bool {
        self.outbox.is_refused()
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

    pub(crate) fn has_place(&self) -> bool {
        self.children.has_place()
    }

    /// Prepares writes of state, which become durable with a unit.
    fn stage(&self, writes: Vec<Write>) -> Result<Staged, StageError> {
        self.world.state.stage(&self.identity.tenant, &self.state.graph.name, writes)
    }

    /// Waits until everything that happened is durable and told, in this run and in its children.
    pub(crate) async fn leave(&mut self) {
        while !self.outbox.trail().is_empty() && !self.is_refused() {
            self.hurry();
            std::future::poll_fn(|context| self.outbox.trail().poll(context)).await;
            self.catch_up();
        }
        for hub in self.children.hubs() {
            let (answer, answered) = oneshot::channel();
            if hub.settle(answer).await {
                let _ = answered.await;
            }
        }
    }

    /// Decides, records, performs.
    fn bring(&mut self, input: Input) -> Result<(), HubError> {
        let now = self.clock.now();
        if let Some(budget) = &self.world.budget {
            self.state.max_bytes = MAX_RUN_BYTES.min(self.state.bytes.saturating_add(budget.left()));
            self.state.shares_budget = true;
        }
        let mut facts = decide(&mut self.state, input, now, &mut self.entropy)?;
        if !facts.is_empty() {
            self.attempts.stamp(&mut facts);
            self.record(Unit { first_seq: self.outbox.next_seq, ts: now, facts });
        }
        Ok(())
    }

    fn record(&mut self, unit: Unit) {
        let unit = Arc::new(unit);
        if let Some(budget) = &self.world.budget {
            budget.take(unit.size());
        }
        let Beside { record, writes, rows, standing, force, durable, delivered } =
            self.outbox.add(&unit, &self.state, self.parent.is_none());
        self.world.journal.append(Entry {
            tenant: self.identity.tenant.clone(),
            run: self.identity.run_id.clone(),
            unit: unit.clone(),
            record,
            writes,
            rows,
            standing,
            force,
            durable,
            delivered,
        });
        self.outbox.hold(Deferred::Tell(unit.clone()));
        self.perform(&unit);
        self.catch_up();
    }

    /// There is nothing else to do: if somebody waits for the journal, it is forced now. What one poll of the driver has
    /// brought is forced together.
    fn hurry(&mut self) {
        if !self.outbox.take_hurry() || sabotage::forcing_is_off() {
            return;
        }
        match self.identity.depth == 0 && self.children.is_empty() && self.world.hubs.is_lonely() {
            true => self.world.journal.force_here(),
            false => self.world.journal.force(),
        }
    }

    /// Lets go of what the journal holds by now.
    fn catch_up(&mut self) {
        while let Some(deferred) = self.outbox.next() {
            match deferred {
                Deferred::Tell(unit) => {
                    self.outbox.starting = None;
                    self.outbox.tell(&unit);
                }
                Deferred::Follow(_) => {}
                Deferred::Leave(call, outgoing) => self.leaves(call, *outgoing),
                // Whoever asked may be gone.
                Deferred::Acknowledge(answer, outcome) => _ = answer.send(outcome),
            }
        }
    }

    /// Waits for the next thing that comes in.
    async fn next(&mut self) -> Incoming {
        if let Some(command) = self.notes_to_self.pop_front() {
            return Incoming::Command(command);
        }
        self.drop_waiting();
        let due = self.clock.first(&self.state);
        self.sleep(due);
        std::future::poll_fn(|context| self.poll_next(context, due)).await
    }

    /// Wakes when there is something to do: a timer is due, or somebody may have waited for long.
    fn sleep(&mut self, due: Option<(u64, Timer)>) {
        let wakes = due.map(|(at, _)| at).into_iter().chain(self.attempts.next_look()).min();
        self.clock.sleep_until(wakes);
    }

    /// Commands before answers: what an attempt noted was sent before its answer.
    fn poll_next(&mut self, context: &mut Context<'_>, due: Option<(u64, Timer)>) -> Poll<Incoming> {
        if self.outbox.trail().poll(context).is_ready() {
            return Poll::Ready(Incoming::Durable);
        }
        if let Poll::Ready(Some(command)) = self.commands.poll_recv(context) {
            return Poll::Ready(Incoming::Command(command));
        }
        if let Some(answered) = self.attempts.take_back() {
            return Poll::Ready(Incoming::Answered(answered));
        }
        if let Poll::Ready(answered) = self.attempts.poll(context) {
            // The attempt may have asked for something since the commands were looked at.
            return Poll::Ready(match self.commands.poll_recv(context) {
                Poll::Ready(Some(command)) => {
                    self.attempts.put_back(answered);
                    Incoming::Command(command)
                }
                _ => Incoming::Answered(answered),
            });
        }
        if let Poll::Ready(ended) = self.calls.poll(context) {
            return Poll::Ready(Incoming::CallEnded(ended));
        }
        while let Poll::Ready(slept) = self.clock.poll(context) {
            if let Some((_, timer)) = due.filter(|(due, _)| *due <= slept) {
                return Poll::Ready(Incoming::Due(timer));
            }
            self.drop_waiting();
            self.sleep(due);
        }
        if self.outbox.is_hurried() {
            self.hurry();
            return self.outbox.trail().poll(context).map(|()| Incoming::Durable);
        }
        Poll::Pending
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
        assert_eq!(attempts, self.attempts.tasks().collect());
        assert!(self.calls.leaving().all(|call| calls.contains(call)), "a call that nobody waits for");
        assert_eq!(timers, self.clock.live(&self.state));
        assert!(self.children.tasks().all(|task| children.contains(task)), "a child that nobody waits for");
    }
}

/// What a node or a caller is told whose write of state came too late.
fn conflict(key: &str) -> String {
    format!("somebody else has written the state `{key}` meanwhile")
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
