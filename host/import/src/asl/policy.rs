//! `Retry`, `Catch` and the names of errors.

use serde_json::{Map, Value, json};

use super::{
    Asl, Target,
    scope::{Exit, Scope},
    template::{self, States},
};
use crate::{
    draft::{Node, On},
    expr::{Term, object, quoted, with_member},
    report::{At, Verdict},
};

/// Longest delay that a policy may name: 365 days in milliseconds.
const LONGEST_DELAY: f64 = 31_536_000_000.0;
/// Codes of failures that an expression causes.
const RUNTIME: [&str; 4] = ["binding_error", "missing_value", "condition_error", "expression_error"];

/// The failures that a list of error names stands for.
#[derive(Debug, PartialEq)]
enum Codes {
    /// Every failure.
    Any,
    /// Every failure but that of a time limit.
    NoTimeout,
    /// Failures with these codes.
    List(Vec<String>),
}

/// Returns the failures that error names stand for, and the names that have no counterpart.
fn codes(names: &Value) -> (Codes, Vec<String>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.contains(&"States.ALL") || names.contains(&"States.BranchFailed") {
        return (Codes::Any, unknown);
    }
    if names.contains(&"States.TaskFailed") {
        let timeout = names.contains(&"States.Timeout");
        return (if timeout { Codes::Any } else { Codes::NoTimeout }, unknown);
    }
    for name in names {
        match name {
            "States.Timeout" | "States.HeartbeatTimeout" => {
                found.extend(["timeout", "total_timeout", "http_timeout"].map(str::to_owned));
            }
            "States.ExceedToleratedFailureThreshold" => found.push("too_many_failures".into()),
            "States.Permissions" => found.push("denied".into()),
            "States.Runtime"
            | "States.ParameterPathFailure"
            | "States.QueryEvaluationError"
            | "States.IntrinsicFailure" => {
                found.extend(RUNTIME.map(str::to_owned));
            }
            name if name.starts_with("States.") && name != "States.NoChoiceMatched" => unknown.push(name.to_owned()),
            name => found.push(code(name)),
        }
    }
    found.dedup();
    (Codes::List(found), unknown)
}

/// Returns an error name as the code of a failure.
pub(super) fn code(name: &str) -> String {
    let mut code: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "_.-".contains(letter) { letter } else { '_' })
        .collect();
    if !code.starts_with(|first: char| first.is_ascii_alphabetic()) {
        code.insert_str(0, "error_");
    }
    code.truncate(64);
    code
}

impl Codes {
    /// Returns the condition that a code is one of these; `None` if it always is.
    fn condition(&self, code: &str) -> Option<String> {
        match self {
            Codes::Any => None,
            Codes::NoTimeout => Some(format!("{code} not in ['timeout', 'total_timeout', 'http_timeout']")),
            Codes::List(codes) => {
                let codes: Vec<_> = codes.iter().map(|code| quoted(code)).collect();
                Some(format!("{code} in [{}]", codes.join(", ")))
            }
        }
    }
}

/// Converts `Retry` and `TimeoutSeconds` to a policy.
pub(super) fn policy(asl: &mut Asl, state: &Map<String, Value>, node: &mut Node, at: &At) {
    if let Some(seconds) = state.get("TimeoutSeconds") {
        match seconds.as_u64().filter(|seconds| (1..=31_536_000).contains(seconds)) {
            Some(seconds) if node.kind == "http.request" => {
                node.policy.insert("timeoutMs".into(), (seconds * 1_000).into());
                asl.report.exact(&at.join("TimeoutSeconds"), "TimeoutSeconds", Some(&node.id), "`policy.timeoutMs`");
            }
            Some(seconds) => {
                node.policy.insert("totalTimeoutMs".into(), (seconds * 1_000).into());
                let note = "`policy.totalTimeoutMs` bounds all attempts together, and there each attempt";
                asl.report.mark(Verdict::Approximated, &at.join("TimeoutSeconds"), "TimeoutSeconds", node, note);
            }
            None => {
                let note = "the time limit is not imported; set `policy.timeoutMs`";
                asl.report.mark(Verdict::Refused, &at.join("TimeoutSeconds"), "TimeoutSeconds", node, note);
            }
        }
    }
    let at = at.join("Retry");
    let Some(Value::Array(retriers)) = state.get("Retry") else {
        if state.contains_key("Retry") {
            asl.report.mark(Verdict::Refused, &at, "Retry", node, "it must be a list; set `policy.retry`");
        }
        return;
    };
    let mut rules = Vec::new();
    for (index, retrier) in retriers.iter().enumerate() {
        let at = at.join(index);
        let (codes, unknown) = codes(retrier.get("ErrorEquals").unwrap_or(&Value::Null));
        for name in unknown {
            asl.report.mark(
                Verdict::Refused,
                &at,
                &name,
                node,
                "no failure has this meaning; remove it or name a code",
            );
        }
        let mut rule = retry_rule(asl, retrier, node, &at);
        match codes {
            Codes::Any => rule.insert("on".into(), "any".into()),
            Codes::NoTimeout => {
                rules.push(json!({ "on": ["timeout", "total_timeout", "http_timeout"], "maxAttempts": 1 }));
                rule.insert("on".into(), "any".into())
            }
            Codes::List(codes) if codes.is_empty() => continue,
            Codes::List(codes) => rule.insert("on".into(), codes.into()),
        };
        rules.push(rule.into());
    }
    if retriers.len() > 1 {
        let note = "`maxAttempts` counts the attempts of all rules together, and there each retrier counts its own";
        asl.report.mark(Verdict::Approximated, &at, "Retry", node, note);
    } else {
        asl.report.exact(&at, "Retry", Some(&node.id), "`policy.retry`");
    }
    if let Some(retry) = retry(rules) {
        node.policy.insert("retry".into(), retry);
    }
}

