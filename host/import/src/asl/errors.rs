//! The names of errors, and the codes of failures that they stand for.

use serde_json::Value;

use crate::{expr::quoted, names::error_code};

/// Codes of failures by a time limit.
pub(super) const TIMEOUTS: [&str; 3] = ["timeout", "total_timeout", "http_timeout"];
/// Codes of failures that an expression causes.
const RUNTIME: [&str; 4] = ["binding_error", "missing_value", "condition_error", "expression_error"];
/// Names of errors, and the codes of failures with this meaning.
const NAMES: [(&str, &[&str]); 4] = [
    ("States.Timeout", &TIMEOUTS),
    ("States.Runtime", &RUNTIME),
    ("States.ExceedToleratedFailureThreshold", &["too_many_failures"]),
    ("States.Permissions", &["denied"]),
];
/// Names of errors that stand for the same failures as another name.
const ALIASES: [(&str, &str); 4] = [
    ("States.HeartbeatTimeout", "States.Timeout"),
    ("States.ParameterPathFailure", "States.Runtime"),
    ("States.QueryEvaluationError", "States.Runtime"),
    ("States.IntrinsicFailure", "States.Runtime"),
];
/// The difference of a name that stands for every failure.
pub(super) const WIDER: &str = "a failed expression is included here, and there it mostly fails the machine at once";
/// The advice for a list of error names that is missing, empty or of another type.
pub(super) const NO_NAMES: &str = "`ErrorEquals` names no errors, so this is never used; name them";

/// The failures that a list of error names stands for.
#[derive(Debug, PartialEq)]
pub(super) enum Codes {
    /// Every failure.
    Any,
    /// Every failure but that of a time limit.
    NoTimeout,
    /// Failures with these codes.
    List(Vec<String>),
}

impl Codes {
    /// Returns the condition that a code is one of these; `None` if it always is.
    pub(super) fn condition(&self, code: &str) -> Option<String> {
        match self {
            Codes::Any => None,
            Codes::NoTimeout => Some(format!("{code} not in {}", list(&TIMEOUTS))),
            Codes::List(codes) => Some(format!("{code} in {}", list(codes))),
        }
    }

    /// Returns true if failures of expressions are among these although no name stands for them.
    pub(super) fn is_wide(&self) -> bool {
        !matches!(self, Codes::List(_))
    }
}

fn list(codes: &[impl AsRef<str>]) -> String {
    format!("[{}]", codes.iter().map(|code| quoted(code.as_ref())).collect::<Vec<_>>().join(", "))
}

/// Returns true if a value is a list of error names.
pub(super) fn are_names(names: &Value) -> bool {
    names.as_array().is_some_and(|names| !names.is_empty() && names.iter().all(Value::is_string))
}

/// Returns the failures that error names stand for, and the names that have no counterpart.
pub(super) fn codes(names: &Value) -> (Codes, Vec<String>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    // The caller reports a list that is none of names.
    if !are_names(names) {
        return (Codes::List(found), unknown);
    }
    let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.contains(&"States.ALL") || names.contains(&"States.BranchFailed") {
        return (Codes::Any, unknown);
    }
    if names.contains(&"States.TaskFailed") {
        let timeout = names.contains(&"States.Timeout");
        return (if timeout { Codes::Any } else { Codes::NoTimeout }, unknown);
    }
    for name in names {
        let same = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, same)| *same);
        match NAMES.iter().find(|(known, _)| *known == same) {
            Some((_, codes)) => found.extend(codes.iter().map(|code| (*code).to_owned())),
            None if name.starts_with("States.") && name != "States.NoChoiceMatched" => unknown.push(name.to_owned()),
            None => found.push(error_code(name)),
        }
    }
    found.dedup();
    (Codes::List(found), unknown)
}

/// Returns the expression of an error name for a code.
pub(super) fn error_name(code: &str) -> String {
    let known = NAMES.iter().map(|(name, codes)| format!("{} if {code} in {} else ", quoted(name), list(codes)));
    known.collect::<String>() + code
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            (json!(["States.HeartbeatTimeout"]), list(&TIMEOUTS), 0),
            (json!("States.ALL"), list(&[]), 0),
            (json!(["States.ALL", 1]), list(&[]), 0),
            (json!(["9"]), list(&["error_9"]), 0),
        ];
        for (names, expected, unknown) in cases {
            let (codes, left) = codes(&names);
            assert_eq!((codes, left.len()), (expected, unknown), "{names}");
        }
    }

    #[test]
    fn each_name_is_given_for_the_codes_that_it_stands_for() {
        let expr = error_name("c");
        for (name, known) in NAMES {
            assert_eq!(codes(&json!([name])).0, Codes::List(known.iter().map(|code| (*code).to_owned()).collect()));
            assert!(expr.contains(&format!("'{name}' if c in {}", super::list(known))), "{expr}");
        }
        assert!(ALIASES.iter().all(|(_, name)| NAMES.iter().any(|(known, _)| known == name)));
    }
}
