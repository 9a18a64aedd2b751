//! What the stores with tables (SQLite and database servers) have in common: checks of rows, large values, the flush
//! queue, and copies.
//!
//! | module | content |
//! |---|---|
//! | `cut` | large values: cut out of rows, kept once, and put back |
//! | `flush` | the queue of a writer, and the times at which it flushes |
//! | `parked` | the queries for the numbers of parked runs |
//! | `removable` | the query for runs to remove |
//! | `search` | the columns that lists of runs search |
//! | `select` | the statements of lists of runs |
//! | [`copy_and_check`] | checks of a whole store, and copies to a store of another kind |

pub mod copy_and_check;
pub(crate) mod cut;
pub(crate) mod flush;
pub(crate) mod parked;
pub(crate) mod removable;
pub(crate) mod search;
pub(crate) mod select;

use std::fmt::Display;

use flowcell_contract::RunId;
use serde::Deserialize;

use crate::ports::{StoreError, Unit};

/// A position between two units of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UnitPosition {
    /// The number of the next fact.
    pub(crate) next_seq: u64,
    /// The checksum of the previous unit.
    pub(crate) checksum: u32,
}

impl UnitPosition {
    /// Checks that this position, after the last unit that was read, is the end of the journal. Otherwise units are
    /// missing.
    #[cfg(feature = "shared-stores")]
    pub(crate) fn check_end(self, end: UnitPosition, run: &RunId) -> Result<(), StoreError> {
        if self == end { Ok(()) } else { Err(self.lost_units_error(run)) }
    }

    /// Checks that this position, after the last unit that was read, is not before the fact `least`. Otherwise units
    /// are missing.
    pub(crate) fn check_reaches(self, least: u64, run: &RunId) -> Result<(), StoreError> {
        if self.next_seq >= least { Ok(()) } else { Err(self.lost_units_error(run)) }
    }

    fn lost_units_error(self, run: &RunId) -> StoreError {
        damaged(run, &format!("its events from {} are missing", self.next_seq))
    }
}

/// The stored row of a unit.
pub(crate) struct UnitRow {
    pub(crate) first_seq: u64,
    pub(crate) facts: u64,
    pub(crate) ts: u64,
    pub(crate) body: String,
    pub(crate) cuts: Option<String>,
    pub(crate) checksum: u32,
}

impl UnitRow {
    /// Checks that the row is undamaged and directly follows a position.
    pub(crate) fn check(&self, before: UnitPosition, run: &RunId) -> Result<(), StoreError> {
        let expected = checksum(before.checksum, self.first_seq, self.ts, &self.body, self.cuts.as_deref());
        if expected != self.checksum {
            return Err(damaged(run, &format!("the checksum at event {} is wrong", self.first_seq)));
        }
        if self.first_seq != before.next_seq {
            let (from, to) = (before.next_seq, self.first_seq);
            return Err(damaged(run, &format!("the events from {from} to {to} are missing")));
        }
        Ok(())
    }

    /// Returns the position after the unit.
    pub(crate) fn position_after(&self) -> UnitPosition {
        UnitPosition { next_seq: self.first_seq + self.facts, checksum: self.checksum }
    }

    /// Returns the unit and the size of its text in bytes. `body` is the text of the row with its large values put
    /// back.
    pub(crate) fn into_unit(self, body: Result<String, String>, run: &RunId) -> Result<(Unit, usize), StoreError> {
        let body = body.map_err(|why| damaged(run, &format!("at event {}: {why}", self.first_seq)))?;
        // A value may be nested as deeply as JSON allows, and a fact holds it some levels further down.
        let mut reading = serde_json::Deserializer::from_str(&body);
        reading.disable_recursion_limit();
        let facts = Vec::deserialize(&mut reading).map_err(|error| unreadable(run, &error))?;
        Ok((Unit { first_seq: self.first_seq, ts: self.ts, facts }, body.len()))
    }
}

/// Returns the error of a run whose journal is damaged.
pub(crate) fn damaged(run: &RunId, why: &dyn Display) -> StoreError {
    StoreError::damaged(format!("the journal of run `{run}` is damaged: {why}"))
}

/// Returns the error of a unit that has the right checksum and cannot be read. A newer version of the program may have
/// kinds of facts that this one does not know.
fn unreadable(run: &RunId, error: &serde_json::Error) -> StoreError {
    match error.to_string().starts_with("unknown variant") {
        true => StoreError(format!("a newer version of Flowcell has driven the run `{run}`: use it ({error})").into()),
        false => damaged(run, error),
    }
}

/// Computes the checksum of a row. It includes the checksum of the previous row, and so covers all earlier rows.
pub(crate) fn checksum(before: u32, first_seq: u64, ts: u64, body: &str, cuts: Option<&str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&first_seq.to_le_bytes());
    hasher.update(&ts.to_le_bytes());
    hasher.update(body.as_bytes());
    hasher.update(cuts.unwrap_or_default().as_bytes());
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_run_of_a_newer_version_is_not_called_damaged() {
        let told = |body: &str| {
            let row = UnitRow { first_seq: 0, facts: 1, ts: 0, body: body.into(), cuts: None, checksum: 0 };
            row.into_unit(Ok(body.into()), &"r".into()).unwrap_err().to_string()
        };
        let newer = told(r#"[{"RunPaused":{"until":7}}]"#);
        assert!(newer.starts_with("a newer version of Flowcell has driven the run `r`"), "{newer}");
        assert!(newer.contains("RunPaused"), "{newer}");
        for body in [r#"[{"RunResumed":{}}]"#, "[", "{}"] {
            assert!(told(body).starts_with("the journal of run `r` is damaged"), "{body}");
        }
    }
}
