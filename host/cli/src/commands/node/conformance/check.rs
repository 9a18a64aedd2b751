//! The checks and their findings.

use std::collections::BTreeMap;

use flowcell::{
    NodeType,
    contract::code::{
        BAD_PACK, CANCELLED, DENIED, FLOW_NOT_FOUND, INVALID_INPUT, INVALID_OUTPUT, LIMIT_EXCEEDED, OUTPUT_TOO_LARGE,
        STATE_CONFLICT, TIMEOUT, TOO_DEEP, TOO_MANY_FAILURES, TOOL_DENIED, TOOL_NOT_FOUND,
    },
};

/// A rule that every pack has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Check {
    Manifest,
    Imports,
    Schemas,
    Examples,
    Deterministic,
    Replay,
    Cancel,
    Time,
    Errors,
    Inputs,
}

impl Check {
    pub(super) const ALL: [Check; 10] = [
        Check::Manifest,
        Check::Imports,
        Check::Schemas,
        Check::Examples,
        Check::Deterministic,
        Check::Replay,
        Check::Cancel,
        Check::Time,
        Check::Errors,
        Check::Inputs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Check::Manifest => "manifest",
            Check::Imports => "imports",
            Check::Schemas => "schemas",
            Check::Examples => "examples",
            Check::Deterministic => "deterministic",
            Check::Replay => "replay",
            Check::Cancel => "cancel",
            Check::Time => "time",
            Check::Errors => "errors",
            Check::Inputs => "inputs",
        }
    }

    /// Returns the rule in a sentence.
    pub(super) fn rule(self) -> &'static str {
        match self {
            Check::Manifest => "a host accepts the manifest",
            Check::Imports => "the component compiles and imports only what hosts offer",
            Check::Schemas => "inputs, configs and outputs of the examples fit their schemas",
            Check::Examples => "each example and case ends as it says",
            Check::Deterministic => "runs with the same seed and replies send the same events",
            Check::Replay => "a run that was cut after any event ends as one that was not",
            Check::Cancel => "a run can be cancelled after any event",
            Check::Time => "each run ends in time",
            Check::Errors => "each failure has a message and a code that the manifest lists",
            Check::Inputs => "inputs of the wrong shape give an error, and no input gives a trap",
        }
    }

    /// Returns how to mend a finding, in a sentence.
    pub(super) fn mend(self) -> &'static str {
        match self {
            Check::Manifest => "correct node.yaml and build the pack again",
            Check::Imports => "build a component for wasm32-wasip2 from the interfaces in `wit`",
            Check::Schemas => "correct the schema, the example, or the code that makes the output",
            Check::Examples => "correct the example or the code; `flowcell node test` runs it while you work",
            Check::Deterministic => {
                "take random numbers from the task's seed, and keep no values in an order that varies"
            }
            Check::Replay => "keep values for the time after a pause in the state, and make calls in a fixed order",
            Check::Cancel => "do not go on after a call that failed with `cancelled`",
            Check::Time => "do less in one attempt: pause, fan out, or limit the input in its schema",
            Check::Errors => "give failures a code in snake_case, and list it under `errors` in node.yaml",
            Check::Inputs => "require and limit the members in the input's schema, or return a failure, not a panic",
        }
    }
}

/// A sentence about a node type or the pack.
pub(super) struct Finding {
    pub(super) subject: String,
    pub(super) text: String,
}

/// The result of one check.
#[derive(Default)]
pub(super) struct Tried {
    /// The number of tries: runs, node types, imports.
    pub(super) count: usize,
    pub(super) failed: Vec<Finding>,
    /// The tries that were left out, with the reason.
    pub(super) skipped: Vec<Finding>,
    /// Facts that break no rule.
    pub(super) notes: Vec<Finding>,
}

/// The results of all checks.
#[derive(Default)]
pub(super) struct Findings(BTreeMap<Check, Tried>);

impl Findings {
    pub(super) fn try_one(&mut self, check: Check) {
        self.0.entry(check).or_default().count += 1;
    }

    pub(super) fn fail(&mut self, check: Check, subject: &str, text: String) {
        add(&mut self.0.entry(check).or_default().failed, subject, text);
    }

    pub(super) fn skip(&mut self, check: Check, subject: &str, text: String) {
        add(&mut self.0.entry(check).or_default().skipped, subject, text);
    }

    pub(super) fn note(&mut self, check: Check, subject: &str, text: String) {
        add(&mut self.0.entry(check).or_default().notes, subject, text);
    }

    /// Returns whether no check has failed.
    pub(super) fn is_good(&self) -> bool {
        self.0.values().all(|tried| tried.failed.is_empty())
    }

    /// Returns the result of a check, or `None` if nothing was tried.
    pub(super) fn of(&self, check: Check) -> Option<&Tried> {
        self.0.get(&check)
    }
}

/// Adds a finding, unless it is there already.
fn add(findings: &mut Vec<Finding>, subject: &str, text: String) {
    if !findings.iter().any(|finding| finding.subject == subject && finding.text == text) {
        findings.push(Finding { subject: subject.to_owned(), text });
    }
}

/// The codes that the host or an SDK gives to failures of a node, and that no manifest lists. `no_reply_given` occurs in
/// test runs only.
const OF_THE_HOST: [&str; 16] = [
    "node_failed",
    "no_reply_given",
    BAD_PACK,
    CANCELLED,
    DENIED,
    FLOW_NOT_FOUND,
    INVALID_INPUT,
    INVALID_OUTPUT,
    LIMIT_EXCEEDED,
    OUTPUT_TOO_LARGE,
    STATE_CONFLICT,
    TIMEOUT,
    TOO_DEEP,
    TOO_MANY_FAILURES,
    TOOL_DENIED,
    TOOL_NOT_FOUND,
];

/// Returns whether a code is in snake_case.
pub(super) fn is_code(code: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    code.starts_with(|c: char| c.is_ascii_lowercase()) && code.chars().all(plain)
}

/// Returns whether a node type may fail with a code: its manifest lists it, it is one of the host, or one of a capability
/// that the type asks for, such as `http_timeout` or `file_not_found`.
pub(super) fn may_fail_with(node: &NodeType, code: &str) -> bool {
    let of_capability = |name: &str| {
        let rest = code.strip_prefix(name.trim_end_matches('s'));
        rest.is_some_and(|rest| rest.trim_start_matches('s').starts_with('_'))
    };
    node.errors.iter().any(|error| error.code == code)
        || OF_THE_HOST.contains(&code)
        || node.capabilities.iter().any(|request| of_capability(&request.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_snake_case() {
        for (code, expected) in
            [("acme_quota", true), ("a1", true), ("", false), ("1a", false), ("A", false), ("a-b", false)]
        {
            assert_eq!(is_code(code), expected, "{code}");
        }
    }

    #[test]
    fn each_check_has_a_name_of_its_own() {
        let mut names = Check::ALL.map(Check::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn a_finding_is_kept_once() {
        let mut findings = Findings::default();
        for _ in 0..2 {
            findings.fail(Check::Errors, "a.b", "the failure has no message".into());
        }
        assert_eq!(findings.of(Check::Errors).map(|tried| tried.failed.len()), Some(1));
        assert!(!findings.is_good());
    }
}
