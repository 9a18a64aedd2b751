//! Messages and their blocks.

use std::sync::Arc;

use flowcell_contract::{Failure, Json};

use super::super::object_reader::{ObjectReader, suggest_known, wrong};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Role {
    User,
    Assistant,
}

/// A message of a conversation.
#[derive(Clone, Debug)]
pub(in crate::model) struct Message {
    pub(in crate::model) role: Role,
    pub(in crate::model) content: Vec<Block>,
}

/// A part of a message.
#[derive(Clone, Debug)]
pub(in crate::model) enum Block {
    /// Text that is not empty.
    Text { text: Arc<str>, raw: Option<Raw> },
    /// A tool call of the model.
    ToolUse { id: Arc<str>, name: Arc<str>, input: Json, raw: Option<Raw> },
    /// The result of a tool call: texts, images and raw blocks.
    ToolResult { tool_use_id: Arc<str>, content: Vec<Block>, is_error: bool },
    /// An image for the model.
    Image(Image),
    /// A block that only one provider understands.
    Raw(Raw),
}

/// A value in the form of one provider, with the name of that provider.
#[derive(Clone, Debug)]
pub(in crate::model) struct Raw {
    provider: Arc<str>,
    value: Json,
}

/// An image and its media type.
#[derive(Clone, Debug)]
pub(in crate::model) struct Image {
    pub(in crate::model) mime: Arc<str>,
    pub(in crate::model) source: Source,
}

/// The source of an image.
#[derive(Clone, Debug)]
pub(in crate::model) enum Source {
    /// A file of the tenant, by its id.
    File(Arc<str>),
    /// A URL that the provider loads the image from.
    Url(Arc<str>),
}

const TYPES: [&str; 5] = ["text", "tool_use", "tool_result", "image", "raw"];

impl Raw {
    /// Returns the value if this provider wrote it. Other providers do not understand it.
    pub(in crate::model) fn for_provider(&self, name: &str) -> Option<&Json> {
        (&*self.provider == name).then_some(&self.value)
    }
}

impl Message {
    pub(super) fn read(item: &Json, place: &str) -> Result<Message, Failure> {
        let reader = ObjectReader::new(item, place, &["role", "content"])?;
        let role = match &*reader.required_text("role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => return Err(wrong(format!("`role` of {place} must be \"user\" or \"assistant\""))),
        };
        let content = blocks(&reader, place)?;
        match content.iter().find(|block| !block.is_allowed_in(role)) {
            Some(block) => {
                Err(wrong(format!("{place}: this role cannot have a block of type `{}`", block.type_name())))
            }
            None => Ok(Message { role, content }),
        }
    }

    /// Returns the message's text blocks, joined by newlines.
    pub(in crate::model) fn text(&self) -> String {
        self.content.iter().filter_map(Block::text).collect::<Vec<_>>().join("\n")
    }
}

/// Reads the member `content`: a text or a list of blocks. Empty texts are left out because providers refuse them.
fn blocks(reader: &ObjectReader<'_>, place: &str) -> Result<Vec<Block>, Failure> {
    let blocks = match reader.get("content") {
        Some(Json::String(text)) => vec![Block::Text { text: text.clone(), raw: None }],
        Some(Json::Array(items)) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| Block::read(item, &format!("{place}.content[{index}]")))
                .collect::<Result<_, _>>()?
        }
        _ => return Err(reader.wrong_member("content", "a text or a list of blocks")),
    };
    Ok(blocks.into_iter().filter(|block| block.text().is_none_or(|text| !text.is_empty())).collect())
}

impl Block {
    fn read(item: &Json, place: &str) -> Result<Block, Failure> {
        let kind = item.get("type").and_then(Json::as_str).unwrap_or_default();
        match kind {
            "text" => {
                let reader = ObjectReader::new(item, place, &["type", "text", "raw"])?;
                let text = reader.text("text")?.ok_or_else(|| reader.wrong_member("text", "a text"))?;
                Ok(Block::Text { text, raw: raw_member(&reader, place)? })
            }
            "tool_use" => {
                let reader = ObjectReader::new(item, place, &["type", "id", "name", "input", "raw"])?;
                Ok(Block::ToolUse {
                    id: reader.required_text("id")?,
                    name: reader.required_text("name")?,
                    input: reader.get("input").cloned().unwrap_or_else(|| Json::object::<&str>([])),
                    raw: raw_member(&reader, place)?,
                })
            }
            "tool_result" => tool_result(item, place),
            "image" => image(item, place).map(Block::Image),
            "raw" => {
                let reader = ObjectReader::new(item, place, &["type", "provider", "value"])?;
                raw(&reader).map(Block::Raw)
            }
            other => Err(wrong(format!("{place} has the unknown type `{other}`; {}", suggest_known(other, &TYPES)))),
        }
    }

    pub(in crate::model) fn text(&self) -> Option<&str> {
        match self {
            Block::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    fn is_allowed_in(&self, role: Role) -> bool {
        match self {
            Block::Text { .. } | Block::Raw(_) => true,
            Block::ToolUse { .. } => role == Role::Assistant,
            Block::ToolResult { .. } | Block::Image(_) => role == Role::User,
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Block::Text { .. } => "text",
            Block::ToolUse { .. } => "tool_use",
            Block::ToolResult { .. } => "tool_result",
            Block::Image(_) => "image",
            Block::Raw(_) => "raw",
        }
    }
}

fn tool_result(item: &Json, place: &str) -> Result<Block, Failure> {
    let reader = ObjectReader::new(item, place, &["type", "toolUseId", "content", "isError"])?;
    let content = blocks(&reader, place)?;
    let is_plain = |block: &Block| matches!(block, Block::Text { .. } | Block::Image(_) | Block::Raw(_));
    match content.iter().find(|block| !is_plain(block)) {
        Some(block) => {
            Err(wrong(format!("{place}: a block of type `{}` is not a result of a tool", block.type_name())))
        }
        None => Ok(Block::ToolResult {
            tool_use_id: reader.required_text("toolUseId")?,
            content,
            is_error: reader.boolean("isError")?,
        }),
    }
}

fn image(item: &Json, place: &str) -> Result<Image, Failure> {
    let reader = ObjectReader::new(item, place, &["type", "mime", "fileId", "url"])?;
    let source = match (reader.text("fileId")?, reader.text("url")?) {
        (Some(file), None) => Source::File(file),
        (None, Some(url)) if url.starts_with("https://") || url.starts_with("http://") => Source::Url(url),
        (None, Some(_)) => return Err(reader.wrong_member("url", "an address that begins with `https://`")),
        _ => return Err(wrong(format!("{place} must have either a `fileId` or a `url`"))),
    };
    match reader.required_text("mime")? {
        mime if mime.starts_with("image/") => Ok(Image { mime, source }),
        _ => Err(reader.wrong_member("mime", "a media type such as `image/png`")),
    }
}

fn raw_member(reader: &ObjectReader<'_>, place: &str) -> Result<Option<Raw>, Failure> {
    let read = |json| raw(&ObjectReader::new(json, &format!("{place}.raw"), &["provider", "value"])?);
    reader.get("raw").map(read).transpose()
}

fn raw(reader: &ObjectReader<'_>) -> Result<Raw, Failure> {
    let value = reader.get("value").ok_or_else(|| reader.wrong_member("value", "the value that the provider wrote"))?;
    Ok(Raw { provider: reader.required_text("provider")?, value: value.clone() })
}
