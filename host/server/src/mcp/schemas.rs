//! JSON Schemas of the arguments of the built-in tools.

use serde_json::{Value, json};

/// Returns the schema of a text.
pub(super) fn text(what: &str) -> Value {
    json!({ "type": "string", "description": what })
}

/// Returns the schemas of two arguments: `flow`, which is a name or a whole flow, and `version`.
pub(super) fn flow_and_version() -> (Value, Value) {
    (
        flow("The name of a stored flow, or a whole flow: an object, or its text. A script is { name, script }"),
        number("The version of a stored flow; by default the newest"),
    )
}

/// Returns the schema of the input of a run.
pub(super) fn input() -> Value {
    json!({ "type": "object", "description": "Members of the input; they take precedence over the flow's defaults" })
}

/// Returns the schema of a flow, or of the name of one.
pub(super) fn flow(what: &str) -> Value {
    json!({ "type": ["string", "object"], "description": what })
}

/// Returns the schemas of the arguments that filter and page a list of runs.
pub(super) fn page() -> Value {
    let standings = ["running", "parked", "needs_attention", "succeeded", "failed", "cancelled"];
    let time = |what: &str| json!({ "type": "integer", "minimum": 0, "description": what });
    json!({
        "flow": text("List only runs of this flow"),
        "version": number("List only runs of this version of their flow"),
        "status": { "type": "string", "enum": standings },
        "since": time("List only runs that began at this time or later, in milliseconds since 1970"),
        "before": time("List only runs that began before this time, in milliseconds since 1970"),
        "error": text("List only failed runs whose error has this code"),
        "text": text("List only failed runs whose error message has words with these prefixes"),
        "node": text("List only failed runs in which this node failed, such as `pay`, or `each.pay` in a body"),
        "labels": text("List only runs with all these labels: `team=billing,tier=gold`"),
        "trigger": text("List only runs that this trigger started"),
        "parent": text("List only the runs that this run has called"),
        "retryOf": text("List only the runs that repeat this run"),
        "minDurationMs": time("List only runs that took at least this many milliseconds"),
        "maxDurationMs": time("List only runs that took at most this many milliseconds"),
        "countBy": text("Also count the runs of the filter by `status`, `flow`, `error`, `node`, `trigger` or `label:NAME`"),
        "limit": number("The maximum number of runs; 50 by default"),
        "cursor": text("The `next` of the previous page"),
    })
}

/// Returns the schemas of the arguments that create a job.
pub(super) fn job() -> Value {
    let object = |what: &str| json!({ "type": "object", "description": what });
    json!({
        "action": { "type": "string", "enum": ["cancel", "resume", "retry", "answer", "delete", "label", "migrate"] },
        "filter": object("Selects the runs by at least one of the members of `list_runs`, apart from `countBy`, `limit` and \
            `cursor`; `labels` is an object here"),
        "params": object("For answer: `gate` and `answer`. For retry: `from`, `keepAnswers`, `flowVersion` (a \
            version or `latest`) and `rename`. For label: `set` (an object) and \
            `remove` (names). For migrate: `to` (a version), `keepAnswers` and `rename` (new names of \
            nodes by the old ones); its filter needs `flow`"),
        "maxRuns": number("The maximum number of runs, the latest first; 10,000 by default"),
        "ratePerSecond": number("The maximum number of runs per second; 500 by default"),
        "preview": { "type": "boolean", "description": "True to name the runs, and to do nothing" },
    })
}

/// Returns the schema of a number from 1.
pub(super) fn number(what: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "description": what })
}

/// Returns the schemas of the arguments of an evaluation.
pub(super) fn eval() -> Value {
    let (flow, version) = flow_and_version();
    json!({
        "expression": text("A text with {{ }}, or an expression alone; flowcell_functions lists its functions"),
        "flow": flow,
        "version": version,
        "input": input(),
        "runId": text("The run whose values the expression reads, in place of `flow` and `input`"),
        "task": text("The address of a task of the run; without it the values are those of the outputs at the end"),
    })
}

/// Returns the schemas of the arguments of a drawing.
pub(super) fn graph() -> Value {
    let (flow, version) = flow_and_version();
    let format = json!({
        "type": "string",
        "enum": ["text", "mermaid", "dot", "svg", "json"],
        "description": "The format; text by default, svg is a picture, json has the places of all nodes and edges",
    });
    json!({ "flow": flow, "version": version, "format": format })
}
