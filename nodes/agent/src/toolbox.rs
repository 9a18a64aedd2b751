//! The tools of an agent. If a tool fails, the model receives the error and the agent run continues.

use flowcell_sdk::{
    Failure, Result,
    model::{Block, Offer, ToolUse},
    queue::CallId,
    tools::{self, Answer, Call, Tool},
};
use serde_json::Value;

use crate::{inbox::Inbox, settings::Settings};

/// Maximum size in bytes of a tool result that the model gets. A longer one is cut.
const MAX_RESULT_BYTES: usize = 128 << 10;

/// The tools that the model may call, and the number of tool calls that the agent may still make.
pub(crate) struct Toolbox {
    tools: Vec<Tool>,
    left: u32,
}

impl Toolbox {
    /// Finds the tools that the settings name by patterns and that the flow grants.
    pub(crate) fn find(settings: &Settings) -> Result<Toolbox> {
        let left = settings.max_tool_calls;
        if settings.tools.is_empty() {
            return Ok(Toolbox { tools: Vec::new(), left });
        }
        match tools::find(&settings.tools) {
            Ok(tools) => Ok(Toolbox { tools, left }),
            // Only the preset asks for tools, and the flow grants none.
            Err(failure) if settings.tools_of_preset && failure.code == "denied" => {
                Ok(Toolbox { tools: Vec::new(), left })
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns the names of the tools, as the model uses them.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    /// Returns the tools in the form in which a request lists them for the model.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let offer = |tool: &Tool| Offer {
            name: tool.name.clone(),
            description: tool.description.clone().or_else(|| tool.title.clone()),
            input_schema: tool.input_schema.clone(),
        };
        self.tools.iter().map(offer).collect()
    }

    /// Returns true if no calls are left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Makes the tool calls of one reply concurrently and returns their results in the order of the calls.
    pub(crate) fn make_calls<'a>(
        &mut self,
        uses: impl Iterator<Item = ToolUse<'a>>,
        run: &str,
        inbox: &mut Inbox,
    ) -> Result<Vec<Block>> {
        let begun: Vec<_> = uses.map(|wanted| (wanted.id, self.start_call(wanted, run))).collect();
        let calls: Vec<CallId> = begun.iter().filter_map(|(_, call)| call.as_ref().ok().copied()).collect();
        let mut ends = inbox.wait_for_ends(&calls)?.into_iter();
        let result = |(id, call): (&str, Result<CallId>)| {
            let end = call
                .and_then(|_| ends.next().unwrap_or_else(|| Err(Failure::new("lost_call", "the call has no answer"))));
            match end.and_then(Answer::read) {
                Ok(answer) => Block::tool_result(id, result_text(&answer.output)),
                Err(failure) => Block::tool_error(id, cut_to_limit(failure.to_string())),
            }
        };
        Ok(begun.into_iter().map(result).collect())
    }

    fn start_call(&mut self, wanted: ToolUse<'_>, run: &str) -> Result<CallId> {
        let known = self.tools.iter().find(|tool| tool.name == wanted.name);
        let tool = known.ok_or_else(|| Failure::new("tool_not_found", format!("unknown tool `{}`", wanted.name)))?;
        if !wanted.input.is_object() {
            return Err(Failure::invalid_input("the arguments must be a JSON object"));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| {
            Failure::new("max_tool_calls", "the limit of tool calls is reached; answer without tools")
        })?;
        tools::start_call(&Call {
            tool_use_id: Some(wanted.id.to_owned()),
            agent_run_id: Some(run.to_owned()),
            ..Call::new(tool.tool.as_str(), wanted.input.clone())
        })
    }
}

/// Returns a result as text, cut to [`MAX_RESULT_BYTES`].
fn result_text(output: &Value) -> String {
    match output {
        Value::String(text) => cut_to_limit(text.clone()),
        other => cut_to_limit(other.to_string()),
    }
}

fn cut_to_limit(text: String) -> String {
    if text.len() <= MAX_RESULT_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_RESULT_BYTES);
    format!("{}\n[cut: {end} of {} bytes]", &text[..end], text.len())
}
