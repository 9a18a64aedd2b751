//! The channel of a driven run that sends its events to other processes.

use std::{sync::Arc, time::Instant};

use flowcell_runtime::{Channel, Event, LiveEvent, shared::Relay};

use super::{
    Key,
    interests::Interest,
    message::{LiveMessage, RelayMessage},
};

/// Sends the events of a run and of the runs below it, as long as other processes follow the run.
pub(super) struct RelaySender {
    key: Key,
    interest: Arc<Interest>,
    relay: Arc<dyn Relay>,
}

impl RelaySender {
    /// Returns a sender, unless the run has one.
    pub(super) fn attach(key: Key, interest: Arc<Interest>, relay: Arc<dyn Relay>) -> Option<RelaySender> {
        interest.attach().then(|| RelaySender { key, interest, relay })
    }
}

impl Drop for RelaySender {
    fn drop(&mut self) {
        self.interest.detach();
    }
}

impl Channel for RelaySender {
    /// Sends only the number of an event, because the store has the event.
    fn on_event(&self, event: &Event) {
        let (tenant, run) = &self.key;
        if event.run_id == *run && event.tenant == *tenant && self.interest.includes(event.seq, Instant::now()) {
            let (tenant, run) = self.key.clone();
            RelayMessage::Recorded { tenant, run, seq: event.seq, kind: event.kind.into() }.send_by(&*self.relay);
        }
    }

    fn on_live(&self, event: &LiveEvent) {
        let (tenant, run) = &self.key;
        if event.tenant == *tenant && self.interest.is_current(Instant::now()) {
            RelayMessage::Live(LiveMessage::new(run, event)).send_by(&*self.relay);
        }
    }
}
