//! Events that arrive while a task runs: the ends of its calls, and messages to its agent runs.

use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::queue,
};

/// A call in progress. [`next_event`] reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u32);

/// An event that [`next_event`] returns.
#[derive(Debug)]
pub enum Event {
    /// A call has ended, with a result or a failure.
    Ended(CallId, Result<Value>),
    /// A message to an agent run.
    Message {
        /// The id of the agent run.
        agent_run: String,
        /// The id of the message.
        id: String,
        /// The content.
        value: Value,
    },
    /// The agent run with this id gets no more messages. The node must finish it.
    Closing(String),
}

/// Blocks until the next event, but at most `timeout_ms` milliseconds. Returns none if the time is up. With
/// `None` there is no time limit: then it returns none as soon as no event can arrive any more.
pub fn next_event(timeout_ms: Option<u32>) -> Result<Option<Event>> {
    #[cfg(not(target_family = "wasm"))]
    if let Some(event) = crate::script::next_arrival(timeout_ms) {
        return Ok(event.map(Event::from_script));
    }
    let Some(event) = queue::next_event(timeout_ms) else { return Ok(None) };
    Ok(Some(match event {
        queue::Event::CallResult(result) => {
            let outcome = result.outcome.map_err(Failure::from_call).and_then(|text| super::read(&text));
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
    fn from_script(arrival: crate::script::Arrival) -> Event {
        use crate::script::Arrival;
        match arrival {
            Arrival::Ended(call, outcome) => Event::Ended(CallId(call), outcome),
            Arrival::Message { agent_run, id, value } => Event::Message { agent_run, id, value },
            Arrival::Closing(agent_run) => Event::Closing(agent_run),
        }
    }
}
