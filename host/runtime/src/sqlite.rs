//! The embedded store: one SQLite file, one owner, one writer.
//!
//! | room | what it is |
//! |---|---|
//! | `schema` | the tables, and how an older file becomes a newer one |
//! | `queue` | what waits for the writer |
//! | `writer` | what writes: it commits as soon as it is idle, all that is queued |
//! | `places` | where the units of a run are |
//! | `stored` | rows as they were written: whether they are whole, and what they say |
//! | `epoch` | whether the database was brought back from an older copy |
//! | `registry` | what operators keep beside the runs |
//! | `sessions` | sessions and the states of steps, written with the facts that they follow from |
//! | `sweep` | blobs that nothing names any more |
//! | `whole` | the store as a whole, to be looked through and copied |
//! | `reader` | everything that is read, always of the durable prefix |
//!
//! The writer takes entries in the order of the appends and a commit is all or nothing, so that what is durable is a
//! prefix of what was appended, over all runs together. `synchronous=FULL` makes a commit wait for the disk. When a commit
//! fails, nobody can say what the disk holds: the process stops, and the next one reads what is there.

mod epoch;
mod places;
mod private;
mod queue;
mod reader;
mod registry;
mod row;
mod schema;
mod sessions;
mod stored;
mod sweep;
mod whole;
mod writer;

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    io::{Read, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use flowcell_contract::{BlobRef, Failure, RunId, Tenant, Value, places::STORE_FILE as FILE};
use parking_lot::Mutex;

use crate::rows::cut;
pub use crate::rows::{Filter, RunRow, Swept};
use crate::{
    fact::Write,
    memory::{blob_ref, number},
    ports::{Blobs, Entry, Journal, Record, StageError, Staged, StateStore, StoreError, Unit},
};
use epoch::Epoch;
use queue::{Item, Queue};
pub use reader::Reader;
use reader::Unread;
use registry::Remembered;
use sweep::Recent;
use writer::Writer;

/// The name of the file that its owner holds locked.
const LOCK: &str = "owner.lock";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// Another process owns it.
    #[error("another process ({owner}) uses the store {}", .path.display())]
    Owned {
        /// The store's folder.
        path: PathBuf,
        /// What the owner wrote about itself.
        owner: String,
    },
    /// There is no store.
    #[error("there is no store in {}", .0.display())]
    Missing(PathBuf),
    /// A later version of Flowcell wrote it.
    #[error("the store {} has version {found}, and this Flowcell reads up to {known}", .path.display())]
    Newer {
        /// The store's folder.
        path: PathBuf,
        /// The version that it has.
        found: u32,
        /// The latest that is known.
        known: u32,
    },
    /// The folder or a file in it cannot be used.
    #[error("cannot use the store {}: {error}", .path.display())]
    Unusable {
        /// The store's folder.
        path: PathBuf,
        /// Why.
        error: String,
    },
}

/// What happens when a commit fails, or the database cannot be read while a run goes on.
pub type OnFailure = fn(&StoreError);

/// The store, owned by this process.
pub struct SqliteStore {
    queue: Arc<Queue>,
    reader: Reader,
    remembered: Remembered,
    visible: Arc<Mutex<Visible>>,
    writer: Arc<Mutex<Writer>>,
    writing: Option<JoinHandle<()>>,
    on_failure: OnFailure,
    /// Held locked until the store is dropped.
    _owner: File,
}

type StateKey = (Tenant, String, String);

/// What this process sees though it is not durable yet, and what it may name.
#[derive(Default)]
struct Visible {
    state: HashMap<StateKey, (Value, u64)>,
    blobs: HashMap<(Tenant, Arc<str>), Arc<[u8]>>,
    recent: Recent,
}

/// Tells what happened and ends the process: what is on disk is not known any more.
pub fn stop_process(error: &StoreError) {
    eprintln!("flowcell: the store fails, and nothing is acknowledged any more: {error}");
    std::process::exit(STOPPED);
}

/// The exit code of a process that could not write its store.
pub const STOPPED: i32 = 74;

impl SqliteStore {
    /// Opens the store in a folder, which is made if it is missing, and becomes its owner.
    pub fn open(folder: &Path, on_failure: OnFailure) -> Result<SqliteStore, OpenStoreError> {
        let unusable = |error: &dyn std::fmt::Display| OpenStoreError::Unusable {
            path: folder.to_owned(),
            error: error.to_string(),
        };
        private::make_folder(folder).map_err(|error| unusable(&error))?;
        let owner = own(folder)?;
        let file = folder.join(FILE);
        // The files that SQLite puts beside it have the same mode.
        private::make_file(&file).map_err(|error| unusable(&error))?;
        let mut connection = schema::connect(&file).map_err(|error| unusable(&error))?;
        let found = schema::migrate(&mut connection).map_err(|error| unusable(&error))?;
        if found > schema::VERSION {
            return Err(OpenStoreError::Newer { path: folder.to_owned(), found, known: schema::VERSION });
        }
        let reader = Reader::open(folder)?;
        let (queue, visible) = (Arc::new(Queue::default()), Arc::new(Mutex::new(Visible::default())));
        let epoch = Epoch::open(&mut connection, folder).map_err(|error| unusable(&error))?;
        let writer = Writer::new(connection, epoch, queue.clone(), visible.clone(), on_failure);
        let writer = Arc::new(Mutex::new(writer));
        let thread = std::thread::Builder::new().name("flowcell-store".into());
        let writing = (writer.clone(), queue.clone());
        let writing = thread.spawn(move || Writer::run(&writing.0, &writing.1)).map_err(|error| unusable(&error))?;
        let remembered = Remembered::default();
        Ok(SqliteStore {
            queue,
            reader,
            remembered,
            visible,
            writer,
            writing: Some(writing),
            on_failure,
            _owner: owner,
        })
    }

