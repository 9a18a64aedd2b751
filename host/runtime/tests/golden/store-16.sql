-- A golden store, see `main.rs`. Do not change it.
PRAGMA foreign_keys = OFF;
BEGIN;
PRAGMA application_id = 1181511543;
PRAGMA user_version = 16;
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
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL, attention INTEGER NOT NULL DEFAULT 0, next_seq INTEGER NOT NULL DEFAULT 0, version INTEGER, labels TEXT, started_by TEXT, retry_of TEXT, error TEXT, failed_node TEXT, error_words TEXT,
    UNIQUE (tenant, run)
) STRICT;
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (1, 'local', 'gate', 'gate', 0, NULL, '{"flow":"gate","pin":"gate","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"gate"}', 'parked', NULL, 1, 1, 0, 10, NULL, NULL, NULL, NULL, NULL, NULL, '{"reason":"gate","task":"ask"}');
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (2, 'local', 'timer', 'timer', 0, NULL, '{"flow":"timer","pin":"timer","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"timer"}', 'parked', 1001, 1, 1, 0, 6, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (3, 'local', 'fails', 'fails', 0, NULL, '{"flow":"fails","pin":"fails","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"fails"}', 'failed', NULL, 1, 1, 0, 15, NULL, NULL, NULL, NULL, 'planned', 'bad', ' it fails');
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (4, 'local', 'parent', 'parent', 0, NULL, '{"flow":"parent","pin":"parent","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"parent"}', 'parked', NULL, 1, 1, 0, 6, NULL, NULL, NULL, NULL, NULL, NULL, '{"reason":"gate","task":"sub/ask"}');
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (5, 'local', 'parent.sub.1', 'gate', 1, 'parent', '{"flow":"gate","pin":"gate","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":1,"parent":"parent","root":"parent/sub","called":"gate"}', 'active', NULL, 1, 1, 0, 4, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (6, 'local', 'each', 'each', 0, NULL, '{"flow":"each","pin":"each","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"each"}', 'parked', NULL, 1, 1, 0, 14, NULL, NULL, NULL, NULL, NULL, NULL, '{"reason":"gate","task":"all[0].ask","others":1}');
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (7, 'local', 'done', 'done', 0, NULL, '{"flow":"done","pin":"done","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"done"}', 'succeeded', NULL, 1, 1, 0, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (8, 'local', 'again', 'fails', 0, NULL, '{"flow":"fails","pin":"repaired","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"again","again":{"run":"fails","inVersion":{"kept":["a"]},"asksAgain":true},"repeats":"fails","version":2}', 'parked', NULL, 1, 1, 0, 10, 2, NULL, NULL, 'fails', NULL, NULL, '{"reason":"gate","task":"bad"}');
INSERT INTO runs (id, tenant, run, flow, depth, parent, record, standing, due, created, updated, attention, next_seq, version, labels, started_by, retry_of, error, failed_node, error_words) VALUES (9, 'local', 'hangs', 'hangs', 0, NULL, '{"flow":"hangs","pin":"hangs","policy":{"fail_fast":true,"total_timeout_ms":null,"max_concurrency":16},"depth":0,"root":"hangs"}', 'active', NULL, 1, 1, 0, 4, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE state (
    tenant TEXT NOT NULL,
    flow TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    version INTEGER NOT NULL, cuts TEXT,
    PRIMARY KEY (tenant, flow, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE blobs (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    mime TEXT NOT NULL,
    bytes BLOB NOT NULL, file INTEGER, object TEXT,
    UNIQUE (tenant, hash)
) STRICT;
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
CREATE TABLE registry (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    -- Counts the writes.
    version INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE epoch (number INTEGER NOT NULL) STRICT;
INSERT INTO epoch (number) VALUES (1);
CREATE TABLE "units" (
    place INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    facts INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL,
    cuts TEXT
) STRICT;
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (1, 1, 0, 10, 1, 3183161218, '[{"RunStarted":{"input":{"n":7},"seed":10366419215139774485,"deadline":null,"about":{"run":"gate","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskSucceeded":{"task":{"scope":0,"node":0},"output":{"x":7},"received":{"digest":"d498d92783617c55a722787b2c9b6582"}}},{"EdgeSettled":{"scope":0,"edge":0,"fired":true}},{"TaskReady":{"task":{"scope":0,"node":1},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":1}}},{"TaskPaused":{"task":{"scope":0,"node":1},"pause":{"until":[{"answer":{"prompt":"Well?","choices":[],"allowText":true,"audience":[]}}],"state":null},"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}},{"RunParked":{"due":null,"reason":"waiting","waits_for":{"reason":"gate","task":"ask"}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (2, 2, 0, 6, 1, 2010466757, '[{"RunStarted":{"input":{"n":7},"seed":9499315268781736217,"deadline":null,"about":{"run":"timer","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskPaused":{"task":{"scope":0,"node":0},"pause":{"until":[{"after":1000}],"state":null},"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}},{"RunParked":{"due":1001,"reason":"waiting"}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (3, 3, 0, 15, 1, 3497081522, '[{"RunStarted":{"input":{"n":7},"seed":10988463362829661787,"deadline":null,"about":{"run":"fails","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskSucceeded":{"task":{"scope":0,"node":0},"output":{"x":1},"received":{"digest":"42434732c4af5ebe896aa7ba16e3ab89"}}},{"EdgeSettled":{"scope":0,"edge":0,"fired":true}},{"TaskReady":{"task":{"scope":0,"node":1},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":1}}},{"TaskFailed":{"task":{"scope":0,"node":1},"failure":{"code":"planned","message":"it fails","retryable":false},"input":null,"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}},{"EdgeSettled":{"scope":0,"edge":1,"fired":false}},{"FailureUnhandled":{"task":{"scope":0,"node":1}}},{"ScopeClosing":{"scope":0}},{"TaskCancelled":{"task":{"scope":0,"node":2}}},{"PhaseEnded":{"success":false}},{"RunEnded":{"end":{"Failed":{"outputs":{"a":{"x":1},"bad":{"failed":true,"error":{"code":"planned","message":"it fails","retryable":false},"attempts":1},"b":{"cancelled":true}},"failure":{"code":"planned","message":"it fails","retryable":false},"task":"bad"}}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (4, 4, 0, 5, 1, 1075059295, '[{"RunStarted":{"input":{"n":7},"seed":3770132389272663929,"deadline":null,"about":{"run":"parent","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskPaused":{"task":{"scope":0,"node":0},"pause":{"until":[{"flow":{"name":"gate","input":{"n":3}}}],"state":null},"received":{"digest":"3ec0f3598fa31117598cd6f049a7dfbf"}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (5, 5, 0, 9, 1, 3689039450, '[{"RunStarted":{"input":{"n":3},"seed":15599997028370911288,"deadline":null,"about":{"run":"parent.sub.1","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskSucceeded":{"task":{"scope":0,"node":0},"output":{"x":3},"received":{"digest":"672e33cdb3d5b8b1ddc1fd2da7ad28dd"}}},{"EdgeSettled":{"scope":0,"edge":0,"fired":true}},{"TaskReady":{"task":{"scope":0,"node":1},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":1}}},{"TaskPaused":{"task":{"scope":0,"node":1},"pause":{"until":[{"answer":{"prompt":"Well?","choices":[],"allowText":true,"audience":[]}}],"state":null},"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (6, 4, 5, 1, 1, 1913254113, '[{"RunParked":{"due":null,"reason":"waiting","waits_for":{"reason":"gate","task":"sub/ask"}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (7, 6, 0, 14, 1, 2052741848, '[{"RunStarted":{"input":{"n":7},"seed":13929549025901077675,"deadline":null,"about":{"run":"each","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskPaused":{"task":{"scope":0,"node":0},"pause":{"until":[{"each":{"items":[1,2],"concurrency":null,"stopOnFailure":true}}],"state":null},"received":{"digest":"ecb1fe67d6c8239ffeb9b73a5563c64e"}}},{"PassStarted":{"scope":1,"owner":{"scope":0,"node":0},"index":0,"variables":{"item":1,"index":0,"count":2,"last":null}}},{"TaskReady":{"task":{"scope":1,"node":1},"deadline":null}},{"PassStarted":{"scope":2,"owner":{"scope":0,"node":0},"index":1,"variables":{"item":2,"index":1,"count":2,"last":null}}},{"TaskReady":{"task":{"scope":2,"node":1},"deadline":null}},{"AttemptStarted":{"task":{"scope":1,"node":1}}},{"AttemptStarted":{"task":{"scope":2,"node":1}}},{"TaskPaused":{"task":{"scope":1,"node":1},"pause":{"until":[{"answer":{"prompt":"Well?","choices":[],"allowText":true,"audience":[]}}],"state":null},"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}},{"TaskPaused":{"task":{"scope":2,"node":1},"pause":{"until":[{"answer":{"prompt":"Well?","choices":[],"allowText":true,"audience":[]}}],"state":null},"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}},{"RunParked":{"due":null,"reason":"waiting","waits_for":{"reason":"gate","task":"all[0].ask","others":1}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (8, 7, 0, 7, 1, 3159150985, '[{"RunStarted":{"input":{"n":7},"seed":2541207352831716048,"deadline":null,"about":{"run":"done","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskSucceeded":{"task":{"scope":0,"node":0},"output":{"x":7},"received":{"digest":"d498d92783617c55a722787b2c9b6582"}}},{"PhaseEnded":{"success":true}},{"RunEnded":{"end":{"Succeeded":{"outputs":{"a":{"x":7}}}}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (9, 8, 0, 10, 1, 3254323776, '[{"RunStarted":{"input":{"n":7},"seed":18407168632224393302,"deadline":null,"about":{"run":"again","tenant":"local","version":2}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":2},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":2}}},{"TaskSucceeded":{"task":{"scope":0,"node":2},"output":{"x":1},"received":"nothing"}},{"EdgeSettled":{"scope":0,"edge":0,"fired":true}},{"TaskReady":{"task":{"scope":0,"node":1},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":1}}},{"TaskPaused":{"task":{"scope":0,"node":1},"pause":{"until":[{"answer":{"prompt":"Well?","choices":[],"allowText":true,"audience":[]}}],"state":null},"received":{"digest":"33afd4c14151cccad7bd29175ea7a84e"}}},{"RunParked":{"due":null,"reason":"waiting","waits_for":{"reason":"gate","task":"bad"}}}]', NULL);
INSERT INTO units (place, run, first_seq, facts, ts, checksum, body, cuts) VALUES (10, 9, 0, 8, 1, 3768563017, '[{"RunStarted":{"input":{"n":7},"seed":11512218617993800488,"deadline":null,"about":{"run":"hangs","tenant":"local"}}},"PhaseStarted",{"TaskReady":{"task":{"scope":0,"node":0},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":0}}},{"TaskSucceeded":{"task":{"scope":0,"node":0},"output":{"x":1},"received":{"digest":"42434732c4af5ebe896aa7ba16e3ab89"}}},{"EdgeSettled":{"scope":0,"edge":0,"fired":true}},{"TaskReady":{"task":{"scope":0,"node":1},"deadline":null}},{"AttemptStarted":{"task":{"scope":0,"node":1}}}]', NULL);
CREATE TABLE places (
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (run, first_seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE noted (upto INTEGER NOT NULL) STRICT;
INSERT INTO noted (upto) VALUES (0);
CREATE TABLE labels (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created INTEGER NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, value, created, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE object_store (name TEXT NOT NULL, location TEXT) STRICT;
INSERT INTO object_store (name, location) VALUES ('43dc9de67e19dd06967df0241a71d2fc', NULL);
CREATE INDEX children ON runs (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX latest ON runs (tenant, created) WHERE depth = 0 AND standing <> 'removed';
CREATE INDEX sessions_root_session ON sessions (tenant, root_session_id);
CREATE INDEX idx_flow_states_root_session ON flow_states (tenant, root_session_id);
CREATE INDEX idx_flow_states_flow_id ON flow_states (tenant, flow_id);
CREATE INDEX parked ON runs (tenant, due) WHERE depth = 0 AND standing = 'parked';
CREATE INDEX ended ON runs (tenant, updated)
    WHERE depth = 0 AND standing IN ('succeeded', 'failed', 'cancelled');
CREATE INDEX runs_of_flow ON runs (tenant, flow, created) WHERE depth = 0 AND standing <> 'removed';
CREATE INDEX active ON runs (tenant, created) WHERE depth = 0 AND standing = 'active';
CREATE INDEX runs_parked ON runs (tenant, attention, created) WHERE depth = 0 AND standing = 'parked';
CREATE INDEX runs_failed ON runs (tenant, created) WHERE depth = 0 AND standing = 'failed';
CREATE INDEX runs_cancelled ON runs (tenant, created) WHERE depth = 0 AND standing = 'cancelled';
CREATE INDEX runs_with_error ON runs (tenant, error, created) WHERE error IS NOT NULL;
CREATE INDEX runs_with_node ON runs (tenant, failed_node, created) WHERE failed_node IS NOT NULL;
CREATE INDEX runs_of_trigger ON runs (tenant, started_by, created) WHERE started_by IS NOT NULL;
CREATE INDEX runs_of_retry ON runs (tenant, retry_of, created) WHERE retry_of IS NOT NULL;
CREATE INDEX labels_of_run ON labels (run);
CREATE INDEX runs_live ON runs (tenant, updated) WHERE depth = 0 AND standing IN ('active', 'parked');
COMMIT;
