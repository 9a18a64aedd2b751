//! Converts a pack's bytes to linked machine code. Each pack is compiled once, cached on disk, and linked once for
//! each set of capabilities.

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
    compiler::{CompileError, Compiler},
    link::{Capabilities, Linkers},
    machine::{CORE_INSTANCES_PER_SLOT, TABLES_PER_SLOT},
    pack::{self, Author, Bytes, ComponentProperties, LoadedNodeType, PackErrorKind},
    sandbox::Sandbox,
    trap,
};

/// A pack that the engine can run.
pub(crate) struct LoadedPack {
    pub(crate) digest: Digest,
    pub(crate) node_types: HashMap<Arc<str>, Arc<LoadedNodeType>>,
    /// The size of the component file, in bytes.
    pub(crate) size: usize,
    core_instances: u32,
    author: Author,
    /// The component file. `None` once the code has been made.
    bytes: Mutex<Option<Bytes>>,
    /// Locked by the thread that makes the code, so that other threads wait for the result.
    making: Mutex<()>,
    component: OnceLock<Component>,
    linked: [OnceLock<Result<LinkedPack, Failure>>; Capabilities::SETS],
}

/// Code with its imports resolved.
pub(crate) struct LinkedPack {
    pub(crate) instance: EverythingPre<Sandbox>,
    /// The number of slots of the instance pool that one instance occupies.
    pub(crate) slots: u32,
}

impl LoadedPack {
    /// Returns the README of the component, if its bytes are still there.
    pub(crate) fn readme(&self) -> Option<String> {
        pack::readme(self.bytes.lock().as_deref()?)
    }

    pub(crate) fn new(
        digest: Digest,
        node_types: HashMap<Arc<str>, Arc<LoadedNodeType>>,
        core_instances: usize,
        bytes: Bytes,
        author: Author,
    ) -> LoadedPack {
        LoadedPack {
            digest,
            node_types,
            size: bytes.len(),
            core_instances: u32::try_from(core_instances).unwrap_or(u32::MAX),
            author,
            bytes: Mutex::new(Some(bytes)),
            making: Mutex::new(()),
            component: OnceLock::new(),
            linked: [const { OnceLock::new() }; Capabilities::SETS],
        }
    }

    /// Returns the linked code for a set of capabilities, or `None` if it has not been made.
    pub(crate) fn linked(&self, set: Capabilities) -> Option<&Result<LinkedPack, Failure>> {
        self.linked[set.number()].get()
    }

    /// Returns true if the code of some node type is not linked yet, so that its attempts would wait for it.
    pub(crate) fn is_cold(&self) -> bool {
        self.node_types.values().any(|node_type| self.linked(node_type.capabilities).is_none())
    }

    /// Returns the sets of capabilities of the node types.
    pub(crate) fn sets(&self) -> Vec<Capabilities> {
        self.node_types.values().map(|node_type| node_type.capabilities).collect()
    }

    fn bad_pack(&self, error: impl std::fmt::Display) -> Failure {
        Failure::new(code::BAD_PACK, format!("cannot use the pack {}: {error:#}", self.digest))
    }

    /// Converts an error of making code to a failure: a shortage of the machine, or a bad pack.
    fn unusable(&self, error: &wasmtime::Error) -> Failure {
        trap::from_shortage(error).unwrap_or_else(|| self.bad_pack(error))
    }
}

/// Compiles, caches and links the code of packs.
pub(crate) struct CompileContext {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linkers: Linkers,
    pub(crate) cache: Option<Cache>,
    /// The compiler process for packs from outside this program; `None` if this process compiles all packs.
    pub(crate) compiler: Option<Compiler>,
    pub(crate) limits: Limits,
    pub(crate) slots: u32,
}

impl CompileContext {
    /// Returns the [`ComponentProperties`] of a component: its manifest, imports, exports and number of core instances.
    /// It validates a component from outside this program, unless the cache has the properties.
    pub(crate) fn properties(
        &self,
        bytes: &[u8],
        digest: &Digest,
        author: Author,
    ) -> Result<ComponentProperties, PackErrorKind> {
        let name = match author {
            Author::Flowcell => format!("{}-{}.facts", digest.0, env!("CARGO_PKG_VERSION")),
            Author::External => format!("{}-{}.validated.facts", digest.0, env!("CARGO_PKG_VERSION")),
        };
        let known = self.cache.as_ref().and_then(|cache| ComponentProperties::from_json(&cache.get(&name)?));
        if let Some(properties) = known {
            return Ok(properties);
        }
        let properties = ComponentProperties::read(bytes, &self.limits)?;
        if author == Author::External {
            pack::validate(bytes)?;
        }
        self.write_entry(&name, || Ok(properties.to_json()));
        Ok(properties)
    }

    /// Writes a cache entry for the next start of the host, if the engine has a cache.
    fn write_entry(&self, name: &str, payload: impl FnOnce() -> wasmtime::Result<Vec<u8>>) {
        let Some(cache) = &self.cache else { return };
        let kept = payload().map_err(|error| error.to_string());
        let kept = kept.and_then(|payload| cache.put(name, &payload).map_err(|error| error.to_string()));
        if let Err(error) = kept {
            tracing::debug!("cannot cache {name}: {error}");
        }
    }

