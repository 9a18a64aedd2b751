//! Converts a pack's bytes to linked machine code. Each pack is compiled once, cached on disk, and linked once for
//! each set of capabilities. The libraries in packs, such as the interpreter of Python, are compiled once for all packs
//! with the same bytes of it.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
};

use flowcell_contract::{Digest, Failure, code};
use parking_lot::Mutex;
use wasmtime::{Module, component::Component};

use crate::{
    Limits,
    bindings::EverythingPre,
    cache::Cache,
    compiler::{CompileError, Compiler},
    link::{Capabilities, Linkers},
    machine::{CORE_INSTANCES_PER_SLOT, TABLES_PER_SLOT},
    pack::{self, Author, Bytes, ComponentProperties, LoadedNodeType, Needs, PackErrorKind, Split},
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
    /// The bytes of memory with which an instance may start, if a node type has more than the usual memory.
    most_memory: usize,
    author: Author,
    /// The component file. `None` once the code has been made.
    bytes: Mutex<Option<Bytes>>,
    /// Locked by the thread that makes the code, so that other threads wait for the result.
    making: Mutex<()>,
    code: OnceLock<Code>,
    linked: [OnceLock<Result<LinkedPack, Failure>>; Capabilities::SETS],
}

/// The machine code of a pack.
struct Code {
    component: Component,
    /// The libraries that the component imports, by the names of the imports.
    libraries: Vec<(String, Module)>,
    needs: Needs,
}

/// Machine code that the engine makes of WebAssembly and keeps in the cache.
trait Compiled: Sized {
    fn compile(engine: &wasmtime::Engine, bytes: &[u8]) -> wasmtime::Result<Self>;

    fn serialize(&self) -> wasmtime::Result<Vec<u8>>;

