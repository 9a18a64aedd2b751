//! The places of the packs that every flow of a host may use: folders and files, and a lock.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::{Catalog, Digest};
use flowcell_engine::Engine;

use super::{
    loading::{AddedPack, add_locked_pack, add_pack_file, pack_files},
    pack_changes::{HostPack, PackSource},
};
use crate::{
    host::error::Error,
    packs::{PackStore, Signer, Trust, locked_packs},
};

/// The places of a host's packs.
#[derive(Default)]
pub(super) struct PackSources {
    /// Packs, and folders of packs.
    pub(super) paths: Vec<PathBuf>,
    /// The file that pins installed packs.
    pub(super) lock: Option<OperatorFile>,
    /// The file of the trusted signers of installed packs.
    pub(super) trust: Option<OperatorFile>,
    /// The store of installed packs. `None`: the user's store.
    pub(super) store: Option<PackStore>,
}

/// A file of the operator.
pub(super) struct OperatorFile {
    path: PathBuf,
    /// True if the file may be missing. False from the first time that it was found, so that a lost file does not
    /// remove packs, or the list of trusted signers.
    may_be_missing: bool,
}

/// The packs of a host at one time.
pub(super) struct PackSet {
    /// The node types of all packs, with the built-in ones.
    pub(super) catalog: Catalog,
    /// The packs, each once, sorted by name and version.
    pub(super) packs: Vec<HostPack>,
    /// The trusted signers of installed packs, and of those in a shared store.
    pub(super) trust: Trust,
}

/// The bytes of packs by their digests.
pub(super) type PackBytes = HashMap<Digest, Arc<[u8]>>;

impl OperatorFile {
    /// Returns a file that must exist.
    pub(super) fn required(path: PathBuf) -> OperatorFile {
        OperatorFile { path, may_be_missing: false }
    }

    /// Returns a file that may be missing until it was found once.
    pub(super) fn optional(path: PathBuf) -> OperatorFile {
        OperatorFile { path, may_be_missing: true }
    }

    /// Returns the path, or `None` if the file is missing and may be.
    fn find(&self) -> Option<&Path> {
        (!self.may_be_missing || self.path.is_file()).then_some(&self.path)
    }
}

impl PackSources {
    /// Reads all packs, and adds their node types to those of the built-in packs. Also returns the bytes of the packs,
    /// for runs to pin.
    pub(super) fn read(&mut self, engine: &Engine, built_in: &Catalog) -> Result<(PackSet, PackBytes), Error> {
        let mut set = PackSet { catalog: built_in.clone(), packs: Vec::new(), trust: Trust::default() };
        let mut bytes = PackBytes::new();
        for path in &self.paths {
            for file in pack_files(path)? {
                let pack = add_pack_file(engine, &mut set.catalog, &file, &file)?;
                set.add(pack, PackSource::Folder, None, &mut bytes);
            }
        }
        let (lock, trust) =
            (self.lock.as_ref().and_then(OperatorFile::find), self.trust.as_ref().and_then(OperatorFile::find));
        let trusted = trust.map_or_else(|| Ok(Trust::default()), Trust::read)?;
        let locked = lock.map(|lock| locked_packs(lock, self.store.as_ref(), &trusted)).transpose()?;
        for pack in locked.into_iter().flatten() {
            let signer = pack.signer.clone();
            let pack = add_locked_pack(engine, &mut set.catalog, pack)?;
            set.add(pack, PackSource::Lock, signer, &mut bytes);
        }
        let found = (lock.is_some(), trust.is_some());
        for (file, found) in [(&mut self.lock, found.0), (&mut self.trust, found.1)] {
            file.iter_mut().filter(|_| found).for_each(|file| file.may_be_missing = false);
        }
        set.packs.sort();
        set.trust = trusted;
        Ok((set, bytes))
    }
}

impl PackSet {
    fn add(&mut self, pack: AddedPack, source: PackSource, signer: Option<Signer>, all: &mut PackBytes) {
        let AddedPack { id, digest, bytes } = pack;
        let known = all.insert(digest.clone(), bytes).is_some();
        // The same pack may be in a folder and in the lock, which has its signature.
        match self.packs.iter_mut().find(|pack| known && pack.digest == digest.to_string()) {
            Some(pack) => pack.signer = pack.signer.take().or(signer),
            None => self.packs.push(HostPack { pack: id, digest: digest.to_string(), source, signer }),
        }
    }
}
