//! The calls of services that a script makes. Each call has a promise. The promise is settled when the answer arrives.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
};

use boa_engine::{
    Context, JsResult, JsString, JsValue,
    builtins::promise::ResolvingFunctions,
    object::{JsObject, builtins::JsPromise},
};
use flowcell_sdk::{
    Failure, Result,
    queue::{self, CallId, Event},
    services::{self, Answer, Call, ServiceError},
};
use serde_json::Value;

use crate::value;

/// Maximum number of calls in progress; the host permits no more. Further calls wait.
const MAX_CONCURRENT_CALLS: usize = 64;

/// The calls of a script.
#[derive(Default)]
pub(crate) struct Calls(RefCell<State>);

#[derive(Default)]
struct State {
    /// Number of calls so far, which is the id of the latest call.
    made: u64,
    waiting: VecDeque<(Call, Promised)>,
    under_way: HashMap<CallId, Promised>,
}

/// The promise of a call.
struct Promised {
    service: String,
    settle: ResolvingFunctions,
    /// The `Error` with which the promise is rejected. It is created when the script calls the service, so that it has
    /// the line of this call.
    error: JsObject,
}

impl Calls {
    /// Makes a call of a service, at once or as soon as fewer than [`MAX_CONCURRENT_CALLS`] calls are in progress.
    /// Returns the promise of its result.
    pub(crate) fn call(&self, service: String, args: Vec<Value>, context: &mut Context) -> JsResult<JsValue> {
        let (promise, settle) = JsPromise::new_pending(context);
        let error = context.intrinsics().constructors().error().constructor();
        let error = error.construct(&[], None, context)?;
        let id = {
            let mut state = self.0.borrow_mut();
            state.made += 1;
            state.made.to_string()
        };
        let call = Call { id, service: service.clone(), args };
        self.0.borrow_mut().waiting.push_back((call, Promised { service, settle, error }));
        self.start_waiting_calls(context)?;
        Ok(promise.into())
    }

    /// Waits until one of the calls in progress ends, and settles its promise. Returns false if no event can arrive any
    /// more.
    pub(crate) fn settle_next(&self, context: &mut Context) -> Result<bool> {
        while let Some(event) = queue::next_event(None)? {
            let Event::Ended(call, outcome) = event else { continue };
            let Some(promised) = self.0.borrow_mut().under_way.remove(&call) else { continue };
            let outcome = outcome.and_then(Answer::read).map_err(to_service_error).and_then(|answer| match answer.ok {
                true => Ok(answer.result),
                false => Err(answer.error.unwrap_or_else(error_without_reason)),
            });
            let settled = promised.settle(outcome, context).and_then(|()| self.start_waiting_calls(context));
            settled.map_err(|error| Failure::new("script_failed", error))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Starts calls that wait, until [`MAX_CONCURRENT_CALLS`] calls are in progress or none waits.
    fn start_waiting_calls(&self, context: &mut Context) -> JsResult<()> {
        loop {
            let (call, promised) = {
                let mut state = self.0.borrow_mut();
                if state.under_way.len() >= MAX_CONCURRENT_CALLS {
                    return Ok(());
                }
                let Some(next) = state.waiting.pop_front() else { return Ok(()) };
                next
            };
            match services::start_call(&call) {
                Ok(id) => _ = self.0.borrow_mut().under_way.insert(id, promised),
                Err(failure) => promised.settle(Err(to_service_error(failure)), context)?,
            }
        }
    }
}

impl Promised {
    /// Resolves the promise, or rejects it with an `Error` that has the `code` of the failure and the `service`.
    fn settle(self, outcome: Result<Value, ServiceError>, context: &mut Context) -> JsResult<()> {
        let (settle, value) = match outcome {
            Ok(result) => (self.settle.resolve, value::to_js(&result, context)?),
            Err(ServiceError { code, message }) => {
                for (key, text) in [("message", message), ("code", code), ("service", self.service)] {
                    let text = JsString::from(text);
                    self.error.create_data_property_or_throw(JsString::from(key), text, context)?;
                }
                (self.settle.reject, self.error.into())
            }
        };
        settle.call(&JsValue::undefined(), &[value], context).map(|_| ())
    }
}

fn to_service_error(failure: Failure) -> ServiceError {
    ServiceError { code: failure.code.into_owned(), message: failure.message }
}

fn error_without_reason() -> ServiceError {
    ServiceError { code: "service_failed".into(), message: "the service gives no reason for its failure".into() }
}
