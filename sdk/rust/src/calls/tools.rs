//! Tools: node types, flows, and what the operator's MCP servers offer. The flow grants which:
//! `grants: { tools: ["data.*", "flow:report", "mcp:files/*"] }`.
//!
//! The host asks a person first if the member `permissions` of the task's config says so; the call waits for the answer.

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
    /// What a model may call it: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What it is: `data.map`, `flow:report`, `mcp:files/read_file`.
    pub tool: String,
    /// Two or three words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its input.
    pub input_schema: Value,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// What is called, as [`Tool::tool`] has it.
    pub tool: String,
    /// Its input, an object.
    pub input: Value,
    /// The id of the block with which a model asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The agent run whose call this is: its subscribers are told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_run_id: Option<String>,
}

/// What a tool answers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Answer {
    /// Its output.
    #[serde(default)]
    pub output: Value,
}

impl Call {
    /// A call of a tool by nobody in particular.
    pub fn new(tool: impl Into<String>, input: Value) -> Call {
        Call { tool: tool.into(), input, tool_use_id: None, agent_run_id: None }
    }
}

impl Answer {
    /// Reads what [`next_event`](crate::queue::next_event) hands over when a call has ended well.
    pub fn read(value: Value) -> Result<Answer> {
        Ok(serde_json::from_value(value)?)
    }
}

/// The tools that these patterns name, that are granted and not denied. `*` stands for anything.
pub fn find(patterns: &[String]) -> Result<Vec<Tool>> {
    super::made("tools.find", || json!({ "patterns": patterns }), || super::answered(tools::find(patterns)))
}

/// Calls a tool, waits, and gives its output.
pub fn call(call: &Call) -> Result<Value> {
    let answer = super::made("tools.call", || json!(call), || super::answered(tools::call(&super::text(call)?)));
    answer.and_then(Answer::read).map(|answer| answer.output)
}

/// Calls a tool and goes on. [`next_event`](crate::queue::next_event) hands the [`Answer`] over.
pub fn start_call(call: &Call) -> Result<CallId> {
    let start = || tools::start_call(&super::text(call)?).map_err(Failure::of_call);
    super::made("tools.start-call", || json!(call), start).map(CallId)
}
