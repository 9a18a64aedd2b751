//! The numbers of this crate that bound what a run may use; the page `limits` of the manual lists them.

/// Bytes of a key of state or cache.
pub const MAX_KEY_BYTES: usize = 512;
/// Values that a tenant's cache holds; the oldest goes first.
pub const MAX_CACHE_ENTRIES: usize = 10_000;
/// Bytes of their keys and of their JSON texts together; the oldest goes first.
pub const MAX_CACHE_BYTES: u64 = 64 << 20;
/// Named events kept for waits that come later, per run.
pub const MAX_KEPT_EVENTS: usize = 1_000;
/// Bytes of their names and JSON texts together, per run.
pub const MAX_KEPT_EVENT_BYTES: usize = 4 << 20;
/// Passes of a fan-out at a time, where the node does not say.
pub const DEFAULT_FAN_OUT: u32 = 8;
/// Runs below a run, below a run …
pub const MAX_DEPTH: u32 = 16;
/// Runs below a root run at a time: sub-flows, tools and whatever else a run calls, on all levels.
pub const MAX_TREE_CHILDREN: u64 = 256;
/// Runs that may begin below a root run from the moment it is begun or resumed until it ends or is put down.
pub const MAX_TREE_RUNS: u64 = 100_000;
/// Runs below root runs that a process drives at a time, shared: no tenant takes more than is left after that, but for 16.
pub const MAX_LIVE_CHILDREN: u64 = 1_024;
/// The maximum number of retries of retries that are searched for the flow that was called at a place.
pub const MAX_REPEATS: u32 = 16;
/// Commands that wait for a run's driver; whoever sends more waits.
pub const COMMAND_QUEUE: usize = 1_024;
/// Times that a run is resumed by itself without having moved on; after that it is tried alone.
pub const MAX_IDLE_RESUMES: u32 = 2;
/// Times that the process dies while it executes a run alone which does not move on; then the run is parked, and a person has
/// to look.
pub const MAX_LONE_DEATHS: u32 = 2;
/// Calls of one attempt that are under way at a time.
pub const MAX_OPEN_CALLS: usize = 64;
/// Milliseconds that a task that was cancelled, or whose time is over, waits for the ends of its calls.
pub const CALL_GRACE_MS: u64 = 10_000;
/// Events of a run; one that has more is ended as `run_too_large`.
pub const MAX_RUN_EVENTS: u64 = 5_000_000;
/// Bytes, about, of the events of a run as JSON text; one that has more is ended as `run_too_large`.
pub const MAX_RUN_BYTES: u64 = 1 << 30;
/// What expressions may do in one turn of a driver before they wait for their tenant's turn to compute, in the unit of
/// [`flowcell_expr::limits::WORK`].
pub const TURN_WORK: u64 = 4 << 20;
/// What the expressions of one place of a flow may do together: of a node's input, its config, a condition, the outputs.
pub const PLACE_WORK: u64 = 64 * flowcell_expr::limits::WORK as u64;
/// What all expressions may do that are evaluated between two waits of a driver.
pub const STEP_WORK: u64 = 512 * flowcell_expr::limits::WORK as u64;
/// Bytes, as JSON text, of an answer, an event or a message that somebody outside sends.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Bytes of the id by which a message to an agent run is recognised.
pub const MAX_MESSAGE_ID_BYTES: usize = 255;
/// Agent runs of an attempt that are open at a time.
pub const MAX_AGENT_RUNS: usize = 64;
/// Messages that wait in an inbox, where the agent does not say.
pub const INBOX_MESSAGES: u64 = 64;
/// Messages that may wait in an inbox at most.
pub const MAX_INBOX_MESSAGES: u64 = 1_024;
/// Bytes of JSON text of the messages that wait in the inboxes of a task's agent runs together.
pub const MAX_INBOX_BYTES: usize = 4 << 20;
/// Ids of messages to an agent run by which a message that is sent twice is recognised, the latest ones.
pub const REMEMBERED_MESSAGES: usize = 1_024;
/// Bytes, as JSON text, of what a component tells of an agent run at a time.
pub const MAX_TOLD_BYTES: usize = 64 << 10;
/// Milliseconds for which a waiting attempt keeps its instance; then it is dropped, and repeated when something arrives.
pub const EVICT_MS: u64 = 5_000;
/// Bytes of the inputs, as JSON text, that the document of a run has.
pub const EXPORTED_INPUT_BYTES: u64 = 16 << 20;
/// Units of a journal that are read at a time.
pub const READ_UNITS: usize = 1_000;
/// Milliseconds after which facts are written that nobody waits for.
pub const FLUSH_MS: u64 = 50;
/// Bytes, about, of the JSON text of an item that a failure inside a body names; of a larger one it says that it is too large.
pub const FAILED_ITEM_BYTES: u64 = 1_024;
/// Milliseconds after which a waiting timer compares the wall clock again: a clock that was set ahead, or a machine that was
/// suspended, delays it by no more.
pub const CLOCK_LOOK_MS: u64 = 1_000;
/// Facts that are written without waiting longer.
pub const FLUSH_FACTS: usize = 256;
/// Bytes of a value's text that stay in a row of the store; what is larger is kept beside it, once for each content.
pub const INLINE_BYTES: usize = 64 << 10;
/// Least bytes of a value's text that a row of the store writes once, however often the row has it.
pub const REPEATED_BYTES: usize = 1 << 10;
/// Bytes of units that are read at a time, large values included; one unit is read however large it is.
pub const READ_BYTES: usize = 16 << 20;
/// Connections of a process to a shared store.
pub const SERVER_CONNECTIONS: u32 = 8;
/// Milliseconds for which a process owns the runs that it has claimed in a shared store, by the store's clock, unless it
/// renews that.
pub const LEASE_MS: u64 = 15_000;
/// Milliseconds after which it renews that.
pub const RENEW_MS: u64 = 5_000;
/// Milliseconds without having renewed it after which a process drives none of its runs any more.
pub const GIVE_UP_MS: u64 = 10_000;
/// Milliseconds after which a server that does not answer counts as gone.
pub const SERVER_PATIENCE_MS: u64 = 10_000;
/// Milliseconds between two looks for messages that other processes have sent.
pub const INBOX_POLL_MS: u64 = 200;
/// Milliseconds for which a process waits for what comes of a message that it has sent.
pub const INBOX_PATIENCE_MS: u64 = 30_000;
/// Bytes, about, of the values that one statement writes to a shared store.
pub const STATEMENT_BYTES: usize = 4 << 20;
/// Milliseconds for which a blob that this process has put is not removed though nothing names it yet.
pub const SPARED_MS: u64 = 24 * 3_600 * 1_000;
