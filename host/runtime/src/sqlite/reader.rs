//! The reader: a connection that only reads, beside the writer.

use std::path::Path;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};

use super::{FILE, OpenStoreError, connect_upgraded, large::LargeFiles, lock_owner_file, place, schema};
use crate::ports::{StoreError, StoreErrorKind};

/// Reads a store of this process or of another one. Shows only durable data.
pub struct Reader(pub(super) Mutex<Connection>, pub(super) LargeFiles);

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Damaged,
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure,
            ) => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Failed,
        };
        StoreError::new(kind, error.to_string())
    }
}

impl Reader {
    /// Opens the store in a folder for reading, beside its owner if it has one. If an older version wrote the store,
    /// upgrades it first, which fails while another process owns it.
    pub fn open(folder: &Path) -> Result<Reader, OpenStoreError> {
        let (connection, found) = connect(folder)?;
        if found < schema::VERSION {
            let _owner = lock_owner_file(folder)?;
            connect_upgraded(&folder.join(FILE)).map_err(|error| unusable(folder, &error))?;
        }
        let place = place::remembered(&connection).map_err(|error| unusable(folder, &error))?;
        Ok(Reader(Mutex::new(connection), LargeFiles::of(folder, place)))
    }

    /// Makes all later reads show the present data, without later writes. The write-ahead log of the store grows until
    /// the reader is dropped.
    pub fn pin_snapshot(&self) -> Result<(), StoreError> {
        // The transaction begins with its first read.
        Ok(self.0.lock().execute_batch("BEGIN; SELECT number FROM epoch")?)
    }

    /// Returns the version of the store in a folder, and the version to which [`Reader::open`] would upgrade it.
    /// Changes nothing.
    pub fn versions(folder: &Path) -> Result<(u32, u32), OpenStoreError> {
        connect(folder).map(|(_, found)| (found, schema::VERSION))
    }
}

/// Reads rows and blobs as of one time, regardless of concurrent removals: in the snapshot that is pinned, or in a new
/// transaction.
pub(super) fn in_snapshot<T>(
    connection: &mut Connection,
    read: impl FnOnce(&Connection) -> T,
) -> Result<T, rusqlite::Error> {
    if !connection.is_autocommit() {
        return Ok(read(connection));
    }
    let transaction = connection.transaction()?;
    Ok(read(&transaction))
}

/// Opens the database in a folder, and returns its version, which this program can read.
pub(super) fn connect(folder: &Path) -> Result<(Connection, u32), OpenStoreError> {
    let file = folder.join(FILE);
    if !file.exists() {
        return Err(OpenStoreError::Missing(folder.to_owned()));
    }
    let connection = schema::connect_read_only(&file).map_err(|error| unusable(folder, &error))?;
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let found: u32 = found.map_err(|error| unusable(folder, &error))?;
    if found > schema::VERSION {
        return Err(OpenStoreError::Newer { path: folder.to_owned(), found, known: schema::VERSION });
    }
    Ok((connection, found))
}

fn unusable(folder: &Path, error: &rusqlite::Error) -> OpenStoreError {
    OpenStoreError::Unusable { path: folder.to_owned(), error: error.to_string() }
}
