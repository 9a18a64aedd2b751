//! Reads policies and checks that their numbers are within bounds.

use crate::{
    diagnostic::Diagnostics,
    fields::{check_keys, check_keys_or, entries, flag, whole_number},
    graph::{FlowPolicy, Jitter, NodePolicy, Retry, RetryOn},
    key_hints,
    limits::{MAX_ATTEMPTS, MAX_CONCURRENCY, MAX_TIMEOUT_MS},
    yaml::{Kind, Tree},
};

/// Reads `flow.policy`.
pub(crate) fn read_flow(tree: &Tree, policy: &mut FlowPolicy, diagnostics: &mut Diagnostics<'_>) {
    check_keys(entries(tree, "a policy", diagnostics), &["failFast", "totalTimeoutMs", "maxConcurrency"], diagnostics);
    if let Some(fail_fast) = flag(tree, "failFast", diagnostics) {
        policy.fail_fast = fail_fast;
    }
    policy.total_timeout_ms = whole_number(tree, "totalTimeoutMs", (1, MAX_TIMEOUT_MS), diagnostics);
    if let Some(concurrency) = whole_number(tree, "maxConcurrency", (1, MAX_CONCURRENCY), diagnostics) {
        policy.max_concurrency = concurrency as u32;
    }
}

/// Reads `policy` of a node. Members that it does not set keep their values in `policy`.
pub(crate) fn read_node(tree: &Tree, policy: &mut NodePolicy, diagnostics: &mut Diagnostics<'_>) {
    let allowed = ["timeoutMs", "totalTimeoutMs", "retry", "continueOnError"];
    check_keys_or(entries(tree, "a policy", diagnostics), &allowed, key_hints::for_policy, diagnostics);
    if let Some(timeout) = whole_number(tree, "timeoutMs", (1, MAX_TIMEOUT_MS), diagnostics) {
        policy.timeout_ms = timeout;
    }
    if let Some(timeout) = whole_number(tree, "totalTimeoutMs", (1, MAX_TIMEOUT_MS), diagnostics) {
        policy.total_timeout_ms = Some(timeout);
    }
    if let Some(continues) = flag(tree, "continueOnError", diagnostics) {
        policy.continue_on_error = continues;
    }
    if let Some(retry) = tree.member("retry") {
        read_retry(retry, &mut policy.retry, diagnostics);
    }
}

fn read_retry(tree: &Tree, retry: &mut Retry, diagnostics: &mut Diagnostics<'_>) {
    if let Some(attempts) = tree.json().as_u64() {
        let help = Some(format!("write `{}`", key_hints::retry(attempts)));
        return diagnostics.error("wrong_type", tree.span, "`retry` must be a map, not a number", help);
    }
    let allowed = ["maxAttempts", "backoffMs", "factor", "maxBackoffMs", "jitter", "on"];
    check_keys(entries(tree, "`retry`", diagnostics), &allowed, diagnostics);
    if let Some(attempts) = whole_number(tree, "maxAttempts", (1, MAX_ATTEMPTS), diagnostics) {
        retry.max_attempts = attempts as u32;
    }
    if let Some(backoff) = whole_number(tree, "backoffMs", (0, MAX_TIMEOUT_MS), diagnostics) {
        retry.backoff_ms = backoff;
    }
    if let Some(cap) = whole_number(tree, "maxBackoffMs", (0, MAX_TIMEOUT_MS), diagnostics) {
        retry.max_backoff_ms = cap;
    }
    if let Some(factor) = tree.member("factor") {
        match factor.json().as_f64().filter(|factor| (1.0..=100.0).contains(factor)) {
            Some(number) => retry.factor = number,
            None => {
                diagnostics.error(
                    "bad_policy",
                    factor.span,
                    "`factor` must be a number from 1 to 100",
                    Some("write 2".into()),
                );
            }
        }
    }
    retry.jitter =
        choice(tree, "jitter", &[("full", Jitter::Full), ("none", Jitter::None)], diagnostics).unwrap_or(retry.jitter);
    retry.on = choice(tree, "on", &[("retryable", RetryOn::Retryable), ("any", RetryOn::Any)], diagnostics)
        .unwrap_or(retry.on);
    let eager = retry.max_attempts > 10 && (retry.backoff_ms == 0 || retry.max_backoff_ms == 0);
    if eager {
        let message = format!("{} attempts without a delay between them", retry.max_attempts);
        diagnostics.error("bad_policy", tree.span, message, Some("add `backoffMs: 200`".into()));
    }
}

fn choice<T: Copy>(tree: &Tree, key: &str, choices: &[(&str, T)], diagnostics: &mut Diagnostics<'_>) -> Option<T> {
    let value = tree.member(key)?;
    let found = match &value.kind {
        Kind::Scalar(json) => choices.iter().find(|(name, _)| Some(*name) == json.as_str()),
        _ => None,
    };
    if found.is_none() {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        diagnostics.error("bad_value", value.span, format!("`{key}` must be one of: {}", names.join(", ")), None);
    }
    found.map(|(_, choice)| *choice)
}
