//! Services that the operator offers to flows by name, such as `img` and `agent`. The flow grants names:
//! `grants: { services: ["img", "agent"] }`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::queue::CallId;
use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::services,
};

/// A call of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// An id that the caller chooses. The answer repeats it.
    pub id: String,
    /// The name of the service.
    pub service: String,
    /// The arguments.
    pub args: Vec<Value>,
}

/// The answer of a service that succeeded or failed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The id of the call, as in [`Call::id`].
    pub call_id: String,
    /// True if the service succeeded.
    pub ok: bool,
    /// The result of a successful call.
    #[serde(default)]
    pub result: Value,
    /// The error of a failed call.
    #[serde(default)]
    pub error: Option<ServiceError>,
}

/// The reason why a service failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceError {
    /// The failure's code, such as `denied` or `service_not_found`.
    pub code: String,
    /// A description of the error, as a sentence.
    pub message: String,
}

impl Call {
    fn recorded_args(&self) -> Value {
        let Call { id, service, args } = self;
        json!({ "kind": "flow-service-call", "callId": id, "service": service, "args": args })
    }
}

impl Answer {
    /// Parses the value that [`next_event`](crate::queue::next_event) returns when a call has ended.
    pub fn read(value: Value) -> Result<Answer> {
        Ok(serde_json::from_value(value)?)
    }
}

/// Calls a service without waiting. [`next_event`](crate::queue::next_event) returns the answer as a value, which
/// [`Answer::read`] parses.
pub fn start_call(call: &Call) -> Result<CallId> {
    let start = || services::start_call(&call.recorded_args().to_string()).map_err(Failure::from_call);
    super::call("services.start-call", || call.recorded_args(), start).map(CallId)
}
