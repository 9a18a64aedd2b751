//! The driver: performs what was decided, and brings what comes of it to the deciders. It never decides.
//!
//! ```text
//!   hub, attempts' notes ──► commands ─┐                    ┌─► attempts (runner)
//!   attempts ──────────────► answers ──┼─► decide ─► facts ─┼─► timers
//!   children ──────────────► commands ─┤             │      └─► children (drivers)
//!   timers ────────────────► due ──────┘             └─► journal ─► events ─► channels
//! ```

mod perform;

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowcell_contract::{Failure, FlowCall, Json, RunId, StepResult, Tenant};
use flowcell_flow::graph::{FlowPolicy, Graph};
use futures_util::{
    StreamExt,
    future::{AbortHandle, Aborted, BoxFuture},
    stream::FuturesUnordered,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    calls::CallSite,
    decide::{Entropy, Input, Refusal, decide},
    event::Event,
    fact::TaskKey,
    hub::{Channel, Command, Hub, HubError, Request},
    limits::COMMAND_QUEUE,
    outstanding::{Outstanding, Timer},
    ports::{Unit, Write},
    publish::Projector,
    result::Waiting,
    state::RunState,
    timing::TimerHeap,
    world::{World, random},
};

/// What came of an attempt.
struct Answered {
    task: TaskKey,
    attempt: (u32, u32),
    result: StepResult,
    writes: Vec<Write>,
}

struct Child {
    hub: Hub,
    waiting: Vec<Waiting>,
    driving: tokio::task::AbortHandle,
}

impl Drop for Child {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// Who a driver drives.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: Tenant,
    pub(crate) run_id: RunId,
    /// How many runs are above this one.
    pub(crate) depth: u32,
}

pub(crate) struct Driver {
    pub(crate) state: RunState,
    identity: Identity,
    world: Arc<World>,
    site: Arc<CallSite>,
    hub: Hub,
    commands: mpsc::Receiver<Command>,
    /// What the driver tells itself; taken before anything else.
    notes_to_self: VecDeque<Command>,
    attempts: FuturesUnordered<BoxFuture<'static, Result<Answered, Aborted>>>,
    aborts: HashMap<TaskKey, AbortHandle>,
    timers: TimerHeap,
    sleeping: Option<(u64, BoxFuture<'static, ()>)>,
    children: HashMap<TaskKey, Child>,
    entropy: SplitMix,
    next_seq: u64,
    channels: Vec<Arc<dyn Channel>>,
    projector: Projector,
    /// Answers that were given before the questions were asked.
    pub(crate) answers: HashMap<String, Json>,
    /// Who called this run, if it is a child.
    parent: Option<(mpsc::Sender<Command>, TaskKey)>,
    /// What the parent was told that this run waits for.
    told: Vec<Waiting>,
}

enum Incoming {
    Command(Command),
    Answered(Answered),
    Due(Timer),
}

impl Driver {
    /// A driver for a new run, and the hub that commands it.
    pub(crate) fn new(world: &Arc<World>, identity: Identity, graph: Arc<Graph>, policy: FlowPolicy) -> (Driver, Hub) {
        let (sender, commands) = mpsc::channel::<Command>(COMMAND_QUEUE);
        let hub = Hub::new(identity.run_id.clone(), sender.clone());
        let state = RunState::new(graph, policy);
        let site = CallSite {
            tenant: identity.tenant.clone(),
            flow: state.graph.name.clone(),
            state: world.state.clone(),
            cache: world.cache.clone(),
            timers: world.timers.clone(),
            commands: sender,
        };
        let projector = Projector::new(identity.tenant.clone(), identity.run_id.clone(), state.graph.clone());
        let driver = Driver {
            state,
            identity,
            world: world.clone(),
            site: Arc::new(site),
            hub: hub.clone(),
            commands,
            notes_to_self: VecDeque::new(),
            attempts: FuturesUnordered::new(),
            aborts: HashMap::new(),
            timers: TimerHeap::default(),
            sleeping: None,
            children: HashMap::new(),
            entropy: SplitMix(random()),
            next_seq: 0,
            channels: Vec::new(),
            projector,
            answers: HashMap::new(),
            parent: None,
            told: Vec::new(),
        };
        (driver, hub)
    }

