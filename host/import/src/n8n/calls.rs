//! Requests, code, loops, and nodes that are not imported.

use std::collections::HashSet;

use flowcell_flow::limits;
use serde_json::{Map, Value, json};

use super::{
    N8n, Port, failures, pointer,
    values::{self, Place},
};
use crate::{
    draft::Node,
    expr::{REFUSED, Term, binding, escaped},
    grants::{SET_GRANT, UNKNOWN, http_grant},
    report::{At, Verdict},
};

/// Writes a loop with one request for each item.
pub(super) fn request(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let id = n8n.fresh(node);
    let (item, index) = (format!("{id}.item"), format!("{id}.index"));
    let place = Place { item: Some(&item), index: Some(&index), list };
    let url = values::parameter(n8n, parameters, "url", place, &at).unwrap_or(Term::Literal("".into()));
    let url = n8n.report.text(url, &at.join("url"), "url").to_value();
    let grant = http_grant(url.as_str().unwrap_or_default());
    if grant.is_none() {
        n8n.report.note(Verdict::Approximated, &at.join("url"), "url", SET_GRANT);
    }
    let mut input = Map::new();
    let method = values::parameter(n8n, parameters, "method", place, &at).unwrap_or(Term::Literal("GET".into()));
    let method = n8n.report.text(method, &at.join("method"), "method").to_value();
    input.insert("method".into(), method);
    input.insert("url".into(), url);
    let is_on = |key: &str| parameters.get(key) == Some(&true.into());
    let mut known = vec!["url", "method", "sendQuery", "sendHeaders", "sendBody", "options", "authentication"];
    for (flag, key, field) in
        [("sendQuery", "queryParameters", "query"), ("sendHeaders", "headerParameters", "headers")]
    {
        if is_on(flag) {
            known.push(key);
            let pairs = pairs(n8n, parameters.get(key), place, &at.join(key), field == "headers");
            input.insert(field.into(), pairs.to_value());
        }
    }
    if is_on("sendBody") {
        known.extend(["contentType", "specifyBody", "bodyParameters", "jsonBody"]);
        let body = body(n8n, parameters, place, &at);
        input.insert("json".into(), body.to_value());
    }
    if parameters.get("authentication").is_some_and(|way| way != "none") {
        let why = "store the credentials with `flowcell secret set`, and name them in `grants.secrets`";
        n8n.report.note(Verdict::Refused, &at.join("authentication"), "authentication", why);
        known.extend(["genericAuthType", "nodeCredentialType"]);
    }
    input.insert("timeoutMs".into(), request_options(n8n, parameters, &at).into());
    n8n.unknown(parameters, &known, &at);
    let why = "redirects are not followed; a text becomes `data`; a list becomes several items";
    n8n.report.note(Verdict::Approximated, &pointer(node), "httpRequest", why);
    let call = n8n.draft.names.fresh(&format!("{id}_call"));
    let mut inner = Node::new(&call, "http.request", input.into());
    inner.grants = Some(json!({ "http": [grant.unwrap_or_else(|| UNKNOWN.into())] }));
    let mut owner = Node::new(&id, "control.foreach", json!({ "list": binding(list) }));
    owner.body = Some(vec![call.clone()]);
    let body = format!("{call}.body");
    let output = format!("{body} if {body} is mapping or {body} is sequence else {{'data': {body}}}");
    failures::loop_outputs(n8n, node, &mut owner, &output);
    n8n.add(node, owner, sources);
    n8n.draft.nodes.push(inner);
    failures::loop_ports(n8n, node, &id);
}

/// Reads the options of a request. Returns the time that it waits for its answer, in milliseconds.
fn request_options(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, at: &At) -> u64 {
    let options = parameters.get("options");
    let at_options = at.join("options");
    if options.is_some_and(|options| options.get("pagination").is_some()) {
        let why = "only the first page is read; write a `control.loop`, see `flowcell init --example pages`";
        n8n.report.note(Verdict::Refused, &at_options.join("pagination"), "pagination", why);
    }
    let timeout = options.and_then(|options| options.get("timeout"));
    n8n.options(parameters, &["pagination", "timeout"], at);
    // A request waits five minutes for its answer.
    let Some(timeout) = timeout else { return 300_000 };
    match timeout.as_u64().filter(|millis| (1..=300_000).contains(millis)) {
        Some(millis) => {
            n8n.report.note(Verdict::Exact, &at_options.join("timeout"), "timeout", "`timeoutMs`");
            millis
        }
        None => {
            let why = "it must be a number of milliseconds up to 300,000; write `timeoutMs`";
            n8n.report.note(Verdict::Refused, &at_options.join("timeout"), "timeout", why);
            300_000
        }
    }
}

