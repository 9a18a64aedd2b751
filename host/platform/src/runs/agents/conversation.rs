//! The conversation of an agent run by page: the messages to it, and the answers of its models with the calls of tools.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::ControlFlow,
};

use flowcell_contract::{BuiltIn, Json, RunId};
use flowcell_runtime::{Event, OpenError, paging::PAGE_BYTES};
use serde::Serialize;
use serde_json::Value;

use super::{AgentRun, AgentRuns, AgentUsage, DISCARDED, begins_entry, number, text};
use crate::{Host, StartError, runs::waiting::address_of};

/// Approximate size in bytes of an entry, or of a call of a tool, as JSON text without its texts.
const ITEM_BYTES: u64 = 512;
/// Maximum number of calls of an attempt whose begins are remembered.
const MAX_OPEN_CALLS: usize = 1_024;

/// The entries that a page has, and the maximum size of their texts.
#[derive(Clone, Copy, Debug)]
pub struct EntryWindow {
    /// The number of the first entry.
    pub from: Option<u64>,
    /// The number of the first entry after the page. Without `from` the page has the last entries before it.
    pub before: Option<u64>,
    /// Maximum number of entries.
    pub limit: usize,
    /// Maximum size in bytes of a text that is shown whole.
    pub preview: Option<usize>,
}

/// A page of the conversation of an agent run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// The agent run.
    pub agent: AgentRun,
    /// The entries.
    pub entries: Vec<Entry>,
    /// The `before` of the page before this one, if entries are before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// The `from` of the next page, if entries follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// An entry of a conversation.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The number of the entry, from 0.
    number: u64,
    /// `message` to the agent, `answer` of a model, or `note`.
    kind: &'static str,
    /// The number of its event, which has all of its content.
    seq: u64,
    /// The time of the event, in milliseconds since 1970.
    at: u64,
    /// The text of the message or the answer; of a note its data as JSON text.
    text: String,
    /// The size of the whole text in bytes, if it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_bytes: Option<u64>,
    /// The types of blocks other than texts and calls of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<String>,
    /// The id of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    /// The state of a message: `accepted`, `applied` (the model reads it with the next call) or `discarded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// The name of a note.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The reason why the model stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<String>,
    /// The time of the model's call in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<AgentUsage>,
    /// The calls of tools that the answer asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolUse>,
}

/// A call of a tool that a model has asked for.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolUse {
    /// The number of the call in its attempt. Absent: it was not made, or not yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    /// The name of the tool: as the flow grants it, or as the model names it for a call that was not made.
    tool: String,
    /// `pending`, `asking`, `running`, `succeeded` or `failed`.
    status: &'static str,
    /// The input as JSON text.
    input: String,
    /// The size of the whole input in bytes, if it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_bytes: Option<u64>,
    /// The first KiB of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    /// The address at which a person allows or denies the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<String>,
    /// The decision: `allow`, `deny` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    /// The time of the call in milliseconds, without the wait for a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
    /// The run of the call, for node types and flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    #[serde(skip)]
    use_id: Option<String>,
    #[serde(skip)]
    began: u64,
    #[serde(skip)]
    key: Option<String>,
}

impl Conversation {
    /// Reads a page of the conversation of an agent run. Returns `None` if the run has no such agent run. Blocks its
    /// thread.
    pub fn read(
        host: &Host,
        run: &RunId,
        agent: &str,
        window: EntryWindow,
    ) -> Result<Option<Conversation>, StartError> {
        let mut reading = Reading::new(agent, window);
        host.each_event(run, 0, |event| {
            reading.add(&event);
            ControlFlow::Continue(())
        })?;
        let Some(mut found) = reading.end() else { return Ok(None) };
        if found.tools().any(|tool| tool.key.is_some()) {
            let children = host.runs().map_or(Ok(Vec::new()), |runs| runs.children(host.tenant(), run));
            let children: HashSet<_> = children.map_err(OpenError::Store)?.into_iter().collect();
            for tool in found.tools() {
                let called = tool.key.take().map(|key| RunId::from(format!("{run}.tool-{key}")));
                tool.run_id = called.filter(|called| children.contains(called)).map(|called| called.to_string());
            }
        }
        Ok(Some(found))
    }

