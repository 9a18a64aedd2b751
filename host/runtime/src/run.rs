//! The start of runs.

mod definition;
mod migrate;
mod newer;
mod options;
mod past;
mod renames;
mod retry;

use std::{
    cmp::Reverse,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, RunId};
use flowcell_flow::{
    graph::Graph,
    labels::{LabelError, add_labels},
};
use futures_util::future::BoxFuture;

pub use definition::Part;
pub use migrate::{MigrateError, Migration, MigrationPlan, MoveOptions, MovedNode, Obstacle, RefusedNode};
pub use newer::{NoStart, OtherVersion, PlannedNode, Reason, RetryPlan};
pub use options::{PolicyOverride, RunOptions};
pub use renames::{RenameError, Renamed, Renames};
pub use retry::Repeat;
use retry::{Repeated, kept_outputs};

use crate::{
    command::{HubError, RunCommand},
    driver::{Begin, Driver, Identity, each_unit, merge},
    event::Event,
    fact::RunEnd,
    hub::{Channel, Hub},
    limits::MAX_DEPTH,
    live::Starting,
    ports::{Lease, Leases, Pin, Record, StoreError},
    publish::Projector,
    quota::QuotaHold,
    result::{RunError, RunResult, RunStatus, Waiting},
    turn::in_turns,
    world::{Pinned, World, random},
};

