//! The JSON Schema of the graph dialect, for editors.

use serde_json::{Value, json};

/// Returns the schema (2020-12).
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flowcell flow",
        "description": "A flow of sandboxed nodes (graph dialect)",
        "type": "object",
        "required": ["flow", "nodes"],
        "additionalProperties": false,
        "properties": {
            "flow": flow(),
            "nodes": { "type": "array", "items": { "$ref": "#/$defs/node" }, "description": "The boxes of the graph" },
            "edges": { "type": "array", "items": { "$ref": "#/$defs/edge" }, "description": "The lines between them" },
        },
        "$defs": { "node": node(), "edge": edge(), "condition": condition(), "id": {
            "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,63}$",
        } },
    })
}

fn flow() -> Value {
    json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {
            "name": { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "The flow's name" },
            "version": { "type": ["integer", "string"], "description": "The flow's version" },
            "description": { "type": "string", "description": "What the flow is for" },
            "input": { "type": "object", "description": "Defaults of the input; the caller's members win" },
            "inputSchema": { "type": "object", "description": "JSON Schema of the input" },
            "outputs": { "description": "The result; without it the outputs of every node, by id" },
            "packs": { "type": "array", "items": { "type": "string" }, "description": "Packs beside the catalog, by path" },
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

fn node() -> Value {
    json!({
        "type": "object",
        "required": ["id", "type"],
        "additionalProperties": false,
        "properties": {
            "id": { "$ref": "#/$defs/id" },
            "type": { "type": "string", "description": "A node type, such as control.if, or acme.greet@1.2" },
            "input": { "type": ["object", "string"], "description": "Bindings" },
            "config": { "type": ["object", "string"] },
            "promptFile": { "type": "string", "description": "Read into input.prompt" },
            "when": { "$ref": "#/$defs/condition" },
            "join": { "enum": ["settled", "all", "any"], "default": "settled" },
            "policy": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "timeoutMs": { "type": "integer", "minimum": 1, "default": 300_000 },
                    "totalTimeoutMs": { "type": "integer", "minimum": 1 },
                    "continueOnError": { "type": "boolean", "default": false },
                    "retry": {
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "maxAttempts": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 1 },
                            "backoffMs": { "type": "integer", "minimum": 0, "default": 500 },
                            "factor": { "type": "number", "minimum": 1, "maximum": 100, "default": 2 },
                            "maxBackoffMs": { "type": "integer", "minimum": 0, "default": 60_000 },
                            "jitter": { "enum": ["full", "none"], "default": "full" },
                            "on": { "enum": ["retryable", "any"], "default": "retryable" },
                        },
                    },
                },
            },
            "grants": { "type": "object", "description": "What the node may reach outside" },
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
            "bodyOutput": { "description": "What a pass through the body gives" },
        },
    })
}

fn edge() -> Value {
    json!({
        "type": "object",
        "required": ["from", "to"],
        "additionalProperties": false,
        "properties": {
            "from": { "$ref": "#/$defs/id" },
            "to": { "$ref": "#/$defs/id" },
            "on": { "enum": ["success", "error", "end"], "default": "success" },
            "when": { "$ref": "#/$defs/condition" },
        },
    })
}

fn condition() -> Value {
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
