//! Functions and variables of jq that queries do not have, because they would reach out of the sandbox, would give
//! other results at another time, or are too large. Each comes with the reason, which is part of the error message.

const CLOCK: &str = "a query has no clock; pass the time in `vars`";
const DATES: &str = "a query has no dates; compute them in an expression and pass them in `vars`";
const INPUT: &str = "a query has one input, which is `.`; pass further values in `vars`";
const ENVIRONMENT: &str = "a query has no environment; pass values in `vars`";
const EFFECT: &str = "a query has no effect but its results";
const END: &str = "a query cannot end the process; use `error(\"…\")` to fail, or `empty` for no result";
/// The reason why `import` and `include` fail.
pub(crate) const MODULES: &str = "a query cannot read modules or other files";

/// Absent names in the order of the alphabet, each with its reason.
const ABSENT: [(&str, &str); 26] = [
    ("$ENV", ENVIRONMENT),
    ("date", DATES),
    ("dateadd", DATES),
    ("datesub", DATES),
    ("debug", EFFECT),
    ("debug_empty", EFFECT),
    ("env", ENVIRONMENT),
    ("fromdate", DATES),
    ("fromdateiso8601", DATES),
    ("gmtime", DATES),
    ("halt", END),
    ("halt_error", END),
    ("input", INPUT),
    ("input_filename", INPUT),
    ("input_line_number", INPUT),
    ("inputs", INPUT),
    ("localtime", DATES),
    ("mktime", DATES),
    ("now", CLOCK),
    ("stderr", EFFECT),
    ("stderr_empty", EFFECT),
    ("strflocaltime", DATES),
    ("strftime", DATES),
    ("strptime", DATES),
    ("todate", DATES),
    ("todateiso8601", DATES),
];

/// Returns the reason why queries do not have this function or variable; `None` for other names.
pub(crate) fn reason(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(absent, _)| *absent == name).map(|(_, reason)| *reason)
}
