//! Reads policies and checks that their numbers are within bounds.

use std::sync::Arc;

use flowcell_contract::{NodeType, code};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{check_keys, check_keys_or, entries, flag, for_message, whole_number},
    graph::{FlowPolicy, Jitter, NodePolicy, Retry, RetryOn, is_code},
    key_hints,
    limits::{MAX_ATTEMPTS, MAX_CONCURRENCY, MAX_TIMEOUT_MS, RETRY_CODE_BYTES, RETRY_CODES, RETRY_RULES},
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

/// Reads `policy` of a node. Members that it does not set keep their values in `policy`. `rules`: the rules of the `retry`
/// in `flow.defaults`, which hold for a `retry` without rules. Returns the rules that the policy itself sets.
pub(crate) fn read_node(
    tree: &Tree,
    policy: &mut NodePolicy,
    rules: &[RetrySettings],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Vec<RetrySettings>> {
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
    read_retry(tree.member("retry")?, &mut policy.retry, rules, diagnostics)
}

/// Warns of `timeoutMs` at a node that only waits for its body: it counts no pauses, so it never ends one.
pub(crate) fn check_timeout(policy: &Tree, kind: &NodeType, diagnostics: &mut Diagnostics<'_>) {
    let waits = kind.body.is_some() && kind.name.starts_with(BUILT_IN_OWNERS);
    if let Some(span) = policy.key_span("/timeoutMs").filter(|_| waits) {
        let message = format!("`timeoutMs` does not bound the body of `{}`, since it counts no pauses", kind.name);
        diagnostics.warning("unused_timeout", span, message, Some("write `totalTimeoutMs`".into()));
    }
}

/// The beginning of the names of the built-in types with bodies.
const BUILT_IN_OWNERS: &str = "control.";

/// The members of a `retry` and of each of its rules.
const RETRY_KEYS: [&str; 7] = ["maxAttempts", "backoffMs", "factor", "maxBackoffMs", "jitter", "on", "rules"];

/// The settings that a `retry` or one of its rules sets. It takes the others from elsewhere.
pub(crate) struct RetrySettings {
    max_attempts: Option<u32>,
    backoff_ms: Option<u64>,
    factor: Option<f64>,
    max_backoff_ms: Option<u64>,
    jitter: Option<Jitter>,
    on: Option<RetryOn>,
}

impl RetrySettings {
    /// Returns these settings, and those of `retry` that they leave open. The result has no rules.
    fn over(&self, retry: &Retry) -> Retry {
        Retry {
            max_attempts: self.max_attempts.unwrap_or(retry.max_attempts),
            backoff_ms: self.backoff_ms.unwrap_or(retry.backoff_ms),
            factor: self.factor.unwrap_or(retry.factor),
            max_backoff_ms: self.max_backoff_ms.unwrap_or(retry.max_backoff_ms),
            jitter: self.jitter.unwrap_or(retry.jitter),
            on: self.on.as_ref().unwrap_or(&retry.on).clone(),
            rules: Arc::default(),
        }
    }
}

fn read_retry(
    tree: &Tree,
    retry: &mut Retry,
    default_rules: &[RetrySettings],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Vec<RetrySettings>> {
    if let Some(attempts) = tree.json().as_u64() {
        let help = Some(format!("write `{}`", key_hints::retry(attempts)));
        diagnostics.error("wrong_type", tree.span, "`retry` must be a map, not a number", help);
        return None;
    }
    check_keys(entries(tree, "`retry`", diagnostics), &RETRY_KEYS, diagnostics);
    let mut settings = read_settings(tree, diagnostics);
    settings.on = tree.member("on").and_then(|on| read_on(on, diagnostics));
    *retry = settings.over(retry);
    check_delay(tree, retry, diagnostics);
    let own = tree.member("rules").map(|rules| read_rules(rules, retry, diagnostics));
    // Rules take their other settings from this `retry`, also those of `flow.defaults`.
    let rules = own.as_deref().unwrap_or(default_rules).iter();
    retry.rules = rules.map(|rule| rule.over(retry)).collect();
    own
}

/// Reads `retry.rules`. A rule takes its other settings from `retry`.
fn read_rules(tree: &Tree, retry: &Retry, diagnostics: &mut Diagnostics<'_>) -> Vec<RetrySettings> {
    let Kind::List(items) = &tree.kind else {
        let help = Some("write `rules: [{ on: [http_status], maxAttempts: 5 }]`".to_owned());
        diagnostics.error("wrong_type", tree.span, "`rules` must be a list", help);
        return Vec::new();
    };
    if items.len() > RETRY_RULES {
        let message = format!("{} rules are too many: a `retry` may have {RETRY_RULES}", items.len());
        diagnostics.error("too_many", tree.span, message, None);
        return Vec::new();
    }
    let mut rules: Vec<RetrySettings> = Vec::new();
    for item in items {
        check_keys(entries(item, "a rule of `retry`", diagnostics), &RETRY_KEYS[..6], diagnostics);
        let mut rule = read_settings(item, diagnostics);
        rule.on = read_codes(item, &rules, diagnostics);
        check_delay(item, &rule.over(retry), diagnostics);
        rules.push(rule);
    }
    rules
}

/// Reads the codes of a rule. Warns if the rules above it have all of them.
fn read_codes(rule: &Tree, above: &[RetrySettings], diagnostics: &mut Diagnostics<'_>) -> Option<RetryOn> {
    let Some(on) = rule.member("on") else {
        let help = Some("add `on: [CODE, …]`".to_owned());
        diagnostics.error("bad_policy", rule.span, "the rule does not say for which codes it is", help);
        return None;
    };
    let codes = read_on(on, diagnostics)?;
    let RetryOn::Codes(names) = &codes else {
        let help = Some("write `on: [CODE, …]`; `retryable` and `any` are for `retry.on`".to_owned());
        diagnostics.error("bad_policy", on.span, "a rule of `retry` is for certain codes", help);
        return None;
    };
    let is_above = |code: &String| above.iter().filter_map(|rule| rule.on.as_ref()).any(|on| on.names(code));
    // Without codes, all of its codes have a mistake.
    if !names.is_empty() && names.iter().all(is_above) {
        let help = Some("remove the rule, or move it up".into());
        diagnostics.warning("bad_policy", rule.span, "this rule is never used: rules above it have its codes", help);
    }
    Some(codes)
}

/// Warns of each code in `policy.retry` that the node type does not list, if it resembles one that the type lists. A node
/// with a body fails with the codes of its body.
pub(crate) fn check_codes(policy: &Tree, node_type: &NodeType, diagnostics: &mut Diagnostics<'_>) {
    let Some(retry) = policy.member("retry").filter(|_| node_type.body.is_none()) else { return };
    let rules = retry.member("rules").map_or(&[][..], Tree::items);
    let lists = std::iter::once(retry).chain(rules).filter_map(|settings| settings.member("on"));
    let listed = || node_type.errors.iter().map(|error| &*error.code).chain([code::TIMEOUT, code::LOST_WORKER]);
    for (name, tree) in lists.flat_map(Tree::items).filter_map(|tree| Some((tree.text()?, tree))) {
        if listed().any(|code| is_code(name, code)) {
            continue;
        }
        if let Some(help) = did_you_mean(name.trim_end_matches('*'), listed()) {
            let message = format!("`{}` does not list the error code `{}`", node_type.name, for_message(name));
            diagnostics.warning("unknown_code", tree.span, message, Some(help));
        }
    }
}

/// Reads the settings of a `retry` or a rule, except for `on`.
fn read_settings(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> RetrySettings {
    let attempts = whole_number(tree, "maxAttempts", (1, MAX_ATTEMPTS), diagnostics);
    let backoff_ms = whole_number(tree, "backoffMs", (0, MAX_TIMEOUT_MS), diagnostics);
    let max_backoff_ms = whole_number(tree, "maxBackoffMs", (0, MAX_TIMEOUT_MS), diagnostics);
    let factor = tree.member("factor").and_then(|factor| {
        let number = factor.json().as_f64().filter(|factor| (1.0..=100.0).contains(factor));
        if number.is_none() {
            let help = Some("write 2".to_owned());
            diagnostics.error("bad_policy", factor.span, "`factor` must be a number from 1 to 100", help);
        }
        number
    });
    RetrySettings {
        max_attempts: attempts.map(|attempts| attempts as u32),
        backoff_ms,
        factor,
        max_backoff_ms,
        jitter: choice(tree, "jitter", &[("full", Jitter::Full), ("none", Jitter::None)], diagnostics),
        on: None,
    }
}

fn check_delay(tree: &Tree, retry: &Retry, diagnostics: &mut Diagnostics<'_>) {
    if retry.max_attempts > 10 && (retry.backoff_ms == 0 || retry.max_backoff_ms == 0) {
        let message = format!("{} attempts without a delay between them", retry.max_attempts);
        diagnostics.error("bad_policy", tree.span, message, Some("add `backoffMs: 200`".into()));
    }
}

/// Reads `on`: a word, or a list of codes.
fn read_on(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<RetryOn> {
    let Kind::List(items) = &tree.kind else {
        return match tree.text() {
            Some("retryable") => Some(RetryOn::Retryable),
            Some("any") => Some(RetryOn::Any),
            text => {
                let code = text.filter(|text| is_code_name(text)).unwrap_or("CODE");
                let help = Some(format!("for one code write `on: [{code}]`"));
                diagnostics.error("bad_value", tree.span, "`on` must be `retryable`, `any` or a list of codes", help);
                None
            }
        };
    };
    if items.is_empty() || items.len() > RETRY_CODES {
        let message = format!("`on` must have 1 to {RETRY_CODES} codes");
        diagnostics.error("bad_value", tree.span, message, None);
        return None;
    }
    let mut codes = Vec::new();
    for item in items {
        match item.text() {
            Some(code) if is_code_name(code) => codes.push(code.to_owned()),
            _ => {
                let help = "a code has letters, digits, `_`, `-` and `.`, and may end in `*`; the manual's page `errors` lists \
                            the codes";
                let message = format!("this is no error code of 1 to {RETRY_CODE_BYTES} bytes");
                diagnostics.error("bad_value", item.span, message, Some(help.to_owned()));
            }
        }
    }
    Some(RetryOn::Codes(codes.into()))
}

fn is_code_name(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && text.len() <= RETRY_CODE_BYTES && name.bytes().all(letters)
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
