//! Reads policies and checks that their numbers are within bounds.

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
/// in `flow.defaults`, which hold for a `retry` without rules.
pub(crate) fn read_node(tree: &Tree, policy: &mut NodePolicy, rules: Option<&Tree>, diagnostics: &mut Diagnostics<'_>) {
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
        read_retry(retry, &mut policy.retry, rules, diagnostics);
    }
}

/// The members of a `retry` and of each of its rules.
const RETRY_KEYS: [&str; 7] = ["maxAttempts", "backoffMs", "factor", "maxBackoffMs", "jitter", "on", "rules"];

fn read_retry(tree: &Tree, retry: &mut Retry, rules: Option<&Tree>, diagnostics: &mut Diagnostics<'_>) {
    if let Some(attempts) = tree.json().as_u64() {
        let help = Some(format!("write `{}`", key_hints::retry(attempts)));
        return diagnostics.error("wrong_type", tree.span, "`retry` must be a map, not a number", help);
    }
    check_keys(entries(tree, "`retry`", diagnostics), &RETRY_KEYS, diagnostics);
    read_settings(tree, retry, diagnostics);
    if let Some(on) = tree.member("on") {
        retry.on = read_on(on, diagnostics).unwrap_or_else(|| retry.on.clone());
    }
    check_delay(tree, retry, diagnostics);
    if let Some(rules) = tree.member("rules") {
        retry.rules = read_rules(rules, retry, diagnostics);
    } else if let Some(rules) = rules {
        // The rules take their other settings from this `retry`. Their mistakes are reported in `flow.defaults`.
        retry.rules = read_rules(rules, retry, &mut Diagnostics::new("", "", diagnostics.mode()));
    }
}

/// Reads `retry.rules`. A rule takes its other settings from `retry`.
fn read_rules(tree: &Tree, retry: &Retry, diagnostics: &mut Diagnostics<'_>) -> Vec<Retry> {
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
    let mut rules: Vec<Retry> = Vec::new();
    for item in items {
        check_keys(entries(item, "a rule of `retry`", diagnostics), &RETRY_KEYS[..6], diagnostics);
        let mut rule = Retry { rules: Vec::new(), ..retry.clone() };
        read_settings(item, &mut rule, diagnostics);
        let codes = item.member("on").map(|on| (on, read_on(on, diagnostics)));
        match codes {
            Some((_, Some(RetryOn::Codes(codes)))) => {
                let hidden = codes.iter().all(|code| rules.iter().any(|earlier| earlier.on.names(code)));
                if hidden {
                    let message = "this rule is never used: rules above it have its codes";
                    diagnostics.warning(
                        "bad_policy",
                        item.span,
                        message,
                        Some("remove the rule, or move it up".into()),
                    );
                }
                rule.on = RetryOn::Codes(codes);
            }
            Some((_, None)) => {}
            Some((on, Some(_))) => {
                let help = Some("write `on: [CODE, …]`; `retryable` and `any` are for `retry.on`".to_owned());
                diagnostics.error("bad_policy", on.span, "a rule of `retry` is for certain codes", help);
            }
            None => {
                let help = Some("add `on: [CODE, …]`".to_owned());
                diagnostics.error("bad_policy", item.span, "the rule does not say for which codes it is", help);
            }
        }
        check_delay(item, &rule, diagnostics);
        rules.push(rule);
    }
    rules
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

fn read_settings(tree: &Tree, retry: &mut Retry, diagnostics: &mut Diagnostics<'_>) {
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
                let help = Some("write 2".to_owned());
                diagnostics.error("bad_policy", factor.span, "`factor` must be a number from 1 to 100", help);
            }
        }
    }
    let jitter = choice(tree, "jitter", &[("full", Jitter::Full), ("none", Jitter::None)], diagnostics);
    retry.jitter = jitter.unwrap_or(retry.jitter);
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
    Some(RetryOn::Codes(codes))
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
