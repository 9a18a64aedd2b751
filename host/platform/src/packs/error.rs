//! What can go wrong with packs of others.

use std::{io, path::PathBuf};

use flowcell_contract::{Digest, Failure};
use flowcell_engine::Refusal;
use flowcell_services::code;

use super::{Difference, PackId};

/// Why a pack was not installed, published or loaded.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A document is wrong.
    #[error("{}: {why}", path.display())]
    Document {
        /// Which.
        path: PathBuf,
        /// Where and what is wrong.
        why: String,
    },
    /// There is no folder for packs.
    #[error("there is no folder for packs: neither FLOWCELL_CACHE nor HOME is set")]
    NoStore,
    /// A key cannot be used.
    #[error("the key that signs packs: {0}")]
    Key(String),
    /// What is to be installed is named wrongly.
    #[error("{0}")]
    Source(String),
    /// There is nothing.
    #[error("there is nothing at {0}")]
    Nothing(String),
    /// What came is no pack that a host takes.
    #[error("what came from {origin} is refused")]
    Refused {
        /// Where it came from.
        origin: String,
        /// Why.
        source: Refusal,
    },
    /// Another pack came than was asked for.
    #[error("{wanted} was asked for, and {origin} has {found}")]
    Other {
        /// What was asked for.
        wanted: String,
        /// Where it came from.
        origin: String,
        /// What came.
        found: PackId,
    },
    /// The same version has other bytes than before.
    #[error("{id} has changed: the lock has {locked}, and {origin} has {found}")]
    Changed {
        /// The pack.
        id: PackId,
        /// Where it came from.
        origin: String,
        /// What was installed.
        locked: Digest,
        /// What came.
        found: Digest,
    },
    /// A version is to be published again with other bytes.
    #[error("{reference} is published already, as {there}; this pack is {here}")]
    Published {
        /// Where.
        reference: String,
        /// What is there.
        there: String,
        /// What is to be published.
        here: Digest,
    },
    /// It asks for more than the version that is installed.
    #[error("{id} asks for more than {than}")]
    AsksMore {
        /// The pack.
        id: PackId,
        /// The version that is installed.
        than: PackId,
        /// For what.
        difference: Difference,
    },
    /// Its signature does not suffice.
    #[error("{id} is not trusted: {why}")]
    Untrusted {
        /// The pack.
        id: PackId,
        /// Why.
        why: String,
    },
    /// The store does not have it.
    #[error("{id} is locked, and its bytes are not here ({digest})")]
    Missing {
        /// The pack.
        id: PackId,
        /// What it is.
        digest: Digest,
    },
    /// Somebody has changed the file in the store.
    #[error("{id} was changed in the store: the lock has {locked}, and {} is {found}", path.display())]
    Damaged {
        /// The pack.
        id: PackId,
        /// Its file.
        path: PathBuf,
        /// What was installed.
        locked: Digest,
        /// What is there.
        found: Digest,
    },
    /// No connection may be made.
    #[error("{0} is not here, and `--offline` makes no connection")]
    Offline(String),
    /// A registry, or another server, does not give it, or does not take it.
    #[error("{}", .0.message)]
    Outside(Failure),
}

impl InstallError {
    /// What to do about it.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            InstallError::Document { .. } => {
                "`flowcell node install` writes locks; `flowcell help packs` shows a file of trust"
            }
            InstallError::Changed { .. } => {
                "a version never changes: ask whoever publishes it for another one; `flowcell node uninstall` forgets what was installed"
            }
            InstallError::Published { .. } => "a version never changes: give the pack another one in its manifest",
            InstallError::AsksMore { .. } => {
                "`--approve` installs it nevertheless; a node still gets only what a flow grants it"
            }
            InstallError::Untrusted { .. } => {
                "the file of trust (`--trust`) says whose signatures count, for which names"
            }
            InstallError::Missing { .. } | InstallError::Damaged { .. } => "`flowcell node install` brings it",
            InstallError::Refused { .. } => "`flowcell node build` makes packs; native code and modules are none",
            InstallError::Outside(failure) if failure.code == code::REGISTRY_DENIED => {
                "FLOWCELL_REGISTRY_USER and FLOWCELL_REGISTRY_PASSWORD are shown to the registry of `--registry` or \
                 FLOWCELL_REGISTRY alone; `docker login` keeps others"
            }
            _ => return None,
        })
    }
}