/// The reason why a run cannot begin or continue.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The store could not answer, or an item in it is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run with this id exists, with another input.
    #[error("the run `{0}` exists, and its input is another")]
    OtherInput(RunId),
    /// A run with this id exists, and belongs to another flow.
    #[error("the run `{0}` exists, and is one of the flow `{1}`")]
    OtherFlow(RunId, Arc<str>),
    /// A run with this id exists, and began with another request.
    #[error("the run `{0}` exists, and began with another request")]
    OtherRequest(RunId),
    /// A run with this id exists, and does not repeat the same part of the same run.
    #[error("the run `{0}` exists, and does not repeat this")]
    OtherRepeat(RunId),
    /// Another driver already drives the run.
    #[error("the run `{0}` is being driven already")]
    Driven(RunId),
    /// No run has this id.
    #[error("the store has no run `{0}`")]
    Unknown(RunId),
    /// A run cannot be repeated from this node on.
    #[error(transparent)]
    NoNode(#[from] NoStart),
    /// The run was called by another one, so it cannot be repeated alone.
    #[error("the run `{run}` was called by the run `{parent}`: repeat the run that a person or a trigger has started")]
    Called {
        /// The run to repeat.
        run: RunId,
        /// The run that called it.
        parent: RunId,
    },
    /// A label is not valid, or there are too many.
    #[error(transparent)]
    Labels(#[from] LabelError),
    /// The run is below too many other runs.
    #[error("runs may be at most {MAX_DEPTH} deep below one another")]
    TooDeep,
    /// The input of the run to repeat does not fit the other version of its flow.
    #[error("the input of the run does not fit this version of the flow: {}; start a new run of it", .0.message)]
    OtherNeeds(Failure),
    /// The nodes of the run to repeat cannot have other names in the other version of its flow. At least one reason.
    #[error("the nodes cannot have these names: {}", first_of(.0))]
    OtherNames(Vec<RenameError>),
    /// The nodes are to have other names, and the run is repeated in the version of its flow that it uses.
    #[error("nodes have other names only in another version of the flow; name the version, or rename no node")]
    NoOtherNames,
    /// The flow that the run has pinned cannot be loaded.
    #[error("the flow that the run has pinned cannot be loaded: {0}")]
    Pin(Failure),
}

fn first_of(errors: &[RenameError]) -> String {
    let more = if errors.len() > 1 { format!(" ({} more)", errors.len() - 1) } else { String::new() };
    errors.first().map(|first| format!("{first}{more}")).unwrap_or_default()
}

/// One run that is about to begin or to continue.
pub struct FlowRunner {
    driver: Driver,
    hub: Hub,
    world: Arc<World>,
    identity: Identity,
    pin: Pin,
    begin: Begin,
    /// The run that this one repeats, if this one is new.
    repeats: Option<RunId>,
    channels: Vec<Arc<dyn Channel>>,
    wait_for_answers: bool,
    without_events: bool,
    /// The claim that keeps other drivers away from the run.
    _lease: Lease,
}

impl FlowRunner {
    /// Prepares a run of a checked flow. An existing run with the id of the options, this flow and this input
    /// continues from the end of its journal, with its pinned flow.
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
        let lease = claim(&world, &run_id, options.run_id.is_none())?;
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
        let Repeated { run: repeats, part, labels: earlier } = repeated;
        let (again, kept) = part.unzip();
        let mut labels = flow.graph.run_labels.clone();
        labels.extend(earlier);
        add_labels(&mut labels, std::mem::take(&mut options.labels))?;
        let record = Record {
            labels,
            trigger: options.trigger.take(),
            version: options.version,
            depth,
            parent: options.parent.clone(),
            root: run_id.0.clone(),
            again,
            repeats: repeats.clone(),
            answers: std::mem::take(&mut options.answers).into_iter().collect(),
            request: options.request.take(),
            ..flow.record(policy)
        };
        let (mut driver, hub) = Driver::new(&world, run_id, flow.graph, record);
        driver.options.kept_outputs = kept.unwrap_or_default();
        driver.begin_with(std::mem::take(&mut options.rows), std::mem::take(&mut options.writes))?;
        let runner = FlowRunner::with(driver, hub, world, Begin::New(input), options, lease);
        Ok(FlowRunner { repeats, ..runner })
    }

    /// Prepares to continue a run in the journal. The input and the policy in the options do not apply.
    pub fn resume(world: Arc<World>, run_id: RunId, options: RunOptions) -> Result<FlowRunner, OpenError> {
        let lease = claim(&world, &run_id, false)?;
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
        let graphs = world.graphs_of(&record).map_err(OpenError::Pin)?;
        // The run began with the kept outputs, and so with the indices of its first version.
        let kept = record.again.as_ref().map(|again| kept_outputs(&world, graphs.first(), again)).transpose()?;
        record.answers.extend(std::mem::take(&mut options.answers));
        let state = graphs.state(record.policy.clone());
        let (mut driver, hub) = Driver::new(&world, run_id.clone(), graphs.last().clone(), record);
        driver.state = state;
        driver.options.kept_outputs = kept.unwrap_or_default();
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
            repeats: None,
            channels: options.channels,
            wait_for_answers: options.wait_for_answers,
            without_events: options.without_events,
            _lease: lease,
        }
    }

    /// Returns the checked flow of the run.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.driver.state.graph
    }

    /// Returns whether a question may still open at an address such as `approve` or `assistant#3`.
    pub fn may_ask(&self, address: &str) -> bool {
        self.ended().is_none() && crate::question::may_ask(&self.driver.state, address)
    }

    /// Returns the name of the flow.
    pub fn flow(&self) -> &str {
        &self.driver.state.graph.name
    }

    /// Returns the id of the run.
    pub fn run_id(&self) -> &RunId {
        &self.identity.run_id
    }

    /// Returns the final status of the run. `None`: the run has not ended.
    pub fn ended(&self) -> Option<RunStatus> {
        self.driver.state.end().map(|end| match end {
            RunEnd::Succeeded { .. } => RunStatus::Succeeded,
            RunEnd::Failed { .. } => RunStatus::Failed,
            RunEnd::Cancelled { .. } => RunStatus::Cancelled,
        })
    }

    /// Returns true if the run is a suspect: processes that drove it died so often, without progress of the run, that
    /// it may be the cause. The caller drives a suspect alone, without other runs, until it makes progress.
    pub fn is_suspect(&self) -> bool {
        matches!(self.begin, Begin::Again { by_hand: false }) && self.driver.state.is_suspect()
    }

    /// Returns true if the run was resumed before, and made no progress until its process died.
    pub fn was_resumed_in_vain(&self) -> bool {
        matches!(self.begin, Begin::Again { by_hand: false }) && self.driver.state.deaths.resumed > 0
    }

    /// Returns the sort key of a suspect ([`FlowRunner::is_suspect`]). The suspect with the smallest key is tried
    /// first: the one whose processes died most often while they drove only this run, and among equals the one that was
    /// tried alone least often. So every suspect is tried at some time.
    pub fn suspect_order(&self) -> (Reverse<u32>, u32) {
        let deaths = self.driver.state.deaths;
        // A death of the process while the run was alone is counted at the next resumption.
        (Reverse(deaths.lone + u32::from(deaths.alone)), deaths.tried)
    }

    /// Returns the quota for which the run is parked until it renews. `None`: the run is not parked for a quota.
    pub fn paused_by(&self) -> Option<&QuotaHold> {
        self.driver.state.parked_for.as_ref().filter(|_| self.driver.state.end().is_none())
    }

    /// Declares that the process drives no other run; the record of the resumption says so. Until [`Hub::accompany`] is
    /// called, a death of the process then counts against the run.
    pub fn try_alone(&mut self) {
        self.driver.options.alone = true;
    }

    /// Attaches a front end before the run begins, so that it receives the first event.
    pub fn attach(&mut self, channel: Arc<dyn Channel>) -> &mut FlowRunner {
        self.channels.push(channel);
        self
    }

    /// Sets whether the driver stays, instead of parking the run, while only people or events can continue the run.
    pub fn wait_for_answers(&mut self, waits: bool) -> &mut FlowRunner {
        self.wait_for_answers = waits;
        self
    }

    /// Allows commands from the hub.
    pub fn start_session(&self) -> &FlowRunner {
        self.hub.start_session();
        self
    }

    /// Returns the hub of this run.
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// Returns true if the run is new, and false if it existed before.
    pub fn is_new(&self) -> bool {
        matches!(self.begin, Begin::New(_))
    }

    /// Accepts the run: it is then on stable storage, and the next driver begins it. Fails if another process has
    /// accepted a run with this id meanwhile, or if the run that this one repeats was removed.
    pub async fn accept(mut self) -> Result<(), OpenError> {
        let begin = std::mem::replace(&mut self.begin, Begin::Again { by_hand: false });
        in_turns(self.world.computing(), self.driver.accept(begin)).await;
        if !self.driver.is_refused() {
            return Ok(());
        }
        if let Some(repeated) = &self.repeats {
            // An error if the run was removed.
            self.world.journal.find(&self.identity.tenant, repeated)?;
        }
        Err(OpenError::Driven(self.identity.run_id))
    }

    /// Sends a command to a run that no process drives. The command is recorded, and the next driver acts on it.
    pub async fn ask(self, command: RunCommand) -> Result<(), HubError> {
        self.send_message(command, None).await
    }

    /// Sends a command. `message` is the number of its message in the store's inbox; `None`: it did not come from
    /// there.
    pub async fn send_message(mut self, command: RunCommand, message: Option<u64>) -> Result<(), HubError> {
        let Some((task, command)) = command.for_child() else {
            self.driver.set_channels(self.channels.clone());
            let noted = in_turns(self.world.computing(), self.driver.record_command(command, message)).await;
            cancel_runs(self.live_runs_below(), self.world.clone()).await;
            return noted;
        };
        let child = self.driver.child_of(&task).ok_or_else(|| command.no_child_error())?;
        let child = FlowRunner::resume(self.world.clone(), child, RunOptions::default());
        let child = child.map_err(|_| command.no_child_error())?;
        Box::pin(child.send_message(command, message)).await?;
        self.driver.make_due().await;
        Ok(())
    }

    /// Returns true if the run has a parent run.
    pub fn is_below(&self) -> bool {
        self.identity.parent.is_some()
    }

    /// Keeps `starting` until the store lists the new run, so that the run counts as started until then.
    pub fn count_as(&mut self, starting: Starting) {
        self.driver.hold_until_listed(Box::new(starting));
    }

    /// Waits for a live permit if the run has a parent run. If the permit is refused, the run has not begun.
    pub async fn enter(&mut self) -> Result<(), Failure> {
        if let (Some(parent), false) = (&self.identity.parent, self.driver.has_permit()) {
            let Identity { tenant, run_id, .. } = &self.identity;
            let permit = self.world.live.enter_below(tenant, parent, run_id).await?;
            self.driver.set_permit(permit);
        }
        Ok(())
    }

    /// Runs the flow until it ends or parks.
    pub async fn run(mut self) -> RunResult {
        let began = Instant::now();
        let flow = self.driver.state.graph.name.clone();
        let _entered = self.world.hubs.enter(&self.identity.tenant, &self.hub);
        if !self.driver.has_permit() {
            self.driver.set_permit(self.world.live.enter(&self.identity.tenant, &self.identity.run_id));
        }
        self.driver.set_channels(self.channels.clone());
        for channel in &self.channels {
            channel.on_start(&self.hub);
        }
        let begin = std::mem::replace(&mut self.begin, Begin::Again { by_hand: false });
        in_turns(self.world.computing(), self.driver.drive(begin, !self.wait_for_answers)).await;
        self.driver.flush().await;
        cancel_runs(self.live_runs_below(), self.world.clone()).await;
        let mut result = self.result(flow);
        result.duration = self.driver.state.duration_ms().map_or_else(|| began.elapsed(), Duration::from_millis);
        // This includes the channels that were attached meanwhile.
        for channel in self.driver.channels() {
            channel.on_complete(&result);
        }
        result
    }

    /// Returns the live runs that were made for this run, if this run has ended. The caller ends them: nothing else
    /// ends the runs that an abandoned call or a dead process leaves.
    fn live_runs_below(&self) -> Vec<RunId> {
        if self.driver.state.end().is_none() || self.driver.is_refused() || !self.driver.has_called() {
            return Vec::new();
        }
        let left = self.world.journal.left_below(&self.identity.tenant, &self.identity.run_id);
        left.unwrap_or_else(|error| {
            tracing::warn!(run = %self.identity.run_id, "cannot end the runs that it has called: {error}");
            Vec::new()
        })
    }

    fn result(&self, flow: Arc<str>) -> RunResult {
        let waiting = self.driver.waiting();
        let asks = waiting.iter().any(Waiting::needs_attention);
        // Facts that the store refused have not happened: another process continues the run.
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
        let quota = self.paused_by().cloned();
        RunResult { run_id, flow, status, outputs, events: self.events(), duration, error, waiting, quota }
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

/// Cancels runs that no process drives.
fn cancel_runs(runs: Vec<RunId>, world: Arc<World>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        for run in runs {
            let options = || RunOptions { by_hand: true, without_events: true, ..RunOptions::default() };
            // If another driver has the run, it ends the run. A run that has ended meanwhile needs no cancellation.
            let Ok(runner) = FlowRunner::resume(world.clone(), run.clone(), options()) else { continue };
            let _ = runner.ask(RunCommand::Cancel).await;
            if let Ok(runner) = FlowRunner::resume(world.clone(), run, options()) {
                runner.run().await;
            }
        }
    })
}

fn claim(world: &World, run: &RunId, is_new: bool) -> Result<Lease, OpenError> {
    let claim = if is_new { <dyn Leases>::claim_new } else { <dyn Leases>::claim };
    claim(&*world.leases, &world.tenant, run)?.ok_or_else(|| OpenError::Driven(run.clone()))
}

/// Makes the id of a new run. `now` is the time in milliseconds since 1970.
pub fn new_run_id(now: u64) -> RunId {
    RunId::from(format!("run-{now:012x}{:08x}", random() as u32))
}
