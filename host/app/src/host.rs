//! The host: the engine, the catalog, and what runs share.

mod builder;
mod checked;
mod library;
mod loading;
mod outside;
mod pin;
mod retention;
mod stores;
mod watched;

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use flowcell_contract::{Capability, Catalog, Digest, Failure, NodeId, RunId, Tenant, Value};
use flowcell_engine::Engine;
use flowcell_flow::agentic::flow_label;
use flowcell_runtime::{
    Event, FlowRunner, Hubs, OpenError, RunOptions, World,
    fact::{Fact, RunEnd},
    limits::READ_UNITS,
    memory::MemoryBlobs,
    ports::{Blobs, CacheStore, Journal, Leases, Record, Registry, Sessions, StateStore, StoreError, Timers},
    publish::Projector,
    rows::Runs,
    server::ServerStore,
    sqlite::SqliteStore,
};
use flowcell_services::{
    client::Client,
    egress::Egress,
    mcp::McpTools,
    secrets::Secrets,
    webhook::{SigningKey, Webhook},
};

pub use self::builder::HostBuilder;
use self::{checked::CheckedFlows, library::Library, watched::Watched};
use crate::{
    error::{Error, StartError},
    folder::Folder,
    loaded::LoadedFlow,
    metrics::Metrics,
    observed::{Observers, Watch},
    policy::Policy,
    projection::OfLabels,
    rehearsal::{Clock, Jumps, Rehearsal, Script, StandIn},
    services::Settings,
    simulate::Simulate,
    telemetry::Telemetry,
    usage::{Usage, counted::CountedRunner},
    vault::Vault,
};

/// Loads flows and runs them, for one tenant. Cheap to clone; clones share packs, state and cache.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    tenant: Tenant,
    policy: Arc<Policy>,
    simulate: Arc<Simulate>,
}

struct Shared {
    engine: Engine,
    catalog: Arc<Catalog>,
    journal: Arc<dyn Journal>,
    timers: Arc<dyn Timers>,
    leases: Arc<dyn Leases>,
    state: Arc<dyn StateStore>,
    cache: Arc<dyn CacheStore>,
    blobs: Arc<dyn Blobs>,
    sessions: Arc<dyn Sessions>,
    registry: Arc<dyn Registry>,
    metrics: Metrics,
    telemetry: Option<Telemetry>,
    observers: Observers,
    usage: Usage,
    capabilities: Arc<HashMap<Arc<str>, Arc<dyn Capability>>>,
    /// The tools of the operator's servers.
    mcp: McpTools,
    /// A model that knows nothing.
    simulated_model: Arc<dyn Capability>,
    services: Settings,
    /// Where the flows are that are services.
    services_folder: Arc<Folder>,
    hubs: Arc<Hubs>,
    /// The runs that other processes watch.
    watched: Watched,
    egress: Egress,
    /// The secrets of tenants, those of the operator's file among them.
    secrets: Secrets,
    vault: Arc<Vault>,
    /// The store, if this process owns one.
    store: Option<Arc<SqliteStore>>,
    /// Its share of a store, if it is one of several processes.
    shared: Option<Arc<ServerStore>>,
    checked: CheckedFlows,
    /// Packs for runs to pin.
    packs: Mutex<HashMap<Digest, KnownPack>>,
}

/// A pack that runs may pin.
struct KnownPack {
    bytes: Arc<[u8]>,
    /// The tenants for whom the store has it.
    kept: HashSet<Tenant>,
}

impl Host {
    /// Begins to put a host together.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// The same host for another tenant, who has runs, state, cache and sessions of their own.
    pub fn of(&self, tenant: Tenant) -> Host {
        Host { shared: self.shared.clone(), tenant, policy: Arc::default(), simulate: self.simulate.clone() }
    }

    /// The same host within a policy, by which the engine bounds the tenant from now on.
    pub fn within(self, policy: Arc<Policy>) -> Host {
        policy.bound(&self.shared.engine, &self.tenant);
        Host { policy, ..self }
    }

    /// The same host, which answers more by stand-ins. It is an error to name a service that is not there.
    pub fn simulating(self, simulate: Simulate) -> Result<Host, Error> {
        builder::check_simulated(&simulate, &self.shared.services)?;
        Ok(Host { simulate: Arc::new(self.simulate.and(simulate)), ..self })
    }

    /// What the operator lets the tenant do.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whose runs these are. What is built is for `local`.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The node types that every flow may use.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    /// Prepares a run. The input must fit the flow's `inputSchema`. If the store has a run with the session id of the
    /// options, it goes on from where it was.
    pub fn runner(&self, flow: &LoadedFlow, options: RunOptions) -> Result<FlowRunner, StartError> {
        if flow_label(flow.graph()).is_some_and(|label| label.disabled) {
            return Err(StartError::Disabled(flow.name().to_owned()));
        }
        flow.check_input(&options.input)?;
        self.check_quota_for(options.session_id.as_ref())?;
        Ok(FlowRunner::new(self.pin(flow), self.world(flow.folder.clone()), options)?)
    }

