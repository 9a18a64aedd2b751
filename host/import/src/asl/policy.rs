//! `Retry` and `TimeoutSeconds`: the policy of a node.

use flowcell_flow::limits;
use serde_json::{Map, Value};

use super::{
    Asl,
    errors::{self, Codes, NO_NAMES, TIMEOUTS, WIDER, codes},
};
use crate::{
    draft::Node,
    expr::object,
    report::{At, Verdict},
};

/// Longest delay that a policy may name: 365 days in milliseconds.
const LONGEST_DELAY: f64 = 31_536_000_000.0;

/// Converts `Retry` and `TimeoutSeconds` to a policy.
pub(super) fn policy(asl: &mut Asl, state: &Map<String, Value>, node: &mut Node, at: &At) {
    timeout(asl, state, node, at);
    let at = at.join("Retry");
    let Some(Value::Array(retriers)) = state.get("Retry") else {
        if state.contains_key("Retry") {
            asl.report.mark(Verdict::Refused, &at, "Retry", node, "it must be a list; set `policy.retry`");
        }
        return;
    };
    let mut rules = Rules::default();
    for (index, retrier) in retriers.iter().enumerate() {
        let at = at.join(index);
        let names = retrier.get("ErrorEquals").unwrap_or(&Value::Null);
        let (codes, unknown) = codes(names);
        for name in unknown {
            let why = "no failure has this meaning; remove it or name a code";
            asl.report.mark(Verdict::Refused, &at, &name, node, why);
        }
        if !errors::are_names(names) {
            asl.report.mark(Verdict::Refused, &at, "ErrorEquals", node, NO_NAMES);
        }
        if codes.is_wide() {
            asl.report.mark(Verdict::Approximated, &at.join("ErrorEquals"), "ErrorEquals", node, WIDER);
        }
        let rule = retry_rule(asl, retrier, node, &at);
        if let Err(why) = rules.add(codes, rule) {
            asl.report.mark(Verdict::Refused, &at, "Retry", node, why);
        }
    }
    if retriers.len() > 1 {
        let note = "`maxAttempts` counts the attempts of all rules together, and there each retrier counts its own";
        asl.report.mark(Verdict::Approximated, &at, "Retry", node, note);
    } else {
        asl.report.exact(&at, "Retry", Some(&node.id), "`policy.retry`");
    }
    if let Some(retry) = rules.retry() {
        node.policy.insert("retry".into(), retry);
    }
}

/// Converts `TimeoutSeconds`.
fn timeout(asl: &mut Asl, state: &Map<String, Value>, node: &mut Node, at: &At) {
    let Some(seconds) = state.get("TimeoutSeconds") else { return };
    let at = at.join("TimeoutSeconds");
    match seconds.as_u64().filter(|seconds| (1..=31_536_000).contains(seconds)) {
        Some(seconds) if node.kind == "http.request" => {
            node.policy.insert("timeoutMs".into(), (seconds * 1_000).into());
            asl.report.exact(&at, "TimeoutSeconds", Some(&node.id), "`policy.timeoutMs`");
        }
        Some(seconds) => {
            node.policy.insert("totalTimeoutMs".into(), (seconds * 1_000).into());
            let note = "`policy.totalTimeoutMs` bounds all attempts together, and there each attempt";
            asl.report.mark(Verdict::Approximated, &at, "TimeoutSeconds", node, note);
        }
        None => {
            let note = "the time limit is not imported; set `policy.timeoutMs`";
            asl.report.mark(Verdict::Refused, &at, "TimeoutSeconds", node, note);
        }
    }
}

/// The settings of `retry`, and its rules for certain codes. In both formats the first one with a code decides.
#[derive(Default)]
struct Rules {
    /// The settings for the failures without a rule.
    base: Option<Map<String, Value>>,
    rules: Vec<Map<String, Value>>,
    /// True if the settings are not for timeouts.
    without_timeouts: bool,
}

