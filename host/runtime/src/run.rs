//! Starting runs: what a caller chooses, and the run that is about to begin.

mod decided;
mod retry;

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, Json, RunId};
use flowcell_flow::graph::{FlowPolicy, Graph};
use futures_util::future::BoxFuture;

pub use retry::{NoStart, Repeat};
use retry::{Repeated, given};

use crate::{
    command::{HubError, RunCommand},
    driver::{Begin, Driver, Identity, each_unit, merge},
    event::Event,
    fact::{RunEnd, Write},
    hub::{Channel, Hub},
    limits::MAX_DEPTH,
    live::Starting,
    ports::{Change, Lease, Pin, Record, StoreError},
    publish::Projector,
    result::{RunError, RunResult, RunStatus, Waiting},
    turn::in_turns,
    world::{Pinned, World, random},
};

/// What a caller chooses for one run.
#[derive(Default)]
pub struct RunOptions {
    /// The run's id; a new one if none is given.
    pub run_id: Option<RunId>,
    /// Members that win over the flow's defaults; an object, or `null`.
    pub input: Json,
    /// Front ends that see everything from the first event.
    pub channels: Vec<Arc<dyn Channel>>,
    /// What wins over the flow's policy.
    pub policy: PolicyOverride,
    /// Answers to questions that are still to be asked, by the address of the asking node or by its id, and by
    /// `ADDRESS#CALL` for a call that an agent asks about in its first attempt. A new run records them.
    pub answers: HashMap<String, Json>,
    /// Stay while only people or events from outside can move the run on, instead of parking it.
    pub wait_for_answers: bool,
    /// Park the run when only timers move it on, and none within this time; none: stay as long as they take.
    pub patience: Option<Duration>,
    /// A person asks to go on with a run that exists; it is tried again though its process has died again and again.
    pub by_hand: bool,
    /// The run that this one is made for: it is kept as long as that one, and listed below it. It must be there.
    pub parent: Option<RunId>,
    /// Rows beside the journal that a new run changes with its first unit.
    pub rows: Vec<Change>,
    /// State of the flow that a new run writes with its first unit.
    pub writes: Vec<Write>,
    /// The digest of the request that begins the run. A run with the session id is gone on with if it has begun with the same
    /// request, whatever has become of its flow since, and not otherwise.
    pub request: Option<Box<str>>,
    /// Leave [`RunResult::events`] empty, for callers that have a channel.
    pub without_events: bool,
}

/// Parts of a flow's policy that a caller changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyOverride {
    /// See [`FlowPolicy::fail_fast`].
    pub fail_fast: Option<bool>,
    /// See [`FlowPolicy::total_timeout_ms`].
    pub total_timeout_ms: Option<u64>,
    /// See [`FlowPolicy::max_concurrency`].
    pub max_concurrency: Option<u32>,
}

impl PolicyOverride {
    fn apply(self, policy: &FlowPolicy) -> FlowPolicy {
        FlowPolicy {
            fail_fast: self.fail_fast.unwrap_or(policy.fail_fast),
            total_timeout_ms: self.total_timeout_ms.or(policy.total_timeout_ms),
            max_concurrency: self.max_concurrency.unwrap_or(policy.max_concurrency).max(1),
        }
    }
}

/// Why a run cannot begin, or go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The store could not answer, or what it holds does not fit.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run of this id exists, with another input.
    #[error("the run `{0}` exists, and its input is another")]
    OtherInput(RunId),
    /// A run of this id exists, of another flow.
    #[error("the run `{0}` exists, and is one of the flow `{1}`")]
    OtherFlow(RunId, Arc<str>),
    /// A run of this id exists, and began with another request.
    #[error("the run `{0}` exists, and began with another request")]
    OtherRequest(RunId),
    /// A run of this id exists, and repeats nothing, another run, or another part of it.
    #[error("the run `{0}` exists, and does not repeat this")]
    OtherRepeat(RunId),
    /// Somebody drives the run already.
    #[error("the run `{0}` is being driven already")]
    Driven(RunId),
    /// No run has this id.
    #[error("there is no run `{0}`")]
    Unknown(RunId),
    /// A run cannot be repeated from this node on.
    #[error(transparent)]
    NoNode(#[from] NoStart),
    /// The run was called by another one, so it cannot be repeated alone.
    #[error("the run `{run}` was called by the run `{parent}`: repeat the run that a person or a trigger has started")]
    Called {
        /// The run that was asked for.
        run: RunId,
        /// The run that called it.
        parent: RunId,
    },
    /// The run is below too many others.
    #[error("runs may be at most {MAX_DEPTH} deep below one another")]
    TooDeep,
    /// The flow that the run has pinned cannot be loaded.
    #[error("the flow that the run has pinned cannot be loaded: {0}")]
    Pin(Failure),
}

