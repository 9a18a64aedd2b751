//! Builds a host.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{Blobs, Capability, Failure, GrantedLimits, MAX_FILE_BYTES, Tenant};
use flowcell_engine::{Compiler, Config, Engine, FairSemaphore, Limits};
use flowcell_runtime::{
    LiveRuns,
    limits::SERVER_START_MS,
    memory::SystemTimers,
    ports::{Journal, StoreError, StoreErrorKind, Timers},
    sqlite::Reader,
};
use flowcell_services::{
    client::Client,
    egress::{AddressRange, Egress, EgressPolicy},
    files::{self, FilesCapability},
    http::{self, HttpCapability},
    mcp::{McpTools, Servers},
    model::{self, ModelCapability, Providers},
    secrets::{OperatorSecrets, Secrets},
};
use parking_lot::Mutex;

use super::{
    Host, Shared,
    checked::CheckedFlows,
    known_pack::KnownPack,
    node_types::NodeTypes,
    pack_sources::{OperatorFile, PackSources},
    stores::{FilesPlace, ServerPlace, StorePlace, Stores},
    watched::Watched,
};
use crate::{
    cache,
    host::{
        blocking::{MAX_COSTLY_EXPRESSIONS, MAX_INPUT_CHECKS, MAX_WAITING_EXPRESSIONS},
        error::Error,
        folder::Folder,
        home::Home,
    },
    observe::{
        metrics::Metrics,
        observed::{Observer, Observers, log::Log},
        telemetry::Telemetry,
    },
    operate::{
        usage::{
            Usage,
            counted::{CountedBlobs, CountedJournal, CountedModels},
        },
        vault::{KeyPlace, KeySource, Vault},
    },
    packs::{PackStore, pushed::PushedPacks},
    posted::cache::PostedCache,
    world::{resolver::SharedResolver, services::Settings, simulate::Simulate},
};

/// Builds a [`Host`]. Defaults: the built-in catalog, no other packs, compiled code in the user's cache folder, the
/// engine's limits.
#[derive(Default)]
pub struct HostBuilder {
    packs: PackSources,
    cache: CacheDir,
    limits: Limits,
    compiler: Option<Compiler>,
    instances: Option<u32>,
    granted: GrantedLimits,
    profiles: bool,
    place: StorePlace,
    files_place: FilesPlace,
    egress: EgressPolicy,
    capabilities: Vec<(Arc<str>, Arc<dyn Capability>)>,
    files: Option<PathBuf>,
    http_limits: http::Limits,
    providers: Option<Providers>,
    providers_file: Option<PathBuf>,
    mcp_file: Option<PathBuf>,
    services_file: Option<PathBuf>,
    simulate: Simulate,
    secrets_file: Option<PathBuf>,
    secret_keys: Vec<KeySource>,
    /// The folder of the store's own key, if checks of flows open secrets.
    key_folder: Option<PathBuf>,
    otlp: Option<String>,
}

#[derive(Default)]
enum CacheDir {
    #[default]
    OfTheUser,
    At(PathBuf),
    None,
}

impl HostBuilder {
    /// Adds one pack, or every `*.wasm` file of a folder.
    pub fn packs(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.packs.paths.push(path.into());
        self
    }

    /// Adds the packs that a `flowcell.lock` pins. They must already be in the pack store. Building a host makes no
    /// connection.
    pub fn lock(mut self, file: impl Into<PathBuf>) -> HostBuilder {
        self.packs.lock = Some(OperatorFile::required(file.into()));
        self
    }

    /// Adds the packs of a `flowcell.lock` as [`HostBuilder::lock`] does, if the file exists when packs are read. Once
    /// it was found, it must exist.
    pub fn optional_lock(mut self, file: impl Into<PathBuf>) -> HostBuilder {
        self.packs.lock = Some(OperatorFile::optional(file.into()));
        self
    }

