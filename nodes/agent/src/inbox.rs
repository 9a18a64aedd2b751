//! The events that arrive while an agent works: the ends of its calls, and messages. A message waits in the inbox until
//! the agent adds it to the conversation.

use std::collections::VecDeque;

use flowcell_sdk::{
    Failure, Result, agent,
    model::Content,
    queue::{self, CallId, Event},
};
use serde_json::{Value, json};

use crate::conversation;

/// The inbox of one agent run: the waiting messages, and whether the agent run was asked to close.
pub(crate) struct Inbox {
    run: String,
    waiting: VecDeque<(String, Content)>,
    closing: bool,
}

/// The reason why [`Inbox::listen`] returned.
pub(crate) enum ListenEnd {
    Message,
    Closing,
    Nothing,
}

impl Inbox {
    /// Creates an empty inbox of the agent run with this id.
    pub(crate) fn new(run: &str) -> Inbox {
        Inbox { run: run.to_owned(), waiting: VecDeque::new(), closing: false }
    }

    /// Returns true after a request to close the agent run.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns true if no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the oldest message; `None` if no message waits.
    pub(crate) fn take(&mut self) -> Option<Content> {
        self.waiting.pop_front().map(|(_, content)| content)
    }

    /// Waits for a call to end and returns its result. Messages that arrive in the meantime wait in the inbox.
    pub(crate) fn wait_for_end(&mut self, call: CallId) -> Result<Value> {
        self.wait_for_ends(&[call])?.pop().unwrap_or_else(|| Err(lost_call()))
    }

    /// Waits for calls to end and returns their results in the order of `calls`. Messages that arrive in the meantime
    /// wait in the inbox.
    pub(crate) fn wait_for_ends(&mut self, calls: &[CallId]) -> Result<Vec<Result<Value>>> {
        let mut ends: Vec<_> = calls.iter().map(|_| None).collect();
        while ends.iter().any(Option::is_none) {
            match queue::next_event(None)?.ok_or_else(lost_call)? {
                Event::Ended(call, outcome) => {
                    if let Some(at) = calls.iter().position(|other| *other == call) {
                        ends[at] = Some(outcome);
                    }
                }
                other => self.store_event(other),
            }
        }
        Ok(ends.into_iter().flatten().collect())
    }

    /// Waits until a message arrives or the agent run is asked to close. Gives up when no event arrives for
    /// `timeout_ms` milliseconds; with `None`, when no event can arrive any more.
    pub(crate) fn listen(&mut self, timeout_ms: Option<u32>) -> Result<ListenEnd> {
        loop {
            let Some(event) = queue::next_event(timeout_ms)? else { return Ok(ListenEnd::Nothing) };
            self.store_event(event);
            if !self.is_empty() {
                return Ok(ListenEnd::Message);
            }
            if self.closing {
                return Ok(ListenEnd::Closing);
            }
        }
    }

    /// Removes the waiting messages, and reports an event `inbox.discarded` with the reason for each of them.
    pub(crate) fn discard(&mut self, reason: &str) -> Result<()> {
        for (id, _) in self.waiting.drain(..) {
            agent::tell(&self.run, "inbox.discarded", &json!({ "messageId": id, "reason": reason }))?;
        }
        Ok(())
    }

    fn store_event(&mut self, event: Event) {
        match event {
            Event::Message { agent_run, id, value } if agent_run == self.run => {
                let content = conversation::from_inbox(&value);
                self.waiting.push_back((id, content));
            }
            Event::Closing(agent_run) if agent_run == self.run => self.closing = true,
            _ => {}
        }
    }
}

fn lost_call() -> Failure {
    Failure::new("lost_call", "a call is in progress, but no event will arrive").retryable()
}
