//! The node types that every flow of a host may use. They change while runs go on, when packs are read again or an operator
//! pushes a pack to the shared store. A run keeps the packs that it has pinned.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use flowcell_contract::{Catalog, Digest};
use flowcell_engine::{Engine, Pack};
use flowcell_runtime::ports::StoreError;
use parking_lot::{Mutex, RwLock};

use super::{
    loading::register,
    pack_changes::{HostPack, PackChanges, PackSource, SkippedPack},
    pack_sources::{PackBytes, PackSet, PackSources},
};
use crate::{
    host::{catalog, error::Error},
    packs::{
        InstallError, PackId, Signer,
        pushed::{PushedList, PushedPack, PushedPacks},
    },
};

/// The node types of a host.
pub(super) struct NodeTypes {
    engine: Engine,
    /// The node types of the built-in packs.
    built_in: Catalog,
    /// The packs of the shared store. Empty if the store is not shared.
    pushed: OnceLock<PushedPacks>,
    /// Locked while packs are read, so that one thread reads at a time.
    read: Mutex<ReadPacks>,
    current: RwLock<Arc<CurrentTypes>>,
}

/// The packs as they were last read.
struct ReadPacks {
    sources: PackSources,
    local: PackSet,
    list: PushedList,
    /// The packs of the list whose bytes were read and compared with their digests.
    verified: HashMap<Digest, Pack>,
    /// True if the store did not answer when bytes were read, so that they have to be read again.
    is_incomplete: bool,
    /// The packs of the store that this process cannot use, and that were logged.
    logged: BTreeSet<SkippedPack>,
}

/// The node types at one time, with their packs.
pub(super) struct CurrentTypes {
    pub(super) catalog: Arc<Catalog>,
    /// The packs, sorted by name and version.
    pub(super) packs: Vec<HostPack>,
    /// The packs of the shared store that this process does not use.
    pub(super) skipped: Vec<SkippedPack>,
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
        let (local, bytes) = sources.read(&engine, &built_in)?;
        let (catalog, packs) = (Arc::new(local.catalog.clone()), local.packs.clone());
        let current = RwLock::new(Arc::new(CurrentTypes { catalog, packs, skipped: Vec::new() }));
        let (list, verified, logged) = (PushedList::default(), HashMap::new(), BTreeSet::new());
        let read = Mutex::new(ReadPacks { sources, local, list, verified, is_incomplete: false, logged });
        Ok((NodeTypes { engine, built_in, pushed: OnceLock::new(), read, current }, bytes))
    }

    /// Adds the packs of a shared store, from the next look on.
    pub(super) fn share(&self, pushed: PushedPacks) {
        _ = self.pushed.set(pushed);
    }

    /// Returns the packs of the shared store, or `None` if the store is not shared.
    pub(super) fn pushed(&self) -> Option<&PushedPacks> {
        self.pushed.get()
    }

    /// Returns the present node types.
    pub(super) fn current(&self) -> Arc<CurrentTypes> {
        self.current.read().clone()
    }

    /// Reads the packs of this process again. `keep` receives their bytes before flows can use them. On error the node
    /// types stay as they are.
    pub(super) fn reload(&self, keep: impl FnOnce(PackBytes)) -> Result<PackChanges, Error> {
        let mut read = self.read.lock();
        let (local, bytes) = read.sources.read(&self.engine, &self.built_in)?;
        read.local = local;
        Ok(self.combine(&mut read, bytes, keep))
    }

    /// Looks for changes of the packs in the shared store. Fails if the store does not answer; the node types then stay as
    /// they are.
    pub(super) fn look(&self, keep: impl FnOnce(PackBytes)) -> Result<PackChanges, StoreError> {
        let Some(pushed) = self.pushed() else { return Ok(PackChanges::default()) };
        let mut read = self.read.lock();
        let list = pushed.list()?;
        if list == read.list && !read.is_incomplete {
            return Ok(PackChanges::default());
        }
        read.list = list;
        Ok(self.combine(&mut read, PackBytes::default(), keep))
    }

    /// Returns whether the store did not answer when bytes of packs were last read.
    pub(super) fn is_incomplete(&self) -> bool {
        self.read.lock().is_incomplete
    }

    /// Combines the packs of this process with those of the shared store. A name that this process has packs of is the
    /// operator's of this process: the store's packs of this name are skipped.
    fn combine(&self, read: &mut ReadPacks, mut bytes: PackBytes, keep: impl FnOnce(PackBytes)) -> PackChanges {
        let (mut catalog, mut packs) = (read.local.catalog.clone(), read.local.packs.clone());
        let (mut skipped, mut failed) = (Vec::new(), Vec::new());
        read.is_incomplete = false;
        for (id, pack) in read.list.packs.clone() {
            let digest = pack.digest().to_string();
            if read.local.packs.iter().any(|local| local.pack.name == id.name) {
                let reason = "this process has packs of this name in its lock or a folder".to_owned();
                skipped.push(SkippedPack { pack: id, digest, reason });
                continue;
            }
            let added = self.verify(read, &id, &pack, &mut bytes).and_then(|(verified, signer)| {
                let origin = format!("{id} of the shared store");
                register(&mut catalog, verified, &origin).map(|()| signer).map_err(|error| error.to_string())
            });
            match added {
                Ok(signer) => packs.push(HostPack { pack: id, digest, source: PackSource::Store, signer }),
                Err(reason) => failed.push(SkippedPack { pack: id, digest, reason }),
            }
        }
        packs.sort();
        read.logged.retain(|logged| failed.contains(logged));
        for failed in &failed {
            if read.logged.insert(failed.clone()) {
                let SkippedPack { pack, digest, reason } = failed;
                tracing::warn!(%pack, digest, "this process does not use a pack of the shared store: {reason}");
            }
        }
        skipped.extend(failed);
        skipped.sort();
        let current = self.current();
        let changes = PackChanges::between(&current.packs, &packs);
        keep(bytes);
        // The same node types keep their catalog, so that checked flows stay remembered.
        let catalog = if changes.is_empty() { current.catalog.clone() } else { Arc::new(catalog) };
        *self.current.write() = Arc::new(CurrentTypes { catalog, packs, skipped });
        changes
    }

    /// Returns a pack of the shared store with its signer, or the reason why this process does not use it. Adds bytes that were not read
    /// before to `all`.
    fn verify(
        &self,
        read: &mut ReadPacks,
        id: &PackId,
        pack: &PushedPack,
        all: &mut PackBytes,
    ) -> Result<(Pack, Option<Signer>), String> {
        let digest = pack.digest();
        let signer = read.local.trust.admit(id, &digest, pack.signature.as_ref()).map_err(|error| error.to_string())?;
        if let Some(verified) = read.verified.get(&digest).filter(|verified| PackId::of(&verified.manifest) == *id) {
            return Ok((verified.clone(), signer));
        }
        let store = self.pushed().ok_or("the store is not shared")?;
        let bytes = store.bytes(pack).map_err(|error| {
            read.is_incomplete = true;
            format!("the store does not answer: {error}")
        })?;
        let bytes = bytes?;
        let origin = format!("{id} of the shared store");
        let added = self.engine.add_pack(bytes.to_vec(), &origin).map_err(|error| error.kind.to_string())?;
        let found = PackId::of(&added.manifest);
        if found != *id {
            return Err(InstallError::Other { wanted: id.to_string(), origin, found }.to_string());
        }
        all.insert(digest.clone(), bytes);
        read.verified.insert(digest, added.clone());
        Ok((added, signer))
    }
}
