//! The node Edit Fields (Set).

use serde_json::{Map, Value, json};

use super::{
    N8n, Port, pointer,
    values::{self, Place},
};
use crate::{
    draft::Node,
    expr::{REFUSED, Term, added_member, atom, binding, bounded},
    report::{At, Verdict},
};

/// The fields of the new item.
enum Fields {
    /// Names with values.
    Named(Vec<(String, Term)>),
    /// A computed object.
    Computed(Term),
}

/// Writes `data.map`.
pub(super) fn set(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let place = Place { item: Some("item"), index: Some("index"), list };
    let includes = parameters.get("includeOtherFields") == Some(&true.into());
    // Whether the other fields of the item stay.
    let (keeps, fields, known): (bool, Fields, &[&str]) = if parameters.get("mode") == Some(&"raw".into()) {
        let fields = from_json(n8n, parameters, place, &at);
        (includes, fields, &["jsonOutput", "includeOtherFields", "include"])
    } else if let Some(assignments) = parameters.get("assignments") {
        let fields = assigned(n8n, assignments, place, &at.join("assignments"));
        (includes, Fields::Named(fields), &["assignments", "includeOtherFields", "include"])
    } else {
        let fields = by_type(n8n, parameters, place, &at.join("values"));
        (parameters.get("keepOnlySet") != Some(&true.into()), Fields::Named(fields), &["values", "keepOnlySet"])
    };
    if parameters.get("include").is_some_and(|include| include != "all") {
        n8n.report.note(Verdict::Refused, &at.join("include"), "include", "all fields are kept; remove some");
    }
    let has_points = parameters.get("options").and_then(|options| options.get("dotNotation")) != Some(&false.into());
    n8n.options(parameters, &["dotNotation", "ignoreConversionErrors"], &at);
    n8n.unknown(parameters, &[known, &["mode", "options", "duplicateItem"]].concat(), &at);
    let template = match fields {
        Fields::Named(fields) => {
            if has_points && fields.iter().any(|(name, _)| name.contains('[')) {
                let why = "a name with brackets is one name here, and a place in a list there";
                n8n.report.note(Verdict::Approximated, &at, "name", why);
            }
            fields_term(fields, keeps, has_points)
                .unwrap_or_else(|why| refused(n8n, &at, "fields", &format!("{why}; write the template")))
        }
        Fields::Computed(object) => {
            let why = "objects under the same name are merged, and replaced there; a name with points is one name";
            n8n.report.note(Verdict::Approximated, &at.join("jsonOutput"), "jsonOutput", why);
            let object = object.to_expr();
            values::within(n8n, if keeps { format!("item | merge({object})") } else { object }, &at)
        }
    };
    let id = n8n.fresh(node);
    let made = Node::new(&id, "data.map", json!({ "list": binding(list), "template": template.to_value() }));
    n8n.add(node, made, sources);
    n8n.single(node, &id, "list", format!("{id}.list"), false);
}

fn refused(n8n: &mut N8n<'_>, at: &At, construct: &str, why: &str) -> Term {
    n8n.report.note(Verdict::Refused, at, construct, why);
    Term::Expr(REFUSED.into())
}

/// Reads the fields from a JSON text, which may be computed.
fn from_json(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, place: Place<'_>, at: &At) -> Fields {
    let term = values::parameter(n8n, parameters, "jsonOutput", place, at);
    if let Some(Term::Literal(Value::String(text))) = &term
        && let Ok(Value::Object(members)) = serde_json::from_str(text)
    {
        return Fields::Named(members.into_iter().map(|(name, value)| (name, Term::Literal(value))).collect());
    }
    match term {
        Some(term @ (Term::Expr(_) | Term::Mixed(..))) => {
            let expr = atom(&term.to_expr());
            Fields::Computed(Term::Expr(format!("{expr} | fromjson if {expr} is string else {expr}")))
        }
        _ => {
            let why = "it is no JSON object; write the template";
            Fields::Computed(refused(n8n, &at.join("jsonOutput"), "jsonOutput", why))
        }
    }
}

