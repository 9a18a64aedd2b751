//! What a model answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::block::{Block, ToolUse};
use crate::failure::Result;

/// A model's reply.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The provider's id of it.
    #[serde(default)]
    pub id: String,
    /// The profile that answered.
    #[serde(default)]
    pub provider: String,
    /// The model that answered.
    #[serde(default)]
    pub model: String,
    /// What it says.
    pub content: Vec<Block>,
    /// Why it ended.
    pub stop: Stop,
    /// The provider's word for that.
    #[serde(default)]
    pub raw_stop: Option<String>,
    /// What it took.
    #[serde(default)]
    pub usage: Usage,
    /// By which the provider finds it again.
    #[serde(default)]
    pub request_id: Option<String>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Nothing more to say.
    End,
    /// Tools are to be called.
    ToolCalls,
    /// The reply was as long as it may be.
    MaxTokens,
    /// One of the texts at which it stops.
    StopSequence,
    /// The model does not want to.
    Refusal,
    /// The provider does not want it to.
    ContentFilter,
    /// The conversation is longer than the model can read.
    ContextExceeded,
    /// Not done yet: the same conversation with this reply goes on.
    Paused,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// What turns took, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written to the provider's cache.
    pub cache_write: u64,
    /// Thought.
    pub reasoning: u64,
    /// Whether the provider did not say all of it.
    pub estimated: bool,
    /// US dollars, as far as a price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Where the price is from: `list`, `managed` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_basis: Option<String>,
}

impl Reply {
    /// Reads what [`next_event`](crate::queue::next_event) hands over when a turn has ended well.
    pub fn read(value: Value) -> Result<Reply> {
        Ok(serde_json::from_value(value)?)
    }

    /// All of its text.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Block::as_text).collect()
    }

    /// The tools that it wants to be called, in its order.
    pub fn tool_uses(&self) -> impl Iterator<Item = ToolUse<'_>> {
        self.content.iter().filter_map(Block::as_tool_use)
    }
}

impl Usage {
    /// Tokens that were read and written.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Adds what another turn took. The basis of the cost is `unknown` as soon as one of them is.
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
