//! Starting runs: what a caller chooses, and the run that is about to begin.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, Json, RunId, Tenant};
use flowcell_flow::graph::{FlowPolicy, Graph};

use crate::{
    driver::{Driver, Identity, merge},
    event::Event,
    fact::RunEnd,
    hub::{Channel, Hub},
    publish::Projector,
    result::{RunError, RunResult, RunStatus},
    world::{World, random},
};

/// What a caller chooses for one run.
#[derive(Default)]
pub struct RunOptions {
    /// The run's id; a new one if none is given.
    pub session_id: Option<RunId>,
    /// Members that win over the flow's defaults; an object, or `null`.
    pub input: Json,
    /// Front ends that see everything from the first event.
    pub channels: Vec<Arc<dyn Channel>>,
    /// What wins over the flow's policy.
    pub policy: PolicyOverride,
    /// Answers to questions that are still to be asked, by the address of the asking node.
    pub answers: HashMap<String, Json>,
    /// Stay while only people or events from outside can move the run on, instead of returning it as parked.
    pub wait_for_answers: bool,
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

/// One run that is about to begin.
pub struct FlowRunner {
    driver: Driver,
    hub: Hub,
    world: Arc<World>,
    identity: Identity,
    input: Json,
    channels: Vec<Arc<dyn Channel>>,
    wait_for_answers: bool,
    without_events: bool,
}

impl FlowRunner {
    /// Prepares a run of a checked flow.
    pub fn new(graph: Arc<Graph>, world: Arc<World>, options: RunOptions) -> FlowRunner {
        let run_id = options.session_id.unwrap_or_else(|| new_run_id(world.timers.now()));
        let identity = Identity { tenant: Tenant::local(), run_id, depth: 0 };
        let input = merge(&graph.input, &options.input);
        let policy = options.policy.apply(&graph.policy);
        let (mut driver, hub) = Driver::new(&world, identity.clone(), graph, policy);
        driver.answers = options.answers;
        FlowRunner {
            driver,
            hub,
            world,
            identity,
            input,
            channels: options.channels,
            wait_for_answers: options.wait_for_answers,
            without_events: options.without_events,
        }
    }

    /// Attaches a front end before the run begins; it sees the first event.
    pub fn attach(&mut self, channel: Arc<dyn Channel>) -> &mut FlowRunner {
        self.channels.push(channel);
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

    /// Runs the flow until it ends or parks.
    pub async fn run(mut self) -> RunResult {
        let began = Instant::now();
        let flow = self.driver.state.graph.name.clone();
        let Some(_lease) = self.world.leases.claim(&self.identity.tenant, &self.identity.run_id) else {
            return self.refused(flow);
        };
        for channel in &self.channels {
            channel.on_start(&self.hub);
            self.driver.add_channel(channel.clone());
        }
        self.driver.drive(self.input.clone(), !self.wait_for_answers).await;
        let mut result = self.result(flow);
        result.duration = began.elapsed();
        for channel in &self.channels {
            channel.on_complete(&result);
        }
        result
    }

    fn refused(&self, flow: Arc<str>) -> RunResult {
        let message = format!("run `{}` is being driven already", self.identity.run_id);
        let mut result = self.result(flow);
        result.status = RunStatus::Failed;
        result.error = Some(RunError { failure: Failure::new("run_active", message), task: None });
        result
    }

    fn result(&self, flow: Arc<str>) -> RunResult {
        let parked = (RunStatus::Parked, Json::Null, None);
        let (status, outputs, error) = self.driver.state.end().map_or(parked, |end| match end {
            RunEnd::Succeeded { outputs } => (RunStatus::Succeeded, outputs.clone(), None),
            RunEnd::Failed { outputs, failure, task } => {
                let error = RunError { failure: failure.clone(), task: task.clone() };
                (RunStatus::Failed, outputs.clone(), Some(error))
            }
            RunEnd::Cancelled => (RunStatus::Cancelled, Json::Null, None),
        });
        let waiting = if status == RunStatus::Parked { self.driver.waiting() } else { Vec::new() };
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
        self.world.journal.read(tenant, run_id, 0).iter().flat_map(|unit| projector.project(unit)).collect()
    }
}

fn new_run_id(now: u64) -> RunId {
    RunId::from(format!("run-{now:012x}{:08x}", random() as u32))
}
