//! Replies of models.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::block::{Block, ToolUse};
use crate::failure::Result;

/// A model's reply.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The provider's id of the reply.
    #[serde(default)]
    pub id: String,
    /// The profile of the provider that answered.
    #[serde(default)]
    pub provider: String,
    /// The model that answered.
    #[serde(default)]
    pub model: String,
    /// The content.
    pub content: Vec<Block>,
    /// The reason why the reply ended.
    pub stop: Stop,
    /// The provider's own word for the reason.
    #[serde(default)]
    pub raw_stop: Option<String>,
    /// Tokens and cost.
    #[serde(default)]
    pub usage: Usage,
    /// The provider's id of the request, for its support.
    #[serde(default)]
    pub request_id: Option<String>,
}

/// The reason why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model finished.
    End,
    /// The model wants to call tools.
    ToolCalls,
    /// The reply reached the maximum length.
    MaxTokens,
    /// The reply reached one of the stop texts.
    StopSequence,
    /// The model refuses to answer.
    Refusal,
    /// The provider blocks the reply.
    ContentFilter,
    /// The conversation is longer than the model can read.
    ContextExceeded,
    /// The reply is incomplete. To continue it, send the same conversation with this reply at its end.
    Paused,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// Use of models, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write: u64,
    /// Reasoning tokens.
    pub reasoning: u64,
    /// True if the provider did not report all of the usage.
    pub estimated: bool,
    /// US dollars, if a price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The source of the price: `list`, `managed` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_basis: Option<String>,
}

impl Reply {
    /// Parses the value that [`next_event`](crate::queue::next_event) returns when a turn ends successfully.
    pub fn read(value: Value) -> Result<Reply> {
        Ok(serde_json::from_value(value)?)
    }

    /// The text of all text blocks, concatenated.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Block::as_text).collect()
    }

    /// The tool uses, in the model's order.
    pub fn tool_uses(&self) -> impl Iterator<Item = ToolUse<'_>> {
        self.content.iter().filter_map(Block::as_tool_use)
    }
}

impl Usage {
    /// Returns the sum of the input tokens and the output tokens.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Adds the tokens and the cost of another turn. If `cost_basis` is `unknown`, it stays `unknown`. Otherwise it
    /// becomes the `cost_basis` of the other turn, if that turn has one.
    pub fn add(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.estimated |= other.estimated;
        if let Some(cost) = other.cost_usd {
            self.cost_usd = Some(self.cost_usd.unwrap_or_default() + cost);
        }
        if self.cost_basis.as_deref() != Some("unknown") && other.cost_basis.is_some() {
            self.cost_basis.clone_from(&other.cost_basis);
        }
    }
}
