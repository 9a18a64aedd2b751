//! The resources of MCP, called documents here: the pages of the manual, the schema of flows, and the node types.

use flowcell_contract::{Lookup, NodeType, TypeRef};
use rmcp::{
    ErrorData,
    model::{
        ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
        ResourceTemplate,
    },
};
use serde_json::{Value, json};

use crate::manual;
use flowcell_platform::{Host, shape};

/// A second URI of the manual page about the language. It must stay, because clients have used it since the first
/// version.
const LANGUAGE_URI: &str = "flowcell://language";
/// The URI of the JSON Schema of flows.
const SCHEMA_URI: &str = "flowcell://schema/graph";
/// The prefix of the URIs of node types.
const NODES_PREFIX: &str = "flowcell://nodes/";
/// The prefix of the URIs of manual pages.
const MANUAL_PREFIX: &str = "flowcell://manual/";

const MARKDOWN: &str = "text/markdown";
const JSON: &str = "application/json";

/// Returns the list of all documents.
pub(super) fn list(host: &Host) -> ListResourcesResult {
    let document = |uri: &str, name: &str, description: &str, kind: &str| {
        Resource::new(uri, name).with_description(description).with_mime_type(kind)
    };
    let mut all = vec![
        document(LANGUAGE_URI, "language", "The language of flows, with an example", MARKDOWN),
        document(SCHEMA_URI, "schema", "The JSON Schema of flow files", JSON),
    ];
    all.extend(manual::PAGES.iter().map(|page| {
        let uri = format!("{MANUAL_PREFIX}{}", page.topic);
        document(&uri, page.topic, page.title(), MARKDOWN).with_title(page.title())
    }));
    all.extend(host.catalog().types().map(|node| {
        let uri = format!("{NODES_PREFIX}{}", node.name);
        document(&uri, &node.name, &node.title, JSON).with_title(node.title.clone())
    }));
    ListResourcesResult::with_all_items(all)
}

/// Returns the URI templates of node types and of manual pages, such as `flowcell://nodes/{type}`.
pub(super) fn templates() -> ListResourceTemplatesResult {
    let nodes = ResourceTemplate::new(format!("{NODES_PREFIX}{{type}}"), "node type")
        .with_description("A node type: its purpose, schemas, examples and failures")
        .with_mime_type(JSON);
    let pages = ResourceTemplate::new(format!("{MANUAL_PREFIX}{{topic}}"), "manual")
        .with_description("A page of the manual")
        .with_mime_type(MARKDOWN);
    ListResourceTemplatesResult::with_all_items(vec![nodes, pages])
}

/// Returns the document with this URI. Returns an error if the URI is unknown.
pub(super) fn read(host: &Host, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let (text, kind) = if let Some(name) = uri.strip_prefix(NODES_PREFIX) {
        (node_type(host, name).map(|node| node.to_string()), JSON)
    } else if let Some(topic) = uri.strip_prefix(MANUAL_PREFIX) {
        (page(topic), MARKDOWN)
    } else {
        match uri {
            LANGUAGE_URI => (page("language"), MARKDOWN),
            SCHEMA_URI => (Some(flowcell_platform::schema().to_string()), JSON),
            _ => (None, JSON),
        }
    };
    let unknown = || {
        ErrorData::resource_not_found(
            format!("the server has no resource `{uri}`; `resources/list` lists the resources"),
            None,
        )
    };
    let contents = ResourceContents::text(text.ok_or_else(unknown)?, uri).with_mime_type(kind);
    Ok(ReadResourceResult::new(vec![contents]))
}

fn page(topic: &str) -> Option<String> {
    manual::page(topic).map(|page| page.text.to_owned())
}

/// Returns a node type with its examples and failures, or `None` if the name is unknown.
pub(super) fn node_type(host: &Host, name: &str) -> Option<Value> {
    match host.catalog().lookup(&TypeRef::parse(name)) {
        Lookup::Found(node) => Some(describe(&node)),
        _ => None,
    }
}

fn describe(node: &NodeType) -> Value {
    let mut object = shape::node_type(node);
    object["examples"] = json!(node.examples);
    object["errors"] = json!(node.errors);
    object
}
