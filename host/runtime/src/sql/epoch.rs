//! The epoch: detects a database that was restored from an older copy, or a promoted replica that lacks commits. The
//! runs of such a database may have done more than it records.
//!
//! The database has a lineage and a number. The lineage is a list of random names. The number grows while the store is
//! written. Each process remembers the highest number that it has read, and keeps it in a file if the operator names
//! one. A database with another lineage or a smaller number is an older copy. The process that notices this first
//! parks the runs, gives the database a number that is larger than the numbers that other processes remember, and adds
//! the names that it remembers to the lineage of the database. So processes that remember the old or the new lineage
//! accept the database afterwards.
//!
//! The number grows once a minute. A database that lacks less than that also lacks the last units of a process
//! (`witness`).

use std::{
    fs,
    io::ErrorKind,
    path::PathBuf,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    Shared,
    connection::{Connection, SqlError, args},
    values::{text, unwritable},
    witness::{Witness, Witnesses},
};
use crate::{
    fact::{Fact, ParkReason},
    ports::MARK,
    rows::{checksum, cut::ExternalizedRow, search::wait_text},
    sqlite::private,
};

/// The minimum time between two increments of a process. A copy older than this is detected by the number alone.
const MIN_INCREMENT_INTERVAL: Duration = Duration::from_secs(60);
/// The step from the number that a process remembers to the number of a restored database. Other processes may remember
/// numbers that are larger by the number of processes and minutes.
const RESTORED_STEP: u64 = 1 << 32;
/// Maximum number of runs of one read.
const PAGE_RUNS: usize = 500;

/// The identity and age of a database.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Age {
    lineage: String,
    number: u64,
}

impl Age {
    fn is_older_than(&self, seen: &Age) -> bool {
        let is_known = names(&self.lineage).any(|name| names(&seen.lineage).any(|other| other == name));
        !is_known || self.number < seen.number
    }

    /// Parses the content of the file: the lineage and the number, separated by a space.
    fn parse(text: &str) -> Option<Age> {
        let (lineage, number) = text.trim().split_once(' ')?;
        Some(Age { lineage: lineage.to_owned(), number: number.parse().ok()? })
    }
}

/// The separator of the names in a lineage.
const SEPARATOR: char = '+';
/// Maximum number of names in a lineage. The column has room for 255 bytes.
const MAX_NAMES: usize = 6;

fn names(lineage: &str) -> impl Iterator<Item = &str> {
    lineage.split(SEPARATOR)
}

/// Joins two lineages: the names of `first`, and then those of `second`, without repetitions and at most
/// [`MAX_NAMES`].
fn join_lineages(first: &str, second: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for name in names(first).chain(names(second)) {
        if !all.contains(&name) && all.len() < MAX_NAMES {
            all.push(name);
        }
    }
    all.join("+")
}

/// The epoch in the view of one process.
pub(super) struct Epoch {
    file: Option<PathBuf>,
    seen: Mutex<Option<Age>>,
    /// The time of the next increment. `None`: the next commit increments.
    due: Mutex<Option<Instant>>,
    witnesses: Witnesses,
}

