//! Templates of Amazon States Language: values with paths, functions or JSONata expressions in them.

use serde_json::{Map, Value};

use super::{Asl, path};
use crate::{
    expr::{REFUSED, Term},
    jsonata,
    report::{At, Verdict},
    scope::Env,
};

/// Values that a JSONata expression may read beside the input.
#[derive(Clone, Copy, Default)]
pub(super) struct States<'s> {
    /// The expression for `$states.result`.
    pub(super) result: Option<&'s str>,
    /// The expression for `$states.errorOutput`.
    pub(super) error: Option<&'s str>,
}

/// Converts a template. Members that end with `.$` are paths or functions.
pub(super) fn template(asl: &mut Asl, value: &Value, env: &Env, at: &At) -> Term {
    match value {
        Value::Object(members) => Term::Object(
            members
                .iter()
                .map(|(key, member)| match (key.strip_suffix(".$"), member) {
                    (Some(name), Value::String(text)) => (name.to_owned(), dynamic(asl, text, env, &at.join(key))),
                    _ => (key.clone(), template(asl, member, env, &at.join(key))),
                })
                .collect(),
        ),
        Value::Array(items) => Term::List(
            items.iter().enumerate().map(|(index, item)| template(asl, item, env, &at.join(index))).collect(),
        ),
        plain => Term::Literal(plain.clone()),
    }
}

/// Converts a path or a call of a function. Notes its difference for the next node.
pub(super) fn dynamic(asl: &mut Asl, text: &str, env: &Env, at: &At) -> Term {
    let construct = if text.trim_start().starts_with('$') { "path" } else { "intrinsic function" };
    match path::dynamic(text, env) {
        Ok(converted) => {
            match converted.differs {
                Some(why) => asl.report.note(Verdict::Approximated, at, construct, &why),
                None => asl.report.note(Verdict::Exact, at, construct, ""),
            }
            Term::Expr(converted.expr)
        }
        Err(why) => refused(asl, at, construct, &why),
    }
}

/// Converts a field that has a path as a whole, such as `InputPath`.
pub(super) fn path_field(asl: &mut Asl, state: &Map<String, Value>, key: &str, env: &Env, at: &At) -> Option<String> {
    match state.get(key)? {
        Value::String(text) => Some(dynamic(asl, text, env, &at.join(key)).to_expr()),
        Value::Null => Some("{}".into()),
        _ => Some(refused(asl, &at.join(key), key, "a path must be a text").to_expr()),
    }
}

/// Converts a value with JSONata expressions in it, such as `{% $states.input.a %}`.
pub(super) fn query(asl: &mut Asl, value: &Value, env: &Env, states: States<'_>, at: &At) -> Term {
    match value {
        Value::Object(members) => {
            let member =
                |(key, member): (&String, &Value)| (key.clone(), query(asl, member, env, states, &at.join(key)));
            Term::Object(members.iter().map(member).collect())
        }
        Value::Array(items) => {
            let item = |(index, item)| query(asl, item, env, states, &at.join(index));
            Term::List(items.iter().enumerate().map(item).collect())
        }
        Value::String(text) => match text.strip_prefix("{%").and_then(|text| text.strip_suffix("%}")) {
            Some(query) => query_text(asl, query, env, states, at),
            None => Term::Literal(value.clone()),
        },
        plain => Term::Literal(plain.clone()),
    }
}

fn query_text(asl: &mut Asl, text: &str, env: &Env, states: States<'_>, at: &At) -> Term {
    let resolve = |name: &str, keys: &[String]| match (name, keys.first().map(String::as_str)) {
        ("states", Some("input")) => Some((env.data.clone(), 1)),
        ("states", Some("result")) => states.result.map(|result| (result.to_owned(), 1)),
        ("states", Some("errorOutput")) => states.error.map(|error| (error.to_owned(), 1)),
        ("states", Some("context")) => {
            let rest = keys.get(1..)?;
            let count = if rest.first().is_some_and(|key| key == "Map") { 3 } else { 2 };
            let text = format!("$$.{}", rest.get(..count)?.join("."));
            path::path(&text, env).ok().map(|converted| (converted.expr, count + 1))
        }
        (name, _) => env.vars.get(name).map(|value| (value.clone(), 0)),
    };
    match jsonata::convert(text, &resolve) {
        Ok(expr) => {
            let why = "JSONata goes through lists and ignores what is missing; the expression here does not";
            asl.report.note(Verdict::Approximated, at, "JSONata", why);
            Term::Expr(expr)
        }
        Err(why) => refused(asl, at, "JSONata", &why),
    }
}

/// Notes a value that is not imported, and returns one that fails.
pub(super) fn refused(asl: &mut Asl, at: &At, construct: &str, why: &str) -> Term {
    asl.report.note(Verdict::Refused, at, construct, &format!("{why}; write the value as an expression"));
    Term::Expr(REFUSED.into())
}