/// One run that is about to begin, or to go on.
pub struct FlowRunner {
    driver: Driver,
    hub: Hub,
    world: Arc<World>,
    identity: Identity,
    pin: Pin,
    begin: Begin,
    channels: Vec<Arc<dyn Channel>>,
    wait_for_answers: bool,
    without_events: bool,
    /// Nobody else drives the run meanwhile.
    _lease: Lease,
}

impl FlowRunner {
    /// Prepares a run of a checked flow. If there is a run with the session id of the options, of this flow and with
    /// the same input, it goes on from where the journal ends, with the flow as it was pinned.
    pub fn new(flow: Pinned, world: Arc<World>, options: RunOptions) -> Result<FlowRunner, OpenError> {
        FlowRunner::repeating(Repeated::default(), flow, world, options)
    }

    fn repeating(
        repeated: Repeated,
        flow: Pinned,
        world: Arc<World>,
        mut options: RunOptions,
    ) -> Result<FlowRunner, OpenError> {
        let tenant = world.tenant.clone();
        let run_id = options.run_id.clone().unwrap_or_else(|| new_run_id(world.timers.now()));
        let lease = claim(&world, &run_id)?;
        // No run has an id that was made just now.
        let known = options.run_id.is_some().then(|| world.journal.find(&tenant, &run_id)).transpose()?;
        if let Some(record) = known.flatten() {
            if options.request.is_some() {
                return match record.request == options.request {
                    true => FlowRunner::reopen(record, world, run_id, options, lease),
                    false => Err(OpenError::OtherRequest(run_id)),
                };
            }
            if record.flow != flow.graph.name {
                return Err(OpenError::OtherFlow(run_id, record.flow));
            }
            let input = options.input.clone();
            let runner = FlowRunner::reopen(record, world, run_id, options, lease)?;
            let graph = &runner.driver.state.graph;
            if runner.driver.state.input() != Some(&merge(&graph.input, &input)) {
                return Err(OpenError::OtherInput(runner.identity.run_id));
            }
            return Ok(runner);
        }
        let input = merge(&flow.graph.input, &options.input);
        let policy = options.policy.apply(&flow.graph.policy);
        let depth = match &options.parent {
            None => 0,
            Some(parent) => {
                let record = world.journal.find(&tenant, parent)?;
                record.ok_or_else(|| OpenError::Unknown(parent.clone()))?.depth + 1
            }
        };
        if depth > MAX_DEPTH {
            return Err(OpenError::TooDeep);
        }
        let (again, given) = repeated.part.unzip();
        let record = Record {
            depth,
            parent: options.parent.clone(),
            root: run_id.0.clone(),
            again,
            repeats: repeated.run,
            answers: std::mem::take(&mut options.answers).into_iter().collect(),
            request: options.request.take(),
            ..flow.record(policy)
        };
        let (mut driver, hub) = Driver::new(&world, run_id, flow.graph, record);
        driver.options.given = given.unwrap_or_default();
        driver.begin_with(std::mem::take(&mut options.rows), std::mem::take(&mut options.writes))?;
        Ok(FlowRunner::with(driver, hub, world, Begin::New(input), options, lease))
    }

    /// Prepares to go on with a run that the journal knows. Of the options, input and policy are not looked at.
    pub fn resume(world: Arc<World>, run_id: RunId, options: RunOptions) -> Result<FlowRunner, OpenError> {
        let lease = claim(&world, &run_id)?;
        match world.journal.find(&world.tenant, &run_id)? {
            Some(record) => FlowRunner::reopen(record, world, run_id, options, lease),
            None => Err(OpenError::Unknown(run_id)),
        }
    }

    fn reopen(
        mut record: Record,
        world: Arc<World>,
        run_id: RunId,
        mut options: RunOptions,
        lease: Lease,
    ) -> Result<FlowRunner, OpenError> {
        let graph = world.flows.pinned(&record.pin).map_err(OpenError::Pin)?;
        let given = record.again.as_ref().map(|again| given(&world, &graph, again)).transpose()?;
        record.answers.extend(std::mem::take(&mut options.answers));
        let (mut driver, hub) = Driver::new(&world, run_id.clone(), graph, record);
        driver.options.given = given.unwrap_or_default();
        let begin = driver.recover(options.by_hand)?;
        let begin = begin.ok_or(OpenError::Unknown(run_id))?;
        Ok(FlowRunner::with(driver, hub, world, begin, options, lease))
    }

    fn with(
        mut driver: Driver,
        hub: Hub,
        world: Arc<World>,
        begin: Begin,
        options: RunOptions,
        lease: Lease,
    ) -> FlowRunner {
        let (identity, pin) = (driver.identity.clone(), driver.pin.clone());
        driver.options.patience_ms = options.patience.map(|patience| patience.as_millis() as u64);
        FlowRunner {
            driver,
            hub,
            world,
            identity,
            pin,
            begin,
            channels: options.channels,
            wait_for_answers: options.wait_for_answers,
            without_events: options.without_events,
            _lease: lease,
        }
    }

