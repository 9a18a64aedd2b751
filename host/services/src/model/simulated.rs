//! The provider `simulated`: it needs no network and gives the same reply to the same request.
//!
//! A script is a list of [`Entry`](super::Entry). Entries whose `match` is in the user's last text have priority. The
//! first of these answers that text, the second answers after the results of the tools that the first called, and so
//! on. If no `match` fits, the entries without a `match` answer in their order, one for each turn of the
//! conversation. The chosen entry depends only on the conversation, so a conversation that continues in another
//! process gets the same replies.
//!
//! Without a matching entry the reply is `simulated reply to: …`, or a minimal value of `outputSchema`. It calls no
//! tool.

mod minimal;
mod sample;

use std::{sync::Arc, time::Duration};

use flowcell_contract::{Failure, Json, yaml_error};

use super::{
    attempt_error::AttemptError,
    clock::{Clock, Wait},
    delta_buffer::{Delta, DeltaBuffer},
    price::{Spent, Usage, estimated_tokens},
    reply::{Blocks, Outcome, Stop},
    request::{Request, Role},
    script::{Entry, ScriptedError},
};
use crate::code;

/// Default number of characters in a streamed piece of text.
const DEFAULT_CHUNK_CHARS: usize = 16;
/// Maximum number of characters of the user's text that the default reply repeats.
const MAX_REPEATED_CHARS: usize = 200;

/// The scripted replies.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(Arc<[Entry]>);

/// The reply that an entry of the script gives, and its usage.
pub(super) struct Played {
    pub(super) outcome: Outcome,
    pub(super) spent: Spent,
}

impl Script {
    pub(super) fn new(entries: Vec<Entry>) -> Result<Script, String> {
        for (index, entry) in entries.iter().enumerate() {
            entry.check().map_err(|why| format!("script[{index}]: {why}"))?;
        }
        Ok(Script(entries.into()))
    }

    /// Parses a script, a list in YAML or JSON.
    pub(super) fn parse(text: &str) -> Result<Script, String> {
        Script::new(serde_yaml::from_str(text).map_err(|error| yaml_error(&error))?)
    }

    /// Answers a turn, or fails as the script says.
    pub(super) async fn play(
        &self,
        request: &Request,
        attempt: u32,
        clock: &dyn Clock,
        deltas: &mut DeltaBuffer,
        blocks: &mut Blocks,
    ) -> Result<Played, AttemptError> {
        let fallback = Entry::default();
        let entry = self.entry(request).unwrap_or(&fallback);
        wait(clock, entry.delay_ms).await;
        if let Some(error) = entry.error.as_ref().filter(|error| error.times.is_none_or(|times| attempt <= times)) {
            return Err(scripted_error(error));
        }
        let text = match &entry.json {
            Some(json) => json.to_text(),
            None => match &entry.text {
                Some(text) => text.clone(),
                None if !entry.tool_calls.is_empty() => String::new(),
                None => default_reply(request).await?,
            },
        };
        let thinking = entry.thinking.as_deref().unwrap_or_default();
        stream_text(entry, thinking, Delta::Thinking, clock, deltas).await;
        stream_text(entry, &text, Delta::Text, clock, deltas).await;
        Ok(reply_of(entry, request, thinking, &text, blocks))
    }

    /// Returns the entry that answers a request.
    fn entry(&self, request: &Request) -> Option<&Entry> {
        let asked = request.last_user_text();
        let fits = |entry: &&Entry| entry.matches.as_ref().is_some_and(|part| asked.contains(part.as_str()));
        let mut matching = self.0.iter().filter(fits).peekable();
        if matching.peek().is_some() {
            return matching.nth(turns_since(request, &asked));
        }
        let turns = request.messages.iter().filter(|message| message.role == Role::Assistant).count();
        self.0.iter().filter(|entry| entry.matches.is_none()).nth(turns)
    }
}

/// Returns the number of the model's messages since the user wrote this text.
fn turns_since(request: &Request, asked: &str) -> usize {
    let later = request.messages.iter().rev().take_while(|one| one.role == Role::Assistant || one.text() != asked);
    later.filter(|message| message.role == Role::Assistant).count()
}

fn scripted_error(error: &ScriptedError) -> AttemptError {
    let message = error.message.as_deref().unwrap_or("the script simulates this failure");
    let wait = error.retry_after_ms.map(Duration::from_millis);
    AttemptError { wait, ..AttemptError::new(&error.code, message) }
}

async fn default_reply(request: &Request) -> Result<String, Failure> {
    let Some(schema) = &request.output_schema else {
        let asked: String = request.last_user_text().chars().take(MAX_REPEATED_CHARS).collect();
        return Ok(format!("simulated reply to: {asked}"));
    };
    let schema = schema.clone();
    let made = tokio::task::spawn_blocking(move || minimal::value(&schema.to_serde()));
    let made =
        made.await.map_err(|error| Failure::retryable(flowcell_contract::code::LOST_WORKER, error.to_string()))?;
    Ok(made.map_err(|why| Failure::new(code::MODEL_INVALID_REQUEST, why))?.to_string())
}

async fn wait(clock: &dyn Clock, milliseconds: u64) {
    if milliseconds > 0 {
        clock.sleep(Wait::Simulated, Duration::from_millis(milliseconds)).await;
    }
}

async fn stream_text(
    entry: &Entry,
    text: &str,
    delta: fn(String) -> Delta,
    clock: &dyn Clock,
    deltas: &mut DeltaBuffer,
) {
    let letters: Vec<char> = text.chars().collect();
    for (index, piece) in letters.chunks(entry.chunk.unwrap_or(DEFAULT_CHUNK_CHARS)).enumerate() {
        if index > 0 && entry.chunk_delay_ms > 0 {
            let mut pause = clock.sleep(Wait::Simulated, Duration::from_millis(entry.chunk_delay_ms));
            loop {
                // Waiting text is reported during the pause, as with a model over HTTP.
                tokio::select! {
                    biased;
                    () = deltas.flush_when_due() => {}
                    () = &mut pause => break,
                }
            }
        }
        deltas.add(delta(piece.iter().collect())).await;
    }
}

fn reply_of(entry: &Entry, request: &Request, thinking: &str, text: &str, blocks: &mut Blocks) -> Played {
    let mut content = Vec::new();
    if !thinking.is_empty() {
        let members = [("type", Json::from("thinking")), ("thinking", Json::from(thinking))];
        content.push(blocks.raw(Json::object(members)));
    }
    if !text.is_empty() {
        content.push(blocks.text(text, None));
    }
    for call in &entry.tool_calls {
        content.push(blocks.tool_use(call.id.as_deref().unwrap_or_default(), &call.name, call.input(), None));
    }
    let usual = if entry.tool_calls.is_empty() { Stop::End } else { Stop::ToolCalls };
    let stop = entry.stop.as_deref().and_then(Stop::from_name).unwrap_or(usual);
    let written = content.iter().map(|block| block.to_text().len()).sum();
    let read: usize = request.messages.iter().map(|message| message.text().len()).sum();
    let guess =
        Usage { input: estimated_tokens(read), output: estimated_tokens(written), estimated: true, ..Usage::default() };
    let usage =
        entry.usage.map_or(guess, |usage| Usage { input: usage.input, output: usage.output, ..Usage::default() });
    let outcome = Outcome { id: "simulated".into(), model: None, content, stop, raw_stop: None };
    Played { outcome, spent: Spent { usage, cost_usd: None } }
}
