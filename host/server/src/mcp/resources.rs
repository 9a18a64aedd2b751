//! The language, its schema and the catalog as documents.

use flowcell_contract::{Lookup, NodeType, TypeRef};
use rmcp::{
    ErrorData,
    model::{
        ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
        ResourceTemplate,
    },
};
use serde_json::{Value, json};

use flowcell_platform::{Host, shape};

/// The flow language, explained.
const LANGUAGE: &str = "flowcell://language";
/// The JSON Schema of flows.
const SCHEMA: &str = "flowcell://schema/graph";
/// A node type.
const NODES: &str = "flowcell://nodes/";
/// What the language is explained by.
const README: &str = include_str!("../../../../README.md");
/// The part of it that is about the language.
const CHAPTER: &str = "## A flow, explained\n";

const MARKDOWN: &str = "text/markdown";
const JSON: &str = "application/json";

/// All documents.
pub(super) fn list(host: &Host) -> ListResourcesResult {
    let document = |uri: &str, name: &str, description: &str, kind: &str| {
        Resource::new(uri, name).with_description(description).with_mime_type(kind)
    };
    let mut all = vec![
        document(LANGUAGE, "language", "How flows are written, with an example", MARKDOWN),
        document(SCHEMA, "schema", "The JSON Schema of flow files", JSON),
    ];
    all.extend(host.catalog().types().map(|node| {
        let uri = format!("{NODES}{}", node.name);
        document(&uri, &node.name, &node.title, JSON).with_title(node.title.clone())
    }));
    ListResourcesResult::with_all_items(all)
}

/// How documents are named.
pub(super) fn templates() -> ListResourceTemplatesResult {
    let nodes = ResourceTemplate::new(format!("{NODES}{{type}}"), "node type")
        .with_description("A node type: what it does, its schemas, examples and failures")
        .with_mime_type(JSON);
    ListResourceTemplatesResult::with_all_items(vec![nodes])
}

/// One document.
pub(super) fn read(host: &Host, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let (text, kind) = match uri.strip_prefix(NODES) {
        Some(name) => (node_type(host, name).map(|node| node.to_string()), JSON),
        None if uri == LANGUAGE => (Some(language().to_owned()), MARKDOWN),
        None if uri == SCHEMA => (Some(flowcell_platform::schema().to_string()), JSON),
        None => (None, JSON),
    };
    let unknown = || ErrorData::resource_not_found(format!("there is no resource `{uri}`"), None);
    let contents = ResourceContents::text(text.ok_or_else(unknown)?, uri).with_mime_type(kind);
    Ok(ReadResourceResult::new(vec![contents]))
}

/// A node type with its examples and failures, by its name.
pub(super) fn node_type(host: &Host, name: &str) -> Option<Value> {
    match host.catalog().lookup(&TypeRef::parse(name)) {
        Lookup::Found(node) => Some(documented(&node)),
        _ => None,
    }
}

fn documented(node: &NodeType) -> Value {
    let mut object = shape::node_type(node);
    object["examples"] = json!(node.examples);
    object["errors"] = json!(node.errors);
    object
}

/// The chapter of the manual that explains the language.
fn language() -> &'static str {
    let from = README.find(CHAPTER).unwrap_or_default();
    let chapter = &README[from..];
    match chapter[CHAPTER.len().min(chapter.len())..].find("\n## ") {
        Some(end) => &chapter[..CHAPTER.len() + end + 1],
        None => chapter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_a_chapter_about_the_language() {
        let language = language();
        assert!(language.starts_with(CHAPTER) && language.contains("```yaml\nflow:"), "{language}");
        assert_eq!(language.matches("\n## ").count(), 0, "one chapter alone");
    }
}
