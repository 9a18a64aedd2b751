//! Calls language models. A turn is one request to a model and its reply. The flow grants models:
//! `grants: { model: ["anthropic/*"] }`.
//!
//! The host records a turn before it sends the request. If the attempt is repeated, a turn whose reply was recorded is
//! not paid for again. Requests and replies have the same form for every provider.
//!
//! ```
//! use flowcell_sdk::model::{Message, Request};
//!
//! let request = Request { system: Some("Be short.".into()), ..Request::new([Message::user("Say hello")]) };
//! // model::generate(&request)?.text()
//! # assert_eq!(request.messages.len(), 1);
//! ```

mod block;
mod reply;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::{
    block::{Block, Content, Message, Role, ToolUse},
    reply::{Reply, Stop, Usage},
};
use super::queue::CallId;
use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::model,
};

/// A request to a model. A member that is none or empty is not sent: then the default of the profile or of the provider
/// applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The name of a profile of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model's name, as the provider spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// At least one message. The last message must have the role `user`.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Offer>,
    /// The rule for tool calls: the model may, must or must not call a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// JSON Schema that the text of the reply must fit, enforced as far as the provider supports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Sampling settings.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Members passed to the provider unchanged, if its profile allows them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The agent run of this turn. Subscribers of the agent run receive the text while the model writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_run_id: Option<String>,
}

/// Sampling settings of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sampling {
    /// Maximum number of tokens in the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The randomness of the reply, at least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of probability from which tokens are chosen (nucleus sampling), from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts at which the reply ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed for providers with reproducible replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Effort of reasoning: `low`, `medium`, `high` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

/// A tool that a request offers to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The name by which the model calls the tool: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// Description for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the tool's input.
    pub input_schema: Value,
}

/// The rule for tool calls: the model may, must or must not call a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must call a tool.
    Any,
    /// The model must not call a tool.
    None,
    /// The model must call this tool.
    #[serde(untagged)]
    Tool {
        /// The tool's name.
        tool: String,
    },
}

impl Request {
    /// Creates a request with these messages and no settings.
    pub fn new(messages: impl Into<Vec<Message>>) -> Request {
        Request { messages: messages.into(), ..Request::default() }
    }
}

/// Sends a request and blocks until the whole reply has arrived.
pub fn generate(request: &Request) -> Result<Reply> {
    super::call("model.generate", || json!(request), || super::parse_answer(model::generate(&super::text(request)?)))
}

/// Sends a request without waiting for the reply. When the turn ends, [`next_event`](crate::queue::next_event) returns
/// the reply as a value, which [`Reply::read`] parses.
pub fn start_generate(request: &Request) -> Result<CallId> {
    let start = || model::start_generate(&super::text(request)?).map_err(Failure::from_call);
    super::call("model.start-generate", || json!(request), start).map(CallId)
}
