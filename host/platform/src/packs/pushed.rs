//! Packs that operators have pushed to a shared store, for all of its processes.
//!
//! The list of these packs is one document of the operators. The bytes of each pack are a blob of the operators under
//! their digest. A push stores the blob first, so that the list names no pack without bytes. Nobody trusts the rows: each
//! process compares the bytes with the digest, and the signature with its own trusted signers, before it uses a pack.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{BlobRef, Blobs, Digest, Tenant, shell::shell_word};
use flowcell_runtime::{
    ports::{DocumentStore, StoreError, Sweep},
    shared::SharedRuns,
};
use serde::{Deserialize, Serialize};

use super::{Arrival, InstallError, PackId, PackVersions, Signature, Trust};
use crate::operate::{documents::Documents, policy::OPERATORS};

/// Maximum number of packs in a shared store. Each version counts.
pub const MAX_PUSHED_PACKS: usize = 256;
/// The document kind of the list of packs. The sweep of a store keeps the blobs that it names.
const KIND: &str = "packs";
/// The key of the list of packs.
const KEY: &str = "list";
/// The media type of the blobs of packs.
const MIME: &str = "application/wasm";
/// Maximum number of tries to write the list, if other processes change it at the same time.
const MAX_WRITE_TRIES: usize = 64;

/// A pack in a shared store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedPack {
    /// The SHA-256 of the component, in hexadecimal.
    pub sha256: String,
    /// The size of the component in bytes.
    pub bytes: u64,
    /// The file or the reference that the pack was pushed from.
    pub source: String,
    /// The signature that was checked at the push. Each process checks it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// The time of the push in milliseconds since 1970.
    pub created: u64,
}

impl PushedPack {
    /// Returns the digest of the component.
    pub fn digest(&self) -> Digest {
        Digest(self.sha256.as_str().into())
    }
}

/// The packs of a shared store by name and version, and the version of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PushedList {
    pub(crate) packs: BTreeMap<PackId, PushedPack>,
    pub(crate) version: u64,
}

/// The packs of a shared store.
#[derive(Clone)]
pub(crate) struct PushedPacks {
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) sweep: Arc<dyn Sweep>,
    pub(crate) store: Arc<dyn SharedRuns>,
}