    /// A driver for the run of a flow that another calls, with its input.
    fn for_child(
        world: &Arc<World>,
        identity: Identity,
        call: &FlowCall,
        answers: HashMap<String, Json>,
        channels: &[Arc<dyn Channel>],
    ) -> Result<(Driver, Hub, Json), Failure> {
        let graph = world.flows.resolve(&call.name)?;
        let input = merge(&graph.input, call.input.json());
        let policy = graph.policy.clone();
        let (mut driver, hub) = Driver::new(world, identity, graph, policy);
        driver.answers = answers;
        hub.start_session();
        for channel in channels {
            driver.add_channel(channel.clone());
        }
        Ok((driver, hub, input))
    }

    pub(crate) fn add_channel(&mut self, channel: Arc<dyn Channel>) {
        self.channels.push(channel);
    }

    /// Drives the run to its end, or, if `park`, until only people and events from outside can move it on.
    pub(crate) async fn drive(&mut self, input: Json, park: bool) {
        let seed = self.entropy.draw();
        // Accepting a start cannot be refused: the run is new.
        let _ = self.bring(Input::Start { input, seed });
        while self.state.end().is_none() {
            if self.is_idle() {
                if park {
                    break;
                }
                self.tell_parent().await;
            }
            match self.next().await {
                Incoming::Command(command) => self.obey(command).await,
                Incoming::Answered(answered) => self.answered(answered),
                Incoming::Due(timer) => {
                    let _ = self.bring(Input::Due(timer));
                }
            }
        }
        self.world.journal.force(&self.identity.tenant, &self.identity.run_id).await;
    }

    /// Decides, records, publishes, performs.
    fn bring(&mut self, input: Input) -> Result<(), Refusal> {
        let now = self.world.timers.now();
        let facts = decide(&mut self.state, input, now, &mut self.entropy)?;
        if facts.is_empty() {
            return Ok(());
        }
        let unit = Unit { first_seq: self.next_seq, ts: now, facts };
        self.next_seq += unit.facts.len() as u64;
        if !self.channels.is_empty() {
            for event in self.projector.project(&unit) {
                self.publish(&event);
            }
        }
        self.perform(&unit.facts);
        self.world.journal.append(&self.identity.tenant, &self.identity.run_id, unit);
        #[cfg(test)]
        self.check_live();
        Ok(())
    }

    /// What the driver keeps is what the state says to be outstanding.
    #[cfg(test)]
    fn check_live(&self) {
        use std::collections::HashSet;
        let mut attempts = HashSet::new();
        let mut timers = HashSet::new();
        let mut children = HashSet::new();
        for outstanding in self.state.outstanding() {
            match outstanding {
                Outstanding::Attempt { task, .. } => _ = attempts.insert(task),
                Outstanding::Timer(timer, due) => _ = timers.insert((timer, due)),
                Outstanding::Child { task, .. } => _ = children.insert(task),
                _ => {}
            }
        }
        assert_eq!(attempts, self.aborts.keys().copied().collect());
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
        let Answered { task, attempt, result, writes } = answered;
        self.aborts.remove(&task);
        let result = result.and_then(|step| self.commit(&writes).map(|()| step));
        // What a withdrawn attempt answers is of no meaning, and the deciders say so by doing nothing.
        let _ = self.bring(Input::Answered { task, attempt, result });
    }

    /// Makes an attempt's state writes visible together with its outcome.
    fn commit(&self, writes: &[Write]) -> Result<(), Failure> {
        if writes.is_empty() {
            return Ok(());
        }
        let committed = self.world.state.commit(&self.identity.tenant, &self.state.graph.name, writes);
        committed.map_err(|key| {
            Failure::retryable("state_conflict", format!("somebody else has written the state `{key}` meanwhile"))
        })
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Note { task, note } => {
                let _ = self.bring(Input::Note { task, note });
            }
            Command::Request(request, answer) => self.request(request, answer).await,
            Command::Attach(channel) => self.attach(channel),
            Command::ChildEnded { task, attempt, result } => {
                self.children.remove(&task);
                let _ = self.bring(Input::ChildEnded { task, attempt, result });
            }
            Command::ChildWaits { task, waiting } => {
                if let Some(child) = self.children.get_mut(&task) {
                    child.waiting = waiting;
                }
            }
        }
    }

