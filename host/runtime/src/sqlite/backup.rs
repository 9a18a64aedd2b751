//! Backups: copies of a whole store in a folder of their own, taken while another process may use the store.
//!
//! The copy is complete or absent: its database lies in a folder within the target until it is written and checked.
//! Only then it gets its name.
//!
//! Large files never change, so they are copied one by one: first those of before the snapshot of the database, then those
//! that the snapshot has in addition. Files in an object store are copied into the folder of the copy in the same way, so
//! the copy needs no object store. A file that goes away meanwhile was removed before the snapshot, or the snapshot
//! has it and the first pass has copied it: a sweep spares new files.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use flowcell_contract::host_files::LARGE_FILES_FOLDER;
use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};

use super::{
    FILE, OpenStoreError, SqliteStore, epoch,
    large::{self, LargeFiles},
    lock_owner_file, place, private, reader, schema,
};
use crate::{
    objects::Place,
    rows::copy_and_check::{Checked, check},
};

/// The folder within the target that holds the copy until it is finished.
const UNFINISHED: &str = "unfinished";
/// The number of pages that one step copies: 1 MiB with pages of 4 KiB.
const PAGES: i32 = 256;
/// The maximum time for which a step is retried while another process has the new database open.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first version whose stores have large files.
const LARGE_FILES_VERSION: u32 = 15;
/// The first version whose stores may have them in an object store.
const OBJECTS_VERSION: u32 = 16;
/// The pause between two tries of a step.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// An error of a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target has files already.
    #[error("the folder {} is not empty; choose a new folder", .0.display())]
    NotEmpty(PathBuf),
    /// The target has the copy of a backup that runs, or that was killed.
    #[error("the folder {} has an unfinished copy; if no other backup writes it, remove the folder", .0.display())]
    Unfinished(PathBuf),
    /// The store cannot be opened.
    #[error(transparent)]
    Source(#[from] OpenStoreError),
    /// The copy cannot be written.
    #[error("cannot write the copy in {}: {error}", .path.display())]
    Unwritable {
        /// The folder of the copy.
        path: PathBuf,
        /// The message of the system.
        error: String,
    },
    /// The database cannot be read, or its copy cannot be written.
    #[error("cannot copy the database to {}: {error}", .path.display())]
    Database {
        /// The folder of the copy.
        path: PathBuf,
        /// The message of SQLite.
        error: String,
    },
}

/// A copy that is being written. Dropping it removes what was written so far.
pub struct NewCopy {
    target: PathBuf,
    unfinished: PathBuf,
    /// True if the target did not exist before.
    is_new: bool,
    is_kept: bool,
}

impl NewCopy {
    /// Begins a copy in a folder that is missing or empty. A new folder gets the mode 0700, and the files in it get
    /// 0600. Fails if the folder has any entry.
    pub fn begin(target: &Path) -> Result<NewCopy, BackupError> {
        let unwritable =
            |error: io::Error| BackupError::Unwritable { path: target.to_owned(), error: error.to_string() };
        let is_new = !target.exists();
        private::make_folder(target).map_err(unwritable)?;
        let unfinished = target.join(UNFINISHED);
        if unfinished.symlink_metadata().is_ok() {
            return Err(BackupError::Unfinished(unfinished));
        }
        if fs::read_dir(target).map_err(unwritable)?.next().is_some() {
            return Err(BackupError::NotEmpty(target.to_owned()));
        }
        private::make_new_folder(&unfinished).map_err(unwritable)?;
        Ok(NewCopy { target: target.to_owned(), unfinished, is_new, is_kept: false })
    }

    /// Returns the folder that has the database until the copy is finished. It can be opened as a store.
    pub fn folder(&self) -> &Path {
        &self.unfinished
    }