impl Rules {
    /// Adds the settings of a retrier, as far as none before it has its codes.
    fn add(&mut self, codes: Codes, mut rule: Map<String, Value>) -> Result<(), &'static str> {
        let mut codes = match (codes, self.base.is_some()) {
            (codes @ (Codes::Any | Codes::NoTimeout), false) => {
                rule.insert("on".into(), "any".into());
                self.base = Some(rule);
                self.without_timeouts = codes == Codes::NoTimeout;
                return Ok(());
            }
            (Codes::Any, true) => TIMEOUTS.map(str::to_owned).to_vec(),
            (Codes::NoTimeout, true) => Vec::new(),
            (Codes::List(codes), _) => codes,
        };
        if self.base.is_some() {
            codes.retain(|code| self.without_timeouts && TIMEOUTS.contains(&code.as_str()));
        }
        codes.retain(|code| !self.has(code));
        if codes.is_empty() {
            return Ok(());
        }
        // One rule is left for the timeouts.
        if codes.len() > limits::RETRY_CODES || self.rules.len() + 1 >= limits::RETRY_RULES {
            return Err("an import writes at most 15 rules of 64 codes; this one is left out");
        }
        rule.insert("on".into(), codes.into());
        self.rules.push(rule);
        Ok(())
    }

    /// Returns true if a rule is for a code.
    fn has(&self, code: &str) -> bool {
        let lists = self.rules.iter().filter_map(|rule| rule.get("on")).filter_map(Value::as_array);
        lists.flatten().any(|known| known == code)
    }

    /// Returns the `retry` of the policy; `None` if nothing is retried.
    fn retry(mut self) -> Option<Value> {
        let timeouts: Vec<&str> = TIMEOUTS.into_iter().filter(|code| !self.has(code)).collect();
        if self.without_timeouts && !timeouts.is_empty() {
            self.rules.push(object([("on", timeouts.into()), ("maxAttempts", 1.into())]));
        }
        let mut retry = match self.base {
            Some(base) => base,
            None if self.rules.len() < 2 => return self.rules.pop().map(Value::from),
            None => object([("maxAttempts", 1.into())]),
        };
        if !self.rules.is_empty() {
            retry.insert("rules".into(), self.rules.into_iter().map(Value::from).collect());
        }
        Some(retry.into())
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
    // A policy allows more than ten attempts only with a delay between them.
    let least = if attempts > 9.0 { 1.0 } else { 0.0 };
    let backoff = (interval * 1_000.0).clamp(least, LONGEST_DELAY);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    /// Returns the `retry` of retriers, each with the number of its attempts.
    fn retry(retriers: &[(&[&str], u32)]) -> Value {
        let mut rules = Rules::default();
        for (names, attempts) in retriers {
            rules.add(codes(&json!(names)).0, object([("maxAttempts", (*attempts).into())])).unwrap();
        }
        rules.retry().unwrap()
    }

    #[test]
    fn the_first_retrier_with_a_code_decides() {
        let timeouts = json!(TIMEOUTS);
        assert_eq!(
            retry(&[(&["X"], 2), (&["States.ALL"], 3), (&["Y"], 4), (&["States.ALL"], 5)]),
            json!({ "maxAttempts": 3, "on": "any", "rules": [{ "maxAttempts": 2, "on": ["X"] }] }),
        );
        assert_eq!(
            retry(&[(&["States.TaskFailed"], 2), (&["States.Timeout", "X"], 3), (&["States.ALL"], 4)]),
            json!({ "maxAttempts": 2, "on": "any", "rules": [{ "maxAttempts": 3, "on": timeouts }] }),
        );
        assert_eq!(
            retry(&[(&["States.TaskFailed"], 2), (&["States.ALL"], 4)]),
            json!({ "maxAttempts": 2, "on": "any", "rules": [{ "maxAttempts": 4, "on": timeouts }] }),
        );
        assert_eq!(
            retry(&[(&["timeout"], 5), (&["States.TaskFailed"], 2)]),
            json!({ "maxAttempts": 2, "on": "any", "rules": [
                { "maxAttempts": 5, "on": ["timeout"] },
                { "on": ["total_timeout", "http_timeout"], "maxAttempts": 1 },
            ] }),
        );
        assert_eq!(retry(&[(&["X"], 2)]), json!({ "maxAttempts": 2, "on": ["X"] }));
        assert_eq!(
            retry(&[(&["X"], 2), (&["X", "Y"], 3)]),
            json!({ "maxAttempts": 1, "rules": [{ "maxAttempts": 2, "on": ["X"] }, { "maxAttempts": 3, "on": ["Y"] }] }),
        );
    }

    #[test]
    fn more_rules_than_a_policy_has_are_refused() {
        let mut rules = Rules::default();
        let names: Vec<String> = (0..100).map(|number| format!("E{number}")).collect();
        assert!(rules.add(Codes::List(names.clone()), Map::new()).is_err());
        let added = names.into_iter().filter(|name| rules.add(Codes::List(vec![name.clone()]), Map::new()).is_ok());
        assert_eq!(added.count(), limits::RETRY_RULES - 1);
    }
}
