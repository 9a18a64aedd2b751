//! The tables, and how an older file becomes a newer one.

use std::{ops::RangeInclusive, path::Path};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

/// Says that the file is a store of Flowcell ("Flow").
const APPLICATION: u32 = 0x466c_6f77;
/// Older versions lost data when a checkpoint met a reset of the log.
const LEAST_SQLITE: i32 = 3_051_003;

/// Statements that a connection keeps prepared: all that there are.
const STATEMENTS: usize = 128;

/// The version that this program writes: the number of migrations.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Append only: a migration that was released is never changed.
const MIGRATIONS: [&str; 10] = [
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
];

/// Opens the file for its owner.
pub(super) fn connect(file: &Path) -> Result<Connection, rusqlite::Error> {
    assert!(rusqlite::version_number() >= LEAST_SQLITE, "SQLite is too old to be trusted with a journal");
    let connection = Connection::open(file)?;
    // What the disk refuses is told after the row that says how it went; without it the store would stay in another mode.
    let mut mode = String::new();
    connection.pragma(None, "journal_mode", "wal", |row| row.get(0).map(|now| mode = now))?;
    if mode != "wal" {
        let message = format!("the write-ahead log cannot be used, and the journal stays in mode `{mode}`");
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        return Err(rusqlite::Error::SqliteFailure(error, Some(message)));
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    ready(&connection)?;
    Ok(connection)
}

/// Opens the file for somebody who only reads.
pub(super) fn connect_read_only(file: &Path) -> Result<Connection, rusqlite::Error> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    ready(&connection)?;
    Ok(connection)
}

fn ready(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.busy_timeout(std::time::Duration::from_secs(5))
}

/// Where the units of a run are, from the one that begins with a fact: what `units.place` may be.
pub(super) fn places(id: i64, first_seq: u64) -> RangeInclusive<i64> {
    place(id, first_seq)..=place(id, u32::MAX.into())
}

/// Where a unit is.
pub(super) fn place(id: i64, first_seq: u64) -> i64 {
    (id << 32) | first_seq.min(u32::MAX.into()) as i64
}

/// Makes an older file a newer one. Answers the version that the file has now.
pub(super) fn migrate(connection: &mut Connection) -> Result<u32, rusqlite::Error> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", index as u32 + 1)?;
        transaction.commit()?;
    }
    Ok(found.max(VERSION))
}
