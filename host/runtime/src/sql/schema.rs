//! The tables, and upgrades of older ones.

use std::time::{Duration, Instant};

use super::{
    OpenSharedStoreError, TELL_INTERVAL,
    connection::{Connection, SqlError, args},
    dialect::Dialect,
    tell_waiting,
};

/// The version that this program writes: the number of migrations.
pub(super) const VERSION: u64 = MIGRATIONS.len() as u64;

/// Append only: never change a released migration. Each statement must be repeatable: MySQL and MariaDB commit with
/// every created table, so a process may end in the middle of a migration.
const MIGRATIONS: [&[&str]; 8] = [FIRST, SESSIONS, REGISTRY, REPEATS, SEARCH, EPOCH, CHANGES, OBJECTS];

/// Rows may repeat values (`rows/cut.rs`), and passes name the value of the previous pass. Older programs read neither.
const REPEATS: &[&str] = &[];

const FIRST: &[&str] = &[
    // Processes. Each drives its runs until this time.
    "CREATE TABLE IF NOT EXISTS flowcell_owners (id {id}, name {bytes} NOT NULL, until BIGINT NOT NULL) {table}",
    // `top` is the top run above this one: its owner owns all runs of the tree. `owner` writes only while `epoch` is
    // the epoch of its claim. Claims are counted until the owner appends.
    "CREATE TABLE IF NOT EXISTS flowcell_runs (
        id {id},
        tenant {name} NOT NULL,
        hash {hash} NOT NULL,
        run {bytes} NOT NULL,
        flow {name} NOT NULL,
        depth BIGINT NOT NULL,
        parent BIGINT,
        top BIGINT,
        record {bytes} NOT NULL,
        standing {word} NOT NULL,
        due BIGINT,
        attention BIGINT NOT NULL,
        next_seq BIGINT NOT NULL,
        tail BIGINT NOT NULL,
        created BIGINT NOT NULL,
        updated BIGINT NOT NULL,
        owner BIGINT,
        epoch BIGINT NOT NULL,
        claims BIGINT NOT NULL,
        CONSTRAINT flowcell_run UNIQUE (tenant, hash)
    ) {table}",
    "CREATE INDEX IF NOT EXISTS flowcell_children ON flowcell_runs (parent)",
    "CREATE INDEX IF NOT EXISTS flowcell_tree ON flowcell_runs (top)",
    "CREATE INDEX IF NOT EXISTS flowcell_work ON flowcell_runs (tenant, depth, standing, due)",
    "CREATE INDEX IF NOT EXISTS flowcell_latest ON flowcell_runs (tenant, depth, created)",
    "CREATE INDEX IF NOT EXISTS flowcell_owned ON flowcell_runs (owner)",
    // The facts of one decision. The checksum covers the row and the checksum of the previous row.
    "CREATE TABLE IF NOT EXISTS flowcell_units (
        run BIGINT NOT NULL,
        first_seq BIGINT NOT NULL,
        facts BIGINT NOT NULL,
        ts BIGINT NOT NULL,
        body {bytes} NOT NULL,
        cuts {bytes},
        checksum BIGINT NOT NULL,
        PRIMARY KEY (run, first_seq)
    ) {table}",
    "CREATE TABLE IF NOT EXISTS flowcell_state (
        tenant {name} NOT NULL,
        flow {name} NOT NULL,
        name {key} NOT NULL,
        value {bytes} NOT NULL,
        cuts {bytes},
        version BIGINT NOT NULL,
        PRIMARY KEY (tenant, flow, name)
    ) {table}",
    "CREATE TABLE IF NOT EXISTS flowcell_blobs (
        tenant {name} NOT NULL,
        hash {name} NOT NULL,
        mime {bytes} NOT NULL,
        size BIGINT NOT NULL,
        bytes {bytes} NOT NULL,
        put_at BIGINT NOT NULL,
        PRIMARY KEY (tenant, hash)
    ) {table}",
    "CREATE TABLE IF NOT EXISTS flowcell_cache (
        id {id},
        tenant {name} NOT NULL,
        name {key} NOT NULL,
        value {bytes} NOT NULL,
        expires BIGINT,
        CONSTRAINT flowcell_cached UNIQUE (tenant, name)
    ) {table}",
    // Commands to runs that another process drives, until they have an outcome.
    "CREATE TABLE IF NOT EXISTS flowcell_inbox (
        id {id},
        tenant {name} NOT NULL,
        hash {hash} NOT NULL,
        run {bytes} NOT NULL,
        message {name} NOT NULL,
        body {bytes} NOT NULL,
        outcome {bytes},
        put_at BIGINT NOT NULL,
        CONSTRAINT flowcell_message UNIQUE (tenant, hash, message)
    ) {table}",
];

