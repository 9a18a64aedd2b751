//! Large files: contents of more than a piece (1 MiB) that are written in parts. They lie in files beside the database, or
//! in an object store ([`upload`](super::upload)).
//!
//! The row of such a blob has no bytes of it, but the size of its file and the SHA-256 of each of its pieces. Every read
//! checks the pieces that it reads, so a damaged file is an error and never another content.
//!
//! A file is complete, and on stable storage, before it gets its name. The row follows, so no row refers to a missing
//! file. The removal takes the opposite order: the row goes first, and then the file. A crash leaves at most files
//! without rows, and unfinished ones; the next owner of the store removes both.

use std::{
    collections::HashSet,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use flowcell_contract::{BlobRef, BlobWriter, Failure, Tenant, code, host_files::LARGE_FILES_FOLDER as FOLDER};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{SqliteStore, private};
use crate::{
    file_lock::FileLock,
    objects::Place,
    pieces::{LargeFile, PIECE, Pieces},
};

/// The folder of unfinished files.
const UNFINISHED: &str = "unfinished";
/// The size of the part of a digest that names the folder of a tenant, in bytes.
const FOLDER_DIGEST_BYTES: usize = 16;

/// The large files of a store: their folder, and the object store that may have them instead.
#[derive(Clone)]
pub(super) struct LargeFiles {
    folder: PathBuf,
    pub(super) place: Place,
}

impl LargeFiles {
    /// Returns the large files of the store in this folder. The folder of the files need not exist.
    pub(super) fn of(store: &Path, place: Place) -> LargeFiles {
        LargeFiles { folder: store.join(FOLDER), place }
    }

    /// Returns the path of a file. Some file systems ignore case, so the name of a tenant is not the name of a folder.
    fn path(&self, tenant: &Tenant, hash: &str) -> PathBuf {
        self.folder_of(tenant).join(hash)
    }

    fn folder_of(&self, tenant: &Tenant) -> PathBuf {
        self.folder.join(hex::encode(&Sha256::digest(tenant.as_str())[..FOLDER_DIGEST_BYTES]))
    }

    /// Creates a folder in this one.
    fn make_folder(&self, within: &Path) -> io::Result<()> {
        private::make_folder(&self.folder)?;
        private::make_folder(within)
    }

    /// Begins a file in the folder.
    pub(super) fn begin(&self) -> Draft {
        Draft { files: self.clone(), head: Vec::new(), file: None, pieces: Pieces::default() }
    }

    /// Returns at most `length` bytes of a file from `offset` on, after a check of all pieces that have them. Returns
    /// `None` if its object is missing.
    pub(super) fn read(
        &self,
        (tenant, hash): (&Tenant, &str),
        file: &LargeFile,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        if file.object.is_some() {
            return self.place.objects()?.read((tenant, hash), file, offset, length);
        }
        let unreadable = |error: io::Error| {
            let message = format!("cannot read the large file {hash} of the store: {error}");
            Failure::retryable(code::STORE_FAILED, message)
        };
        let damaged = || Failure::new(code::STORE_FAILED, format!("the large file {hash} of the store is damaged"));
        let fetch = |range: Range<u64>| {
            let mut opened = File::open(self.path(tenant, hash)).map_err(unreadable)?;
            opened.seek(SeekFrom::Start(range.start)).map_err(unreadable)?;
            let mut bytes = Vec::new();
            opened.take(range.end - range.start).read_to_end(&mut bytes).map_err(unreadable)?;
            Ok(bytes)
        };
        file.read(offset, length, damaged, fetch).map(Some)
    }

    /// Removes a file. A file that stays only takes room, until the next owner of the store removes it.
    pub(super) fn remove(&self, tenant: &Tenant, hash: &str) {
        match fs::remove_file(self.path(tenant, hash)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("cannot remove the large file {hash}, which nothing refers to: {error}");
            }
            _ => {}
        }
    }

    /// Removes all files of a tenant.
    pub(super) fn remove_all(&self, tenant: &Tenant) -> io::Result<()> {
        match fs::remove_dir_all(self.folder_of(tenant)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the files without rows, and the unfinished files of processes that have ended.
    pub(super) fn clean(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        if !self.folder.is_dir() {
            return Ok(());
        }
        let known: HashSet<PathBuf> =
            rows(connection, IN_FOLDER)?.into_iter().map(|(tenant, hash, _)| self.path(&tenant, &hash)).collect();
        // What cannot be listed or removed only takes room.
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for folder in entries(&self.folder) {
            let is_unfinished = folder.ends_with(UNFINISHED);
            for file in entries(&folder) {
                let is_left = if is_unfinished { !is_locked(&file) } else { !known.contains(&file) };
                if is_left && let Err(error) = fs::remove_file(&file) {
                    tracing::warn!("cannot remove the large file {}: {error}", file.display());
                }
            }
        }
        Ok(())
    }

    /// Copies the files of these rows that `target` does not have yet. Skips those that are missing.
    pub(super) fn copy(&self, target: &LargeFiles, rows: &[(Tenant, String, u64)]) -> io::Result<()> {
        for (tenant, hash, _) in rows {
            let (from, to, above) = (self.path(tenant, hash), target.path(tenant, hash), target.folder_of(tenant));
            if to.exists() {
                continue;
            }
            target.make_folder(&above)?;
            match fs::copy(&from, &to) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                copied => _ = copied?,
            }
            File::open(&to)?.sync_all()?;
            sync_folder(&above)?;
        }
        Ok(())
    }
}

impl LargeFiles {
    /// Copies a file from the object store into the folder of `target`, which does not have it yet. Skips one that is
    /// missing.
    pub(super) fn fetch(
        &self,
        target: &LargeFiles,
        (tenant, hash): (&Tenant, &str),
        file: &LargeFile,
    ) -> Result<(), Failure> {
        let (to, above) = (target.path(tenant, hash), target.folder_of(tenant));
        if to.exists() {
            return Ok(());
        }
        target.make_folder(&above).map_err(|error| unwritable(&error))?;
        let made = private::make_file(&to).and_then(|()| File::options().write(true).open(&to));
        let mut copy = made.map_err(|error| unwritable(&error))?;
        let mut offset = 0;
        while offset < file.size {
            let Some(piece) = self.read((tenant, hash), file, offset, FETCHED_BYTES)? else {
                drop(copy);
                return fs::remove_file(&to).map_err(|error| unwritable(&error));
            };
            offset += piece.len() as u64;
            copy.write_all(&piece).map_err(|error| unwritable(&error))?;
        }
        copy.sync_all().and_then(|()| sync_folder(&above)).map_err(|error| unwritable(&error))
    }
}

/// The number of bytes that a copy reads from an object store at a time.
const FETCHED_BYTES: usize = 8 << 20;

/// Returns the size in bytes of all files in a folder of large files.
pub(super) fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for folder in fs::read_dir(folder)? {
        for file in fs::read_dir(folder?.path())? {
            bytes += file?.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// The condition of the rows whose contents are in the folder.
pub(super) const IN_FOLDER: &str = "file IS NOT NULL AND object IS NULL";
/// The condition of the rows whose contents are in an object store.
pub(super) const IN_OBJECTS: &str = "object IS NOT NULL";
/// Like [`IN_FOLDER`], for a file of a version that had no object stores.
pub(super) const IN_OLD_FOLDER: &str = "file IS NOT NULL";

/// Returns the rows of all large files of one place, without their digests. Their number is limited by the room of the
/// place: each has more than a piece.
pub(super) fn rows(connection: &Connection, condition: &str) -> Result<Vec<(Tenant, String, u64)>, rusqlite::Error> {
    let mut select = connection.prepare(&format!("SELECT tenant, hash, file FROM blobs WHERE {condition}"))?;
    let row = |row: &rusqlite::Row<'_>| Ok((Tenant::from(row.get::<_, String>(0)?.as_str()), row.get(1)?, row.get(2)?));
    select.query_map([], row)?.collect()
}

/// Finds a large file by its row.
pub(super) fn find(connection: &Connection, tenant: &Tenant, hash: &str) -> Result<Option<LargeFile>, rusqlite::Error> {
    let sql = "SELECT file, bytes, object FROM blobs WHERE tenant = ? AND hash = ? AND file IS NOT NULL";
    let row = |row: &rusqlite::Row<'_>| {
        let (digests, object): (Vec<u8>, Option<String>) = (row.get(1)?, row.get(2)?);
        Ok(LargeFile { size: row.get(0)?, digests: digests.into(), object: object.map(Arc::from) })
    };
    connection.prepare_cached(sql)?.query_row(params![tenant.as_str(), hash], row).optional()
}

/// Writes the row of a large file. A row with the bytes themselves stays, because rows of runs may need it
/// ([`keep`](super::blobs::keep)); so does that of an object, because the new one has the same content.
pub(super) fn keep(
    connection: &Connection,
    tenant: &Tenant,
    hash: &str,
    mime: &str,
    file: &LargeFile,
) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO blobs (tenant, hash, mime, bytes, file, object) VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (tenant, hash) DO NOTHING";
    let values = params![tenant.as_str(), hash, mime, &*file.digests, file.size, file.object.as_deref()];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Returns the failure for a file whose object is missing.
pub(super) fn missing(hash: &str) -> Failure {
    Failure::new(code::STORE_FAILED, format!("the file {hash} is missing in the object store"))
}

/// Returns whether a process still writes a file.
fn is_locked(file: &Path) -> bool {
    let Ok(file) = private::open_lock(file) else { return false };
    matches!(FileLock::try_lock(file), Err((_, TryLockError::WouldBlock)))
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// A file that is being written to the folder. Up to the size of a piece it is in memory.
pub(super) struct Draft {
    files: LargeFiles,
    head: Vec<u8>,
    file: Option<DraftFile>,
    pieces: Pieces,
}

/// An unfinished file. Dropping it removes it.
struct DraftFile {
    path: PathBuf,
    file: Option<FileLock>,
}

/// A finished content.
pub(super) enum Finished {
    /// A content that the database holds.
    Small(Vec<u8>),
    /// A content that is on stable storage, and has no name yet.
    Large(NamelessFile),
}

/// A complete file without its name.
pub(super) struct NamelessFile {
    files: LargeFiles,
    file: DraftFile,
    pub(super) hash: Arc<str>,
    pub(super) row: LargeFile,
}

impl Draft {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.pieces.add(bytes)?;
        self.store(bytes).map_err(|error| unwritable(&error))
    }

    /// Adds bytes to the file. Their digests are known.
    fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.size() <= PIECE {
            self.head.extend_from_slice(bytes);
            return Ok(());
        }
        if self.file.is_none() {
            let mut file = DraftFile::create(&self.files)?;
            file.write_all(&std::mem::take(&mut self.head))?;
            self.file = Some(file);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    pub(super) fn size(&self) -> u64 {
        self.pieces.size()
    }

    /// Completes the content, and waits until it is on stable storage.
    pub(super) fn finish(mut self) -> Result<Finished, Failure> {
        let Some(file) = self.file.take() else { return Ok(Finished::Small(self.head)) };
        if let Some(opened) = &file.file {
            opened.sync_all().map_err(|error| unwritable(&error))?;
        }
        let (hash, row) = self.pieces.finish(None);
        Ok(Finished::Large(NamelessFile { files: self.files.clone(), file, hash, row }))
    }
}

impl NamelessFile {
    /// Gives the file its name. A file of the same content is replaced.
    pub(super) fn name(&mut self, tenant: &Tenant) -> Result<(), Failure> {
        let named = self.files.path(tenant, &self.hash);
        let folder = self.files.folder_of(tenant);
        let named = self.files.make_folder(&folder).and_then(|()| fs::rename(&self.file.path, &named));
        named.map_err(|error| unwritable(&error))?;
        // The file has another path now.
        self.file.file = None;
        Ok(())
    }

    /// Waits until the name of the file is on stable storage.
    pub(super) fn sync_name(&self, tenant: &Tenant) -> Result<(), Failure> {
        let synced = sync_folder(&self.files.folder_of(tenant)).and_then(|()| sync_folder(&self.files.folder));
        synced.map_err(|error| unwritable(&error))
    }
}

impl DraftFile {
    fn create(files: &LargeFiles) -> io::Result<DraftFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let folder = files.folder.join(UNFINISHED);
        files.make_folder(&folder)?;
        let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = folder.join(name);
        // A process that has died may have left a file of this name.
        let _ = fs::remove_file(&path);
        let file = FileLock::try_lock(private::open_lock(&path)?);
        let file = file.map_err(|(_, error)| io::Error::other(error.to_string()))?;
        Ok(DraftFile { path, file: Some(file) })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn unwritable(error: &io::Error) -> Failure {
    Failure::retryable(code::STORE_FAILED, format!("cannot write a large file of the store: {error}"))
}

/// A file that is written to a store in parts.
struct StoreWriter {
    store: Arc<SqliteStore>,
    tenant: Tenant,
    draft: Draft,
}

/// Begins a file of a store.
pub(super) fn writer(store: Arc<SqliteStore>, tenant: &Tenant) -> Box<dyn BlobWriter> {
    let draft = store.large.begin();
    Box::new(StoreWriter { store, tenant: tenant.clone(), draft })
}

impl BlobWriter for StoreWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        // Large files never take the room that the database itself needs.
        if self.draft.file.is_some()
            && let Some(room) = self.store.room()
            && room.is_low()
        {
            let message = "the disk with the store is nearly full, so no large file is written to it";
            return Err(Failure::retryable(code::STORE_FAILED, message));
        }
        self.draft.write(bytes)
    }

    fn size(&self) -> u64 {
        self.draft.size()
    }

    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure> {
        use flowcell_contract::Blobs;
        match self.draft.finish()? {
            Finished::Small(bytes) => Ok(self.store.put(&self.tenant, bytes.into(), mime)),
            Finished::Large(file) => self.store.keep_large(&self.tenant, file, mime),
        }
    }
}