    /// Prepares a run in which some nodes are given instead of being run, calls get replies that are given, and time jumps to
    /// the next timer whenever no node runs. Nothing of it is kept.
    pub fn rehearsal(
        &self,
        flow: &LoadedFlow,
        script: Arc<Script>,
        options: RunOptions,
    ) -> Result<FlowRunner, StartError> {
        flow.check_input(&options.input)?;
        let clock = Arc::new(if script.still { Clock::still() } else { Clock::default() });
        let engine = CountedRunner { engine: self.shared.engine.clone(), usage: self.shared.usage.clone() };
        let runner = Rehearsal::new(Arc::new(engine), script.clone(), clock.clone());
        let library = Library::new(self.clone(), flow.folder.clone());
        let mut world = World::in_memory(Arc::new(runner), Arc::new(library));
        world.tenant = self.tenant.clone();
        world.timers = Arc::new(Jumps(clock));
        world.blobs = Arc::new(MemoryBlobs::over(self.shared.blobs.clone()));
        let stand_in = |real: &Arc<dyn Capability>| -> Arc<dyn Capability> {
            Arc::new(StandIn { real: real.clone(), script: script.clone(), simulate: self.simulate.clone() })
        };
        let outside = self.capabilities(&flow.folder, &world.blobs);
        let outside = outside.iter().map(|(name, real)| (name.clone(), stand_in(real)));
        world.capabilities = Arc::new(outside.collect());
        Ok(FlowRunner::new(self.pin(flow), Arc::new(world), options)?)
    }

    /// Compiles a pack that this host has, unless it is in the cache, so that no run waits for it. Blocks meanwhile.
    pub fn prepare(&self, pack: &Digest) -> Result<(), Failure> {
        self.shared.engine.prepare(pack)
    }

    /// Prepares to go on with a run that the store has, with the flow as it was when the run began.
    pub fn resume(&self, run: &RunId, options: RunOptions) -> Result<FlowRunner, StartError> {
        let world = self.world(self.home());
        Ok(FlowRunner::resume(world, run.clone(), options)?)
    }

    /// Prepares a new run that does again what another did: the same flow, as it was when that run began, with the same
    /// input. If a node of the flow itself is named, what does not come after it and succeeded is not run again.
    pub fn again(&self, run: &RunId, from: Option<NodeId>, options: RunOptions) -> Result<FlowRunner, StartError> {
        self.check_quota_for(options.session_id.as_ref())?;
        Ok(FlowRunner::again(self.world(self.home()), run, from, options)?)
    }

    /// Visits the events of a run that the store has, from a number on, until the visitor has enough.
    pub fn each_event(
        &self,
        run: &RunId,
        from: u64,
        mut visit: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), StartError> {
        let tenant = self.tenant.clone();
        let record = self.shared.journal.find(&tenant, run).map_err(OpenError::Store)?;
        let record = record.ok_or_else(|| OpenError::Unknown(run.clone()))?;
        let graph = self.pinned(&record.pin).map_err(OpenError::Pin)?;
        let mut projector = Projector::new(tenant.clone(), run.clone(), graph);
        let mut at = 0;
        loop {
            let page = self.shared.journal.read(&tenant, run, at, READ_UNITS).map_err(OpenError::Store)?;
            let Some(last) = page.last() else { return Ok(()) };
            at = last.next_seq();
            for unit in page {
                if unit.next_seq() <= from {
                    projector.pass_over(&unit);
                    continue;
                }
                let wanted = projector.project(&unit).into_iter().filter(|event| event.seq >= from);
                if wanted.map(&mut visit).any(|flow| flow.is_break()) {
                    return Ok(());
                }
            }
        }
    }

    /// How a run has ended, if it has; `next` is the number that its next event would get.
    pub fn end_of(&self, run: &RunId, next: u64) -> Result<Option<RunEnd>, StartError> {
        let units = self.shared.journal.read(&self.tenant, run, next.saturating_sub(1), READ_UNITS);
        let units = units.map_err(OpenError::Store)?;
        let mut facts = units.iter().flat_map(|unit| &unit.facts).rev();
        Ok(facts.find_map(|fact| match fact {
            Fact::RunEnded { end } => Some(RunEnd::clone(end)),
            _ => None,
        }))
    }

    /// What is known of a run beside its events.
    pub(crate) fn record(&self, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.shared.journal.find(&self.tenant, run)
    }

    /// The store, if this process owns one: how often it has committed, and what is durable in it.
    pub fn store(&self) -> Option<&SqliteStore> {
        self.shared.store.as_deref()
    }

    /// Its share of a store, if this process is one of several.
    pub fn shared(&self) -> Option<&ServerStore> {
        self.shared.shared.as_deref()
    }

    /// What the store tells of its runs, if there is one that lasts.
    pub fn runs(&self) -> Option<&dyn Runs> {
        let embedded = self.store().map(|store| store.reader() as &dyn Runs);
        embedded.or(self.shared().map(|store| store as &dyn Runs))
    }

