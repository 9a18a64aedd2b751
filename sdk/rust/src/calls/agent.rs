//! Agent runs: conversations of an agent that people can watch and send messages to. No grant is needed.
//!
//! ```no_run
//! use flowcell_sdk::{agent, prelude::*, queue};
//!
//! fn wait_for_a_message() -> Result<Value> {
//!     let run = agent::open(&json!({ "inbox": { "capacity": 8 } }))?;
//!     let event = queue::next_event(Some(60_000))?;
//!     let result = json!({ "heard": matches!(event, Some(queue::Event::Message { .. })) });
//!     agent::close(&run, Ok(&result))?;
//!     Ok(result)
//! }
//! ```

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::agent,
};

/// Begins an agent run and returns its id. `about` is an object that the event `agent:start` shows. Its member
/// `inbox`, `{ "capacity": n }`, opens an inbox for at most `n` waiting messages, where `n` is at most 1,024 (default
/// 64). [`next_event`](crate::queue::next_event) returns the messages.
pub fn open(about: &Value) -> Result<String> {
    let args = || json!({ "about": about });
    super::call("agent.open", args, || agent::open(&about.to_string()).map_err(Failure::from_call))
}

/// Reports an event of an agent run. `data` must serialize to an object. The kind `state` becomes the event
/// `agent:state`; a name with a dot, such as `acme.plan`, becomes `agent:event`.
pub fn tell(run: &str, kind: &str, data: &impl Serialize) -> Result<()> {
    let args = || json!({ "agentRunId": run, "kind": kind, "data": data });
    super::call("agent.tell", args, || agent::tell(run, kind, &super::text(data)?).map_err(Failure::from_call))
}

/// Ends an agent run: with an object, which the event `agent:complete` shows, or with a failure. When the attempt ends,
/// the host ends the agent runs that are still open.
pub fn close(run: &str, outcome: Result<&Value, &Failure>) -> Result<()> {
    let args = || match outcome {
        Ok(result) => json!({ "agentRunId": run, "result": result }),
        Err(failure) => {
            json!({ "agentRunId": run, "error": { "code": failure.code, "message": failure.message } })
        }
    };
    super::call("agent.close", args, || {
        let outcome = outcome.map(Value::to_string).map_err(|failure| failure.clone().into_wit());
        agent::close(run, outcome.as_deref()).map_err(Failure::from_call)
    })
}
