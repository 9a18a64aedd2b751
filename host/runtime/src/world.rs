//! What runs share: the ports, and where flows are found.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flowcell_contract::{Blobs, Capability, Failure, Json, NodeRunner, Tenant, code};
use flowcell_flow::graph::{FlowPolicy, Graph};

use crate::{
    hub::Hubs,
    live::LiveRuns,
    memory::{LocalLeases, MemoryBlobs, MemoryCache, MemoryJournal, MemoryState, SystemTimers},
    ports::{CacheStore, Journal, Leases, NoProjections, Pin, Projections, Record, StateStore, Timers},
    turn::Compute,
};

/// A checked flow, and what it is found by again.
#[derive(Clone)]
pub struct Pinned {
    /// The flow.
    pub graph: Arc<Graph>,
    /// What it is found by.
    pub pin: Pin,
}

impl Pinned {
    /// The record of a run of this flow that no other run called, without the root of its idempotency keys.
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
        }
    }
}

/// A library of flows.
pub trait Flows: Send + Sync {
    /// Returns the checked flow that a run calls by this name: as the caller's flow, found by its pin, has pinned it, or else as
    /// it is now.
    fn resolve(&self, name: &str, caller: &Pin) -> Result<Pinned, Failure>;

    /// Checks the whole input of a run of this flow.
    fn check_input(&self, _flow: &Graph, _input: &Json) -> Result<(), Failure> {
        Ok(())
    }

    /// Does work that computes for long, such as costly expressions of a flow. It fails without having done it where too much of
    /// that goes on already.
    fn compute(&self, work: &mut dyn FnMut()) -> Result<(), Failure> {
        work();
        Ok(())
    }

    /// Returns the flow that was pinned, as it was then.
    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure>;

    /// Returns the flow that another run has pinned, for a new run that repeats that one. A library with a policy refuses what
    /// the flow may not do any more.
    fn repeated(&self, pin: &Pin) -> Result<Pinned, Failure> {
        Ok(Pinned { graph: self.pinned(pin)?, pin: pin.clone() })
    }

    /// Returns the flow that a run calls by this name in a run that repeats another one: the repeated run has called the flow with
    /// this pin.
    fn called_again(&self, _name: &str, _caller: &Pin, pin: &Pin) -> Result<Pinned, Failure> {
        self.repeated(pin)
    }
}

/// A library without flows.
pub struct NoFlows;

impl Flows for NoFlows {
    fn resolve(&self, name: &str, _caller: &Pin) -> Result<Pinned, Failure> {
        Err(Failure::new(code::FLOW_NOT_FOUND, format!("there is no flow `{name}`")))
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        Err(Failure::new(code::FLOW_NOT_FOUND, format!("there is no flow with the pin `{}`", pin.0)))
    }
}

/// What runs share: the ports, and where flows are found.
pub struct World {
    /// Whose runs are driven in it.
    pub tenant: Tenant,
    /// Runs nodes.
    pub runner: Arc<dyn NodeRunner>,
    /// Finds child flows.
    pub flows: Arc<dyn Flows>,
    /// Keeps what happened.
    pub journal: Arc<dyn Journal>,
    /// The clock.
    pub timers: Arc<dyn Timers>,
    /// Who drives which run.
    pub leases: Arc<dyn Leases>,
    /// Durable values of flows.
    pub state: Arc<dyn StateStore>,
    /// Values that may be forgotten.
    pub cache: Arc<dyn CacheStore>,
    /// Bytes by content.
    pub blobs: Arc<dyn Blobs>,
    /// What leaves the host, by the name of the capability.
    pub capabilities: Arc<HashMap<Arc<str>, Arc<dyn Capability>>>,
    /// For which flows there are rows beside the journal.
    pub projections: Arc<dyn Projections>,
    /// The hubs of the runs that are being driven.
    pub hubs: Arc<Hubs>,
    /// The places of the runs that are being driven.
    pub live: Arc<LiveRuns>,
    /// What its runs may keep in memory together; `None`: each as much as a run may have.
    pub budget: Option<Arc<MemoryBudget>>,
}

/// Bytes that the runs of a world may keep in memory together. A run that finds nothing left ends as `run_too_large`.
pub struct MemoryBudget(AtomicU64);

impl MemoryBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> MemoryBudget {
        MemoryBudget(AtomicU64::new(bytes))
    }

    /// The bytes that are left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes bytes that are kept from now on.
    pub fn take(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        // It always has a next value.
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

impl World {
    /// A world in memory, in real time, of the tenant `local`.
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
        }
    }

    /// Where costly expressions of its runs are evaluated.
    pub(crate) fn computing(&self) -> Compute {
        let flows = self.flows.clone();
        Arc::new(move |work| flows.compute(work))
    }
}

/// The one door for randomness: the standard library seeds its hashers from the system.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