    /// Copies the database of the store in a folder, as it is now. A process may own the store, and goes on writing.
    /// Returns the version of the copy.
    ///
    /// A copy that was taken beside an owner counts as older than its store at once, because the owner may write at
    /// any time. A copy that was taken without an owner counts as older after the next write.
    pub fn copy_database(&self, from: &Path) -> Result<u32, BackupError> {
        let failed = |error: rusqlite::Error| self.database(&error);
        let (source, version) = reader::connect(from)?;
        // This lock shows whether the store has an owner. A process that becomes the owner later increments the epoch
        // with its first write, which this snapshot does not contain.
        let lock = match lock_owner_file(from) {
            Ok(lock) => Some(lock),
            Err(OpenStoreError::Owned { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let has_objects = version >= OBJECTS_VERSION;
        let place = if has_objects { place::remembered(&source).map_err(failed)? } else { Place::Beside };
        let (files, copies) = (LargeFiles::of(from, place), LargeFiles::of(&self.unfinished, Place::Beside));
        let copy_files = |connection: &Connection| -> Result<(), BackupError> {
            if version < LARGE_FILES_VERSION {
                return Ok(());
            }
            let condition = if has_objects { large::IN_FOLDER } else { large::IN_OLD_FOLDER };
            let rows = large::rows(connection, condition).map_err(failed)?;
            files.copy(&copies, &rows).map_err(|error| self.unwritable(&error))?;
            if !has_objects {
                return Ok(());
            }
            for (tenant, hash, _) in large::rows(connection, large::IN_OBJECTS).map_err(failed)? {
                if let Some(file) = large::find(connection, &tenant, &hash).map_err(failed)? {
                    files.fetch(&copies, (&tenant, &hash), &file).map_err(|error| self.unwritable(&error))?;
                }
            }
            Ok(())
        };
        copy_files(&source)?;
        // A backup begins again whenever another connection has written between two of its steps, and never ends beside
        // a busy writer. That is different in a read transaction, because the write-ahead log keeps every page as the
        // transaction saw it first: all steps read one snapshot, and nothing is read twice. The transaction blocks no
        // writer. The log only grows by the writes of that time, since a checkpoint cannot reset it.
        source.execute_batch("BEGIN").map_err(failed)?;
        source.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(())).map_err(failed)?;
        let has_owner = lock.is_none();
        drop(lock);
        let file = self.unfinished.join(FILE);
        // SQLite accepts an empty file, and refuses any other.
        private::make_file(&file).map_err(|error| self.unwritable(&error))?;
        let mut copy = Connection::open(&file).map_err(failed)?;
        copy_pages(&source, &mut copy).map_err(failed)?;
        drop(source);
        copy_files(&copy)?;
        if has_objects {
            place::forget(&copy).map_err(failed)?;
        }
        if has_owner && version >= epoch::SINCE {
            epoch::make_older(&copy).map_err(failed)?;
        }
        copy.close().map_err(|(_, error)| self.database(&error))?;
        Ok(version)
    }

    /// Returns whether a copy of this version has the present format. Opening another one would upgrade it.
    pub fn has_present_format(version: u32) -> bool {
        version == schema::VERSION
    }

    /// Checks everything in the copy, as `store check` does. A copy that cannot be opened is damaged.
    pub fn check(&self) -> Result<Checked, BackupError> {
        // A check writes nothing, and returns errors of reads.
        match SqliteStore::open(&self.unfinished, |_| ()) {
            Ok(store) => check(&store).map_err(|error| self.database(&error)),
            Err(error) => Ok(Checked { damage: vec![error.to_string()], ..Checked::default() }),
        }
    }

    /// Gives the database its name in the target. Returns its size in bytes.
    pub fn finish(mut self) -> Result<u64, BackupError> {
        let path = self.target.clone();
        let unwritable = |error: io::Error| BackupError::Unwritable { path: path.clone(), error: error.to_string() };
        let (from, to) = (self.unfinished.join(FILE), self.target.join(FILE));
        // The log of a database is a part of it. The last connection writes it into the database and removes it.
        if self.unfinished.join(format!("{FILE}-wal")).metadata().is_ok_and(|log| log.len() > 0) {
            return Err(self.database(&"its log was not written into it"));
        }
        let mut bytes = from.metadata().map_err(unwritable)?.len();
        let files = [&self.unfinished, &self.target].map(|folder| folder.join(LARGE_FILES_FOLDER));
        if files[0].is_dir() {
            bytes += large::size(&files[0]).map_err(unwritable)?;
            fs::rename(&files[0], &files[1]).map_err(unwritable)?;
        }
        fs::rename(&from, &to).map_err(unwritable)?;
        fs::remove_dir_all(&self.unfinished).map_err(unwritable)?;
        #[cfg(unix)]
        fs::File::open(&self.target).and_then(|folder| folder.sync_all()).map_err(unwritable)?;
        self.is_kept = true;
        Ok(bytes)
    }

    /// Leaves a damaged copy in its folder, for a closer look. Returns the folder.
    pub fn leave(mut self) -> PathBuf {
        self.is_kept = true;
        self.unfinished.clone()
    }

    fn unwritable(&self, error: &dyn std::fmt::Display) -> BackupError {
        BackupError::Unwritable { path: self.target.clone(), error: error.to_string() }
    }

    fn database(&self, error: &dyn std::fmt::Display) -> BackupError {
        BackupError::Database { path: self.target.clone(), error: error.to_string() }
    }
}

impl Drop for NewCopy {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // The error of the backup is the one to report.
        let _ = fs::remove_dir_all(&self.unfinished);
        let _ = fs::remove_file(self.target.join(FILE));
        let _ = fs::remove_dir_all(self.target.join(LARGE_FILES_FOLDER));
        if self.is_new {
            let _ = fs::remove_dir(&self.target);
        }
    }
}

/// Copies all pages. The source has a read transaction.
fn copy_pages(source: &Connection, copy: &mut Connection) -> Result<(), rusqlite::Error> {
    let backup = Backup::new(source, copy)?;
    let mut until = Instant::now() + PATIENCE;
    loop {
        match backup.step(PAGES)? {
            StepResult::Done => return Ok(()),
            StepResult::More => until = Instant::now() + PATIENCE,
            _ if Instant::now() < until => std::thread::sleep(RETRY_INTERVAL),
            _ => {
                let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                let message = "another process has the copy open".to_owned();
                return Err(rusqlite::Error::SqliteFailure(error, Some(message)));
            }
        }
    }
}