const SESSIONS: &[&str] = &[
    // The sessions that steps of flows continue in later runs: a tree for each flow and prefix, with the first step's
    // at the root. `run` is the last writer.
    "CREATE TABLE IF NOT EXISTS flowcell_sessions (
        tenant {name} NOT NULL,
        id {name} NOT NULL,
        parent_session_id {name},
        root_session_id {name} NOT NULL,
        title {bytes} NOT NULL,
        run {bytes} NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (tenant, id)
    ) {table}",
    "CREATE INDEX IF NOT EXISTS flowcell_sessions_root ON flowcell_sessions (tenant, root_session_id)",
    "CREATE TABLE IF NOT EXISTS flowcell_flow_states (
        tenant {name} NOT NULL,
        session_id {name} NOT NULL,
        root_session_id {name} NOT NULL,
        flow_id {name} NOT NULL,
        step_id {name} NOT NULL,
        status {word} NOT NULL DEFAULT 'running',
        args {bytes},
        output {bytes},
        is_struct_output BIGINT NOT NULL DEFAULT 0,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (tenant, session_id),
        CONSTRAINT flowcell_state_session FOREIGN KEY (tenant, session_id)
            REFERENCES flowcell_sessions (tenant, id) ON DELETE CASCADE
    ) {table}",
    "CREATE INDEX IF NOT EXISTS flowcell_states_root ON flowcell_flow_states (tenant, root_session_id)",
    "CREATE INDEX IF NOT EXISTS flowcell_states_flow ON flowcell_flow_states (tenant, flow_id)",
];

const REGISTRY: &[&str] = &[
    // Documents of operators beside the runs: tenants, tokens, the audit log. The version counts the writes.
    "CREATE TABLE IF NOT EXISTS flowcell_registry (
        tenant {name} NOT NULL,
        kind {name} NOT NULL,
        name {name} NOT NULL,
        value {bytes} NOT NULL,
        version BIGINT NOT NULL,
        PRIMARY KEY (tenant, kind, name)
    ) {table}",
];

const SEARCH: &[&str] = &[
    // The columns that lists of runs search. Those of a failed run are derived from its last unit.
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS version BIGINT",
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS labels {bytes}",
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS started_by {name}",
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS retry_of {name}",
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS error {name}",
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS failed_node {name}",
    "ALTER TABLE flowcell_runs ADD COLUMN IF NOT EXISTS error_words {bytes}",
    "CREATE INDEX IF NOT EXISTS flowcell_runs_flow ON flowcell_runs (tenant, flow, created)",
    "CREATE INDEX IF NOT EXISTS flowcell_runs_standing ON flowcell_runs (tenant, standing, attention, created)",
    "CREATE INDEX IF NOT EXISTS flowcell_runs_error ON flowcell_runs (tenant, error, created)",
    "CREATE INDEX IF NOT EXISTS flowcell_runs_node ON flowcell_runs (tenant, failed_node, created)",
    "CREATE INDEX IF NOT EXISTS flowcell_runs_trigger ON flowcell_runs (tenant, started_by, created)",
    "CREATE INDEX IF NOT EXISTS flowcell_runs_retry ON flowcell_runs (tenant, retry_of, created)",
    // The labels of runs, in the order of lists.
    "CREATE TABLE IF NOT EXISTS flowcell_labels (
        tenant {name} NOT NULL,
        name {name} NOT NULL,
        value {name} NOT NULL,
        created BIGINT NOT NULL,
        run BIGINT NOT NULL,
        PRIMARY KEY (tenant, name, value, created, run)
    ) {table}",
    "CREATE INDEX IF NOT EXISTS flowcell_labels_run ON flowcell_labels (run)",
];

