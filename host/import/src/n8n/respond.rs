//! Respond to Webhook: answers the post with the first item, all items, a text or JSON.

use serde_json::{Map, Value, json};

use super::{
    N8n, Port, pointer,
    values::{self, Place},
};
use crate::{
    draft::{Node, On},
    expr::{REFUSED, Term, binding},
    report::{At, Verdict},
};

const KNOWN: [&str; 5] = ["respondWith", "responseBody", "redirectURL", "options", "enableResponseOutput"];

/// Writes a `control.respond`, and a node behind it that has the items.
pub(super) fn respond(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let first = format!("({list} | first)");
    let place = Place { item: Some(&first), index: None, list };
    n8n.unknown(parameters, &KNOWN, &at);
    n8n.options(parameters, &["responseCode", "responseHeaders"], &at);
    let with = parameters.get("respondWith").and_then(Value::as_str).unwrap_or("firstIncomingItem");
    let (mut status, mut headers) = (None, Map::new());
    let mut body = None;
    match with {
        "firstIncomingItem" => body = Some(binding(&first)),
        "allIncomingItems" => body = Some(binding(list)),
        "noData" => {}
        "json" => body = Some(json_body(n8n, parameters, place, &at, &mut headers)),
        "text" => {
            headers.insert("content-type".into(), "text/html; charset=utf-8".into());
            body = Some(text(n8n, parameters, "responseBody", place, &at));
        }
        "redirect" => {
            status = Some(json!(307));
            headers.insert("location".into(), text(n8n, parameters, "redirectURL", place, &at));
        }
        other => {
            let why = format!("an answer with `{other}` has no counterpart; write `body` and `headers`");
            n8n.report.note(Verdict::Refused, &at.join("respondWith"), "respondWith", &why);
            body = Some(binding(REFUSED));
        }
    }
    let options = parameters.get("options").and_then(Value::as_object);
    let options_at = at.join("options");
    if let Some(code) = options.and_then(|options| options.get("responseCode")) {
        status = Some(values::term(n8n, code, place, &options_at.join("responseCode")).to_value());
    }
    let entries = options.and_then(|options| options.get("responseHeaders")?.get("entries")?.as_array());
    for (index, entry) in entries.into_iter().flatten().enumerate() {
        add_header(n8n, entry, place, &options_at.join("responseHeaders").join("entries").join(index), &mut headers);
    }
    let mut input = Map::new();
    input.extend(status.map(|status| ("status".to_owned(), status)));
    if !headers.is_empty() {
        input.insert("headers".into(), headers.into());
    }
    input.extend(body.map(|body| ("body".to_owned(), body)));
    let id = n8n.fresh(node);
    n8n.add(node, Node::new(&id, "control.respond", input.into()), sources);
    // A node of its own has the items, as behind a wait.
    let out = n8n.draft.names.fresh(&format!("{id}_out"));
    n8n.draft.edge(&id, &out, On::Success);
    n8n.draft.nodes.push(Node::value(&out, binding(list)));
    n8n.single(node, &out, "value", format!("{out}.value"), false);
}

/// Returns the body of an answer with JSON: a value, an expression, or a text with expressions.
fn json_body(
    n8n: &mut N8n<'_>,
    parameters: &Map<String, Value>,
    place: Place<'_>,
    at: &At,
    headers: &mut Map<String, Value>,
) -> Value {
    let term = values::parameter(n8n, parameters, "responseBody", place, at);
    let at = at.join("responseBody");
    match term {
        Some(Term::Literal(Value::String(text))) => match serde_json::from_str::<Value>(&text) {
            Ok(value) => Term::Literal(value).to_value(),
            Err(_) => {
                n8n.report.note(Verdict::Refused, &at, "responseBody", "it is not JSON; write `body`");
                binding(REFUSED)
            }
        },
        Some(term @ Term::Mixed(..)) => {
            let why = "the text is sent as it is, without a check that it is JSON";
            n8n.report.note(Verdict::Approximated, &at, "responseBody", why);
            headers.insert("content-type".into(), "application/json".into());
            term.to_value()
        }
        Some(term) => term.to_value(),
        None => json!({}),
    }
}

fn text(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, key: &str, place: Place<'_>, at: &At) -> Value {
    let term = values::parameter(n8n, parameters, key, place, at).unwrap_or(Term::Literal("".into()));
    n8n.report.text(term, &at.join(key), key).to_value()
}

fn add_header(n8n: &mut N8n<'_>, entry: &Value, place: Place<'_>, at: &At, headers: &mut Map<String, Value>) {
    let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let value = entry.get("value").cloned().unwrap_or_else(|| "".into());
    let literal = value.as_str().filter(|text| !text.starts_with('='));
    let checked =
        flowcell_contract::http_answer::check_headers([(name.as_str(), literal.unwrap_or("https://a"))].into_iter());
    if let Err(why) = checked {
        n8n.report.note(Verdict::Refused, at, "responseHeaders", &format!("{why}; the header is left out"));
        return;
    }
    let term = values::term(n8n, &value, place, at);
    headers.insert(name, n8n.report.text(term, at, "responseHeaders").to_value());
}
