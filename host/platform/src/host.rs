//! The host: the engine, the catalog, the store, and everything else that the runs of a process share.

pub mod agentic;
pub(crate) mod answers;
pub(crate) mod blocking;
mod builder;
pub(crate) mod called;
mod catalog;
mod checked;
mod content;
pub mod editing;
pub(crate) mod erasure;
pub mod error;
pub mod eval;
pub mod events;
pub mod folder;
pub(crate) mod granted;
mod home;
pub(crate) mod homes;
mod inspector;
mod job_signals;
mod known_pack;
pub mod loaded;
pub(crate) mod loading;
pub(crate) mod newer;
mod node_types;
pub(crate) mod outside;
pub mod pack_changes;
mod pack_sources;
pub(crate) mod pin;
pub(crate) mod pushing;
pub(crate) mod quota;
mod reading;
mod renewal;
pub(crate) mod resolved;
pub mod retention;
mod shared;
pub(crate) mod stores;
pub(crate) mod task_inputs;
mod test_runs;
mod tool_runs;
mod watched;

use std::{path::PathBuf, sync::Arc, time::Duration};

use flowcell_contract::{Catalog, Digest, Failure, Json, RunId, Tenant, Value, code};
use flowcell_flow::graph::Graph;
use flowcell_runtime::{
    FlowRunner, Hubs, LiveRuns, OpenError, Repeat, RunOptions, World,
    ports::{Blobs, DocumentStore, Inbox, Record, Runs, Sessions, StoreError},
    shared::SharedRuns,
    sqlite::SqliteStore,
};
use flowcell_services::{
    client::Client,
    webhook::{SigningKey, Webhook},
};

pub use self::builder::HostBuilder;
use self::{called::CallableFlows, job_signals::JobSignals, shared::Shared, watched::Watched};
use crate::{
    host::{
        blocking::{charged, computing},
        error::{Error, InputError, StartError},
        loaded::{CheckedInput, LoadedFlow},
    },
    observe::{
        metrics::Metrics, observed::RunWatch, projection::LabelProjections, relay::LiveRelay, telemetry::Telemetry,
    },
    operate::{
        policy::Policy,
        usage::{Usage, counted::CountedRunner},
        vault::Vault,
    },
    posted::PostedFlows,
    world::{simulate::Simulate, test_run::Fixtures},
};

/// Loads flows and runs them for one tenant. Cloning is cheap, and clones share packs, state and cache.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    tenant: Tenant,
    policy: Arc<Policy>,
    simulate: Arc<Simulate>,
    /// The folder with the libraries of all tenants. `None` unless this process serves them.
    library: Option<Arc<PathBuf>>,
    /// True if diagnostics do not name other flows of the tenant.
    pub(crate) hides_flows: bool,
}

impl Host {
    /// Returns a builder with the default settings.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Returns the same host for another tenant, who has separate runs, state, cache and sessions.
    pub fn for_tenant(&self, tenant: Tenant) -> Host {
        Host { tenant, policy: Arc::default(), ..self.clone() }
    }

    /// Returns the same host for a process that serves the tenants' libraries in the folder `library`. A run looks up
    /// computed names of flows there if it has recorded a library that is missing on this machine.
    pub fn serving(self, library: PathBuf) -> Host {
        Host { library: Some(Arc::new(library)), ..self }
    }

    /// Returns the same host with a policy. The engine limits the tenant by this policy from now on.
    pub fn with_policy(self, policy: Arc<Policy>) -> Host {
        policy.apply_limits(&self.shared.engine, &self.shared.live, &self.shared.egress, &self.tenant);
        Host { policy, ..self }
    }

    /// Returns the same host, which also simulates what `simulate` names. An unknown service name is an error.
    pub fn simulating(self, simulate: Simulate) -> Result<Host, Error> {
        self.shared.services.check_simulated(&simulate).map_err(Error::Services)?;
        Ok(Host { simulate: Arc::new(self.simulate.union(simulate)), ..self })
    }