/// Converts the body of a request.
fn body(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, place: Place<'_>, at: &At) -> Term {
    if parameters.get("contentType").is_some_and(|kind| kind != "json") {
        let why = "the body is sent as JSON; write `text` and a header";
        n8n.report.note(Verdict::Refused, &at.join("contentType"), "contentType", why);
    }
    if parameters.get("specifyBody") != Some(&"json".into()) {
        return pairs(n8n, parameters.get("bodyParameters"), place, &at.join("bodyParameters"), false);
    }
    let at_json = at.join("jsonBody");
    match values::parameter(n8n, parameters, "jsonBody", place, at) {
        Some(Term::Literal(Value::String(text))) => match serde_json::from_str::<Value>(&text) {
            Ok(value) => Term::Literal(value),
            Err(_) => refused(n8n, &at_json, "jsonBody", "it is no JSON"),
        },
        Some(Term::Mixed(_, expr)) => values::within(n8n, format!("({expr}) | fromjson"), &at_json),
        Some(Term::Expr(expr)) => {
            let body = format!("({expr}) | fromjson if ({expr}) is string else ({expr})");
            values::within(n8n, body, &at_json)
        }
        _ => refused(n8n, &at_json, "jsonBody", "it is missing"),
    }
}

/// Converts a list of names and values.
fn pairs(n8n: &mut N8n<'_>, holder: Option<&Value>, place: Place<'_>, at: &At, are_texts: bool) -> Term {
    let mut members: Vec<(String, Term)> = Vec::new();
    let pairs = holder.and_then(|holder| holder.get("parameters")).and_then(Value::as_array);
    for (index, pair) in pairs.into_iter().flatten().enumerate() {
        let at = at.join("parameters").join(index);
        let name = pair.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.starts_with('=') {
            n8n.report.note(Verdict::Refused, &at.join("name"), "name", "names cannot be computed; write it");
        }
        let value = match values::term(n8n, pair.get("value").unwrap_or(&Value::Null), place, &at.join("value")) {
            Term::Expr(expr) if are_texts => Term::Expr(format!("({expr}) | string")),
            Term::Literal(value) if are_texts && !value.is_string() => Term::Literal(value.to_string().into()),
            value if are_texts => n8n.report.text(value, &at.join("value"), "value"),
            value => value,
        };
        members.retain(|(key, _)| key != name);
        members.push((name.to_owned(), value));
    }
    Term::Object(members)
}

fn refused(n8n: &mut N8n<'_>, at: &At, construct: &str, why: &str) -> Term {
    n8n.report.note(Verdict::Refused, at, construct, &format!("{why}; write the value"));
    Term::Expr(REFUSED.into())
}

/// Writes a script for the node Code.
pub(super) fn code(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let is_script = parameters.get("language").is_none_or(|language| language == "javaScript");
    // The node Function is the Code of old versions.
    let key = if n8n.kind(node) == "function" { "functionCode" } else { "jsCode" };
    let Some(code) = parameters.get(key).and_then(Value::as_str).filter(|_| is_script) else {
        return missing(n8n, node, list, sources);
    };
    n8n.unknown(parameters, &["mode", "language", key], &at);
    let why =
        "the script has `$input`, `$json` and `items`, and no other names of n8n; it has no network and no modules";
    n8n.report.note(Verdict::Approximated, &at.join(key), key, why);
    let for_each = parameters.get("mode") == Some(&"runOnceForEachItem".into());
    let id = n8n.fresh(node);
    let source = script(code, for_each);
    let input = json!({ "source": source, "inputs": { "items": binding(list) } });
    let mut made = Node::new(&id, "script.run", input);
    failures::go_on(n8n, node, &mut made);
    n8n.add(node, made, sources);
    failures::whole_ports(n8n, node, &id, format!("{id}.result"));
}

