//! Loads the flows that runs call, and the flows that runs have pinned.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Failure, Json, RunId, code};
use flowcell_flow::graph::Graph;
use flowcell_runtime::{Flows, OpenError, Pinned, ports::Pin};
use parking_lot::Mutex;

use super::{
    Host,
    checked::pinned_flows::PinnedFlow,
    error::StartError,
    homes::{self, Homes},
    loaded::log_broken_rules,
    pin,
    renewal::Renewals,
};
use crate::{
    host::{
        content::Content,
        home::Home,
        loaded::{LoadedFlow, check_whole},
    },
    world::simulate::Simulate,
};

/// Loads flows when a run first calls them. It is not a folder of flows: see [`FlowLibrary`](crate::FlowLibrary).
pub(super) struct CallableFlows {
    host: Host,
    homes: Arc<Homes>,
    /// The pin of the run's flow, with its content. `None` for a new run that repeats no other run.
    known: Option<(Pin, Content)>,
    /// The called flows, by the pin of the calling flow and the name in the call.
    called: Mutex<HashMap<(Pin, String), Pinned>>,
    pinned: Mutex<HashMap<Pin, Arc<Graph>>>,
    renewals: Mutex<Renewals>,
}

impl CallableFlows {
    /// Creates a loader of the flows that a run with this home, and its child runs, can call.
    pub(super) fn new(host: Host, home: Arc<Home>) -> CallableFlows {
        let homes = Arc::new(Homes::new(host.clone(), home));
        let (called, pinned, renewals) = (Mutex::default(), Mutex::default(), Mutex::default());
        CallableFlows { host, homes, known: None, called, pinned, renewals }
    }

    /// Returns the same loader for a run whose flow is already pinned: a run that the store has, or a new run that
    /// repeats one. `pin` is the pin of the run's flow, and `content` is the content that this pin identifies.
    pub(super) fn with_content(self, pin: Pin, content: Content) -> CallableFlows {
        self.homes.record(&pin, self.homes.usual());
        CallableFlows { known: Some((pin, content)), ..self }
    }

    /// Returns the same loader with the renewed flows of a retry, see [`Renewals`].
    pub(super) fn with_renewals(self, renewals: Renewals) -> CallableFlows {
        CallableFlows { renewals: Mutex::new(renewals), ..self }
    }

    /// Pins a flow with the home of the run.
    pub(super) fn pin(&self, flow: &LoadedFlow) -> Pinned {
        self.pin_with_home(flow, self.homes.usual())
    }

    fn pin_with_home(&self, flow: &LoadedFlow, home: &Arc<Home>) -> Pinned {
        let pinned = pin::pin(&self.host, flow, home);
        self.homes.record(&pinned.pin, home);
        pinned
    }

    /// Returns the flow of a pin with the warnings of its check.
    fn check_pinned(&self, pin: &Pin) -> Result<PinnedFlow, Failure> {
        let known = self.known.as_ref().filter(|(known, _)| known == pin);
        pin::remembered(&self.host, pin, known.map(|(_, content)| content))
    }

    /// Returns the host. It also simulates the capabilities and services that were simulated when the run began.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the homes of the runs.
    pub(super) fn homes(&self) -> &Arc<Homes> {
        &self.homes
    }
}

/// Returns the same host, which also simulates the capabilities and services that were simulated when a run began. So a
/// simulated run makes no real calls when another process continues it.
pub(super) fn simulating_with(host: &Host, content: &Content) -> Host {
    match host.simulate.includes(&content.simulate) {
        true => host.clone(),
        false => Host { simulate: Arc::new(host.simulate.union(content.simulate.clone())), ..host.clone() },
    }
}

/// Performs [`Host::simulated_of`].
pub(crate) fn simulated_of(host: &Host, run: &RunId) -> Option<Simulate> {
    let record = host.record(run).ok().flatten()?;
    let simulate = pin::content_of(host, &record.pin).ok()?.simulate;
    (!host.simulate.includes(&simulate)).then_some(simulate)
}