/// Reads the fields of version 3.
fn assigned(n8n: &mut N8n<'_>, assignments: &Value, place: Place<'_>, at: &At) -> Vec<(String, Term)> {
    let mut fields = Vec::new();
    let list = assignments.get("assignments").and_then(Value::as_array);
    for (index, assignment) in list.into_iter().flatten().enumerate() {
        let at = at.join("assignments").join(index);
        let text = |key: &str| assignment.get(key).and_then(Value::as_str).unwrap_or_default();
        let value = values::term(n8n, assignment.get("value").unwrap_or(&Value::Null), place, &at.join("value"));
        fields.push((text("name").to_owned(), typed(n8n, text("type"), value, &at)));
    }
    fields
}

/// Reads the fields of older versions, in lists by their types.
fn by_type(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, place: Place<'_>, at: &At) -> Vec<(String, Term)> {
    let mut fields = Vec::new();
    for (kind, entries) in parameters.get("values").and_then(Value::as_object).into_iter().flatten() {
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let at = at.join(kind).join(index);
            let value = values::term(n8n, entry.get("value").unwrap_or(&Value::Null), place, &at.join("value"));
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            fields.push((name.to_owned(), typed(n8n, kind, value, &at)));
        }
    }
    fields
}

/// Converts a value to the type of its field.
fn typed(n8n: &mut N8n<'_>, kind: &str, value: Term, at: &At) -> Term {
    let computed = matches!(value, Term::Expr(_));
    let x = atom(&value.to_expr());
    match (kind, &value) {
        ("stringValue" | "string", Term::Literal(Value::String(_))) | (_, Term::Mixed(..)) => value,
        ("string", Term::Literal(Value::Null)) => Term::Literal("".into()),
        ("string", Term::Literal(literal)) => Term::Literal(literal.to_string().into()),
        ("string", _) if computed => values::within(n8n, format!("{x} | string if {x} is defined else null"), at),
        ("number", Term::Literal(Value::String(text))) => match serde_json::from_str::<Value>(text.trim()) {
            Ok(number @ Value::Number(_)) => Term::Literal(number),
            _ => {
                n8n.report.note(Verdict::Refused, at, "number", "the value is no number; write one");
                Term::Expr(REFUSED.into())
            }
        },
        ("boolean", Term::Literal(Value::String(text))) if text == "true" || text == "false" => {
            Term::Literal((text == "true").into())
        }
        ("array" | "object", Term::Literal(Value::String(text))) => match serde_json::from_str::<Value>(text) {
            Ok(value) => Term::Literal(value),
            Err(_) => {
                n8n.report.note(Verdict::Refused, at, kind, "the value is no JSON; write it");
                Term::Expr(REFUSED.into())
            }
        },
        ("array" | "object", _) if computed => {
            values::within(n8n, format!("{x} | fromjson if {x} is string else {x}"), at)
        }
        ("number" | "boolean", _) if computed => {
            n8n.report.note(Verdict::Approximated, at, kind, "a text is not converted to this type");
            value
        }
        _ => value,
    }
}

/// Returns the new item: only the fields, or the old item with them.
fn fields_term(fields: Vec<(String, Term)>, keeps: bool, has_points: bool) -> Result<Term, String> {
    let keys = |name: &str| -> Vec<String> {
        match has_points {
            true => name.split('.').map(str::to_owned).collect(),
            false => vec![name.to_owned()],
        }
    };
    let is_flat = fields.iter().all(|(name, _)| keys(name).len() == 1);
    if !keeps && is_flat {
        return Ok(Term::Object(fields));
    }
    let mut whole = if keeps { "item".to_owned() } else { "({})".to_owned() };
    for (name, value) in &fields {
        whole = bounded(whole + &added_member(&keys(name), &value.to_expr()))?;
    }
    Ok(Term::Expr(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_fields_need_no_brackets_and_too_many_are_refused() {
        let fields =
            |count: usize| (0..count).map(|number| (format!("f{number}"), Term::Literal(number.into()))).collect();
        let Ok(Term::Expr(expr)) = fields_term(fields(40), true, true) else { panic!("40 fields") };
        assert!(expr.starts_with("item | merge({'f0': null}) | merge({'f0': 0}) | merge({'f1': null})"), "{expr}");
        assert!(fields_term(fields(10_000), true, true).is_err());
    }
}
