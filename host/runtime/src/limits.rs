//! The limits of this crate on the use of a run. The page `limits` of the manual lists them.

/// Minimum bytes of free pages of a database file that is compacted after a sweep.
pub const COMPACT_FREE_BYTES: u64 = 16 << 20;
/// Maximum bytes of used pages of a database file that is compacted after a sweep.
pub const COMPACT_USED_BYTES: u64 = 256 << 20;
/// Bytes of the reserve file that the removal of runs may use on a full disk.
pub const RESERVE_BYTES: u64 = 8 << 20;
/// Maximum bytes of a key of state or cache.
pub const MAX_KEY_BYTES: usize = 512;
/// Maximum number of values in a tenant's cache. Beyond this the cache drops the oldest.
pub const MAX_CACHE_ENTRIES: usize = 10_000;
/// Maximum bytes of the keys and JSON texts in a tenant's cache together. Beyond this the cache drops the oldest.
pub const MAX_CACHE_BYTES: u64 = 64 << 20;
/// Maximum number of named events that a run keeps for later waits.
pub const MAX_KEPT_EVENTS: usize = 1_000;
/// Maximum bytes of the names and JSON texts of the kept events of a run together.
pub const MAX_KEPT_EVENT_BYTES: usize = 4 << 20;
/// Default number of concurrent passes of a fan-out.
pub const DEFAULT_FAN_OUT: u32 = 8;
/// Maximum depth of runs that call runs.
pub const MAX_DEPTH: u32 = 16;
/// Maximum number of concurrent runs below a top run, on all levels: sub-flows, tools and other calls.
pub const MAX_TREE_CHILDREN: u64 = 256;
/// Maximum number of runs that may begin below a top run while a process drives it.
pub const MAX_TREE_RUNS: u64 = 100_000;
/// Maximum number of concurrent runs below top runs in a process, shared by its tenants. Every tenant may have 16 such
/// runs. A tenant with 16 or more gets another one only if it then has no more such runs than permits are still free.
pub const MAX_LIVE_CHILDREN: u64 = 1_024;
/// Maximum number of runs in a chain in which each run repeats the one before. A driver looks no further back for the
/// flow that a task called in an earlier run.
pub const MAX_REPEATS: u32 = 16;
/// Maximum number of the runs that repeat one run that are read to see whether one of them has taken over a node.
pub const MAX_READ_REPEATS: usize = 1_000;
/// Maximum number of moves of a run to other versions of its flow. While a run is loaded, memory holds a graph for each.
pub const MAX_MOVES: usize = 8;
/// Maximum number of commands that wait for a run's driver. Beyond this senders wait.
pub const MAX_QUEUED_COMMANDS: usize = 1_024;
/// Maximum number of automatic resumptions of a run without progress. After that the run is a suspect: a process drives
/// it alone.
pub const MAX_IDLE_RESUMES: u32 = 2;
/// Maximum number of times that a process may die while it drives only this run, and the run makes no progress. Then
/// the run is parked until a person intervenes.
pub const MAX_LONE_DEATHS: u32 = 2;
/// Maximum number of concurrent calls of one attempt.
pub const MAX_OPEN_CALLS: usize = 64;
/// Milliseconds that a task waits for the ends of its calls after it was cancelled or timed out.
pub const CALL_GRACE_MS: u64 = 10_000;
/// Maximum number of events of a run. A run with more ends with `run_too_large`.
pub const MAX_RUN_EVENTS: u64 = 5_000_000;
/// Maximum number of facts of one decision before it begins another pass of a cycle of edges. Beyond it the entry of the
/// cycle fails: passes in which no node runs would follow each other without end.
pub const MAX_FACTS_BEFORE_PASS: usize = 100_000;
/// Approximate maximum bytes of the events of a run as JSON text. A run with more ends with `run_too_large`.
pub const MAX_RUN_BYTES: u64 = 1 << 30;
/// Work of expressions in one turn of a driver, in the unit of [`flowcell_expr::limits::WORK`]. Beyond this the
/// expressions wait until the scheduler gives computing time to their tenant.
pub const TURN_WORK: u64 = 4 << 20;
/// Maximum work of all expressions of one part of a flow together: a node's input, its config, a condition, or the
/// outputs. The unit is that of [`TURN_WORK`].
pub const PLACE_WORK: u64 = 64 * flowcell_expr::limits::WORK as u64;
/// Maximum work of an expression that a person evaluates. The unit is that of [`TURN_WORK`].
pub const PROBE_WORK: u64 = 4 * flowcell_expr::limits::WORK as u64;
/// Maximum work of all expressions in one step of a driver, from one wait for input to the next. The unit is that of
/// [`TURN_WORK`].
pub const STEP_WORK: u64 = 512 * flowcell_expr::limits::WORK as u64;
/// Maximum bytes, as JSON text, of an answer, an event or a message from outside.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Maximum bytes of the id of a message to an agent run.
pub const MAX_MESSAGE_ID_BYTES: usize = 255;
/// Maximum number of open agent runs of an attempt.
pub const MAX_AGENT_RUNS: usize = 64;
/// Default number of messages that an inbox holds.
pub const DEFAULT_INBOX_MESSAGES: u64 = 64;
/// Maximum number of messages that an inbox may hold.
pub const MAX_INBOX_MESSAGES: u64 = 1_024;
/// Maximum bytes, as JSON text, of the waiting messages of all agent runs of a task together.
pub const MAX_INBOX_BYTES: usize = 4 << 20;
/// Number of the latest message ids that an agent run keeps to recognise repeated messages.
pub const MAX_REMEMBERED_MESSAGE_IDS: usize = 1_024;
/// Maximum bytes, as JSON text, of one report of a component on an agent run.
pub const MAX_AGENT_REPORT_BYTES: usize = 64 << 10;
/// Milliseconds that a waiting attempt keeps its sandbox. Then the driver evicts the attempt, and repeats it
/// when a message, a reply or an answer arrives for it, or when its wait for people reaches its time limit.
pub const EVICT_MS: u64 = 5_000;
/// Maximum bytes, as JSON text, of the inputs in the exported document of a run.
pub const MAX_EXPORTED_INPUT_BYTES: u64 = 16 << 20;
/// Maximum number of units of a journal in one read.
pub const MAX_READ_UNITS: usize = 1_000;
/// Milliseconds after which the store writes facts if no caller waits for them.
pub const FLUSH_MS: u64 = 50;
/// Approximate maximum bytes, as JSON text, of the item that a failure inside a body shows. A larger item is replaced
/// with a remark.
pub const MAX_FAILED_ITEM_BYTES: u64 = 1_024;
/// Milliseconds after which a wait for a timer reads the wall clock again. A clock that was set ahead, or a suspended
/// machine, delays the timer by at most this time.
pub const CLOCK_RECHECK_MS: u64 = 1_000;
/// Number of waiting facts at which the store writes them before [`FLUSH_MS`] have passed.
pub const FLUSH_FACTS: usize = 256;
/// Maximum bytes of a value's text in a row of the store. Larger values are stored beside the row, once for each
/// content.
pub const MAX_INLINE_BYTES: usize = 64 << 10;
/// Minimum bytes of a value's text for which a row with several copies of the value stores it once.
pub const MIN_REPEATED_BYTES: usize = 1 << 10;
/// Maximum bytes of units in one read, large values included. One unit is read even if it is larger.
pub const MAX_READ_BYTES: usize = 16 << 20;
/// Number of connections of a process to a shared store.
pub const SERVER_CONNECTIONS: u32 = 8;
/// Number of further connections of a process to a shared store, which test the server.
pub const SERVER_TEST_CONNECTIONS: u32 = 2;
/// Milliseconds that a process owns the runs that it has claimed in a shared store, by the store's clock, unless it
/// renews the claim.
pub const LEASE_MS: u64 = 15_000;
/// Milliseconds between two renewals of the claim.
pub const RENEW_MS: u64 = 5_000;
/// Milliseconds without a renewal after which a process stops driving its runs.
pub const GIVE_UP_MS: u64 = 10_000;
/// Milliseconds between two checks whether another process on this machine has died.
pub const DEATH_CHECK_MS: u64 = 1_000;
/// Milliseconds after which a server that does not answer counts as unreachable.
pub const SERVER_PATIENCE_MS: u64 = 10_000;
/// Milliseconds that a test of a server in an outage waits for each host.
pub const SERVER_TEST_MS: u64 = 5_000;
/// Milliseconds without an answer to a statement after which the server is tested.
pub const SLOW_STATEMENT_MS: u64 = 2_000;
/// Milliseconds after which a test commit that has not returned begins an outage.
pub const SLOW_COMMIT_MS: u64 = 2_000;
/// Milliseconds after which the first test commit of an outage that has not returned is given up and begun again. The
/// time doubles with each one that is given up.
pub const COMMIT_TEST_MS: u64 = 60_000;
/// Maximum number of hosts in the URL of a shared store.
pub const MAX_SERVER_HOSTS: usize = 8;
/// Milliseconds for which `serve` and `drive` wait at their start for a server that does not answer.
pub const SERVER_START_MS: u64 = 600_000;
/// Maximum bytes of a message between the processes of a store, such as a live event. PostgreSQL takes notifications of
/// less than 8,000 bytes.
pub const MAX_RELAYED_BYTES: usize = 7_900;
/// Maximum number of such messages that wait to be sent, and of those that wait for their receiver.
pub const MAX_RELAYED_MESSAGES: usize = 1_024;
/// Milliseconds for which such messages wait for others to be sent together.
pub const RELAY_PAUSE_MS: u64 = 20;
/// Milliseconds until a process connects for such messages again.
pub const RELAY_RETRY_MS: u64 = 1_000;
/// Milliseconds without such messages after which a process tests its connection for them.
pub const RELAY_CHECK_MS: u64 = 10_000;
/// Milliseconds between two checks for messages from other processes.
pub const INBOX_POLL_MS: u64 = 200;
/// Milliseconds that a process waits for the outcome of a message that it has sent.
pub const INBOX_PATIENCE_MS: u64 = 30_000;
/// Approximate maximum bytes of the values that one statement writes to a shared store.
pub const MAX_STATEMENT_BYTES: usize = 4 << 20;
/// Milliseconds for which the store keeps a new blob of this process although no text refers to it yet.
pub const SPARED_MS: u64 = 24 * 3_600 * 1_000;
/// Maximum bytes of the content of a file in the database, if the other files are in an object store. An object store
/// takes 10 to 50 ms for a request of any size, and a database writes this much in less.
pub const MAX_ROW_FILE_BYTES: usize = 1 << 20;
/// The size in bytes of a part of an upload. An object store takes parts of at least 5 MiB and at most 10,000 of them.
pub const OBJECT_PART_BYTES: usize = 5 << 20;
/// Milliseconds within which a connection to an object store must open.
pub const OBJECT_CONNECT_MS: u64 = 5_000;
/// Milliseconds that a request to an object store may take, with its body and that of the answer.
pub const OBJECT_REQUEST_MS: u64 = 30_000;
/// Milliseconds after which a request to an object store is not begun again.
pub const OBJECT_PATIENCE_MS: u64 = 20_000;
/// Maximum number of times that a request to an object store is begun again.
pub const OBJECT_RETRIES: usize = 5;
/// Milliseconds for which new files go into the database after an object store has not taken one.
pub const OBJECT_AWAY_MS: u64 = 30_000;
/// Milliseconds between the begin of an upload and the commit of its row, at most. A sweep removes an object without a
/// row after [`SPARED_MS`], which is longer.
pub const OBJECT_UPLOAD_MS: u64 = 12 * 3_600 * 1_000;
/// Maximum bytes of an answer of an object store.
pub const MAX_OBJECT_ANSWER_BYTES: usize = 40 << 20;
/// Maximum number of connections to an object store that a process keeps open for later requests.
pub const OBJECT_CONNECTIONS: usize = 8;
/// Milliseconds for which a connection to an object store stays open without a request.
pub const OBJECT_IDLE_MS: u64 = 15_000;
/// Maximum bytes of the prefix of the names of objects.
pub const MAX_OBJECT_PREFIX_BYTES: usize = 128;
/// The maximum time of a statement that upgrades the tables of a shared store, in milliseconds.
pub const MIGRATION_PATIENCE_MS: u64 = 600_000;
/// The maximum size of the part of an error message that lists of runs search, in bytes.
pub const MAX_SEARCHED_BYTES: usize = 1_024;
/// The maximum size of an error code and of the path of a failed node in lists of runs, in bytes.
pub const MAX_COLUMN_BYTES: usize = 255;
/// Maximum number of runs, with their journals, that one commit of the removal of a tenant removes.
pub const MAX_ERASED_RUNS: usize = 5;
/// Maximum number of large values that one commit of the removal of a tenant removes.
pub const MAX_ERASED_BLOBS: usize = 8;
/// Maximum number of other rows that one commit of the removal of a tenant removes.
pub const MAX_ERASED_ROWS: usize = 500;
/// The number of runs that one page of a list reads, if no index selects exactly the runs of its filter.
pub const MAX_READ_RUNS: usize = 20_000;
/// The number of runs that a request reads to count the runs of a filter.
pub const MAX_COUNT_READS: usize = 200_000;
/// The maximum number of runs that one request counts.
pub const MAX_COUNTED: usize = 10_000;
/// Maximum number of parked runs of a tenant that metrics look at. Those that need a person's decision have a maximum of
/// their own.
pub const MAX_WATCHED_RUNS: u64 = 10_000;
/// Maximum number of undone tasks that the details of a failure list.
pub const MAX_LISTED_UNDOS: usize = 100;
/// Milliseconds of the window of a tenant's quota: one day of UTC.
pub const QUOTA_WINDOW_MS: u64 = 24 * 3_600 * 1_000;
