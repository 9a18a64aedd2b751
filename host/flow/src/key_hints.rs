//! Suggests Flowcell's keys and node types in place of the keys and node types of other tools.

use crate::{
    fields::for_message,
    yaml::{Entry, Tree},
};

/// Keys with which a node of other tools names the nodes that start after it.
const AFTER: [&str; 2] = ["next", "then"];
/// Keys that belong in a node's `policy`.
const POLICY: [&str; 4] = ["timeoutMs", "totalTimeoutMs", "retry", "continueOnError"];
/// Names of other tools for the time limit of a node.
const TIMEOUTS: [&str; 6] =
    ["timeout", "timeout_ms", "timeoutSeconds", "timeout_seconds", "timeout-minutes", "deadline"];
/// Names of other tools for the key that lets a flow go on after a failure.
const CONTINUING: [&str; 4] = ["continue_on_error", "continue-on-error", "continueOnFail", "ignoreErrors"];
/// Keys of an edge in other tools, and their names in Flowcell.
pub(crate) const OF_EDGES: [(&str, &str); 6] =
    [("if", "when"), ("condition", "when"), ("source", "from"), ("target", "to"), ("next", "to"), ("then", "to")];
/// Keys of other tools with a Flowcell equivalent.
const RENAMED: [(&str, &str); 15] = [
    ("depends_on", "after"),
    ("dependsOn", "after"),
    ("depends-on", "after"),
    ("needs", "after"),
    ("runAfter", "after"),
    ("with", "input"),
    ("args", "input"),
    ("params", "input"),
    ("parameters", "input"),
    ("if", "when"),
    ("condition", "when"),
    ("uses", "type"),
    ("compensate", "undo"),
    ("compensation", "undo"),
    ("rollback", "undo"),
];
/// Keys that belong beside a node's `input`.
const BESIDE: [&str; 11] =
    ["after", "body", "bodyOutput", "undo", "when", "join", "cancelRest", "policy", "grants", "config", "promptFile"];
/// Those keys of [`BESIDE`] that only nodes with a body have.
const OF_OWNERS: [&str; 2] = ["body", "bodyOutput"];
/// Names of other tools for the content of a request.
const CONTENT: [&str; 4] = ["body", "data", "payload", "content"];
/// Node types of other tools, and help texts with the Flowcell equivalents.
const TYPES: &[(&[&str], &str)] = &[
    (
        &["try", "trycatch", "catch", "onerror", "errortrigger"],
        "write an edge with `on: error`, or `policy: { continueOnError: true }`; to catch several nodes as one, make them \
         the body of a `control.scope`",
    ),
    (
        &["parallel", "fork", "concurrent", "fanout"],
        "add an edge to each node; independent nodes run in parallel, `control.scope` runs them as one, and \
         `control.foreach` runs a body for each item",
    ),
    (
        &["code", "function", "javascript", "js", "python", "functionitem", "script", "lambda", "eval", "evaluate"],
        "write a script with `script.run`",
    ),
    (
        &[
            "http",
            "httprequest",
            "fetch",
            "request",
            "webhookcall",
            "curl",
            "httpget",
            "httppost",
            "rest",
            "restapi",
            "post",
            "put",
            "patch",
            "graphql",
            "url",
        ],
        "use `http.request`",
    ),
    (
        &["splitinbatches", "each", "map", "itemlists", "iterate", "iteration"],
        "use `control.foreach` with a body, or `data.map`",
    ),
    (&["while", "repeat", "until", "dowhile"], "use `control.loop` with a body"),
    (
        &["case", "choice", "router", "condition", "branch", "ifelse"],
        "use `control.switch` or `control.if`, and edges with `when`",
    ),
    (&["delay", "sleep", "timer", "pause"], "use `control.wait`"),
    (
        &[
            "approval",
            "human",
            "humaninput",
            "manual",
            "usertask",
            "ask",
            "form",
            "approve",
            "confirm",
            "userinput",
            "manualapproval",
        ],
        "use `control.gate`",
    ),
    (
        &["set", "assign", "variable", "pass", "nop", "variables", "editfields", "setfields"],
        "use `control.noop` with a `value`, or `data.set`",
    ),
    (&["jq", "jsonata", "jsonpath"], "use `data.query`, which runs queries in the language jq"),
    (
        &["transform", "mapper", "expression"],
        "compute the value in `{{ }}`, or use `data.map`, `data.query` or `script.run`",
    ),
    (&["llm", "openai", "chat", "model", "aiagent", "agent", "prompt"], "use `agent.run`"),
    (&["executeworkflow", "workflow", "call", "subworkflow", "flow"], "use `control.subflow`"),
    (&["trigger", "cron", "schedule", "webhook"], "write `flow: { triggers: [ … ] }`; triggers are not nodes"),
    (
        &["join", "wait_all", "waitall", "gather", "aggregate"],
        "use `control.merge`, or `join: all` on the node where the branches meet",
    ),
    (&["throw", "error", "raise", "stop", "abort", "terminate", "stopanderror"], "use `control.fail`"),
    (&["print", "debug", "console", "logger"], "use `system.log`"),
    (&["retry", "retries", "backoff"], "write `policy: { retry: { maxAttempts: 3 } }` on the node that may fail"),
    (&["start", "begin", "entry"], "remove it: a flow starts with the nodes to which no edge leads"),
    (
        &["respond", "respondtowebhook", "response", "reply"],
        "use `control.respond`, and `respond: node` in the webhook",
    ),
    (
        &["end", "finish", "output", "return"],
        "write `flow: { outputs: { … } }` for the result of the run; a flow needs no last node",
    ),
    (
        &["shell", "bash", "sh", "exec", "command", "executecommand", "ssh", "docker"],
        "nodes start no programs: use `script.run`, `http.request`, or a service of the operator (`flowcell help services`)",
    ),
    (
        &[
            "email",
            "mail",
            "smtp",
            "sendemail",
            "gmail",
            "slack",
            "teams",
            "discord",
            "telegram",
            "sms",
            "notify",
            "notification",
        ],
        "send the message with `http.request` to the API of its service",
    ),
    (
        &["sql", "query", "database", "db", "postgres", "postgresql", "mysql", "mariadb", "sqlite", "mongodb", "redis"],
        "the catalog has no databases: use `http.request`, or a service of the operator (`flowcell help services`)",
    ),
];
/// Maximum number of edges in a help text.
const MAX_SHOWN_EDGES: usize = 3;