    /// Writes nothing any more that nobody waits for, so that a process that is killed loses all that it may lose. For
    /// tests: what is held back is held in memory.
    pub fn hold_back(&self) {
        self.queue.hold_back();
    }

    /// Removes the facts of a run that is over, and of the runs below it. Its id is not used again.
    pub fn forget(&self, tenant: &Tenant, run: &RunId) {
        self.queue.push(Item::Forget { tenant: tenant.clone(), run: run.clone() });
    }

    /// Removes the blobs that nothing names: neither a run that is kept, nor state, nor another blob that is named. Those
    /// that this process has put in the last [`SPARED_MS`](crate::limits::SPARED_MS) are spared, as it may be about to
    /// name them. Waits until it is done; what was forgotten before counts as gone.
    pub fn sweep(&self, tenant: &Tenant) -> Result<Swept, StoreError> {
        let (told, answer) = mpsc::channel();
        self.queue.push(Item::Sweep { tenant: tenant.clone(), told });
        self.queue.force();
        answer.recv().map_err(|_| StoreError("the store is not written any more".into()))
    }

    /// Waits until everything that was handed over before is durable.
    pub fn settle(&self) -> Result<(), StoreError> {
        let (told, answer) = mpsc::channel();
        self.queue.push(Item::Settle(told));
        self.queue.force();
        answer.recv().map_err(|_| StoreError("the store is not written any more".into()))
    }

    /// How many commits there were. Everything that one commit makes durable has waited for the disk together.
    pub fn commits(&self) -> u64 {
        self.queue.commits()
    }

    /// Has every commit take so much longer, as on a slower disk: to measure what a run waits for.
    pub fn slow_down(&self, each: Duration) {
        self.queue.slow_down(each);
    }

    /// How many runs were parked when it was opened, since the database was brought back from an older copy.
    pub fn restored(&self) -> usize {
        self.writer.lock().epoch.held
    }

    /// What is durable.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}

/// Locks the owner's file, and says in it who the owner is.
fn own(folder: &Path) -> Result<File, OpenStoreError> {
    let path = folder.join(LOCK);
    let unusable =
        |error: std::io::Error| OpenStoreError::Unusable { path: folder.to_owned(), error: error.to_string() };
    let mut file = private::open_lock(&path).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            let owner = if owner.is_empty() { "unknown".into() } else { owner };
            return Err(OpenStoreError::Owned { path: folder.to_owned(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(unusable(error)),
    }
    file.set_len(0).map_err(unusable)?;
    write!(file, "process {}", std::process::id()).map_err(unusable)?;
    Ok(file)
}

impl Drop for SqliteStore {
    /// Writes what is queued.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}

impl Journal for SqliteStore {
    fn append(&self, entry: Entry) {
        self.queue.push(Item::Entry(entry));
    }

    fn force(&self) {
        self.queue.force();
    }

    fn force_here(&self) {
        match self.writer.try_lock() {
            Some(mut writer) => writer.write(),
            // Somebody writes, and looks for more afterwards.
            None => self.queue.force(),
        }
    }

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.reader.left_below(tenant, run)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.reader.children(tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.reader.find(tenant, run)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        self.reader.units(tenant, run, from, limit)
    }
}

impl StateStore for SqliteStore {
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        self.seen(&self.visible.lock(), tenant, flow, key)
    }

    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let mut visible = self.visible.lock();
        let stored = |key: &str| Ok(self.seen(&visible, tenant, flow, key)?.map_or(0, |(_, version)| version));
        let staged = number(flow, writes, stored)?;
        for (write, version) in &staged.writes {
            let key = (tenant.clone(), flow.to_string(), write.key.clone());
            visible.state.insert(key, (write.value.clone(), *version));
        }
        Ok(staged)
    }
}

impl SqliteStore {
    fn seen(
        &self,
        visible: &Visible,
        tenant: &Tenant,
        flow: &str,
        key: &str,
    ) -> Result<Option<(Value, u64)>, StoreError> {
        match visible.state.get(&(tenant.clone(), flow.to_owned(), key.to_owned())) {
            Some(found) => Ok(Some(found.clone())),
            None => self.reader.state(tenant, flow, key).map_err(|unread| match unread {
                Unread::Value(error) => error,
                // What happened is on a disk that cannot be read: no run may go on, or fail, as if it were known.
                Unread::Database(error) => {
                    let error = StoreError(format!("it cannot be read: {error}").into());
                    (self.on_failure)(&error);
                    error
                }
            }),
        }
    }
}

impl SqliteStore {
    /// Keeps bytes of which the caller knows the SHA-256, in hexadecimal.
    pub fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        let mut visible = self.visible.lock();
        visible.recent.add(Instant::now(), tenant, hash);
        visible.blobs.insert((tenant.clone(), hash.clone()), bytes.clone());
        drop(visible);
        self.queue.push(Item::Blob { tenant: tenant.clone(), hash: hash.clone(), bytes, mime: mime.into() });
    }
}

impl Blobs for SqliteStore {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        self.keep(tenant, &blob.file_id, bytes, mime);
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let visible = self.visible.lock().blobs.get(&(tenant.clone(), blob.file_id.clone())).cloned();
        match visible {
            Some(bytes) => Ok(Some(bytes)),
            None => Ok(self.reader.blob(tenant, &blob.file_id)?),
        }
    }
}
