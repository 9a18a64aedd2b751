//! The failure record that nodes, capabilities and the host share.

use std::fmt;

use flowcell_expr::Json;
use serde::{Deserialize, Serialize};

/// The failure codes that the host itself uses.
pub mod code {
    /// The guest trapped: a panic, an unreachable instruction, a failed allocation.
    pub const TRAP: &str = "trap";
    /// The guest asked for more memory than its limit.
    pub const OUT_OF_MEMORY: &str = "out_of_memory";
    /// The guest recursed deeper than its stack.
    pub const STACK_OVERFLOW: &str = "stack_overflow";
    /// An attempt ran longer than `timeoutMs`.
    pub const TIMEOUT: &str = "timeout";
    /// A node or a flow took longer than `totalTimeoutMs`.
    pub const TOTAL_TIMEOUT: &str = "total_timeout";
    /// The input does not fit the node type's schema.
    pub const INVALID_INPUT: &str = "invalid_input";
    /// The output is not JSON, or does not fit the node type's schema.
    pub const INVALID_OUTPUT: &str = "invalid_output";
    /// The output is larger than its limit.
    pub const OUTPUT_TOO_LARGE: &str = "output_too_large";
    /// Checking a value against a schema, or compiling the schema, takes more work than a check is allowed.
    pub const SCHEMA_TOO_COSTLY: &str = "schema_too_costly";
    /// The guest reached a limit on host calls, handles or data volume.
    pub const LIMIT_EXCEEDED: &str = "limit_exceeded";
    /// The node type asks for a larger limit than the operator grants.
    pub const LIMIT_NOT_GRANTED: &str = "limit_not_granted";
    /// The node used a capability that it was not granted.
    pub const DENIED: &str = "denied";
    /// A binding could not be rendered.
    pub const BINDING_ERROR: &str = "binding_error";
    /// A `when` could not be evaluated.
    pub const CONDITION_ERROR: &str = "condition_error";
    /// A cycle of edges would begin more passes than its `maxPasses`.
    pub const LOOP_LIMIT: &str = "loop_limit";
    /// A strict flow reads a missing value that no condition tests.
    pub const MISSING_VALUE: &str = "missing_value";
    /// The pack could not be loaded, or does not match its manifest.
    pub const BAD_PACK: &str = "bad_pack";
    /// The flow of a child run does not exist or cannot be loaded.
    pub const FLOW_NOT_FOUND: &str = "flow_not_found";
    /// Subflows are nested too deep.
    pub const TOO_DEEP: &str = "too_deep";
    /// The run tree has reached the limit on the number of its runs.
    pub const TOO_MANY_CHILDREN: &str = "too_many_children";
    /// More passes of a fan-out failed than its node allows.
    pub const TOO_MANY_FAILURES: &str = "too_many_failures";
    /// The events of a run exceed the limit on their number or on their total size.
    pub const RUN_TOO_LARGE: &str = "run_too_large";
    /// The tenant has used up a quota that its operator set.
    pub const QUOTA_EXCEEDED: &str = "quota_exceeded";
    /// The child run was cancelled.
    pub const CANCELLED: &str = "cancelled";
    /// The machine had too little memory, or too little of another resource that a sandbox needs. The attempt may be
    /// repeated.
    pub const HOST_SHORTAGE: &str = "host_shortage";
    /// The host failed, not the node: the runner, for example, or a capability that panicked. The attempt may be
    /// repeated.
    pub const LOST_WORKER: &str = "lost_worker";
    /// Another writer changed the same state value before the outcome of this task was recorded.
    pub const STATE_CONFLICT: &str = "state_conflict";
    /// The call ended without a reply: its attempt, its task or the host process ended first, or the task no longer
    /// waits for the call.
    pub const ABANDONED: &str = "abandoned";
    /// The file does not exist, or belongs to another tenant.
    pub const FILE_NOT_FOUND: &str = "file_not_found";
    /// The file is larger than its reader or its store admits.
    pub const FILE_TOO_LARGE: &str = "file_too_large";
    /// A person decided that a blocked task fails.
    pub const RESOLVED: &str = "resolved";
    /// A rule or a person denied this tool call.
    pub const TOOL_DENIED: &str = "tool_denied";
    /// No granted tool has this name.
    pub const TOOL_NOT_FOUND: &str = "tool_not_found";
    /// The call ended, and the host does not know whether it had its effect.
    pub const AMBIGUOUS: &str = "ambiguous";
    /// The store could not answer.
    pub const STORE_FAILED: &str = "store_failed";
}

/// A typed failure. The same record crosses the sandbox boundary in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// A stable code in snake_case, such as `denied`, `invalid_input` or `acme_quota`.
    pub code: String,
    /// A sentence for people that says what happened.
    pub message: String,
    /// True if another attempt may succeed.
    pub retryable: bool,
    /// The minimum delay before the next attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// More details, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
}

impl Failure {
    /// Creates a failure that is not retryable, since another attempt would fail in the same way.
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.into(), message: message.into(), retryable: false, retry_after_ms: None, details: None }
    }

    /// Creates a retryable failure, since another attempt may succeed.
    pub fn retryable(code: &str, message: impl Into<String>) -> Failure {
        Failure { retryable: true, ..Failure::new(code, message) }
    }

    /// Returns `{ code, message, retryable, details? }`, as outputs and events show it.
    pub fn to_json(&self) -> Json {
        let mut members = vec![
            ("code", Json::from(self.code.as_str())),
            ("message", Json::from(self.message.as_str())),
            ("retryable", Json::from(self.retryable)),
        ];
        if let Some(details) = &self.details {
            members.push(("details", details.clone()));
        }
        Json::object(members)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}
