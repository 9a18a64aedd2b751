//! What keeps runs: memory, a folder that this process owns, or a server that it shares.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_runtime::{
    memory::{LocalLeases, MemoryBlobs, MemoryCache, MemoryJournal, MemoryRegistry, MemoryState},
    ports::{Blobs, CacheStore, Journal, Leases, Registry, Sessions, StateStore},
    server::{Options, ServerStore},
    sqlite::{Reader, SqliteStore, stop_process},
};

use crate::{host::error::Error, operate::vault::Keeping};

/// A test mode: what nobody waits for is not written, so that killing the process loses all that may be lost.
const HOLD_BACK: &str = "FLOWCELL_TEST_HOLD_BACK";

/// Where runs are kept.
#[derive(Default)]
pub(super) enum Where {
    /// They are gone with the process.
    #[default]
    Memory,
    /// In a folder that this process owns.
    Folder(PathBuf),
    /// In a store that another process may own; nothing can be run.
    Beside(Arc<Reader>),
    /// On a server, beside other processes.
    Server(String),
}

impl Where {
    /// Where the key of the secrets is if nobody gives one.
    pub(super) fn keeping(&self) -> Keeping {
        match self {
            Where::Memory => Keeping::Memory,
            Where::Folder(folder) => Keeping::Beside(folder.clone()),
            Where::Beside(_) | Where::Server(_) => Keeping::Missing,
        }
    }
}

/// What keeps runs.
pub(super) struct Stores {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) state: Arc<dyn StateStore>,
    pub(super) blobs: Arc<dyn Blobs>,
    pub(super) leases: Arc<dyn Leases>,
    pub(super) cache: Arc<dyn CacheStore>,
    pub(super) sessions: Arc<dyn Sessions>,
    pub(super) registry: Arc<dyn Registry>,
    pub(super) store: Option<Arc<SqliteStore>>,
    pub(super) shared: Option<Arc<ServerStore>>,
}

impl Stores {
    pub(super) fn open(place: Where) -> Result<Stores, Error> {
        let journal = Arc::new(MemoryJournal::default());
        let memory = Stores {
            journal: journal.clone(),
            sessions: journal,
            registry: Arc::new(MemoryRegistry::default()),
            state: Arc::new(MemoryState::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            leases: Arc::new(LocalLeases::default()),
            cache: Arc::new(MemoryCache::default()),
            store: None,
            shared: None,
        };
        Ok(match place {
            Where::Memory => memory,
            Where::Beside(reader) => {
                let (journal, sessions, registry) = (reader.clone(), reader.clone(), reader.clone());
                Stores { journal, sessions, registry, blobs: Arc::new(MemoryBlobs::over(reader)), ..memory }
            }
            Where::Folder(folder) => Stores::embedded(&folder, memory)?,
            Where::Server(url) => {
                let store = Arc::new(ServerStore::open(&url, Options::default()).map_err(Error::Server)?);
                Stores {
                    journal: store.clone(),
                    state: store.clone(),
                    blobs: store.clone(),
                    leases: store.clone(),
                    cache: store.clone(),
                    sessions: store.clone(),
                    registry: store.clone(),
                    store: None,
                    shared: Some(store),
                }
            }
        })
    }

    fn embedded(folder: &Path, memory: Stores) -> Result<Stores, Error> {
        let store = Arc::new(SqliteStore::open(folder, stop_process).map_err(Error::Store)?);
        if std::env::var_os(HOLD_BACK).is_some() {
            store.hold_back();
        }
        let (journal, state, blobs, sessions) = (store.clone(), store.clone(), store.clone(), store.clone());
        let registry = store.clone();
        Ok(Stores { journal, state, blobs, sessions, registry, store: Some(store), ..memory })
    }
}
