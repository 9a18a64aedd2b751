//! Assembles a reply from a stream of Anthropic Messages.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Json, Object};

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

/// The message that is assembled from the stream.
#[derive(Debug, Default)]
pub(in crate::model::dialect) struct MessagesReply {
    id: Arc<str>,
    model: Option<Arc<str>>,
    blocks: BTreeMap<u64, OpenBlock>,
    stop: Option<Arc<str>>,
    usage: Option<TokenCounts>,
    written: usize,
    complete: bool,
}

/// A block: its start and the deltas since.
#[derive(Debug, Default)]
struct OpenBlock {
    start: Object,
    text: String,
    json: String,
    thinking: String,
    signature: String,
    citations: Vec<Json>,
}

/// The token counts that the provider reported last. Each report contains the totals so far.
#[derive(Clone, Copy, Debug, Default)]
struct TokenCounts {
    fresh: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
}

impl TokenCounts {
    fn update(&mut self, usage: &Json) {
        let set = |number: &mut u64, pointer| *number = tokens(usage, pointer).unwrap_or(*number);
        set(&mut self.fresh, "/input_tokens");
        set(&mut self.output, "/output_tokens");
        set(&mut self.cache_read, "/cache_read_input_tokens");
        set(&mut self.cache_write, "/cache_creation_input_tokens");
        set(&mut self.reasoning, "/output_tokens_details/thinking_tokens");
    }

    fn usage(&self) -> Usage {
        Usage {
            input: self.fresh.saturating_add(self.cache_read).saturating_add(self.cache_write),
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.reasoning,
            estimated: false,
        }
    }
}

impl MessagesReply {
    fn open(&mut self, event: &Json) -> Result<(), Interrupted> {
        let block = event.get("content_block").and_then(Json::as_object);
        let start =
            block.ok_or_else(|| Interrupted::Nonsense("the event that starts a block has no block".into()))?.clone();
        self.blocks.insert(index(event)?, OpenBlock { start, ..OpenBlock::default() });
        Ok(())
    }

    fn extend(&mut self, event: &Json, tell: &mut dyn FnMut(Delta)) -> Result<(), Interrupted> {
        let index = index(event)?;
        let Some(open) = self.blocks.get_mut(&index) else {
            return Err(Interrupted::Nonsense(format!("block {index} continues, but did not start")));
        };
        let Some(delta) = event.get("delta") else { return Ok(()) };
        match text_of(delta, "type") {
            "text_delta" => {
                let text = text_of(delta, "text");
                open.text.push_str(text);
                self.written += text.len();
                tell(Delta::Text(text.into()));
            }
            "input_json_delta" => {
                let text = text_of(delta, "partial_json");
                open.json.push_str(text);
                self.written += text.len();
            }
            "thinking_delta" => {
                let text = text_of(delta, "thinking");
                open.thinking.push_str(text);
                self.written += text.len();
                tell(Delta::Thinking(text.into()));
            }
            "signature_delta" => open.signature.push_str(text_of(delta, "signature")),
            "citations_delta" => open.citations.extend(delta.get("citation").cloned()),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, usage: Option<&Json>) {
        if let Some(usage) = usage.filter(|usage| usage.as_object().is_some()) {
            self.usage.get_or_insert_default().update(usage);
        }
    }
}

fn index(event: &Json) -> Result<u64, Interrupted> {
    event
        .get("index")
        .and_then(Json::as_u64)
        .ok_or_else(|| Interrupted::Nonsense("the event of a block has no index".into()))
}

impl OpenBlock {
    /// Returns the block as the provider would send it without streaming.
    fn whole(&self) -> Json {
        let mut members = self.start.clone();
        for (name, added) in [("text", &self.text), ("thinking", &self.thinking), ("signature", &self.signature)] {
            if !added.is_empty() {
                let begun = members.get(name).and_then(Json::as_str).unwrap_or_default();
                let whole = format!("{begun}{added}");
                members.insert(name.into(), Json::from(whole));
            }
        }
        if !self.citations.is_empty() {
            members.insert("citations".into(), Json::array(self.citations.iter().cloned()));
        }
        if !self.json.is_empty() {
            members.insert("input".into(), tool_input(&self.json));
        }
        Json::object(members)
    }

    /// Returns the block in the form that all providers share; `None` for an empty text.
    fn block(&self, blocks: &mut Blocks) -> Option<Json> {
        let whole = self.whole();
        // The provider's own form is left out if it says no more than the shared form.
        let more = |known: &[&str]| {
            let own = whole
                .as_object()
                .is_some_and(|own| own.iter().any(|(key, value)| !known.contains(&key.as_ref()) && !value.is_null()));
            own.then(|| whole.clone())
        };
        match text_of(&whole, "type") {
            "text" if text_of(&whole, "text").is_empty() => None,
            "text" => Some(blocks.text(text_of(&whole, "text"), more(&["type", "text"]))),
            "tool_use" => {
                let input = whole.get("input").cloned().unwrap_or_else(|| tool_input(""));
                let raw = more(&["type", "id", "name", "input"]).filter(|_| input.as_object().is_some());
                Some(blocks.tool_use(text_of(&whole, "id"), text_of(&whole, "name"), input, raw))
            }
            _ => Some(blocks.raw(whole)),
        }
    }
}

impl Assembly for MessagesReply {
    fn take(&mut self, event: &Event, tell: &mut dyn FnMut(Delta)) -> Result<(), Interrupted> {
        let json = parse_event(event)?;
        match text_of(&json, "type") {
            "message_start" => {
                let message = json.get("message").unwrap_or(&Json::Null);
                self.id = text_of(message, "id").into();
                self.model = message.get("model").and_then(Json::as_str).map(Arc::from);
                self.count(message.get("usage"));
            }
            "content_block_start" => self.open(&json)?,
            "content_block_delta" => self.extend(&json, tell)?,
            "message_delta" => {
                let stop = json.pointer("/delta/stop_reason").and_then(Json::as_str);
                self.stop = stop.map(Arc::from).or(self.stop.take());
                self.count(json.get("usage"));
            }
            "message_stop" => self.complete = true,
            "error" => return Err(Interrupted::Reported(json)),
            _ => {}
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn used(&self) -> Used {
        Used { usage: self.usage.map(|counted| counted.usage()), cost_usd: None, written: self.written }
    }

    fn finish(&mut self, blocks: &mut Blocks) -> Result<Outcome, AttemptError> {
        let content: Vec<Json> = self.blocks.values().filter_map(|open| open.block(blocks)).collect();
        let stop = match self.stop.as_deref() {
            Some("max_tokens") => Stop::MaxTokens,
            Some("stop_sequence") => Stop::Sequence,
            Some("tool_use") => Stop::ToolCalls,
            Some("pause_turn") => Stop::Paused,
            Some("refusal") => Stop::Refusal,
            Some("model_context_window_exceeded") => Stop::ContextExceeded,
            _ if content.iter().any(|block| text_of(block, "type") == "tool_use") => Stop::ToolCalls,
            _ => Stop::End,
        };
        let (id, model, raw_stop) = (self.id.clone(), self.model.clone(), self.stop.clone());
        Ok(Outcome { id, model, content, stop, raw_stop })
    }
}
