//! The node types that every flow of a host may use. They can be read again while runs go on: a run keeps the packs that
//! it has pinned.

use std::sync::Arc;

use flowcell_contract::{Catalog, Digest};
use flowcell_engine::Engine;
use parking_lot::{Mutex, RwLock};

use super::{
    loading::register,
    pack_changes::{HostPack, PackChanges},
    pack_sources::{PackBytes, PackSet, PackSources},
};
use crate::host::{catalog, error::Error};

/// The node types of a host.
pub(super) struct NodeTypes {
    engine: Engine,
    /// The node types of the built-in packs.
    built_in: Catalog,
    /// Locked while packs are read, so that one thread reads at a time.
    sources: Mutex<PackSources>,
    current: RwLock<Current>,
}

struct Current {
    catalog: Arc<Catalog>,
    packs: Vec<HostPack>,
}

impl NodeTypes {
    /// Adds the built-in packs and those of `sources` to an engine. Also returns the bytes of the latter.
    pub(super) fn open(engine: Engine, mut sources: PackSources) -> Result<(NodeTypes, PackBytes), Error> {
        let mut built_in = Catalog::default();
        for pack in catalog::PACKS {
            let origin = format!("`{}` of the catalog", pack.name);
            let added = engine.add_built_in(pack.bytes, Digest(pack.digest.into()), &origin)?;
            register(&mut built_in, added, &origin)?;
        }
        let PackSet { catalog, packs, bytes } = sources.read(&engine, &built_in)?;
        let current = Current { catalog: Arc::new(catalog), packs };
        Ok((NodeTypes { engine, built_in, sources: Mutex::new(sources), current: RwLock::new(current) }, bytes))
    }

    /// Returns the present node types.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.current.read().catalog.clone()
    }

    /// Returns the present packs, sorted by name and version.
    pub(super) fn packs(&self) -> Vec<HostPack> {
        self.current.read().packs.clone()
    }

    /// Reads the packs again. `keep` receives their bytes before flows can use them. On error the node types stay as
    /// they are.
    pub(super) fn reload(&self, keep: impl FnOnce(PackBytes)) -> Result<PackChanges, Error> {
        let mut sources = self.sources.lock();
        let PackSet { catalog, packs, bytes } = sources.read(&self.engine, &self.built_in)?;
        let changes = PackChanges::between(&self.current.read().packs, &packs);
        if !changes.is_empty() {
            keep(bytes);
            let catalog = Arc::new(catalog);
            *self.current.write() = Current { catalog, packs };
        }
        Ok(changes)
    }
}
