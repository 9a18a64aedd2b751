//! The timeouts and retries of a node, with their origins.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    defaults::from_defaults,
    graph::{Jitter, Node, NodePolicy, Retry, RetryOn},
};

/// A member of a node's policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The name of the member, such as `timeoutMs`.
    pub name: String,
    /// The value in force.
    pub value: Value,
    /// The origin of the value: `node`, `flow.defaults`, `manifest` or `built-in`. A value of the node that equals the one of
    /// its type's manifest, or the built-in one, counts as such.
    pub from: &'static str,
}

/// Returns all members of the policy of a node.
pub(super) fn settings(node: &Node) -> Vec<Setting> {
    let (policy, usual) = (policy_json(&node.policy), policy_json(&NodePolicy::default()));
    let defaults = from_defaults(node).unwrap_or_default();
    let members = policy.as_object().into_iter().flatten();
    let setting = |(name, value): (&String, &Value)| {
        let from = match defaults.contains(&format!("policy.{name}").as_str()) {
            true => "flow.defaults",
            false if name == "timeoutMs" && node.node_type.limits.timeout_ms == value.as_u64() => "manifest",
            false if usual.get(name) == Some(value) => "built-in",
            false => "node",
        };
        Setting { name: name.clone(), value: value.clone(), from }
    };
    members.map(setting).collect()
}

/// Returns a policy as the flow would write it in full.
pub fn policy_json(policy: &NodePolicy) -> Value {
    let mut retry = retry_json(&policy.retry);
    if !policy.retry.rules.is_empty() {
        retry["rules"] = policy.retry.rules.iter().map(retry_json).collect();
    }
    json!({
        "timeoutMs": policy.timeout_ms,
        "totalTimeoutMs": policy.total_timeout_ms,
        "continueOnError": policy.continue_on_error,
        "retry": retry,
    })
}

fn retry_json(retry: &Retry) -> Value {
    json!({
        "maxAttempts": retry.max_attempts,
        "backoffMs": retry.backoff_ms,
        "factor": retry.factor,
        "maxBackoffMs": retry.max_backoff_ms,
        "jitter": match retry.jitter {
            Jitter::Full => "full",
            Jitter::None => "none",
        },
        "on": match &retry.on {
            RetryOn::Retryable => json!("retryable"),
            RetryOn::Any => json!("any"),
            RetryOn::Codes(codes) => json!(codes),
        },
    })
}
