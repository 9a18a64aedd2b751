//! Values with runtime expressions in them. A value becomes one query.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    CONTEXT, Serverless,
    jq::{self, Read},
};
use crate::{
    draft::Node,
    expr::{Term, binding, quoted},
    report::{At, Verdict},
    scope::{Env, Exit},
};

/// Longest query of a node, in bytes.
const LONGEST: usize = 60_000;

/// A value of the source.
#[derive(Default)]
pub(super) struct Query {
    /// The query that gives the value.
    pub(super) text: String,
    /// The variables that it reads.
    pub(super) reads: BTreeSet<Read>,
    /// The value, if nothing of it is computed.
    pub(super) literal: Option<Value>,
    /// The literal beginning of the text that it gives.
    pub(super) beginning: Option<String>,
    /// True if the value is the data themselves.
    pub(super) is_identity: bool,
}

/// Reads a value whose texts `${ … }` are expressions.
pub(super) fn of(import: &mut Serverless<'_>, value: &Value, env: &Env, at: &At) -> Query {
    match value {
        Value::String(text) => match jq::inner(text) {
            Some(inner) => expression(import, inner, env, at),
            None => {
                if text.contains("${") {
                    let why = "an expression within a text is a part of the text here";
                    import.report.note(Verdict::Approximated, at, "text", why);
                }
                literal(value)
            }
        },
        Value::Array(items) => {
            let items: Vec<Query> =
                items.iter().enumerate().map(|(index, item)| of(import, item, env, &at.join(index))).collect();
            let texts = items.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(", ");
            combined(format!("[{texts}]"), items, value)
        }
        Value::Object(members) => {
            let members: Vec<(&String, Query)> =
                members.iter().map(|(key, member)| (key, of(import, member, env, &at.join(key)))).collect();
            let texts = members.iter().map(|(key, member)| format!("{}: {}", Value::from(key.as_str()), member.text));
            let text = format!("{{{}}}", texts.collect::<Vec<_>>().join(", "));
            combined(text, members.into_iter().map(|(_, member)| member).collect(), value)
        }
        plain => literal(plain),
    }
}

/// Reads the value of a field that is an expression also without `${ }`, or an object with expressions.
pub(super) fn field(import: &mut Serverless<'_>, value: &Value, env: &Env, at: &At) -> Query {
    match value {
        Value::String(text) => expression(import, jq::inner(text).unwrap_or(text), env, at),
        other => of(import, other, env, at),
    }
}

/// Reads an expression, and notes its verdict.
fn expression(import: &mut Serverless<'_>, text: &str, env: &Env, at: &At) -> Query {
    let reading = match jq::read(text) {
        Ok(reading) => reading,
        Err(why) => return refused(import, &why, at),
    };
    for (name, keys) in &reading.reads {
        let Some(value) = variable(name, keys, env) else {
            let path = format!("${name}{}", keys.iter().map(|key| format!(".{key}")).collect::<String>());
            return refused(import, &format!("{} has no counterpart", Value::from(path)), at);
        };
        let is_initial = name == CONTEXT && !value.ends_with("_context.value") && !import.is_exported;
        if is_initial {
            let why = "before the first export the context is the input here, and may be empty there";
            import.report.note(Verdict::Approximated, at, "$context", why);
        }
    }
    match &reading.differs {
        Some(why) => import.report.note(Verdict::Approximated, at, "expression", why),
        None => import.report.note(Verdict::Exact, at, "expression", ""),
    }
    let text = text.trim();
    Query {
        text: format!("({text})"),
        reads: reading.reads,
        literal: None,
        beginning: reading.beginning,
        is_identity: reading.is_identity,
    }
}

/// Notes an expression that is not imported, and returns one that fails.
pub(super) fn refused(import: &mut Serverless<'_>, why: &str, at: &At) -> Query {
    import.report.note(Verdict::Refused, at, "expression", &format!("{why}; write the value"));
    Query { text: "error(\"not imported\")".into(), ..Query::default() }
}

/// Returns a node that gives a value as its `value`.
pub(super) fn node(import: &mut Serverless<'_>, id: &str, query: Query, env: &Env, at: &At) -> Node {
    if let Some(literal) = &query.literal {
        return Node::value(id, Term::Literal(literal.clone()).to_value());
    }
    let query = match query.text.len() > LONGEST {
        true => refused(import, &format!("the query would have more than {LONGEST} bytes"), at),
        false => query,
    };
    let mut input = Map::new();
    input.insert("input".into(), binding(&env.data));
    // A query is no template, so its braces stay.
    input.insert("query".into(), Term::Literal(query.text.as_str().into()).to_value());
    let vars = vars(&query.reads, env);
    if !vars.is_empty() {
        input.insert("vars".into(), vars.into());
    }
    Node::new(id, "data.query", input.into())
}

/// Adds a node that gives a value, unless the value is the data themselves. Returns the expression of the value.
pub(super) fn computed(
    import: &mut Serverless<'_>,
    exit: &mut Exit,
    query: Query,
    env: &Env,
    name: &str,
    at: &At,
) -> String {
    if query.is_identity {
        return env.data.clone();
    }
    let id = import.draft.names.fresh(name);
    let node = node(import, &id, query, env, at);
    import.push(exit, node);
    format!("{id}.value")
}

fn literal(value: &Value) -> Query {
    Query { text: value.to_string(), literal: Some(value.clone()), ..Query::default() }
}

fn combined(text: String, parts: Vec<Query>, value: &Value) -> Query {
    let is_literal = parts.iter().all(|part| part.literal.is_some());
    let reads = parts.into_iter().flat_map(|part| part.reads).collect();
    Query { text, reads, literal: is_literal.then(|| value.clone()), ..Query::default() }
}

/// Returns the expression of a variable with the members that are read; `None` if it has no counterpart.
fn variable(name: &str, keys: &[String], env: &Env) -> Option<String> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    match (name, keys.as_slice()) {
        ("workflow", ["input", ..]) => Some("flow.input".into()),
        ("workflow", ["id"]) => Some("run.id".into()),
        ("workflow", ["startedAt", "iso8601"]) => Some("run.started".into()),
        ("task", ["name"]) => Some(quoted(&env.state)),
        ("workflow" | "task" | "runtime" | "secrets" | "authorization", _) => None,
        (name, _) => env.vars.get(name).cloned(),
    }
}

/// Returns the variables of a query.
fn vars(reads: &BTreeSet<Read>, env: &Env) -> Map<String, Value> {
    let mut vars = Map::new();
    for (name, keys) in reads {
        let Some(value) = variable(name, keys, env).map(|expr| binding(&expr)) else { continue };
        if !matches!(name.as_str(), "workflow" | "task") {
            vars.insert(name.clone(), value);
            continue;
        }
        let member = vars.entry(name.as_str()).or_insert_with(|| json!({}));
        match keys.as_slice() {
            [first, second, ..] if first == "startedAt" => member[first] = json!({ second: value }),
            [first, ..] => member[first] = value,
            [] => {}
        }
    }
    vars
}