/// Converts the numbers of a retrier.
fn retry_rule(asl: &mut Asl, retrier: &Value, node: &mut Node, at: &At) -> Map<String, Value> {
    let number = |key: &str, default: f64| match retrier.get(key) {
        None => Ok(default),
        Some(value) => value.as_f64().filter(|number| *number >= 0.0).ok_or(key.to_owned()),
    };
    let numbers = [number("IntervalSeconds", 1.0), number("MaxAttempts", 3.0), number("BackoffRate", 2.0)];
    for wrong in numbers.iter().filter_map(|number| number.as_ref().err()) {
        asl.report.mark(Verdict::Refused, &at.join(wrong), wrong, node, "it is no positive number; set `policy.retry`");
    }
    let [interval, attempts, rate] = numbers.map(|number| number.unwrap_or(1.0));
    // A service allows up to 99,999,999 attempts, a policy 1,000.
    if attempts > 999.0 {
        let note = "a node has at most 1,000 attempts";
        asl.report.mark(Verdict::Approximated, &at.join("MaxAttempts"), "MaxAttempts", node, note);
    }
    let attempts = attempts.min(999.0).floor();
    let rate = rate.clamp(1.0, 100.0);
    let backoff = (interval * 1_000.0).min(LONGEST_DELAY);
    let longest = (backoff * rate.powf((attempts - 1.0).max(0.0))).min(LONGEST_DELAY);
    let longest = match retrier.get("MaxDelaySeconds").and_then(Value::as_f64) {
        Some(seconds) => (seconds * 1_000.0).clamp(backoff, LONGEST_DELAY),
        None => longest,
    };
    let jitter = if retrier.get("JitterStrategy") == Some(&"FULL".into()) { "full" } else { "none" };
    let known = [
        "ErrorEquals",
        "IntervalSeconds",
        "MaxAttempts",
        "BackoffRate",
        "MaxDelaySeconds",
        "JitterStrategy",
        "Comment",
    ];
    asl.check_keys(retrier, &known, at);
    // The delays are whole numbers of milliseconds.
    let whole = |number: f64| Value::from(number as u64);
    let factor = if rate.fract() == 0.0 { whole(rate) } else { rate.into() };
    object([
        ("maxAttempts", whole(attempts + 1.0)),
        ("backoffMs", whole(backoff)),
        ("factor", factor),
        ("maxBackoffMs", whole(longest.max(1.0))),
        ("jitter", jitter.into()),
    ])
}

