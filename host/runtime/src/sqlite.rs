//! The embedded store: one SQLite file with one owner and one writer.
//!
//! | module | content |
//! |---|---|
//! | `units` | the journals of runs |
//! | `runs`, `search` | the rows of runs, lists of them, and the columns that lists search |
//! | `state` | state of flows |
//! | `blobs` | blobs, and the large values that rows refer to |
//! | `large` | large files beside the database |
//! | `place` | the place of the large files: a folder, or an object store |
//! | `upload` | large files that go to an object store |
//! | `inbox` | none: one process drives all runs |
//! | `documents` | the documents of operators |
//! | `sessions` | sessions and step states |
//! | `sweep` | the removal of runs, and of blobs that nothing refers to |
//! | `erase` | the removal of a tenant |
//! | `compact` | the compaction of the file |
//! | `copy_and_check` | checks of the whole store, and copies |
//! | `backup` | copies of the database beside a process that uses it |
//! | `epoch` | the detection of a database that was restored from an older copy |
//! | `unit_index` | the index of units by run |
//! | `private` | files that only their owner may use |
//! | `room` | the free room of the disk |
//! | `queue`, `writer` | the items for the writer, and the writer |
//! | `reader` | the connection that reads |
//! | `schema`, `backfill` | the tables, and upgrades of older files |
//!
//! The writer writes entries in the order of the appends, and a commit is all or nothing. So the durable part is a
//! prefix of the appends, over all runs together. `synchronous=FULL` makes a commit wait for the disk. When a commit
//! fails, the content of the disk is unknown: the process stops, and the next one reads the file.

mod backfill;
mod backup;
mod blobs;
mod compact;
mod copy_and_check;
mod documents;
mod epoch;
mod erase;
mod inbox;
mod large;
mod place;
pub(crate) mod private;
mod queue;
mod reader;
mod room;
mod runs;
mod schema;
mod search;
mod sessions;
mod state;
mod sweep;
mod unit_index;
mod units;
mod upload;
mod writer;

use std::{
    collections::{HashMap, HashSet},
    fs::TryLockError,
    io::{Read, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use flowcell_contract::{BlobRef, Failure, Tenant, Value, host_files::STORE_FILE as FILE};
use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;

use crate::{
    file_lock::FileLock,
    objects::{Chosen, ObjectsError},
    pieces::LargeFile,
    ports::StoreError,
};
pub use backup::{BackupError, NewCopy};
pub use compact::Compacted;
use documents::Remembered;
use epoch::Epoch;
use large::{LargeFiles, NamelessFile};
use place::ClaimError;
use queue::{Item, Queue};
pub use reader::Reader;
use room::RoomWatch;
pub use room::{FreeRoom, release_reserve};
use state::StateKey;
use sweep::Recent;
use writer::Writer;

/// The file that the owner keeps locked.
const LOCK: &str = "owner.lock";

/// An error of opening a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// Another process owns the store.
    #[error("another process ({owner}) uses the store {}", .path.display())]
    Owned {
        /// The folder of the store.
        path: PathBuf,
        /// The text that the owner wrote about itself.
        owner: String,
    },
    /// The folder has no store.
    #[error("the folder {} has no store", .0.display())]
    Missing(PathBuf),
    /// A later version of Flowcell wrote the store.
    #[error(
        "the store {} has version {found}, but this version of Flowcell reads at most {known}: use the version that wrote \
         it, or a later one",
        .path.display()
    )]
    Newer {
        /// The folder of the store.
        path: PathBuf,
        /// The version of the store.
        found: u32,
        /// The latest known version.
        known: u32,
    },
    /// The files of the store are in an object store that cannot be used, or they are not where they were looked for.
    #[error("cannot open the store {}: {error}", .path.display())]
    Objects {
        /// The folder of the store.
        path: PathBuf,
        /// The reason.
        error: ObjectsError,
    },
    /// The folder or a file in it cannot be used.
    #[error("cannot use the store {}: {error}", .path.display())]
    Unusable {
        /// The folder of the store.
        path: PathBuf,
        /// The message of the system or of SQLite.
        error: String,
    },
}

/// The reaction to a failed commit, or to a database that cannot be read while a run is driven.
pub type OnFailure = fn(&StoreError);

/// A store that this process owns.
pub struct SqliteStore {
    queue: Arc<Queue>,
    reader: Reader,
    remembered: Remembered,
    /// Held while a document is written, and taken alone by the removal of a tenant.
    document_writes: RwLock<()>,
    visible: Arc<Mutex<Visible>>,
    writer: Arc<Mutex<Writer>>,
    writing: Option<JoinHandle<()>>,
    on_failure: OnFailure,
    folder: PathBuf,
    large: LargeFiles,
    room: Mutex<Option<RoomWatch>>,
    /// The file that stays locked until the store is dropped.
    _owner: FileLock,
}

