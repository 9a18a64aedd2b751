//! Why something did not work: one record for nodes, capabilities and the host.

use std::fmt;

use flowcell_expr::Json;
use serde::{Deserialize, Serialize};

/// The codes that the host itself gives.
pub mod code {
    /// The guest trapped: a panic, an unreachable instruction, a failed allocation.
    pub const TRAP: &str = "trap";
    /// The guest wanted more memory than its limit.
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
    /// Checking a value against a schema, or compiling the schema, takes more work than a check may do.
    pub const SCHEMA_TOO_COSTLY: &str = "schema_too_costly";
    /// A limit on host calls, handles or volume was reached.
    pub const LIMIT_EXCEEDED: &str = "limit_exceeded";
    /// The node used a capability that it was not granted.
    pub const DENIED: &str = "denied";
    /// A binding could not be rendered.
    pub const BINDING_ERROR: &str = "binding_error";
    /// A `when` could not be evaluated.
    pub const CONDITION_ERROR: &str = "condition_error";
    /// A strict flow reads a value that is missing and that nothing tests.
    pub const MISSING_VALUE: &str = "missing_value";
    /// The pack could not be loaded, or does not do what its manifest says.
    pub const BAD_PACK: &str = "bad_pack";
    /// A child flow could not be started.
    pub const FLOW_NOT_FOUND: &str = "flow_not_found";
    /// Subflows are nested too deep.
    pub const TOO_DEEP: &str = "too_deep";
    /// More runs below one run than there may be.
    pub const TOO_MANY_CHILDREN: &str = "too_many_children";
    /// A run has more events than a run may have, or larger ones.
    pub const RUN_TOO_LARGE: &str = "run_too_large";
    /// The tenant has used up what its operator lets it.
    pub const QUOTA_EXCEEDED: &str = "quota_exceeded";
    /// The child run was cancelled.
    pub const CANCELLED: &str = "cancelled";
    /// The machine had no memory, or nothing else of what a sandbox needs, at the time; the attempt may be repeated.
    pub const HOST_SHORTAGE: &str = "host_shortage";
    /// The runner itself broke; the attempt may be repeated.
    pub const LOST_WORKER: &str = "lost_worker";
    /// Somebody else has written the same state meanwhile.
    pub const STATE_CONFLICT: &str = "state_conflict";
    /// Nobody waits for the call any more: its attempt went on without it, or was given up.
    pub const ABANDONED: &str = "abandoned";
    /// There is no such file, or it is another tenant's.
    pub const FILE_NOT_FOUND: &str = "file_not_found";
    /// A person has decided that the task fails.
    pub const RESOLVED: &str = "resolved";
    /// A rule or a person has said that a tool may not be called so.
    pub const TOOL_DENIED: &str = "tool_denied";
    /// No tool of this name is granted.
    pub const TOOL_NOT_FOUND: &str = "tool_not_found";
    /// A call ended without anybody knowing whether it did what it was to do.
    pub const AMBIGUOUS: &str = "ambiguous";
    /// The store could not answer.
    pub const STORE_FAILED: &str = "store_failed";
}

/// A typed failure. The same record crosses the border in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Stable, snake_case: `denied`, `invalid_input`, `acme_quota`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Whether another attempt may succeed.
    pub retryable: bool,
    /// The least delay before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whatever else there is to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
}

impl Failure {
    /// A failure that another attempt would meet again.
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.into(), message: message.into(), retryable: false, retry_after_ms: None, details: None }
    }

    /// A failure that another attempt may not meet.
    pub fn retryable(code: &str, message: impl Into<String>) -> Failure {
        Failure { retryable: true, ..Failure::new(code, message) }
    }

    /// `{ code, message, retryable, details? }`, as outputs and events show it.
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