    /// Returns the linked code of a pack for a set of capabilities. It blocks while this or another thread makes the
    /// code.
    pub(crate) fn link<'a>(&self, pack: &'a LoadedPack, set: Capabilities) -> Result<&'a LinkedPack, Failure> {
        if let Some(linked) = pack.linked(set) {
            return linked.as_ref().map_err(Failure::clone);
        }
        let _making = pack.making.lock();
        let linked = match pack.linked(set) {
            Some(linked) => linked,
            None => match self.link_now(pack, set) {
                // The machine may have enough resources later, so this failure is not kept.
                Err(failure) if failure.retryable => return Err(failure),
                made => pack.linked[set.number()].get_or_init(|| made),
            },
        };
        linked.as_ref().map_err(Failure::clone)
    }

    fn link_now(&self, pack: &LoadedPack, set: Capabilities) -> Result<LinkedPack, Failure> {
        let component = self.component(pack)?;
        let slots = self.check_size(pack, component)?;
        let linker = self.linkers.get(set).map_err(|error| pack.unusable(&error))?;
        let instance = linker.instantiate_pre(component).and_then(EverythingPre::new);
        Ok(LinkedPack { instance: instance.map_err(|error| pack.unusable(&error))?, slots })
    }

    fn component<'a>(&self, pack: &'a LoadedPack) -> Result<&'a Component, Failure> {
        if let Some(component) = pack.component.get() {
            return Ok(component);
        }
        let name = self.entry_name(&pack.digest);
        let made = self.load(&name).map_or_else(|| self.compile(pack, &name), Ok)?;
        pack.bytes.lock().take();
        Ok(pack.component.get_or_init(|| made))
    }

    /// Returns the name of a cache entry. It depends on the component, the engine's version and its configuration.
    fn entry_name(&self, digest: &Digest) -> String {
        let mut hasher = DefaultHasher::new();
        self.engine.precompile_compatibility_hash().hash(&mut hasher);
        format!("{}-{:016x}.code", digest.0, hasher.finish())
    }

    fn load(&self, name: &str) -> Option<Component> {
        let code = self.cache.as_ref()?.get(name)?;
        // SAFETY: `Component::serialize` made these bytes. `get` has just checked a keyed hash over them in memory, and
        // only this user's engines can make that hash.
        #[allow(unsafe_code, reason = "machine code is trusted by its keyed hash")]
        let component = unsafe { Component::deserialize(&self.engine, &code) };
        component.inspect_err(|error| tracing::warn!("cannot load cached code: {error:#}")).ok()
    }

    /// Returns true if a separate compiler process may have to compile this pack. The process is not needed if the
    /// cache has the code.
    pub(crate) fn may_need_compiler(&self, pack: &LoadedPack) -> bool {
        self.compiler.is_some() && pack.author == Author::External && pack.component.get().is_none()
    }

    fn compile(&self, pack: &LoadedPack, name: &str) -> Result<Component, Failure> {
        let bytes = pack.bytes.lock().clone();
        let bytes = bytes.ok_or_else(|| pack.bad_pack("its bytes are missing"))?;
        if let Some(compiler) = self.compiler.as_ref().filter(|_| pack.author == Author::External) {
            return self.compile_in_process(compiler, pack, &bytes, name);
        }
        let component = Component::from_binary(&self.engine, &bytes).map_err(|error| pack.unusable(&error))?;
        self.write_entry(name, || component.serialize());
        Ok(component)
    }

    fn compile_in_process(
        &self,
        compiler: &Compiler,
        pack: &LoadedPack,
        bytes: &[u8],
        name: &str,
    ) -> Result<Component, Failure> {
        let code = compiler.compile(bytes, &self.limits).map_err(|why| match why {
            CompileError::Shortage(why) => Failure::retryable(code::HOST_SHORTAGE, why),
            CompileError::Refused(why) => pack.bad_pack(why),
        })?;
        // SAFETY: `Engine::precompile_component` made these bytes in a process that this one started from this user's
        // own program. They came through a pipe that no other process has.
        #[allow(unsafe_code, reason = "machine code is trusted by who made it")]
        let component = unsafe { Component::deserialize(&self.engine, &code) };
        let component = component.map_err(|error| pack.unusable(&error))?;
        self.write_entry(name, || Ok(code));
        Ok(component)
    }

    /// Returns the number of slots that an instance occupies. Refuses a pack that exceeds a limit, or that needs more
    /// slots than the whole pool has.
    fn check_size(&self, pack: &LoadedPack, component: &Component) -> Result<u32, Failure> {
        let Some(needs) = component.resources_required() else {
            return Err(pack.bad_pack("it imports core modules"));
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
            return Err(pack.bad_pack(format!("it starts with {count} {part}; the limit is {limit}")));
        }
        let tables = needs.num_tables.div_ceil(TABLES_PER_SLOT);
        let instances = pack.core_instances.div_ceil(CORE_INSTANCES_PER_SLOT);
        let slots = needs.num_memories.max(tables).max(instances).max(1);
        if slots > self.slots { Err(pack.bad_pack("it does not fit into this machine's pool")) } else { Ok(slots) }
    }
}
