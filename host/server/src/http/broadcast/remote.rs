//! The events of a run that another process of the same store drives.

use std::sync::Arc;

use bytes::Bytes;
use flowcell_contract::{RunId, Tenant};
use flowcell_platform::observe::relay::{LiveRelay, RemoteEvents, Subscription};
use flowcell_runtime::LiveEvent;
use parking_lot::Mutex;

use super::{Frame, frame, ring::Ring};

/// The subscription of a broadcast to the process that drives the run.
#[derive(Default)]
pub(super) struct Remote(Mutex<Option<Arc<Subscription>>>);

impl Remote {
    /// Subscribes to the events of a run, unless this has happened. `next` is the number of the first event that a
    /// subscriber has not read yet.
    pub(super) fn subscribe(&self, relay: &LiveRelay, tenant: &Tenant, run: &RunId, next: u64, ring: &Arc<Ring>) {
        let mut subscription = self.0.lock();
        match &*subscription {
            Some(subscription) => subscription.has_read_until(next),
            None => *subscription = Some(relay.subscribe(tenant, run, next, Box::new(Receiver(ring.clone())))),
        }
    }

    pub(super) fn unsubscribe(&self) {
        *self.0.lock() = None;
    }
}

/// Sends the events of another process to the subscribers of this one.
struct Receiver(Arc<Ring>);

impl RemoteEvents for Receiver {
    fn on_live(&self, event: &LiveEvent) {
        self.0.push(frame(event, None, &event.kind));
    }

    /// Subscribers read the event from the journal.
    fn on_recorded(&self, seq: u64, kind: &str) {
        self.0.push(Frame { text: Bytes::new(), seq: Some(seq), kind: kind.into() });
    }
}
