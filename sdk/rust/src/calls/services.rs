//! Services that the operator gives flows under a name, such as `img` and `agent`. The flow grants which:
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
    /// What the caller knows the call by; it comes back with the answer.
    pub id: String,
    /// Which service.
    pub service: String,
    /// What it is given.
    pub args: Vec<Value>,
}

/// What a service has answered, whether it could do what it was asked for or not.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What the caller knows the call by.
    pub call_id: String,
    /// Whether the service has done what it was asked for.
    pub ok: bool,
    /// What it gives, if it has.
    #[serde(default)]
    pub result: Value,
    /// Why it has not.
    #[serde(default)]
    pub error: Option<Refusal>,
}

/// Why a service has not done what it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The failure's code, such as `denied` or `service_not_found`.
    pub code: String,
    /// What happened, in a sentence.
    pub message: String,
}

impl Call {
    fn told(&self) -> Value {
        let Call { id, service, args } = self;
        json!({ "kind": "flow-service-call", "callId": id, "service": service, "args": args })
    }
}

impl Answer {
    /// Reads what [`next_event`](crate::queue::next_event) hands over when a call has ended.
    pub fn read(value: Value) -> Result<Answer> {
        Ok(serde_json::from_value(value)?)
    }
}

/// Calls a service and goes on. [`next_event`](crate::queue::next_event) hands the [`Answer`] over.
pub fn start_call(call: &Call) -> Result<CallId> {
    let start = || services::start_call(&call.told().to_string()).map_err(Failure::of_call);
    super::made("services.start-call", || call.told(), start).map(CallId)
}
