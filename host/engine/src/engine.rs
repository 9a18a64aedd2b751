//! The engine: its packs, its threads and its configuration.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use flowcell_contract::{Digest, Failure, GrantedLimits, NodeLimits, Tenant, code};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    Config, Pack, PackError,
    append_only_map::AppendOnlyMap,
    cache::Cache,
    code::{CompileContext, Libraries, LoadedPack},
    compiler::MAX_COMPILERS,
    end_runtime,
    fair_scheduler::FairScheduler,
    fair_semaphore::FairSemaphore,
    granted::Granted,
    link::Linkers,
    machine::{self, USUAL_FRAMES},
    pack::{self, Author, Bytes},
    profile::MAX_FRAMES,
    ticker::Ticker,
};

/// The number of concurrent long schema checks. The tenants share them fairly.
const MAX_LONG_CHECKS: u64 = 8;

/// Loads packs and runs attempts. A clone is another handle to the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) packs: AppendOnlyMap<LoadedPack>,
    pub(crate) compile_context: CompileContext,
    /// The slots of the instance pool.
    pub(crate) slots: FairSemaphore,
    /// The bytes of linear memory beyond the part that each slot includes.
    pub(crate) memory: FairSemaphore,
    /// The permits for attempts with more than the usual memory.
    pub(crate) large: FairSemaphore,
    /// The largest limits of node types.
    pub(crate) granted: Granted,
    /// The permits for long schema checks.
    pub(crate) checks: FairSemaphore,
    /// The permits for compiler processes.
    pub(crate) compilers: FairSemaphore,
    /// The scheduler of the tenants' computing time.
    pub(crate) scheduler: FairScheduler,
    /// The number of unfinished attempts.
    pub(crate) attempts: AtomicUsize,
    pub(crate) ticker: Ticker,
    runtime: OwnRuntime,
}

/// The runtime of the guest threads. It is separate, so a guest that spins does not delay the host's timers.
struct OwnRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // One of the runtime's own threads may drop the last handle. It must not wait for itself.
        if let Some(runtime) = mem::take(&mut self.runtime) {
            end_runtime(runtime);
        }
    }
}