/// Returns the nodes that the loop's own output leads to, in their order.
pub(super) fn loop_body(n8n: &N8n<'_>, node: usize, order: &[usize]) -> Vec<usize> {
    let mut found = HashSet::new();
    let output = loop_output(n8n, node);
    let links = n8n.outgoing[node].iter().map(|link| n8n.links[*link]);
    let mut open: Vec<usize> = links.filter(|link| link.output == output).map(|link| link.to).collect();
    while let Some(next) = open.pop() {
        if next != node && found.insert(next) {
            open.extend(n8n.targets(next));
        }
    }
    order.iter().copied().filter(|node| found.contains(node)).collect()
}

/// Returns the number of the output that leads into the loop. It was the first one before version 3.
pub(super) fn loop_output(n8n: &N8n<'_>, node: usize) -> usize {
    let version = n8n.nodes[node].get("typeVersion").and_then(Value::as_f64).unwrap_or(1.0);
    usize::from(version >= 3.0)
}

/// Writes a `control.foreach` with the nodes of the loop as its body. Returns false if the loop is not imported.
pub(super) fn batches(n8n: &mut N8n<'_>, node: usize, body: &[usize]) -> bool {
    let at = pointer(node).join("parameters");
    let empty = Map::new();
    let parameters = n8n.parameters(node).unwrap_or(&empty);
    // The connections that come back from the body are written later.
    let (list, sources) = n8n.input(node, 0);
    let size =
        parameters.get("batchSize").map_or(Some(1), Value::as_u64).filter(|size| (1..=4_294_967_295).contains(size));
    let inner: HashSet<usize> = body.iter().copied().collect();
    let output = loop_output(n8n, node);
    let leads_to_itself = n8n.outgoing[node].iter().any(|link| n8n.links[*link].to == node);
    let enters_elsewhere = body.iter().any(|inside| {
        let mut before = n8n.incoming[*inside].iter().map(|link| n8n.links[*link]);
        before.any(|link| !inner.contains(&link.from) && (link.from != node || link.output != output))
    });
    let is_other = body.is_empty() || enters_elsewhere || leads_to_itself;
    let (Some(size), false, false) = (size, is_other, n8n.depth + 2 > limits::BODY_DEPTH) else {
        missing(n8n, node, &list, &sources);
        return false;
    };
    n8n.options(parameters, &[], &at);
    n8n.unknown(parameters, &["batchSize", "options"], &at);
    let id = n8n.fresh(node);
    let input = json!({ "list": binding(&list), "batchSize": size, "concurrency": 1 });
    let owner = n8n.draft.nodes.len();
    n8n.add(node, Node::new(&id, "control.foreach", input), &sources);
    let start = Port { list: format!("{id}.item"), from: None, may_be_empty: false, fails: false };
    let done = Port {
        list: format!("({id}.items | default([]) | flatten(1))"),
        from: Some(id.clone()),
        may_be_empty: true,
        fails: false,
    };
    let mut ports = vec![done.clone(), done];
    ports[output] = start;
    n8n.ports.insert(node, ports.clone());
    n8n.loops.extend(body.iter().map(|inside| (*inside, node)));
    n8n.depth += 1;
    n8n.region(body);
    n8n.depth -= 1;
    let output_list = led_back(n8n, node, owner);
    let ids = n8n.draft.outer_ids(owner + 1..n8n.draft.nodes.len());
    if ids.is_empty() {
        let rest = n8n.draft.names.fresh(&format!("{id}_item"));
        n8n.draft.nodes.push(Node::value(&rest, binding(&format!("{id}.item"))));
        n8n.draft.nodes[owner].body = Some(vec![rest]);
    } else {
        n8n.draft.nodes[owner].body = Some(ids);
    }
    n8n.draft.nodes[owner].body_output = Some(binding(&output_list));
    ports[output] = Port { list: "[]".into(), from: None, may_be_empty: true, fails: false };
    n8n.ports.insert(node, ports);
    true
}

