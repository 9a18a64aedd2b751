//! Loads the packs that a lock pins from the store, and checks their digests and signers.

use std::{io, path::Path};

use super::{InstallError, Lock, Locked, PackId, PackStore, Signer, Trust, store::FoundPack};

/// A pinned pack with its bytes from the store.
pub(crate) struct LockedPack {
    pub(crate) id: PackId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) signer: Option<Signer>,
}

/// Returns the packs of a lock from the store. It fails if a pack does not match its digest in the lock, or is not
/// trusted now. It makes no connection.
pub(crate) fn locked_packs(
    lock: &Path,
    store: Option<&PackStore>,
    trust: &Trust,
) -> Result<Vec<LockedPack>, InstallError> {
    if !lock.is_file() {
        return Err(InstallError::Read { path: lock.to_owned(), source: io::ErrorKind::NotFound.into() });
    }
    let lock = Lock::read(lock)?;
    let own = match store {
        Some(store) => store.clone(),
        None => PackStore::of_the_user()?,
    };
    let load = |(id, locked): (&PackId, &Locked)| {
        let signer = trust.admit(id, &locked.digest, locked.signature.as_ref())?;
        Ok(LockedPack { id: id.clone(), bytes: read_locked(&own, id, locked)?, signer })
    };
    lock.packs().map(load).collect()
}

/// Reads a pinned pack from the store of packs. It fails if the pack is missing, or does not match its digest.
pub(super) fn read_locked(store: &PackStore, id: &PackId, locked: &Locked) -> Result<Vec<u8>, InstallError> {
    let (id, digest) = (id.clone(), locked.digest.clone());
    match store.get(&digest)? {
        FoundPack::Pack(bytes) => Ok(bytes),
        FoundPack::Nothing => Err(InstallError::Missing { id, digest }),
        FoundPack::Changed(found) => {
            Err(InstallError::Damaged { id, path: store.file(&digest), locked: digest, found })
        }
    }
}