/// The values that this process sees before they are durable, and the blobs that its texts may soon refer to.
#[derive(Default)]
struct Visible {
    state: HashMap<StateKey, (Value, u64)>,
    blobs: HashMap<(Tenant, Arc<str>), Arc<[u8]>>,
    large: HashMap<(Tenant, Arc<str>), LargeFile>,
    recent: Recent,
    /// The tenants that are being removed, or were removed. Writes for them are refused.
    erased: HashSet<Tenant>,
}

/// Logs or prints the error and ends the process, because the content of the disk is unknown.
pub fn stop_process(error: &StoreError) {
    if tracing::enabled!(target: "flowcell::store", tracing::Level::ERROR) {
        tracing::error!(target: "flowcell::store", %error, "the store failed, so nothing more is acknowledged");
    } else {
        eprintln!("flowcell: the store failed, so nothing more is acknowledged: {error}");
    }
    std::process::exit(STOPPED);
}

/// The exit code of a process that could not write its store.
pub const STOPPED: i32 = 74;

impl SqliteStore {
    /// Opens the store in a folder as its owner. Creates the folder and the store if they are missing. Fails if the
    /// store has its large files in an object store.
    pub fn open(folder: &Path, on_failure: OnFailure) -> Result<SqliteStore, OpenStoreError> {
        SqliteStore::open_with(folder, on_failure, &Chosen::Exactly(None))
    }

    /// Opens the store in a folder as its owner, with the object store that has its large files from now on.
    pub fn open_with(folder: &Path, on_failure: OnFailure, objects: &Chosen) -> Result<SqliteStore, OpenStoreError> {
        let unusable = |error: &dyn std::fmt::Display| OpenStoreError::Unusable {
            path: folder.to_owned(),
            error: error.to_string(),
        };
        private::make_folder(folder).map_err(|error| unusable(&error))?;
        let owner = lock_owner_file(folder)?;
        let file = folder.join(FILE);
        // SQLite gives the files beside the database the same mode.
        private::make_file(&file).map_err(|error| unusable(&error))?;
        let (mut connection, found) = connect_upgraded(&file).map_err(|error| unusable(&error))?;
        if found > schema::VERSION {
            return Err(OpenStoreError::Newer { path: folder.to_owned(), found, known: schema::VERSION });
        }
        let place = place::claim(&connection, objects).map_err(|error| match error {
            ClaimError::Objects(error) => OpenStoreError::Objects { path: folder.to_owned(), error },
            ClaimError::Database(error) => unusable(&error),
        })?;
        let mut reader = Reader::open(folder)?;
        let (queue, visible) = (Arc::new(Queue::default()), Arc::new(Mutex::new(Visible::default())));
        let epoch = Epoch::open(&mut connection, folder).map_err(|error| unusable(&error))?;
        let large = LargeFiles::of(folder, place);
        reader.1 = large.clone();
        large.clean(&connection).map_err(|error| unusable(&error))?;
        let writer = Writer::new(connection, epoch, queue.clone(), (visible.clone(), large.clone()), on_failure);
        let writer = Arc::new(Mutex::new(writer));
        let thread = std::thread::Builder::new().name("flowcell-store".into());
        let writing = (writer.clone(), queue.clone());
        let writing = thread.spawn(move || Writer::run(&writing.0, &writing.1)).map_err(|error| unusable(&error))?;
        let remembered = Remembered::default();
        Ok(SqliteStore {
            queue,
            reader,
            remembered,
            document_writes: RwLock::default(),
            visible,
            writer,
            writing: Some(writing),
            on_failure,
            folder: folder.to_owned(),
            large,
            room: Mutex::default(),
            _owner: owner,
        })
    }

    /// Keeps entries in memory until a driver waits for them, so that a killed process loses all entries that no driver
    /// waited for. For tests.
    pub fn hold_back(&self) {
        self.queue.hold_back();
    }