    async fn request(&mut self, request: Request, answer: oneshot::Sender<Result<(), HubError>>) {
        let input = match request {
            Request::Send(content) => Input::Send { content },
            Request::Reply { gate, answer: reply } => match gate.split_once('/') {
                Some((task, inner)) => return self.pass_on(task, inner.to_owned(), reply, answer),
                None => Input::Reply { gate, answer: reply },
            },
            Request::Emit { name, payload } => Input::Emit { name, payload },
            Request::Cancel => Input::Cancel,
        };
        let outcome = self.bring(input).map_err(HubError::from);
        // Acknowledged is what is on stable storage.
        self.world.journal.force(&self.identity.tenant, &self.identity.run_id).await;
        let _ = answer.send(outcome);
    }

    /// Hands a reply on to the child that asks.
    fn pass_on(&self, task: &str, gate: String, reply: Json, answer: oneshot::Sender<Result<(), HubError>>) {
        let child = self.state.task_at(task).and_then(|key| self.children.get(&key)).map(|child| child.hub.clone());
        tokio::spawn(async move {
            let outcome = match child {
                Some(child) => child.reply(&gate, reply).await,
                None => Err(HubError::GateClosed),
            };
            let _ = answer.send(outcome);
        });
    }

    fn attach(&mut self, channel: Arc<dyn Channel>) {
        let (tenant, run_id) = (self.identity.tenant.clone(), self.identity.run_id.clone());
        let units = self.world.journal.read(&tenant, &run_id, 0);
        let mut projector = Projector::new(tenant, run_id, self.state.graph.clone());
        channel.on_start(&self.hub);
        for event in units.iter().flat_map(|unit| projector.project(unit)) {
            channel.on_event(&event);
        }
        // Without channels nobody has moved the run's own projector on.
        self.projector = projector;
        self.channels.push(channel);
    }

    /// Whether nothing moves the run on but people, events from outside, or the end of its time.
    fn is_idle(&mut self) -> bool {
        if !self.aborts.is_empty() || self.children.values().any(|child| child.waiting.is_empty()) {
            return false;
        }
        let moves = |timer: &Timer| !matches!(timer, Timer::Total { .. } | Timer::Flow);
        self.notes_to_self.is_empty()
            && self.commands.is_empty()
            && !self.timers.live(&self.state).iter().any(|(timer, _)| moves(timer))
    }

    /// What the run and its children wait for.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for outstanding in self.state.outstanding() {
            match outstanding {
                Outstanding::Question { task, question } => {
                    waiting.push(Waiting::answer(self.state.address(task), &question));
                }
                Outstanding::Event { task, name } => {
                    waiting.push(Waiting::Event { address: self.state.address(task), name: name.to_string() });
                }
                _ => {}
            }
        }
        for (task, child) in &self.children {
            let prefix = self.state.address(*task);
            waiting.extend(child.waiting.iter().map(|waiting| waiting.within(&prefix)));
        }
        waiting.sort_by(|a, b| a.address().cmp(b.address()));
        waiting
    }

    async fn next(&mut self) -> Incoming {
        if let Some(command) = self.notes_to_self.pop_front() {
            return Incoming::Command(command);
        }
        let due = self.timers.first(&self.state);
        self.sleep_until(due.map(|(at, _)| at));
        std::future::poll_fn(|context| self.poll_next(context, due)).await
    }

    /// Sees to it that the driver wakes at this time. Most timers are withdrawn before they are due, and setting the clock
    /// costs more than waking once too often: a sleep that ends earlier is kept.
    fn sleep_until(&mut self, due: Option<u64>) {
        match (due, &self.sleeping) {
            (None, _) => self.sleeping = None,
            (Some(due), Some((sleeping, _))) if *sleeping <= due => {}
            (Some(due), _) => self.sleeping = Some((due, self.world.timers.wait(due))),
        }
    }

    /// Commands first: what an attempt noted was sent before its answer.
    fn poll_next(&mut self, context: &mut Context<'_>, due: Option<(u64, Timer)>) -> Poll<Incoming> {
        if let Poll::Ready(Some(command)) = self.commands.poll_recv(context) {
            return Poll::Ready(Incoming::Command(command));
        }
        while let Poll::Ready(Some(answered)) = self.attempts.poll_next_unpin(context) {
            if let Ok(answered) = answered {
                return Poll::Ready(Incoming::Answered(answered));
            }
        }
        while let (Some((slept, sleep)), Some((due, timer))) = (&mut self.sleeping, due) {
            if Pin::new(sleep).poll(context).is_pending() {
                break;
            }
            let early = *slept < due;
            self.sleeping = None;
            if !early {
                return Poll::Ready(Incoming::Due(timer));
            }
            self.sleep_until(Some(due));
        }
        Poll::Pending
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
