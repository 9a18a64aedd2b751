//! From a pack's bytes to linked machine code: compiled once, kept on disk, linked once for each set of capabilities.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
};

use flowcell_contract::{Digest, Failure, code};
use parking_lot::Mutex;
use wasmtime::component::Component;

use crate::{
    Limits,
    bindings::EverythingPre,
    cache::Cache,
    compiler::{Compilers, Uncompiled},
    link::{Capabilities, Linkers},
    machine::{CORE_INSTANCES_PER_SLOT, TABLES_PER_SLOT},
    pack::{self, Author, Bytes, Facts, Offer, Refusal},
    sandbox::Sandbox,
    trap,
};

/// A pack that can be run.
pub(crate) struct Loaded {
    pub(crate) digest: Digest,
    pub(crate) offers: HashMap<Arc<str>, Arc<Offer>>,
    core_instances: u32,
    author: Author,
    /// Let go once the code is there.
    bytes: Mutex<Option<Bytes>>,
    /// Whoever makes code holds it; others wait.
    making: Mutex<()>,
    component: OnceLock<Component>,
    linked: [OnceLock<Result<Linked, Failure>>; Capabilities::SETS],
}

/// Code with its imports resolved.
pub(crate) struct Linked {
    pub(crate) instance: EverythingPre<Sandbox>,
    /// How many slots one instance takes.
    pub(crate) slots: u32,
}

impl Loaded {
    pub(crate) fn new(
        digest: Digest,
        offers: HashMap<Arc<str>, Arc<Offer>>,
        core_instances: usize,
        bytes: Bytes,
        author: Author,
    ) -> Loaded {
        Loaded {
            digest,
            offers,
            core_instances: u32::try_from(core_instances).unwrap_or(u32::MAX),
            author,
            bytes: Mutex::new(Some(bytes)),
            making: Mutex::new(()),
            component: OnceLock::new(),
            linked: [const { OnceLock::new() }; Capabilities::SETS],
        }
    }

    /// The linked code, if it has been made.
    pub(crate) fn linked(&self, set: Capabilities) -> Option<&Result<Linked, Failure>> {
        self.linked[set.number()].get()
    }

    /// Whether an attempt would have to wait for code.
    pub(crate) fn is_cold(&self) -> bool {
        self.offers.values().any(|offer| self.linked(offer.capabilities).is_none())
    }

    fn bad(&self, error: impl std::fmt::Display) -> Failure {
        Failure::new(code::BAD_PACK, format!("the pack {} cannot be used: {error:#}", self.digest))
    }

    /// What an error of making code means: the machine was short of something, or the pack is bad.
    fn unusable(&self, error: &wasmtime::Error) -> Failure {
        trap::from_shortage(error).unwrap_or_else(|| self.bad(error))
    }
}

/// Makes code.
pub(crate) struct Workshop {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linkers: Linkers,
    pub(crate) cache: Option<Cache>,
    /// Without it this process compiles everything.
    pub(crate) compilers: Option<Compilers>,
    pub(crate) limits: Limits,
    pub(crate) slots: u32,
}

impl Workshop {
    /// What is known of a component. What a stranger made is validated, once.
    pub(crate) fn facts(&self, bytes: &[u8], digest: &Digest, author: Author) -> Result<Facts, Refusal> {
        let name = match author {
            Author::Flowcell => format!("{}-{}.facts", digest.0, env!("CARGO_PKG_VERSION")),
            Author::Stranger => format!("{}-{}.validated.facts", digest.0, env!("CARGO_PKG_VERSION")),
        };
        let known = self.cache.as_ref().and_then(|cache| Facts::from_json(&cache.get(&name)?));
        if let Some(facts) = known {
            return Ok(facts);
        }
        let facts = Facts::read(bytes, &self.limits)?;
        if author == Author::Stranger {
            pack::validate(bytes)?;
        }
        self.keep(&name, || Ok(facts.to_json()));
        Ok(facts)
    }

    /// Keeps an entry for the next start, if there is a place to keep it.
    fn keep(&self, name: &str, payload: impl FnOnce() -> wasmtime::Result<Vec<u8>>) {
        let Some(cache) = &self.cache else { return };
        let kept = payload().map_err(|error| error.to_string());
        let kept = kept.and_then(|payload| cache.put(name, &payload).map_err(|error| error.to_string()));
        if let Err(error) = kept {
            tracing::debug!("{name} is not kept: {error}");
        }
    }

