//! The conditions of If, Filter and Switch.

use serde_json::Value;

use super::{
    N8n,
    values::{self, Place},
};
use crate::{
    expr::{REFUSED, Term, atom, bounded, quoted},
    report::{At, Verdict},
};

/// The difference of patterns.
pub(super) const PATTERNS: &str = "patterns have the syntax of `flowcell help functions`, without look-around";
/// The difference of dates.
pub(super) const DATES: &str = "dates are texts of RFC 3339 or numbers of seconds, and a missing one fails";

/// The options of a group of conditions.
#[derive(Clone, Copy)]
struct Options {
    /// True if a value of another type fails.
    is_strict: bool,
    ignores_case: bool,
}

/// Converts the conditions of a node of version 2 or later to an expression.
pub(super) fn conditions(n8n: &mut N8n<'_>, conditions: &Value, place: Place<'_>, at: &At) -> String {
    let options = conditions.get("options");
    let option = |key: &str| options.and_then(|options| options.get(key));
    let options = Options {
        is_strict: option("typeValidation") != Some(&"loose".into()),
        ignores_case: option("caseSensitive") == Some(&false.into()),
    };
    if !options.is_strict {
        let why = "values are compared without converting their types";
        n8n.report.note(Verdict::Approximated, &at.join("options"), "typeValidation", why);
    }
    let list = conditions.get("conditions").and_then(Value::as_array);
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        let why = "they are missing or of an unknown version; write the condition";
        n8n.report.note(Verdict::Refused, at, "conditions", why);
        return REFUSED.into();
    };
    let tests = list
        .iter()
        .enumerate()
        .map(|(index, condition)| one(n8n, condition, options, place, &at.join("conditions").join(index)));
    let tests: Vec<String> = tests.collect();
    let word = if conditions.get("combinator") == Some(&"or".into()) { " or " } else { " and " };
    let whole = match tests.as_slice() {
        [test] => test.clone(),
        tests => format!("({})", tests.join(word)),
    };
    bounded(whole).unwrap_or_else(|why| {
        n8n.report.note(Verdict::Refused, at, "conditions", &format!("{why}; write it in parts"));
        REFUSED.into()
    })
}

/// Converts one condition, and notes its verdict.
fn one(n8n: &mut N8n<'_>, condition: &Value, options: Options, place: Place<'_>, at: &At) -> String {
    let left = values::term(n8n, condition.get("leftValue").unwrap_or(&Value::Null), place, &at.join("leftValue"));
    let right = values::term(n8n, condition.get("rightValue").unwrap_or(&Value::Null), place, &at.join("rightValue"));
    let operator = condition.get("operator");
    let part = |key: &str| operator.and_then(|operator| operator.get(key)).and_then(Value::as_str).unwrap_or_default();
    let (kind, operation) = (part("type").to_owned(), part("operation").to_owned());
    let construct = format!("{kind}: {operation}");
    if let Some((test, why)) = special(&kind, &operation, &left, &right) {
        n8n.report.note(Verdict::Approximated, at, &construct, why);
        return test;
    }
    match test(&kind, &operation, &left, &right, options) {
        Some(test) => {
            n8n.report.note(Verdict::Exact, at, &construct, "");
            test
        }
        None => {
            let why = "the operation has no counterpart; write the condition";
            n8n.report.note(Verdict::Refused, at, &construct, why);
            format!("({REFUSED})")
        }
    }
}

/// Returns the expression of a comparison that differs; `None` if it is none of these.
fn special(kind: &str, operation: &str, left: &Term, right: &Term) -> Option<(String, &'static str)> {
    let (a, b) = (atom(&left.to_expr()), atom(&right.to_expr()));
    match (kind, operation) {
        ("string", "regex") => Some((pattern(&a, right)?, PATTERNS)),
        ("string", "notRegex") => Some((format!("(not {})", pattern(&a, right)?), PATTERNS)),
        ("dateTime", "exists" | "notExists") => None,
        ("dateTime", _) => Some((datetime(operation, &a, &b)?, DATES)),
        _ => None,
    }
}

/// Returns the test whether a text matches a pattern, which may have the form `/pattern/i`; `None` if the pattern is
/// computed or has other flags.
pub(super) fn pattern(text: &str, pattern: &Term) -> Option<String> {
    let Term::Literal(Value::String(pattern)) = pattern else { return None };
    let pattern = match pattern.strip_prefix('/').and_then(|inner| inner.rsplit_once('/')) {
        Some((inner, "" | "g")) => inner.to_owned(),
        Some((inner, "i" | "gi" | "ig")) => format!("(?i){inner}"),
        Some(_) => return None,
        None => pattern.clone(),
    };
    Some(format!("({text} is matches({}))", quoted(&pattern)))
}

