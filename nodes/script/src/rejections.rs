//! Rejected promises without a handler. Their errors fail the script instead of being lost.

use std::cell::RefCell;

use boa_engine::{
    Context, JsError,
    builtins::promise::{OperationType, Promise, PromiseState},
    context::HostHooks,
    object::{JsObject, builtins::JsPromise},
};

/// The rejected promises without a handler, in the order of their rejection.
#[derive(Default)]
pub(crate) struct Rejections(RefCell<Vec<JsObject<Promise>>>);

impl Rejections {
    /// Returns the error of the promise that was rejected first and has no handler; `None` if there is no such promise.
    pub(crate) fn first(&self) -> Option<JsError> {
        let first = JsPromise::from(self.0.borrow().first()?.clone());
        match first.state() {
            PromiseState::Rejected(reason) => Some(JsError::from_opaque(reason)),
            PromiseState::Pending | PromiseState::Fulfilled(_) => None,
        }
    }
}

impl HostHooks for Rejections {
    fn promise_rejection_tracker(&self, promise: &JsObject<Promise>, operation: OperationType, _: &mut Context) {
        let mut promises = self.0.borrow_mut();
        match operation {
            OperationType::Reject => promises.push(promise.clone()),
            // Most promises get a handler soon after their rejection.
            OperationType::Handle => {
                if let Some(at) = promises.iter().rposition(|other| JsObject::equals(other, promise)) {
                    promises.remove(at);
                }
            }
        }
    }
}
