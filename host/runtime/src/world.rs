//! What the runs of a tenant share: the ports, the capabilities, and the library of flows.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flowcell_contract::{Blobs, Capability, Failure, Json, NodeRunner, RunId, Tenant, code};
use flowcell_flow::graph::{FlowPolicy, Graph};
use sha2::{Digest, Sha256};

use crate::{
    hub::Hubs,
    live::LiveRuns,
    memory::{LocalLeases, MemoryBlobs, MemoryCache, MemoryJournal, MemoryState, SystemTimers},
    ports::{CacheStore, Journal, Leases, NoProjections, Pin, Projections, Record, StateStore, Timers},
    quota::{QuotaHold, Quotas},
    state::RunState,
    turn::Compute,
    versions::RunGraphs,
};

/// A checked flow, and the pin that finds it again.
#[derive(Clone)]
pub struct Pinned {
    /// The checked flow.
    pub graph: Arc<Graph>,
    /// The pin that finds the flow again.
    pub pin: Pin,
}

impl Pinned {
    /// Returns the record of a run of this flow that no other run called, without the root of its idempotency keys.
    pub(crate) fn record(&self, policy: FlowPolicy) -> Record {
        Record {
            flow: self.graph.name.clone(),
            pin: self.pin.clone(),
            policy,
            depth: 0,
            parent: None,
            root: "".into(),
            again: None,
            called: None,
            repeats: None,
            answers: BTreeMap::new(),
            request: None,
            version: None,
            labels: self.graph.run_labels.clone(),
            trigger: None,
            moves: Vec::new(),
        }
    }
}

/// A library of flows.
pub trait Flows: Send + Sync {
    /// Returns the checked flow that a run calls by this name. `caller` is the pin of the calling flow. If that pin
    /// fixes a version of the called flow, returns this version. Otherwise returns the present version.
    fn resolve(&self, name: &str, caller: &Pin) -> Result<Pinned, Failure>;

    /// Checks the whole input of a run of this flow.
    fn check_input(&self, _flow: &Graph, _input: &Json) -> Result<(), Failure> {
        Ok(())
    }

    /// Does work that computes for long, such as costly expressions of a flow. Fails without doing it if too much
    /// such work is already in progress.
    fn compute(&self, work: &mut dyn FnMut()) -> Result<(), Failure> {
        work();
        Ok(())
    }

    /// Returns a pinned flow in the pinned version.
    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure>;

    /// Returns the flow that an earlier run has pinned, for a new run that repeats the earlier one. A library with a
    /// policy refuses a flow whose actions are no longer allowed.
    fn repeated(&self, pin: &Pin) -> Result<Pinned, Failure> {
        Ok(Pinned { graph: self.pinned(pin)?, pin: pin.clone() })
    }

    /// Returns true if two pins are of the same flow in the same version. The flows that it calls may differ.
    fn is_same(&self, pin: &Pin, other: &Pin) -> bool {
        pin == other
    }

    /// Returns the flow that a repeating run calls by this name. `pin` is the pin of the flow that the repeated run has
    /// called by the same name, and `caller` the pin of the calling flow.
    fn called_again(&self, _name: &str, _caller: &Pin, pin: &Pin) -> Result<Pinned, Failure> {
        self.repeated(pin)
    }
}

/// A library without flows.
pub struct NoFlows;

impl Flows for NoFlows {
    fn resolve(&self, name: &str, _caller: &Pin) -> Result<Pinned, Failure> {
        Err(Failure::new(code::FLOW_NOT_FOUND, format!("unknown flow `{name}`")))
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        Err(Failure::new(code::FLOW_NOT_FOUND, format!("no flow has the pin `{}`", pin.0)))
    }
}

/// What the runs of a tenant share: the ports, the capabilities, and the library of flows.
pub struct World {
    /// The tenant of the runs.
    pub tenant: Tenant,
    /// The runner of nodes.
    pub runner: Arc<dyn NodeRunner>,
    /// The library that finds child flows.
    pub flows: Arc<dyn Flows>,
    /// The journal of the facts.
    pub journal: Arc<dyn Journal>,
    /// The clock of the runs.
    pub timers: Arc<dyn Timers>,
    /// The leases, which let one process drive a run.
    pub leases: Arc<dyn Leases>,
    /// The durable values of flows.
    pub state: Arc<dyn StateStore>,
    /// Values that the store may forget.
    pub cache: Arc<dyn CacheStore>,
    /// The bytes that values refer to.
    pub blobs: Arc<dyn Blobs>,
    /// The capabilities whose calls leave the host, by name.
    pub capabilities: Arc<HashMap<Arc<str>, Arc<dyn Capability>>>,
    /// The selection of flows that have sessions.
    pub projections: Arc<dyn Projections>,
    /// The hubs of the runs that the process drives.
    pub hubs: Arc<Hubs>,
    /// The live permits of the runs that the process drives.
    pub live: Arc<LiveRuns>,
    /// The memory that the runs share. `None`: only the limit of each run applies.
    pub budget: Option<Arc<MemoryBudget>>,
    /// The quotas that pause runs. `None`: no quota pauses runs.
    pub quotas: Option<Arc<dyn Quotas>>,
    /// The seed from which the seeds of the runs follow, for tests. `None`: each run has a random seed.
    pub seed: Option<u64>,
}

/// The bytes that the runs of a world may keep in memory together. A run that finds no bytes left ends as
/// `run_too_large`.
pub struct MemoryBudget(AtomicU64);

impl MemoryBudget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: u64) -> MemoryBudget {
        MemoryBudget(AtomicU64::new(bytes))
    }

    /// Returns the bytes that are left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Subtracts bytes that a run now keeps. The budget does not become negative.
    pub fn take(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        // The update always has a next value, so it cannot fail.
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

impl World {
    /// Loads the graphs of a run.
    pub(crate) fn graphs_of(&self, record: &Record) -> Result<RunGraphs, Failure> {
        RunGraphs::load(record, |pin| self.flows.pinned(pin))
    }

    /// Returns a world in memory, in real time, of the tenant `local`.
    pub fn in_memory(runner: Arc<dyn NodeRunner>, flows: Arc<dyn Flows>) -> World {
        World {
            tenant: Tenant::local(),
            runner,
            flows,
            journal: Arc::new(MemoryJournal::default()),
            timers: Arc::new(SystemTimers::default()),
            leases: Arc::new(LocalLeases::default()),
            state: Arc::new(MemoryState::default()),
            cache: Arc::new(MemoryCache::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            capabilities: Arc::default(),
            projections: Arc::new(NoProjections),
            hubs: Arc::default(),
            live: Arc::default(),
            budget: None,
            quotas: None,
            seed: None,
        }
    }

    /// Returns the quota that pauses a run of the tenant at present.
    pub(crate) fn hold(&self, state: &RunState) -> Option<QuotaHold> {
        let usd = state.held_by.as_ref().and_then(|hold| hold.usd);
        self.quotas.as_ref()?.hold(&self.tenant, usd)
    }

    /// Returns the first state of the random numbers of a run's driver.
    pub(crate) fn seed_of(&self, run: &RunId) -> u64 {
        let Some(seed) = self.seed else { return random() };
        let digest = Sha256::new().chain_update(seed.to_be_bytes()).chain_update(run.as_str()).finalize();
        digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
    }

    /// Returns the function that evaluates costly expressions of the runs.
    pub(crate) fn computing(&self) -> Compute {
        let flows = self.flows.clone();
        Arc::new(move |work| flows.compute(work))
    }
}

/// Returns a random number from the system: the standard library seeds its hashers with it. All randomness of the crate
/// comes from this function.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
