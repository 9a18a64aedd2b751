//! The errors of third-party packs.

use std::{io, path::PathBuf};

use flowcell_contract::{Digest, Failure};
use flowcell_engine::PackErrorKind;
use flowcell_services::code;

use super::{Difference, PackId};

/// An error of installing, publishing or loading a pack.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Another process has changed a file meanwhile.
    #[error("another command has changed {} meanwhile, so it was not written", path.display())]
    Overtaken {
        /// The path of the file.
        path: PathBuf,
    },
    /// A document has an error.
    #[error("{}: {why}", path.display())]
    Document {
        /// The path of the document.
        path: PathBuf,
        /// The error with its place.
        why: String,
    },
    /// The folder for packs cannot be determined.
    #[error("the folder for packs is unknown: set FLOWCELL_CACHE or HOME")]
    NoStore,
    /// A key cannot be used.
    #[error("cannot use the key that signs packs: {0}")]
    Key(String),
    /// The source of a pack is invalid.
    #[error("{0}")]
    Source(String),
    /// The source has no pack.
    #[error("{0} does not exist")]
    Nothing(String),
    /// The fetched file is not a pack that a host accepts.
    #[error("the pack from {origin} is refused")]
    Refused {
        /// The source of the file.
        origin: String,
        /// The reason of the refusal.
        source: PackErrorKind,
    },
    /// The source has another pack than the caller asked for.
    #[error("{origin} has {found}, not {wanted}")]
    Other {
        /// The requested pack or version.
        wanted: String,
        /// The source of the pack.
        origin: String,
        /// The pack that the source has.
        found: PackId,
    },
    /// The source now has other bytes for a version that is already installed.
    #[error("{id} has changed: the lock file pins {locked}, but {origin} has {found}")]
    Changed {
        /// The name and version of the pack.
        id: PackId,
        /// The source of the pack.
        origin: String,
        /// The digest of the installed pack.
        locked: Digest,
        /// The digest of the fetched pack.
        found: Digest,
    },
    /// The registry already has this version with other bytes.
    #[error("{reference} is already published as {there}; this pack is {here}")]
    Published {
        /// The reference in the registry.
        reference: String,
        /// The digest in the registry.
        there: String,
        /// The digest of the pack to publish.
        here: Digest,
    },
    /// The pack requests more than the installed version.
    #[error("{id} needs more capabilities than {than}")]
    AsksMore {
        /// The name and version of the new pack.
        id: PackId,
        /// The version that is installed.
        than: PackId,
        /// The additional requests.
        difference: Difference,
    },
    /// The signature is missing or not trusted.
    #[error("{id} is not trusted: {why}")]
    Untrusted {
        /// The name and version of the pack.
        id: PackId,
        /// The reason, as a sentence.
        why: String,
    },
    /// The store does not have the pinned pack.
    #[error("{id} is in the lock file, but not downloaded ({digest})")]
    Missing {
        /// The name and version of the pack.
        id: PackId,
        /// The pinned digest.
        digest: Digest,
    },
    /// The file in the store was changed.
    #[error("{id} was changed in the store: the lock file pins {locked}, but {} is {found}", path.display())]
    Damaged {
        /// The name and version of the pack.
        id: PackId,
        /// The path of its file.
        path: PathBuf,
        /// The pinned digest.
        locked: Digest,
        /// The digest of the file.
        found: Digest,
    },
    /// An index is not valid, or does not have the pack.
    #[error("the index: {0}")]
    Index(String),
    /// The source has other bytes than an index says.
    #[error("{id} from {origin} is {found}, but the index says {indexed}")]
    Poisoned {
        /// The name and version of the pack.
        id: PackId,
        /// The source of the pack.
        origin: String,
        /// The digest in the index.
        indexed: String,
        /// The digest of the fetched pack.
        found: Digest,
    },
    /// The entry of an index has another value than the pack, whose bytes are those of the entry.
    #[error(
        "{id} from {origin} is not as the index says: `{member}` is {indexed} in the index, and {found} in the pack"
    )]
    Misdescribed {
        /// The name and version of the pack.
        id: PackId,
        /// The source of the pack.
        origin: String,
        /// The member that differs.
        member: String,
        /// The value in the index.
        indexed: String,
        /// The value of the pack.
        found: String,
    },
    /// An index is older than the last one of its place, or another person has signed it.
    #[error("the index {place} is refused: {why}")]
    Older {
        /// The place of the index.
        place: String,
        /// The reason, as a sentence.
        why: String,
    },
    /// The source needs a connection, but the client is offline.
    #[error("{0} is not downloaded, and `--offline` forbids connections")]
    Offline(String),
    /// A registry or another server refuses the request.
    #[error("{}", .0.message)]
    Outside(Failure),
}

impl InstallError {
    /// Returns true if there is nothing at the source.
    pub fn is_nothing(&self) -> bool {
        match self {
            InstallError::Nothing(_) => true,
            InstallError::Outside(failure) => failure.code == code::REGISTRY_NOT_FOUND,
            _ => false,
        }
    }

    /// Returns advice for the user.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            InstallError::Document { .. } => {
                "create a lock file with `flowcell node install`; `flowcell help packs` shows a trust file"
            }
            InstallError::Changed { .. } => {
                "versions never change: ask the publisher for a new version, or remove the installed one with \
                 `flowcell node uninstall`"
            }
            InstallError::Overtaken { .. } => "run the command again",
            InstallError::Published { .. } => "versions never change: choose a new version in the pack's manifest",
            InstallError::AsksMore { .. } => {
                "install it with `--approve`; a node still gets only the capabilities that a flow grants it"
            }
            InstallError::Untrusted { .. } => {
                "the trust file (`--trust`) lists the trusted keys and the names that they may sign"
            }
            InstallError::Poisoned { .. } => {
                "the pack was changed after the index was built, or one of the two is forged: ask the publisher of the index"
            }
            InstallError::Misdescribed { .. } => {
                "ask the publisher of the index to build it again; to install the pack as it is, name its source in place of \
                 `--index`"
            }
            InstallError::Older { .. } => {
                "an old index hides later versions: ask its publisher for the current one; to accept this one on purpose, \
                 add `--accept-index`"
            }
            InstallError::Missing { .. } | InstallError::Damaged { .. } => "download it with `flowcell node install`",
            InstallError::Refused { .. } => {
                "build a pack with `flowcell node build`; native code and core modules are not packs"
            }
            InstallError::Outside(failure) if failure.code == code::REGISTRY_DENIED => {
                "FLOWCELL_REGISTRY_USER and FLOWCELL_REGISTRY_PASSWORD are only for the registry of `--registry` or \
                 FLOWCELL_REGISTRY; for others use `docker login`"
            }
            _ => return None,
        })
    }
}
