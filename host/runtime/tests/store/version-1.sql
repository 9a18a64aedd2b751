-- A store of version 1, as the first migration made it.
PRAGMA application_id = 1181511543;
PRAGMA user_version = 1;
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
