//! Grants as flows write them, looked at before anything runs.

use flowcell_contract::Json;
use flowcell_services::{egress::OriginGrants, http, model};

use crate::tools;

/// Capabilities that need no grant, and may have one.
pub(crate) const ALWAYS: [&str; 5] = ["log", "metrics", "state", "cache", "agent"];

/// What is wrong about one item of a grant. Of a capability that somebody else brought nothing is known here.
pub(crate) fn check(capability: &str, item: &Json) -> Result<(), String> {
    match capability {
        http::INTERFACE => OriginGrants::parse(item).map(drop),
        model::INTERFACE => pattern(item, "anthropic/*").and_then(|text| match text.contains(['/', '*']) {
            true => Ok(()),
            false => Err(format!("`{text}` names no model: a pattern is of provider and model, such as `{text}/*`")),
        }),
        tools::INTERFACE => pattern(item, "data.*").and_then(|text| match text.contains(['.', ':', '*']) {
            true => Ok(()),
            false => Err(format!("`{text}` names no tool; tools are `data.map`, `flow:report`, `mcp:files/read_file`")),
        }),
        _ => Ok(()),
    }
}

fn pattern<'a>(item: &'a Json, example: &str) -> Result<&'a str, String> {
    match item.as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("a pattern such as `{example}` is expected, this one is empty")),
        None => Err(format!("a list of patterns such as `{example}` is expected, not {}", item.type_name())),
    }
}
