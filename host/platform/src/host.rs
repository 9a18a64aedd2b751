//! The host: the engine, the catalog, and what runs share.

pub mod agentic;
pub(crate) mod blocking;
mod builder;
mod called;
mod catalog;
mod checked;
mod content;
pub mod error;
pub mod events;
pub mod folder;
mod granted;
mod home;
mod homes;
mod inspector;
pub mod loaded;
mod loading;
mod outside;
mod pin;
mod quota;
mod reading;
mod renewal;
mod retention;
mod stores;
pub(crate) mod task_inputs;
mod tool_runs;
mod watched;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{Capability, Catalog, Digest, Failure, Json, RunId, Tenant, Value, code};
use flowcell_engine::{Engine, Room};
use flowcell_flow::{agentic::flow_label, graph::Graph};
use flowcell_runtime::{
    FlowRunner, Hubs, LiveRuns, MemoryBudget, OpenError, Repeat, RunOptions, World,
    fact::{Fact, RunEnd},
    limits::READ_UNITS,
    memory::MemoryBlobs,
    ports::{
        Blobs, CacheStore, DocumentStore, Inbox, Journal, Leases, Record, Runs, Sessions, StateStore, StoreError,
        Sweep, Timers,
    },
    sql::SharedStore,
    sqlite::SqliteStore,
};
use flowcell_services::{
    client::Client,
    egress::Egress,
    mcp::McpTools,
    secrets::Secrets,
    webhook::{SigningKey, Webhook},
};
use parking_lot::Mutex;

pub use self::builder::HostBuilder;
use self::{called::Library, checked::CheckedFlows, watched::Watched};
use crate::{
    host::{
        blocking::{charged, computing},
        error::{Error, InputError, StartError},
        home::Home,
        loaded::{CheckedInput, LoadedFlow},
    },
    observe::{
        metrics::Metrics,
        observed::{Observers, Watch},
        projection::OfLabels,
        telemetry::Telemetry,
    },
    operate::{
        policy::Policy,
        usage::{Usage, counted::CountedRunner},
        vault::Vault,
    },
    world::{
        rehearsal::{Budgeted, Clock, Jumps, Rehearsal, Script, StandIn},
        services::Settings,
        simulate::Simulate,
    },
};