impl Epoch {
    /// Reads the file, if the operator has named one. A missing file is created at the first record.
    pub(super) fn new(file: Option<PathBuf>) -> Epoch {
        let text = file.as_ref().and_then(|file| match fs::read_to_string(file) {
            Ok(text) => Some(text),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!("cannot read {}, so an older copy is not recognised: {error}", file.display());
                }
                None
            }
        });
        let seen = text.as_deref().and_then(Age::parse);
        if let (Some(file), Some(_), None) = (&file, &text, &seen) {
            tracing::warn!("{} has no lineage and number of a store, so it is written anew", file.display());
        }
        // Without an identity of the database, the rows of the units may be those of another one.
        let witnesses = Witnesses::new(file.as_deref(), seen.is_some());
        Epoch { file, seen: Mutex::new(seen), due: Mutex::new(None), witnesses }
    }

    /// Checks whether the database is an older copy. If so, parks its runs and resets the progress of triggers. Returns
    /// whether this call has done so. Records the number otherwise.
    pub(super) async fn check(&self, connection: &mut Connection) -> Result<bool, SqlError> {
        if !self.is_older(connection).await? {
            return Ok(false);
        }
        let Some(seen) = self.seen.lock().clone() else { return Ok(false) };
        connection.begin().await?;
        let done = async {
            let restored = self.restore(connection, &seen).await?;
            connection.commit().await?;
            Ok(restored)
        }
        .await;
        if done.is_err() {
            connection.roll_back().await;
        }
        let (age, parked) = done?;
        self.record(age);
        if let Some(runs) = parked {
            tracing::warn!(
                "the store was restored from an older copy, so {runs} unfinished runs are parked; resume each with \
                 `flowcell runs resume RUN`"
            );
        }
        Ok(parked.is_some())
    }

    /// Returns whether the database is an older copy. Records the number otherwise.
    pub(super) async fn is_older(&self, connection: &mut Connection) -> Result<bool, SqlError> {
        let Some(found) = read(connection, "").await? else { return Ok(false) };
        let is_older = self.has_lost(connection, &found).await?;
        if !is_older {
            self.record(found);
        }
        Ok(is_older)
    }

    /// Returns whether a database of this age lacks something that this process knows.
    async fn has_lost(&self, connection: &mut Connection, found: &Age) -> Result<bool, SqlError> {
        if self.seen.lock().as_ref().is_some_and(|seen| found.is_older_than(seen)) {
            return Ok(true);
        }
        // Earlier units are of the time before a restore that a process has noticed already.
        self.witnesses.are_lost(connection, found.number.saturating_sub(RESTORED_STEP / 2)).await
    }

    /// Increments the number within a commit, if an increment is due. Returns the new age if it was due.
    pub(super) async fn increment_if_due(&self, connection: &mut Connection) -> Result<Option<Age>, SqlError> {
        if self.due.lock().is_some_and(|due| Instant::now() < due) {
            return Ok(None);
        }
        connection.run("UPDATE flowcell_epoch SET number = number + 1", args![]).await?;
        read(connection, "").await
    }

    /// Records that an increment is durable.
    pub(super) fn increment_durable(&self, age: Age) {
        *self.due.lock() = Some(Instant::now() + MIN_INCREMENT_INTERVAL);
        // Another process may have parked the runs of a restored database meanwhile.
        if self.seen.lock().as_ref().is_none_or(|seen| !age.is_older_than(seen)) {
            self.record(age);
        }
    }

    /// Records a unit of a commit that is durable.
    pub(super) fn record_witness(&self, witness: Witness) {
        let number = self.seen.lock().as_ref().map(|seen| seen.number);
        if let Some(number) = number {
            self.witnesses.record(number, witness);
        }
    }

    /// Returns the first name of the lineage that was read last. It stays the same when a lineage gets further names.
    pub(super) fn lineage(&self) -> String {
        let seen = self.seen.lock();
        seen.as_ref().and_then(|age| names(&age.lineage).next()).unwrap_or_default().to_owned()
    }

    /// Parks the runs, unless another process has done so meanwhile. Returns the new age, and the number of parked runs.
    async fn restore(&self, connection: &mut Connection, seen: &Age) -> Result<(Age, Option<usize>), SqlError> {
        let Some(found) = read(connection, " FOR UPDATE").await? else { return Err(SqlError::Again) };
        if !self.has_lost(connection, &found).await? {
            return Ok((found, None));
        }
        let parked = park_all(connection).await?;
        connection.run("DELETE FROM flowcell_registry WHERE kind = ?", args![MARK]).await?;
        let age = Age {
            lineage: join_lineages(&found.lineage, &seen.lineage),
            number: seen.number.max(found.number) + RESTORED_STEP,
        };
        let sql = "UPDATE flowcell_epoch SET lineage = ?, number = ?";
        connection.run(sql, args![age.lineage.as_str(), age.number]).await?;
        Ok((age, Some(parked)))
    }

    fn record(&self, age: Age) {
        let mut seen = self.seen.lock();
        if seen.as_ref() == Some(&age) {
            return;
        }
        if let Some(file) = &self.file
            && let Err(error) = private::replace(file, &format!("{} {}\n", age.lineage, age.number))
        {
            tracing::warn!("cannot write {}, so an older copy may not be recognised: {error}", file.display());
        }
        *seen = Some(age);
    }
}

