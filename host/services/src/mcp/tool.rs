//! Tools as servers describe them, and their JSON form.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{CONTAINER, Failure, JSON_VALUES, Json};

use super::setting::readable;
use crate::{code, redaction::Redaction};

/// Maximum tools of one server.
pub const MAX_TOOLS: usize = 1_000;
/// Maximum characters of a tool's name.
pub const MAX_TOOL_NAME: usize = 128;
/// Maximum bytes of a title; a longer one is cut.
pub const MAX_TITLE: usize = 256;
/// Maximum bytes of a description; a longer one is cut.
pub const MAX_DESCRIPTION: usize = 16 * 1024;
/// Maximum bytes of a schema as JSON. Tools with a larger one are left out.
pub const MAX_SCHEMA: usize = 256 * 1024;

/// A tool of a server. The server wrote all members, so they are only as trustworthy as the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The name for calls: at most 128 letters, digits, `_`, `-`, `.`, `/` and `:`.
    pub name: Arc<str>,
    /// The name for people.
    pub title: Option<Arc<str>>,
    /// The tool's description for models.
    pub description: Option<Arc<str>>,
    /// The JSON Schema of its input, an object.
    pub input_schema: Json,
    /// The JSON Schema of its structured output.
    pub output_schema: Option<Json>,
    /// Hints about the tool's effects, such as `readOnlyHint`; an empty object by default.
    pub annotations: Json,
}

/// Adds the tools in `listed`, a page of a server's list, to `tools`. Leaves out tools with an invalid or repeated
/// name, or with a schema that is too large. More than [`MAX_TOOLS`] tools are an error.
pub(super) async fn extend(
    tools: &mut Vec<Tool>,
    listed: Vec<rmcp::model::Tool>,
    redaction: &Redaction,
) -> Result<(), Failure> {
    if tools.len() + listed.len() > MAX_TOOLS {
        return Err(Failure::new(code::MCP_TOO_LARGE, format!("the server has more than {MAX_TOOLS} tools")));
    }
    let mut schemas = tools.iter().map(Tool::schema_values).sum::<usize>();
    let mut names: HashSet<Arc<str>> = tools.iter().map(|tool| tool.name.clone()).collect();
    for listed in listed {
        let name = readable(redaction, &listed.name).await;
        match Tool::read(listed, redaction).await {
            Ok(tool) if names.insert(tool.name.clone()) => {
                schemas += tool.schema_values();
                if schemas > JSON_VALUES {
                    let message = format!("the schemas of the server's tools have more than {JSON_VALUES} values");
                    return Err(Failure::new(code::MCP_TOO_LARGE, message));
                }
                tools.push(tool);
            }
            Ok(_) => tracing::warn!(tool = %name, "a tool is omitted: another has the same name"),
            Err(why) => tracing::warn!(tool = %name, "a tool is omitted: {why}"),
        }
    }
    Ok(())
}

/// Returns true if the name is valid for a tool.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b':');
    (1..=MAX_TOOL_NAME).contains(&name.len()) && name.bytes().all(plain)
}

impl Tool {
    /// Returns `{ name, title?, description?, inputSchema, outputSchema?, annotations }`, always in this order. An
    /// approval of a tool is tied to this text: if the text changes, the approval no longer counts.
    pub fn to_json(&self) -> Json {
        let mut members = vec![("name", Json::from(self.name.clone()))];
        members.extend(self.title.clone().map(|title| ("title", Json::from(title))));
        members.extend(self.description.clone().map(|description| ("description", Json::from(description))));
        members.push(("inputSchema", self.input_schema.clone()));
        members.extend(self.output_schema.clone().map(|schema| ("outputSchema", schema)));
        members.push(("annotations", self.annotations.clone()));
        Json::object(members)
    }

    /// Returns the number of JSON values in the tool's schemas.
    fn schema_values(&self) -> usize {
        [Some(&self.input_schema), self.output_schema.as_ref()].into_iter().flatten().map(values).sum()
    }

    async fn read(listed: rmcp::model::Tool, redaction: &Redaction) -> Result<Tool, &'static str> {
        if !is_name(&redaction.text(&listed.name).await) {
            return Err("its name is not allowed");
        }
        let annotations = listed.annotations.and_then(|annotations| serde_json::to_value(annotations).ok());
        let annotations = annotations.map_or_else(|| Json::object::<&str>([]), Json::from);
        let output_schema = match listed.output_schema {
            Some(output) => Some(schema(&output, redaction).await?),
            None => None,
        };
        let tool = Tool {
            name: (*listed.name).into(),
            title: text(listed.title.as_deref(), MAX_TITLE, redaction).await,
            description: text(listed.description.as_deref(), MAX_DESCRIPTION, redaction).await,
            input_schema: schema(&listed.input_schema, redaction).await?,
            output_schema,
            annotations: redaction.json(annotations).await,
        };
        match redaction.has_withheld() {
            true => Err("it takes too long to search it for secrets"),
            false => Ok(tool),
        }
    }
}

async fn text(text: Option<&str>, limit: usize, redaction: &Redaction) -> Option<Arc<str>> {
    Some(cut(&redaction.text(text?).await, limit).into())
}

async fn schema(
    members: &serde_json::Map<String, serde_json::Value>,
    redaction: &Redaction,
) -> Result<Json, &'static str> {
    let json = redaction.json(Json::from(serde_json::Value::Object(members.clone()))).await;
    match json.to_text().len() > MAX_SCHEMA {
        true => Err("its schema is too large"),
        false => Ok(json),
    }
}

/// Returns the number of JSON values that a value consists of, the value itself included. A list or an object
/// counts as [`CONTAINER`] values more. The limit [`JSON_VALUES`] counts in the same way.
fn values(json: &Json) -> usize {
    let inner: usize = match json {
        Json::Array(items) => CONTAINER + items.iter().map(values).sum::<usize>(),
        Json::Object(members) => CONTAINER + members.values().map(values).sum::<usize>(),
        _ => 0,
    };
    1 + inner
}

/// Cuts a text to at most `limit` bytes, with `…` at its end. A shorter text stays unchanged.
pub(super) fn cut(text: &str, limit: usize) -> String {
    match text.len() > limit {
        true => format!("{}…", &text[..text.floor_char_boundary(limit.saturating_sub('…'.len_utf8()))]),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, is_name};

    #[test]
    fn tool_names_have_only_permitted_characters() {
        let long = "a".repeat(129);
        let table = [
            ("read_file", true),
            ("a/b.c-d:e", true),
            (&long[1..], true),
            (&long, false),
            ("", false),
            ("a b", false),
            ("ä", false),
            ("a\u{202e}b", false),
            ("a\0", false),
        ];
        for (name, expected) in table {
            assert_eq!(is_name(name), expected, "{name:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let table = [("abc", 3, "abc"), ("abcd", 3, "…"), ("abcdef", 5, "ab…"), ("üüüü", 6, "ü…")];
        for (text, limit, expected) in table {
            assert_eq!(cut(text, limit), expected, "{text} {limit}");
        }
    }
}
