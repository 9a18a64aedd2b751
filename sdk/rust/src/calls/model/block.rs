//! Messages and what they are made of.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Whose it is.
    pub role: Role,
    /// What it says.
    pub content: Content,
}

/// Whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person's, or the results of tools.
    User,
    /// The model's.
    Assistant,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Just text.
    Text(String),
    /// Text, tools, images.
    Blocks(Vec<Block>),
}

/// A part of a message, as JSON: a model is handed its own blocks back exactly as they came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Block(pub Value);

/// A model's wish to call a tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolUse<'a> {
    /// What the result is recognised by.
    pub id: &'a str,
    /// The tool's name.
    pub name: &'a str,
    /// Its input; an object, if the model did well.
    pub input: &'a Value,
}

impl Message {
    /// A person's message.
    pub fn user(content: impl Into<Content>) -> Message {
        Message { role: Role::User, content: content.into() }
    }

    /// A model's message.
    pub fn assistant(content: impl Into<Content>) -> Message {
        Message { role: Role::Assistant, content: content.into() }
    }
}

impl Content {
    /// Whether it says nothing. Providers refuse such messages.
    pub fn is_empty(&self) -> bool {
        match self {
            Content::Text(text) => text.is_empty(),
            Content::Blocks(blocks) => blocks.is_empty(),
        }
    }

    /// The same as blocks.
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
    /// Text.
    pub fn text(text: impl Into<String>) -> Block {
        Block(json!({ "type": "text", "text": text.into() }))
    }

    /// What a tool gave.
    pub fn tool_result(tool_use_id: &str, content: impl Into<String>) -> Block {
        Block(json!({ "type": "tool_result", "toolUseId": tool_use_id, "content": content.into() }))
    }

    /// Why a tool gave nothing.
    pub fn tool_error(tool_use_id: &str, content: impl Into<String>) -> Block {
        Block(json!({ "type": "tool_result", "toolUseId": tool_use_id, "content": content.into(), "isError": true }))
    }

    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        self.is("text").then(|| self.0.get("text")?.as_str()).flatten()
    }

    /// The wish, if it is one to call a tool.
    pub fn as_tool_use(&self) -> Option<ToolUse<'_>> {
        let text = |key| self.0.get(key).and_then(Value::as_str);
        let input = self.0.get("input").unwrap_or(&Value::Null);
        self.is("tool_use").then(|| Some(ToolUse { id: text("id")?, name: text("name")?, input })).flatten()
    }

    fn is(&self, kind: &str) -> bool {
        self.0.get("type").and_then(Value::as_str) == Some(kind)
    }
}
