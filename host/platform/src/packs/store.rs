//! A folder that stores packs by their digests.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flowcell_contract::Digest;

use super::{InstallError, lock::write_atomically};
use crate::cache;

/// A folder with packs by their digests. Users may delete it, since pinned packs can be fetched again.
#[derive(Clone, Debug)]
pub struct PackStore {
    folder: PathBuf,
}

/// The result of looking up a pack in a store by its digest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundPack {
    /// The store has no such file.
    Nothing,
    /// The file has another digest, so it was changed.
    Changed(Digest),
    /// The bytes of the pack.
    Pack(Vec<u8>),
}

impl PackStore {
    /// Returns the store in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> PackStore {
        PackStore { folder: folder.into() }
    }

    /// Returns the user's store: `packs` in the user's cache folder.
    pub fn of_the_user() -> Result<PackStore, InstallError> {
        cache::user_folder().map(|folder| PackStore::at(folder.join("packs"))).ok_or(InstallError::NoStore)
    }

    /// Returns the path of the pack with this digest.
    pub fn file(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.wasm", digest.0))
    }

    /// Reads a pack and checks its digest.
    pub(crate) fn get(&self, digest: &Digest) -> Result<FoundPack, InstallError> {
        let path = self.file(digest);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FoundPack::Nothing),
            bytes => bytes.map_err(|source| InstallError::Read { path, source })?,
        };
        match flowcell_engine::digest(&bytes) {
            found if found == *digest => Ok(FoundPack::Pack(bytes)),
            found => Ok(FoundPack::Changed(found)),
        }
    }

    /// Stores a pack.
    pub(super) fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), InstallError> {
        let path = self.file(digest);
        let written =
            fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).and_then(|()| write_atomically(&path, bytes));
        written.map_err(|source| InstallError::Write { path, source })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_changed_pack_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = PackStore::at(folder.path().join("packs"));
        let digest = flowcell_engine::digest(b"pack");
        assert_eq!(store.get(&digest).unwrap(), FoundPack::Nothing);
        store.put(&digest, b"pack").unwrap();
        assert_eq!(store.get(&digest).unwrap(), FoundPack::Pack(b"pack".into()));
        fs::write(store.file(&digest), b"paci").unwrap();
        assert_eq!(store.get(&digest).unwrap(), FoundPack::Changed(flowcell_engine::digest(b"paci")));
        store.put(&digest, b"pack").unwrap();
        assert_eq!(store.get(&digest).unwrap(), FoundPack::Pack(b"pack".into()));
    }
}