/// Returns the flows that a run can call, as they were when the run was accepted. Returns `None` if the store has
/// no such run.
pub(super) fn library_of(host: &Host, run: &RunId) -> Result<Option<CallableFlows>, OpenError> {
    let Some(record) = host.shared.journal.find(&host.tenant, run)? else { return Ok(None) };
    let content = pin::content_of(host, &record.pin).map_err(OpenError::Pin)?;
    let home = Arc::new(homes::home_in(host, &content));
    Ok(Some(CallableFlows::new(simulating_with(host, &content), home).with_content(record.pin, content)))
}

/// Returns the flows that the repetition of a run can call.
pub(super) fn library_of_retry(host: &Host, run: &RunId, new: Option<&RunId>) -> Result<CallableFlows, StartError> {
    let record = host.record(run).map_err(OpenError::Store)?;
    let pin = record.ok_or_else(|| OpenError::Unknown(run.clone()))?.pin;
    // A retry that has begun continues as it was accepted.
    if let Some(begun) = new.map(|new| library_of(host, new)).transpose()?.flatten() {
        let graph = pin::pinned(host, &pin).map_err(OpenError::Pin)?;
        return Ok(begun.with_renewals(Renewals::of_begun_retry(pin, graph)));
    }
    let mut renewals = Renewals::default();
    let flow = renewals.renew(host, &pin)?;
    let content = pin::content_of(host, &flow.pin).map_err(OpenError::Pin)?;
    let home = Arc::new(homes::home_in(host, &content));
    Ok(CallableFlows::new(simulating_with(host, &content), home)
        .with_content(flow.pin, content)
        .with_renewals(renewals))
}

impl Flows for CallableFlows {
    fn resolve(&self, name: &str, caller: &Pin) -> Result<Pinned, Failure> {
        let mut called = self.called.lock();
        let key = (caller.clone(), name.to_owned());
        if let Some(flow) = called.get(&key) {
            return Ok(flow.clone());
        }
        let flow = homes::called(&self.host, &self.homes.find(caller)?, name)?;
        let flow = self.pin_with_home(&flow, &homes::bind(&self.host, &flow));
        called.insert(key, flow.clone());
        Ok(flow)
    }

    fn repeated(&self, pin: &Pin) -> Result<Pinned, Failure> {
        let mut renewals = self.renewals.lock();
        let flow = renewals.renew(&self.host, pin);
        flow.map_err(|error| Failure::new(code::FLOW_NOT_FOUND, error.to_string()))
    }

    fn called_again(&self, name: &str, caller: &Pin, pin: &Pin) -> Result<Pinned, Failure> {
        let home = self.homes.find(caller)?;
        // The flows that a retry has pinned were checked when it was accepted.
        match home.flows.contains_key(name) && !home.is_old() {
            true => self.resolve(name, caller),
            false => self.repeated(pin),
        }
    }

    /// Compares what the flows were checked from. The flows that they call, the home and the simulations may differ.
    fn is_same(&self, pin: &Pin, other: &Pin) -> bool {
        let own = |pin: &Pin| pin::content_of(&self.host, pin).map(Content::own_part);
        pin == other || matches!((own(pin), own(other)), (Ok(one), Ok(other)) if one == other)
    }

    fn check_input(&self, flow: &Graph, input: &Json) -> Result<(), Failure> {
        let checked = self.host.computing(flow, || check_whole(flow, input));
        checked.map_err(|error| Failure::new(error.code(), error.to_string()))
    }

    fn compute(&self, work: &mut dyn FnMut()) -> Result<(), Failure> {
        self.host.computing_expressions(work)
    }

    fn pinned(&self, pin: &Pin) -> Result<Arc<Graph>, Failure> {
        let mut pinned = self.pinned.lock();
        if let Some(graph) = pinned.get(pin) {
            return Ok(graph.clone());
        }
        let (graph, warnings) = self.check_pinned(pin)?;
        log_broken_rules(self.host.tenant(), &warnings);
        pinned.insert(pin.clone(), graph.clone());
        Ok(graph)
    }
}
