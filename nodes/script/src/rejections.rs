//! Promises that were rejected and that nobody looks at: what went wrong in them must not go unheard.

use std::cell::RefCell;

use boa_engine::{
    Context, JsError,
    builtins::promise::{OperationType, Promise, PromiseState},
    context::HostHooks,
    object::{JsObject, builtins::JsPromise},
};

/// The promises, in the order in which they were rejected.
#[derive(Default)]
pub(crate) struct Rejections(RefCell<Vec<JsObject<Promise>>>);

impl Rejections {
    /// Why the first of them was rejected.
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
            // Most are looked at soon after they were rejected.
            OperationType::Handle => {
                if let Some(at) = promises.iter().rposition(|other| JsObject::equals(other, promise)) {
                    promises.remove(at);
                }
            }
        }
    }
}
