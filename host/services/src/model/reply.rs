//! What came of a turn, the same for every provider.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::Json;

use super::request::{Block, Request};
use crate::redaction::Redaction;

/// The name of a tool that the model called without a name. No tool has it, and the model is told so.
const NAMELESS: &str = "unnamed_tool";
/// Letters of a call's key that ids are made of.
const KEY_LETTERS: usize = 12;

/// Why a model stopped.
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

/// A complete turn.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) id: Arc<str>,
    /// As the provider names it; none if it did not say.
    pub(super) model: Option<Arc<str>>,
    pub(super) content: Vec<Json>,
    pub(super) stop: Stop,
    pub(super) raw_stop: Option<Arc<str>>,
}

/// Makes the blocks of a reply.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    provider: Arc<str>,
    prefix: String,
    used: HashSet<Arc<str>>,
}

impl Outcome {
    /// The same turn without keys.
    pub(super) fn without(self, redaction: &Redaction) -> Outcome {
        if redaction.is_empty() {
            return self;
        }
        let text = |text: Arc<str>| Arc::from(redaction.text(&text));
        Outcome {
            id: text(self.id),
            model: self.model.map(text),
            content: self.content.into_iter().map(|block| redaction.json(block)).collect(),
            raw_stop: self.raw_stop.map(text),
            stop: self.stop,
        }
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

    pub(super) fn named(name: &str) -> Option<Stop> {
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
    /// The ids that the conversation has already are not given to other calls of tools. Ids that have to be made come from
    /// the key of the call, so that they are the same whenever it is made again.
    pub(super) fn new(provider: Arc<str>, request: &Request, key: &str) -> Blocks {
        let ids = request.blocks().filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.clone()),
            _ => None,
        });
        let letters = key.chars().filter(char::is_ascii_alphanumeric).take(KEY_LETTERS);
        Blocks { provider, prefix: format!("call_{}", letters.collect::<String>()), used: ids.collect() }
    }

    /// A text, with what the provider wrote if that says more.
    pub(super) fn text(&self, text: &str, raw: Option<Json>) -> Json {
        self.with_raw(vec![("type", Json::from("text")), ("text", Json::from(text))], raw)
    }

    /// A call of a tool. Missing ids and names are made, and repeated ids replaced; then `raw` is not kept, since it names the
    /// other.
    pub(super) fn tool_use(&mut self, id: &str, name: &str, input: Json, raw: Option<Json>) -> Json {
        let known = !id.is_empty() && self.used.insert(id.into());
        let id: Arc<str> = if known { id.into() } else { self.made() };
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

    /// What only the provider understands.
    pub(super) fn raw(&self, value: Json) -> Json {
        let provider = Json::from(self.provider.clone());
        Json::object([("type", Json::from("raw")), ("provider", provider), ("value", value)])
    }

    fn made(&mut self) -> Arc<str> {
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

/// The input of a tool, from the text that a model wrote. What is not JSON stays a text, which no tool's schema allows: the
/// model is told so by whoever calls the tool.
pub(super) fn tool_input(text: &str) -> Json {
    match text.trim() {
        "" => Json::object::<&str>([]),
        trimmed => Json::parse(trimmed).unwrap_or_else(|_| Json::from(text)),
    }
}

/// The same input as an object, as providers want it back.
pub(super) fn tool_object(input: &Json) -> Json {
    match input {
        Json::Object(_) => input.clone(),
        other => Json::object([("unreadable", other.clone())]),
    }
}
