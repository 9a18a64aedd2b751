//! The inbox: messages to runs that another process drives.

use flowcell_contract::{RunId, Tenant};
use futures_util::future::{BoxFuture, ready};

use super::StoreError;

/// A message to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id that the sender has chosen, of at most 255 bytes. A run applies a message with the same id once.
    pub id: String,
    /// The request, as JSON.
    pub request: String,
}

/// Messages between the processes of one store.
///
/// The defaults are those of a store that one process owns: that process drives all runs, and reaches them without
/// messages.
pub trait Inbox: Send + Sync {
    /// Returns whether other processes may drive runs of this store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Sends a message to a run that another process drives, and waits for its outcome, as JSON. If no process
    /// handles the message in time, the store keeps it, and returns an error that says so.
    fn send(&self, _: &Tenant, run: &RunId, _: Message) -> BoxFuture<'static, Result<String, StoreError>> {
        let error = StoreError(format!("no other process drives the run `{run}`").into());
        Box::pin(ready(Err(error)))
    }
}