    /// Stores a blob. `hash` is the SHA-256 of the bytes, in hexadecimal.
    pub fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        let mut visible = self.visible.lock();
        visible.recent.add(Instant::now(), tenant, hash);
        visible.blobs.insert((tenant.clone(), hash.clone()), bytes.clone());
        drop(visible);
        self.queue.push(Item::Blob { tenant: tenant.clone(), hash: hash.clone(), bytes, mime: mime.into() });
    }

    /// Names a large file, and queues its row.
    fn keep_large(&self, tenant: &Tenant, mut file: NamelessFile, mime: &str) -> Result<BlobRef, Failure> {
        let (hash, row) = (file.hash.clone(), file.row.clone());
        let mut visible = self.visible.lock();
        if visible.erased.contains(tenant) {
            return Err(upload::removed(tenant));
        }
        // A sweep removes a file with the same lock, and only if its content was not put a short time ago.
        file.name(tenant)?;
        visible.recent.add(Instant::now(), tenant, &hash);
        drop(visible);
        file.sync_name(tenant)?;
        Ok(self.keep_row(tenant, hash, row, mime))
    }

    /// Queues the row of a large file.
    fn keep_row(&self, tenant: &Tenant, hash: Arc<str>, file: LargeFile, mime: &str) -> BlobRef {
        self.visible.lock().large.insert((tenant.clone(), hash.clone()), file.clone());
        let blob = BlobRef { file_id: hash.clone(), size: file.size, mime: mime.into() };
        self.queue.push(Item::Large { tenant: tenant.clone(), hash, file, mime: mime.into() });
        blob
    }

    /// Waits until all earlier writes are durable.
    pub fn settle(&self) -> Result<(), StoreError> {
        let (answer, answered) = mpsc::channel();
        self.queue.push(Item::Settle(answer));
        answered.recv().map_err(|_| StoreError::unavailable("the store accepts no more writes"))
    }

    /// Compacts the database file. Other writes wait meanwhile. It needs free room of up to twice the size of the data,
    /// and changes nothing if there is not enough.
    pub fn compact(&self) -> Result<Compacted, StoreError> {
        self.settle()?;
        let before = compact::size(&self.folder);
        self.writer.lock().compact()?;
        Ok(Compacted { before, after: compact::size(&self.folder) })
    }

    /// Watches the free room of the disk from now on, and keeps a reserve file. New runs need `least` bytes of room.
    pub fn watch_room(&self, least: u64) {
        let mut watch = RoomWatch::new(self.folder.clone(), least);
        watch.room(Instant::now());
        *self.room.lock() = Some(watch);
    }

    /// Returns the free room of the disk. Returns `None` if it is not watched, or if the system does not tell it.
    pub fn room(&self) -> Option<FreeRoom> {
        self.room.lock().as_mut()?.room(Instant::now())
    }

    /// Returns the number of commits. All entries of one commit wait for the disk together.
    pub fn commits(&self) -> u64 {
        self.queue.commits()
    }

    /// Makes every commit last longer by this duration, as on a slower disk. For measurements.
    pub fn slow_down(&self, each: Duration) {
        self.queue.slow_down(each);
    }

    /// Returns the number of runs that were parked at the opening, because the database was restored from an older
    /// copy.
    pub fn restored(&self) -> usize {
        self.writer.lock().epoch.parked
    }

    /// Returns the reader, which shows only durable data.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}

/// Opens the file for its owner, and upgrades an older one. Returns the version of the file after that.
fn connect_upgraded(file: &Path) -> Result<(Connection, u32), rusqlite::Error> {
    let mut connection = schema::connect(file)?;
    let found = schema::migrate(&mut connection, backfill::fill_searched_columns)?;
    Ok((connection, found))
}

/// Locks the owner's file, and writes the id of this process into it.
fn lock_owner_file(folder: &Path) -> Result<FileLock, OpenStoreError> {
    let path = folder.join(LOCK);
    let unusable =
        |error: std::io::Error| OpenStoreError::Unusable { path: folder.to_owned(), error: error.to_string() };
    let mut file = match FileLock::try_lock(private::open_lock(&path).map_err(unusable)?) {
        Ok(file) => file,
        Err((mut file, TryLockError::WouldBlock)) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            let owner = if owner.is_empty() { "unknown".into() } else { owner };
            return Err(OpenStoreError::Owned { path: folder.to_owned(), owner });
        }
        Err((_, TryLockError::Error(error))) => return Err(unusable(error)),
    };
    file.set_len(0).map_err(unusable)?;
    write!(file, "process {}", std::process::id()).map_err(unusable)?;
    Ok(file)
}

/// Removes the folder of a store, with everything in it. Does nothing if the folder is missing. Fails if a process owns
/// the store.
pub fn remove_store(folder: &Path) -> Result<(), OpenStoreError> {
    if !folder.exists() {
        return Ok(());
    }
    // No process opens the store before it is gone.
    let _owner = lock_owner_file(folder)?;
    std::fs::remove_dir_all(folder)
        .map_err(|error| OpenStoreError::Unusable { path: folder.to_owned(), error: error.to_string() })
}

impl Drop for SqliteStore {
    /// Writes the queued items.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}
