//! Assembles a reply from a stream of Chat Completions. Tolerates the differences between the many servers.

use std::sync::Arc;

use flowcell_contract::{Json, Object};

use super::{
    super::{Assembly, Interrupted, Used, parse_event, text_of, tokens},
    calls::Calls,
};
use crate::{
    model::{
        attempt_error::AttemptError,
        delta_buffer::Delta,
        price::Usage,
        reply::{Blocks, Outcome, Stop, tool_input},
    },
    sse::Event,
};

/// The data of the event that ends a stream.
const DONE: &str = "[DONE]";

/// Members with thoughts, which some servers send and expect back.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The message that is assembled from the stream.
#[derive(Debug, Default)]
pub(in crate::model::dialect) struct ChatReply {
    id: Arc<str>,
    model: Option<Arc<str>>,
    text: String,
    refusal: String,
    thoughts: [String; THOUGHTS.len()],
    thought_details: Vec<Json>,
    calls: Calls,
    finish: Option<Arc<str>>,
    usage: Option<Usage>,
    cost_usd: Option<f64>,
    written: usize,
    done: bool,
}

impl ChatReply {
    fn take_head(&mut self, chunk: &Json) {
        if self.id.is_empty() {
            self.id = text_of(chunk, "id").into();
        }
        if self.model.is_none() {
            self.model = chunk.get("model").and_then(Json::as_str).filter(|model| !model.is_empty()).map(Arc::from);
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.as_object().is_some()) {
            self.usage = Some(usage_of(usage));
            self.cost_usd = usage.get("cost").and_then(Json::as_f64).filter(|cost| cost.is_finite() && *cost >= 0.0);
        }
    }

    fn take_delta(&mut self, delta: &Json, tell: &mut dyn FnMut(Delta)) {
        for (thoughts, name) in self.thoughts.iter_mut().zip(THOUGHTS) {
            let text = text_of(delta, name);
            if !text.is_empty() {
                thoughts.push_str(text);
                self.written += text.len();
                tell(Delta::Thinking(text.into()));
            }
        }
        self.thought_details
            .extend(delta.get("reasoning_details").and_then(Json::as_array).into_iter().flatten().cloned());
        for (kept, name) in [(&mut self.text, "content"), (&mut self.refusal, "refusal")] {
            let text = text_of(delta, name);
            if !text.is_empty() {
                kept.push_str(text);
                self.written += text.len();
                tell(Delta::Text(text.into()));
            }
        }
        if let Some(pieces) = delta.get("tool_calls").and_then(Json::as_array) {
            self.written += self.calls.take(pieces);
        }
    }

    /// Returns the thoughts as members of the message with which later requests repeat this reply. Returns `None` if
    /// there are no thoughts.
    fn raw(&self) -> Option<Json> {
        let thoughts = self.thoughts.iter().zip(THOUGHTS).filter(|(text, _)| !text.is_empty());
        let mut members: Object = thoughts.map(|(text, name)| (name.into(), Json::from(text.as_str()))).collect();
        if !self.thought_details.is_empty() {
            members.insert("reasoning_details".into(), Json::array(self.thought_details.iter().cloned()));
        }
        (!members.is_empty()).then(|| Json::object(members))
    }

    fn stop(&self) -> Stop {
        match self.finish.as_deref() {
            Some("length") => Stop::MaxTokens,
            Some("content_filter") => Stop::ContentFilter,
            _ if !self.refusal.is_empty() => Stop::Refusal,
            // Some servers report `stop` although the reply has tool calls.
            _ if !self.calls.is_empty() => Stop::ToolCalls,
            _ => Stop::End,
        }
    }
}

fn usage_of(usage: &Json) -> Usage {
    let number = |pointer| tokens(usage, pointer).unwrap_or(0);
    Usage {
        input: number("/prompt_tokens"),
        output: number("/completion_tokens"),
        cache_read: number("/prompt_tokens_details/cached_tokens"),
        cache_write: number("/prompt_tokens_details/cache_write_tokens"),
        reasoning: number("/completion_tokens_details/reasoning_tokens"),
        estimated: false,
    }
}

impl Assembly for ChatReply {
    fn take(&mut self, event: &Event, tell: &mut dyn FnMut(Delta)) -> Result<(), Interrupted> {
        if event.data.trim() == DONE {
            self.done = true;
            return Ok(());
        }
        let chunk = parse_event(event)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Interrupted::Reported(chunk));
        }
        self.take_head(&chunk);
        let choices = chunk.get("choices").and_then(Json::as_array).unwrap_or_default();
        let first = choices.iter().find(|choice| choice.get("index").and_then(Json::as_u64).unwrap_or(0) == 0);
        if let Some(choice) = first {
            if let Some(delta) = choice.get("delta") {
                self.take_delta(delta, tell);
            }
            if let Some(reason) = choice.get("finish_reason").and_then(Json::as_str) {
                self.finish = Some(reason.into());
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn may_end(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn used(&self) -> Used {
        Used { usage: self.usage, cost_usd: self.cost_usd, written: self.written }
    }

    fn finish(&mut self, blocks: &mut Blocks) -> Result<Outcome, AttemptError> {
        let mut content: Vec<Json> = self.raw().map(|raw| blocks.raw(raw)).into_iter().collect();
        for text in [&self.text, &self.refusal] {
            if !text.is_empty() {
                content.push(blocks.text(text, None));
            }
        }
        for call in self.calls.iter() {
            content.push(blocks.tool_use(&call.id, &call.name, tool_input(&call.arguments), None));
        }
        let (id, model, raw_stop) = (self.id.clone(), self.model.clone(), self.finish.clone());
        Ok(Outcome { id, model, content, stop: self.stop(), raw_stop })
    }
}
