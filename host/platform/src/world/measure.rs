//! Measures the attempts of one node type in test runs.

use std::{mem, sync::Arc};

use flowcell_contract::{Attempt, Calls, Digest, NodeRunner, StepResult, Tenant};
use flowcell_engine::{Cost, Engine, Measured, Profile};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// Receives the measurements of the attempts of one node type.
#[derive(Debug)]
pub struct Probe {
    node_type: Arc<str>,
    profiles: bool,
    costs: Mutex<Vec<Cost>>,
    profile: Mutex<Profile>,
}

impl Probe {
    /// Creates a probe for a node type, which is named without a version.
    pub fn new(node_type: Arc<str>) -> Probe {
        Probe { node_type, profiles: false, costs: Mutex::default(), profile: Mutex::default() }
    }

    /// Creates a probe that also takes profiles.
    pub fn with_profile(node_type: Arc<str>) -> Probe {
        Probe { profiles: true, ..Probe::new(node_type) }
    }

    /// Returns the costs of the attempts since the last call of this method.
    pub fn take_costs(&self) -> Vec<Cost> {
        mem::take(&mut *self.costs.lock())
    }

    /// Returns the profile of the attempts since the last call of this method.
    pub fn take_profile(&self) -> Profile {
        mem::take(&mut *self.profile.lock())
    }

    fn add(&self, Measured { cost, profile }: Measured) {
        self.costs.lock().push(cost);
        if let Some(profile) = profile {
            self.profile.lock().merge(profile);
        }
    }
}

/// Runs attempts like the engine, and measures those of one node type. It knows no quotas.
pub(crate) struct MeasuringRunner {
    pub(crate) engine: Engine,
    pub(crate) probe: Arc<Probe>,
}

impl NodeRunner for MeasuringRunner {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        if attempt.node_type != self.probe.node_type {
            return self.engine.run(attempt, calls);
        }
        let (measuring, probe) = (self.engine.measure(attempt, calls, self.probe.profiles), self.probe.clone());
        Box::pin(async move {
            let (result, measured) = measuring.await;
            measured.into_iter().for_each(|measured| probe.add(measured));
            result
        })
    }

    fn prepare(&self, tenant: &Tenant, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        NodeRunner::prepare(&self.engine, tenant, packs)
    }
}