    fn tools(&mut self) -> impl Iterator<Item = &mut ToolUse> {
        self.entries.iter_mut().flat_map(|entry| &mut entry.tools)
    }
}

/// A conversation that is being read.
struct Reading<'a> {
    id: &'a str,
    window: EntryWindow,
    /// The agent run alone, once it has begun.
    agents: AgentRuns,
    entries: VecDeque<Entry>,
    bytes: u64,
    /// The number of entries so far.
    count: u64,
    /// The number of the last answer.
    last_answer: Option<u64>,
    /// The times and the keys of the attempt's calls of models and tools.
    calls: HashMap<u64, (u64, Option<String>)>,
}

impl Reading<'_> {
    fn new(id: &str, window: EntryWindow) -> Reading<'_> {
        Reading {
            id,
            window,
            agents: AgentRuns::default(),
            entries: VecDeque::new(),
            bytes: 0,
            count: 0,
            last_answer: None,
            calls: HashMap::new(),
        }
    }

    fn end(mut self) -> Option<Conversation> {
        let agent = self.agents.agents.pop()?;
        let first = self.entries.front().map(|entry| entry.number);
        let after = self.entries.back().map(|entry| entry.number + 1);
        Some(Conversation {
            agent,
            previous: first.filter(|first| *first > 0),
            next: after.filter(|after| *after < self.count),
            entries: self.entries.into(),
        })
    }

    fn add(&mut self, event: &Event) {
        let is_own = text(event, "agentRunId") == Some(self.id);
        if is_own || (!event.kind.starts_with("agent:") || event.kind == "agent:tool:decision") {
            self.agents.add(event);
        }
        let Some(agent) = self.agents.agents.first() else { return };
        if is_own {
            return self.add_own(event);
        }
        // A later attempt of the task numbers its calls anew.
        if agent.ended.is_none() && address_of(event).as_deref() == Some(&agent.task) {
            match event.kind {
                "call:start" => self.begin_call(event),
                "agent:tool:decision" => self.decide(event),
                _ => {}
            }
        }
    }

    /// Adds an event of the agent run.
    fn add_own(&mut self, event: &Event) {
        if begins_entry(event) {
            let entry = self.entry(event);
            self.count += 1;
            self.push(entry);
            return;
        }
        match event.kind {
            "agent:usage" => {
                let last = self.last_answer;
                let answer = self.entries.iter_mut().rev().find(|entry| Some(entry.number) == last);
                if let (Some(answer), Some(usage)) = (answer, event.data.get("usage")) {
                    answer.usage.get_or_insert_default().add(usage);
                }
            }
            "agent:inbox" if text(event, "state") == Some("applied") => {
                self.set_state(text(event, "messageId"), "applied")
            }
            "agent:event" => {
                let message = event.data.get("data").and_then(|data| data.get("messageId")?.as_str());
                self.set_state(message.filter(|_| text(event, "name") == Some(DISCARDED)), "discarded");
            }
            "agent:complete" | "agent:error" => {
                let discarded = event.data.get("discarded").and_then(Json::as_array).unwrap_or_default();
                discarded.iter().for_each(|message| self.set_state(message.as_str(), "discarded"));
            }
            "agent:tool:start" => self.begin_tool(event),
            "agent:tool:permission" => {
                let gate = text(event, "address").map(str::to_owned);
                self.tool(event).into_iter().for_each(|tool| (tool.gate, tool.status) = (gate.clone(), "asking"));
            }
            "agent:tool:result" | "agent:tool:error" => self.end_tool(event),
            _ => {}
        }
    }

    /// Creates the entry that an event begins.
    fn entry(&mut self, event: &Event) -> Entry {
        let named = |name: &str| text(event, name).map(str::to_owned);
        let mut entry = Entry { number: self.count, seq: event.seq, at: event.ts, ..Entry::default() };
        let nothing = Json::Null;
        let content = event.data.get("content").unwrap_or(&nothing);
        match event.kind {
            "agent:message" => {
                let began = self.calls.remove(&number(event, "call"));
                entry.kind = "answer";
                entry.took_ms = began.map(|(began, _)| event.ts.saturating_sub(began));
                (entry.provider, entry.model, entry.stop) = (named("provider"), named("model"), named("stop"));
                (entry.text, entry.others) = read_content(content);
                entry.tools = self.tools_of(content);
                self.last_answer = Some(self.count);
            }
            "agent:inbox" => {
                entry.kind = "message";
                (entry.message_id, entry.state) = (named("messageId"), Some("accepted"));
                (entry.text, entry.others) = read_message(content);
            }
            _ => {
                entry.kind = "note";
                entry.name = named("name");
                entry.text = event.data.get("data").map(Json::to_text).unwrap_or_default();
            }
        }
        entry.text_bytes = cut(&mut entry.text, self.window.preview);
        entry
    }

    /// Returns the calls that an answer asks for. None of them has begun.
    fn tools_of(&self, content: &Json) -> Vec<ToolUse> {
        let blocks = content.as_array().unwrap_or_default().iter();
        let uses = blocks.filter(|block| block.get("type").and_then(Json::as_str) == Some("tool_use"));
        let tool = |block: &Json| {
            let named = |name: &str| block.get(name).and_then(Json::as_str).map(str::to_owned);
            let mut input = block.get("input").map(Json::to_text).unwrap_or_default();
            let input_bytes = cut(&mut input, self.window.preview);
            let tool = named("name").unwrap_or_default();
            ToolUse { tool, status: "pending", input, input_bytes, use_id: named("id"), ..ToolUse::default() }
        };
        uses.map(tool).collect()
    }

    /// Adds an entry, if it is on the page.
    fn push(&mut self, entry: Entry) {
        let EntryWindow { from, before, limit, .. } = self.window;
        if before.is_some_and(|before| entry.number >= before) {
            return;
        }
        let bytes = bytes_of(&entry);
        if from.is_some() || before.is_none() {
            let is_full = self.entries.len() >= limit || (!self.entries.is_empty() && self.bytes + bytes > PAGE_BYTES);
            // The entries of a page have no gaps.
            let follows = self.entries.back().is_none_or(|last| last.number + 1 == entry.number);
            if entry.number < from.unwrap_or(0) || is_full || !follows {
                return;
            }
        }
        self.bytes += bytes;
        self.entries.push_back(entry);
        while self.entries.len() > limit || (self.entries.len() > 1 && self.bytes > PAGE_BYTES) {
            let gone = self.entries.pop_front();
            self.bytes -= gone.as_ref().map_or(0, bytes_of);
        }
    }

    fn begin_call(&mut self, event: &Event) {
        let is_known =
            [BuiltIn::Model, BuiltIn::Tools].iter().any(|known| text(event, "interface") == Some(known.name()));
        if is_known {
            // Failed calls stay in the map.
            if self.calls.len() >= MAX_OPEN_CALLS {
                self.calls.clear();
            }
            self.calls.insert(number(event, "call"), (event.ts, text(event, "key").map(str::to_owned)));
        }
    }

    /// Finds a call of a tool on the page by its number.
    fn tool(&mut self, event: &Event) -> Option<&mut ToolUse> {
        let call = number(event, "call");
        self.entries.iter_mut().rev().flat_map(|entry| &mut entry.tools).find(|tool| tool.call == Some(call))
    }

    fn begin_tool(&mut self, event: &Event) {
        let (call, key) = (number(event, "call"), self.calls.remove(&number(event, "call")).and_then(|(_, key)| key));
        let last = self.last_answer;
        let Some(answer) = self.entries.iter_mut().rev().find(|entry| Some(entry.number) == last) else { return };
        let use_id = text(event, "toolUseId");
        let known = answer.tools.iter().position(|tool| tool.call.is_none() && tool.use_id.as_deref() == use_id);
        let at = known.unwrap_or_else(|| {
            let input = text(event, "input").unwrap_or_default().to_owned();
            answer.tools.push(ToolUse { input, ..ToolUse::default() });
            answer.tools.len() - 1
        });
        let tool = &mut answer.tools[at];
        (tool.call, tool.status, tool.began, tool.key) = (Some(call), "running", event.ts, key);
        if let Some(name) = text(event, "tool") {
            name.clone_into(&mut tool.tool);
        }
    }

    fn decide(&mut self, event: &Event) {
        let is_expired = event.data.get("expired").and_then(Json::as_bool) == Some(true);
        let decision = if is_expired { "expired" } else { text(event, "decision").unwrap_or_default() };
        if let Some(tool) = self.tool(event) {
            (tool.decision, tool.began, tool.status) = (Some(decision.to_owned()), event.ts, "running");
        }
    }

    fn end_tool(&mut self, event: &Event) {
        if let Some(tool) = self.tool(event) {
            tool.took_ms = Some(event.ts.saturating_sub(tool.began));
            tool.output = text(event, "summary").map(str::to_owned);
            tool.error = event.data.get("error").map(Json::to_serde);
            tool.status = if event.kind == "agent:tool:result" { "succeeded" } else { "failed" };
        }
    }

    fn set_state(&mut self, message: Option<&str>, state: &'static str) {
        let sent = |entry: &&mut Entry| entry.message_id.is_some() && entry.message_id.as_deref() == message;
        self.entries.iter_mut().rev().find(sent).into_iter().for_each(|entry| entry.state = Some(state));
    }
}