    /// Reads the trusted signers of pinned packs from a YAML file: see [`Trust`]. By default packs need no signature,
    /// and every signer is trusted.
    pub fn trust_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.packs.trust = Some(OperatorFile::required(path.into()));
        self
    }

    /// Reads the trusted signers as [`HostBuilder::trust_file`] does, if the file exists when packs are read. Once it
    /// was found, it must exist.
    pub fn optional_trust_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.packs.trust = Some(OperatorFile::optional(path.into()));
        self
    }

    /// Sets the store of pinned packs. Default: the user's cache folder.
    pub fn pack_store(mut self, store: PackStore) -> HostBuilder {
        self.packs.store = Some(store);
        self
    }

    /// Sets the folder for compiled code.
    pub fn cache_dir(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.cache = CacheDir::At(path.into());
        self
    }

    /// Disables the cache of compiled code. Every process compiles the code that it uses.
    pub fn without_cache(mut self) -> HostBuilder {
        self.cache = CacheDir::None;
        self
    }

    /// Sets the resource limits of one attempt.
    pub fn limits(mut self, limits: Limits) -> HostBuilder {
        self.limits = limits;
        self
    }

    /// Compiles untrusted code in a separate process that runs `program`, which must be `flowcell`. The separate
    /// process may use the memory and time of [`Limits::compile_memory`] and [`Limits::compile_seconds`]. By default
    /// the process of the host compiles all code, which suits trusted packs.
    pub fn compiler(mut self, program: impl Into<PathBuf>) -> HostBuilder {
        // The allocator would reserve a GiB of the compiler's memory at once.
        let environment = vec![("MIMALLOC_ARENA_RESERVE".into(), "65536".into())];
        let (program, arguments) = (program.into(), vec!["compile".into()]);
        self.compiler = Some(Compiler { program, arguments, environment });
        self
    }

    /// Lets test runs with a [`Probe`](crate::Probe) take whole stacks of guests.
    pub fn profiles(mut self) -> HostBuilder {
        self.profiles = true;
        self
    }

    /// Sets the maximum number of concurrent attempts, including those that wait for a call. Further attempts queue.
    /// Default: as many as the machine can hold. A lower number makes the start faster.
    pub fn instances(mut self, count: u32) -> HostBuilder {
        self.instances = Some(count);
        self
    }

    /// Sets the largest limits that node types may ask for in their manifests, and the number of attempts with more than
    /// the usual memory. Default: the usual limits, so that nothing more is granted. The policy of a tenant may grant less.
    pub fn granted_limits(mut self, granted: GrantedLimits) -> HostBuilder {
        self.granted = granted;
        self
    }

    /// Stores runs, state and events in this folder, which this process then owns. By default they are in memory and
    /// are lost when the process ends.
    pub fn state_dir(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.place = StorePlace::Folder(path.into());
        self
    }

    /// Stores runs, state and events on this server, which other processes share. The URL starts with `mysql://` or
    /// `postgres://`. Needs the feature `shared-stores`; without it [`HostBuilder::build`] returns an error.
    pub fn server(mut self, url: impl Into<String>) -> HostBuilder {
        self.place = StorePlace::Server(ServerPlace { url: url.into(), start_patience: None, epoch_file: None });
        self
    }

    /// Lets [`HostBuilder::build`] wait 10 minutes for the server of a shared store that does not answer. The default
    /// is 10 s. Call it after [`HostBuilder::server`]; a store that is not on a server ignores it.
    pub fn wait_for_server(mut self) -> HostBuilder {
        if let StorePlace::Server(place) = &mut self.place {
            place.start_patience = Some(Duration::from_millis(SERVER_START_MS));
        }
        self
    }

    /// Keeps the epoch of a shared store in this file, so that the host recognises a database that was restored from an
    /// older copy while no process ran. Call it after [`HostBuilder::server`]; a store that is not on a server ignores
    /// it.
    pub fn epoch_file(mut self, file: impl Into<PathBuf>) -> HostBuilder {
        if let StorePlace::Server(place) = &mut self.place {
            place.epoch_file = Some(file.into());
        }
        self
    }

    /// Stores files of more than 1 MiB in the object store `s3://BUCKET/PREFIX`, with the credentials of the environment.
    /// Default: the object store that the store of runs has used before; with `is_exact`, such a store is refused.
    pub fn blobs(mut self, address: Option<&str>, is_exact: bool) -> HostBuilder {
        self.files_place = FilesPlace { address: address.map(str::to_owned), is_exact };
        self
    }

    /// Lets nodes reach these private addresses, if their flow grants it.
    pub fn allow_private(mut self, addresses: impl IntoIterator<Item = AddressRange>) -> HostBuilder {
        self.egress.allow_private.extend(addresses);
        self
    }

    /// Lets nodes read and write files in this existing folder, if their flow grants it. Default: no folder.
    pub fn files(mut self, folder: impl Into<PathBuf>) -> HostBuilder {
        self.files = Some(folder.into());
        self
    }

    /// Lets nodes send and receive files of this size in bytes over HTTP, at most 4 GiB. Default: 32 MiB.
    pub fn http_file_bytes(mut self, bytes: u64) -> HostBuilder {
        self.http_limits.file_body = bytes.min(MAX_FILE_BYTES);
        self
    }

    /// Lets stand-ins answer the calls that `simulate` covers, so that these calls do not leave the host.
    pub fn simulate(mut self, simulate: Simulate) -> HostBuilder {
        self.simulate = simulate;
        self
    }

    /// Sets the models that nodes may reach, if their flow grants it. Default: [`Providers::built_in`].
    pub fn providers(mut self, providers: Providers) -> HostBuilder {
        self.providers = Some(providers);
        self
    }

    /// Reads the models that nodes may reach from a YAML file, unless [`Self::providers`] sets them.
    pub fn providers_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.providers_file = Some(path.into());
        self
    }

    /// Reads the MCP servers that agents may use from a YAML file: see [`Servers`].
    pub fn mcp_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.mcp_file = Some(path.into());
        self
    }

    /// Reads the sources of secrets that nodes may send, if their flow grants it, from a YAML file: see
    /// [`OperatorSecrets`].
    pub fn secrets_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.secrets_file = Some(path.into());
        self
    }

    /// Sets the keys of the vault. The first key encrypts, and all keys decrypt. Without keys, a store in a folder
    /// creates its own key there with the first secret. A shared store then accepts no secrets.
    pub fn secret_keys(mut self, keys: impl IntoIterator<Item = KeySource>) -> HostBuilder {
        self.secret_keys.extend(keys);
        self
    }

    /// Makes checks of flows open the secrets that the flows name. A secret that cannot be opened is a warning. Without
    /// [other keys](HostBuilder::secret_keys), the key is the one in this folder of a store.
    pub fn opens_secrets(mut self, folder: impl Into<PathBuf>) -> HostBuilder {
        self.key_folder = Some(folder.into());
        self
    }

    /// Reads the services that flows may use, if they grant them, from a YAML file. Default: `agent`, which asks the
    /// default model.
    pub fn services_file(mut self, path: impl Into<PathBuf>) -> HostBuilder {
        self.services_file = Some(path.into());
        self
    }

    /// Sends the events of [watched](Host::watch) runs to the collector at this OTLP address, such as
    /// `http://127.0.0.1:4318`. It may be a private address.
    pub fn otlp(mut self, url: &str) -> HostBuilder {
        self.otlp = Some(url.to_owned());
        self
    }

    /// Replaces a capability that leaves the host, such as `http`.
    pub fn capability(mut self, name: &str, capability: Arc<dyn Capability>) -> HostBuilder {
        self.capabilities.push((name.into(), capability));
        self
    }

    /// Opens the runs of a store for reading only. Another process may own the store.
    pub fn reads(mut self, reader: Arc<Reader>) -> HostBuilder {
        self.place = StorePlace::Beside(reader);
        self
    }

    /// Starts the engine and reads the manifests. Code is compiled on its first use.
    pub fn build(mut self) -> Result<Host, Error> {
        let engine = self.start_engine()?;
        let (node_types, packs) = NodeTypes::open(engine.clone(), std::mem::take(&mut self.packs))?;
        let keys = std::mem::take(&mut self.secret_keys);
        let key_folder = self.key_folder.take();
        let opens_for_checks = key_folder.is_some();
        let key_place = match key_folder {
            _ if !keys.is_empty() => KeyPlace::Given(keys),
            Some(folder) => KeyPlace::Beside(folder),
            None => self.place.key_place(),
        };
        let looks_again = matches!(&self.place, StorePlace::Server(place) if place.start_patience.is_some());
        let of_files = self.files_place.choose(&self.place)?;
        let Stores { journal, state, blobs, leases, cache, sessions, documents, inbox, sweep, erase, store, shared } =
            Stores::open(std::mem::take(&mut self.place), of_files)?;
        let timers: Arc<dyn Timers> = Arc::new(SystemTimers::default());
        let (files, metrics) = (self.files.clone(), Metrics::default());
        let live = Arc::<LiveRuns>::default();
        let resolver = Arc::new(SharedResolver::default());
        let egress = Egress::new(std::mem::take(&mut self.egress)).map_err(invalid_setting)?.with_resolver(resolver);
        // The collector has no circuit breaker, because no flow asks for its address.
        let (telemetry, observers) = self.observers(&egress, &metrics)?;
        let egress = egress.with_outbound(metrics.watch_outbound());
        let (in_store, time) = (documents.clone(), timers.clone());
        let usage = Usage::new(engine.clone(), live.clone(), egress.clone(), in_store, time, metrics.clone());
        let journal: Arc<dyn Journal> = Arc::new(CountedJournal { journal, usage: usage.clone() });
        let blobs: Arc<dyn Blobs> = Arc::new(CountedBlobs { blobs, usage: usage.clone() });
        let vault = Arc::new(Vault::new(documents.clone(), timers.clone(), key_place, opens_for_checks));
        let simulate = Arc::new(std::mem::take(&mut self.simulate));
        let ExternalCapabilities { capabilities, mcp, secrets, simulated_model, services, services_home } =
            self.external_capabilities(&egress, &blobs, &usage, &vault)?;
        services.check_simulated(&simulate).map_err(Error::Services)?;
        if let Some(store) = &shared {
            let (documents, blobs, sweep) = (documents.clone(), blobs.clone(), sweep.clone());
            node_types.share(PushedPacks { documents, blobs, sweep, store: store.clone() });
        }
        let posted = shared.is_some().then(|| Arc::new(PostedCache::new(documents.clone())));
        let shared = Arc::new(Shared {
            engine,
            node_types,
            journal,
            timers,
            leases,
            state,
            cache,
            blobs,
            sessions,
            documents,
            jobs: Default::default(),
            inbox,
            sweep,
            erase,
            files,
            metrics,
            telemetry,
            observers,
            usage,
            capabilities: Arc::new(capabilities),
            mcp,
            simulated_model,
            services,
            services_home,
            hubs: Arc::default(),
            live,
            watched: Watched::default(),
            egress,
            secrets,
            vault,
            store,
            shared,
            relay: Default::default(),
            checked: CheckedFlows::default(),
            pinned: Default::default(),
            inputs: FairSemaphore::new(MAX_INPUT_CHECKS),
            expressions: FairSemaphore::new(MAX_COSTLY_EXPRESSIONS),
            waiting_expressions: FairSemaphore::new(MAX_WAITING_EXPRESSIONS),
            packs: Mutex::new(packs.into_iter().map(|(digest, bytes)| (digest, KnownPack::new(bytes))).collect()),
            posted,
        });
        let is_away = |error: &StoreError| matches!(error.kind(), StoreErrorKind::Outage | StoreErrorKind::Unavailable);
        let (tenant, policy) = (Tenant::local(), Arc::default());
        let host = Host { shared, tenant, policy, simulate, library: None, hides_flows: false };
        match host.look_for_packs() {
            // A process that waits for the server at its start lives long, and looks again. A command would find fewer
            // node types than the store has.
            Err(error) if !looks_again && is_away(&error) => return Err(Error::Unreachable(error.into())),
            Err(error) => tracing::warn!("cannot read the packs of the shared store; a later look reads them: {error}"),
            Ok(_) if !looks_again && host.shared.node_types.is_incomplete() => {
                let error = "it did not answer when its packs were read";
                return Err(Error::Unreachable(error.into()));
            }
            Ok(_) => {}
        }
        Ok(host)
    }

    fn start_engine(&mut self) -> Result<Engine, Error> {
        let cache_dir = match std::mem::take(&mut self.cache) {
            CacheDir::OfTheUser => cache::user_folder(),
            CacheDir::At(path) => Some(path),
            CacheDir::None => None,
        };
        let limits = std::mem::take(&mut self.limits);
        let (compiler, instances, profiles) = (self.compiler.take(), self.instances, self.profiles);
        let granted = self.granted;
        let config = Config { cache_dir, limits, compiler, instances, granted, profiles, ..Config::default() };
        Engine::new(config).map_err(|error| Error::Engine(error.into()))
    }

    /// Returns the observers of watched runs, with the operator's collector.
    fn observers(&self, egress: &Egress, metrics: &Metrics) -> Result<(Option<Telemetry>, Observers), Error> {
        let telemetry = self.otlp.as_deref().map(|url| Telemetry::new(url, egress)).transpose();
        let telemetry = telemetry.map_err(|error| Error::Telemetry(error.into()))?;
        let own: [Arc<dyn Observer>; 2] = [Arc::new(metrics.clone()), Arc::new(Log)];
        let traced = telemetry.clone().map(|telemetry| Arc::new(telemetry) as Arc<dyn Observer>);
        Ok((telemetry, own.into_iter().chain(traced).collect()))
    }

    /// Creates the capabilities that leave the host, from the operator's files.
    fn external_capabilities(
        self,
        egress: &Egress,
        blobs: &Arc<dyn Blobs>,
        usage: &Usage,
        vault: &Arc<Vault>,
    ) -> Result<ExternalCapabilities, Error> {
        let client = Client::new(egress.clone());
        let servers = self.mcp_file.as_deref().map(|file| read_beside(file, Servers::parse)).transpose()?;
        let mcp = McpTools::new(&client, blobs.clone(), &servers.unwrap_or_default());
        let secrets = self.secrets_file.as_deref().map(|file| read_beside(file, OperatorSecrets::parse)).transpose()?;
        let secrets =
            Secrets::from(secrets.unwrap_or_default()).with_store(vault.clone()).with_credentials(vault.clone());
        let providers = match (self.providers, &self.providers_file) {
            (Some(providers), _) => providers,
            (None, Some(file)) => read_beside(file, Providers::parse)?,
            (None, None) => Providers::built_in().map_err(invalid_setting)?,
        };
        let simulated = providers.simulated(Vec::new()).map_err(invalid_setting)?;
        let counted = |providers| -> Arc<dyn Capability> {
            let models = ModelCapability::new(&client, blobs.clone(), providers);
            Arc::new(CountedModels { models, usage: usage.clone() })
        };
        let (model, simulated_model) = (counted(providers), counted(simulated));
        let services_folder = self.services_file.as_deref().map_or_else(Folder::nowhere, Folder::of);
        let services_home = Arc::new(Home::new(Arc::new(services_folder)));
        let services = match &self.services_file {
            Some(file) => read_beside(file, |text, folder| Settings::parse(text, folder, &client, blobs))?,
            None => Settings::built_in(),
        };
        let http = HttpCapability::new(client, blobs.clone()).with_limits(self.http_limits);
        let http: Arc<dyn Capability> = Arc::new(http.with_secrets(secrets.clone()));
        let files: Arc<dyn Capability> = Arc::new(FilesCapability::new(self.files, blobs.clone()));
        let own = [(http::INTERFACE, http), (model::INTERFACE, model), (files::INTERFACE, files)];
        let own = own.map(|(name, capability)| (name.into(), capability));
        let capabilities = own.into_iter().chain(self.capabilities).collect();
        Ok(ExternalCapabilities { capabilities, mcp, secrets, simulated_model, services, services_home })
    }
}

/// The capabilities that leave the host, and the operator's settings for them.
struct ExternalCapabilities {
    capabilities: HashMap<Arc<str>, Arc<dyn Capability>>,
    mcp: McpTools,
    secrets: Secrets,
    simulated_model: Arc<dyn Capability>,
    services: Settings,
    services_home: Arc<Home>,
}

fn invalid_setting(failure: Failure) -> Error {
    Error::Services(failure.message)
}

/// Reads an operator's file. Paths in the file are relative to its folder.
fn read_beside<T>(file: &Path, parse: impl Fn(&str, &Path) -> Result<T, Failure>) -> Result<T, Error> {
    let text = fs::read_to_string(file).map_err(|source| Error::Read { path: file.to_owned(), source })?;
    let parsed = parse(&text, file.parent().unwrap_or(Path::new(".")));
    parsed.map_err(|failure| Error::Services(format!("{}: {}", file.display(), failure.message)))
}