/// An error of changing the packs of a shared store.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The pack is refused.
    #[error(transparent)]
    Pack(#[from] InstallError),
    /// The pack in the store has another signature.
    #[error(
        "the shared store has {0} with another signature, which stays; push a new version, or first remove this one with \
         `flowcell packs remove {word}`",
        word = shell_word(&.0.to_string())
    )]
    Signed(PackId),
    /// The shared store has too many packs.
    #[error(
        "the shared store has {MAX_PUSHED_PACKS} packs, which is the maximum; remove some with `flowcell packs remove`"
    )]
    Full,
    /// The store is not shared.
    #[error("the store is not shared, so it has no packs: install them with `flowcell node install`")]
    NotShared,
    /// The shared store does not answer, or too many processes change its packs.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PushedPacks {
    /// Reads the list of packs.
    pub(crate) fn list(&self) -> Result<PushedList, StoreError> {
        let operators = operators();
        let found = Documents { store: &*self.documents, tenant: &operators }.get(KIND, KEY)?;
        Ok(found.map(|(packs, version)| PushedList { packs, version }).unwrap_or_default())
    }

    /// Reads the bytes of a pack, and compares them with their digest. The inner error is a sentence for people.
    pub(crate) fn bytes(&self, pack: &PushedPack) -> Result<Result<Arc<[u8]>, String>, StoreError> {
        let digest = pack.digest();
        let blob = BlobRef { file_id: digest.0.clone(), size: pack.bytes, mime: MIME.into() };
        let found =
            self.blobs.get(&operators(), &blob).map_err(|error| StoreError(error.message.to_string().into()))?;
        let Some(bytes) = found else { return Ok(Err("the store does not have its bytes; push it again".to_owned())) };
        Ok(match flowcell_engine::digest(&bytes) {
            found if found == digest => Ok(bytes),
            found => Err(format!("its bytes were changed in the store: they are {found}; push a new version")),
        })
    }

    /// Adds a pack. Pushing the same pack again restores its bytes if the store has lost them, and may add a signature.
    /// Other bytes or another signature under the same name and version are refused. Returns when the pack is on stable
    /// storage.
    pub(crate) fn push(&self, arrival: Arrival, trust: &Trust, now: u64) -> Result<(PackId, PushedPack), PushError> {
        let inspection = arrival.inspect()?;
        let Arrival { source, bytes, signature } = arrival;
        let (id, digest) = (PackId::of(&inspection.manifest), inspection.digest);
        trust.admit(&id, &digest, signature.as_ref())?;
        let (sha256, size) = (digest.0.to_string(), bytes.len() as u64);
        let pack = PushedPack { sha256, bytes: size, source: source.to_string(), signature, created: now };
        let known = |list: &PushedList| match list.packs.get(&id) {
            Some(known) if known.digest() != digest => Err(PushError::Pack(InstallError::Published {
                reference: id.to_string(),
                there: known.digest().to_string(),
                here: digest.clone(),
            })),
            Some(known) if known.signature == pack.signature || pack.signature.is_none() => Ok(Some(known.clone())),
            // Processes that trust only the first signer would no longer use the pack.
            Some(known) if known.signature.is_some() => Err(PushError::Signed(id.clone())),
            None if list.packs.len() >= MAX_PUSHED_PACKS => Err(PushError::Full),
            _ => Ok(None),
        };
        // A refused pack leaves no bytes in the store.
        known(&self.list()?)?;
        self.store.keep(&operators(), &digest.0, bytes.into(), MIME);
        self.store.settle()?;
        let pushed = self.change(|list| {
            if let Some(known) = known(list)? {
                // The list gets a new version, so that each process reads the bytes again if they were missing.
                return Ok(Ok((id.clone(), known)));
            }
            list.packs.insert(id.clone(), pack.clone());
            Ok(Ok((id.clone(), pack.clone())))
        })?;
        Ok(pushed)
    }

    /// Removes packs, and returns their names and versions. Runs keep the packs that they have pinned.
    pub(crate) fn remove(&self, packs: &PackVersions) -> Result<Vec<PackId>, PushError> {
        // The answer to a write can be lost. The list that is read again then has the packs no more.
        let mut before = Vec::new();
        let removed = self.change(|list| {
            let removed: Vec<_> = list.packs.extract_if(.., |id, _| packs.contains(id)).map(|(id, _)| id).collect();
            if removed.is_empty() {
                return Ok(Err(std::mem::take(&mut before)));
            }
            before.clone_from(&removed);
            Ok(Ok(removed))
        })?;
        if !removed.is_empty() {
            // Bytes that are a short time old stay until the next sweep.
            if let Err(error) = self.sweep.sweep(&operators()) {
                tracing::warn!("the bytes of removed packs stay until the next removal: {error}");
            }
        }
        Ok(removed)
    }

    /// Changes the list. If `change` returns an inner error, nothing is written. If another process changes the list at
    /// the same time, `change` is called again with the new list.
    fn change<T>(
        &self,
        mut change: impl FnMut(&mut PushedList) -> Result<Result<T, T>, PushError>,
    ) -> Result<T, PushError> {
        let operators = operators();
        let documents = Documents { store: &*self.documents, tenant: &operators };
        for _ in 0..MAX_WRITE_TRIES {
            let mut list = self.list()?;
            let done = match change(&mut list)? {
                Ok(done) => done,
                Err(unchanged) => return Ok(unchanged),
            };
            if documents.put(KIND, KEY, Some(&list.packs), list.version).map_err(StoreError::from)? {
                return Ok(done);
            }
        }
        Err(PushError::Store(StoreError("too many processes change packs at the same time; try again".into())))
    }
}

/// Returns the owner of the packs: the operators, who are not a tenant.
fn operators() -> Tenant {
    Tenant::from(OPERATORS)
}