/// Returns the comparison of two dates.
pub(super) fn datetime(operation: &str, a: &str, b: &str) -> Option<String> {
    let sign = match operation {
        "after" => ">",
        "before" => "<",
        "equals" => "==",
        "notEquals" => "!=",
        "afterOrEquals" => ">=",
        "beforeOrEquals" => "<=",
        _ => return None,
    };
    Some(format!("(({a} | datediff({b}, 'milliseconds')) {sign} 0)"))
}

/// Returns the expression of a comparison; `None` if the operation is unknown.
fn test(kind: &str, operation: &str, left: &Term, right: &Term, options: Options) -> Option<String> {
    let Options { is_strict, ignores_case } = options;
    let (a, b) = (atom(&left.to_expr()), atom(&right.to_expr()));
    match operation {
        "exists" => return Some(format!("({a} is defined)")),
        "notExists" => return Some(format!("({a} is not defined)")),
        _ => {}
    }
    let lower = |x: &str, term: &Term| match (ignores_case && kind == "string", term) {
        (true, Term::Literal(Value::String(text))) => quoted(&text.to_lowercase()),
        (true, _) => format!("({x} | default('') | lower)"),
        (false, _) => x.to_owned(),
    };
    let condition = match operation.strip_prefix("length") {
        Some(comparison) if kind == "array" => of_length(comparison, &a, &b)?,
        _ => comparison(kind, operation, [&a, &b], [&lower(&a, left), &lower(&b, right)])?,
    };
    if !is_strict {
        return Some(format!("({condition})"));
    }
    let has_type = match (kind, right) {
        ("string", Term::Literal(Value::String(_)))
        | ("number", Term::Literal(Value::Number(_)))
        | ("boolean", _)
        | ("array", _)
        | ("object", _) => true,
        _ => !is_strict,
    };
    let guards = [guard(kind, &a)?].into_iter().chain((!has_type).then(|| guard(kind, &b)).flatten());
    let guards: Vec<_> = guards.chain([condition]).collect();
    Some(format!("({})", guards.join(" and ")))
}

/// Returns the test which fails for a value of another type. Null fits every type.
fn guard(kind: &str, x: &str) -> Option<String> {
    let test = match kind {
        "string" => "string",
        "number" => "number",
        "boolean" => "boolean",
        "array" => "sequence",
        "object" => "mapping",
        _ => return None,
    };
    Some(format!("({x} is none or {x} is {test} or (null | required))"))
}

/// Returns the comparison of the length of a list.
fn of_length(comparison: &str, a: &str, b: &str) -> Option<String> {
    let sign = match comparison {
        "Equals" => "==",
        "NotEquals" => "!=",
        "Gt" => ">",
        "Lt" => "<",
        "Gte" => ">=",
        "Lte" => "<=",
        _ => return None,
    };
    Some(format!("({a} is defined and ({a} | length) {sign} {b})"))
}

/// Returns a comparison. `x` and `y` are the values without upper case, if the case is ignored.
fn comparison(kind: &str, operation: &str, [a, b]: [&str; 2], [x, y]: [&str; 2]) -> Option<String> {
    Some(match (kind, operation) {
        ("string" | "number" | "boolean", "equals") => format!("{x} == {y}"),
        ("string" | "number" | "boolean", "notEquals") => format!("{x} != {y}"),
        ("boolean", "true") => format!("{a} == true"),
        ("boolean", "false") => format!("({a} is none or {a} == false)"),
        ("string", "contains") => format!("({a} is defined and {y} in {x})"),
        ("string", "notContains") => format!("not ({a} is defined and {y} in {x})"),
        ("string", "startsWith") => format!("({a} is defined and {x} is startingwith({y}))"),
        ("string", "notStartsWith") => format!("not ({a} is defined and {x} is startingwith({y}))"),
        ("string", "endsWith") => format!("({a} is defined and {x} is endingwith({y}))"),
        ("string", "notEndsWith") => format!("not ({a} is defined and {x} is endingwith({y}))"),
        ("string" | "array" | "object", "empty") => format!("({a} is none or {a} | length == 0)"),
        ("string" | "array" | "object", "notEmpty") => format!("({a} is defined and {a} | length > 0)"),
        ("number", "gt") => format!("({a} is defined and {a} > {b})"),
        ("number", "lt") => format!("({a} is defined and {a} < {b})"),
        ("number", "gte") => format!("({a} is defined and {a} >= {b})"),
        ("number", "lte") => format!("({a} is defined and {a} <= {b})"),
        ("array", "contains") => format!("({a} is defined and {b} in {a})"),
        ("array", "notContains") => format!("not ({a} is defined and {b} in {a})"),
        _ => return None,
    })
}
