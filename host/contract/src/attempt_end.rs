//! The end of an attempt, for capabilities that leave something open between two calls of an attempt.

use std::{fmt, sync::Arc};

/// An action for the end of an attempt.
pub type EndAction = Box<dyn FnOnce() + Send>;

type Register = dyn Fn(EndAction) -> EndRegistration + Send + Sync;

/// Lets a capability close what an attempt has left open, such as a stream, when the attempt ends, pauses, or its host
/// gives up the run. By default it is never told, so a capability also needs a time limit of its own.
#[derive(Clone, Default)]
pub struct AttemptEnd(Option<Arc<Register>>);

impl AttemptEnd {
    /// Creates the end of an attempt from a function that registers an action for it.
    pub fn new(register: impl Fn(EndAction) -> EndRegistration + Send + Sync + 'static) -> AttemptEnd {
        AttemptEnd(Some(Arc::new(register)))
    }

    /// Registers an action for the end of the attempt. Dropping the registration removes the action. While an action is
    /// registered, an attempt that waits keeps its sandbox.
    pub fn on_end(&self, action: impl FnOnce() + Send + 'static) -> EndRegistration {
        self.0.as_ref().map(|register| register(Box::new(action))).unwrap_or_default()
    }
}

impl fmt::Debug for AttemptEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AttemptEnd")
    }
}

/// A registered action. Dropping it removes the action.
#[derive(Default)]
pub struct EndRegistration(Option<EndAction>);

impl EndRegistration {
    /// Creates a registration that calls `remove` when it is dropped.
    pub fn new(remove: impl FnOnce() + Send + 'static) -> EndRegistration {
        EndRegistration(Some(Box::new(remove)))
    }
}

impl Drop for EndRegistration {
    fn drop(&mut self) {
        if let Some(remove) = self.0.take() {
            remove();
        }
    }
}
