//! The host: the engine, the catalog, and what runs share.

mod library;
mod pin;
mod stores;

use std::{
    collections::HashMap,
    fs,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use flowcell_contract::{Capability, Catalog, Digest, Failure, NodeId, RunId, Tenant};
use flowcell_engine::{Config, Engine, Limits, Pack};
use flowcell_flow::{Diagnostic, PackRef, Source};
use flowcell_runtime::{
    Event, FlowRunner, Hubs, OpenError, RunOptions, World,
    export::{ExportError, export},
    limits::READ_UNITS,
    memory::SystemTimers,
    ports::{Blobs, CacheStore, Journal, Leases, StateStore, Timers},
    publish::Projector,
    rows::{Runs, Swept},
    server::ServerStore,
    sqlite::{Reader, SqliteStore},
};

use flowcell_services::{
    client::Client,
    egress::{AddressRange, Egress, EgressPolicy},
    http::{self, HttpCapability},
    model::{self, ModelCapability, Providers},
    webhook::{SigningKey, Webhook},
};

use self::{
    library::Library,
    stores::{Stores, Where},
};
use crate::{
    catalog,
    content::Reading,
    error::{Error, LoadError, StartError},
    folder::{Folder, read_source},
    loaded::{CheckedFlow, LoadedFlow},
    rehearsal::{Clock, Jumps, Rehearsal, Script, Simulated, StandIn},
    tools::{self, Tools},
};

/// Loads flows and runs them. Cheap to clone; clones share packs, state and cache.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

struct Shared {
    engine: Engine,
    catalog: Arc<Catalog>,
    journal: Arc<dyn Journal>,
    timers: Arc<dyn Timers>,
    leases: Arc<dyn Leases>,
    state: Arc<dyn StateStore>,
    cache: Arc<dyn CacheStore>,
    blobs: Arc<dyn Blobs>,
    capabilities: Arc<HashMap<Arc<str>, Arc<dyn Capability>>>,
    hubs: Arc<Hubs>,
    egress: Egress,
    /// The store, if this process owns one.
    store: Option<Arc<SqliteStore>>,
    /// Its share of a store, if it is one of several processes.
    shared: Option<Arc<ServerStore>>,
    /// Packs for runs to pin.
    packs: Mutex<HashMap<Digest, KnownPack>>,
}

/// A pack that runs may pin.
struct KnownPack {
    bytes: Arc<[u8]>,
    /// The store has it.
    kept: bool,
}

/// Puts a [`Host`] together. By default: the built-in catalog, no other packs, compiled code cached in the user's cache
/// folder, the engine's default limits.
#[derive(Default)]
pub struct HostBuilder {
    packs: Vec<PathBuf>,
    cache: CacheDir,
    limits: Limits,
    instances: Option<u32>,
    place: Where,
    egress: EgressPolicy,
    capabilities: Vec<(Arc<str>, Arc<dyn Capability>)>,
    simulates_http: bool,
    providers: Option<Providers>,
    providers_file: Option<PathBuf>,
    simulates_model: bool,
}

#[derive(Default)]
enum CacheDir {
    #[default]
    OfTheUser,
    At(PathBuf),
    None,
}

impl HostBuilder {
    /// Adds every `*.wasm` of a folder, or one pack.
    pub fn packs(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.packs.push(path.into());
        self
    }

    /// Keeps compiled code here.
    pub fn cache_dir(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.cache = CacheDir::At(path.into());
        self
    }

    /// Keeps compiled code nowhere: every process compiles what it uses.
    pub fn without_cache(mut self) -> HostBuilder {
        self.cache = CacheDir::None;
        self
    }

    /// Sets what one attempt may use up.
    pub fn limits(mut self, limits: Limits) -> HostBuilder {
        self.limits = limits;
        self
    }

    /// Sets how many attempts run at a time, those that wait for a call included; what is more waits for its turn. By
    /// default as many as the machine can hold. Fewer make the start faster.
    pub fn instances(mut self, count: u32) -> HostBuilder {
        self.instances = Some(count);
        self
    }

    /// Keeps runs, state and events in this folder, which this process then owns. By default they are kept in memory, and
    /// gone with the process.
    pub fn state_dir(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.place = Where::Folder(path.into());
        self
    }

    /// Keeps runs, state and events on this server, `mysql://…` or `postgres://…`, beside other processes.
    pub fn server(mut self, url: impl Into<String>) -> HostBuilder {
        self.place = Where::Server(url.into());
        self
    }

    /// Lets nodes reach these addresses although they are not public, if their flow grants it.
    pub fn allow_private(mut self, addresses: impl IntoIterator<Item = AddressRange>) -> HostBuilder {
        self.egress.allow_private.extend(addresses);
        self
    }

    /// Answers requests of nodes with 200 and a JSON text that tells them, `{ "simulated": true, "method", "url" }`, and lets
    /// none leave. Grants are checked as ever.
    pub fn simulates_http(mut self) -> HostBuilder {
        self.simulates_http = true;
        self
    }

    /// Sets which models nodes may reach, if their flow grants it. By default those of [`Providers::built_in`].
    pub fn providers(mut self, providers: Providers) -> HostBuilder {
        self.providers = Some(providers);
        self
    }

    /// Reads which models nodes may reach from a YAML file, unless they are set.
    pub fn providers_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.providers_file = Some(path.into());
        self
    }

    /// Answers the turns of models by itself, the same ones always, and lets none leave. Grants are checked as ever.
    pub fn simulates_model(mut self) -> HostBuilder {
        self.simulates_model = true;
        self
    }

    /// Puts something else behind a capability that leaves the host, such as `http`.
    pub fn capability(mut self, name: &str, capability: Arc<dyn Capability>) -> HostBuilder {
        self.capabilities.push((name.into(), capability));
        self
    }

    /// Shows the runs of a store that another process may own. Nothing can be run then.
    pub fn reads(mut self, reader: Arc<Reader>) -> HostBuilder {
        self.place = Where::Beside(reader);
        self
    }

    /// Starts the engine and reads the manifests. Nothing is compiled before it is first used.
    pub fn build(self) -> Result<Host, Error> {
        let cache_dir = match self.cache {
            CacheDir::OfTheUser => user_cache_dir(),
            CacheDir::At(path) => Some(path),
            CacheDir::None => None,
        };
        let config = Config { cache_dir, limits: self.limits, instances: self.instances, ..Config::default() };
        let engine = Engine::new(config).map_err(|error| Error::Engine(error.into()))?;
        let mut catalog = Catalog::default();
        for built_in in catalog::PACKS {
            let origin = format!("`{}` of the catalog", built_in.name);
            let digest = Digest(built_in.digest.into());
            let pack = engine.add_built_in(built_in.bytes, digest, &origin)?;
            register(&mut catalog, pack, &origin)?;
        }
        let mut packs = HashMap::new();
        for path in self.packs.iter().map(|path| pack_files(path)) {
            for file in path? {
                let (digest, bytes) = add_file(&engine, &mut catalog, &file)?;
                packs.insert(digest, KnownPack { bytes, kept: false });
            }
        }
        let Stores { journal, state, blobs, leases, cache, store, shared } = Stores::open(self.place)?;
        let egress = Egress::new(self.egress).map_err(|failure| Error::Services(failure.message))?;
        let client = Client::new(egress.clone());
        let services = |failure: Failure| Error::Services(failure.message);
        let providers = match (self.providers, &self.providers_file) {
            (Some(providers), _) => providers,
            (None, Some(file)) => read_providers(file)?,
            (None, None) => Providers::built_in().map_err(services)?,
        };
        let providers =
            if self.simulates_model { providers.simulated(Vec::new()).map_err(services)? } else { providers };
        let model: Arc<dyn Capability> = Arc::new(ModelCapability::new(&client, blobs.clone(), providers));
        let http = Arc::new(HttpCapability::new(client, blobs.clone()));
        let http: Arc<dyn Capability> = if self.simulates_http { Arc::new(Simulated(http)) } else { http };
        let own = [(http::INTERFACE.into(), http), (model::INTERFACE.into(), model)];
        let outside = own.into_iter().chain(self.capabilities);
        Ok(Host(Arc::new(Shared {
            engine,
            catalog: Arc::new(catalog),
            journal,
            timers: Arc::new(SystemTimers::default()),
            leases,
            state,
            cache,
            blobs,
            capabilities: Arc::new(outside.collect()),
            hubs: Arc::default(),
            egress,
            store,
            shared,
            packs: Mutex::new(packs),
        })))
    }
}

