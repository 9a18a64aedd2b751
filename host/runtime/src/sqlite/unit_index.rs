//! The index of units by run.
//!
//! The table of units has the order of the commits, over all runs, so that a commit writes few pages. Indexing each
//! unit at once would cost as many pages as the commit has runs, so the store indexes [`INDEXED_TOGETHER`] units
//! together. Units that are not indexed yet are the last of the table, and a reader scans them.
//!
//! If the last units of a journal are missing, a reader detects it by the index, and, after the run has parked or
//! ended, by the row of the run. For an active run, the loss of units that were not indexed yet is not detected.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::rows::UnitPosition;

/// The number of units that are indexed together.
pub(super) const INDEXED_TOGETHER: i64 = 128;

/// A unit that is not indexed yet.
pub(super) struct UnindexedUnit {
    pub(super) place: i64,
    pub(super) first_seq: u64,
    /// The position after the unit.
    after: UnitPosition,
}

/// Indexes all units that are not indexed yet, if `place` is a multiple of [`INDEXED_TOGETHER`]. `place` is the row
/// number of the unit that was just appended.
pub(super) fn index_if_due(connection: &Connection, place: i64) -> Result<(), rusqlite::Error> {
    if place % INDEXED_TOGETHER != 0 {
        return Ok(());
    }
    let sql = "INSERT INTO places (run, first_seq, place) SELECT run, first_seq, place FROM units
        WHERE place > (SELECT upto FROM noted) ORDER BY run, first_seq";
    connection.prepare_cached(sql)?.execute(())?;
    connection.prepare_cached("UPDATE noted SET upto = ?")?.execute([place]).map(drop)
}

/// Removes all units of a run.
pub(super) fn remove(connection: &Connection, run: i64) -> Result<(), rusqlite::Error> {
    let noted = "DELETE FROM units WHERE place IN (SELECT place FROM places WHERE run = ?)";
    let late = "DELETE FROM units WHERE place > (SELECT upto FROM noted) AND run = ?";
    for sql in [noted, late, "DELETE FROM places WHERE run = ?"] {
        connection.prepare_cached(sql)?.execute([run])?;
    }
    // A new unit may get the place of a removed one. It must not count as indexed.
    let sql = "UPDATE noted SET upto = last FROM (SELECT coalesce(max(place), 0) AS last FROM units) WHERE upto > last";
    connection.prepare_cached(sql)?.execute(()).map(drop)
}

/// Returns the units of a run that are not indexed yet, in order.
pub(super) fn unindexed(connection: &Connection, run: i64) -> Result<Vec<UnindexedUnit>, rusqlite::Error> {
    let sql = "SELECT first_seq + facts, checksum, place, first_seq FROM units
        WHERE place > (SELECT upto FROM noted) AND run = ? ORDER BY place";
    let found =
        |row: &Row<'_>| Ok(UnindexedUnit { after: read_position(row)?, place: row.get(2)?, first_seq: row.get(3)? });
    connection.prepare_cached(sql)?.query_map([run], found)?.collect()
}

/// Returns the position after the last unit of a run. Returns `None` if it has no units.
pub(super) fn end_position(connection: &Connection, run: i64) -> Result<Option<UnitPosition>, rusqlite::Error> {
    match unindexed(connection, run)?.last() {
        Some(last) => Ok(Some(last.after)),
        None => last_indexed(connection, run, i64::MAX as u64),
    }
}

/// Returns the position before the unit that contains a fact.
pub(super) fn position_before(
    connection: &Connection,
    run: i64,
    late: &[UnindexedUnit],
    fact: u64,
) -> Result<UnitPosition, rusqlite::Error> {
    match late.iter().rev().find(|late| late.after.next_seq <= fact) {
        Some(late) => Ok(late.after),
        None => Ok(last_indexed(connection, run, fact)?.unwrap_or_default()),
    }
}

/// Returns the position after the last indexed unit of a run that ends before a fact.
fn last_indexed(connection: &Connection, run: i64, fact: u64) -> Result<Option<UnitPosition>, rusqlite::Error> {
    // Bounded by `first_seq < ?` so that SQLite seeks instead of scanning from the end.
    let sql = "SELECT units.first_seq + facts, checksum FROM places CROSS JOIN units USING (place)
        WHERE places.run = ?1 AND places.first_seq < ?2 AND units.first_seq + facts <= ?2
        ORDER BY places.first_seq DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row(params![run, fact.min(i64::MAX as u64)], read_position).optional()
}

fn read_position(row: &Row<'_>) -> Result<UnitPosition, rusqlite::Error> {
    Ok(UnitPosition { next_seq: row.get(0)?, checksum: row.get(1)? })
}