/// Suggests a replacement for an unknown key of a node.
pub(crate) fn for_node(node: &Tree, entry: &Entry) -> Option<String> {
    let key = &*entry.key;
    if AFTER.contains(&key) {
        return Some(edges(node, entry));
    }
    if POLICY.contains(&key) {
        let value = if key == "retry" { entry.value.json().as_u64().map(retry) } else { None };
        let value = value.unwrap_or_else(|| format!("{key}: …"));
        return Some(format!("write `policy: {{ {value} }}`"));
    }
    if TIMEOUTS.contains(&key) {
        return Some("write `policy: { timeoutMs: … }`, in milliseconds".to_owned());
    }
    if CONTINUING.contains(&key) {
        return Some("write `policy: { continueOnError: true }`".to_owned());
    }
    if ["retries", "maxAttempts", "attempts"].contains(&key) {
        return Some("write `policy: { retry: { maxAttempts: … } }`".to_owned());
    }
    if key == "strict" {
        return Some("write `strict: true` in `flow`; it applies to the whole flow".to_owned());
    }
    renamed(entry, &RENAMED)
}

/// Suggests the right place for a key in a node's input that belongs beside `input`, or the fields for the content of a
/// request. `fields`: the fields of the input. `owns_body`: the node type may own a body.
pub(crate) fn for_input<'a>(key: &str, fields: impl IntoIterator<Item = &'a str>, owns_body: bool) -> Option<String> {
    if BESIDE.contains(&key) && (owns_body || !OF_OWNERS.contains(&key)) {
        return Some(format!("write `{key}` beside `input`, not inside it"));
    }
    for_content(key, fields).map(|content| format!("write {content}"))
}

/// Names the fields for the content of a request, if a key is a name of other tools for it, and the input has them.
pub(crate) fn for_content<'a>(key: &str, fields: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    let contents = fields.into_iter().filter(|field| matches!(*field, "json" | "text")).count();
    (CONTENT.contains(&key) && contents == 2).then_some("`json: …` to send JSON, or `text: …` to send a text unchanged")
}

/// Suggests a Flowcell node type in place of a type of another tool. Only the last part of the type's name counts, and
/// the pack if it is `http`, as in `http.get`.
pub(crate) fn for_type(name: &str) -> Option<String> {
    let plain = |part: &str| part.to_lowercase().replace(['-', '_', ' '], "");
    let find = |part: &str| TYPES.iter().find(|(names, _)| names.contains(&&*plain(part)));
    let last = name.rsplit(['.', '/']).next().unwrap_or(name);
    let is_http = || name.split_once('.').filter(|(pack, _)| pack.eq_ignore_ascii_case("http"));
    find(last).or_else(|| find(is_http()?.0)).map(|(_, help)| (*help).to_owned())
}

/// Suggests Flowcell's name for a key. `names` has pairs: the name in other tools, and the name in Flowcell.
pub(crate) fn renamed(entry: &Entry, names: &[(&str, &str)]) -> Option<String> {
    let (_, name) = names.iter().find(|(other, _)| *other == &*entry.key)?;
    Some(format!("Flowcell calls this key `{name}`"))
}

/// Returns the text of a `retry` policy with this number of attempts.
pub(crate) fn retry(attempts: u64) -> String {
    format!("retry: {{ maxAttempts: {attempts} }}")
}

/// Suggests a replacement for an unknown key of a policy.
pub(crate) fn for_policy(entry: &Entry) -> Option<String> {
    // `retries` does not count the first attempt.
    let more = match &*entry.key {
        "retries" => 1,
        "attempts" | "maxAttempts" => 0,
        _ => return None,
    };
    let attempts = entry.value.json().as_u64().map(|count| retry(count.saturating_add(more)));
    Some(format!("write `{}`", attempts.unwrap_or_else(|| "retry: { maxAttempts: … }".to_owned())))
}

/// Returns the text of the edges that replace a key which names the nodes after this one, such as `next`.
fn edges(node: &Tree, entry: &Entry) -> String {
    let own = node.member("id").and_then(Tree::text).map_or("…".into(), for_message);
    let others: Vec<_> = match entry.value.text() {
        Some(other) => vec![for_message(other)],
        None => entry.value.items().iter().filter_map(|item| Some(for_message(item.text()?))).collect(),
    };
    let edge = |other: &str| format!("\"{own} -> {other}\"");
    let mut edges: Vec<_> = others.iter().take(MAX_SHOWN_EDGES).map(|other| edge(other)).collect();
    match others.len() {
        0 => edges.push(edge("…")),
        count if count > MAX_SHOWN_EDGES => edges.push("…".into()),
        _ => {}
    }
    let plural = if edges.len() == 1 { "an edge" } else { "edges" };
    format!("write {plural}: `edges: [{}]`", edges.join(", "))
}
