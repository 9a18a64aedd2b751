//! The reply of a turn, in the form that all providers share.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::Json;

use super::request::{Block, Request};
use crate::redaction::Redaction;

/// The name given to a tool call without a name. No tool has this name, so the call fails because its tool is unknown.
const NAMELESS: &str = "unnamed_tool";
/// Number of letters and digits that a generated id takes from the key of the call.
const KEY_LETTERS: usize = 12;

/// The reason that a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    End,
    ToolCalls,
    MaxTokens,
    Sequence,
    Refusal,
    ContentFilter,
    ContextExceeded,
    Paused,
}

/// The complete reply of a turn, in the form that all providers share.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) id: Arc<str>,
    /// The model's name as the provider reports it; `None` if it reported none.
    pub(super) model: Option<Arc<str>>,
    pub(super) content: Vec<Json>,
    pub(super) stop: Stop,
    pub(super) raw_stop: Option<Arc<str>>,
}

/// Builds the blocks of a reply.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    provider: Arc<str>,
    prefix: String,
    used: HashSet<Arc<str>>,
}

impl Outcome {
    /// Returns the same reply with secrets redacted.
    pub(super) async fn redacted(self, redaction: &Redaction) -> Outcome {
        if redaction.is_empty() {
            return self;
        }
        let mut content = Vec::with_capacity(self.content.len());
        for block in self.content {
            content.push(redaction.json(block).await);
        }
        Outcome {
            id: redaction.text(&self.id).await.into(),
            model: redacted_text(self.model, redaction).await,
            content,
            raw_stop: redacted_text(self.raw_stop, redaction).await,
            stop: self.stop,
        }
    }
}

async fn redacted_text(text: Option<Arc<str>>, redaction: &Redaction) -> Option<Arc<str>> {
    match text {
        Some(text) => Some(redaction.text(&text).await.into()),
        None => None,
    }
}

impl Stop {
    pub(super) const ALL: [Stop; 8] = [
        Stop::End,
        Stop::ToolCalls,
        Stop::MaxTokens,
        Stop::Sequence,
        Stop::Refusal,
        Stop::ContentFilter,
        Stop::ContextExceeded,
        Stop::Paused,
    ];

    pub(super) fn from_name(name: &str) -> Option<Stop> {
        Stop::ALL.into_iter().find(|stop| stop.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Stop::End => "end",
            Stop::ToolCalls => "tool_calls",
            Stop::MaxTokens => "max_tokens",
            Stop::Sequence => "stop_sequence",
            Stop::Refusal => "refusal",
            Stop::ContentFilter => "content_filter",
            Stop::ContextExceeded => "context_exceeded",
            Stop::Paused => "paused",
        }
    }
}

impl Blocks {
    /// Creates the builder. New tool calls do not reuse the ids of the conversation. Generated ids derive from the key
    /// of the call, so that they are the same in every attempt.
    pub(super) fn new(provider: Arc<str>, request: &Request, key: &str) -> Blocks {
        let ids = request.blocks().filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.clone()),
            _ => None,
        });
        let letters = key.chars().filter(char::is_ascii_alphanumeric).take(KEY_LETTERS);
        Blocks { provider, prefix: format!("call_{}", letters.collect::<String>()), used: ids.collect() }
    }

    /// Builds a text block. `raw` is the provider's own form of the block, if it contains more than the text.
    pub(super) fn text(&self, text: &str, raw: Option<Json>) -> Json {
        self.with_raw(vec![("type", Json::from("text")), ("text", Json::from(text))], raw)
    }

    /// Builds a tool call. A missing id or name is generated, and a repeated id replaced. In these cases `raw` is
    /// dropped, because it contains the original id and name.
    pub(super) fn tool_use(&mut self, id: &str, name: &str, input: Json, raw: Option<Json>) -> Json {
        let known = !id.is_empty() && self.used.insert(id.into());
        let id: Arc<str> = if known { id.into() } else { self.new_id() };
        let known = known && !name.is_empty();
        let name = if name.is_empty() { NAMELESS } else { name };
        let members = vec![
            ("type", Json::from("tool_use")),
            ("id", Json::from(id)),
            ("name", Json::from(name)),
            ("input", input),
        ];
        self.with_raw(members, raw.filter(|_| known))
    }

    /// Builds a block that only the provider understands.
    pub(super) fn raw(&self, value: Json) -> Json {
        let provider = Json::from(self.provider.clone());
        Json::object([("type", Json::from("raw")), ("provider", provider), ("value", value)])
    }

    fn new_id(&mut self) -> Arc<str> {
        let mut number = self.used.len();
        loop {
            let id: Arc<str> = format!("{}_{number}", self.prefix).into();
            if self.used.insert(id.clone()) {
                return id;
            }
            number += 1;
        }
    }

    fn with_raw(&self, mut members: Vec<(&'static str, Json)>, raw: Option<Json>) -> Json {
        if let Some(value) = raw {
            let provider = Json::from(self.provider.clone());
            members.push(("raw", Json::object([("provider", provider), ("value", value)])));
        }
        Json::object(members)
    }
}

/// Parses the tool input that a model wrote. Text that is not JSON stays a string, which no tool's schema allows. The
/// caller of the tool then reports the error to the model.
pub(super) fn tool_input(text: &str) -> Json {
    match text.trim() {
        "" => Json::object::<&str>([]),
        trimmed => Json::parse(trimmed).unwrap_or_else(|_| Json::from(text)),
    }
}

/// Returns a tool's input as an object, as providers expect it back. Any other value becomes the member `unreadable`
/// of an object.
pub(super) fn tool_object(input: &Json) -> Json {
    match input {
        Json::Object(_) => input.clone(),
        other => Json::object([("unreadable", other.clone())]),
    }
}
