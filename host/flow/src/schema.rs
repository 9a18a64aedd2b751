//! The JSON Schemas of the dialects, for editors.

mod grants;

use serde_json::{Value, json};

use self::grants::grants;
use crate::{
    edges::DEFAULT_MAX_PASSES,
    limits::{
        FRAGMENT_PARAMS, FRAGMENTS, LABEL_BYTES, LABELS, MAX_PASSES, RESPOND_TIMEOUT_MS, RETRY_CODE_BYTES, RETRY_CODES,
        RETRY_RULES, VARS,
    },
    triggers::{
        Respond,
        schemes::{SCHEMES, STANDARD},
    },
};

/// Returns the schema of the graph dialect (2020-12).
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flowcell flow",
        "description": "A flow of sandboxed nodes (graph dialect)",
        "type": "object",
        "required": ["flow", "nodes"],
        "additionalProperties": false,
        "properties": {
            "flow": flow_schema(),
            "nodes": { "type": "array", "items": { "$ref": "#/$defs/node" }, "description": "The nodes of the graph" },
            "edges": { "type": "array", "items": { "$ref": "#/$defs/edge" }, "description": "The edges between nodes" },
            "fragments": {
                "type": "object",
                "maxProperties": FRAGMENTS,
                "propertyNames": { "$ref": "#/$defs/id" },
                "additionalProperties": { "$ref": "#/$defs/fragment" },
                "description": "Parts of the graph with parameters, by name; nodes with `use` are replaced by them",
            },
        },
        "$defs": { "node": node_schema(), "edge": edge_schema(), "edgeMap": edge_map_schema(), "fragment": fragment_schema(), "nodePolicy": node_policy_schema(), "condition": condition_schema(), "id": {
            "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,63}$",
        } },
    })
}

/// Returns the text of the schema of the `steps` dialect (2020-12).
pub fn steps() -> &'static str {
    include_str!("schema/steps.json")
}

/// Returns the schema of the agentic dialect (2020-12).
pub fn agentic() -> Value {
    let name = json!({ "type": "string", "maxLength": 64, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flowcell agentic flow",
        "description": "Steps that agents do (agentic dialect)",
        "type": "object",
        "required": ["flow"],
        "additionalProperties": false,
        "properties": {
            "name": { "type": "string", "description": "Display title of the flow; its name comes from its file" },
            "description": { "type": "string", "description": "Purpose of the flow" },
            "disabled": { "type": "boolean", "default": false, "description": "If true, the flow refuses to run" },
            "flow": {
                "type": "object",
                "required": ["steps"],
                "additionalProperties": false,
                "properties": {
                    "args": {
                        "type": "object",
                        "properties": { "type": { "const": "object" } },
                        "description": "JSON Schema of the arguments",
                    },
                    "session": {
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "prefix": { "type": "string", "description": "Prefix of the sessions if the run names none: letters, digits, - _ . or ${args.key}" },
                            "resume_on_failure": { "type": "boolean", "default": true, "description": "If false, a run after a failed one begins with the first step" },
                        },
                    },
                    "steps": {
                        "type": "array",
                        "minItems": 1,
                        "items": { "$ref": "#/$defs/step" },
                        "description": "The run starts with the first step; rules lead to the others",
                    },
                },
            },
        },
        "$defs": { "name": name, "step": step_schema(), "rule": rule_schema() },
    })
}

fn step_schema() -> Value {
    json!({
        "type": "object",
        "required": ["id", "prompt"],
        "additionalProperties": false,
        "properties": {
            "id": { "$ref": "#/$defs/name" },
            "agent": { "$ref": "#/$defs/name", "default": "coder", "description": "The agent that does the step" },
            "prompt": { "type": "string", "description": "`${args.key}`, `${args}` and `${step.iteration}` are replaced" },
            "session": {
                "type": "object",
                "additionalProperties": false,
                "properties": { "fork": {
                    "type": "boolean",
                    "default": false,
                    "description": "Starts with a copy of the preceding step's history, if that step had the same agent",
                } },
            },
            "output": {
                "type": "object",
                "required": ["schema"],
                "additionalProperties": false,
                "properties": { "schema": { "type": "object", "description": "JSON Schema of the structured output" } },
                "description": "The members of the structured output become arguments",
            },
            "maxTurns": { "type": "integer", "minimum": 0, "maximum": 10_000, "description": "Maximum number of calls of the model in the step; 0 or absent: the agent's limit" },
            "maxIterations": { "type": "integer", "minimum": 0, "maximum": MAX_PASSES, "description": "Maximum number of iterations of the loop around the step. A rule that leads back to the step begins the next one; 0 or absent: it does so only with `cycle: true`, and at most 100 times" },
            "timeout": {
                "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string", "pattern": "^([0-9.]+(ms|s|m|min|h|d))+$" }],
                "default": "24h",
                "description": "Timeout of an attempt: seconds, or a duration such as 30m or 1h30m",
            },
            "rules": { "type": "array", "items": { "$ref": "#/$defs/rule" }, "description": "All rules whose condition holds apply" },
            "fallback": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "retry": { "type": "integer", "minimum": 0, "maximum": 999, "default": 0 },
                    "delay": { "type": "integer", "minimum": 0, "default": 0, "description": "Seconds before a retry" },
                    "to": { "$ref": "#/$defs/name", "description": "The step that runs after the last failed attempt" },
                },
            },
        },
    })
}

