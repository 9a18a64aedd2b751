//! Packs of others: brought from files, URLs and registries, pinned by `flowcell.lock`, and loaded from a store by what they are.
//!
//! To install a pack reads it and runs nothing of it, nor compiles it. The lock says what was installed: the digest of each pack,
//! what it asks for, and who has signed it. Whoever has the lock gets the same bytes or an error.
//!
//! | room | what it is |
//! |---|---|
//! | id | a pack's name and version |
//! | lock | `flowcell.lock` |
//! | store | the packs themselves, by their digests |
//! | asks | what a pack asks for, and what another version asks for beyond it |
//! | source | where packs come from |
//! | bring | getting them from there |
//! | install | deciding about what has come |
//! | loading | what a host loads of a lock |
//! | signature | keys, and what they sign |
//! | trust | whose signatures count |
//! | yaml | documents with the place of what is wrong in them |
//! | error | what can go wrong |

mod asks;
mod bring;
mod error;
mod id;
mod install;
mod loading;
mod lock;
mod signature;
mod source;
mod store;
mod trust;
mod yaml;

pub(crate) use self::loading::{LockedPack, locked_packs};
pub use self::{
    asks::{Asks, Difference},
    bring::{Carrier, signature_file},
    error::InstallError,
    id::PackId,
    install::{Arrival, Candidate, Installer},
    lock::{Lock, Locked},
    signature::{PackKey, PublicKey, Signature},
    source::Source,
    store::PackStore,
    trust::{Signer, Trust},
};

/// The file that pins packs, in the folder in which flows are run.
pub const LOCK_FILE: &str = "flowcell.lock";
/// The file that says whose signatures count, beside it.
pub const TRUST_FILE: &str = "flowcell.trust.yaml";
/// Bytes of a lock, or of a file that says whose signatures count.
pub const MAX_FILE: u64 = 4 << 20;
/// Bytes of a signature in a file.
pub const MAX_SIGNATURE: usize = 1_024;
