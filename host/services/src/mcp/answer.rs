//! Converts the result of a tool to the output of the call.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{BINARY, Failure, Json, Tenant, Value};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use super::tool::{MAX_DESCRIPTION, cut};
use crate::{code, files::AsyncBlobs, redaction::Redaction};

/// The longest media type of a stored file, in bytes.
const MAX_MIME: usize = 255;

/// Converts results of tools. It has the store for files, and the redaction of secrets.
pub(super) struct ResultReader<'a> {
    pub(super) files: &'a AsyncBlobs,
    pub(super) tenant: &'a Tenant,
    pub(super) redaction: &'a Redaction,
}

impl ResultReader<'_> {
    /// Returns the structured output if the result has one, the text if it has only text, or else the list of blocks.
    /// Secrets in the output are redacted.
    pub(super) async fn output(&self, result: CallToolResult) -> Result<Json, Failure> {
        let text = text(&result.content);
        if result.is_error == Some(true) {
            let said = text.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "it gives no reason".to_owned());
            let message = cut(&self.redaction.text(&said).await, MAX_DESCRIPTION);
            return Err(Failure::new(code::TOOL_FAILED, message));
        }
        let output = match result.structured_content {
            Some(structured) => Json::from(structured),
            None if result.content.iter().all(|block| matches!(block, ContentBlock::Text(_))) => {
                Json::from(text.unwrap_or_default())
            }
            None => {
                let mut blocks = Vec::with_capacity(result.content.len());
                for block in result.content {
                    blocks.push(self.block(block).await?);
                }
                Json::array(blocks)
            }
        };
        Ok(self.redaction.json(output).await)
    }

    async fn block(&self, block: ContentBlock) -> Result<Json, Failure> {
        Ok(match block {
            ContentBlock::Text(block) => Json::object([("type", Json::from("text")), ("text", Json::from(block.text))]),
            ContentBlock::Image(block) => Json::object([
                ("type", Json::from("image")),
                ("file", self.file(&block.data, Some(block.mime_type)).await?),
            ]),
            ContentBlock::Audio(block) => Json::object([
                ("type", Json::from("audio")),
                ("file", self.file(&block.data, Some(block.mime_type)).await?),
            ]),
            ContentBlock::Resource(block) => self.resource(block.resource).await?,
            // The host does not follow links.
            other => Json::from(serde_json::to_value(other).unwrap_or_default()),
        })
    }

    async fn resource(&self, contents: ResourceContents) -> Result<Json, Failure> {
        let (uri, mime, member) = match contents {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                (uri, mime_type, ("text", Json::from(text)))
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let file = self.file(&blob, mime_type.clone()).await?;
                (uri, mime_type, ("file", file))
            }
            _ => return Err(Failure::new(code::MCP_PROTOCOL, "the answer has a resource of an unknown kind")),
        };
        let mut members = vec![("type", Json::from("resource")), ("uri", Json::from(uri))];
        members.extend(mime.map(|mime| ("mimeType", Json::from(usual(mime)))));
        members.push(member);
        Ok(Json::object(members))
    }

    /// Stores a file. Secrets in its bytes and its media type are redacted.
    async fn file(&self, base64: &str, mime: Option<String>) -> Result<Json, Failure> {
        let undecodable = |_| Failure::new(code::MCP_PROTOCOL, "the answer has a file that is not base64");
        let bytes = self.redaction.bytes(STANDARD.decode(base64).map_err(undecodable)?).await;
        let mime = match mime {
            Some(mime) => usual(self.redaction.text(&mime).await),
            None => BINARY.to_owned(),
        };
        let blob = self.files.put(self.tenant, bytes, mime).await?;
        Ok(Value::from(blob).json().clone())
    }
}

/// Returns the media type if it is printable and has at most [`MAX_MIME`] bytes, else [`BINARY`].
fn usual(mime: String) -> String {
    let shown = (1..=MAX_MIME).contains(&mime.len()) && mime.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if shown { mime } else { BINARY.to_owned() }
}

/// Joins the text blocks, each on its own lines, and skips other blocks. Returns `None` if there is no text block.
fn text(content: &[ContentBlock]) -> Option<String> {
    let texts = content.iter().filter_map(|block| match block {
        ContentBlock::Text(block) => Some(block.text.as_str()),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}
