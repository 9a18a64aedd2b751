//! Requests over HTTP, waits, and tasks that a flow cannot do.

use serde_json::{Map, Value, json};

use super::{
    Serverless, duration,
    query::{self, Query},
    tasks::Task,
};
use crate::{
    draft::Node,
    expr::{Term, binding, escaped},
    grants::{SET_GRANT, UNKNOWN, http_grant},
    report::{At, Verdict},
    scope::{Env, Exit},
};

/// Writes `wait`, which hands its input on.
pub(super) fn wait(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Exit {
    let millis = duration::millis(&task.members["wait"]).map_or_else(
        || {
            let why = "the time is computed, has months or years, or is more than 365 days; write `ms`";
            import.report.note(Verdict::Refused, &task.at.join("wait"), "wait", why);
            binding(crate::expr::REFUSED)
        },
        Value::from,
    );
    let mut node = Node::new(task.id, "control.wait", json!({ "ms": millis }));
    import.settle(task, &mut node);
    exit.push(&mut import.draft, node);
    exit
}

/// Writes a request over HTTP.
pub(super) fn request(import: &mut Serverless<'_>, task: &Task<'_>, mut exit: Exit) -> Exit {
    let (env, at, id) = (exit.env.clone(), task.at.join("with"), task.id);
    let with = task.members.get("with").cloned().unwrap_or_default();
    import.check_keys(&with, &["method", "endpoint", "headers", "body", "query", "output", "redirect"], &at);
    let mut input = Map::new();
    let url = url(import, &with, &mut exit, &env, task, &at);
    let grant = http_grant(url.1.as_deref().unwrap_or_default());
    if grant.is_none() {
        import.report.note(Verdict::Approximated, &at.join("endpoint"), "endpoint", SET_GRANT);
    }
    input.insert("url".into(), url.0);
    match with
        .get("method")
        .and_then(Value::as_str)
        .filter(|method| (1..=20).contains(&method.len()) && method.bytes().all(|sign| sign.is_ascii_alphabetic()))
    {
        Some(method) => _ = input.insert("method".into(), method.to_ascii_uppercase().into()),
        None => import.report.note(Verdict::Refused, &at.join("method"), "method", "it must be a word; write `method`"),
    }
    for (key, field) in [("headers", "headers"), ("query", "query"), ("body", "json")] {
        let Some(value) = with.get(key) else { continue };
        let at = at.join(key);
        let fits = match (key, value) {
            ("body", _) | (_, Value::String(_)) => true,
            ("headers", Value::Object(members)) => members.values().all(Value::is_string),
            (_, value) => value.is_object(),
        };
        let mut query = query::of(import, value, &env, &at);
        if !fits || (key != "body" && query.literal.as_ref().is_some_and(Value::is_string)) {
            query = query::refused(import, "it has another type", &at);
        }
        let value = match &query.literal {
            Some(literal) => escaped(literal),
            None => binding(&query::computed(import, &mut exit, query, &env, &format!("{id}_{key}"), &at)),
        };
        input.insert(field.into(), value);
        import.report.note(Verdict::Exact, &at, key, &format!("`{field}`"));
    }
    if with.get("redirect").is_some_and(|redirect| *redirect != Value::Bool(false)) {
        let why = "an answer with another status than 2xx fails here; set `expect`";
        import.report.note(Verdict::Refused, &at.join("redirect"), "redirect", why);
    }
    let is_content = with.get("output").is_none_or(|output| output == "content");
    if !is_content {
        let why = "the task gives the content of the answer here; write the output";
        import.report.note(Verdict::Refused, &at.join("output"), "output", why);
    }
    let why = "redirects and answers that are not JSON may be handled in another way";
    import.report.note(Verdict::Approximated, task.at, "call", why);
    let mut node = Node::new(id, "http.request", input.into());
    node.grants = Some(json!({ "http": [grant.unwrap_or_else(|| UNKNOWN.into())] }));
    import.settle(task, &mut node);
    exit.push(&mut import.draft, node);
    exit.env.data = format!("{id}.body");
    exit
}

/// Returns the URL of a request, and its literal beginning.
fn url(
    import: &mut Serverless<'_>,
    with: &Value,
    exit: &mut Exit,
    env: &Env,
    task: &Task<'_>,
    at: &At,
) -> (Value, Option<String>) {
    let at = at.join("endpoint");
    let endpoint = with.get("endpoint").unwrap_or(&Value::Null);
    if endpoint.get("authentication").is_some() {
        let why = "store the credentials with `flowcell secret set`, and name them in `grants.secrets`";
        import.report.note(Verdict::Refused, &at.join("authentication"), "authentication", why);
    }
    import.check_keys(endpoint, &["uri", "authentication"], &at);
    let uri = endpoint.get("uri").unwrap_or(endpoint);
    let mut query = match uri {
        Value::String(_) => query::of(import, uri, env, &at),
        _ => query::refused(import, "it must be a text", &at),
    };
    let Some(Value::String(text)) = query.literal.clone() else {
        // The server is known if the literal beginning goes up to its path.
        let beginning = query.beginning.take().filter(|text| text.splitn(4, '/').count() == 4);
        let url = query::computed(import, exit, query, env, &format!("{}_url", task.id), &at);
        return (binding(&url), beginning);
    };
    if !text.contains('{') {
        return (Term::Literal(text.as_str().into()).to_value(), Some(text));
    }
    let Some(parts) = template(&text) else {
        let query = query::refused(import, "the template of the URI has an unknown form", &at);
        let url = query::computed(import, exit, query, env, &format!("{}_url", task.id), &at);
        return (binding(&url), None);
    };
    import.report.note(Verdict::Exact, &at, "URI template", "a query");
    let url = query::computed(import, exit, parts, env, &format!("{}_url", task.id), &at);
    let beginning = text.split('{').next().filter(|text| text.splitn(4, '/').count() == 4).map(str::to_owned);
    (binding(&url), beginning)
}

/// Writes a scope with a node that fails, in the place of a task that a flow cannot do.
pub(super) fn missing(import: &mut Serverless<'_>, task: &Task<'_>, exit: &mut Exit) {
    let Task { id, kind, members, at } = *task;
    let hint = match (kind, members[kind].get("workflow").is_some()) {
        ("run", true) => "import the other workflow, and call it with `control.subflow`",
        ("run", false) => "write a `script.run` or a node type of your own",
        ("listen", _) => "a `control.wait` with `until` waits for a named event",
        _ => "replace the node by an `http.request`, a `control.subflow` or a node type of your own",
    };
    import.report.note(Verdict::Refused, &at.join(kind), kind, hint);
    let call = import.draft.names.fresh(&format!("{id}_call"));
    let mut node = Node::new(id, "control.scope", json!({}));
    node.body = Some(vec![call.clone()]);
    node.sample = Some(json!({}));
    import.report.settle(&mut node);
    exit.push(&mut import.draft, node);
    exit.env.data = id.to_owned();
    let message = format!("the task `{kind}` was not imported");
    let data = exit.env.vars.get("input").cloned().unwrap_or_default();
    let details = json!({ "data": binding(&data), "task": escaped(&members[kind]) });
    let input = json!({ "message": message, "code": "not_imported", "details": details });
    import.draft.nodes.push(Node::new(&call, "control.fail", input));
}

/// Returns the query of a text with the names of members in braces, such as `https://example.com/{id}`.
fn template(text: &str) -> Option<Query> {
    let mut parts = Vec::new();
    for (number, part) in text.split('{').enumerate() {
        if number == 0 {
            parts.push(Value::from(part).to_string());
            continue;
        }
        let (name, rest) = part.split_once('}')?;
        if name.is_empty() || name.starts_with(['+', '#', '.', '/', ';', '?', '&']) || name.contains([',', '*', ':']) {
            return None;
        }
        let name = Value::from(name);
        parts.push(format!(
            "(.[{name}] | if type == \"object\" or type == \"array\" then error(\"a part of the URI is no plain value\") \
             elif . == null then \"\" else tostring | @uri end)"
        ));
        parts.push(Value::from(rest).to_string());
    }
    (parts.len() < 40).then(|| Query { text: parts.join(" + "), ..Query::default() })
}
