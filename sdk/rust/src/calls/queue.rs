//! What arrives while a task runs: the ends of calls that it has started, and messages to its agent runs.

use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::queue,
};

/// A call under way. [`next_event`] tells when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u32);

/// Something that arrived.
#[derive(Debug)]
pub enum Event {
    /// A call has ended, well or not.
    Ended(CallId, Result<Value>),
    /// A message to an agent run.
    Message {
        /// Which agent run.
        agent_run: String,
        /// What it is recognised by.
        id: String,
        /// What it says.
        value: Value,
    },
    /// Nobody writes to this agent run any more: it is to finish.
    Closing(String),
}

/// Waits for the next event. None: the time is up, or no time was given and nothing can arrive any more.
pub fn next_event(timeout_ms: Option<u32>) -> Result<Option<Event>> {
    #[cfg(not(target_family = "wasm"))]
    if let Some(event) = crate::script::next(timeout_ms) {
        return Ok(event.map(Event::of_script));
    }
    let Some(event) = queue::next_event(timeout_ms) else { return Ok(None) };
    Ok(Some(match event {
        queue::Event::CallResult(result) => {
            let outcome = result.outcome.map_err(Failure::of_call).and_then(|text| super::read(&text));
            Event::Ended(CallId(result.id), outcome)
        }
        queue::Event::Message(message) => {
            Event::Message { agent_run: message.agent_run, id: message.id, value: super::read(&message.value)? }
        }
        queue::Event::Closing(agent_run) => Event::Closing(agent_run),
    }))
}

#[cfg(not(target_family = "wasm"))]
impl Event {
    fn of_script(arrival: crate::script::Arrival) -> Event {
        use crate::script::Arrival;
        match arrival {
            Arrival::Ended(call, outcome) => Event::Ended(CallId(call), outcome),
            Arrival::Message { agent_run, id, value } => Event::Message { agent_run, id, value },
            Arrival::Closing(agent_run) => Event::Closing(agent_run),
        }
    }
}
