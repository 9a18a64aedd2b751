//! Where the units of a run are.
//!
//! Units lie in the order in which they were committed, those of all runs together, so that a commit writes few pages. To note
//! with each where it is would cost as many pages as the commit has runs, so it is noted for [`AT_A_TIME`]. The few that
//! are not noted yet are the last of the table, and are looked through.
//!
//! A journal that has lost its end is told by what is noted, and by the run's row once the run has parked or is over. Of a run
//! that is active nobody can tell whether units that were not noted yet are missing.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::rows::Place;

/// How many units are noted at a time.
pub(super) const AT_A_TIME: i64 = 128;

/// A unit that is not noted yet.
pub(super) struct Late {
    pub(super) place: i64,
    pub(super) first_seq: u64,
    /// Where the journal goes on after it.
    after: Place,
}

/// A unit was appended. Notes it and others, if it is time.
pub(super) fn appended(connection: &Connection, place: i64) -> Result<(), rusqlite::Error> {
    if place % AT_A_TIME != 0 {
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
    // The place of the last unit is used again: whoever has it then is not noted yet.
    let sql = "UPDATE noted SET upto = last FROM (SELECT coalesce(max(place), 0) AS last FROM units) WHERE upto > last";
    connection.prepare_cached(sql)?.execute(()).map(drop)
}

/// The units of a run that are not noted yet, in order.
pub(super) fn late(connection: &Connection, run: i64) -> Result<Vec<Late>, rusqlite::Error> {
    let sql = "SELECT first_seq + facts, checksum, place, first_seq FROM units
        WHERE place > (SELECT upto FROM noted) AND run = ? ORDER BY place";
    let found = |row: &Row<'_>| Ok(Late { after: after(row)?, place: row.get(2)?, first_seq: row.get(3)? });
    connection.prepare_cached(sql)?.query_map([run], found)?.collect()
}

/// Where a run's journal goes on after its last unit, of which none may be there.
pub(super) fn end(connection: &Connection, run: i64) -> Result<Option<Place>, rusqlite::Error> {
    match late(connection, run)?.last() {
        Some(last) => Ok(Some(last.after)),
        None => last_noted(connection, run, i64::MAX as u64),
    }
}

/// The place in a journal before the unit that holds a fact.
pub(super) fn before(connection: &Connection, run: i64, late: &[Late], fact: u64) -> Result<Place, rusqlite::Error> {
    match late.iter().rev().find(|late| late.after.next_seq <= fact) {
        Some(late) => Ok(late.after),
        None => Ok(last_noted(connection, run, fact)?.unwrap_or_default()),
    }
}

/// Where a run's journal goes on after the last of the noted units that end before a fact.
fn last_noted(connection: &Connection, run: i64, fact: u64) -> Result<Option<Place>, rusqlite::Error> {
    // A unit has a fact: the question for the first one is for the tree, which else would be gone through from its end.
    let sql = "SELECT units.first_seq + facts, checksum FROM places CROSS JOIN units USING (place)
        WHERE places.run = ?1 AND places.first_seq < ?2 AND units.first_seq + facts <= ?2
        ORDER BY places.first_seq DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row(params![run, fact.min(i64::MAX as u64)], after).optional()
}

fn after(row: &Row<'_>) -> Result<Place, rusqlite::Error> {
    Ok(Place { next_seq: row.get(0)?, checksum: row.get(1)? })
}
