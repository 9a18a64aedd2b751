//! Messages and their parts.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The content.
    pub content: Content,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person, or the results of tools.
    User,
    /// The model.
    Assistant,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Only text.
    Text(String),
    /// Text, tool uses, tool results and images.
    Blocks(Vec<Block>),
}

/// A part of a message, as JSON. A request that continues a conversation must contain the blocks of earlier replies
/// unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Block(pub Value);

/// A model's request to call a tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolUse<'a> {
    /// The id that the result must repeat.
    pub id: &'a str,
    /// The tool's name.
    pub name: &'a str,
    /// The tool's input. An object, unless the model made a mistake.
    pub input: &'a Value,
}

impl Message {
    /// Creates a message with the role `user`.
    pub fn user(content: impl Into<Content>) -> Message {
        Message { role: Role::User, content: content.into() }
    }

    /// Creates a message with the role `assistant`.
    pub fn assistant(content: impl Into<Content>) -> Message {
        Message { role: Role::Assistant, content: content.into() }
    }
}

impl Content {
    /// Returns true if the content is empty. Providers refuse empty messages.
    pub fn is_empty(&self) -> bool {
        match self {
            Content::Text(text) => text.is_empty(),
            Content::Blocks(blocks) => blocks.is_empty(),
        }
    }

    /// Converts the content into blocks.
    pub fn into_blocks(self) -> Vec<Block> {
        match self {
            Content::Text(text) => vec![Block::text(text)],
            Content::Blocks(blocks) => blocks,
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Text(text)
    }
}

impl From<Vec<Block>> for Content {
    fn from(blocks: Vec<Block>) -> Content {
        Content::Blocks(blocks)
    }
}

impl Block {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Block {
        Block(json!({ "type": "text", "text": text.into() }))
    }

    /// Creates a block with the result of a tool.
    pub fn tool_result(tool_use_id: &str, content: impl Into<String>) -> Block {
        Block(json!({ "type": "tool_result", "toolUseId": tool_use_id, "content": content.into() }))
    }

    /// Creates a block with the error of a tool.
    pub fn tool_error(tool_use_id: &str, content: impl Into<String>) -> Block {
        Block(json!({ "type": "tool_result", "toolUseId": tool_use_id, "content": content.into(), "isError": true }))
    }

    /// Returns the text of a text block; none for any other block.
    pub fn as_text(&self) -> Option<&str> {
        self.is("text").then(|| self.0.get("text")?.as_str()).flatten()
    }

    /// Returns the tool use; none if the block has another type, no `id` or no `name`.
    pub fn as_tool_use(&self) -> Option<ToolUse<'_>> {
        let text = |key| self.0.get(key).and_then(Value::as_str);
        let input = self.0.get("input").unwrap_or(&Value::Null);
        self.is("tool_use").then(|| Some(ToolUse { id: text("id")?, name: text("name")?, input })).flatten()
    }

    fn is(&self, kind: &str) -> bool {
        self.0.get("type").and_then(Value::as_str) == Some(kind)
    }
}