fn rule_schema() -> Value {
    json!({
        "type": "object",
        "required": ["then"],
        "additionalProperties": false,
        "properties": {
            "if": { "type": "string", "description": "${args.key} == value, != value, =~ /pattern/, < 3, or sizeof ${args.key} == 0, or ${step.iteration} < 3 in a loop; joined by &&, || and !( ); without a condition the rule always applies" },
            "then": { "$ref": "#/$defs/name" },
            "postpone": { "type": "boolean", "default": false, "description": "Postpones the step to the next run of the same session" },
            "cycle": { "type": "boolean", "default": false, "description": "If the rule leads back to a step, begins the next iteration of a loop" },
        },
    })
}

fn flow_schema() -> Value {
    json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {
            "name": { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "The flow's name" },
            "approximated": marks("Reasons for which an imported flow may not do the same as its source"),
            "version": { "type": ["integer", "string"], "description": "The flow's version" },
            "description": { "type": "string", "description": "Purpose of the flow" },
            "input": { "type": "object", "description": "Defaults of the input; the caller's members override them" },
            "inputSchema": { "type": "object", "description": "JSON Schema of the input" },
            "outputs": { "description": "The result; default: the outputs of all nodes, by id" },
            "strict": {
                "type": "boolean",
                "default": false,
                "description": "If true, a missing value fails its node unless the expression tests for it; otherwise it becomes null",
            },
            "triggers": {
                "type": "array",
                "maxItems": 16,
                "items": trigger_schema(),
                "description": "Schedules, webhooks and events that start the flow in a server's library",
            },
            "labels": labels("Labels of the flow's runs, by which people find them"),
            "defaults": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "grants": grants("Grants of built-in nodes that ask for them and set none of their own"),
                    "policy": { "$ref": "#/$defs/nodePolicy" },
                },
                "description": "Grants and the policy of nodes that do not set their own",
            },
            "maxPasses": max_passes("Maximum number of passes of each cycle of edges that sets no other"),
            "vars": {
                "type": "object",
                "maxProperties": VARS,
                "propertyNames": { "pattern": NAME },
                "description": "Named values, computed once at the start: `{{ vars.NAME }}`",
            },
            "packs": { "type": "array", "items": { "type": "string" }, "description": "Paths of packs in addition to the catalog" },
            "nodePacks": { "type": "array", "items": { "type": "string" }, "description": "Names of packs" },
            "policy": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "failFast": { "type": "boolean", "default": true },
                    "totalTimeoutMs": { "type": "integer", "minimum": 1 },
                    "maxConcurrency": { "type": "integer", "minimum": 1, "maximum": 10000, "default": 16 },
                },
            },
        },
    })
}

fn labels(description: &str) -> Value {
    json!({
        "type": "object",
        "maxProperties": LABELS,
        "propertyNames": { "pattern": format!("^[A-Za-z0-9][A-Za-z0-9_./-]{{0,{}}}$", LABEL_BYTES - 1) },
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": LABEL_BYTES },
        "description": description,
    })
}

fn trigger_schema() -> Value {
    let end = json!({ "enum": ["succeeded", "failed", "cancelled"] });
    json!({
        "type": "object",
        "required": ["id"],
        "additionalProperties": false,
        "properties": {
            "id": { "$ref": "#/$defs/id", "description": "Name of the trigger, unique in its flow" },
            "cron": { "type": "string", "description": "Minute, hour, day of the month, month, day of the week" },
            "timeZone": { "type": "string", "default": "UTC", "description": "An IANA name, such as Europe/Berlin" },
            "missed": { "enum": ["skip", "latest", "all"], "default": "latest", "description": "Times that passed while no server was running" },
            "webhook": webhook_schema(),
            "event": {
                "type": "object",
                "required": ["flow"],
                "additionalProperties": false,
                "properties": {
                    "flow": { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "Name of the flow whose runs start this one" },
                    "status": {
                        "anyOf": [end, { "type": "array", "items": end, "minItems": 1 }],
                        "description": "Final statuses of those runs; default: all",
                    },
                },
            },
            "input": { "type": "object", "description": "Members that override the flow's defaults" },
            "labels": labels("Labels of the runs that the trigger starts"),
        },
        "oneOf": [{ "required": ["cron"] }, { "required": ["webhook"] }, { "required": ["event"] }],
    })
}

