//! The engine: its packs, its threads, and how it is set up.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use flowcell_contract::{Digest, Failure, Tenant, code};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    Config, Pack, PackError,
    cache::Cache,
    code::{Loaded, Workshop},
    compiler::Compilers,
    link::Linkers,
    machine,
    pack::{self, Author, Bytes},
    room::Room,
    shelf::Shelf,
    ticker::Ticker,
    turns::Turns,
};

/// Long checks against schemas at a time, of which no tenant takes more than it leaves to others.
const CHECKS: u64 = 8;

/// Runs packs. Cloning it gives another handle to the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) packs: Shelf<Loaded>,
    pub(crate) workshop: Workshop,
    /// Instances.
    pub(crate) slots: Room,
    /// Bytes of linear memory.
    pub(crate) memory: Room,
    /// Checks against schemas that take long.
    pub(crate) checks: Room,
    /// Who computes next.
    pub(crate) turns: Turns,
    /// Attempts that are not over.
    pub(crate) attempts: AtomicUsize,
    pub(crate) ticker: Ticker,
    runtime: OwnRuntime,
}

/// Guests have a runtime of their own, so that one that spins delays nobody else's timers.
struct OwnRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // The last handle may be let go by one of the runtime's own threads, which must not wait for itself.
        if let Some(runtime) = mem::take(&mut self.runtime) {
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    /// Sets an engine up. A cache that cannot be opened is done without.
    pub fn new(config: Config) -> anyhow::Result<Engine> {
        let machine = machine::build(&config.limits, config.instances, config.memory)?;
        let cache = config.cache_dir.as_deref().and_then(|dir| {
            let opened = Cache::open(dir);
            opened.inspect_err(|error| tracing::warn!("no cache of compiled code in {}: {error}", dir.display())).ok()
        });
        let threads = config.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.unwrap_or(1).max(1))
            .thread_name("flowcell-guest")
            .event_interval(1)
            .enable_time()
            .build()?;
        Ok(Engine(Arc::new(Inner {
            packs: Shelf::new(),
            slots: Room::new(u64::from(machine.slots)),
            memory: Room::new(machine.memory),
            checks: Room::new(CHECKS),
            turns: Turns::new(runtime.handle().clone()),
            attempts: AtomicUsize::new(0),
            ticker: Ticker::new(&machine.engine),
            runtime: OwnRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) },
            workshop: Workshop {
                linkers: Linkers::new(&machine.engine),
                engine: machine.engine,
                cache,
                compilers: config.compiler.map(Compilers::new),
                limits: config.limits,
                slots: machine.slots,
            },
        })))
    }

    /// Takes a pack in: reads its manifest, checks and validates it. Nothing is compiled yet.
    pub fn add_pack(&self, bytes: impl Into<Bytes>, origin: &str) -> Result<Pack, PackError> {
        let bytes = bytes.into();
        let digest = pack::digest(&bytes);
        self.add(bytes, digest, origin, Author::Stranger)
    }

    /// Takes in a pack that came with this program. Only such packs may use the reserved prefixes. The digest was computed
    /// when the program was built.
    pub fn add_built_in(&self, bytes: impl Into<Bytes>, digest: Digest, origin: &str) -> Result<Pack, PackError> {
        self.add(bytes.into(), digest, origin, Author::Flowcell)
    }

    fn add(&self, bytes: Bytes, digest: Digest, origin: &str, author: Author) -> Result<Pack, PackError> {
        let facts = self.0.workshop.facts(&bytes, &digest, author);
        let facts = facts.and_then(|mut facts| facts.admit(&digest, author).map(|()| facts));
        let facts = facts.map_err(|refusal| PackError { origin: origin.into(), refusal })?;
        if self.0.packs.get(&digest).is_none() {
            let offers = pack::offers(&facts.manifest);
            let loaded = Loaded::new(digest.clone(), offers, facts.core_instances, bytes, author);
            self.0.packs.insert(&digest, loaded);
        }
        Ok(Pack { manifest: facts.manifest, digest })
    }

    /// Compiles a pack now, or loads its code from the cache, so that no attempt waits for it. Blocks meanwhile.
    pub fn prepare(&self, digest: &Digest) -> Result<(), Failure> {
        let pack = self.0.packs.get(digest);
        let pack = pack.ok_or_else(|| Failure::new(code::BAD_PACK, format!("the pack {digest} is not loaded")))?;
        pack.offers.values().try_for_each(|offer| self.0.workshop.link(pack, offer.capabilities).map(|_| ()))
    }

    /// Lets a tenant have no more instances, and bytes of memory beyond the first 4 MiB of each, at a time than this; without a
    /// number as much as is fair.
    pub fn bound(&self, tenant: &Tenant, instances: Option<u64>, memory: Option<u64>) {
        self.0.slots.bound(tenant, instances);
        self.0.memory.bound(tenant, memory);
    }

    /// Adds time that the host has computed for a tenant.
    pub fn charge(&self, tenant: &Tenant, time: Duration) {
        self.0.turns.charge(tenant, time);
    }

    /// How long each tenant's attempts have computed since this was asked last.
    pub fn take_computed(&self) -> HashMap<Tenant, Duration> {
        self.0.turns.take_computed()
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
