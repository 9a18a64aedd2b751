//! Suggests Flowcell's keys and node types in place of the keys and node types of other tools.

use crate::{
    fields::for_message,
    yaml::{Entry, Tree},
};

/// Keys with which a node of other tools names the nodes that start after it.
const AFTER: [&str; 2] = ["next", "then"];
/// Keys that belong in a node's `policy`.
const POLICY: [&str; 4] = ["timeoutMs", "totalTimeoutMs", "retry", "continueOnError"];
/// Keys of other tools with a Flowcell equivalent.
const RENAMED: [(&str, &str); 12] = [
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
];
/// Keys that belong beside a node's `input`.
const BESIDE: [&str; 9] = ["after", "body", "bodyOutput", "when", "join", "policy", "grants", "config", "promptFile"];
/// Node types of other tools, and help texts with the Flowcell equivalents.
const TYPES: [(&[&str], &str); 14] = [
    (
        &["try", "trycatch", "catch", "onerror", "errortrigger"],
        "write an edge with `on: error`, or `policy: { continueOnError: true }`",
    ),
    (
        &["parallel", "fork", "concurrent", "fanout"],
        "add an edge to each node; independent nodes run in parallel, and `control.foreach` runs a body for each item",
    ),
    (&["code", "function", "javascript", "js", "python", "functionitem"], "write a script with `script.run`"),
    (&["http", "httprequest", "fetch", "request", "webhookcall", "curl"], "use `http.request`"),
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
    (&["approval", "human", "humaninput", "manual", "usertask", "ask", "form"], "use `control.gate`"),
    (&["set", "assign", "variable", "pass", "nop", "variables"], "use `control.noop` with a `value`, or `data.set`"),
    (&["llm", "openai", "chat", "model", "aiagent", "agent", "prompt"], "use `agent.run`"),
    (&["executeworkflow", "workflow", "call", "subworkflow", "flow"], "use `control.subflow`"),
    (&["trigger", "cron", "schedule", "webhook"], "write `flow: { triggers: [ … ] }`; triggers are not nodes"),
    (
        &["join", "wait_all", "waitall", "gather", "aggregate"],
        "use `control.merge`, or `join: all` on the node where the branches meet",
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
    if key == "strict" {
        return Some("write `strict: true` in `flow`; it applies to the whole flow".to_owned());
    }
    renamed(entry, &RENAMED)
}

/// Suggests the right place for a key in a node's input that belongs beside `input`.
pub(crate) fn for_input(key: &str) -> Option<String> {
    BESIDE.contains(&key).then(|| format!("write `{key}` beside `input`, not inside it"))
}

/// Suggests a Flowcell node type in place of a type of another tool. Only the last part of the type's name counts.
pub(crate) fn for_type(name: &str) -> Option<String> {
    let last = name.rsplit(['.', '/']).next().unwrap_or(name).to_lowercase().replace(['-', '_', ' '], "");
    TYPES.iter().find(|(names, _)| names.contains(&&*last)).map(|(_, help)| (*help).to_owned())
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