fn webhook_schema() -> Value {
    let name = json!({ "type": "string", "minLength": 1 });
    let schemes = SCHEMES.map(|row| row.name);
    json!({
        "type": "object",
        "required": ["secret"],
        "additionalProperties": false,
        "properties": {
            "secret": {
                "anyOf": [name, { "type": "array", "items": name, "minItems": 1, "maxItems": 4 }],
                "description": "Name of the secret that signs posts; several names during a rotation",
            },
            "scheme": { "enum": schemes, "default": STANDARD, "description": "The way in which senders prove who they are" },
            "header": { "type": "string", "description": "With hmac: the header with the signature; with bearer: a header with the secret alone" },
            "algorithm": { "enum": ["sha256", "sha512"], "default": "sha256", "description": "With hmac: the hash function" },
            "encoding": { "enum": ["hex", "base64"], "default": "hex", "description": "With hmac: the encoding of the signature" },
            "prefix": { "type": "string", "description": "With hmac: the text before the signature" },
            "signed": { "type": "string", "default": "{body}", "description": "With hmac: the signed text, of {body}, {timestamp}, {id} and other characters" },
            "timestamp": { "type": "string", "description": "With hmac: the header with the time in seconds since 1970" },
            "user": { "type": "string", "description": "With basic: the name before the secret" },
            "id": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "header": { "type": "string", "description": "Name of a header" },
                    "pointer": { "type": "string", "pattern": "^/", "description": "JSON Pointer into the body" },
                },
                "oneOf": [{ "required": ["header"] }, { "required": ["pointer"] }],
                "description": "The place of the id that makes repeated deliveries count once",
            },
            "respond": { "enum": Respond::ALL.map(|(name, _)| name), "default": "run", "description": "The answer to a post: the id of the run, the first control.respond, or the outputs of the run" },
            "respondTimeoutMs": { "type": "integer", "minimum": 1, "maximum": RESPOND_TIMEOUT_MS, "default": RESPOND_TIMEOUT_MS, "description": "With respond: time until a post gets the id of the run instead" },
        },
    })
}

fn node_schema() -> Value {
    json!({
        "type": "object",
        "required": ["id"],
        "oneOf": [{ "required": ["type"] }, { "required": ["use"] }],
        "additionalProperties": false,
        "properties": {
            "id": { "$ref": "#/$defs/id" },
            "type": { "type": "string", "description": "A node type, such as control.if, or acme.greet@1.2" },
            "use": { "$ref": "#/$defs/id", "description": "In place of `type`: the name of a fragment" },
            "with": { "type": "object", "description": "With `use`: the values of the fragment's parameters" },
            "approximated": marks("Reasons for which an imported node may not do the same as its source"),
            "after": {
                "anyOf": [{ "$ref": "#/$defs/id" }, { "type": "array", "items": { "$ref": "#/$defs/id" } }],
                "description": "Ids of nodes from which an edge leads here",
            },
            "input": { "type": ["object", "string"], "description": "Bindings" },
            "config": { "type": ["object", "string"] },
            "promptFile": { "type": "string", "description": "Read into input.prompt" },
            "when": { "$ref": "#/$defs/condition" },
            "join": { "enum": ["settled", "all", "any"], "default": "settled" },
            "cancelRest": {
                "type": "boolean",
                "default": false,
                "description": "With the join `any`: cancels what leads only to this node when the first edge fires",
            },
            "policy": { "$ref": "#/$defs/nodePolicy" },
            "grants": grants("Capabilities of the node, such as hosts and files"),
            "body": {
                "oneOf": [
                    { "type": "array", "items": { "$ref": "#/$defs/id" } },
                    {
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "nodes": { "type": "array", "items": { "$ref": "#/$defs/node" } },
                            "edges": { "type": "array", "items": { "$ref": "#/$defs/edge" } },
                        },
                    },
                ],
            },
            "bodyOutput": { "description": "Result of one iteration of the body" },
            "undo": { "$ref": "#/$defs/id", "description": "The node that undoes this one if the scope or the flow fails" },
        },
    })
}

/// The names that expressions can use as roots or members.
const NAME: &str = "^[A-Za-z_][A-Za-z0-9_]{0,63}$";