const EPOCH: &[&str] = &[
    // The age of the database, in one row (`epoch.rs`).
    "CREATE TABLE IF NOT EXISTS flowcell_epoch (
        id BIGINT PRIMARY KEY,
        lineage {name} NOT NULL,
        number BIGINT NOT NULL
    ) {table}",
    "INSERT INTO flowcell_epoch (id, lineage, number)
        SELECT 1, {random}, 0 FROM (SELECT count(*) AS present FROM flowcell_epoch) AS counted WHERE present = 0",
];

const CHANGES: &[&str] = &[
    // The runs of a status, in the order of the last changes.
    "CREATE INDEX IF NOT EXISTS flowcell_runs_changed ON flowcell_runs (tenant, depth, standing, updated)",
];

const OBJECTS: &[&str] = &[
    // The name of the object that has a content. Then the bytes are the digests of its pieces.
    "ALTER TABLE flowcell_blobs ADD COLUMN IF NOT EXISTS object {name}",
    // The name of this store among those that have files in object stores, and the address of its files there, in one
    // row.
    "CREATE TABLE IF NOT EXISTS flowcell_objects (
        id BIGINT PRIMARY KEY,
        name {name} NOT NULL,
        location {bytes}
    ) {table}",
    "INSERT INTO flowcell_objects (id, name)
        SELECT 1, {random} FROM (SELECT count(*) AS present FROM flowcell_objects) AS counted WHERE present = 0",
];

/// Returns the names of all tables, each with whether it has a column of tenants.
#[cfg(test)]
pub(super) fn tables() -> std::collections::BTreeMap<String, bool> {
    let made = MIGRATIONS.iter().flat_map(|statements| statements.iter());
    let mut tables = std::collections::BTreeMap::from([("flowcell_version".to_owned(), false)]);
    for statement in made.filter_map(|statement| statement.strip_prefix("CREATE TABLE IF NOT EXISTS ")) {
        let (name, columns) = statement.split_once(" (").expect("a table has columns");
        tables.insert(name.to_owned(), columns.contains("tenant {name}"));
    }
    tables
}

/// The name of the lock of MySQL and MariaDB, as SQL. Their locks are those of the server, which may have several
/// databases.
const MYSQL_LOCK: &str = "CONCAT('flowcell ', SHA1(DATABASE()))";
/// Interval between two tries to take the lock of the process that applies migrations.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// The first version whose runs have the columns that lists search.
const SEARCH_VERSION: usize = 5;

/// Reads the version of a database. Returns `None` if it has no store. The version is 0 before the first migration is done.
pub(super) async fn version(connection: &mut Connection) -> Result<Option<u64>, SqlError> {
    let here = connection.dialect().pick("DATABASE()", "current_schema()");
    let sql = format!(
        "SELECT count(*) FROM information_schema.tables WHERE table_name = 'flowcell_version' AND table_schema = {here}"
    );
    if connection.row(&sql, args![]).await?.map_or(Ok(0), |row| row.int(0))? == 0 {
        return Ok(None);
    }
    let found = connection.row("SELECT COALESCE(max(version), 0) FROM flowcell_version", args![]).await?;
    found.map(|row| row.number(0)).transpose()
}

/// A function that derives columns from the journals.
pub(super) trait Backfill: AsyncFnOnce(&mut Connection) -> Result<(), SqlError> {}

impl<F: AsyncFnOnce(&mut Connection) -> Result<(), SqlError>> Backfill for F {}