    /// The checked flow that it runs.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.driver.state.graph
    }

    /// Whether something may still be asked at an address such as `approve`, `process[3].approve` or `assistant#3`.
    pub fn may_ask(&self, address: &str) -> bool {
        self.ended().is_none() && self.driver.state.may_ask(address)
    }

    /// Of which flow it is.
    pub fn flow(&self) -> &str {
        &self.driver.state.graph.name
    }

    /// Which run it is.
    pub fn run_id(&self) -> &RunId {
        &self.identity.run_id
    }

    /// How it has ended, if it is a run that has.
    pub fn ended(&self) -> Option<RunStatus> {
        self.driver.state.end().map(|end| match end {
            RunEnd::Succeeded { .. } => RunStatus::Succeeded,
            RunEnd::Failed { .. } => RunStatus::Failed,
            RunEnd::Cancelled { .. } => RunStatus::Cancelled,
        })
    }

    /// Whether its process has died so often, without the run moving on, that it is tried alone: a driver of several runs
    /// lets such a one move on, or end its process, before others begin.
    pub fn is_suspect(&self) -> bool {
        matches!(self.begin, Begin::Again { by_hand: false }) && self.driver.state.is_suspect()
    }

    /// Returns whether the run was resumed before, and its process died before the run had made progress.
    pub fn was_resumed_in_vain(&self) -> bool {
        matches!(self.begin, Begin::Again { by_hand: false }) && self.driver.state.deaths.resumed > 0
    }

    /// Which of several suspects is tried first, the least: one whose process has died before while it was alone, then one
    /// that was tried less often. So each of them is tried, whatever the others do.
    pub fn suspicion(&self) -> (Reverse<u32>, u32) {
        let deaths = self.driver.state.deaths;
        // A death while it was alone is counted when it is resumed.
        (Reverse(deaths.lone + u32::from(deaths.alone)), deaths.tried)
    }

    /// Notes with the resume that nothing else is driven in this process. Deaths of the process while that holds are evidence
    /// against the run; [`Hub::accompany`] ends it.
    pub fn try_alone(&mut self) {
        self.driver.options.alone = true;
    }

    /// Attaches a front end before the run begins; it sees the first event.
    pub fn attach(&mut self, channel: Arc<dyn Channel>) -> &mut FlowRunner {
        self.channels.push(channel);
        self
    }

    /// Whether to stay while only people or events from outside can move the run on, instead of parking it.
    pub fn wait_for_answers(&mut self, waits: bool) -> &mut FlowRunner {
        self.wait_for_answers = waits;
        self
    }

    /// Allows commands from the hub.
    pub fn start_session(&self) -> &FlowRunner {
        self.hub.start_session();
        self
    }

    /// The hub of this run.
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// Whether the run begins with this, and was not there before.
    pub fn is_new(&self) -> bool {
        matches!(self.begin, Begin::New(_))
    }

    /// Takes the run in: it is on stable storage then, and whoever drives it next begins with it. Refused if another
    /// process has taken in a run with this id meanwhile.
    pub async fn accept(mut self) -> Result<(), OpenError> {
        let begin = std::mem::replace(&mut self.begin, Begin::Again { by_hand: false });
        in_turns(self.world.computing(), self.driver.accept(begin)).await;
        if self.driver.is_refused() { Err(OpenError::Driven(self.identity.run_id)) } else { Ok(()) }
    }

    /// Gives a command to a run that nobody drives. It is recorded, and whoever drives the run next acts on it.
    pub async fn ask(self, command: RunCommand) -> Result<(), HubError> {
        self.ask_as(command, None).await
    }

    /// Gives the command of a message of the store's inbox, by its number.
    pub(crate) async fn ask_as(mut self, command: RunCommand, message: Option<u64>) -> Result<(), HubError> {
        let Some((task, command)) = command.below() else {
            let noted = in_turns(self.world.computing(), self.driver.note(command, message)).await;
            end(self.what_is_left(), self.world.clone()).await;
            return noted;
        };
        let child = self.driver.child_of(&task).ok_or_else(|| command.unmet())?;
        let child = FlowRunner::resume(self.world.clone(), child, RunOptions::default());
        let child = child.map_err(|_| command.unmet())?;
        Box::pin(child.ask_as(command, message)).await?;
        self.driver.call_attention().await;
        Ok(())
    }

    /// Whether the run is made for another one.
    pub fn is_below(&self) -> bool {
        self.identity.parent.is_some()
    }

    /// Counts a new run with a tenant's live runs until the store shows it.
    pub fn count_as(&mut self, starting: Starting) {
        self.driver.count_as(starting);
    }

    /// Waits for a place for a run that is made for another one. A run that is refused has not begun.
    pub async fn enter(&mut self) -> Result<(), Failure> {
        if let (Some(parent), false) = (&self.identity.parent, self.driver.has_place()) {
            let Identity { tenant, run_id, .. } = &self.identity;
            let place = self.world.live.enter_below(tenant, parent, run_id).await?;
            self.driver.take(place);
        }
        Ok(())
    }

    /// Runs the flow until it ends or parks.
    pub async fn run(mut self) -> RunResult {
        let began = Instant::now();
        let flow = self.driver.state.graph.name.clone();
        let _entered = self.world.hubs.enter(&self.identity.tenant, &self.hub);
        if !self.driver.has_place() {
            self.driver.take(self.world.live.enter(&self.identity.tenant, &self.identity.run_id));
        }
        self.driver.set_channels(self.channels.clone());
        for channel in &self.channels {
            channel.on_start(&self.hub);
        }
        let begin = std::mem::replace(&mut self.begin, Begin::Again { by_hand: false });
        in_turns(self.world.computing(), self.driver.drive(begin, !self.wait_for_answers)).await;
        self.driver.flush().await;
        end(self.what_is_left(), self.world.clone()).await;
        let mut result = self.result(flow);
        result.duration = self.driver.state.took().map_or_else(|| began.elapsed(), Duration::from_millis);
        // Those that were attached meanwhile too.
        for channel in self.driver.channels() {
            channel.on_complete(&result);
        }
        result
    }

    /// Runs that were made for this one end with it, at the latest. Those that a call has left when it was given up, or a
    /// process when it died, have nobody else to end them.
    fn what_is_left(&self) -> Vec<RunId> {
        if self.driver.state.end().is_none() || self.driver.is_refused() || !self.driver.has_called() {
            return Vec::new();
        }
        let left = self.world.journal.left_below(&self.identity.tenant, &self.identity.run_id);
        left.unwrap_or_else(|error| {
            tracing::warn!(run = %self.identity.run_id, "what it has left below is not ended: {error}");
            Vec::new()
        })
    }

    fn result(&self, flow: Arc<str>) -> RunResult {
        let waiting = self.driver.waiting();
        let asks = waiting.iter().any(Waiting::needs_attention);
        // What the store did not take has not happened: somebody else goes on with the run.
        let refused = self.driver.is_refused();
        let parked = if refused {
            RunStatus::Running
        } else if asks {
            RunStatus::NeedsAttention
        } else {
            RunStatus::Parked
        };
        let parked = || (parked, self.driver.state.recorded_outputs(), None);
        let (status, outputs, error) =
            self.driver.state.end().filter(|_| !refused).map_or_else(parked, |end| match end {
                RunEnd::Succeeded { outputs } => (RunStatus::Succeeded, outputs.clone(), None),
                RunEnd::Failed { outputs, failure, task } => {
                    let error = RunError { failure: failure.clone(), task: task.clone() };
                    (RunStatus::Failed, outputs.clone(), Some(error))
                }
                RunEnd::Cancelled { outputs } => (RunStatus::Cancelled, outputs.clone(), None),
            });
        let run_id = self.identity.run_id.clone();
        let duration = Duration::ZERO;
        RunResult { run_id, flow, status, outputs, events: self.events(), duration, error, waiting }
    }

    fn events(&self) -> Vec<Event> {
        if self.without_events {
            return Vec::new();
        }
        let (tenant, run_id) = (&self.identity.tenant, &self.identity.run_id);
        let mut projector = Projector::new(tenant.clone(), run_id.clone(), self.driver.state.graph.clone());
        let mut events = Vec::new();
        let read = each_unit(&*self.world.journal, tenant, run_id, |unit| events.extend(projector.project(&unit)));
        if let Err(error) = read {
            tracing::warn!(run = %run_id, "the result lacks events: {error}");
        }
        events
    }
}

/// Cancels runs that nobody drives.
fn end(runs: Vec<RunId>, world: Arc<World>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        for run in runs {
            let options = || RunOptions { by_hand: true, without_events: true, ..RunOptions::default() };
            // Whoever drives a run ends it; one that has ended meanwhile needs no cancelling.
            let Ok(runner) = FlowRunner::resume(world.clone(), run.clone(), options()) else { continue };
            let _ = runner.ask(RunCommand::Cancel).await;
            if let Ok(runner) = FlowRunner::resume(world.clone(), run, options()) {
                runner.run().await;
            }
        }
    })
}

fn claim(world: &World, run: &RunId) -> Result<Lease, OpenError> {
    world.leases.claim(&world.tenant, run).ok_or_else(|| OpenError::Driven(run.clone()))
}

fn new_run_id(now: u64) -> RunId {
    RunId::from(format!("run-{now:012x}{:08x}", random() as u32))
}
