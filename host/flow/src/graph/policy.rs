//! The policies of flows and nodes: limits and retries.

use std::sync::Arc;

use flowcell_contract::USUAL_TIMEOUT_MS;

/// Policies of a flow.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FlowPolicy {
    /// If true, the first failure that the flow does not handle cancels the other tasks of its scope. Default: true.
    pub fail_fast: bool,
    /// Maximum duration of the whole run in milliseconds. Default: no limit.
    pub total_timeout_ms: Option<u64>,
    /// Maximum number of attempts that run at the same time. Default: 16.
    pub max_concurrency: u32,
}

impl Default for FlowPolicy {
    fn default() -> FlowPolicy {
        FlowPolicy { fail_fast: true, total_timeout_ms: None, max_concurrency: 16 }
    }
}

/// Policies of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePolicy {
    /// Maximum running time of one attempt in milliseconds, including its parts after pauses. Default: 300,000.
    pub timeout_ms: u64,
    /// Maximum time in milliseconds from the moment when the node is ready to its end. Default: no limit.
    pub total_timeout_ms: Option<u64>,
    /// Retries after a failure.
    pub retry: Retry,
    /// If true, a failure of the node is recorded as its output, and edges fire as after a success.
    pub continue_on_error: bool,
}

impl Default for NodePolicy {
    fn default() -> NodePolicy {
        NodePolicy {
            timeout_ms: USUAL_TIMEOUT_MS,
            total_timeout_ms: None,
            retry: Retry::default(),
            continue_on_error: false,
        }
    }
}

/// Retry settings of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Total number of attempts, including the first. Default: 1.
    pub max_attempts: u32,
    /// Delay in milliseconds before the second attempt. Default: 500.
    pub backoff_ms: u64,
    /// Factor by which the delay grows from each attempt to the next. Default: 2.
    pub factor: f64,
    /// Maximum delay in milliseconds. Default: 60,000.
    pub max_backoff_ms: u64,
    /// Random variation of the delay.
    pub jitter: Jitter,
    /// The failures that are retried.
    pub on: RetryOn,
    /// Rules for certain failures. The first rule whose `on` has the code of a failure decides in place of the settings
    /// above. A rule has no rules of its own. Nodes share the rules that they have from `flow.defaults`.
    pub rules: Arc<[Retry]>,
}

impl Retry {
    /// Reports whether any failure may be followed by another attempt.
    pub fn may_repeat(&self) -> bool {
        std::iter::once(self).chain(&*self.rules).any(|settings| settings.max_attempts > 1)
    }

    /// Returns the settings for a failure with this code: those of the first rule that names the code, or the general ones.
    pub fn for_code(&self, code: &str) -> &Retry {
        self.rules.iter().find(|rule| rule.on.names(code)).unwrap_or(self)
    }
}

/// Reports whether a code has this name, or starts with it if it ends in `*`.
pub(crate) fn is_code(name: &str, code: &str) -> bool {
    name.strip_suffix('*').map_or(name == code, |start| code.starts_with(start))
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            max_attempts: 1,
            backoff_ms: 500,
            factor: 2.0,
            max_backoff_ms: 60_000,
            jitter: Jitter::Full,
            on: RetryOn::Retryable,
            rules: Arc::default(),
        }
    }
}

/// The random variation of a retry delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// A random time between zero and the full delay.
    Full,
    /// The exact delay.
    None,
}

/// The failures that are retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryOn {
    /// Failures that are marked as retryable, timeouts, and failures of the host itself (`lost_worker`).
    Retryable,
    /// Every failure, retryable or not.
    Any,
    /// Failures with one of these codes, retryable or not. A name that ends in `*` matches every code that starts with
    /// the text before it.
    Codes(Arc<[String]>),
}

/// The code of a call that was not sent, because its server fails. It stands for these codes, which it has replaced.
const CIRCUIT_OPEN: (&str, [&str; 2]) = ("circuit_open", ["http_connect", "http_timeout"]);

impl RetryOn {
    /// Returns true if this is a list that has a code, or a name with `*` that matches the code. A list that has
    /// `http_connect` or `http_timeout` has `circuit_open`, too.
    pub fn names(&self, code: &str) -> bool {
        let RetryOn::Codes(codes) = self else { return false };
        let has = |code: &str| codes.iter().any(|name| is_code(name, code));
        has(code) || code == CIRCUIT_OPEN.0 && CIRCUIT_OPEN.1.into_iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_breaker_stands_for_the_failures_that_opened_it() {
        let on = |codes: &[&str]| RetryOn::Codes(codes.iter().map(|code| (*code).to_owned()).collect());
        assert!(on(&["http_timeout"]).names("circuit_open") && on(&["http_*"]).names("circuit_open"));
        assert!(!on(&["http_status"]).names("circuit_open") && !on(&["circuit_open"]).names("http_connect"));
    }
}
