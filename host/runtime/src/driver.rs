//! The driver performs the decisions of the deciders, and passes everything that arrives to them. It never decides.
//!
//! ```text
//!   hub, attempts' notes ──► commands ─┐                    ┌─► attempts (runner)
//!   attempts ──────────────► answers ──┼─► decide ─► facts ─┼─► timers
//!   children ──────────────► commands ─┤             │      └─► children (drivers)
//!   timers ────────────────► due ──────┘             └─► journal ─► events ─► channels
//! ```
//!
//! | part | holds |
//! |---|---|
//! | [`attempts`] | running and evicted attempts |
//! | [`calls`] | calls that leave the host |
//! | [`children`] | child runs, and live permits |
//! | [`clock`] | timers |
//! | [`incoming`] | the inputs, and their order |
//! | [`outbox`] | units for the journal, and the effects that wait for it |
//!
//! **Nothing acknowledged is lost.** The driver appends facts before it acts on them, and the journal makes them
//! durable in the order of the appends. So the durable facts are always a prefix of the run's facts.
//!
//! Everything that leaves the run waits in the [`durability`] queue until all facts recorded before it are durable:
//! events for subscribers, acknowledgements, the result, and calls that leave the host. A process that resumes the run
//! from a durable prefix therefore contradicts nothing seen outside the run. A crash loses only facts that nothing
//! outside depends on. Running the attempts of such facts again has no effect outside, because they act through the
//! queue alone. The driver *forces* the journal (makes facts durable at once) only where a caller waits: when it
//! accepts, parks or ends a run, and before it shows a question or wait, acknowledges a request, or lets a call leave.
//!
//! **Nothing is done twice.** A call is a fact before it leaves, and its end is a fact before the attempt gets it. A
//! repeated attempt gets the answers that it got before its last recorded call, in the same order
//! ([`crate::call_log`]). What an attempt does depends only on these answers, so it makes the same calls, and those
//! that have ended are answered from the record. Answers after its last recorded call may be lost, since nothing that
//! follows from them has left. The driver makes a call without an end again with the same key, unless its effect is
//! `once`. In that case the task is blocked until a person decides whether the call happened. A task whose component
//! makes other calls than before is also blocked.

mod attempt;
mod attempts;
mod calls;
#[cfg(test)]
mod check;
mod child;
mod children;
mod clock;
mod durability;
mod early;
mod entropy;
mod incoming;
mod journal;
mod options;
mod outbox;
mod parent;
mod perform;
mod shutdown;
#[cfg(test)]
mod testing;
mod waiting;

use std::{collections::VecDeque, sync::Arc};

use flowcell_contract::RunId;
use flowcell_flow::graph::Graph;
use tokio::sync::{mpsc, oneshot};

use crate::{
    calls::CallSite,
    command::{HubError, RunCommand},
    decide::{Entropy as _, Input, decide},
    fact::Write,
    hub::{Channel, Command, Hub},
    limits::{MAX_QUEUED_COMMANDS, MAX_RUN_BYTES},
    live::LivePermit,
    outstanding::Timer,
    ports::{Change, Pin, Record, StageError, StoreError, Unit},
    publish::Projector,
    result::{Idle, Waiting},
    sabotage,
    state::RunState,
    world::World,
};
use attempts::Attempts;
use calls::Calls;
use children::Children;
use clock::{Clock, NextDue};
use durability::OnDurable;
use entropy::SplitMix;
use incoming::Incoming;
pub use journal::each_unit;
use options::DriveOptions;
pub(crate) use options::{Begin, Identity, KeptOutputs, merge};
use outbox::{Outbox, conflict};
use parent::Parent;
use shutdown::Shutdown;

pub(crate) struct Driver {
    pub(crate) state: RunState,
    pub(crate) options: DriveOptions,
    pub(crate) identity: Identity,
    pub(crate) pin: Pin,
    world: Arc<World>,
    site: Arc<CallSite>,
    hub: Hub,
    commands: mpsc::Receiver<Command>,
    /// Commands of the driver to itself, handled before all others.
    notes_to_self: VecDeque<Command>,
    attempts: Attempts,
    calls: Calls,
    children: Children,
    clock: Clock,
    outbox: Outbox,
    /// The run that called this one, if it is a child.
    parent: Option<Parent>,
    /// The run that this one repeats.
    repeats: Option<RunId>,
    /// True if the run may have child runs: a call or a child run has begun, or the run was driven before.
    has_called: bool,
    entropy: SplitMix,
    shutdown: Shutdown,
}

