//! The tables, and upgrades of older files.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

/// The application id that marks the file as a store of Flowcell ("Flow").
const APPLICATION: u32 = 0x466c_6f77;
/// The first sufficient version of SQLite. Older versions lost data when a checkpoint met a reset of the log.
const MIN_SQLITE_VERSION: i32 = 3_051_003;

/// The number of statements that a connection keeps prepared. All statements of the store fit.
const MAX_PREPARED_STATEMENTS: usize = 128;

/// The version that this program writes: the number of migrations.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// The first version whose runs have the columns that lists search.
const SEARCH_VERSION: usize = 13;

/// Append only: a migration that was released is never changed.
const MIGRATIONS: [&str; 16] = [
    "
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    flow TEXT NOT NULL,
    -- 0: started by somebody outside; else by the parent.
    depth INTEGER NOT NULL,
    parent TEXT,
    record TEXT NOT NULL,
    standing TEXT NOT NULL CHECK (standing IN ('active', 'parked', 'succeeded', 'failed', 'cancelled', 'removed')),
    due INTEGER,
    next_seq INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    UNIQUE (tenant, run)
) STRICT;
CREATE INDEX children ON runs (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX live ON runs (due) WHERE depth = 0 AND standing IN ('active', 'parked');

-- Facts, as many as one decision had. The checksum covers the row and the checksum of the row before.
CREATE TABLE units (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    facts INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    body TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (run, first_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE state (
    tenant TEXT NOT NULL,
    flow TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (tenant, flow, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    mime TEXT NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (tenant, hash)
) STRICT;
",
    "
-- Where large values were cut out of the text, and the blobs that they are in.
ALTER TABLE units ADD COLUMN cuts TEXT;
ALTER TABLE state ADD COLUMN cuts TEXT;
",
    "
-- Where a journal ends: the number after its last fact, and the checksum of its last unit.
ALTER TABLE runs ADD COLUMN tail INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET next_seq = 0;
UPDATE runs SET (next_seq, tail) =
    (SELECT first_seq + facts, checksum FROM units WHERE run = runs.id ORDER BY first_seq DESC LIMIT 1)
    WHERE id IN (SELECT run FROM units);
",
    "
-- A parked run in which somebody has to decide something.
ALTER TABLE runs ADD COLUMN attention INTEGER NOT NULL DEFAULT 0;
",
    "
-- Whoever looks for work, or for the latest runs, does not pass by those that only wait.
DROP INDEX live;
CREATE INDEX active ON runs (tenant) WHERE depth = 0 AND standing = 'active';
CREATE INDEX due ON runs (tenant, due) WHERE depth = 0 AND standing = 'parked' AND due IS NOT NULL;
CREATE INDEX latest ON runs (tenant, created) WHERE depth = 0 AND standing <> 'removed';
",
    "
-- What steps of flows go on with, run after run: a tree for each flow and prefix, under the first step's.
CREATE TABLE sessions (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    parent_session_id TEXT,
    root_session_id TEXT NOT NULL,
    title TEXT NOT NULL,
    -- The run that wrote to it last.
    run TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_root_session ON sessions (tenant, root_session_id);

CREATE TABLE flow_states (
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    root_session_id TEXT NOT NULL,
    flow_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed', 'postponed')),
    args TEXT,
    output TEXT,
    is_struct_output INTEGER NOT NULL DEFAULT FALSE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_flow_states_root_session ON flow_states (tenant, root_session_id);
CREATE INDEX idx_flow_states_flow_id ON flow_states (tenant, flow_id);
",
    "
-- A commit of a run writes one page more often than not: a unit does not overflow its page, and where a journal ends is
-- told by its last unit and no longer by the row of the run.
CREATE TABLE placed_units (
    -- The run's id and the number of the first fact, 32 bits each.
    place INTEGER PRIMARY KEY,
    run INTEGER NOT NULL GENERATED ALWAYS AS (place >> 32),
    first_seq INTEGER NOT NULL GENERATED ALWAYS AS (place & 0xffffffff),
    facts INTEGER NOT NULL,
    -- 1: the journal ends here.
    at_end INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL,
    cuts TEXT
) STRICT;
INSERT INTO placed_units (place, facts, at_end, ts, checksum, body, cuts)
    SELECT (units.run << 32) | first_seq, facts, first_seq + facts = next_seq, ts, checksum, body, cuts
    FROM units JOIN runs ON runs.id = units.run ORDER BY units.run, first_seq;
DROP TABLE units;
ALTER TABLE placed_units RENAME TO units;
ALTER TABLE runs DROP COLUMN next_seq;
ALTER TABLE runs DROP COLUMN tail;
",
    "
-- What operators keep beside the runs: tenants, tokens, the audit log.
CREATE TABLE registry (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    -- Counts the writes.
    version INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;
",
    "
-- All that are parked, so that they are counted without reading the table.
DROP INDEX due;
CREATE INDEX parked ON runs (tenant, due) WHERE depth = 0 AND standing = 'parked';
-- Those that are over, in the order in which they ended.
CREATE INDEX ended ON runs (tenant, updated)
    WHERE depth = 0 AND standing IN ('succeeded', 'failed', 'cancelled');
",
    "
-- Counts up while the store is written, so that an older copy of it is recognised.
CREATE TABLE epoch (number INTEGER NOT NULL) STRICT;
INSERT INTO epoch VALUES (0);
",
    "
-- Units in the order of the commits: a commit writes few pages, of however many runs it has units. Where those of a run
-- are is noted for many at a time. Where the journal of a run ends that has parked or is over, its row tells.
CREATE TABLE written_units (
    place INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    facts INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL,
    cuts TEXT
) STRICT;
INSERT INTO written_units (run, first_seq, facts, ts, checksum, body, cuts)
    SELECT run, first_seq, facts, ts, checksum, body, cuts FROM units ORDER BY place;
ALTER TABLE runs ADD COLUMN next_seq INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET next_seq = (
    -- A journal whose end was lost is not taken for one that ends there.
    SELECT first_seq + facts + 1 - at_end FROM units
    WHERE place BETWEEN runs.id << 32 AND (runs.id << 32) + 0xffffffff ORDER BY place DESC LIMIT 1
) WHERE standing NOT IN ('active', 'removed') AND id IN (SELECT run FROM units);
DROP TABLE units;
ALTER TABLE written_units RENAME TO units;
CREATE TABLE places (
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (run, first_seq)
) STRICT, WITHOUT ROWID;
INSERT INTO places SELECT run, first_seq, place FROM units ORDER BY run, first_seq;
CREATE TABLE noted (upto INTEGER NOT NULL) STRICT;
INSERT INTO noted SELECT coalesce(max(place), 0) FROM units;
",
    // Rows may repeat values (`rows/cut.rs`), and passes name the value of the previous pass. Older programs read
    // neither.
    "",
    "
-- The columns that lists of runs search. Those of a failed run are derived from its last unit; `search.rs` does this for
-- the runs of older versions.
ALTER TABLE runs ADD COLUMN version INTEGER;
ALTER TABLE runs ADD COLUMN labels TEXT;
ALTER TABLE runs ADD COLUMN started_by TEXT;
ALTER TABLE runs ADD COLUMN retry_of TEXT;
ALTER TABLE runs ADD COLUMN error TEXT;
ALTER TABLE runs ADD COLUMN failed_node TEXT;
ALTER TABLE runs ADD COLUMN error_words TEXT;
UPDATE runs SET retry_of = json_extract(record, '$.repeats') WHERE depth = 0 AND json_valid(record);
CREATE INDEX runs_of_flow ON runs (tenant, flow, created) WHERE depth = 0 AND standing <> 'removed';
DROP INDEX active;
CREATE INDEX active ON runs (tenant, created) WHERE depth = 0 AND standing = 'active';
CREATE INDEX runs_parked ON runs (tenant, attention, created) WHERE depth = 0 AND standing = 'parked';
CREATE INDEX runs_failed ON runs (tenant, created) WHERE depth = 0 AND standing = 'failed';
CREATE INDEX runs_cancelled ON runs (tenant, created) WHERE depth = 0 AND standing = 'cancelled';
CREATE INDEX runs_with_error ON runs (tenant, error, created) WHERE error IS NOT NULL;
CREATE INDEX runs_with_node ON runs (tenant, failed_node, created) WHERE failed_node IS NOT NULL;
CREATE INDEX runs_of_trigger ON runs (tenant, started_by, created) WHERE started_by IS NOT NULL;
CREATE INDEX runs_of_retry ON runs (tenant, retry_of, created) WHERE retry_of IS NOT NULL;
-- The labels of runs, in the order of lists.
CREATE TABLE labels (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created INTEGER NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, value, created, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_of_run ON labels (run);
",
    "
-- The runs that have not ended, in the order of the last changes of their statuses. The index `ended` has the others.
CREATE INDEX runs_live ON runs (tenant, updated) WHERE depth = 0 AND standing IN ('active', 'parked');
",
    "
-- The size of a content that is in a file beside the database. Then the bytes are the digests of its pieces.
ALTER TABLE blobs ADD COLUMN file INTEGER;
",
    "
-- The name of the object that has a large content, instead of a file beside the database.
ALTER TABLE blobs ADD COLUMN object TEXT;
-- The name of this store among those that have files in object stores, and the address of its files there, in one row.
CREATE TABLE object_store (name TEXT NOT NULL, location TEXT) STRICT;
INSERT INTO object_store (name) VALUES (lower(hex(randomblob(16))));
",
];

/// Opens the file for its owner.
pub(super) fn connect(file: &Path) -> Result<Connection, rusqlite::Error> {
    assert!(rusqlite::version_number() >= MIN_SQLITE_VERSION, "this version of SQLite is too old for a journal");
    let connection = Connection::open(file)?;
    // SQLite reports a refusal of the disk after the row with the result. Without a further read, the store would
    // stay in another mode.
    let mut mode = String::new();
    connection.pragma(None, "journal_mode", "wal", |row| row.get(0).map(|now| mode = now))?;
    if mode != "wal" {
        let message = format!("cannot use the write-ahead log; the journal stays in mode `{mode}`");
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        return Err(rusqlite::Error::SqliteFailure(error, Some(message)));
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    ready(&connection)?;
    Ok(connection)
}

/// Opens the file for reading only.
pub(super) fn connect_read_only(file: &Path) -> Result<Connection, rusqlite::Error> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    ready(&connection)?;
    Ok(connection)
}

fn ready(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_prepared_statement_cache_capacity(MAX_PREPARED_STATEMENTS);
    connection.busy_timeout(std::time::Duration::from_secs(5))
}

/// A function that derives columns from the journals, within the transaction of a migration.
pub(super) type Backfill = fn(&Connection) -> Result<(), rusqlite::Error>;

/// Upgrades an older file to the present version, in one transaction: a process that dies meanwhile leaves the file as
/// it was. Returns the version of the file after that.
pub(super) fn migrate(connection: &mut Connection, backfill: Backfill) -> Result<u32, rusqlite::Error> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found >= VERSION {
        return Ok(found);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        transaction.execute_batch(migration)?;
        if index + 1 == SEARCH_VERSION {
            backfill(&transaction)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(VERSION)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// The test uses a file of the tenth version: two runs whose units are not adjacent, and one that has lost its
    /// end.
    #[test]
    fn migration_orders_units_by_commit_and_still_detects_lost_ones() {
        let mut connection = Connection::open_in_memory().unwrap();
        for migration in &MIGRATIONS[..10] {
            connection.execute_batch(migration).unwrap();
        }
        connection.pragma_update(None, "user_version", 10).unwrap();
        for (id, name, standing) in [(1, "whole", "succeeded"), (2, "lost", "parked"), (3, "gone", "removed")] {
            let sql = "INSERT INTO runs (id, tenant, run, flow, depth, record, standing, created, updated)
                VALUES (?, 't', ?, 'f', 0, '', ?, 0, 0)";
            connection.execute(sql, (id, name, standing)).unwrap();
        }
        for (run, first_seq, at_end) in [(1_i64, 0, 0), (1, 2, 1), (2, 0, 0)] {
            let sql = "INSERT INTO units (place, facts, at_end, ts, checksum, body) VALUES (?, 2, ?, 0, ?, '[]')";
            connection.execute(sql, ((run << 32) | first_seq, at_end, first_seq + 7)).unwrap();
        }
        assert_eq!(migrate(&mut connection, |_| Ok(())).unwrap(), VERSION);
        let all = |sql: &str| -> Vec<[i64; 3]> {
            let mut select = connection.prepare(sql).unwrap();
            let rows = select.query_map((), |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let units = "SELECT run, units.first_seq, checksum FROM places JOIN units USING (run, place) ORDER BY 1, 2";
        assert_eq!(all(units), [[1, 0, 7], [1, 2, 9], [2, 0, 7]]);
        assert_eq!(all("SELECT id, next_seq, upto FROM runs, noted"), [[1, 4, 3], [2, 3, 3], [3, 0, 3]]);
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let failed = migrate(&mut connection, |_| Err(rusqlite::Error::InvalidQuery));
        assert_eq!(failed, Err(rusqlite::Error::InvalidQuery));
        let count = |sql: &str| connection.query_one(sql, (), |row| row.get::<_, u32>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM sqlite_schema"), 0);
        assert_eq!(count("PRAGMA user_version"), 0);
    }
}
