//! The state `Task`: HTTP requests become `http.request`. Other services become a node that fails until a person
//! replaces it.

use serde_json::{Map, Value, json};

use super::{Asl, policy};
use crate::{
    draft::Node,
    expr::{Term, escaped},
    grants::{SET_GRANT, http_grant},
    report::{At, Verdict},
    scope::{Exit, Scope},
    walk::Target,
};

/// The service that requests over HTTP.
const HTTP: &str = "arn:aws:states:::http:invoke";

pub(super) fn task(
    asl: &mut Asl,
    scope: &Scope<'_>,
    state: &Map<String, Value>,
    at: &At,
    mut exit: Exit,
) -> Vec<(Target, Exit)> {
    let before = exit.clone();
    let id = asl.draft.names.fresh(&exit.env.state);
    let resource = state.get("Resource").and_then(Value::as_str).unwrap_or_default().to_owned();
    let input = asl.effective_input(state, &exit.env.clone(), at);
    let result = match (resource.as_str(), &input) {
        (HTTP, Term::Object(members)) => request(asl, state, &id, members, at, &mut exit),
        _ => missing(asl, state, &id, &resource, &input, at, &mut exit),
    };
    asl.finish(scope, state, at, &id, result, exit, &before)
}

/// Writes a request. Returns the expression of its result in the form of the service.
fn request(
    asl: &mut Asl,
    state: &Map<String, Value>,
    id: &str,
    members: &[(String, Term)],
    at: &At,
    exit: &mut Exit,
) -> String {
    let at_input = at.join(if asl.is_jsonata { "Arguments" } else { "Parameters" });
    let get = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, term)| term);
    let mut input = Map::new();
    let url = get("ApiEndpoint").cloned().unwrap_or(Term::Literal("".into()));
    let url = asl.report.text(url, &at_input.join("ApiEndpoint"), "ApiEndpoint").to_value();
    let grant = http_grant(url.as_str().unwrap_or_default());
    input.insert("url".into(), url);
    for (key, field) in
        [("Method", "method"), ("Headers", "headers"), ("QueryParameters", "query"), ("RequestBody", "json")]
    {
        if let Some(term) = get(key) {
            let fits = match (field, term) {
                ("method", term) => term.may_be_text(),
                ("headers", Term::Object(members)) => members.iter().all(|(_, term)| term.may_be_text()),
                ("headers" | "query", term) => matches!(term, Term::Object(_) | Term::Expr(_)),
                _ => true,
            };
            if !fits {
                asl.report.note(
                    Verdict::Refused,
                    &at_input.join(key),
                    key,
                    &format!("it has another type; write `{field}`"),
                );
                continue;
            }
            input.insert(field.into(), term.to_value());
            asl.report.note(Verdict::Exact, &at_input.join(key), key, &format!("`{field}`"));
        }
    }
    if grant.is_none() {
        asl.report.note(Verdict::Approximated, &at_input.join("ApiEndpoint"), "ApiEndpoint", SET_GRANT);
    }
    unknown(asl, members, &at_input);
    let why = "headers of the answer are texts here, and lists of texts there; errors have other names";
    asl.report.note(Verdict::Approximated, at, "HTTP request", why);
    // A service waits a minute for the answer.
    input.insert("timeoutMs".into(), 60_000.into());
    let mut node = Node::new(id, "http.request", input.into());
    node.grants = Some(json!({ "http": [grant.unwrap_or_else(|| crate::grants::UNKNOWN.into())] }));
    asl.settle(&mut node, state, at);
    policy::policy(asl, state, &mut node, at);
    exit.push(&mut asl.draft, node);
    format!("{{'ResponseBody': {id}.body, 'StatusCode': {id}.status, 'Headers': {id}.headers}}")
}

/// Refuses the members of a request that are not known.
fn unknown(asl: &mut Asl, members: &[(String, Term)], at_input: &At) {
    let known = ["ApiEndpoint", "Method", "Headers", "QueryParameters", "RequestBody"];
    for (key, _) in members.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
        let why = match key.as_str() {
            "Authentication" | "InvocationConfig" => {
                "store the credentials with `flowcell secret set`, and name them in `grants.secrets`"
            }
            _ => "the key has no counterpart here; see whether it matters",
        };
        asl.report.note(Verdict::Refused, &at_input.join(key), key, why);
    }
}

/// Writes a scope with a node that fails, in the place of a service that the flow cannot call.
fn missing(
    asl: &mut Asl,
    state: &Map<String, Value>,
    id: &str,
    resource: &str,
    input: &Term,
    at: &At,
    exit: &mut Exit,
) -> String {
    let hint = if resource.contains("waitForTaskToken") {
        "a `control.gate` or a `control.wait` with `until` waits for an answer from outside"
    } else if resource.contains("states:startExecution") {
        "import the other machine, and call it with `control.subflow`"
    } else {
        "replace the node by an `http.request`, a `control.subflow`, a script or a node type of your own"
    };
    asl.report.note(
        Verdict::Refused,
        &at.join("Resource"),
        "Resource",
        &format!("{} cannot be called; {hint}", Value::from(resource)),
    );
    let call = asl.draft.names.fresh(&format!("{id}_call"));
    let mut node = Node::new(id, "control.scope", json!({}));
    asl.settle(&mut node, state, at);
    policy::policy(asl, state, &mut node, at);
    node.body = Some(vec![call.clone()]);
    node.sample = Some(json!({}));
    exit.push(&mut asl.draft, node);
    let message = format!("{} was not imported", Value::from(resource));
    let input = json!({ "message": escaped(&message.into()), "code": "not_imported", "details": input.to_value() });
    asl.draft.nodes.push(Node::new(&call, "control.fail", input));
    id.to_owned()
}