fn fragment_schema() -> Value {
    json!({
        "type": "object",
        "required": ["nodes"],
        "additionalProperties": false,
        "properties": {
            "description": { "type": "string", "description": "Purpose of the fragment" },
            "params": {
                "type": "object",
                "maxProperties": FRAGMENT_PARAMS,
                "propertyNames": { "pattern": NAME },
                "additionalProperties": { "type": "object", "description": "JSON Schema of the values; with `default` the parameter is optional" },
                "description": "The parameters, which the nodes read as `{{ params.NAME }}`",
            },
            "nodes": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/node" } },
            "edges": { "type": "array", "items": { "$ref": "#/$defs/edge" } },
            "output": { "description": "The output of a use; by default the output of the last node" },
        },
    })
}

/// Returns the schema of the marks of an import. A flow with marks is not valid until they are removed.
fn marks(description: &str) -> Value {
    let text = json!({ "type": "string" });
    json!({ "anyOf": [text, { "type": "array", "items": text }], "description": description })
}

fn node_policy_schema() -> Value {
    let codes = json!({
        "type": "array",
        "minItems": 1,
        "maxItems": RETRY_CODES,
        "items": { "type": "string", "pattern": r"^[A-Za-z0-9_.-]+\*?$", "maxLength": RETRY_CODE_BYTES },
        "description": "Codes of failures; `*` at the end stands for any rest",
    });
    let mut rule = retry_schema();
    for member in rule["properties"].as_object_mut().into_iter().flat_map(|members| members.values_mut()) {
        member.as_object_mut().map(|member| member.remove("default"));
    }
    rule["required"] = json!(["on"]);
    rule["properties"]["on"] = codes.clone();
    rule["description"] = json!("Settings for these codes; others are as in `retry`");
    let mut retry = retry_schema();
    retry["properties"]["on"] = json!({ "anyOf": [{ "enum": ["retryable", "any"] }, codes], "default": "retryable" });
    retry["properties"]["rules"] = json!({ "type": "array", "maxItems": RETRY_RULES, "items": rule });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "timeoutMs": { "type": "integer", "minimum": 1, "default": 300_000 },
            "totalTimeoutMs": { "type": "integer", "minimum": 1 },
            "continueOnError": { "type": "boolean", "default": false },
            "retry": retry,
        },
    })
}

fn retry_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "maxAttempts": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 1 },
            "backoffMs": { "type": "integer", "minimum": 0, "default": 500 },
            "factor": { "type": "number", "minimum": 1, "maximum": 100, "default": 2 },
            "maxBackoffMs": { "type": "integer", "minimum": 0, "default": 60_000 },
            "jitter": { "enum": ["full", "none"], "default": "full" },
        },
    })
}

fn edge_schema() -> Value {
    let id = "[A-Za-z_][A-Za-z0-9_-]{0,63}";
    json!({ "anyOf": [
        { "$ref": "#/$defs/edgeMap" },
        {
            "type": "string",
            "pattern": format!(r"^\s*{id}(\s*->\s*{id}\s*(:\s*\S.*)?|(\s*->\s*{id}){{2,}}\s*)$"),
            "description": "`a -> b -> c`, or one edge with an outcome or a port: `a -> b: error`",
        },
    ] })
}

fn edge_map_schema() -> Value {
    json!({
        "type": "object",
        "required": ["from", "to"],
        "additionalProperties": false,
        "properties": {
            "from": { "$ref": "#/$defs/id" },
            "to": { "$ref": "#/$defs/id" },
            "on": { "enum": ["success", "error", "end"], "default": "success" },
            "when": { "$ref": "#/$defs/condition" },
            "inbound": { "type": "boolean", "default": true, "description": "If false, the edge only orders its nodes, and `inbound` and `inbounds` leave its source out" },
            "maxPasses": max_passes("Maximum number of passes of the cycle that this edge closes"),
        },
    })
}

fn max_passes(description: &str) -> Value {
    json!({
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_PASSES,
        "default": DEFAULT_MAX_PASSES,
        "description": description,
    })
}

fn condition_schema() -> Value {
    let compare =
        json!({ "type": "object", "required": ["var", "value"], "properties": { "var": { "type": "string" } } });
    json!({
        "description": "A condition, or a text in the expression language",
        "oneOf": [
            { "type": ["string", "boolean"] },
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": false,
                "properties": {
                    "equals": compare, "gt": compare, "gte": compare, "lt": compare, "lte": compare,
                    "in": { "type": "object", "required": ["var"] },
                    "matches": { "type": "object", "required": ["var", "pattern"] },
                    "exists": { "type": ["string", "object"] },
                    "not": { "$ref": "#/$defs/condition" },
                    "and": { "type": "array", "items": { "$ref": "#/$defs/condition" } },
                    "or": { "type": "array", "items": { "$ref": "#/$defs/condition" } },
                },
            },
        ],
    })
}