/// Loads flows and runs them, for one tenant. Cheap to clone; clones share packs, state and cache.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    tenant: Tenant,
    policy: Arc<Policy>,
    simulate: Arc<Simulate>,
    /// The folder of the libraries of all tenants, if this process serves them.
    library: Option<Arc<PathBuf>>,
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
    documents: Arc<dyn DocumentStore>,
    inbox: Arc<dyn Inbox>,
    sweep: Arc<dyn Sweep>,
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
    services_home: Arc<Home>,
    hubs: Arc<Hubs>,
    /// The places of the runs that it drives.
    live: Arc<LiveRuns>,
    /// The runs that other processes watch.
    watched: Watched,
    egress: Egress,
    /// The secrets of tenants, those of the operator's file among them.
    secrets: Secrets,
    vault: Arc<Vault>,
    /// The store, if this process owns one.
    store: Option<Arc<SqliteStore>>,
    /// Its share of a store, if it is one of several processes.
    shared: Option<Arc<SharedStore>>,
    checked: CheckedFlows,
    /// For inputs that are checked against schemas.
    inputs: Room,
    /// For expressions that do much, and for the runs that wait with such.
    expressions: Room,
    waiting_expressions: Room,
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
        Host { tenant, policy: Arc::default(), ..self.clone() }
    }

    /// The same host for a process that serves libraries: those of all tenants are in this folder. Runs of flows from a library
    /// that this machine does not have find the flows whose names they compute there.
    pub fn serving(self, library: PathBuf) -> Host {
        Host { library: Some(Arc::new(library)), ..self }
    }

    /// The same host within a policy, by which the engine bounds the tenant from now on.
    pub fn within(self, policy: Arc<Policy>) -> Host {
        policy.bound(&self.shared.engine, &self.shared.live, &self.tenant);
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
    pub fn runner(&self, flow: &LoadedFlow, mut options: RunOptions) -> Result<FlowRunner, StartError> {
        refuse_disabled(flow)?;
        let input = self.check_input(flow, std::mem::take(&mut options.input))?;
        self.runner_of(input, options)
    }

    /// Prepares a run as [`Host::runner`] does, of the flow that has checked the input. The options have no input of their own.
    pub fn runner_of(&self, input: CheckedInput<'_>, options: RunOptions) -> Result<FlowRunner, StartError> {
        let CheckedInput { flow, given } = input;
        refuse_disabled(flow)?;
        let options = RunOptions { input: given, ..options };
        // A run that exists goes on as it began, whatever has become of the files since.
        let known = options.session_id.as_ref().map(|run| self.library_of(run)).transpose()?.flatten();
        let library = known.unwrap_or_else(|| Library::new(self.clone(), self.bind(flow)));
        let flow = library.pin(flow);
        self.admitted(FlowRunner::new(flow, self.world(library), options)?)
    }

    /// Checks an input where that holds nobody up, at the tenant's cost.
    fn check_input<'a>(&self, flow: &'a LoadedFlow, input: Json) -> Result<CheckedInput<'a>, InputError> {
        self.computing(flow.graph(), || flow.check_input(input))
    }

    /// Does work with a flow's `inputSchema` when it is the tenant's turn.
    pub(crate) fn computing<T>(&self, flow: &Graph, work: impl FnOnce() -> T) -> T {
        let Shared { inputs, engine, .. } = &*self.shared;
        match &flow.input_schema {
            Some(_) => computing(inputs, engine, &self.tenant, work),
            None => work(),
        }
    }

    /// Evaluates expressions when it is the tenant's turn, and fails if too many of the tenant's runs wait for that.
    pub(crate) fn computing_expressions(&self, work: &mut dyn FnMut()) -> Result<(), Failure> {
        let Shared { expressions, waiting_expressions, engine, .. } = &*self.shared;
        let waits = waiting_expressions.try_take(&self.tenant, 1);
        let busy = "too many runs of the tenant evaluate costly expressions at the same time";
        let _waits = waits.ok_or_else(|| Failure::new(code::LIMIT_EXCEEDED, busy))?;
        computing(expressions, engine, &self.tenant, work);
        Ok(())
    }

    /// Does work at the tenant's cost.
    pub fn charged<T>(&self, work: impl FnOnce() -> T) -> T {
        charged(&self.shared.engine, &self.tenant, work)
    }

    /// Prepares a run in which some nodes are given instead of being run, calls get replies that are given, and time jumps to
    /// the next timer whenever no node runs. Nothing of it is kept.
    pub fn rehearsal(
        &self,
        flow: &LoadedFlow,
        script: Arc<Script>,
        mut options: RunOptions,
    ) -> Result<FlowRunner, StartError> {
        options.input = self.check_input(flow, options.input)?.given;
        let clock = Arc::new(Clock::new(&script));
        let engine = CountedRunner { engine: self.shared.engine.clone(), usage: self.shared.usage.clone() };
        let runner = Rehearsal::new(Arc::new(engine), script.clone(), clock.clone());
        let library = Library::new(self.clone(), self.bind(flow));
        let (homes, pinned) = (library.homes().clone(), library.pin(flow));
        let mut world = World::in_memory(Arc::new(runner), Arc::new(library));
        world.tenant = self.tenant.clone();
        world.timers = Arc::new(Jumps(clock));
        world.live = self.shared.live.clone();
        world.blobs = Arc::new(MemoryBlobs::over(self.shared.blobs.clone()));
        if let Some(most) = script.most_bytes {
            let budget = Arc::new(MemoryBudget::new(most));
            world.blobs = Arc::new(Budgeted { blobs: world.blobs, budget: budget.clone() });
            world.budget = Some(budget);
        }
        let stand_in = |real: &Arc<dyn Capability>| -> Arc<dyn Capability> {
            Arc::new(StandIn { real: real.clone(), script: script.clone(), simulate: self.simulate.clone() })
        };
        let outside = self.capabilities(&homes, &world.blobs);
        let outside = outside.iter().map(|(name, real)| (name.clone(), stand_in(real)));
        world.capabilities = Arc::new(outside.collect());
        Ok(FlowRunner::new(pinned, Arc::new(world), options)?)
    }

    /// Compiles a pack that this host has, unless it is in the cache, so that no run waits for it. Blocks meanwhile.
    pub fn prepare(&self, pack: &Digest) -> Result<(), Failure> {
        self.shared.engine.prepare(pack)
    }

    /// Prepares to go on with a run that the store has, with the flow as it was when the run began. Nobody goes on by hand
    /// with a run of a tenant that is disabled.
    pub fn resume(&self, run: &RunId, options: RunOptions) -> Result<FlowRunner, StartError> {
        let by_hand = options.by_hand;
        let runner = FlowRunner::resume(self.world_of(run)?, run.clone(), options)?;
        if by_hand {
            self.check_enabled(&runner)?;
        }
        Ok(runner)
    }

    /// Prepares a new run that does again what another did: the same flow, as it was when that run began, with the same
    /// input. If a node of the flow itself is named, what does not come after it and succeeded is not run again. A flow that
    /// grants more than the tenant may have now is refused.
    pub fn again(&self, run: &RunId, repeat: Repeat, options: RunOptions) -> Result<FlowRunner, StartError> {
        let library = self.library_of_retry(run, options.session_id.as_ref())?;
        self.admitted(FlowRunner::again(self.world(library), run, repeat, options)?)
    }

    /// Returns the checked flow of a run that the store has, as it was when the run began.
    pub fn graph_of_run(&self, run: &RunId) -> Result<Arc<Graph>, StartError> {
        let record = self.shared.journal.find(&self.tenant, run).map_err(OpenError::Store)?;
        let record = record.ok_or_else(|| OpenError::Unknown(run.clone()))?;
        Ok(self.pinned(&record.pin).map_err(OpenError::Pin)?)
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
    pub fn record(&self, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.shared.journal.find(&self.tenant, run)
    }

    /// The runs that a run has called.
    pub fn called_by(&self, run: &RunId) -> Result<Vec<RunId>, StartError> {
        Ok(self.shared.journal.children_of(&self.tenant, run).map_err(OpenError::Store)?)
    }

    /// The runs that a run has called and that are not over.
    pub(crate) fn left_below(&self, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.shared.journal.left_below(&self.tenant, run)
    }

    /// The store, if this process owns one: how often it has committed, and what is durable in it.
    pub fn store(&self) -> Option<&SqliteStore> {
        self.shared.store.as_deref()
    }

    /// Its share of a store, if this process is one of several.
    pub fn shared(&self) -> Option<&SharedStore> {
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

    /// The places of the runs that this host drives.
    pub fn live(&self) -> &Arc<LiveRuns> {
        &self.shared.live
    }

    /// Numbers about what this process does.
    pub fn metrics(&self) -> &Metrics {
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
    pub fn link(&self, run: &RunId, traceparent: &str) {
        if let Some(telemetry) = &self.shared.telemetry {
            telemetry.link(&self.tenant, run, traceparent);
        }
    }

    /// The documents of operators.
    pub(crate) fn documents(&self) -> &dyn DocumentStore {
        &*self.shared.documents
    }

    /// The inbox of the store.
    pub(crate) fn inbox(&self) -> &dyn Inbox {
        &*self.shared.inbox
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
        let world = self.world(Library::new(self.clone(), self.unpinned_home()));
        if let Some(store) = self.shared() {
            store.serve(&world).map_err(OpenError::Store)?;
        }
        Ok(world)
    }

    /// Milliseconds since 1970, as the host's timers see it.
    pub fn now(&self) -> u64 {
        self.shared.timers.now()
    }

    /// Waits until the clock of the host's timers shows a time, in milliseconds since 1970.
    pub(crate) async fn wait_until(&self, due: u64) {
        self.shared.timers.wait(due).await;
    }

    /// The world of a run that the store has, in which it finds what it could call when it was accepted.
    fn world_of(&self, run: &RunId) -> Result<Arc<World>, StartError> {
        let library = self.library_of(run)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
        Ok(self.world(library))
    }

    fn world(&self, library: Library) -> Arc<World> {
        let Shared { engine, journal, timers, leases, state, cache, blobs, hubs, live, usage, .. } = &*self.shared;
        let runner = CountedRunner { engine: engine.clone(), usage: usage.clone() };
        let capabilities = Arc::new(library.host().capabilities(library.homes(), blobs));
        Arc::new(World {
            tenant: self.tenant.clone(),
            runner: Arc::new(runner),
            flows: Arc::new(library),
            journal: journal.clone(),
            timers: timers.clone(),
            leases: leases.clone(),
            state: state.clone(),
            cache: cache.clone(),
            blobs: blobs.clone(),
            capabilities,
            projections: Arc::new(OfLabels),
            hubs: hubs.clone(),
            live: live.clone(),
            budget: None,
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

    /// What keeps a secret from signing posts to a trigger of the tenant's, as a sentence.
    pub(crate) fn check_signing_secret(&self, name: &str) -> Result<(), String> {
        self.shared.secrets.check_signing(&self.tenant, name)
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

fn refuse_disabled(flow: &LoadedFlow) -> Result<(), StartError> {
    match flow_label(flow.graph()).is_some_and(|label| label.disabled) {
        true => Err(StartError::Disabled(flow.name().to_owned())),
        false => Ok(()),
    }
}
