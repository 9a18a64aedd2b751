//! Tools: node types, flows, and the tools of the operator's MCP servers. The flow grants patterns:
//! `grants: { tools: ["data.*", "flow:report", "mcp:files/*"] }`.
//!
//! If the member `permissions` of the task's config requires approval, the host first asks a person, and the call
//! waits for the answer.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::queue::CallId;
use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::tools,
};

/// A tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// The tool's name for models: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// The tool's name in Flowcell: `data.map`, `flow:report`, `mcp:files/read_file`.
    pub tool: String,
    /// A title of two or three words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for models and people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the tool's input.
    pub input_schema: Value,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The tool, as in [`Tool::tool`].
    pub tool: String,
    /// The input, an object.
    pub input: Value,
    /// The id of the model's tool use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The id of the agent run that makes the call. Subscribers of this agent run see the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_run_id: Option<String>,
}

/// The answer of a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Answer {
    /// The tool's output.
    #[serde(default)]
    pub output: Value,
}

impl Call {
    /// Creates a call that belongs to no tool use and no agent run.
    pub fn new(tool: impl Into<String>, input: Value) -> Call {
        Call { tool: tool.into(), input, tool_use_id: None, agent_run_id: None }
    }
}

impl Answer {
    /// Parses the value that [`next_event`](crate::queue::next_event) returns when a call ends successfully.
    pub fn read(value: Value) -> Result<Answer> {
        Ok(serde_json::from_value(value)?)
    }
}

/// Returns the tools whose names match one of these patterns, in which `*` matches any text. Leaves out the tools that
/// the flow does not grant or that `permissions` denies.
pub fn find(patterns: &[String]) -> Result<Vec<Tool>> {
    super::call("tools.find", || json!({ "patterns": patterns }), || super::parse_answer(tools::find(patterns)))
}

/// Calls a tool, blocks until the call ends, and returns the tool's output.
pub fn call(call: &Call) -> Result<Value> {
    let answer = super::call("tools.call", || json!(call), || super::parse_answer(tools::call(&super::text(call)?)));
    answer.and_then(Answer::read).map(|answer| answer.output)
}

/// Calls a tool without waiting. [`next_event`](crate::queue::next_event) returns the answer as a value, which
/// [`Answer::read`] parses.
pub fn start_call(call: &Call) -> Result<CallId> {
    let start = || tools::start_call(&super::text(call)?).map_err(Failure::from_call);
    super::call("tools.start-call", || json!(call), start).map(CallId)
}