impl Host {
    /// Begins to put a host together.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// The node types that every flow may use.
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// Loads a flow that must have no findings but warnings. Packs and files that it names are found from its folder.
    pub fn load_flow(&self, path: impl AsRef<Path>) -> Result<LoadedFlow, LoadError> {
        accept(self.check_flow(path)?)
    }

    /// Loads a flow from text. What it names is found from the folder of the source's name.
    pub fn load_source(&self, source: Source) -> Result<LoadedFlow, LoadError> {
        self.load_in(&source, Arc::new(Folder::of(Path::new(&source.name))))
    }

    /// Checks a flow and returns everything that was found. Runs nothing.
    pub fn check_flow(&self, path: impl AsRef<Path>) -> Result<CheckedFlow, Error> {
        let path = path.as_ref();
        let source = read_source(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Ok(self.check_in(&source, Arc::new(Folder::of(path))))
    }

    /// Prepares a run. The input must fit the flow's `inputSchema`. If the store has a run with the session id of the
    /// options, it goes on from where it was.
    pub fn runner(&self, flow: &LoadedFlow, options: RunOptions) -> Result<FlowRunner, StartError> {
        flow.check_input(&options.input)?;
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
        let clock = Arc::new(Clock::default());
        let runner = Rehearsal::new(Arc::new(self.0.engine.clone()), script.clone(), clock.clone());
        let library = Library::new(self.clone(), flow.folder.clone());
        let mut world = World::in_memory(Arc::new(runner), Arc::new(library));
        world.timers = Arc::new(Jumps(clock));
        let stand_in = |real: &Arc<dyn Capability>| -> Arc<dyn Capability> {
            Arc::new(StandIn { real: real.clone(), script: script.clone() })
        };
        let outside = self.capabilities(&flow.folder);
        let outside = outside.iter().map(|(name, real)| (name.clone(), stand_in(real)));
        world.capabilities = Arc::new(outside.collect());
        Ok(FlowRunner::new(self.pin(flow), Arc::new(world), options)?)
    }

    /// Prepares to go on with a run that the store has, with the flow as it was when the run began.
    pub fn resume(&self, run: &RunId, options: RunOptions) -> Result<FlowRunner, StartError> {
        let world = self.world(Arc::new(Folder::of(Path::new(""))));
        Ok(FlowRunner::resume(world, run.clone(), options)?)
    }

    /// Prepares a new run that does again what another did: the same flow, as it was when that run began, with the same
    /// input. If a node of the flow itself is named, what does not come after it and succeeded is not run again.
    pub fn again(&self, run: &RunId, from: Option<NodeId>, options: RunOptions) -> Result<FlowRunner, StartError> {
        Ok(FlowRunner::again(self.world(Arc::new(Folder::of(Path::new("")))), run, from, options)?)
    }

    /// Removes what is kept of runs that ended longer ago than this, or are not among so many that ended last. Answers
    /// which. They are gone when the host is dropped; what they alone have pinned goes with [`Host::sweep`].
    pub fn collect(&self, age: Option<Duration>, keep: Option<u64>) -> Result<Vec<RunId>, StartError> {
        let tenant = Tenant::local();
        let Some(lists) = self.runs() else { return Ok(Vec::new()) };
        let before = age.map(|age| self.now().saturating_sub(age.as_millis() as u64));
        let runs = lists.removable(&tenant, before, keep).map_err(OpenError::Store)?;
        for run in &runs {
            self.0.store.iter().for_each(|store| store.forget(&tenant, run));
            self.0.shared.iter().for_each(|store| store.forget(&tenant, run));
        }
        Ok(runs)
    }

    /// Removes the blobs that nothing in the store names any more: large values, and what runs have pinned. Waits until
    /// that is done, and all that [`Host::collect`] has removed before.
    pub fn sweep(&self) -> Result<Swept, StartError> {
        let swept = match (&self.0.store, &self.0.shared) {
            (Some(store), _) => store.sweep(&Tenant::local()).map_err(OpenError::Store)?,
            (_, Some(store)) => store.sweep(&Tenant::local()).map_err(OpenError::Store)?,
            _ => return Ok(Swept::default()),
        };
        // A pack that no run had pinned may be gone.
        let mut packs = self.0.packs.lock().unwrap_or_else(PoisonError::into_inner);
        packs.values_mut().for_each(|pack| pack.kept = false);
        Ok(swept)
    }

    /// Writes all that a store has of a run, and of the runs below it, as one JSON document.
    pub fn export(&self, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
        let library = Library::new(self.clone(), Arc::new(Folder::of(Path::new(""))));
        export(reader, &library, &Tenant::local(), run, out)
    }

    /// Visits the events of a run that the store has, from a number on, until the visitor has enough.
    pub fn each_event(
        &self,
        run: &RunId,
        from: u64,
        mut visit: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), StartError> {
        let tenant = Tenant::local();
        let record = self.0.journal.find(&tenant, run).map_err(OpenError::Store)?;
        let record = record.ok_or_else(|| OpenError::Unknown(run.clone()))?;
        let graph = self.pinned(&record.pin).map_err(OpenError::Pin)?;
        let mut projector = Projector::new(tenant.clone(), run.clone(), graph);
        let mut at = 0;
        loop {
            let page = self.0.journal.read(&tenant, run, at, READ_UNITS).map_err(OpenError::Store)?;
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

    /// The store, if this process owns one: how often it has committed, and what is durable in it.
    pub fn store(&self) -> Option<&SqliteStore> {
        self.0.store.as_deref()
    }

    /// Its share of a store, if this process is one of several.
    pub fn shared(&self) -> Option<&ServerStore> {
        self.0.shared.as_deref()
    }

    /// What the store tells of its runs, if there is one that lasts.
    pub fn runs(&self) -> Option<&dyn Runs> {
        let embedded = self.store().map(|store| store.reader() as &dyn Runs);
        embedded.or(self.shared().map(|store| store as &dyn Runs))
    }

    /// Takes in what other processes ask of the runs of a shared store, for as long as what is returned is kept.
    pub fn serve(&self) -> Result<Arc<World>, StartError> {
        let world = self.world(Arc::new(Folder::of(Path::new(""))));
        if let Some(store) = self.shared() {
            store.serve(&world).map_err(OpenError::Store)?;
        }
        Ok(world)
    }

    /// Milliseconds since 1970, as the host's timers see it.
    pub fn now(&self) -> u64 {
        self.0.timers.now()
    }

    fn world(&self, folder: Arc<Folder>) -> Arc<World> {
        let Shared { engine, journal, timers, leases, state, cache, blobs, hubs, .. } = &*self.0;
        let capabilities = Arc::new(self.capabilities(&folder));
        Arc::new(World {
            runner: Arc::new(engine.clone()),
            flows: Arc::new(Library::new(self.clone(), folder)),
            journal: journal.clone(),
            timers: timers.clone(),
            leases: leases.clone(),
            state: state.clone(),
            cache: cache.clone(),
            blobs: blobs.clone(),
            capabilities,
            hubs: hubs.clone(),
        })
    }

    /// Everything that leaves the host, for the flows of a folder.
    fn capabilities(&self, folder: &Arc<Folder>) -> HashMap<Arc<str>, Arc<dyn Capability>> {
        let mut capabilities = HashMap::clone(&self.0.capabilities);
        let own = || -> Arc<dyn Capability> { Arc::new(Tools { host: self.clone(), folder: folder.clone() }) };
        capabilities.entry(tools::INTERFACE.into()).or_insert_with(own);
        capabilities
    }

    /// A webhook at this URL, behind the host's guard.
    pub fn webhook(&self, url: &str, key: Option<SigningKey>) -> Result<Webhook, Failure> {
        Webhook::new(Client::new(self.0.egress.clone()), url, key)
    }

    /// The hubs of the runs that this host drives.
    pub fn hubs(&self) -> &Hubs {
        &self.0.hubs
    }

    pub(crate) fn load_in(&self, source: &Source, folder: Arc<Folder>) -> Result<LoadedFlow, LoadError> {
        accept(self.check_in(source, folder))
    }

    pub(crate) fn check_in(&self, source: &Source, folder: Arc<Folder>) -> CheckedFlow {
        let (catalog, mut diagnostics) = self.catalog_for(source, &folder);
        let sound = diagnostics.is_empty();
        let reading = Reading::of(&folder);
        let checked = flowcell_flow::load(source, &catalog, &reading);
        let graph = checked.graph.filter(|_| sound);
        diagnostics.extend(checked.diagnostics);
        diagnostics.sort_by_key(|finding| (finding.place.line, finding.place.column));
        let flow = graph.map(|graph| {
            let content = Arc::new(reading.content(source, &graph));
            LoadedFlow { graph: Arc::new(graph), folder: folder.clone(), content }
        });
        CheckedFlow { flow, diagnostics }
    }

    /// The catalog with the packs that a flow names, and what is wrong with these.
    fn catalog_for(&self, source: &Source, folder: &Folder) -> (Arc<Catalog>, Vec<Diagnostic>) {
        let named = flowcell_flow::packs(source);
        if named.is_empty() {
            return (self.0.catalog.clone(), Vec::new());
        }
        let mut catalog = Catalog::clone(&self.0.catalog);
        let mut findings = Vec::new();
        for PackRef { path, place } in named {
            match add_file(&self.0.engine, &mut catalog, &folder.join(&path)) {
                Ok((digest, bytes)) => self.remember(digest, bytes),
                Err(error) => findings.push(error.at(source, place)),
            }
        }
        (Arc::new(catalog), findings)
    }
}

impl Host {
    fn remember(&self, digest: Digest, bytes: Arc<[u8]>) {
        let mut packs = self.0.packs.lock().unwrap_or_else(PoisonError::into_inner);
        packs.entry(digest).or_insert(KnownPack { bytes, kept: false });
    }
}

fn read_providers(file: &Path) -> Result<Providers, Error> {
    let text = fs::read_to_string(file).map_err(|source| Error::Read { path: file.to_owned(), source })?;
    let providers = Providers::parse(&text, file.parent().unwrap_or(Path::new(".")));
    providers.map_err(|failure| Error::Services(format!("{}: {}", file.display(), failure.message)))
}

fn accept(checked: CheckedFlow) -> Result<LoadedFlow, LoadError> {
    checked.flow.ok_or(LoadError::Invalid(checked.diagnostics))
}

fn add_file(engine: &Engine, catalog: &mut Catalog, file: &Path) -> Result<(Digest, Arc<[u8]>), Error> {
    let bytes: Arc<[u8]> = fs::read(file).map_err(|source| Error::Read { path: file.to_owned(), source })?.into();
    let origin = file.display().to_string();
    let pack = engine.add_pack(bytes.to_vec(), &origin)?;
    let digest = pack.digest.clone();
    register(catalog, pack, &origin)?;
    Ok((digest, bytes))
}

fn register(catalog: &mut Catalog, pack: Pack, origin: &str) -> Result<(), Error> {
    let version = pack.manifest.version.clone();
    match catalog.add(pack.manifest, &pack.digest).first() {
        None => Ok(()),
        Some(taken) => Err(Error::Taken { origin: origin.to_owned(), node_type: format!("{taken}@{version}") }),
    }
}

/// The packs of a folder in the order of their names, or the one file.
fn pack_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(read)?;
    let mut files =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(read)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    files.sort();
    Ok(files)
}

/// `$FLOWCELL_CACHE`, or `flowcell` in the platform's folder for what may be deleted.
fn user_cache_dir() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || folder("HOME");
    let platform = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| home().map(|home| home.join(".cache")))
    };
    folder("FLOWCELL_CACHE").or_else(|| platform.map(|platform| platform.join("flowcell")))
}
