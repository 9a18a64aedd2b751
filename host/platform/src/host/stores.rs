//! The stores of runs: memory, a folder that this process owns, or a server or a Restate cluster that it shares.

#[cfg(feature = "restate")]
mod cluster;
#[cfg(not(feature = "restate"))]
mod no_cluster;
#[cfg(not(feature = "shared-stores"))]
mod no_server;
#[cfg(feature = "shared-stores")]
mod server;

#[cfg(not(feature = "restate"))]
use no_cluster as cluster;
#[cfg(not(feature = "shared-stores"))]
use no_server as server;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flowcell_runtime::{
    memory::{LocalLeases, MemoryBlobs, MemoryCache, MemoryDocuments, MemoryJournal, MemoryState},
    objects::{Access, Chosen, Location, Objects, ObjectsError},
    ports::{Blobs, CacheStore, DocumentStore, Erase, Inbox, Journal, Leases, Sessions, StateStore, Sweep},
    rows::copy_and_check::CopyableStore,
    shared::SharedRuns,
    sqlite::{Reader, SqliteStore, stop_process},
};

use crate::{host::error::Error, operate::vault::KeyPlace};

/// The environment variable that turns on a test mode. In this mode, journal entries stay in memory until a driver
/// waits for them, so that a killed process loses as many entries as possible.
const HOLD_BACK: &str = "FLOWCELL_TEST_HOLD_BACK";

/// Opens the shared store at a URL for its runs.
pub fn open_shared_runs(url: &str) -> Result<Box<dyn SharedRuns>, Error> {
    if is_cluster(url) { cluster::open_runs(url) } else { server::open_runs(url) }
}

/// Returns whether a URL names a store on a Restate cluster, with or without the feature `restate`.
fn is_cluster(url: &str) -> bool {
    url.starts_with("restate:")
}

/// An error for the URL of a Restate cluster.
#[derive(Debug, thiserror::Error)]
enum ClusterRefusal {
    #[cfg_attr(feature = "restate", allow(dead_code, reason = "for builds without the feature"))]
    #[error(
        "this build lacks the feature `restate`; build it with `--features full`, or use a store in a folder with \
         `--state DIR`"
    )]
    FeatureMissing,
    #[error(
        "a store on a Restate cluster has no checks and no copies of the whole store; back up the cluster and its database \
         as `flowcell help cluster` says"
    )]
    Whole,
}

/// Opens the shared store at a URL for checks and copies of the whole store, with the object store that has its files.
pub fn open_whole_shared_store(url: &str, blobs: Chosen) -> Result<Box<dyn CopyableStore>, Error> {
    if is_cluster(url) {
        return Err(Error::Server(ClusterRefusal::Whole.into()));
    }
    server::open_whole(url, blobs)
}

/// Connects to the object store at an address such as `s3://BUCKET/PREFIX`, by the variables of the environment whose
/// names begin with `AWS_`. Without an address, it is the one that the store remembers.
pub fn choose_blobs(address: Option<&str>) -> Result<Chosen, Error> {
    let Some(address) = address.filter(|address| !address.is_empty()) else { return Ok(Chosen::Remembered) };
    let wrong = |error: &dyn std::fmt::Display| Error::Blobs(ObjectsError::Access(error.to_string()));
    let location = Location::parse(address).map_err(|error| wrong(&format!("`--blobs`: {error}")))?;
    let access = Access::read(|name| std::env::var(name).ok()).map_err(|error| wrong(&error))?;
    Ok(Chosen::Exactly(Some(Objects::connect(location, &access).map_err(Error::Blobs)?)))
}

/// The place of the store.
#[derive(Default)]
pub(super) enum StorePlace {
    /// In memory, until the process ends.
    #[default]
    Memory,
    /// In a folder that this process owns.
    Folder(PathBuf),
    /// In a store that another process may own; this process only reads it.
    Beside(Arc<Reader>),
    /// On a server or a cluster that other processes use too.
    Server(ServerPlace),
}

