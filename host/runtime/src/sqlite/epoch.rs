//! The epoch: detects a database that was restored from an older copy. Its runs may have done more than the copy
//! records.
//!
//! A number grows while the store is written. Each increment is first committed in the database, and then written to a
//! file beside the database. So a database with a smaller number than the file is an older copy. After a crash the file
//! may have the smaller number, which is harmless. A backup beside an owner gets a smaller number (see `backup`).

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{
    private, unit_index,
    units::{Row, text, unwritable},
};
use crate::{
    fact::{Fact, ParkReason},
    ports::MARK,
    rows::{cut::ExternalizedRow, search::wait_text},
};

/// The file beside the database.
const FILE: &str = "epoch";
/// The version of the store that introduced the number.
pub(super) const SINCE: u32 = 10;
/// The minimum time between two increments. A copy older than this is detected.
const MIN_INCREMENT_INTERVAL: Duration = Duration::from_secs(60);

/// The number, and the time of its next increment.
pub(super) struct Epoch {
    number: u64,
    file: PathBuf,
    due: Option<Instant>,
    /// The number of runs that were parked, because the database was restored.
    pub(super) parked: usize,
}

impl Epoch {
    /// Checks whether the database was restored from an older copy. If so, parks its runs, and resets the progress of
    /// triggers.
    pub(super) fn open(connection: &mut Connection, folder: &Path) -> Result<Epoch, rusqlite::Error> {
        let number: u64 = connection.query_row("SELECT number FROM epoch", [], |row| row.get(0))?;
        let file = folder.join(FILE);
        let seen = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let mut epoch = Epoch { number, file, due: None, parked: 0 };
        if number < seen {
            epoch.number = seen;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            epoch.parked = park_all(&transaction)?;
            transaction.execute("DELETE FROM registry WHERE kind = ?", [MARK])?;
            epoch.write_next_number(&transaction)?;
            transaction.commit()?;
            epoch.increment_durable();
        }
        Ok(epoch)
    }

    /// Increments the number within a commit, if an increment is due. Returns true if it was due.
    pub(super) fn increment_if_due(&mut self, connection: &Connection) -> Result<bool, rusqlite::Error> {
        let is_due = self.due.is_none_or(|due| Instant::now() >= due);
        if is_due {
            self.write_next_number(connection)?;
        }
        Ok(is_due)
    }

    fn write_next_number(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        connection.prepare_cached("UPDATE epoch SET number = ?")?.execute([self.number + 1])?;
        Ok(())
    }

    /// Records that the increment is durable in the database, and writes the number to the file.
    pub(super) fn increment_durable(&mut self) {
        self.number += 1;
        self.due = Some(Instant::now() + MIN_INCREMENT_INTERVAL);
        // Without the file, the next process does not detect an older copy. Nothing else depends on the file.
        if let Err(error) = private::write(&self.file, &format!("{}\n", self.number)) {
            tracing::warn!("cannot write {}: {error}", self.file.display());
        }
    }
}

/// Gives a copy of the database a smaller number than that of its store, so that it counts as older even if the owner's
/// next write does not increment the number. A store with the number 0 has no write since its creation, and its first
/// write increments it.
pub(super) fn make_older(copy: &Connection) -> Result<(), rusqlite::Error> {
    copy.execute("UPDATE epoch SET number = number - 1 WHERE number > 0", ()).map(drop)
}

/// Parks every live top run. Returns their number.
fn park_all(transaction: &Transaction<'_>) -> Result<usize, rusqlite::Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let facts = [Fact::RunParked { due: None, reason: ParkReason::Restored, waits_for: None, quota: None }];
    let (body, wait) = (text(&facts)?, wait_text(&facts));
    let body = ExternalizedRow::of_facts(body).map_err(unwritable)?;
    let mut select =
        transaction.prepare("SELECT tenant, run, id FROM runs WHERE depth = 0 AND standing IN ('active', 'parked')")?;
    let found =
        |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?));
    let live = select.query_map([], found)?.collect::<Result<Vec<_>, _>>()?;
    for (tenant, run, id) in &live {
        let Some(end) = unit_index::end_position(transaction, *id)? else { continue };
        Row::find(transaction, tenant, run)?.append(transaction, end.next_seq, 1, now, &body)?;
        let sql =
            "UPDATE runs SET standing = 'parked', due = NULL, attention = 1, error = NULL, updated = ?, next_seq = ?,
            error_words = ? WHERE id = ?";
        transaction.prepare_cached(sql)?.execute(params![now, end.next_seq + 1, wait, id])?;
    }
    Ok(live.len())
}