async fn read(connection: &mut Connection, lock: &str) -> Result<Option<Age>, SqlError> {
    let row = connection.row(&format!("SELECT lineage, number FROM flowcell_epoch{lock}"), args![]).await?;
    row.map(|row| Ok(Age { lineage: row.text(0)?, number: row.number(1)? })).transpose()
}

/// Parks every live top run, and ends its claim. Returns their number.
async fn park_all(connection: &mut Connection) -> Result<usize, SqlError> {
    let now = connection.now().await?;
    let facts = [Fact::RunParked { due: None, reason: ParkReason::Restored, waits_for: None, quota: None }];
    let body = ExternalizedRow::of_facts(text(&facts)?).map_err(unwritable)?;
    let wait = wait_text(&facts);
    let (mut last, mut parked) = (0, 0);
    loop {
        let sql = format!(
            "SELECT id, next_seq, tail FROM flowcell_runs WHERE id > ? AND depth = 0 AND standing IN ('active', 'parked')
            ORDER BY id LIMIT {PAGE_RUNS} FOR UPDATE"
        );
        let rows = connection.rows(&sql, args![last]).await?;
        if rows.is_empty() {
            return Ok(parked);
        }
        let mut units = Vec::new();
        for row in &rows {
            let (id, next_seq, tail) = (row.int(0)?, row.number(1)?, row.number(2)? as u32);
            let sum = u64::from(checksum(tail, next_seq, now as u64, &body.text, body.cuts.as_deref()));
            units.push(args![id, next_seq, 1_i64, now, body.text.clone(), body.cuts.clone(), sum]);
            let sql =
                "UPDATE flowcell_runs SET standing = 'parked', due = NULL, attention = 1, error = NULL, updated = ?,
                next_seq = ?, tail = ?, owner = NULL, epoch = epoch + 1, error_words = ? WHERE id = ?";
            connection.run(sql, args![now, next_seq + 1, sum, wait.clone(), id]).await?;
            (last, parked) = (id, parked + 1);
        }
        connection.insert("flowcell_units (run, first_seq, facts, ts, body, cuts, checksum)", units, "").await?;
    }
}

/// Checks the database after the server was away. If it is an older copy, this process stops its drivers.
pub(super) async fn check(shared: &Shared, connection: &mut Connection) -> Result<(), SqlError> {
    if shared.epoch.check(connection).await? {
        shared.claims.lose_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_lineage_or_a_smaller_number_is_older() {
        let seen = Age::parse("a 7\n").unwrap();
        for (text, older) in
            [("a 6", true), ("a 7", false), ("a 8", false), ("b 9", true), ("b+a 9", false), ("c+b 9", true)]
        {
            assert_eq!(Age::parse(text).unwrap().is_older_than(&seen), older, "{text}");
        }
        assert_eq!(Age::parse("7"), None);
        assert_eq!(join_lineages("b", "a+b"), "b+a");
        assert_eq!(join_lineages("1+2+3", "4+5+6+7"), "1+2+3+4+5+6");
        // After a process that remembers `a` has parked the runs, one that remembers `b` does not park them again.
        let restored = Age { lineage: join_lineages("b", "a"), number: 10 };
        assert!(!restored.is_older_than(&Age::parse("b 9").unwrap()));
    }
}