/// A store on a server.
#[cfg_attr(not(feature = "shared-stores"), allow(dead_code, reason = "a build without servers only refuses them"))]
pub(super) struct ServerPlace {
    pub(super) url: String,
    /// The maximum time to wait at the start for a server that does not answer. `None`: the default of the store.
    pub(super) start_patience: Option<Duration>,
    /// The file with the epoch that this process has seen last.
    pub(super) epoch_file: Option<PathBuf>,
}

impl StorePlace {
    /// Returns where the vault keeps its keys if the operator has configured none.
    pub(super) fn key_place(&self) -> KeyPlace {
        match self {
            StorePlace::Memory => KeyPlace::Memory,
            StorePlace::Folder(folder) => KeyPlace::Beside(folder.clone()),
            StorePlace::Beside(_) | StorePlace::Server(_) => KeyPlace::Missing,
        }
    }
}

/// The object store for the files of a store of runs.
#[derive(Default)]
pub(super) struct FilesPlace {
    /// The address, `s3://BUCKET/PREFIX`.
    pub(super) address: Option<String>,
    /// Whether a store of runs that has used an object store is refused without an address.
    pub(super) is_exact: bool,
}

impl FilesPlace {
    /// Returns the object store with which a process opens a store of runs.
    pub(super) fn choose(&self, place: &StorePlace) -> Result<Chosen, Error> {
        if matches!(place, StorePlace::Memory | StorePlace::Beside(_)) {
            return Ok(Chosen::Remembered);
        }
        match choose_blobs(self.address.as_deref())? {
            Chosen::Remembered if self.is_exact => Ok(Chosen::Exactly(None)),
            chosen => Ok(chosen),
        }
    }
}

/// An open store: its parts, each behind a trait of `flowcell_runtime::ports`.
pub(super) struct Stores {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) state: Arc<dyn StateStore>,
    pub(super) blobs: Arc<dyn Blobs>,
    pub(super) leases: Arc<dyn Leases>,
    pub(super) cache: Arc<dyn CacheStore>,
    pub(super) sessions: Arc<dyn Sessions>,
    pub(super) documents: Arc<dyn DocumentStore>,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) sweep: Arc<dyn Sweep>,
    pub(super) erase: Arc<dyn Erase>,
    pub(super) store: Option<Arc<SqliteStore>>,
    pub(super) shared: Option<Arc<dyn SharedRuns>>,
}

impl Stores {
    /// Opens a store, with the object store that has its files.
    pub(super) fn open(place: StorePlace, files: Chosen) -> Result<Stores, Error> {
        let journal = Arc::new(MemoryJournal::default());
        let memory = Stores {
            journal: journal.clone(),
            sessions: journal.clone(),
            inbox: journal.clone(),
            sweep: journal.clone(),
            erase: journal,
            documents: Arc::new(MemoryDocuments::default()),
            state: Arc::new(MemoryState::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            leases: Arc::new(LocalLeases::default()),
            cache: Arc::new(MemoryCache::default()),
            store: None,
            shared: None,
        };
        Ok(match place {
            StorePlace::Memory => memory,
            StorePlace::Beside(reader) => {
                let (journal, sessions, documents) = (reader.clone(), reader.clone(), reader.clone());
                Stores { journal, sessions, documents, blobs: Arc::new(MemoryBlobs::over(reader)), ..memory }
            }
            StorePlace::Folder(folder) => Stores::open_folder(&folder, &files, memory)?,
            StorePlace::Server(place) if is_cluster(&place.url) => cluster::open(place, files)?,
            StorePlace::Server(place) => server::open(place, files)?,
        })
    }

    fn open_folder(folder: &Path, files: &Chosen, memory: Stores) -> Result<Stores, Error> {
        let store = Arc::new(SqliteStore::open_with(folder, stop_process, files).map_err(Error::Store)?);
        if std::env::var_os(HOLD_BACK).is_some() {
            store.hold_back();
        }
        let (journal, state, blobs, sessions) = (store.clone(), store.clone(), store.clone(), store.clone());
        let (documents, inbox, sweep, erase) = (store.clone(), store.clone(), store.clone(), store.clone());
        Ok(Stores { journal, state, blobs, sessions, documents, inbox, sweep, erase, store: Some(store), ..memory })
    }
}