    /// What the store tells of sessions, and of the states of their steps.
    pub fn sessions(&self) -> &dyn Sessions {
        &*self.shared.sessions
    }

    /// What tenants use up.
    pub fn usage(&self) -> &Usage {
        &self.shared.usage
    }

    /// Numbers about what this process does.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Watches a run for those who count, trace and log, from its next event on.
    pub fn watch(&self, runner: &mut FlowRunner) {
        let watch = Watch::new(self.shared.observers.clone(), runner.run_id().clone(), runner.flow());
        runner.attach(Arc::new(watch));
    }

    /// Sends what is watched to the operator's collector from now on, if there is one, on the runtime that this is called
    /// on.
    pub fn start_telemetry(&self) -> Result<(), Error> {
        let started = self.shared.telemetry.as_ref().map_or(Ok(()), Telemetry::start);
        started.map_err(|error| Error::Telemetry(error.into()))
    }

    /// Sends the collector what it has not got yet; it does not wait long for one that does not answer.
    pub async fn stop_telemetry(&self) {
        if let Some(telemetry) = &self.shared.telemetry {
            telemetry.stop().await;
        }
    }

    /// A run is begun for somebody else's trace, named by a `traceparent`.
    pub(crate) fn link(&self, run: &RunId, traceparent: &str) {
        if let Some(telemetry) = &self.shared.telemetry {
            telemetry.link(&self.tenant, run, traceparent);
        }
    }

    /// What operators keep beside the runs.
    pub(crate) fn registry(&self) -> &dyn Registry {
        &*self.shared.registry
    }

    /// The secrets that the store keeps for tenants.
    pub fn vault(&self) -> &Vault {
        &self.shared.vault
    }

    /// A value of a flow's state.
    pub(crate) fn state(&self, flow: &str, key: &str) -> Result<Option<Value>, StoreError> {
        Ok(self.shared.state.get(&self.tenant, flow, key)?.map(|(value, _)| value))
    }

    /// Whether a run has this id, or had it.
    pub(crate) fn knows(&self, run: &RunId) -> Result<bool, StoreError> {
        let tenant = self.tenant.clone();
        match self.runs() {
            Some(runs) => Ok(runs.run(&tenant, run)?.is_some()),
            None => Ok(self.shared.journal.find(&tenant, run)?.is_some()),
        }
    }

    /// Takes in what other processes ask of the runs of a shared store, for as long as what is returned is kept.
    pub fn serve(&self) -> Result<Arc<World>, StartError> {
        let world = self.world(self.home());
        if let Some(store) = self.shared() {
            store.serve(&world).map_err(OpenError::Store)?;
        }
        Ok(world)
    }

    /// Milliseconds since 1970, as the host's timers see it.
    pub fn now(&self) -> u64 {
        self.shared.timers.now()
    }

    /// Where runs find what they have not pinned. The current folder is that of whoever started the process, and of no
    /// other tenant.
    fn home(&self) -> Arc<Folder> {
        let own = self.tenant == Tenant::local();
        Arc::new(if own { Folder::of(Path::new("")) } else { Folder::nowhere() })
    }

    fn world(&self, folder: Arc<Folder>) -> Arc<World> {
        let Shared { engine, journal, timers, leases, state, cache, blobs, hubs, usage, .. } = &*self.shared;
        let runner = CountedRunner { engine: engine.clone(), usage: usage.clone() };
        let capabilities = Arc::new(self.capabilities(&folder, blobs));
        Arc::new(World {
            tenant: self.tenant.clone(),
            runner: Arc::new(runner),
            flows: Arc::new(Library::new(self.clone(), folder)),
            journal: journal.clone(),
            timers: timers.clone(),
            leases: leases.clone(),
            state: state.clone(),
            cache: cache.clone(),
            blobs: blobs.clone(),
            capabilities,
            projections: Arc::new(OfLabels),
            hubs: hubs.clone(),
        })
    }

    /// A webhook at this URL, behind the host's guard.
    pub fn webhook(&self, url: &str, key: Option<SigningKey>) -> Result<Webhook, Failure> {
        Webhook::new(Client::new(self.shared.egress.clone()), url, key)
    }

    /// The key with which posts to a trigger of the tenant's are signed, by the name of the secret: what the store keeps, else
    /// what the operator's file says for `local`.
    pub async fn signing_key(&self, name: &str) -> Result<SigningKey, Failure> {
        self.shared.secrets.signing_key(&self.tenant, name).await
    }

    /// Waits until other processes that watch a run, which has ended, were told so; for a second at most.
    pub fn tell_watchers(&self, run: &RunId) {
        self.shared.watched.wait(run, Duration::from_secs(1));
    }

    pub(crate) fn watched(&self) -> &Watched {
        &self.shared.watched
    }

    /// The hubs of the runs that this host drives.
    pub fn hubs(&self) -> &Hubs {
        &self.shared.hubs
    }
}