impl Engine {
    /// Creates an engine. If the cache cannot be opened, the engine logs a warning and works without it.
    pub fn new(config: Config) -> anyhow::Result<Engine> {
        let frames = if config.profiles { MAX_FRAMES } else { USUAL_FRAMES };
        let granted = Granted::new(config.granted, &config.limits);
        let largest = usize::try_from(granted.memory_bytes()).unwrap_or(usize::MAX);
        let machine = machine::build(&config.limits, config.instances, config.memory, largest, frames)?;
        let cache = config.cache_dir.as_deref().and_then(|dir| {
            let opened = Cache::open(dir);
            opened
                .inspect_err(|error| {
                    tracing::warn!("cannot open the cache of compiled code in {}: {error}", dir.display())
                })
                .ok()
        });
        let threads = config.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.unwrap_or(1).max(1))
            .thread_name("flowcell-guest")
            .event_interval(1)
            .enable_time()
            .build()?;
        Ok(Engine(Arc::new(Inner {
            packs: AppendOnlyMap::new(),
            slots: FairSemaphore::new(u64::from(machine.slots)),
            memory: FairSemaphore::new(machine.memory),
            large: FairSemaphore::new(u64::from(config.granted.large_attempts.max(1))),
            granted,
            checks: FairSemaphore::new(MAX_LONG_CHECKS),
            compilers: FairSemaphore::new(MAX_COMPILERS),
            scheduler: FairScheduler::new(runtime.handle().clone()),
            attempts: AtomicUsize::new(0),
            ticker: Ticker::new(&machine.engine),
            runtime: OwnRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) },
            compile_context: CompileContext {
                linkers: Linkers::new(&machine.engine),
                engine: machine.engine,
                cache,
                compiler: config.compiler,
                limits: config.limits,
                slots: machine.slots,
                libraries: Libraries::default(),
            },
        })))
    }

    /// Adds a pack: reads its manifest and validates the component. It does not compile the pack yet.
    pub fn add_pack(&self, bytes: impl Into<Bytes>, origin: &str) -> Result<Pack, PackError> {
        let bytes = bytes.into();
        let digest = pack::digest(&bytes);
        self.add(bytes, digest, origin, Author::External)
    }

    /// Adds a pack that is part of this program. Only such packs may use the reserved prefixes. The caller gives the
    /// digest, which was computed when the program was built.
    pub fn add_built_in(&self, bytes: impl Into<Bytes>, digest: Digest, origin: &str) -> Result<Pack, PackError> {
        self.add(bytes.into(), digest, origin, Author::Flowcell)
    }

    fn add(&self, bytes: Bytes, digest: Digest, origin: &str, author: Author) -> Result<Pack, PackError> {
        let properties = self.0.compile_context.properties(&bytes, &digest, author);
        let properties = properties.and_then(|mut properties| properties.admit(&digest, author).map(|()| properties));
        let properties = properties.map_err(|kind| PackError { origin: origin.into(), kind })?;
        if self.0.packs.get(&digest).is_none() {
            let node_types = pack::node_types(&properties.manifest, &self.0.compile_context.limits);
            let loaded = LoadedPack::new(digest.clone(), node_types, properties.core_instances, bytes, author);
            self.0.packs.insert(&digest, loaded);
        }
        Ok(Pack { manifest: properties.manifest, digest })
    }

    /// Compiles a pack now, or loads its code from the cache, so that no attempt waits for the code. Blocks the thread
    /// until done. It does not count against the limit of compiler processes.
    pub fn prepare(&self, digest: &Digest) -> Result<(), Failure> {
        let pack = self.0.packs.get(digest);
        let pack = pack.ok_or_else(|| Failure::new(code::BAD_PACK, format!("the pack {digest} is not loaded")))?;
        pack.node_types
            .values()
            .try_for_each(|node_type| self.0.compile_context.link(pack, node_type.capabilities).map(|_| ()))
    }

    /// Returns the README of a loaded pack. Returns `None` if the pack has none, or once its code has been made, because the
    /// engine then no longer has the component.
    pub fn pack_readme(&self, digest: &Digest) -> Option<String> {
        self.0.packs.get(digest)?.readme()
    }

    /// Returns the size of a loaded pack's component file in bytes. Returns `None` if the engine does not have the pack.
    pub fn pack_size(&self, digest: &Digest) -> Option<usize> {
        self.0.packs.get(digest).map(|pack| pack.size)
    }

    /// Sets a tenant's limits on concurrent instances and on bytes of memory beyond the first 4 MiB of each instance.
    /// `None` removes a limit, so that only the fair share applies. The limit on memory also holds for the sum of the
    /// attempts with more than the usual memory, each counted with the largest memory that the operator grants.
    pub fn set_bounds(&self, tenant: &Tenant, instances: Option<u64>, memory: Option<u64>) {
        self.0.slots.set_bound(tenant, instances);
        self.0.memory.set_bound(tenant, memory);
        self.0.large.set_bound(tenant, memory.map(|bytes| (bytes / self.0.granted.memory_bytes()).max(1)));
    }

    /// Sets the largest limits that node types get in the attempts of a tenant.
    pub fn set_largest_limits(&self, tenant: &Tenant, most: NodeLimits) {
        self.0.granted.set(tenant, most);
    }

    /// Returns the largest limits that node types get in this process.
    pub fn granted_limits(&self) -> GrantedLimits {
        self.0.granted.process()
    }

    /// Adds time that the host has computed for a tenant to the computing time of that tenant. The scheduler compares
    /// these times.
    pub fn charge(&self, tenant: &Tenant, time: Duration) {
        self.0.scheduler.charge(tenant, time);
    }

    /// Returns the computing time of each tenant since this method was last called.
    pub fn take_computing_times(&self) -> HashMap<Tenant, Duration> {
        self.0.scheduler.take_computing_times()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Inner {
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime.handle
    }
}