/// Returns the approximate size of an entry as JSON text. Each call of a tool will have at most 1 KiB of output.
fn bytes_of(entry: &Entry) -> u64 {
    let tools = entry.tools.iter().map(|tool| 1_024 + ITEM_BYTES + (tool.tool.len() + tool.input.len()) as u64);
    ITEM_BYTES + entry.text.len() as u64 + tools.sum::<u64>()
}

/// Cuts a text after `most` bytes. Returns the size of the whole text if it was longer.
fn cut(text: &mut String, most: Option<usize>) -> Option<u64> {
    let whole = text.len();
    text.truncate(text.floor_char_boundary(most.unwrap_or(whole)));
    (text.len() < whole).then_some(whole as u64)
}

/// Returns the text of a message to an agent, as the agent reads it, and the types of its other blocks.
fn read_message(message: &Json) -> (String, Vec<String>) {
    let inner = message.get("message").filter(|inner| inner.as_object().is_some()).unwrap_or(message);
    match (message.as_str(), inner.get("content")) {
        (Some(text), _) => (text.to_owned(), Vec::new()),
        (None, Some(content)) if content.as_str().is_some() || content.as_array().is_some() => read_content(content),
        _ => (message.to_text(), Vec::new()),
    }
}

/// Returns the text of some content, and the types of its blocks other than texts and calls of tools.
fn read_content(content: &Json) -> (String, Vec<String>) {
    if let Some(text) = content.as_str() {
        return (text.to_owned(), Vec::new());
    }
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for block in content.as_array().unwrap_or_default() {
        match block.get("type").and_then(Json::as_str).unwrap_or_default() {
            "text" => texts.push(block.get("text").and_then(Json::as_str).unwrap_or_default()),
            "tool_use" => {}
            other => others.push(other.to_owned()),
        }
    }
    (texts.join("\n\n"), others)
}