/// Returns the expression of the items that come back from the body of a loop. Marks the loop if n8n would end it early.
fn led_back(n8n: &mut N8n<'_>, node: usize, owner: usize) -> String {
    let links = n8n.incoming[node].iter().map(|link| n8n.links[*link]);
    let links = links.filter(|link| n8n.loops.get(&link.from) == Some(&node));
    let back: Vec<Port> = links.filter_map(|link| n8n.ports.get(&link.from)?.get(link.output).cloned()).collect();
    let leaves_out =
        |inside: &usize| n8n.ports.get(inside).is_some_and(|ports| ports.iter().any(|port| port.may_be_empty));
    let may_end = n8n.loops.iter().any(|(inside, owner)| *owner == node && leaves_out(inside));
    let why = match back.as_slice() {
        [] => Some("no connection leads back from the body, so only the first batch runs there"),
        _ if may_end => Some("a batch that leaves no items ends the loop there, and the next one runs here"),
        [_, _, ..] => Some("several connections lead back, and each begins the next batch there"),
        [_] => None,
    };
    if let Some(why) = why {
        let made = &mut n8n.draft.nodes[owner];
        n8n.report.mark(Verdict::Approximated, &pointer(node), "connections", made, why);
    }
    let lists: Vec<_> = back.iter().map(|port| format!("({} | default([]))", port.list)).collect();
    let list = match lists.split_first() {
        None => "[]".into(),
        Some((first, [])) => first.clone(),
        Some((first, others)) => format!("{first} | chain({})", others.join(", ")),
    };
    values::within(n8n, list, &pointer(node)).to_expr()
}

/// Writes a scope with a node that fails, in the place of a node that is not imported.
pub(super) fn missing(n8n: &mut N8n<'_>, node: usize, list: &str, sources: &[Port]) {
    let kind = n8n.nodes[node].get("type").and_then(Value::as_str).unwrap_or_default();
    let hint = match kind.rsplit('.').next().unwrap_or_default() {
        "executeWorkflow" => "import the other workflow, and call it with `control.subflow`",
        "agent" | "chainLlm" => "write an `agent.run`, and give it its model and its tools; see `flowcell help agents`",
        _ => "replace the node by nodes that give a list of items",
    };
    let at = pointer(node);
    n8n.report.note(Verdict::Refused, &at.join("type"), kind, hint);
    let id = n8n.fresh(node);
    let call = n8n.draft.names.fresh(&format!("{id}_call"));
    let mut owner = Node::new(&id, "control.scope", json!({}));
    owner.body = Some(vec![call.clone()]);
    owner.sample = Some(json!([]));
    n8n.add(node, owner, sources);
    let message = escaped(&format!("the node type {} was not imported", Value::from(kind)).into());
    let parameters = n8n.nodes[node].get("parameters").map_or_else(|| json!({}), escaped);
    let details = json!({ "items": binding(list), "parameters": parameters });
    let input = json!({ "message": message, "code": "not_imported", "details": details });
    n8n.draft.nodes.push(Node::new(&call, "control.fail", input));
    n8n.fields.insert(node, (id.clone(), ""));
    let outputs =
        n8n.outgoing[node].iter().map(|link| n8n.links[*link].output).max().map_or(1, |most| most.min(63) + 1);
    let port = Port { list: id.clone(), from: Some(id), may_be_empty: true, fails: false };
    n8n.ports.insert(node, vec![port; outputs]);
}

/// Returns a script that runs the code of a node with the names that it expects.
fn script(code: &str, for_each: bool) -> String {
    let call = match for_each {
        true => "const results = [];\n  for (const item of items) results.push(await code(item));",
        false => "const results = [await code(items[0])].flat();",
    };
    let code: String = code.replace('\r', "").lines().map(|line| format!("{line}\n")).collect();
    format!(
        "export async function run(services) {{\n  const items = services.inputs.items.map((json) => ({{ json }}));\n  \
         const code = async (item) => {{\n    const $json = item && item.json;\n    \
         const $input = {{ all: () => items, first: () => items[0], last: () => items[items.length - 1], item }};\n\
         {code}  }};\n  {call}\n  return results.filter((item) => item != null).map((item) => (item.json === undefined ? item : item.json));\n}}\n"
    )
}