    /// Loads code that [`Compiled::serialize`] or the compiler process made.
    ///
    /// # Safety
    ///
    /// The code must be unchanged, because it will run outside of the sandbox's rules if it is not.
    #[allow(unsafe_code, reason = "the callers prove who made the code")]
    unsafe fn load(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Self>;
}

macro_rules! compiled {
    ($kind:ty) => {
        impl Compiled for $kind {
            fn compile(engine: &wasmtime::Engine, bytes: &[u8]) -> wasmtime::Result<Self> {
                <$kind>::from_binary(engine, bytes)
            }

            fn serialize(&self) -> wasmtime::Result<Vec<u8>> {
                <$kind>::serialize(self)
            }

            #[allow(unsafe_code, reason = "the caller proves who made the code")]
            unsafe fn load(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Self> {
                // SAFETY: the caller has the same duty.
                unsafe { <$kind>::deserialize(engine, code) }
            }
        }
    };
}

compiled!(Component);
compiled!(Module);

/// The compiled libraries by digest. The lock of a library is held while it is compiled, so that others wait for it.
pub(crate) type Libraries = Mutex<HashMap<Digest, Arc<Mutex<Option<Module>>>>>;

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
        let own = node_types.values().filter_map(|node_type| node_type.limits.as_ref());
        let most_memory = own.map(|limits| limits.memory).max().unwrap_or_default();
        LoadedPack {
            digest,
            most_memory,
            node_types,
            size: bytes.len(),
            core_instances: u32::try_from(core_instances).unwrap_or(u32::MAX),
            author,
            bytes: Mutex::new(Some(bytes)),
            making: Mutex::new(()),
            code: OnceLock::new(),
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
    pub(crate) libraries: Libraries,
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
        let code = self.code(pack)?;
        let slots = self.check_size(pack, code.needs)?;
        let linker = self.linkers.get(set).map_err(|error| pack.unusable(&error))?;
        let mut own;
        let linker = match code.libraries.is_empty() {
            true => linker,
            false => {
                own = linker.clone();
                for (name, library) in &code.libraries {
                    own.root().module(name, library).map_err(|error| pack.unusable(&error))?;
                }
                &own
            }
        };
        let instance = linker.instantiate_pre(&code.component).and_then(EverythingPre::new);
        Ok(LinkedPack { instance: instance.map_err(|error| pack.unusable(&error))?, slots })
    }

    fn code<'a>(&self, pack: &'a LoadedPack) -> Result<&'a Code, Failure> {
        if let Some(code) = pack.code.get() {
            return Ok(code);
        }
        let bytes = pack.bytes.lock().clone();
        let bytes = bytes.ok_or_else(|| pack.bad_pack("its bytes are missing"))?;
        let split = (pack.author == Author::External).then(|| pack::split(&bytes)).flatten();
        let made = match split {
            Some(split) => self.code_with_libraries(pack, &split)?,
            None => {
                let component: Component = self.load_or_compile(pack, &bytes, &pack.digest)?;
                let needs = component.resources_required().ok_or_else(|| pack.bad_pack("it imports core modules"))?;
                Code { component, libraries: Vec::new(), needs: needs.into() }
            }
        };
        pack.bytes.lock().take();
        Ok(pack.code.get_or_init(|| made))
    }

    fn code_with_libraries(&self, pack: &LoadedPack, split: &Split<'_>) -> Result<Code, Failure> {
        let libraries = split.libraries.iter().map(|(name, bytes)| Ok((name.clone(), self.library(pack, bytes)?)));
        let libraries = libraries.collect::<Result<_, Failure>>()?;
        let component = self.load_or_compile(pack, &split.component, &pack::digest(&split.component))?;
        Ok(Code { component, libraries, needs: split.needs })
    }

    /// Returns the code of a library. All packs with the same bytes of it share the code.
    fn library(&self, pack: &LoadedPack, bytes: &[u8]) -> Result<Module, Failure> {
        let digest = pack::digest(bytes);
        let slot = self.libraries.lock().entry(digest.clone()).or_default().clone();
        let mut slot = slot.lock();
        if let Some(library) = &*slot {
            return Ok(library.clone());
        }
        let library: Module = self.load_or_compile(pack, bytes, &digest)?;
        *slot = Some(library.clone());
        Ok(library)
    }

    /// Returns the code of a pack's component, or of a library in it, from the cache or by compiling it.
    fn load_or_compile<C: Compiled>(&self, pack: &LoadedPack, bytes: &[u8], digest: &Digest) -> Result<C, Failure> {
        let name = self.entry_name(digest);
        self.load(&name).map_or_else(|| self.compile(pack, bytes, &name), Ok)
    }

    /// Returns the name of a cache entry. It depends on the component, the engine's version and its configuration.
    fn entry_name(&self, digest: &Digest) -> String {
        let mut hasher = DefaultHasher::new();
        self.engine.precompile_compatibility_hash().hash(&mut hasher);
        format!("{}-{:016x}.code", digest.0, hasher.finish())
    }

    fn load<C: Compiled>(&self, name: &str) -> Option<C> {
        let code = self.cache.as_ref()?.get(name)?;
        // SAFETY: `Compiled::serialize` made these bytes. `get` has just checked a keyed hash over them in memory, and
        // only this user's engines can make that hash.
        #[allow(unsafe_code, reason = "machine code is trusted by its keyed hash")]
        let loaded = unsafe { C::load(&self.engine, &code) };
        loaded.inspect_err(|error| tracing::warn!("cannot load cached code: {error:#}")).ok()
    }

    /// Returns true if a separate compiler process may have to compile this pack. The process is not needed if the
    /// cache has the code.
    pub(crate) fn may_need_compiler(&self, pack: &LoadedPack) -> bool {
        self.compiler.is_some() && pack.author == Author::External && pack.code.get().is_none()
    }

    fn compile<C: Compiled>(&self, pack: &LoadedPack, bytes: &[u8], name: &str) -> Result<C, Failure> {
        if let Some(compiler) = self.compiler.as_ref().filter(|_| pack.author == Author::External) {
            return self.compile_in_process(compiler, pack, bytes, name);
        }
        let compiled = C::compile(&self.engine, bytes).map_err(|error| pack.unusable(&error))?;
        self.write_entry(name, || compiled.serialize());
        Ok(compiled)
    }

    fn compile_in_process<C: Compiled>(
        &self,
        compiler: &Compiler,
        pack: &LoadedPack,
        bytes: &[u8],
        name: &str,
    ) -> Result<C, Failure> {
        let code = compiler.compile(bytes, &self.limits).map_err(|why| match why {
            CompileError::Shortage(why) => Failure::retryable(code::HOST_SHORTAGE, why),
            CompileError::Refused(why) => pack.bad_pack(why),
        })?;
        // SAFETY: `compiler::compile` made these bytes in a process that this one started from this user's
        // own program. They came through a pipe that no other process has.
        #[allow(unsafe_code, reason = "machine code is trusted by who made it")]
        let compiled = unsafe { C::load(&self.engine, &code) };
        let compiled = compiled.map_err(|error| pack.unusable(&error))?;
        self.write_entry(name, || Ok(code));
        Ok(compiled)
    }

    /// Returns the number of slots that an instance occupies. Refuses a pack that exceeds a limit, or that needs more
    /// slots than the whole pool has.
    fn check_size(&self, pack: &LoadedPack, needs: Needs) -> Result<u32, Failure> {
        let limits = &self.limits;
        let memory = needs.memory_pages.saturating_mul(64 << 10);
        let counts = [
            ("memories", u64::from(needs.memories), u64::from(limits.memories)),
            ("tables", u64::from(needs.tables), u64::from(limits.tables)),
            ("bytes of memory", memory, limits.memory.max(pack.most_memory) as u64),
            ("elements in a table", needs.table_elements, limits.table_elements as u64),
        ];
        if let Some((part, count, limit)) = counts.into_iter().find(|(_, count, limit)| count > limit) {
            return Err(pack.bad_pack(format!("it starts with {count} {part}; the limit is {limit}")));
        }
        let tables = needs.tables.div_ceil(TABLES_PER_SLOT);
        let instances = pack.core_instances.div_ceil(CORE_INSTANCES_PER_SLOT);
        let slots = needs.memories.max(tables).max(instances).max(1);
        if slots > self.slots { Err(pack.bad_pack("it does not fit into this machine's pool")) } else { Ok(slots) }
    }
}