impl Driver {
    /// Returns a driver for a run without facts, and its hub. The journal gets `record` with the first unit.
    pub(crate) fn new(world: &Arc<World>, run_id: RunId, graph: Arc<Graph>, record: Record) -> (Driver, Hub) {
        let (sender, commands) = mpsc::channel::<Command>(MAX_QUEUED_COMMANDS);
        let identity = Identity::new(world.tenant.clone(), run_id, &record);
        let hub = Hub::new(identity.run_id.clone(), sender.clone());
        let (pin, repeats, seed) = (record.pin.clone(), record.calls_as().cloned(), world.seed_of(&identity.run_id));
        let options = DriveOptions { answers: record.answers.clone().into(), ..DriveOptions::default() };
        let site = attempt::site(world, &identity, graph.clone(), pin.clone(), sender);
        let projection = world.projections.of(&graph);
        let projector = Projector::new(identity.tenant.clone(), identity.run_id.clone(), graph.clone());
        let driver = Driver {
            state: RunState::new(graph, record.policy.clone()),
            options,
            outbox: Outbox::new(identity.clone(), record, projection, projector),
            identity,
            pin,
            world: world.clone(),
            site: Arc::new(site),
            hub: hub.clone(),
            commands,
            notes_to_self: VecDeque::new(),
            attempts: Attempts::default(),
            calls: Calls::default(),
            children: Children::default(),
            clock: Clock::new(world.timers.clone()),
            parent: None,
            repeats,
            has_called: false,
            entropy: SplitMix(seed),
            shutdown: Shutdown::default(),
        };
        (driver, hub)
    }

    pub(crate) fn channels(&self) -> &[Arc<dyn Channel>] {
        self.outbox.channels()
    }

    pub(crate) fn set_channels(&mut self, channels: Vec<Arc<dyn Channel>>) {
        self.outbox.set_channels(channels);
    }

    /// Keeps a value until the store lists the new run.
    pub(crate) fn hold_until_listed(&mut self, held: Box<dyn Send>) {
        self.outbox.until_listed.push(held);
    }

    pub(crate) fn has_permit(&self) -> bool {
        self.children.has_permit()
    }

    /// Stores the run's live permit in the driver.
    pub(crate) fn set_permit(&mut self, permit: LivePermit) {
        self.children.set_permit(permit);
    }

    /// Adds row changes and state writes to the first unit of the run.
    pub(crate) fn begin_with(&mut self, rows: Vec<Change>, writes: Vec<Write>) -> Result<(), StoreError> {
        self.outbox.rows = rows;
        self.outbox.stage(&*self.world.state, &self.state.graph.name, writes).map_err(|error| match error {
            StageError::Conflict(key) => StoreError::conflict(conflict(&key)),
            StageError::Store(error) => error,
        })
    }

    /// Returns true if the store refuses all further units of this driver.
    pub(crate) fn is_refused(&self) -> bool {
        self.outbox.is_refused()
    }

    pub(crate) fn has_called(&self) -> bool {
        self.has_called
    }

    /// Returns the run that the task at an address has called. `None`: the task does not wait for a child.
    pub(crate) fn child_of(&self, task: &str) -> Option<RunId> {
        let key = self.state.task_at(task)?;
        let attempt = self.state.task(key).attempt;
        self.state.waits_for_child(key).then(|| child::run_id(&self.state, &self.identity.run_id, key, attempt))
    }

