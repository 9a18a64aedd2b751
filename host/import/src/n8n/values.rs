//! Parameters of n8n nodes: literal values, or texts that begin with `=` and have expressions in `{{ }}`.

use flowcell_flow::escape_text;
use serde_json::{Map, Value};

use super::N8n;
use crate::{
    expr::{REFUSED, Term, atom, bounded, quoted},
    report::{At, Verdict},
    script::{self, Names},
};

/// The names of the present item.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub(super) item: Option<&'p str>,
    pub(super) index: Option<&'p str>,
    pub(super) list: &'p str,
}

/// Converts a parameter. Notes the differences for the next node.
pub(super) fn term(n8n: &mut N8n<'_>, value: &Value, place: Place<'_>, at: &At) -> Term {
    match value {
        Value::String(text) => match text.strip_prefix('=') {
            Some(text) => with_scripts(n8n, text, place, at),
            None => Term::Literal(value.clone()),
        },
        Value::Array(items) => {
            let items = items.iter().enumerate();
            Term::List(items.map(|(index, item)| term(n8n, item, place, &at.join(index))).collect())
        }
        Value::Object(members) => {
            let members = members.iter();
            Term::Object(members.map(|(key, value)| (key.clone(), term(n8n, value, place, &at.join(key)))).collect())
        }
        plain => Term::Literal(plain.clone()),
    }
}

/// Converts a member of the parameters; `None` if it is missing.
pub(super) fn parameter(
    n8n: &mut N8n<'_>,
    parameters: &Map<String, Value>,
    key: &str,
    place: Place<'_>,
    at: &At,
) -> Option<Term> {
    let value = parameters.get(key)?;
    Some(term(n8n, value, place, &at.join(key)))
}

/// Returns an expression, or one that fails if it is too long.
pub(super) fn within(n8n: &mut N8n<'_>, expr: String, at: &At) -> Term {
    match bounded(expr) {
        Ok(expr) => Term::Expr(expr),
        Err(why) => {
            n8n.report.note(Verdict::Refused, at, "expression", &format!("{why}; write the value as an expression"));
            Term::Expr(REFUSED.into())
        }
    }
}

fn with_scripts(n8n: &mut N8n<'_>, text: &str, place: Place<'_>, at: &At) -> Term {
    // With a space or a line around it, the value is a text.
    let whole = text.strip_prefix("{{").and_then(|inner| inner.strip_suffix("}}"));
    if let Some(script) = whole.filter(|script| !script.contains("{{") && !script.contains("}}")) {
        return convert_script(n8n, script, place, at);
    }
    let (mut written, mut parts) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((script, after)) = after.split_once("}}") else { break };
        if !before.is_empty() {
            written.push_str(&escape_text(before));
            parts.push(quoted(before));
        }
        let expr = convert_script(n8n, script, place, at).to_expr();
        written.push_str(&format!("{{{{ {expr} }}}}"));
        parts.push(format!("({} | string)", atom(&expr)));
        rest = after;
    }
    if !rest.is_empty() {
        written.push_str(&escape_text(rest));
        parts.push(quoted(rest));
    }
    if parts.is_empty() || written == escape_text(text) {
        return Term::Literal(text.into());
    }
    let why = "an object, a list or false within a text is written in another way";
    n8n.report.note(Verdict::Approximated, at, "expression in a text", why);
    Term::Mixed(written, parts.join(" ~ "))
}

fn convert_script(n8n: &mut N8n<'_>, text: &str, place: Place<'_>, at: &At) -> Term {
    let lists = |name: &str| {
        let ports = n8n.ports.get(n8n.by_name.get(name)?)?;
        if ports.len() == 1 { Some(ports[0].list.clone()) } else { None }
    };
    let names = Names { item: place.item, index: place.index, list: place.list, node: &lists };
    match script::convert(text, &names) {
        Ok(converted) => {
            if converted.differs.is_empty() {
                n8n.report.note(Verdict::Exact, at, "expression", "");
            }
            for why in converted.differs {
                n8n.report.note(Verdict::Approximated, at, "expression", why);
            }
            Term::Expr(converted.expr)
        }
        Err(why) => {
            n8n.report.note(Verdict::Refused, at, "expression", &format!("{why}; write the value as an expression"));
            Term::Expr(REFUSED.into())
        }
    }
}