/// Applies the missing migrations. If several processes start together, one applies them, and the others wait for at most
/// `patience`.
pub(super) async fn migrate(
    connection: &mut Connection,
    patience: Duration,
    backfill: impl Backfill,
) -> Result<(), OpenSharedStoreError> {
    // In the common case no lock is needed, so no process waits for the one that holds it.
    if known_version(connection).await? == VERSION {
        return Ok(());
    }
    lock_migrations(connection, patience).await?;
    let done = migrate_alone(connection, backfill).await;
    let over = match connection.dialect() {
        Dialect::MySql => format!("DO RELEASE_LOCK({MYSQL_LOCK})"),
        Dialect::Postgres => "SELECT pg_advisory_unlock(7165065861)".to_owned(),
    };
    // The lock ends with the connection in any case. The error of the upgrade says more than that of a closed connection.
    let unlocked = connection.run_unprepared(&over).await;
    done?;
    unlocked?;
    Ok(())
}

/// Reads the version of a database, 0 if it has no store. Refuses one that a newer program has written.
async fn known_version(connection: &mut Connection) -> Result<u64, OpenSharedStoreError> {
    match version(connection).await?.unwrap_or(0) {
        found if found > VERSION => Err(OpenSharedStoreError::Newer { found, known: VERSION }),
        found => Ok(found),
    }
}

/// Takes the lock of the process that applies migrations. It ends with the connection. A server that is asked to wait would
/// fail after the time of a statement or a lock, so it is asked repeatedly.
async fn lock_migrations(connection: &mut Connection, patience: Duration) -> Result<(), SqlError> {
    let (began, mut told) = (Instant::now(), None::<Instant>);
    let sql = match connection.dialect() {
        Dialect::MySql => format!("SELECT CAST(GET_LOCK({MYSQL_LOCK}, 0) AS SIGNED)"),
        Dialect::Postgres => {
            "SELECT CAST(CASE WHEN pg_try_advisory_lock(7165065861) THEN 1 ELSE 0 END AS BIGINT)".to_owned()
        }
    };
    while connection.row(&sql, args![]).await?.map_or(Ok(0), |row| row.int(0))? != 1 {
        let left = patience.saturating_sub(began.elapsed());
        if left.is_zero() {
            let why = "another process is upgrading the tables; start this one again when it has ended";
            return Err(SqlError::Transient(why.into()));
        }
        if told.is_none_or(|told| told.elapsed() >= TELL_INTERVAL) {
            told = Some(Instant::now());
            let seconds = left.as_millis().div_ceil(1_000);
            tell_waiting(&format!(
                "waiting for another process that upgrades the tables of the store, for at most {seconds} s"
            ));
        }
        tokio::time::sleep(LOCK_INTERVAL.min(left)).await;
    }
    Ok(())
}

async fn migrate_alone(connection: &mut Connection, backfill: impl Backfill) -> Result<(), OpenSharedStoreError> {
    let found = known_version(connection).await?;
    connection.run_unprepared("CREATE TABLE IF NOT EXISTS flowcell_version (version BIGINT NOT NULL) {table}").await?;
    let mut backfill = Some(backfill);
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        for statement in *migration {
            make(connection, statement).await?;
        }
        if let Some(backfill) = backfill.take_if(|_| index + 1 == SEARCH_VERSION) {
            backfill(connection).await?;
        }
        connection.run("INSERT INTO flowcell_version (version) VALUES (?)", args![index as u64 + 1]).await?;
    }
    Ok(())
}

async fn make(connection: &mut Connection, statement: &str) -> Result<(), SqlError> {
    let made = connection.run_unprepared(statement).await;
    let named = ["CREATE INDEX", "ADD COLUMN"].iter().any(|what| statement.contains(what));
    match made {
        // MySQL itself has no `IF NOT EXISTS` for columns and indexes; MariaDB and PostgreSQL do.
        Err(SqlError::Permanent(_)) if named && connection.dialect() == Dialect::MySql => {
            match connection.run_unprepared(&statement.replace("IF NOT EXISTS ", "")).await {
                Err(SqlError::DuplicateName(_)) => Ok(()),
                made => made,
            }
        }
        made => made,
    }
}
