//! The limits of this crate on the use of a run. The page `limits` of the manual lists them.

/// Bytes of a key of state or cache.
pub const MAX_KEY_BYTES: usize = 512;
/// Values in a tenant's cache. Beyond this the oldest is dropped.
pub const MAX_CACHE_ENTRIES: usize = 10_000;
/// Bytes of their keys and JSON texts together. Beyond this the oldest is dropped.
pub const MAX_CACHE_BYTES: u64 = 64 << 20;
/// Named events kept for waits that come later, per run.
pub const MAX_KEPT_EVENTS: usize = 1_000;
/// Bytes of their names and JSON texts together, per run.
pub const MAX_KEPT_EVENT_BYTES: usize = 4 << 20;
/// Concurrent passes of a fan-out, by default.
pub const DEFAULT_FAN_OUT: u32 = 8;
/// Maximum depth of runs that call runs.
pub const MAX_DEPTH: u32 = 16;
/// Concurrent runs below a root run, on all levels: sub-flows, tools and other calls.
pub const MAX_TREE_CHILDREN: u64 = 256;
/// Runs that may begin below a root run while a process drives it.
pub const MAX_TREE_RUNS: u64 = 100_000;
/// Concurrent runs below root runs in a process, shared by its tenants. A tenant gets at most as many as remain free
/// after that, but at least 16.
pub const MAX_LIVE_CHILDREN: u64 = 1_024;
/// The maximum number of retries of retries that are searched for the flow that was called at a place.
pub const MAX_REPEATS: u32 = 16;
/// Commands that wait for a run's driver. Beyond this senders wait.
pub const COMMAND_QUEUE: usize = 1_024;
/// Automatic resumptions of a run without progress. After that it is tried alone.
pub const MAX_IDLE_RESUMES: u32 = 2;
/// Deaths of the process while it drives only a run that makes no progress. Then the run is parked until a person
/// intervenes.
pub const MAX_LONE_DEATHS: u32 = 2;
/// Concurrent calls of one attempt.
pub const MAX_OPEN_CALLS: usize = 64;
/// Milliseconds that a task waits for the ends of its calls after it was cancelled or timed out.
pub const CALL_GRACE_MS: u64 = 10_000;
/// Events of a run. A run with more ends with `run_too_large`.
pub const MAX_RUN_EVENTS: u64 = 5_000_000;
/// Approximate bytes of the events of a run as JSON text. A run with more ends with `run_too_large`.
pub const MAX_RUN_BYTES: u64 = 1 << 30;
/// Work of expressions in one turn of a driver, in the unit of [`flowcell_expr::limits::WORK`]. Beyond this they wait
/// for their tenant's next turn.
pub const TURN_WORK: u64 = 4 << 20;
/// Work of the expressions of one place of a flow together: a node's input, its config, a condition, or the outputs.
pub const PLACE_WORK: u64 = 64 * flowcell_expr::limits::WORK as u64;
/// Work of all expressions between two waits of a driver.
pub const STEP_WORK: u64 = 512 * flowcell_expr::limits::WORK as u64;
/// Bytes, as JSON text, of an answer, an event or a message from outside.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Bytes of the id of a message to an agent run.
pub const MAX_MESSAGE_ID_BYTES: usize = 255;
/// Open agent runs of an attempt.
pub const MAX_AGENT_RUNS: usize = 64;
/// Messages that an inbox holds by default.
pub const INBOX_MESSAGES: u64 = 64;
/// Messages that an inbox may hold at most.
pub const MAX_INBOX_MESSAGES: u64 = 1_024;
/// Bytes, as JSON text, of the waiting messages of all agent runs of a task together.
pub const MAX_INBOX_BYTES: usize = 4 << 20;
/// Ids of the latest messages to an agent run, kept to recognise repeated messages.
pub const REMEMBERED_MESSAGES: usize = 1_024;
/// Bytes, as JSON text, of one report of a component on an agent run.
pub const MAX_TOLD_BYTES: usize = 64 << 10;
/// Milliseconds that a waiting attempt keeps its instance. Then the instance is dropped, and the attempt is repeated
/// when an event arrives.
pub const EVICT_MS: u64 = 5_000;
/// Bytes, as JSON text, of the inputs in the exported document of a run.
pub const EXPORTED_INPUT_BYTES: u64 = 16 << 20;
/// Units of a journal in one read.
pub const READ_UNITS: usize = 1_000;
/// Milliseconds after which facts are written if no caller waits for them.
pub const FLUSH_MS: u64 = 50;
/// Approximate bytes, as JSON text, of the item that a failure inside a body shows. A larger item is replaced with a
/// remark.
pub const FAILED_ITEM_BYTES: u64 = 1_024;
/// Milliseconds after which a waiting timer reads the wall clock again. A clock that was set ahead, or a suspended
/// machine, delays the timer by at most this time.
pub const CLOCK_LOOK_MS: u64 = 1_000;
/// Facts that are written without waiting longer.
pub const FLUSH_FACTS: usize = 256;
/// Bytes of a value's text that stay in a row of the store. Larger values are stored beside the row, once for each
/// content.
pub const INLINE_BYTES: usize = 64 << 10;
/// Minimum bytes of a value's text for storing it only once if a row repeats it.
pub const REPEATED_BYTES: usize = 1 << 10;
/// Bytes of units in one read, large values included. One unit is read even if it is larger.
pub const READ_BYTES: usize = 16 << 20;
/// Connections of a process to a shared store.
pub const SERVER_CONNECTIONS: u32 = 8;
/// Milliseconds that a process owns the runs that it has claimed in a shared store, by the store's clock, unless it
/// renews the claim.
pub const LEASE_MS: u64 = 15_000;
/// Milliseconds between two renewals of the claim.
pub const RENEW_MS: u64 = 5_000;
/// Milliseconds without a renewal after which a process stops driving its runs.
pub const GIVE_UP_MS: u64 = 10_000;
/// Milliseconds after which a server that does not answer counts as unreachable.
pub const SERVER_PATIENCE_MS: u64 = 10_000;
/// Milliseconds between two checks for messages from other processes.
pub const INBOX_POLL_MS: u64 = 200;
/// Milliseconds that a process waits for the outcome of a message that it has sent.
pub const INBOX_PATIENCE_MS: u64 = 30_000;
/// Approximate bytes of the values that one statement writes to a shared store.
pub const STATEMENT_BYTES: usize = 4 << 20;
/// Milliseconds that a new blob of this process is kept although no text names it yet.
pub const SPARED_MS: u64 = 24 * 3_600 * 1_000;
