//! Turns of language models. The flow grants which: `grants: { model: ["anthropic/*"] }`.
//!
//! A turn is recorded before it leaves, and one whose reply is recorded is not paid for again when the attempt has to be
//! repeated. Requests and replies are the same for every provider.
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

/// What a model is asked. What is none or empty is left out, and the profile or the provider decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The name of one of the operator's profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What stands above the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// At least one; the last is the user's.
    pub messages: Vec<Message>,
    /// What the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Offer>,
    /// Whether it has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// JSON Schema that the text is to match, as far as the provider can make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How it writes.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Members handed to the provider as they are, if its profile allows them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The agent run whose turn this is: partial text is told to its subscribers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_run_id: Option<String>,
}

/// How a model writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sampling {
    /// The most tokens of a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// From 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts at which it stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// For providers that can repeat themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How much it thinks: `low`, `medium`, `high` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

/// A tool, as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its input.
    pub input_schema: Value,
}

/// Whether a model has to call a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// As it sees fit.
    Auto,
    /// One of them.
    Any,
    /// None of them.
    None,
    /// This one.
    #[serde(untagged)]
    Tool {
        /// Its name.
        tool: String,
    },
}

impl Request {
    /// A request with these messages and nothing else.
    pub fn new(messages: impl Into<Vec<Message>>) -> Request {
        Request { messages: messages.into(), ..Request::default() }
    }
}

/// Makes a turn and waits for the whole reply.
pub fn generate(request: &Request) -> Result<Reply> {
    super::made("model.generate", || json!(request), || super::answered(model::generate(&super::text(request)?)))
}

/// Makes a turn and goes on. [`next_event`](crate::queue::next_event) hands the [`Reply`] over.
pub fn start_generate(request: &Request) -> Result<CallId> {
    let start = || model::start_generate(&super::text(request)?).map_err(Failure::of_call);
    super::made("model.start-generate", || json!(request), start).map(CallId)
}