    fn caller(&self) -> child::Caller<'_> {
        child::Caller {
            state: &self.state,
            identity: &self.identity,
            pin: &self.pin,
            world: &self.world,
            repeats: self.repeats.as_ref(),
            options: &self.options,
            channels: self.outbox.channels(),
        }
    }

    /// Returns the people and events that the run and its children wait for.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        waiting::waiting(&self.state, &self.children)
    }

    /// Folds the durable facts into the state. Returns the `begin` for [`Driver::drive`]. `None`: there are no facts.
    pub(crate) fn recover(&mut self, by_hand: bool) -> Result<Option<Begin>, StoreError> {
        self.has_called = true;
        let (journal, identity) = (&*self.world.journal, &self.identity);
        journal::fold(journal, identity, &mut self.state, |unit| self.outbox.recover(unit))?;
        if self.outbox.next_seq == 0 {
            return Ok(None);
        }
        self.outbox.finish_recovery();
        Ok(Some(Begin::Again { by_hand }))
    }

    /// Drives the run to its end. With `park`, stops when only people and events from outside can continue it. A run that no
    /// other run has called also stops when it only waits for a quota to renew.
    pub(crate) async fn drive(&mut self, begin: Begin, park: bool) {
        self.options.parks = park;
        if self.state.end().is_none() {
            self.world.runner.prepare(&self.identity.tenant, attempt::packs(&self.state.graph)).await;
        }
        match begin {
            Begin::New(_) => self.begin(begin),
            Begin::Again { by_hand } => self.resume(by_hand).await,
        }
        while self.state.end().is_none() && self.state.park_reason().is_none() && !self.is_refused() {
            if self.has_stopped() {
                return self.park().await;
            }
            if let Some(idle) = self.idle_state() {
                if self.options.parks || idle.quota.is_some() && self.parent.is_none() {
                    let _ = self.apply_input(Input::park(idle));
                    break;
                }
                self.children.set_idle(true);
                if let Some(parent) = &mut self.parent {
                    parent.report_idle(idle).await;
                }
            }
            let incoming = self.next_incoming().await;
            if !matches!(incoming, Incoming::Durable) {
                self.children.set_idle(false);
                self.parent.iter_mut().for_each(Parent::clear_reported);
            }
            match incoming {
                Incoming::Durable => self.catch_up(),
                Incoming::Command(command) => self.handle(command),
                Incoming::Answered(answered) => self.answered(answered),
                Incoming::CallEnded(ended) => self.call_ended(ended),
                Incoming::Due(timer) => {
                    let _ = self.apply_input(Input::Due(timer));
                }
            }
            #[cfg(test)]
            check::check(self);
        }
    }

    fn begin(&mut self, begin: Begin) {
        if let Begin::New(input) = begin {
            let (seed, about) = (self.entropy.draw(), self.outbox.about());
            // The deciders never refuse the start of a new run.
            let _ = self.apply_input(Input::Start { input, seed, about });
        }
    }

    /// Accepts the run without starting any of its attempts.
    pub(crate) async fn accept(&mut self, begin: Begin) {
        self.stop_admission();
        self.begin(begin);
        self.flush().await;
    }

    /// Records a command without starting any attempt. `delivered`: the number of its message in the store's inbox.
    pub(crate) async fn record_command(&mut self, command: RunCommand, delivered: Option<u64>) -> Result<(), HubError> {
        self.stop_admission();
        let (answer, answered) = oneshot::channel();
        self.request(command, delivered, answer);
        self.flush().await;
        if self.is_refused() {
            return Err(HubError::RunEnded);
        }
        answered.await.unwrap_or(Err(HubError::RunEnded))
    }

    /// Makes the run due at once, because a child run has recorded a command.
    pub(crate) async fn make_due(&mut self) {
        self.stop_admission();
        let _ = self.apply_input(Input::park(Idle::until(self.clock.now())));
        self.flush().await;
    }

    /// Prevents further attempts from starting: sets the run's maximum number of running attempts to 0.
    fn stop_admission(&mut self) {
        self.state.policy.max_concurrency = 0;
    }

    /// Begins a shutdown at the first request. A request after the grace period ends the wait for calls and child runs.
    fn stop(&mut self) {
        let Some(until) = self.shutdown.request(self.clock.now()) else { return };
        self.stop_admission();
        self.children.clear_queue();
        let (wait, commands) = (self.clock.wait(until), self.site.commands.clone());
        tokio::spawn(async move {
            wait.await;
            // The run may have stopped meanwhile.
            let _ = commands.send(Command::Stop).await;
        });
        for child in self.children.wake_all() {
            tokio::spawn(child.stop());
        }
    }

    /// Returns true if a shutdown is complete, except for parking the run.
    fn has_stopped(&self) -> bool {
        self.shutdown.is_complete(|| self.calls.is_quiet() && self.children.all_idle())
    }

    /// Parks the run at the end of a shutdown, due at once.
    async fn park(&mut self) {
        let _ = self.apply_input(Input::park(Idle::until(self.clock.now())));
        self.flush().await;
        if let Some(parent) = &self.parent {
            parent.report_parked().await;
        }
    }

    /// Returns the idle state if only people, events from outside, or late timers continue the run. A timer is late
    /// if it is due after the time for which the driver waits for timers ([`DriveOptions::patience_ms`]).
    fn idle_state(&self) -> Option<Idle> {
        let waits = |task| self.state.find(task).is_some_and(|task| task.idle);
        let is_idle = self.attempts.tasks().all(waits)
            && self.calls.is_quiet()
            && self.children.has_empty_queue()
            && self.notes_to_self.is_empty()
            && self.commands.is_empty()
            && self.children.are_idle_at(self.clock.now());
        if !is_idle {
            return None;
        }
        let own = match self.clock.next_due(&self.state, self.options.patience_ms) {
            NextDue::Soon => return None,
            NextDue::At(due) => Some(due),
            NextDue::Never => None,
        };
        Some(waiting::idle(&self.state, &self.children, own))
    }

    /// Waits until all facts of the run and its children are durable, and the effects of these facts are performed.
    pub(crate) async fn flush(&mut self) {
        while !self.outbox.queue().is_empty() && !self.is_refused() {
            self.force_journal();
            std::future::poll_fn(|context| self.outbox.queue().poll(context)).await;
            self.catch_up();
        }
        for hub in self.children.hubs() {
            let (answer, answered) = oneshot::channel();
            if hub.settle(answer).await {
                let _ = answered.await;
            }
        }
    }

    /// Passes an input to the deciders. Records the facts that they return, and performs their effects.
    fn apply_input(&mut self, input: Input) -> Result<(), HubError> {
        let now = self.clock.now();
        if let Some(budget) = &self.world.budget {
            self.state.max_bytes = MAX_RUN_BYTES.min(self.state.bytes.saturating_add(budget.left()));
            self.state.shares_budget = true;
        }
        self.state.quota_now = self.world.hold(&self.state);
        let mut facts = decide(&mut self.state, input, now, &mut self.entropy)?;
        if !facts.is_empty() {
            self.attempts.record_inputs(&mut facts);
            self.record(Unit { first_seq: self.outbox.next_seq, ts: now, facts });
        }
        Ok(())
    }

    fn record(&mut self, unit: Unit) {
        let unit = Arc::new(unit);
        if let Some(budget) = &self.world.budget {
            budget.take(unit.size());
        }
        let entry = self.outbox.add(&unit, &self.state, self.parent.is_none());
        self.world.journal.append(entry);
        self.outbox.hold(OnDurable::Publish(unit.clone()));
        self.perform(&unit);
        self.catch_up();
    }

    /// Forces the journal if a caller waits for it. The driver calls this function when it has nothing else to do, so
    /// that one force covers all units of a poll.
    fn force_journal(&mut self) {
        if !self.outbox.take_force_request() || sabotage::forcing_is_off() {
            return;
        }
        match self.identity.depth == 0 && self.children.is_empty() && self.world.hubs.is_lonely() {
            true => self.world.journal.force_here(),
            false => self.world.journal.force(),
        }
    }

    /// Performs the effects whose facts are durable.
    fn catch_up(&mut self) {
        while let Some(effect) = self.outbox.next_effect() {
            match effect {
                OnDurable::Publish(unit) => {
                    self.outbox.until_listed.clear();
                    self.outbox.publish(&unit);
                }
                OnDurable::Follow(_) => {}
                OnDurable::Dispatch(call, outgoing) => self.dispatch(call, *outgoing),
                // The caller may have disconnected.
                OnDurable::Acknowledge(answer, outcome) => _ = answer.send(outcome),
            }
        }
    }

    async fn next_incoming(&mut self) -> Incoming {
        if let Some(command) = self.notes_to_self.pop_front() {
            return Incoming::Command(command);
        }
        self.evict_waiting();
        // A timer that ends an attempt now would be a failure that only the end of the process has caused: an attempt that
        // waits for a call that this driver no longer makes could not answer. The next process has the timers, too.
        let due = if self.shutdown.is_requested() { None } else { self.clock.first(&self.state) };
        self.set_wake(due);
        std::future::poll_fn(|context| incoming::poll_next(self, context, due)).await
    }

    /// Sets when the driver wakes: when a timer is due, or when an attempt may have waited long enough to be evicted.
    fn set_wake(&mut self, due: Option<(u64, Timer)>) {
        let wakes = due.map(|(at, _)| at).into_iter().chain(self.attempts.next_check()).min();
        self.clock.set_wake(wakes);
    }
}
