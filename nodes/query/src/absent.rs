//! Functions and variables of jq that queries do not have, because they would reach out of the sandbox, would give
//! other results at another time, or are too large. Each comes with the reason, which is part of the error message.

const CLOCK: &str = "a query has no clock; pass the time in `vars`";
const DATES: &str = "a query has no dates; compute them in an expression and pass them in `vars`";
const INPUT: &str = "a query has one input, which is `.`; pass further values in `vars`";
const ENVIRONMENT: &str = "a query has no environment; pass values in `vars`";
const EFFECT: &str = "a query has no effect but its results";
const END: &str = "a query cannot end the process; use `error(\"…\")` to fail, or `empty` for no result";
const PLACE: &str = "a query does not see its own lines; name the place in a text";
const BASE32: &str = "use `@base64`, or compute it in a script";
const STREAMS: &str = "a query reads whole values; use `paths`, `getpath` and `reduce`";
const MATHEMATICS: &str = "not all systems have it; compute it from other functions, or in a script";
/// The reason why `import` and `include` fail.
pub(crate) const MODULES: &str = "a query cannot read modules or other files";

/// Absent names in the order of the alphabet, each with its reason.
const ABSENT: [(&str, &str); 38] = [
    ("$ENV", ENVIRONMENT),
    ("$__loc__", PLACE),
    ("@base32", BASE32),
    ("@base32d", BASE32),
    ("ascii", "write `[.] | implode`"),
    ("date", DATES),
    ("dateadd", DATES),
    ("datesub", DATES),
    ("debug", EFFECT),
    ("debug_empty", EFFECT),
    ("drem", MATHEMATICS),
    ("env", ENVIRONMENT),
    ("fromdate", DATES),
    ("fromdateiso8601", DATES),
    ("fromstream", STREAMS),
    ("gamma", MATHEMATICS),
    ("gmtime", DATES),
    ("halt", END),
    ("halt_error", END),
    ("input", INPUT),
    ("input_filename", INPUT),
    ("input_line_number", INPUT),
    ("inputs", INPUT),
    ("localtime", DATES),
    ("logb", MATHEMATICS),
    ("mktime", DATES),
    ("nexttoward", MATHEMATICS),
    ("now", CLOCK),
    ("significand", MATHEMATICS),
    ("stderr", EFFECT),
    ("stderr_empty", EFFECT),
    ("strflocaltime", DATES),
    ("strftime", DATES),
    ("strptime", DATES),
    ("todate", DATES),
    ("todateiso8601", DATES),
    ("tostream", STREAMS),
    ("truncate_stream", STREAMS),
];

/// Returns the reason why queries do not have this function or variable; `None` for other names.
pub(crate) fn reason(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(absent, _)| *absent == name).map(|(_, reason)| *reason)
}
