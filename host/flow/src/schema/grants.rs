//! The JSON Schema of grants.

use flowcell_contract::MAX_NODE_CREDENTIALS;
use serde_json::{Value, json};

/// Returns the schema of grants. The packs name the capabilities, so that only the secrets and credentials of
/// requests are known.
pub(super) fn grants(description: &str) -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let secret = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text("Name of the secret"),
            "header": text("Header of the request that has it, by default `authorization`"),
            "prefix": text("Text before it, by default `Bearer ` with the header `authorization`"),
            "for": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Origins that get it, among those of the secret",
            },
        },
    });
    let secrets =
        json!({ "anyOf": [{ "type": "array", "items": secret }, secret], "description": "Secrets that requests send" });
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" });
    let credentials = json!({
        "anyOf": [
            name,
            { "type": "array", "items": name, "maxItems": MAX_NODE_CREDENTIALS },
            { "type": "object", "additionalProperties": name, "maxProperties": MAX_NODE_CREDENTIALS },
        ],
        "description": "Credentials that requests use: names of the node type, each with the name of the tenant's credential",
    });
    let known = json!({ "secrets": secrets, "credentials": credentials });
    json!({ "type": "object", "properties": known, "description": description })
}
