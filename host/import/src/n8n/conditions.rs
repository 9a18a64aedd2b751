//! The conditions of If, Filter and Switch.

use serde_json::Value;

use super::{
    N8n,
    values::{self, Place},
};
use crate::{
    expr::{REFUSED, Term, atom, bounded},
    report::{At, Verdict},
};

/// Converts the conditions of a node of version 2 or later to an expression.
pub(super) fn conditions(n8n: &mut N8n<'_>, conditions: &Value, place: Place<'_>, at: &At) -> String {
    let options = conditions.get("options");
    let option = |key: &str| options.and_then(|options| options.get(key));
    let is_strict = option("typeValidation") != Some(&"loose".into());
    let ignores_case = option("caseSensitive") == Some(&false.into());
    if !is_strict {
        let why = "values are compared without converting their types";
        n8n.report.note(Verdict::Approximated, &at.join("options"), "typeValidation", why);
    }
    let list = conditions.get("conditions").and_then(Value::as_array);
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        n8n.report.note(
            Verdict::Refused,
            at,
            "conditions",
            "they are missing or of an older version; write the condition",
        );
        return REFUSED.into();
    };
    let mut tests = Vec::new();
    for (index, condition) in list.iter().enumerate() {
        let at = at.join("conditions").join(index);
        let left = values::term(n8n, condition.get("leftValue").unwrap_or(&Value::Null), place, &at.join("leftValue"));
        let right =
            values::term(n8n, condition.get("rightValue").unwrap_or(&Value::Null), place, &at.join("rightValue"));
        let operator = condition.get("operator");
        let part =
            |key: &str| operator.and_then(|operator| operator.get(key)).and_then(Value::as_str).unwrap_or_default();
        let (kind, operation) = (part("type").to_owned(), part("operation").to_owned());
        match test(&kind, &operation, &left, &right, is_strict, ignores_case) {
            Some(test) => {
                n8n.report.note(Verdict::Exact, &at, &format!("{kind}: {operation}"), "");
                tests.push(test);
            }
            None => {
                let construct = format!("{kind}: {operation}");
                n8n.report.note(
                    Verdict::Refused,
                    &at,
                    &construct,
                    "the operation has no counterpart; write the condition",
                );
                tests.push(format!("({REFUSED})"));
            }
        }
    }
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

/// Returns the expression of a comparison; `None` if the operation is unknown.
fn test(kind: &str, operation: &str, left: &Term, right: &Term, is_strict: bool, ignores_case: bool) -> Option<String> {
    let (a, b) = (atom(&left.to_expr()), atom(&right.to_expr()));
    match operation {
        "exists" => return Some(format!("({a} is defined)")),
        "notExists" => return Some(format!("({a} is not defined)")),
        _ => {}
    }
    let lower = |x: &str, term: &Term| match (ignores_case && kind == "string", term) {
        (true, Term::Literal(Value::String(text))) => crate::expr::quoted(&text.to_lowercase()),
        (true, _) => format!("({x} | default('') | lower)"),
        (false, _) => x.to_owned(),
    };
    let (x, y) = (lower(&a, left), lower(&b, right));
    let has_type = match (kind, right) {
        ("string", Term::Literal(Value::String(_)))
        | ("number", Term::Literal(Value::Number(_)))
        | ("boolean", _)
        | ("array", _)
        | ("object", _) => true,
        _ => !is_strict,
    };
    // A value of another type fails in strict mode, and null fits every type.
    let guard = |x: &str| {
        let test = match kind {
            "string" => "string",
            "number" => "number",
            "boolean" => "boolean",
            "array" => "sequence",
            "object" => "mapping",
            _ => return None,
        };
        Some(format!("({x} is none or {x} is {test} or (null | required))"))
    };
    let condition = match (kind, operation) {
        ("string" | "number" | "boolean", "equals") => format!("{x} == {y}"),
        ("string" | "number" | "boolean", "notEquals") => format!("{x} != {y}"),
        ("boolean", "true") => format!("{a} == true"),
        ("boolean", "false") => format!("({a} is none or {a} == false)"),
        ("string", "contains") => format!("({a} is defined and {y} in {x})"),
        ("string", "notContains") => format!("not ({a} is defined and {y} in {x})"),
        ("string", "startsWith") => format!("({a} is defined and {x} is startingwith({y}))"),
        ("string", "endsWith") => format!("({a} is defined and {x} is endingwith({y}))"),
        ("string" | "array" | "object", "empty") => format!("({a} is none or {a} | length == 0)"),
        ("string" | "array" | "object", "notEmpty") => format!("({a} is defined and {a} | length > 0)"),
        ("number", "gt") => format!("({a} is defined and {a} > {b})"),
        ("number", "lt") => format!("({a} is defined and {a} < {b})"),
        ("number", "gte") => format!("({a} is defined and {a} >= {b})"),
        ("number", "lte") => format!("({a} is defined and {a} <= {b})"),
        ("array", "contains") => format!("({a} is defined and {b} in {a})"),
        ("array", "notContains") => format!("not ({a} is defined and {b} in {a})"),
        _ => return None,
    };
    if !is_strict {
        return Some(format!("({condition})"));
    }
    let guards = [guard(&a)?].into_iter().chain((!has_type).then(|| guard(&b)).flatten());
    let guards: Vec<_> = guards.chain([condition]).collect();
    Some(format!("({})", guards.join(" and ")))
}
