//! Large files: contents of more than [`PIECE_BYTES`] that are written in parts. They lie in files beside the database.
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
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use flowcell_contract::{
    BlobRef, BlobWriter, Failure, MAX_FILE_BYTES, PIECE_BYTES, Tenant, code, host_files::LARGE_FILES_FOLDER as FOLDER,
};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{SqliteStore, private};
use crate::file_lock::FileLock;

/// The folder of unfinished files.
const UNFINISHED: &str = "unfinished";
/// The size of a SHA-256 in bytes.
const DIGEST_BYTES: usize = 32;

/// The folder of the large files of a store.
#[derive(Clone)]
pub(super) struct LargeFiles {
    folder: PathBuf,
}

/// A large file as its row describes it.
#[derive(Clone)]
pub(super) struct LargeFile {
    /// The size in bytes.
    pub(super) size: u64,
    /// The SHA-256 of each piece, one after the other.
    pub(super) digests: Arc<[u8]>,
}

impl LargeFiles {
    /// Returns the folder of the large files of the store in this folder. The folder need not exist.
    pub(super) fn of(store: &Path) -> LargeFiles {
        LargeFiles { folder: store.join(FOLDER) }
    }

    /// Returns the path of a file. Some file systems ignore case, so the name of a tenant is not the name of a folder.
    fn path(&self, tenant: &Tenant, hash: &str) -> PathBuf {
        self.folder_of(tenant).join(hash)
    }

    fn folder_of(&self, tenant: &Tenant) -> PathBuf {
        self.folder.join(hex::encode(&Sha256::digest(tenant.as_str())[..DIGEST_BYTES / 2]))
    }

    /// Creates a folder in this one.
    fn make_folder(&self, within: &Path) -> io::Result<()> {
        private::make_folder(&self.folder)?;
        private::make_folder(within)
    }

    /// Begins a file.
    pub(super) fn begin(&self) -> Draft {
        Draft {
            files: self.clone(),
            head: Vec::new(),
            file: None,
            size: 0,
            content: Sha256::new(),
            piece: Sha256::new(),
            digests: Vec::new(),
        }
    }

    /// Returns at most `length` bytes of a file from `offset` on, after a check of all pieces that have them.
    pub(super) fn read(
        &self,
        (tenant, hash): (&Tenant, &str),
        file: &LargeFile,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Failure> {
        let end = offset.saturating_add(length as u64).min(file.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let unreadable = |error: io::Error| {
            let message = format!("cannot read the large file {hash} of the store: {error}");
            Failure::retryable(code::STORE_FAILED, message)
        };
        let damaged = || Failure::new(code::STORE_FAILED, format!("the large file {hash} of the store is damaged"));
        let mut opened = File::open(self.path(tenant, hash)).map_err(unreadable)?;
        let (first, mut bytes) = (offset / PIECE, Vec::new());
        opened.seek(SeekFrom::Start(first * PIECE)).map_err(unreadable)?;
        for number in first..end.div_ceil(PIECE) {
            let begin = bytes.len();
            (&mut opened).take(PIECE).read_to_end(&mut bytes).map_err(unreadable)?;
            let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(DIGEST_BYTES);
            let digest = file.digests.get(at..at.saturating_add(DIGEST_BYTES)).ok_or_else(damaged)?;
            if Sha256::digest(&bytes[begin..])[..] != *digest {
                return Err(damaged());
            }
        }
        let begin = first * PIECE;
        bytes.truncate((end - begin) as usize);
        bytes.drain(..(offset - begin) as usize);
        Ok(bytes)
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
            rows(connection)?.into_iter().map(|(tenant, hash, _)| self.path(&tenant, &hash)).collect();
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
    pub(super) fn copy(&self, target: &LargeFiles, rows: &[(Tenant, String, LargeFile)]) -> io::Result<()> {
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

const PIECE: u64 = PIECE_BYTES as u64;

/// Returns the rows of all large files. Their number is limited by the room of the disk: each has more than
/// [`PIECE_BYTES`].
pub(super) fn rows(connection: &Connection) -> Result<Vec<(Tenant, String, LargeFile)>, rusqlite::Error> {
    let sql = "SELECT tenant, hash, file FROM blobs WHERE file IS NOT NULL";
    let mut select = connection.prepare(sql)?;
    let row = |row: &rusqlite::Row<'_>| {
        let tenant = Tenant::from(row.get::<_, String>(0)?.as_str());
        Ok((tenant, row.get(1)?, LargeFile { size: row.get(2)?, digests: Arc::from([]) }))
    };
    select.query_map([], row)?.collect()
}

/// Finds a large file by its row.
pub(super) fn find(connection: &Connection, tenant: &Tenant, hash: &str) -> Result<Option<LargeFile>, rusqlite::Error> {
    let sql = "SELECT file, bytes FROM blobs WHERE tenant = ? AND hash = ? AND file IS NOT NULL";
    let row =
        |row: &rusqlite::Row<'_>| Ok(LargeFile { size: row.get(0)?, digests: Arc::from(row.get::<_, Vec<u8>>(1)?) });
    connection.prepare_cached(sql)?.query_row(params![tenant.as_str(), hash], row).optional()
}

/// Writes the row of a large file. A row with the bytes themselves becomes smaller by it.
pub(super) fn keep(
    connection: &Connection,
    tenant: &Tenant,
    hash: &str,
    mime: &str,
    file: &LargeFile,
) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO blobs (tenant, hash, mime, bytes, file) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (tenant, hash) DO UPDATE SET bytes = excluded.bytes, file = excluded.file";
    let values = params![tenant.as_str(), hash, mime, &*file.digests, file.size];
    connection.prepare_cached(sql)?.execute(values).map(drop)
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

/// A file that is being written. Up to [`PIECE_BYTES`] it is in memory.
pub(super) struct Draft {
    files: LargeFiles,
    head: Vec<u8>,
    file: Option<DraftFile>,
    size: u64,
    content: Sha256,
    piece: Sha256,
    digests: Vec<u8>,
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
        if bytes.len() as u64 > MAX_FILE_BYTES - self.size {
            let message = format!("a file has at most {MAX_FILE_BYTES} bytes");
            return Err(Failure::new(code::FILE_TOO_LARGE, message));
        }
        self.content.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = (PIECE - self.size % PIECE) as usize;
            let (now, later) = rest.split_at(rest.len().min(left));
            self.piece.update(now);
            self.size += now.len() as u64;
            if self.size.is_multiple_of(PIECE) {
                self.digests.extend_from_slice(&self.piece.finalize_reset());
            }
            rest = later;
        }
        self.store(bytes).map_err(|error| unwritable(&error))
    }

    /// Adds bytes to the file. Their digests are known.
    fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.size <= PIECE {
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
        self.size
    }

    /// Completes the content, and waits until it is on stable storage.
    pub(super) fn finish(mut self) -> Result<Finished, Failure> {
        let Some(file) = self.file.take() else { return Ok(Finished::Small(self.head)) };
        if !self.size.is_multiple_of(PIECE) {
            self.digests.extend_from_slice(&self.piece.finalize_reset());
        }
        if let Some(opened) = &file.file {
            opened.sync_all().map_err(|error| unwritable(&error))?;
        }
        let hash = hex::encode(self.content.finalize_reset()).into();
        let row = LargeFile { size: self.size, digests: std::mem::take(&mut self.digests).into() };
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
