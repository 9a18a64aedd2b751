//! The conditions of old versions of If, Filter and Switch: lists by types, with `value1`, `operation` and `value2`.

use serde_json::{Value, json};

use super::{
    N8n,
    conditions::{self, datetime, pattern},
    values::{self, Place},
};
use crate::{
    expr::{REFUSED, Term, atom, bounded},
    report::{At, Verdict},
};

/// The types with their usual operation and their usual value.
const KINDS: [(&str, &str); 4] =
    [("string", "equal"), ("number", "smaller"), ("boolean", "equal"), ("dateTime", "after")];

/// Converts the conditions of a node to an expression. `is_any` is true if one of them is enough.
pub(super) fn conditions(n8n: &mut N8n<'_>, lists: &Value, is_any: bool, place: Place<'_>, at: &At) -> String {
    let mut tests = Vec::new();
    for (kind, list) in lists.as_object().into_iter().flatten() {
        let at = at.join(kind);
        let Some((kind, usual)) = KINDS.into_iter().find(|(known, _)| known == kind) else {
            let why = "conditions of this type are unknown; write the condition";
            n8n.report.note(Verdict::Refused, &at, "conditions", why);
            tests.push(format!("({REFUSED})"));
            continue;
        };
        for (index, entry) in list.as_array().into_iter().flatten().enumerate() {
            let at = at.join(index);
            let left = value(n8n, entry.get("value1"), kind, place, &at.join("value1"));
            let right = value(n8n, entry.get("value2"), kind, place, &at.join("value2"));
            let operation = entry.get("operation").and_then(Value::as_str).unwrap_or(usual);
            tests.push(test(n8n, kind, operation, &left, &right, &at));
        }
    }
    if tests.is_empty() {
        let why = "they are missing or of an unknown version; write the condition";
        n8n.report.note(Verdict::Refused, at, "conditions", why);
        return REFUSED.into();
    }
    let whole = match tests.as_slice() {
        [test] => test.clone(),
        tests => format!("({})", tests.join(if is_any { " or " } else { " and " })),
    };
    bounded(whole).unwrap_or_else(|why| {
        n8n.report.note(Verdict::Refused, at, "conditions", &format!("{why}; write it in parts"));
        REFUSED.into()
    })
}

/// Converts a value, which has a usual one for each type.
pub(super) fn value(n8n: &mut N8n<'_>, value: Option<&Value>, kind: &str, place: Place<'_>, at: &At) -> Term {
    let usual = match kind {
        "number" => json!(0),
        "boolean" => json!(false),
        _ => json!(""),
    };
    values::term(n8n, value.unwrap_or(&usual), place, at)
}

/// Returns the expression of a comparison, and notes its verdict.
pub(super) fn test(n8n: &mut N8n<'_>, kind: &str, operation: &str, left: &Term, right: &Term, at: &At) -> String {
    let construct = format!("{kind}: {operation}");
    match comparison(kind, operation, left, right) {
        Some((test, None)) => {
            n8n.report.note(Verdict::Exact, at, &construct, "");
            test
        }
        Some((test, Some(why))) => {
            n8n.report.note(Verdict::Approximated, at, &construct, why);
            test
        }
        None => {
            let why = "the operation has no counterpart; write the condition";
            n8n.report.note(Verdict::Refused, at, &construct, why);
            format!("({REFUSED})")
        }
    }
}

/// Returns the expression of a comparison with its difference; `None` if it is not imported.
fn comparison(kind: &str, operation: &str, left: &Term, right: &Term) -> Option<(String, Option<&'static str>)> {
    const CONVERTED: &str = "a value of another type is converted there, and fails here";
    let (a, b) = (atom(&left.to_expr()), atom(&right.to_expr()));
    let is_plain = |term: &Term| matches!(term, Term::Literal(Value::String(_) | Value::Number(_) | Value::Bool(_)));
    let content = (!is_plain(left) && !is_plain(right))
        .then_some("objects and lists are compared by their content, and a missing value is null");
    let empty = format!("({a} is none or {a} == '' or (({a} is mapping or {a} is sequence) and {a} | length == 0))");
    // Missing values count as an empty text, or as 0.
    let text = |x: &str, term: &Term| match term {
        Term::Literal(Value::String(_)) => x.to_owned(),
        _ => format!("({x} | default('') if {x} is none or {x} is string or {x} is number else null | required)"),
    };
    let number = |x: &str, term: &Term| match term {
        Term::Literal(Value::Number(_)) => x.to_owned(),
        _ => format!("({x} | default(0) if {x} is none or {x} is number else null | required)"),
    };
    let (x, y) = (text(&a, left), text(&b, right));
    let texts = |test: String| Some((test, Some(CONVERTED)));
    match (kind, operation) {
        ("string" | "number" | "boolean", "equal") => Some((format!("({a} == {b})"), content)),
        ("string" | "number" | "boolean", "notEqual") => Some((format!("({a} != {b})"), content)),
        ("string" | "number", "isEmpty") => Some((empty, None)),
        ("string" | "number", "isNotEmpty") => Some((format!("(not {empty})"), None)),
        ("number", _) => {
            let sign = match operation {
                "smaller" => "<",
                "smallerEqual" => "<=",
                "larger" => ">",
                "largerEqual" => ">=",
                _ => return None,
            };
            texts(format!("({} {sign} {})", number(&a, left), number(&b, right)))
        }
        ("string", "contains") => texts(format!("(({y} | string) in ({x} | string))")),
        ("string", "notContains") => texts(format!("(({y} | string) not in ({x} | string))")),
        ("string", "startsWith") => texts(format!("(({x} | string) is startingwith({y} | string))")),
        ("string", "notStartsWith") => texts(format!("(({x} | string) is not startingwith({y} | string))")),
        ("string", "endsWith") => texts(format!("(({x} | string) is endingwith({y} | string))")),
        ("string", "notEndsWith") => texts(format!("(({x} | string) is not endingwith({y} | string))")),
        ("string", "regex" | "notRegex") => {
            let test = pattern(&format!("({x} | string)"), right)?;
            let test = if operation == "regex" { test } else { format!("(not {test})") };
            Some((test, Some(conditions::PATTERNS)))
        }
        ("dateTime", "after" | "before") => Some((datetime(operation, &a, &b)?, Some(conditions::DATES))),
        _ => None,
    }
}
