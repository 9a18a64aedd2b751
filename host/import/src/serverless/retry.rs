//! The retry policy of `catch`: a cycle of edges back to the `try`, with a wait on its way.

use serde_json::{Value, json};

use super::{MAX_PASSES, Serverless, duration};
use crate::{
    draft::{Node, On},
    expr::{REFUSED, binding},
    report::{At, Verdict},
};

/// Longest delay: 365 days in milliseconds.
const LONGEST: u64 = 31_536_000_000;
/// Number of times that a delay doubles at most. Then it is long enough.
const DOUBLINGS: u32 = 30;

/// A retry policy.
pub(super) struct Retry {
    /// The policy in the source.
    pub(super) policy: Value,
    pub(super) at: At,
    /// Number of attempts after the first one; `None` without a limit.
    pub(super) count: Option<u64>,
    /// Longest time of one attempt in milliseconds.
    pub(super) attempt_limit: Option<u64>,
    /// Expression of the delay in milliseconds.
    delay: String,
}

/// Reads a retry policy, or the name of one.
pub(super) fn read(import: &mut Serverless<'_>, policy: &Value, at: &At) -> Retry {
    let named = policy.as_str().map(|name| (name, import.used("retries", name)));
    let (policy, at) = match named {
        Some((name, Some(known))) => (known, At::default().join("use").join("retries").join(name)),
        _ => (policy.clone(), at.clone()),
    };
    let mut retry = Retry { policy, at: at.clone(), count: Some(0), attempt_limit: None, delay: REFUSED.into() };
    if !retry.policy.is_object() {
        let why = "it must be a policy, or the name of one in `use.retries`";
        import.report.note(Verdict::Refused, &at, "retry", why);
        return retry;
    }
    import.check_keys(&retry.policy, &["when", "exceptWhen", "delay", "backoff", "limit", "jitter"], &at);
    let why = "the limit counts the attempts after the first one, and behind the last one `do` runs; each attempt \
        calls services anew";
    import.report.note(Verdict::Approximated, &at, "retry", why);
    limits(import, &mut retry);
    retry.delay = delay(import, &retry);
    retry
}

/// Reads `limit`.
fn limits(import: &mut Serverless<'_>, retry: &mut Retry) {
    let at = retry.at.join("limit");
    let limit = retry.policy.get("limit").cloned().unwrap_or_else(|| json!({}));
    import.check_keys(&limit, &["attempt", "duration"], &at);
    if limit.get("duration").is_some() {
        let why = "no limit counts the time of all attempts here; put the `try` into a `control.scope` with a \
            `policy.totalTimeoutMs`";
        import.report.note(Verdict::Refused, &at.join("duration"), "duration", why);
    }
    let (attempt, at) = (limit.get("attempt").cloned().unwrap_or_else(|| json!({})), at.join("attempt"));
    import.check_keys(&attempt, &["count", "duration"], &at);
    retry.count = match attempt.get("count") {
        None => None,
        Some(count) => {
            let count = count.as_u64().filter(|count| *count < u64::from(MAX_PASSES));
            if count.is_none() {
                let why = format!("it must be a number below {MAX_PASSES}; nothing is tried again");
                import.report.note(Verdict::Refused, &at.join("count"), "count", &why);
            }
            Some(count.unwrap_or(0))
        }
    };
    if let Some(limit) = attempt.get("duration") {
        retry.attempt_limit = duration::millis(limit).filter(|millis| *millis > 0);
        match retry.attempt_limit {
            Some(_) => import.report.note(Verdict::Exact, &at.join("duration"), "duration", "`totalTimeoutMs`"),
            None => {
                let why = "the time limit is not imported; set `policy.totalTimeoutMs`";
                import.report.note(Verdict::Refused, &at.join("duration"), "duration", why);
            }
        }
    }
}

/// Returns the expression of the delay before the next attempt.
fn delay(import: &mut Serverless<'_>, retry: &Retry) -> String {
    let Some(delay) = millis(import, retry.policy.get("delay"), "delay", &retry.at) else { return REFUSED.into() };
    let backoff = retry.policy.get("backoff").and_then(Value::as_object).and_then(|backoff| backoff.keys().next());
    let at = retry.at.join("backoff");
    let delay = match (backoff.map(String::as_str), retry.policy.get("backoff")) {
        (None, None) | (Some("constant"), _) => delay.to_string(),
        (Some("exponential"), _) => {
            let why = "each delay is twice the one before; the specification names no factor";
            import.report.note(Verdict::Approximated, &at, "exponential", why);
            format!("{delay} * 2 ** ([task.pass, {DOUBLINGS}] | min)")
        }
        (Some("linear"), _) => {
            let why = "each delay is longer by the first one; the specification names no step";
            import.report.note(Verdict::Approximated, &at, "linear", why);
            format!("{delay} * (task.pass + 1)")
        }
        _ => {
            import.report.note(Verdict::Refused, &at, "backoff", "it is unknown; write `ms`");
            REFUSED.into()
        }
    };
    let Some(jitter) = retry.policy.get("jitter") else { return delay };
    let at = retry.at.join("jitter");
    import.check_keys(jitter, &["from", "to"], &at);
    let from = millis(import, jitter.get("from"), "from", &at);
    let to = millis(import, jitter.get("to"), "to", &at);
    match (from, to) {
        (Some(from), Some(to)) if from <= to => format!("{delay} + {from} + random({})", to - from + 1),
        _ => {
            import.report.note(Verdict::Refused, &at, "jitter", "it must be a range; write `ms`");
            REFUSED.into()
        }
    }
}

/// Returns a duration in milliseconds, which is 0 if it is missing. Refuses another value.
fn millis(import: &mut Serverless<'_>, value: Option<&Value>, key: &str, at: &At) -> Option<u64> {
    let millis = value.map_or(Some(0), duration::millis);
    if millis.is_none() {
        let why = "the time is computed, has months or years, or is more than 365 days; write `ms`";
        import.report.note(Verdict::Refused, &at.join(key), key, why);
    }
    millis
}

/// Writes the way back to a `try` from the node that decides.
pub(super) fn back(import: &mut Serverless<'_>, retry: &Retry, id: &str, decided: &str) {
    let wait = import.draft.names.fresh(&format!("{id}_again"));
    let ms = match retry.delay.as_str() {
        REFUSED => binding(REFUSED),
        delay => match delay.parse::<u64>() {
            Ok(millis) => millis.into(),
            Err(_) => binding(&format!("[{delay}, {LONGEST}] | min")),
        },
    };
    import.draft.nodes.push(Node::new(&wait, "control.wait", json!({ "ms": ms })));
    import.draft.edge(decided, &wait, On::When(format!("{decided}.value.isRetried")));
    import.draft.edge(&wait, id, On::Success);
    import.draft.head.insert("maxPasses".into(), MAX_PASSES.into());
}