    /// Returns the operator's policy for the tenant.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the tenant that owns the runs. A new host belongs to `local`.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the node types that every flow may use.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.node_types.current().catalog.clone()
    }

    /// Prepares a run. The input must fit the flow's `inputSchema`. If the store already has a run with the id in the
    /// options, that run continues.
    pub fn runner(&self, flow: &LoadedFlow, mut options: RunOptions) -> Result<FlowRunner, StartError> {
        flow.check_enabled()?;
        let input = self.check_input(flow, std::mem::take(&mut options.input))?;
        self.runner_of(input, options)
    }

    /// Prepares a run as [`Host::runner`] does, with an input that the flow has already checked. Any input in the
    /// options is replaced.
    pub fn runner_of(&self, input: CheckedInput<'_>, options: RunOptions) -> Result<FlowRunner, StartError> {
        let CheckedInput { flow, given, .. } = input;
        flow.check_enabled()?;
        let options = RunOptions { input: given, version: flow.version, ..options };
        // An existing run continues as it began, even if its files have changed since.
        let known = options.run_id.as_ref().map(|run| called::library_of(self, run)).transpose()?.flatten();
        let library = known.unwrap_or_else(|| CallableFlows::new(self.clone(), homes::bind(self, flow)));
        let flow = library.pin(flow);
        quota::admitted(self, FlowRunner::new(flow, self.world(library), options)?)
    }

    /// Checks an input without blocking other tokio tasks, and charges the tenant for the time.
    fn check_input<'a>(&self, flow: &'a LoadedFlow, input: Json) -> Result<CheckedInput<'a>, InputError> {
        self.computing(flow.graph(), || flow.check_input(input))
    }

    /// Runs work that may check against a flow's `inputSchema`. If the flow has one, the work waits for a permit of
    /// the tenant.
    pub(crate) fn computing<T>(&self, flow: &Graph, work: impl FnOnce() -> T) -> T {
        let Shared { inputs, engine, .. } = &*self.shared;
        match &flow.input_schema {
            Some(_) => computing(inputs, engine, &self.tenant, work),
            None => work(),
        }
    }

    /// Runs work that evaluates costly expressions, once the tenant gets a permit. Fails if too many of the tenant's
    /// runs already wait.
    pub(crate) fn computing_expressions(&self, work: &mut dyn FnMut()) -> Result<(), Failure> {
        let Shared { expressions, waiting_expressions, engine, .. } = &*self.shared;
        let waits = waiting_expressions.try_take(&self.tenant, 1);
        let busy = "too many runs of the tenant evaluate costly expressions at the same time";
        let _waits = waits.ok_or_else(|| Failure::new(code::LIMIT_EXCEEDED, busy))?;
        computing(expressions, engine, &self.tenant, work);
        Ok(())
    }

    /// Runs work and charges the tenant for the time.
    pub fn charged<T>(&self, work: impl FnOnce() -> T) -> T {
        charged(&self.shared.engine, &self.tenant, work)
    }

    /// Prepares a test run. Some nodes get fixtures, calls get scripted replies, and time jumps to the next timer when
    /// no node runs. Nothing is stored.
    pub fn test_runner(
        &self,
        flow: &LoadedFlow,
        script: Arc<Fixtures>,
        options: RunOptions,
    ) -> Result<FlowRunner, StartError> {
        test_runs::runner(self, flow, script, options)
    }

    /// Compiles a pack of this host unless its code is cached, so that no run waits for it. Blocks the caller.
    pub fn prepare(&self, pack: &Digest) -> Result<(), Failure> {
        self.shared.engine.prepare(pack)
    }

    /// Prepares to resume a stored run with the flow as it was when the run began. If the tenant is disabled, resuming
    /// by hand fails. It also fails for a run that is parked for a quota which is still used up, unless the options
    /// contain answers.
    pub fn resume(&self, run: &RunId, options: RunOptions) -> Result<FlowRunner, StartError> {
        let (by_hand, answers) = (options.by_hand, !options.answers.is_empty());
        let runner = FlowRunner::resume(self.world_of(run)?, run.clone(), options)?;
        if by_hand {
            quota::check_enabled(self, &runner)?;
        }
        quota::check_pause(self, &runner, by_hand && !answers)?;
        Ok(runner)
    }

    /// Prepares a new run that repeats another with the same input and its original flow. With `repeat.from`, this
    /// node and the nodes after it are repeated, and further ones, see [`FlowRunner::retry`]. The host refuses a
    /// flow whose grants exceed the tenant's current policy.
    pub fn retry(&self, run: &RunId, repeat: Repeat, options: RunOptions) -> Result<FlowRunner, StartError> {
        let library = called::library_of_retry(self, run, options.run_id.as_ref())?;
        quota::admitted(self, FlowRunner::retry(self.world(library), run, repeat, options)?)
    }

    /// Returns the record of a run: its metadata without events.
    pub fn record(&self, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.shared.journal.find(&self.tenant, run)
    }

    /// Returns the child runs of a run that have not ended.
    pub(crate) fn live_runs_below(&self, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.shared.journal.left_below(&self.tenant, run)
    }

    /// Returns the store, with its commit count and durability state, if this process owns one.
    pub fn store(&self) -> Option<&SqliteStore> {
        self.shared.store.as_deref()
    }

    /// Returns the shared store, or `None` if the store is not shared.
    pub fn shared(&self) -> Option<&dyn SharedRuns> {
        self.shared.shared.as_deref()
    }

    /// Returns the lists of runs in the store, if this process owns or shares a store. Otherwise returns `None`.
    pub fn runs(&self) -> Option<&dyn Runs> {
        let embedded = self.store().map(|store| store.reader() as &dyn Runs);
        embedded.or(self.shared().map(|store| store as &dyn Runs))
    }

    /// Returns the store's sessions and the states of their steps.
    pub fn sessions(&self) -> &dyn Sessions {
        &*self.shared.sessions
    }

    /// Returns the usage counters of all tenants.
    pub fn usage(&self) -> &Usage {
        &self.shared.usage
    }

    /// Returns the runs that this host drives, with their live permits.
    pub fn live(&self) -> &Arc<LiveRuns> {
        &self.shared.live
    }

    /// Returns the metrics of this process.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Attaches the observers for metrics, traces and logs to a run. They receive the run's spans from now on.
    pub fn watch(&self, runner: &mut FlowRunner) {
        let watch = RunWatch::new(self.shared.observers.clone(), runner.run_id().clone(), runner.flow());
        runner.attach(Arc::new(watch));
    }

    /// Starts to send telemetry to the operator's collector, if one is configured. The sender runs on the caller's
    /// tokio runtime.
    pub fn start_telemetry(&self) -> Result<(), Error> {
        let started = self.shared.telemetry.as_ref().map_or(Ok(()), Telemetry::start);
        started.map_err(|error| Error::Telemetry(error.into()))
    }

    /// Sends the remaining telemetry to the collector. Waits only some seconds for a collector that does not answer.
    pub async fn stop_telemetry(&self) {
        if let Some(telemetry) = &self.shared.telemetry {
            telemetry.stop().await;
        }
    }

    /// Links a run to the caller's trace, named by a `traceparent` header.
    pub fn link(&self, run: &RunId, traceparent: &str) {
        if let Some(telemetry) = &self.shared.telemetry {
            telemetry.link(&self.tenant, run, traceparent);
        }
    }

    /// Returns the posted flows of the tenant, or `None` if the store is not shared.
    pub(crate) fn posted(&self) -> Option<PostedFlows> {
        self.shared.posted.clone().map(|cache| PostedFlows::new(cache, self.tenant.clone()))
    }

    /// Returns the store of operators' documents.
    pub(crate) fn documents(&self) -> &dyn DocumentStore {
        &*self.shared.documents
    }

    /// Returns the store of blobs, which are addressed by content.
    pub(crate) fn blobs(&self) -> &Arc<dyn Blobs> {
        &self.shared.blobs
    }

    /// Waits until all blobs that were stored before this call are durable.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.shared.store.as_ref().map_or(Ok(()), |store| store.settle())?;
        self.shared.shared.as_ref().map_or(Ok(()), |store| store.settle())
    }

    /// Returns the signals about jobs.
    pub(crate) fn job_signals(&self) -> &JobSignals {
        &self.shared.jobs
    }

    /// Returns the inbox of the store.
    pub(crate) fn inbox(&self) -> &dyn Inbox {
        &*self.shared.inbox
    }

    /// Returns the vault, which stores the secrets of tenants.
    pub fn vault(&self) -> &Vault {
        &self.shared.vault
    }

    /// Returns a value of a flow's state.
    pub(crate) fn state(&self, flow: &str, key: &str) -> Result<Option<Value>, StoreError> {
        Ok(self.shared.state.get(&self.tenant, flow, key)?.map(|(value, _)| value))
    }

    /// Returns whether a run with this id exists or has existed.
    pub(crate) fn knows(&self, run: &RunId) -> Result<bool, StoreError> {
        let tenant = self.tenant.clone();
        match self.runs() {
            Some(runs) => Ok(runs.run(&tenant, run)?.is_some()),
            None => Ok(self.shared.journal.find(&tenant, run)?.is_some()),
        }
    }

    /// Lets other processes send commands to the runs that this process drives in a shared store, until the caller
    /// drops the returned world.
    pub fn serve(&self) -> Result<Arc<World>, StartError> {
        let world = self.world(CallableFlows::new(self.clone(), homes::unpinned(self)));
        if let Some(store) = self.shared() {
            store.serve(&world).map_err(OpenError::Store)?;
        }
        if let Some(relay) = self.live_relay() {
            relay.start().map_err(|error| OpenError::Store(StoreError(error.to_string().into())))?;
        }
        Ok(world)
    }

    /// Returns the time of the host's timers, in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.shared.timers.now()
    }

    /// Waits until the host's timers reach a time, in milliseconds since 1970.
    pub(crate) async fn wait_until(&self, due: u64) {
        self.shared.timers.wait(due).await;
    }

    /// Returns the world of a stored run: its stores, its capabilities, and the flows that it can call. The flows are
    /// those of the time when the run was accepted.
    fn world_of(&self, run: &RunId) -> Result<Arc<World>, StartError> {
        let library = called::library_of(self, run)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
        Ok(self.world(library))
    }

    fn world(&self, library: CallableFlows) -> Arc<World> {
        let Shared { engine, journal, timers, leases, state, cache, blobs, hubs, live, usage, .. } = &*self.shared;
        let capabilities = Arc::new(outside::capabilities(library.host(), library.homes(), blobs));
        Arc::new(World {
            tenant: self.tenant.clone(),
            runner: Arc::new(CountedRunner { engine: engine.clone(), usage: usage.clone() }),
            flows: Arc::new(library),
            journal: journal.clone(),
            timers: timers.clone(),
            leases: leases.clone(),
            state: state.clone(),
            cache: cache.clone(),
            blobs: blobs.clone(),
            capabilities,
            projections: Arc::new(LabelProjections),
            hubs: hubs.clone(),
            live: live.clone(),
            budget: None,
            quotas: Some(Arc::new(usage.clone())),
            seed: None,
        })
    }

    /// Creates a webhook for this URL. Its requests pass the host's egress guard, but no circuit breaker of a tenant.
    pub fn webhook(&self, url: &str, key: Option<SigningKey>) -> Result<Webhook, Failure> {
        Webhook::new(Client::new(self.shared.egress.clone().without_outbound()), url, key)
    }

    /// Returns the key that signs posts to a trigger of the tenant as Standard Webhooks, by the secret's name.
    pub async fn signing_key(&self, name: &str) -> Result<SigningKey, Failure> {
        self.shared.secrets.signing_key(&self.tenant, name).await
    }

    /// Returns the key for posts of the other schemes, which use the characters of the secret itself.
    pub(crate) async fn text_key(&self, name: &str) -> Result<SigningKey, Failure> {
        self.shared.secrets.text_key(&self.tenant, name).await
    }

    /// Checks whether a secret can sign posts to a trigger of the tenant. The error is a sentence for people.
    pub(crate) fn check_signing_secret(&self, name: &str) -> Result<(), String> {
        self.shared.secrets.check_signing(&self.tenant, name)
    }

    /// Waits until the processes that watch an ended run have received its end, but at most one second.
    pub fn wait_for_watchers(&self, run: &RunId) {
        self.shared.watched.wait_for_watchers(run, Duration::from_secs(1));
    }

    pub(crate) fn watched(&self) -> &Watched {
        &self.shared.watched
    }

    /// Returns the relay of live events. `None`: the store is not shared, or its server has no notifications.
    pub fn live_relay(&self) -> Option<&Arc<LiveRelay>> {
        let open = || {
            let relay = self.shared()?.relay()?;
            Some(Arc::new(LiveRelay::new(relay, self.shared.hubs.clone())))
        };
        self.shared.relay.get_or_init(open).as_ref()
    }

    /// Returns the hubs of the runs that this host drives.
    pub fn hubs(&self) -> &Hubs {
        &self.shared.hubs
    }
}
