//! The conversation of an agent. Consecutive messages of the same role become one, because providers want the roles to
//! alternate.

use flowcell_sdk::{
    Failure, Result,
    model::{Block, Content, Message, Role},
};
use serde_json::Value;

/// The messages, oldest first.
#[derive(Default)]
pub(crate) struct Conversation(Vec<Message>);

impl Conversation {
    /// Starts with the messages of an earlier conversation.
    pub(crate) fn new(messages: Vec<Message>) -> Conversation {
        let mut conversation = Conversation::default();
        messages.into_iter().for_each(|message| conversation.push(message));
        conversation
    }

    /// Adds a message. Skips a message without content.
    pub(crate) fn push(&mut self, message: Message) {
        if message.content.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.role == message.role => {
                let before = std::mem::replace(&mut last.content, Content::Blocks(Vec::new()));
                let mut blocks = before.into_blocks();
                blocks.extend(message.content.into_blocks());
                last.content = Content::Blocks(blocks);
            }
            _ => self.0.push(message),
        }
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.0
    }
}

/// Reads a message of the input: `{ role, content }`, or `{ type, message: { role, content } }`.
pub(crate) fn read_message(value: &Value) -> Result<Message> {
    let inner = value.get("message").filter(|inner| inner.is_object()).unwrap_or(value);
    let role = match inner.get("role").and_then(Value::as_str) {
        Some("user") | None => Role::User,
        Some("assistant") => Role::Assistant,
        Some(other) => {
            return Err(Failure::invalid_input(format!(
                "a message's role must be `user` or `assistant`, not `{other}`"
            )));
        }
    };
    let content = read_content(inner).ok_or_else(|| {
        Failure::invalid_input("a message's `content` must be a text, or a list of objects with a `type`")
    })?;
    Ok(Message { role, content })
}

/// Converts a message from the inbox to content of a user message, even if it names another role. A value that does not
/// have the form of a message becomes text: itself if it is a text, otherwise its JSON.
pub(crate) fn from_inbox(value: &Value) -> Content {
    let inner = value.get("message").filter(|inner| inner.is_object()).unwrap_or(value);
    match value {
        Value::String(text) => text.as_str().into(),
        _ => read_content(inner).unwrap_or_else(|| value.to_string().into()),
    }
}

fn read_content(message: &Value) -> Option<Content> {
    match message.get("content")? {
        Value::String(text) => Some(text.as_str().into()),
        Value::Array(blocks) if blocks.iter().all(|block| block.get("type").is_some_and(Value::is_string)) => {
            Some(blocks.iter().cloned().map(Block).collect::<Vec<_>>().into())
        }
        _ => None,
    }
}

/// Checks that a model can answer the conversation: the role of the last message with content must be `user`.
pub(crate) fn check_last_message(messages: &[Message]) -> Result<()> {
    let last = messages.iter().rfind(|message| !message.content.is_empty());
    match last {
        Some(Message { role: Role::User, .. }) => Ok(()),
        Some(_) => Err(Failure::invalid_input("the last message must be the user's")),
        None => Err(Failure::invalid_input("the input is empty; give `input`, `prompt` or `messages`")),
    }
}