/// Converts `Catch`: an error edge from each of the nodes to a node that has the caught error in its value.
pub(super) fn catch(
    asl: &mut Asl,
    scope: &Scope<'_>,
    state: &Map<String, Value>,
    sources: &[String],
    before: &Exit,
    at: &At,
) -> Vec<(Target, Exit)> {
    let mut ends = Vec::new();
    let Some(Value::Array(catchers)) = state.get("Catch") else { return ends };
    let mut earlier: Vec<Codes> = Vec::new();
    for (index, catcher) in catchers.iter().enumerate() {
        let at = at.join("Catch").join(index);
        let (codes, unknown) = codes(catcher.get("ErrorEquals").unwrap_or(&Value::Null));
        let id = asl.draft.names.fresh(&format!("{}_caught", sources[0]));
        for source in sources {
            let code = format!("{source}.error.code");
            let not_earlier = earlier.iter().filter_map(|codes| Some(format!("not ({})", codes.condition(&code)?)));
            let conditions: Vec<_> = codes.condition(&code).into_iter().chain(not_earlier).collect();
            let condition = (!conditions.is_empty()).then(|| conditions.join(" and "));
            asl.draft.edge(source, &id, On::Error(condition));
        }
        let error = Term::Object(vec![
            ("Error".into(), Term::Expr(error_name("inbound.error.code"))),
            ("Cause".into(), Term::Expr("inbound.error.message".into())),
        ]);
        let mut env = before.env.clone();
        let value = match (asl.is_jsonata, catcher.get("Output"), catcher.get("ResultPath")) {
            (true, Some(output), _) => {
                let error = error.to_expr();
                let states = States { error: Some(&error), ..States::default() };
                template::query(asl, output, &env, states, &at.join("Output"))
            }
            (false, _, Some(Value::Null)) => Term::Expr(env.data.clone()),
            (false, _, Some(path)) if path.as_str() != Some("$") => match reference_path(asl, path, &at) {
                Some(keys) => Term::Expr(with_member(&env.data, &keys, &error.to_expr())),
                None => error.clone(),
            },
            _ => error.clone(),
        };
        let mut node = Node::value(&id, value.to_value());
        for name in unknown {
            asl.report.mark(
                Verdict::Refused,
                &at,
                &name,
                &mut node,
                "no failure has this meaning; remove it or name a code",
            );
        }
        asl.check_keys(catcher, &["ErrorEquals", "Next", "ResultPath", "Comment", "Output", "Assign"], &at);
        asl.report.settle(&mut node);
        asl.report.exact(&at, "Catch", Some(&id), "an error edge");
        asl.draft.nodes.push(node);
        let is_last = codes == Codes::Any;
        earlier.push(codes);
        env.data = format!("{id}.value");
        let mut exit = Exit { from: Some((id, On::Success)), env, carries: scope.assigned.is_empty() };
        if catcher.get("Assign").is_some() {
            let why = "the variables of a catcher are not set; read them from the node itself";
            asl.report.note(Verdict::Refused, &at.join("Assign"), "Assign", why);
            asl.materialize(&mut exit);
        }
        ends.push((asl.target(scope, catcher.get("Next"), &at.join("Next")), exit));
        if is_last {
            break;
        }
    }
    ends
}

/// Returns the keys of a path such as `$.a.b`, at which a result is placed.
pub(super) fn reference_path(asl: &mut Asl, path: &Value, at: &At) -> Option<Vec<String>> {
    let keys = path.as_str().and_then(|path| path.strip_prefix("$.")).map(|path| path.split('.'));
    let keys: Option<Vec<String>> = keys.map(|keys| keys.map(str::to_owned).collect());
    let keys = keys.filter(|keys| keys.iter().all(|key| !key.is_empty() && !key.contains(['[', '*', '(', '@'])));
    if keys.is_none() {
        asl.report.note(Verdict::Refused, &at.join("ResultPath"), "ResultPath", "only names of members are supported");
    }
    keys
}

/// Returns the policy of some rules. The last one becomes the policy itself if it is for every failure.
fn retry(mut rules: Vec<Value>) -> Option<Value> {
    let mut retry = match rules.last().and_then(|rule| rule.get("on")) {
        None => return None,
        Some(on) if on == "any" => rules.pop().and_then(|rule| rule.as_object().cloned()).unwrap_or_default(),
        Some(_) if rules.len() == 1 => return rules.pop(),
        Some(_) => object([("maxAttempts", 1.into())]),
    };
    if !rules.is_empty() {
        retry.insert("rules".into(), rules.into());
    }
    Some(retry.into())
}

/// Returns the expression of an error name for a code.
fn error_name(code: &str) -> String {
    let timeout = format!("'States.Timeout' if {code} in ['timeout', 'total_timeout', 'http_timeout']");
    let runtime: Vec<_> = RUNTIME.iter().map(|code| quoted(code)).collect();
    format!("{timeout} else 'States.Runtime' if {code} in [{}] else {code}", runtime.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_stand_for_codes() {
        let list = |codes: &[&str]| Codes::List(codes.iter().map(|code| (*code).to_owned()).collect());
        let cases = [
            (json!(["States.ALL"]), Codes::Any, 0),
            (json!(["States.TaskFailed"]), Codes::NoTimeout, 0),
            (json!(["States.TaskFailed", "States.Timeout"]), Codes::Any, 0),
            (json!(["Custom.Error", "no stock!"]), list(&["Custom.Error", "no_stock_"]), 0),
            (json!(["States.ItemReaderFailed"]), list(&[]), 1),
            (json!("States.ALL"), list(&[]), 0),
            (json!(["9"]), list(&["error_9"]), 0),
        ];
        for (names, expected, unknown) in cases {
            let (codes, left) = codes(&names);
            assert_eq!((codes, left.len()), (expected, unknown), "{names}");
        }
    }
}
