//! The compaction of the database file, which gives free pages back to the file system.
//!
//! SQLite reuses the pages of removed rows, so the file keeps its size. With `auto_vacuum` it would shrink by itself,
//! but commits would write 4 to 32 % more pages, because SQLite then keeps the place of every page in further pages.
//! So the store compacts its file as a whole. It does so after a sweep if much of the file is free and the rest is
//! small, since all other writes wait meanwhile, and otherwise on request.

use std::path::Path;

use rusqlite::Connection;

use super::FILE;
use crate::limits::{COMPACT_FREE_BYTES, COMPACT_USED_BYTES};

/// The sizes of a database file before and after a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    /// The size before, in bytes, with the write-ahead log.
    pub before: u64,
    /// The size after, in bytes, with the write-ahead log.
    pub after: u64,
}

/// Returns the size of the database file and its write-ahead log, in bytes.
pub(super) fn size(folder: &Path) -> u64 {
    let size = |suffix: &str| folder.join(format!("{FILE}{suffix}")).metadata().map_or(0, |file| file.len());
    size("") + size("-wal")
}

/// Compacts the file if at least half of it and [`COMPACT_FREE_BYTES`] are free, and the rest has at most
/// [`COMPACT_USED_BYTES`]. Returns the number of bytes by which it has become smaller. A failure changes nothing, so it
/// is only logged.
pub(super) fn compact_if_worth(connection: &Connection) -> u64 {
    let compacted = free(connection).and_then(|(free, used)| {
        if free < COMPACT_FREE_BYTES || free < used || used > COMPACT_USED_BYTES {
            return Ok(0);
        }
        compact(connection).map(|()| free)
    });
    compacted.unwrap_or_else(|error| {
        tracing::warn!("the file of the store keeps its size: {error}");
        0
    })
}

/// Compacts the file, and writes the result from the log into the file.
pub(super) fn compact(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch("VACUUM")?;
    // Readers may still need the log. Then a later checkpoint shortens the file.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Returns the bytes of the free and of the used pages.
fn free(connection: &Connection) -> Result<(u64, u64), rusqlite::Error> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let (page, free) = (number("page_size")?, number("freelist_count")?);
    Ok((free * page, (number("page_count")? - free) * page))
}
