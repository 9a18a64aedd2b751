//! Third-party packs: fetched from files, URLs and registries, pinned by `flowcell.lock`, and loaded from a store by
//! their digests.
//!
//! Installing a pack reads it and neither runs nor compiles its code. The lock records the digest of each pack, the
//! capabilities that it requests, and its signer. Every user of a lock gets the same bytes or an error.
//!
//! | module | contents |
//! |---|---|
//! | id | a pack's name and version |
//! | lock | `flowcell.lock` |
//! | store | the packs themselves, by their digests |
//! | asks | the capabilities of a pack, and the difference between versions |
//! | source | where a pack comes from: a file, a URL or a registry |
//! | bring | fetching packs from their sources |
//! | index | lists of packs that people search |
//! | indexed | the entries of indexes, and their comparison with packs |
//! | last_index | the last index of each place, so that none is replaced by an older one |
//! | install | checks before an installation |
//! | [`pushed`] | the packs of a shared store |
//! | loading | the packs that a host loads from a lock |
//! | signature | keys and signatures |
//! | trust | the trusted signers |
//! | yaml | YAML documents with the places of errors |
//! | error | errors of packs |

mod asks;
mod bring;
mod error;
mod id;
mod index;
mod indexed;
mod install;
mod last_index;
mod loading;
mod lock;
pub mod pushed;
mod signature;
mod source;
mod store;
mod trust;
mod yaml;

pub use flowcell_engine::digest;

pub(crate) use self::loading::{LockedPack, locked_packs};
pub use self::{
    asks::{Difference, RequestedCapabilities},
    bring::{PackClient, signature_file},
    error::InstallError,
    id::{PackId, PackVersions},
    index::{CheckedIndex, Index, Issue, MAX_INDEX, MAX_SERIAL},
    indexed::{IndexedPack, IndexedType},
    install::{Arrival, Candidate, Installer},
    lock::{LastIndex, Lock, Locked, write_atomically},
    signature::{PackKey, PublicKey, Signature},
    source::Source,
    store::PackStore,
    trust::{Signer, Trust},
};

/// The name of the file that pins packs. It is in the current folder of `flowcell`.
pub const LOCK_FILE: &str = "flowcell.lock";
/// The file with the trusted signers, beside the lock.
pub const TRUST_FILE: &str = "flowcell.trust.yaml";
/// Maximum size in bytes of a lock or a file with trusted signers.
pub const MAX_FILE: u64 = 4 << 20;
/// Maximum size in bytes of a signature in a file.
pub const MAX_SIGNATURE: usize = 1_024;
