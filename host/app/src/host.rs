//! The host: the engine, the catalog, and what runs share.

mod library;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::{Catalog, Digest};
use flowcell_engine::{Config, Engine, Limits, Pack};
use flowcell_flow::{Diagnostic, PackRef, Source};
use flowcell_runtime::{
    FlowRunner, RunOptions, World,
    memory::{LocalLeases, MemoryCache, MemoryJournal, MemoryState, SystemTimers},
    ports::{CacheStore, Journal, Leases, StateStore, Timers},
};

use self::library::Library;
use crate::{
    catalog,
    error::{Error, InputError, LoadError},
    folder::{Folder, read_source},
    loaded::{CheckedFlow, LoadedFlow},
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
}

/// Puts a [`Host`] together. By default: the built-in catalog, no other packs, compiled code cached in the user's cache
/// folder, the engine's default limits.
#[derive(Default)]
pub struct HostBuilder {
    packs: Vec<PathBuf>,
    cache: CacheDir,
    limits: Limits,
    instances: Option<u32>,
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
        for path in self.packs.iter().map(|path| pack_files(path)) {
            for file in path? {
                add_file(&engine, &mut catalog, &file)?;
            }
        }
        Ok(Host(Arc::new(Shared {
            engine,
            catalog: Arc::new(catalog),
            journal: Arc::new(MemoryJournal::default()),
            timers: Arc::new(SystemTimers::default()),
            leases: Arc::new(LocalLeases::default()),
            state: Arc::new(MemoryState::default()),
            cache: Arc::new(MemoryCache::default()),
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

    /// Prepares a run. The input must fit the flow's `inputSchema`.
    pub fn runner(&self, flow: &LoadedFlow, options: RunOptions) -> Result<FlowRunner, InputError> {
        flow.check_input(&options.input)?;
        let Shared { engine, catalog: _, journal, timers, leases, state, cache } = &*self.0;
        let world = World {
            runner: Arc::new(engine.clone()),
            flows: Arc::new(Library::new(self.clone(), flow.folder.clone())),
            journal: journal.clone(),
            timers: timers.clone(),
            leases: leases.clone(),
            state: state.clone(),
            cache: cache.clone(),
        };
        Ok(FlowRunner::new(flow.graph.clone(), Arc::new(world), options))
    }

    pub(crate) fn load_in(&self, source: &Source, folder: Arc<Folder>) -> Result<LoadedFlow, LoadError> {
        accept(self.check_in(source, folder))
    }

    pub(crate) fn check_in(&self, source: &Source, folder: Arc<Folder>) -> CheckedFlow {
        let (catalog, mut diagnostics) = self.catalog_for(source, &folder);
        let sound = diagnostics.is_empty();
        let checked = flowcell_flow::load(source, &catalog, &*folder);
        let graph = checked.graph.filter(|_| sound);
        diagnostics.extend(checked.diagnostics);
        diagnostics.sort_by_key(|finding| (finding.place.line, finding.place.column));
        CheckedFlow { flow: graph.map(|graph| LoadedFlow { graph: Arc::new(graph), folder }), diagnostics }
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
            if let Err(error) = add_file(&self.0.engine, &mut catalog, &folder.join(&path)) {
                findings.push(error.at(source, place));
            }
        }
        (Arc::new(catalog), findings)
    }
}

fn accept(checked: CheckedFlow) -> Result<LoadedFlow, LoadError> {
    checked.flow.ok_or(LoadError::Invalid(checked.diagnostics))
}

fn add_file(engine: &Engine, catalog: &mut Catalog, file: &Path) -> Result<(), Error> {
    let bytes = fs::read(file).map_err(|source| Error::Read { path: file.to_owned(), source })?;
    let origin = file.display().to_string();
    let pack = engine.add_pack(bytes, &origin)?;
    register(catalog, pack, &origin)
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
