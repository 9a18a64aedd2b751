//! Assembles a reply from a stream of OpenAI Responses. The last event of a stream has the whole response. The earlier
//! events serve for progress reports, and replace output that the last event leaves out.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::Json;

use super::super::{Assembly, Interrupted, Used, parse_event, text_of, tokens};
use crate::{
    model::{
        attempt_error::AttemptError,
        delta_buffer::Delta,
        price::Usage,
        reply::{Blocks, Outcome, Stop, tool_input},
    },
    sse::Event,
};

/// The response that is assembled from the stream.
#[derive(Debug, Default)]
pub(in crate::model::dialect) struct ResponsesReply {
    /// Completed items, by their index in the output.
    items: BTreeMap<u64, Json>,
    /// The whole response, once the stream ended.
    last: Option<Json>,
    model: Option<Arc<str>>,
    written: usize,
}

impl ResponsesReply {
    /// Returns the output items of the last event. If the last event leaves them out, returns the items of the earlier
    /// events.
    fn output(&self) -> Vec<&Json> {
        let whole = self.last.as_ref().and_then(|last| last.get("output")).and_then(Json::as_array);
        match whole.filter(|items| !items.is_empty()) {
            Some(items) => items.iter().collect(),
            None => self.items.values().collect(),
        }
    }

    fn end(&mut self, event: &Json) -> Result<(), Interrupted> {
        let response = event.get("response").filter(|response| response.as_object().is_some());
        let response = response.ok_or_else(|| Interrupted::Nonsense("the last event has no response".into()))?;
        self.last = Some(response.clone());
        Ok(())
    }
}

fn usage_of(usage: &Json) -> Usage {
    let number = |pointer| tokens(usage, pointer).unwrap_or(0);
    Usage {
        input: number("/input_tokens"),
        output: number("/output_tokens"),
        cache_read: number("/input_tokens_details/cached_tokens"),
        cache_write: number("/input_tokens_details/cache_write_tokens"),
        reasoning: number("/output_tokens_details/reasoning_tokens"),
        estimated: false,
    }
}

/// Returns an item in the form of blocks that all providers share; `None` for a message without text.
fn block(blocks: &mut Blocks, item: &Json) -> Option<Json> {
    match text_of(item, "type") {
        "message" => {
            let parts = item.get("content").and_then(Json::as_array).unwrap_or_default();
            let text: String =
                parts.iter().map(|part| format!("{}{}", text_of(part, "text"), text_of(part, "refusal"))).collect();
            (!text.is_empty()).then(|| blocks.text(&text, Some(item.clone())))
        }
        "function_call" => {
            let input = tool_input(text_of(item, "arguments"));
            let raw = Some(item.clone()).filter(|_| input.as_object().is_some());
            Some(blocks.tool_use(text_of(item, "call_id"), text_of(item, "name"), input, raw))
        }
        _ => Some(blocks.raw(item.clone())),
    }
}

fn is_refusal(item: &Json) -> bool {
    let parts = item.get("content").and_then(Json::as_array).unwrap_or_default();
    parts.iter().any(|part| text_of(part, "type") == "refusal")
}

impl Assembly for ResponsesReply {
    fn take(&mut self, event: &Event, tell: &mut dyn FnMut(Delta)) -> Result<(), Interrupted> {
        // Servers of the Chat dialect end with this event; here it has no meaning.
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let json = parse_event(event)?;
        let delta = text_of(&json, "delta");
        match text_of(&json, "type") {
            "response.created" => {
                self.model = json.pointer("/response/model").and_then(Json::as_str).map(Arc::from);
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.written += delta.len();
                tell(Delta::Text(delta.into()));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.written += delta.len();
                tell(Delta::Thinking(delta.into()));
            }
            "response.function_call_arguments.delta" => self.written += delta.len(),
            "response.output_item.done" => {
                let next = self.items.keys().next_back().map_or(0, |last| last.saturating_add(1));
                let index = json.get("output_index").and_then(Json::as_u64).unwrap_or(next);
                self.items.insert(index, json.get("item").cloned().unwrap_or_default());
            }
            "response.completed" | "response.incomplete" => self.end(&json)?,
            "response.failed" => {
                let error = json.pointer("/response/error").cloned().unwrap_or_default();
                return Err(Interrupted::Reported(Json::object([("error", error)])));
            }
            "error" => return Err(Interrupted::Reported(json)),
            _ => {}
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.last.is_some()
    }

    fn used(&self) -> Used {
        let usage = self.last.as_ref().and_then(|last| last.get("usage")).filter(|usage| usage.as_object().is_some());
        Used { usage: usage.map(usage_of), cost_usd: None, written: self.written }
    }

    fn finish(&mut self, blocks: &mut Blocks) -> Result<Outcome, AttemptError> {
        let empty = Json::Null;
        let last = self.last.as_ref().unwrap_or(&empty);
        let items = self.output();
        let content: Vec<Json> = items.iter().filter_map(|item| block(blocks, item)).collect();
        let reason = last.pointer("/incomplete_details/reason").and_then(Json::as_str);
        let stop = match reason {
            Some("max_output_tokens") => Stop::MaxTokens,
            Some("content_filter") => Stop::ContentFilter,
            Some(_) => Stop::Paused,
            None if items.iter().any(|item| is_refusal(item)) => Stop::Refusal,
            None if content.iter().any(|block| text_of(block, "type") == "tool_use") => Stop::ToolCalls,
            None => Stop::End,
        };
        let model = last.get("model").and_then(Json::as_str).map(Arc::from).or(self.model.clone());
        let raw_stop = reason.or(last.get("status").and_then(Json::as_str)).map(Arc::from);
        Ok(Outcome { id: text_of(last, "id").into(), model, content, stop, raw_stop })
    }
}