    /// The linked code of a pack for a set of capabilities. Blocks while it is made; whoever wants the same waits.
    pub(crate) fn link<'a>(&self, pack: &'a Loaded, set: Capabilities) -> Result<&'a Linked, Failure> {
        if let Some(linked) = pack.linked(set) {
            return linked.as_ref().map_err(Failure::clone);
        }
        let _making = pack.making.lock();
        let linked = match pack.linked(set) {
            Some(linked) => linked,
            None => match self.link_now(pack, set) {
                // What the machine is short of now it may have later.
                Err(failure) if failure.retryable => return Err(failure),
                made => pack.linked[set.number()].get_or_init(|| made),
            },
        };
        linked.as_ref().map_err(Failure::clone)
    }

    fn link_now(&self, pack: &Loaded, set: Capabilities) -> Result<Linked, Failure> {
        let component = self.component(pack)?;
        let slots = self.check_size(pack, component)?;
        let linker = self.linkers.get(set).map_err(|error| pack.unusable(&error))?;
        let instance = linker.instantiate_pre(component).and_then(EverythingPre::new);
        Ok(Linked { instance: instance.map_err(|error| pack.unusable(&error))?, slots })
    }

    fn component<'a>(&self, pack: &'a Loaded) -> Result<&'a Component, Failure> {
        if let Some(component) = pack.component.get() {
            return Ok(component);
        }
        let name = self.entry_name(&pack.digest);
        let made = self.load(&name).map_or_else(|| self.compile(pack, &name), Ok)?;
        pack.bytes.lock().take();
        Ok(pack.component.get_or_init(|| made))
    }

    /// An entry serves one component, one version of the engine and one configuration.
    fn entry_name(&self, digest: &Digest) -> String {
        let mut hasher = DefaultHasher::new();
        self.engine.precompile_compatibility_hash().hash(&mut hasher);
        format!("{}-{:016x}.code", digest.0, hasher.finish())
    }

    fn load(&self, name: &str) -> Option<Component> {
        let code = self.cache.as_ref()?.get(name)?;
        // SAFETY: the bytes are what `Component::serialize` gave, for `get` has just checked, over these very bytes in
        // memory, a keyed hash that only this user's engines can make.
        #[allow(unsafe_code, reason = "machine code is trusted by its keyed hash")]
        let component = unsafe { Component::deserialize(&self.engine, &code) };
        component.inspect_err(|error| tracing::warn!("cached code cannot be loaded: {error:#}")).ok()
    }

    fn compile(&self, pack: &Loaded, name: &str) -> Result<Component, Failure> {
        let bytes = pack.bytes.lock().clone();
        let bytes = bytes.ok_or_else(|| pack.bad("its bytes are gone"))?;
        if let Some(compilers) = self.compilers.as_ref().filter(|_| pack.author == Author::Stranger) {
            return self.compile_elsewhere(compilers, pack, &bytes, name);
        }
        let component = Component::from_binary(&self.engine, &bytes).map_err(|error| pack.unusable(&error))?;
        self.keep(name, || component.serialize());
        Ok(component)
    }

    fn compile_elsewhere(
        &self,
        compilers: &Compilers,
        pack: &Loaded,
        bytes: &[u8],
        name: &str,
    ) -> Result<Component, Failure> {
        let code = compilers.compile(bytes, &self.limits).map_err(|why| match why {
            Uncompiled::Shortage(why) => Failure::retryable(code::HOST_SHORTAGE, why),
            Uncompiled::Refused(why) => pack.bad(why),
        })?;
        // SAFETY: the bytes are what `Engine::precompile_component` gave in a process that this one has started from this
        // user's own program, and they came through a pipe that nobody else has.
        #[allow(unsafe_code, reason = "machine code is trusted by who made it")]
        let component = unsafe { Component::deserialize(&self.engine, &code) };
        let component = component.map_err(|error| pack.unusable(&error))?;
        self.keep(name, || Ok(code));
        Ok(component)
    }

    /// Refuses what would not fit even into an empty pool, and says how many slots an instance takes.
    fn check_size(&self, pack: &Loaded, component: &Component) -> Result<u32, Failure> {
        let Some(needs) = component.resources_required() else {
            return Err(pack.bad("it imports core modules"));
        };
        let limits = &self.limits;
        let memory = needs.max_initial_memory_size.unwrap_or(0).saturating_mul(64 << 10);
        let counts = [
            ("memories", u64::from(needs.num_memories), u64::from(limits.memories)),
            ("tables", u64::from(needs.num_tables), u64::from(limits.tables)),
            ("bytes of memory", memory, limits.memory as u64),
            ("elements in a table", needs.max_initial_table_size.unwrap_or(0), limits.table_elements as u64),
        ];
        if let Some((part, count, limit)) = counts.into_iter().find(|(_, count, limit)| count > limit) {
            return Err(pack.bad(format!("it begins with {count} {part}; it may have {limit}")));
        }
        let tables = needs.num_tables.div_ceil(TABLES_PER_SLOT);
        let instances = pack.core_instances.div_ceil(CORE_INSTANCES_PER_SLOT);
        let slots = needs.num_memories.max(tables).max(instances).max(1);
        if slots > self.slots { Err(pack.bad("it does not fit into this machine's pool")) } else { Ok(slots) }
    }
}
